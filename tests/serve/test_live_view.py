"""The live view in a real browser: it plays the camera's own video with the record's boxes on the right frame."""

import json
import re
import statistics

import numpy as np
import pytest
from support import coded
from support.live_clients import received, socket
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    DESK,
    PHONE,
    chromium_fixture,
    expect,
    in_sizes_and_schemes,
    open_page_fixture,
    shoot,
    wide,
)
from support.servers import served

from streamkit.core.data import Batch, Detections, Frame
from streamkit.core.records import batch_lines
from streamkit.ops import annotate
from streamkit.ops.rle import encode
from streamkit.ops.style import PALETTE, Style

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

CAMERAS = 4

# For each of `count` frames that come on the screen: the number and the box that the picture shows, the box that is
# drawn over it, both in pixels of the frame, the record that was drawn, and how old the frame is.
MEASURE = """([id, count]) => new Promise((done) => {
  const cell = document.querySelector(`[data-source="${id}"]`);
  const video = cell.querySelector("video"), canvas = cell.querySelector("canvas");
  const copy = document.createElement("canvas"), found = [], times = new Map();
  const width = copy.width = video.videoWidth, height = copy.height = video.videoHeight;
  const context = copy.getContext("2d", { willReadFrequently: true });
  const records = new WebSocket(`${location.origin.replace("http", "ws")}/api/v1/records?source=${id}`);
  records.onmessage = ({ data }) => {
    const one = JSON.parse(data);
    if (one.schema) times.set(one.frame, Date.parse(one.time));
  };
  const hull = (image, top, bright) => {
    let [left, right] = [Infinity, -1];
    for (let y = top; y < image.height; y += 1) for (let x = 0; x < image.width; x += 1) {
      if (bright(image.data, 4 * (y * image.width + x))) [left, right] = [Math.min(left, x), Math.max(right, x)];
    }
    return [left, right + 1];
  };
  const look = (_, about) => {
    context.drawImage(video, 0, 0);
    const picture = context.getImageData(0, 0, width, height);
    const drawn = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let number = 0;
    for (let bit = 0; bit < 10; bit += 1) number |= (picture.data[4 * (8 * width + bit * 16 + 8)] > 128) << bit;
    const scale = Math.min(canvas.width / width, canvas.height / height), left = (canvas.width - width * scale) / 2;
    const line = canvas.getContext("2d").lineWidth / 2;
    const [from, to] = hull(drawn, 0, (data, at) => data[at + 3] > 128);
    const frame = canvas.dataset.frame === "" ? null : Number(canvas.dataset.frame);
    found.push({
      number, frame, picture: hull(picture, 20, (data, at) => data[at] > 128),
      drawn: [(from + line - left) / scale, (to - line - left) / scale],
      age_ms: times.has(frame) ? Date.now() - times.get(frame) : null,
    });
    if (found.length < count) video.requestVideoFrameCallback(look);
    else {
      records.close();
      done(found);
    }
  };
  video.requestVideoFrameCallback(look);
})"""

TEXT = """
{head}
plugins: [{folder}/white.py]
sources:
{sources}
stages:
  white: {{}}
{more}
"""


def text(folder, sources, more="", head=""):
    (folder / "white.py").write_text(coded.PLUGIN)
    lines = "\n".join(f"  {name}: {{{source}}}" for name, source in sources.items())
    return TEXT.format(folder=folder, sources=lines, more=more, head=head)


def loop(folder):
    path = folder / "loop.mp4"
    if not path.exists():
        coded.clip(path, 200)
    return f"uri: {path}, pace: realtime, loop: true"


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    sources = {f"cam{n}": loop(folder) for n in range(2)}
    with served(text(folder, sources), root) as view_server:
        view_server.running("cam0")
        yield view_server


def rtsp_camera(camera, name):
    return f"uri: '{camera.url(name)}', timeout: 3s"


def live(open_page, **options):
    return open_page(view="live", **options)


def cell(page, id_):
    return page.locator(f'.cell[data-source="{id_}"]')


def playing(page, id_):
    expect(cell(page, id_).locator("video")).to_be_visible()
    page.wait_for_function(
        'id => document.querySelector(`[data-source="${id}"] canvas`).dataset.frame', arg=id_, timeout=20_000
    )


def only_boxes(page):
    for name in ("Labels", "Tracks", "Zones and lines", "Masks"):
        page.get_by_role("button", name=name, exact=True).click()


def check_boxes(entries, loop):
    """Check that boxes are on their frame; return the entries with a record.

    A browser that is late has the next frame ready when it calls back for one, so some may be one frame apart.
    """
    seen = [entry for entry in entries if entry["frame"] is not None]
    assert len(seen) > 0.8 * len(entries)
    far = [max(abs(a - b) for a, b in zip(entry["picture"], entry["drawn"], strict=True)) for entry in seen]
    assert sum(distance <= 2 for distance in far) >= 0.5 * len(seen), seen
    if loop is not None:
        apart = [(entry["number"] - entry["frame"]) % loop for entry in seen]
        assert sum(frames_apart <= 1 for frames_apart in apart) >= 0.9 * len(seen), seen
        assert [distance <= 2 for distance in far] == [frames_apart == 0 for frames_apart in apart], seen
    return seen


# --------------------------------------------------------------------------------------------------- frame by frame


@pytest.mark.alone
def test_boxes_match_the_displayed_frame_with_little_delay(open_page, root, rtsp, tmp_path):
    clip = coded.clip(tmp_path / "gate.mp4", 800)
    camera = rtsp({"gate": clip})
    with served(text(tmp_path, {"gate": rtsp_camera(camera, "gate")}), root) as instance:
        instance.running("gate")
        page = live(open_page, url=instance.url)
        playing(page, "gate")
        only_boxes(page)
        page.evaluate(MEASURE, ["gate", 20])  # the first pictures are late
        ages_ms = []
        for _ in range(5):  # other work on the machine may delay pictures, but not all the time
            entries = page.evaluate(MEASURE, ["gate", 60])
            seen = check_boxes(entries, 800)
            assert len({entry["number"] for entry in entries}) > 40
            ages_ms.append(statistics.median(entry["age_ms"] for entry in seen if entry["age_ms"] is not None))
            if ages_ms[-1] <= 400:
                break
        shoot(page, "live-boxes")
    assert ages_ms[-1] <= 400, ages_ms


@pytest.mark.long
@pytest.mark.alone  # a page that gets no core for long draws boxes late
def test_boxes_match_their_frame_over_loops_and_with_two_processes(open_page, root, tmp_path):
    coded.clip(tmp_path / "loop.mp4", 20)
    sources = {name: loop(tmp_path) for name in ("a", "b")}
    with served(text(tmp_path, sources, head="device: {use: cpu, processes: 2}"), root) as instance:
        for id_ in sources:
            instance.running(id_)
        page = live(open_page, url=instance.url)
        only_boxes(page)
        for id_ in sources:
            playing(page, id_)
            check_boxes(page.evaluate(MEASURE, [id_, 50]), 20)


@pytest.mark.alone
def test_boxes_follow_their_object_between_frames_with_results(open_page, root, tmp_path):
    with served(text(tmp_path, {"cam": f"{loop(tmp_path)}, fps: 5"}), root) as server:
        server.running("cam")
        page = live(open_page, url=server.url)
        playing(page, "cam")
        only_boxes(page)
        for _ in range(12):  # the first pictures and other work on the machine delay pictures, but not all the time
            measured = page.evaluate(MEASURE, ["cam", 60])
            drawn = [entry for entry in measured if entry["drawn"][0] is not None]
            far = [max(abs(a - b) for a, b in zip(entry["picture"], entry["drawn"], strict=True)) for entry in drawn]
            near = sum(distance <= 4 for distance in far)  # a box moves 15 pixels from one result to the next
            if near >= 0.8 * len(measured):
                break
        apart = [(entry["number"] - entry["frame"]) % 200 for entry in measured if entry["frame"] is not None]
        assert sum(frames > 0 for frames in apart) > 0.5 * len(measured)
        assert near >= 0.8 * len(measured), far


@pytest.mark.quiet
def test_four_cameras_play_without_drops_in_the_pipeline(open_page, root, rtsp, tmp_path):
    coded.clip(tmp_path / "gate.mp4", 300, rate=10)
    camera = rtsp({f"gate{n}": tmp_path / "gate.mp4" for n in range(CAMERAS)})
    with served(
        text(tmp_path, {f"gate{n}": rtsp_camera(camera, f"gate{n}") for n in range(CAMERAS)}), root
    ) as instance:
        for n in range(CAMERAS):
            instance.running(f"gate{n}")
        page = live(open_page, url=instance.url)
        for n in range(CAMERAS):
            playing(page, f"gate{n}")

        def quiet():
            """Whether each camera has delivered its frames for three seconds, and none was dropped."""
            before = [instance.source(f"gate{n}") for n in range(CAMERAS)]
            page.wait_for_timeout(3000)
            after = [instance.source(f"gate{n}") for n in range(CAMERAS)]
            return all(
                b["frames"] - a["frames"] > 20 and a["dropped"] == b["dropped"]
                for a, b in zip(before, after, strict=True)
            )

        assert any(quiet() for _ in range(5)), "other work on the machine may drop frames, but not all the time"
        assert instance.engine.gallery.live.viewers == CAMERAS + 1
        page.evaluate("location.hash = '#/home'")
        instance.until(lambda: instance.engine.gallery.live.viewers == 0)


# ------------------------------------------------------------------------------------------------------- what it shows


@in_sizes_and_schemes
def test_the_grid_fills_the_screen(open_page, server, scheme, size):
    page = live(open_page, color_scheme=scheme, viewport=DESK if size == "desk" else PHONE)
    for id_ in ("cam0", "cam1"):
        playing(page, id_)
    assert wide(page) <= 0
    box = page.locator(".live").bounding_box()
    window = page.viewport_size
    if size == "desk":
        assert box["y"] + box["height"] == pytest.approx(window["height"], abs=2)
    first, second = (cell(page, id_).bounding_box() for id_ in ("cam0", "cam1"))
    assert first["x"] == second["x"], "pictures are larger above each other here"
    shoot(page, f"live-{size}-{scheme}")
    page.set_viewport_size({"width": 1200, "height": 560})
    page.wait_for_function(
        "() => (([a, b]) => a.offsetTop === b.offsetTop && a.offsetLeft < b.offsetLeft)"
        "(document.querySelectorAll('.cell'))"
    )


@pytest.mark.long
def test_the_grid_size_and_overlay_settings_are_stored(open_page, server):
    page = live(open_page)
    expect(page.locator(".cell")).to_have_count(2)
    expect(page.get_by_role("button", name="4 at once")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("group", name="Pages")).to_be_hidden()
    page.get_by_role("button", name="1 at once").click()
    expect(page.locator(".cell")).to_have_count(1)
    expect(page.get_by_text("1 of 2")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(cell(page, "cam1")).to_be_visible()
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    page.get_by_role("button", name="Boxes").click()
    page.get_by_role("button", name="Labels").click()
    page.get_by_role("button", name="Tracks").click()
    playing(page, "cam1")
    page.reload()
    expect(page.get_by_text("2 of 2")).to_be_visible()
    expect(page.get_by_role("button", name="Boxes")).to_have_attribute("aria-pressed", "false")
    playing(page, "cam1")
    drawn = """() => {
      const context = document.querySelector(".cell canvas").getContext("2d");
      return [...context.getImageData(0, 0, 4000, 2000).data].some(Boolean);
    }"""
    assert page.evaluate(drawn) is False
    page.get_by_role("button", name="Boxes").click()
    page.wait_for_function(drawn)


def test_a_grid_of_25_on_a_phone_loads_only_visible_cameras(open_page, root, tmp_path):
    pattern = "uri: 'test://?width=64&height=36&frames=0', pace: 1"
    with served(
        text(tmp_path, {f"cam{n:02d}": pattern for n in range(25)}).replace("white: {}", "draw: {}"), root
    ) as server:
        server.running("cam24")
        page = live(open_page, url=server.url, viewport=PHONE)
        expect(page.locator(".cell")).to_have_count(25)
        expect(page.get_by_role("button", name="25 at once")).to_have_attribute("aria-pressed", "true")
        expect(cell(page, "cam00").locator("img")).to_be_visible()
        boxes = [cell(page, f"cam{n:02d}").bounding_box() for n in range(25)]
        assert min(box["width"] for box in boxes) >= 150
        assert all(box["width"] / box["height"] == pytest.approx(16 / 9, rel=0.05) for box in boxes)
        assert wide(page) <= 0
        fetched = []
        page.on("request", lambda request: fetched.append(request.url) if "snapshot" in request.url else None)
        page.wait_for_timeout(1500)
        grid = page.locator(".cells").bounding_box()
        below = [f"cam{n:02d}" for n, box in enumerate(boxes) if box["y"] > grid["y"] + grid["height"] + 110]
        assert below
        assert fetched
        assert not [url for url in fetched if any(id_ in url for id_ in below)]
        cell(page, "cam24").scroll_into_view_if_needed()
        expect(cell(page, "cam24").locator("img")).to_be_visible()


def test_a_camera_is_shown_full_screen(open_page, server):
    page = live(open_page)
    playing(page, "cam0")
    page.get_by_role("button", name="Show cam0 on the full screen").click()
    page.wait_for_function("() => document.fullscreenElement?.dataset.source === 'cam0'")
    expect(cell(page, "cam0").locator("video")).to_be_visible()
    page.get_by_role("button", name="Show cam0 on the full screen").click()
    page.wait_for_function("() => !document.fullscreenElement")


def test_signed_out_users_see_an_offer_to_sign_in_only(open_page, server):
    page = live(open_page, token=None)
    expect(cell(page, "cam0").get_by_text("Sign in to see images")).to_be_visible()
    assert server.engine.gallery.live.viewers == 0
    cell(page, "cam0").get_by_text("Sign in to see images").click()
    expect(page.locator("#login")).to_be_visible()


# ----------------------------------------------------------------------------------------------------- what may happen


def test_cameras_with_hidden_objects_are_shown_as_images(open_page, root, tmp_path):
    yaml = text(tmp_path, {"cam": loop(tmp_path)}, "  draw: {pixelate: [box]}")
    with served(yaml, root) as instance:
        instance.running("cam")
        page = live(open_page, url=instance.url)
        expect(cell(page, "cam").locator("img")).to_be_visible()
        expect(cell(page, "cam").locator("video")).to_be_hidden()
        expect(cell(page, "cam").locator(".mode")).to_have_attribute("title", re.compile("draw hides objects"))
        page.wait_for_timeout(1500)
        assert instance.engine.gallery.live.viewers == 0
        shoot(page, "live-hidden")


def test_sources_without_packets_or_playable_codec_are_shown_as_images(open_page, root, tmp_path):
    coded.clip(tmp_path / "hevc.mp4", 50, codec="libx265")
    hevc = f"uri: {tmp_path / 'hevc.mp4'}, pace: realtime, loop: true"
    with served(text(tmp_path, {"bars": "uri: 'test://', pace: 10", "hevc": hevc}), root) as instance:
        for id_ in ("bars", "hevc"):
            instance.running(id_)
        page = live(open_page, url=instance.url)
        reasons = {"bars": "no video of its own", "hevc": "does not play video/mp4"}
        for id_, reason in reasons.items():
            expect(cell(page, id_).locator("img")).to_be_visible()
            expect(cell(page, id_).locator(".mode")).to_have_attribute("title", re.compile(reason))
            first = cell(page, id_).locator("img").get_attribute("src")
            expect(cell(page, id_).locator("img")).not_to_have_attribute("src", first)


SLOW = """
import time
from streamkit import FrameStage, stage

@stage("slow", reads="detections")
class Slow(FrameStage):
    def process(self, frame):
        time.sleep(1.4)
"""
YELLOW = """() => {
  const canvas = document.querySelector(".cell canvas"), context = canvas.getContext("2d");
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const yellow = (at) => data[at] > 200 && data[at + 1] > 180 && data[at + 2] < 120 && data[at + 3] > 200;
  return data.some((_, at) => at % 4 === 0 && yellow(at));
}"""


def test_late_results_are_marked_and_lines_stay(open_page, root, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    more = "  line: {stage: line_counter, line: [[20, 20], [300, 220]]}\n  slow: {}"
    yaml = text(tmp_path, {"cam": f"{loop(tmp_path)}, fps: 1"}, more)
    yaml = yaml.replace("white.py]", f"white.py, {tmp_path}/slow.py]")
    with served(yaml, root) as server:
        server.running("cam")
        page = live(open_page, url=server.url)
        expect(cell(page, "cam").locator("video")).to_be_visible()
        expect(cell(page, "cam").locator(".late")).to_have_text(re.compile(r"^results \d(\.\d)? s late$"))
        page.wait_for_timeout(1000)
        assert [page.evaluate(YELLOW) for _ in range(10)] == [True] * 10
        shoot(page, "live-late")


def test_a_stalled_camera_is_dimmed_with_the_age_of_its_image(open_page, root, rtsp, tmp_path):
    coded.clip(tmp_path / "gate.mp4", 300)
    camera = rtsp({"gate": tmp_path / "gate.mp4"})
    with served(text(tmp_path, {"gate": f"uri: '{camera.url('gate')}', timeout: 30s"}), root) as server:
        server.running("gate")
        page = live(open_page, url=server.url)
        playing(page, "gate")
        camera.freeze()
        expect(cell(page, "gate").locator(".hint")).to_have_text(re.compile(r"^no picture for [345] s$"))
        expect(cell(page, "gate")).to_have_class(re.compile("stale"))
        expect(cell(page, "gate").locator("video")).to_be_visible()  # the last frame
        expect(page.locator("#reason")).to_have_text(re.compile(r'^camera "gate" has sent no frame for \d+ s'))
        expect(page.locator("#status")).to_have_class("status bad")
        assert server.source("gate")["state"] == "running"
        shoot(page, "live-still")
        page.evaluate("location.hash = '#/home'")
        expect(page.locator(".tile .view")).to_have_class(re.compile("stale"))
        expect(page.locator(".tile .view span")).to_have_text(re.compile(r"^no picture for \d+ s$"))
        camera.thaw()
        expect(page.locator(".tile .view")).not_to_have_class(re.compile("stale"))
        expect(page.locator("#status")).not_to_have_attribute("title", re.compile("has sent no frame"))


@pytest.mark.long
def test_a_camera_reconnects_with_another_image_size(open_page, root, rtsp, tmp_path):
    coded.clip(tmp_path / "gate.mp4", 300)
    coded.clip(tmp_path / "wide.mp4", 300, size=(400, 240))
    camera = rtsp({"gate": tmp_path / "gate.mp4"})
    with served(text(tmp_path, {"gate": rtsp_camera(camera, "gate")}), root) as instance:
        instance.running("gate")
        page = live(open_page, url=instance.url)
        playing(page, "gate")
        camera.stop()
        expect(cell(page, "gate").locator(".badge")).to_have_text(re.compile("reconnecting"))
        expect(cell(page, "gate").locator(".hint")).to_be_visible()
        shoot(page, "live-reconnecting")
        camera.swap("gate", tmp_path / "wide.mp4")
        expect(cell(page, "gate").locator(".badge")).to_have_text("running", timeout=60_000)
        page.wait_for_function("() => document.querySelector('.cell video').videoWidth === 400", timeout=60_000)
        playing(page, "gate")
        only_boxes(page)
        entries = page.evaluate(MEASURE, ["gate", 30])
        check_boxes(entries, None)


@pytest.mark.long
def test_video_resumes_after_a_restart_of_the_server(open_page, root, tmp_path):
    yaml = text(tmp_path, {"cam": loop(tmp_path)})
    with served(yaml, root, data=tmp_path / "data") as instance:
        port = int(instance.url.rsplit(":", 1)[1].strip("/"))
        instance.running("cam")
        page = live(open_page, url=instance.url)
        playing(page, "cam")
    expect(page.locator("#away")).to_be_visible()
    with served(yaml, root, port=port, data=tmp_path / "data") as instance:  # the session goes on
        instance.running("cam")
        expect(page.locator("#away")).to_be_hidden()
        instance.until(lambda: instance.engine.gallery.live.viewers == 2)
        page.wait_for_timeout(1000)
        playing(page, "cam")
        entries = page.evaluate(MEASURE, ["cam", 10])
        assert [entry["frame"] for entry in entries] != [None] * 10


# --------------------------------------------------------------------------------------------------------- its modules


def test_a_mask_is_decoded_to_its_pixels(open_page, server):
    mask = np.random.default_rng(3).random((60, 90)) > 0.6
    mask[10:50, 20:30] = True
    rle = encode(mask, 90, 60)
    page = live(open_page)
    alpha = page.evaluate(
        """async (mask) => {
          const { maskImage } = await import("/page/live/mask.js");
          const image = maskImage(mask, "rgb(255 0 0)");
          const data = image.getContext("2d").getImageData(0, 0, image.width, image.height).data;
          return [image.width, image.height, [...data].filter((_, at) => at % 4 === 3)];
        }""",
        {"size": list(rle["size"]), "counts": rle["counts"]},
    )
    assert alpha[:2] == [90, 60]
    np.testing.assert_array_equal(np.array(alpha[2]).reshape(60, 90) > 0, mask)


def test_labels_equal_those_of_draw(open_page, server):
    attributes = np.empty(6, object)
    attributes[:] = [
        None,
        {"make": {"label": "coupe, two doors", "score": 0.9}, "color": {"label": "red", "score": 0.8}},
        {
            "hurt": {"label": "no", "score": None},
            "why": {"label": "she walks on as if nothing was", "score": None},
        },
        {"plate": {"label": "B-XY 12", "score": 0.99}, "parked": {"label": "yes", "score": None}},
        {},
        {"why": {"label": "x" * 27, "score": None}},  # with its name as long as may be
    ]
    table = Detections(
        xyxy=np.tile(np.array([[1, 1, 9, 9]], np.float32), (6, 1)),
        score=np.array([0.5, 0.25, 0.3, 1.0, 0.75, 0.88], np.float32),
        class_id=np.array([0, 1, 0, 1, 2, 0], np.int32),
        batch_row=np.zeros(6, np.int32),
        labels=("person", "car"),
        track_id=np.array([3, -1, 5, 6, -1, 0], np.int64),
        extra={"identity": np.array([-1, -1, 0, 12, -1, -1], np.int64), "attributes": attributes},
    )
    (line,) = batch_lines(Batch([Frame("cam", 0, 0.0, 64, 48)], tables={"detect": table}))
    label_texts = live(open_page).evaluate(
        """async (objects) => {
          const { words } = await import("/page/live/overlay.js");
          return objects.map(words);
        }""",
        json.loads(line)["objects"],
    )
    assert label_texts == [" ".join(parts) for parts in annotate._texts(table, Style())]
    assert label_texts[3] == "car id 12 B-XY 12 parked: yes 1.00"


def test_records_list_the_detectors_that_skipped_a_frame(root, monkeypatch):
    monkeypatch.chdir(root)
    yaml = """
plugins: [plugins]
sources: {street: {uri: samples/street.mp4, every: 3, pace: 10, loop: true}}
stages: {detect: {model: demo, every: 3}, track: {stage: simple_track}}
"""
    with served(yaml, root) as instance:
        instance.running("street")
        with socket(instance, "records?source=street") as opened:
            records: list[dict] = []
            instance.until(lambda: records.extend(m for m in received(opened) if "schema" in m) or len(records) > 6)
    skipped = [record["skipped"] for record in records]
    first = skipped.index([])  # frames of a busy machine may be dropped, and are not numbered among those that it sees
    assert first < 3
    assert skipped[first:] == [[] if number % 3 == 0 else ["detect"] for number in range(len(skipped) - first)]


def test_class_colors_equal_those_of_draw(root):
    text = (root / "streamkit/serve/page/live/overlay.js").read_text()
    palette = text.partition("const PALETTE = [")[2].partition("]")[0]
    assert tuple(int(color, 16) for color in re.findall(r"0x\w{6}", palette)) == PALETTE
