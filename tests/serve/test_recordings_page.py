"""The view of recordings in a real browser: frames show their number, so that the right one is on the screen."""

import io
import itertools
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import av
import pytest
from support import coded
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    DESK,
    PHONE,
    chromium_fixture,
    expect,
    in_sizes_and_schemes,
    open_page_fixture,
    ring,
    tidy,
    walk,
    wide,
)
from support.recorded_days import record_clip
from support.servers import served

from streamkit.core.data import Event

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

FPS = 25
GOP = 10
FRAMES = 1000  # of a file
LENGTH_S = FRAMES / FPS
GAP_S = 20
PIPELINE = """
sources:
  street: {{uri: "rtsp://127.0.0.1:9/1", name: "Main street", group: entrance}}
  yard: {{uri: "rtsp://127.0.0.1:9/2"}}
  gate: {{uri: "{clip}", pace: realtime, loop: true}}
stages:
  record: {{continuous: true, folder: "{folder}", segment: 3s}}
"""

# The number of the frame that a camera shows, from the pixels of its video or image; -1 without a picture.
NUMBER = """(source) => {
  const pane = document.querySelector(`.pane[data-source="${source}"]`);
  const sized = (element) => element.videoWidth || element.naturalWidth;
  const shown = (element) => sized(element) && getComputedStyle(element).visibility === "visible";
  const picture = [...(pane?.querySelectorAll("video, img") ?? [])].find(shown);
  if (!picture) return -1;
  const canvas = document.createElement("canvas");
  canvas.width = 320;
  canvas.height = 240;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0, 320, 240);
  const light = (bit) => context.getImageData(bit * 16 + 8, 8, 1, 1).data[0] > 128;
  return [...Array(10).keys()].reduce((number, bit) => number + (light(bit) ? 2 ** bit : 0), 0);
}"""

# Lets each image take a second, and counts requests that are pending and stopped.
SLOW_IMAGES = """() => {
  const { fetch } = window, images = window.images = { pending: 0, most: 0, stopped: 0 };
  window.fetch = async (path, request) => {
    if (!String(path).includes("/recordings/image")) return fetch(path, request);
    images.pending += 1;
    images.most = Math.max(images.most, images.pending);
    request.signal.addEventListener("abort", () => { images.stopped += 1; });
    try {
      await new Promise((done, failed) => {
        setTimeout(done, 1000);
        request.signal.addEventListener("abort", () => failed(request.signal.reason));
      });
      return await fetch(path, request);
    } finally {
      images.pending -= 1;
    }
  };
}"""

# Adds up by how much the layout shifts from now on.
SHIFTS = """() => {
  window.shift = 0;
  new PerformanceObserver((list) => list.getEntries().forEach(({ value }) => { window.shift += value; }))
    .observe({ type: "layout-shift" });
}"""


@pytest.fixture(scope="module")
def base_s():
    """When the recordings begin, in seconds since 1970."""
    return float(int(time.time()) - 3600)


@pytest.fixture(scope="module")
def server(root, tmp_path_factory, base_s):
    """`street` was away while `yard` went on; Chromium does not play the codec of `door`; `gate` is recorded now."""
    folder = tmp_path_factory.mktemp("recorded")
    clip = coded.clip(folder / "h264.mp4", FRAMES, gop=GOP)
    reordered = coded.clip(folder / "b-frames.mp4", FRAMES, gop=GOP, bf=2)
    hevc = coded.clip(folder / "hevc.mp4", 250, gop=GOP, codec="libx265")
    record_clip(folder, "street", clip, base_s)
    record_clip(folder, "street", clip, base_s + LENGTH_S + GAP_S, "camera away")
    for place in range(3):
        record_clip(folder, "yard", reordered, base_s + place * LENGTH_S)
    record_clip(folder, "door", hevc, base_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(PIPELINE.format(folder=folder, clip=clip), root) as page_server:
            page_server.until(lambda: len(page_server.client.get("/api/v1/recordings").json()) == 4)
            for n in range(3):
                event = Event("crossed", "line", "street", n, n / 25, n, {"direction": "in", "label": "car"})
                page_server.engine.gallery.add_events(base_s + 5.2 + 10 * n, [event], None)
            yield page_server


@pytest.fixture(autouse=True)
def tidy():  # noqa: F811  no test adds a source
    return


def number(page, source="street"):
    return page.evaluate(NUMBER, source)


def until(page, script, argument=None):
    page.wait_for_function(script, arg=argument, timeout=20_000)


def shows(page, expected, source="street"):
    """Wait until a camera shows this frame, and nothing but its video."""
    until(page, f"([source, number]) => ({NUMBER})(source) === number", [source, expected])


def view(open_page, at_s, *sources, span_s=None, **options):
    """Open the view at a time; `span_s` is about what the timeline shows then."""
    page = open_page(**options)
    query = "&".join(f"source={source}" for source in sources or ("street",))
    page.evaluate("address => { location.hash = address; }", f"#/recordings?{query}&at={at_s}")
    expect(page.locator('.pane[data-ready="true"]')).to_have_count(max(1, len(sources)))
    if span_s:
        page.locator(".track").focus()
        for _ in range(40):
            if period(page)[1] - period(page)[0] <= span_s:
                break
            page.keyboard.press("+")
    return page


def period(page):
    """The first and last time that the timeline shows, in seconds since 1970."""
    track = page.locator(".track")
    return [float(track.get_attribute(f"data-{end}")) for end in ("from", "to")]


def state(page, source="street"):
    return page.locator(f'.pane[data-source="{source}"]').get_attribute("data-state")


def clock_s(page):
    """The time of the view's clock."""
    shown = page.locator(".transport .clock").get_attribute("datetime")
    return datetime.fromisoformat(shown).timestamp()


def place_of(page, time_s):
    """The pixel of a time, on the first lane."""
    box = page.locator(".track").bounding_box()
    from_s, to_s = period(page)
    return box["x"] + (time_s - from_s) / (to_s - from_s) * box["width"], box["y"] + 10


def drag(page, from_s, to_s):
    """Drag from one time to another, and do not drop."""
    page.mouse.move(*place_of(page, from_s))
    page.mouse.down()
    page.mouse.move(*place_of(page, to_s), steps=6)


def test_dragging_shows_keyframes_and_dropping_shows_the_frame(open_page, base_s):
    page = view(open_page, base_s + 10, span_s=11)  # some 4 pixels for each frame
    shows(page, 250)
    drag(page, base_s + 9, base_s + 12.62)
    shows(page, 310)  # the keyframe before
    assert state(page) == "images"
    expect(page.locator(".pane .mode")).to_have_text("keyframes")
    page.mouse.up()
    until(page, "() => document.querySelector('.pane').dataset.state === 'video'")
    shows(page, 315)


def test_dragging_requests_an_image_at_a_time_and_stops_stale_ones(open_page, base_s):
    page = view(open_page, base_s + 10, span_s=60)
    shows(page, 250)
    page.evaluate(SLOW_IMAGES)
    drag(page, base_s + 3, base_s + 8)
    for step in range(20):
        page.mouse.move(*place_of(page, base_s + 8 + step))
        page.wait_for_timeout(100)
    page.mouse.up()
    page.wait_for_timeout(300)
    images = page.evaluate("window.images")
    assert images["most"] == 1
    assert images["pending"] == 0
    assert 2 <= images["stopped"] <= 6  # those that took more than 0.6 s, and the last one


def test_a_date_and_time_lead_there_by_the_clock_of_the_browser(open_page, base_s):
    page = view(open_page, base_s + 5, timezone_id="America/New_York")
    expect(page.locator(".zone")).to_contain_text("America/New_York (E")
    local = datetime.fromtimestamp(base_s + 31, ZoneInfo("America/New_York"))
    page.get_by_label("Go to").fill(local.strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_label("Go to").press("Enter")
    shows(page, 31 * FPS)
    expect(page.locator(".clock")).to_have_text(local.strftime("%H:%M:%S.0"))
    until(page, "at => location.hash.includes(`at=${at}.000`)", base_s + 31)
    page.reload()
    shows(page, 31 * FPS)
    expect(page.get_by_label("Go to")).to_have_value(local.strftime("%Y-%m-%dT%H:%M:%S"))


def test_the_keys_of_frames_step_by_one_frame(open_page, base_s):
    page = view(open_page, base_s + 20.02)
    shows(page, 500)
    for key, expected in ((".", 501), (".", 502), (",", 501), (",", 500), (",", 499), (",", 498)):
        page.keyboard.press(key)  # 500 is the keyframe where the video begins: the frames before it are loaded then
        shows(page, expected)


def test_two_cameras_play_in_step(open_page, base_s):
    page = view(open_page, base_s + 22, "street", "yard")
    shows(page, 550)
    shows(page, 550, "yard")
    page.keyboard.press("Space")
    until(page, f"() => ({NUMBER})('street') > 580")
    apart = page.evaluate(f"() => Math.abs(({NUMBER})('street') - ({NUMBER})('yard'))")
    assert apart <= 5
    page.get_by_label("Speed").select_option("4")
    until(page, f"() => ({NUMBER})('street') > 700")
    page.get_by_role("button", name="Pause").click()
    shown = int((clock_s(page) - base_s) * FPS)
    until(page, "() => [...document.querySelectorAll('.pane')].every(({ dataset }) => dataset.state === 'video')")
    until(page, f"() => ({NUMBER})('street') === ({NUMBER})('yard')")
    assert abs(number(page) - shown) <= 3  # the clock is read to a tenth of a second


def test_a_camera_in_a_gap_says_its_cause_and_rejoins(open_page, base_s):
    gap_s = base_s + LENGTH_S
    page = view(open_page, gap_s + GAP_S - 1, "street", "yard")
    until_words = datetime.fromtimestamp(gap_s + GAP_S, UTC).strftime("%H:%M:%S")
    expect(page.locator(".pane .hint").first).to_have_text(f"No recording until {until_words}: camera away")
    assert number(page) == -1
    shows(page, (GAP_S - 1) * FPS, "yard")
    page.keyboard.press("Space")
    until(page, f"() => ({NUMBER})('street') > 10")
    page.keyboard.press("Space")
    until(page, f"lead => ({NUMBER})('yard') - ({NUMBER})('street') === lead", GAP_S * FPS)


def test_a_gap_of_all_cameras_is_skipped_and_said(open_page, base_s):
    page = view(open_page, base_s + LENGTH_S + 2)
    page.keyboard.press("Space")
    expect(page.locator(".note")).to_have_text(re.compile(r"^Skipped 0:1[67] without a recording\.$"))
    until(page, f"() => ({NUMBER})('street') > 5")


def test_the_timeline_names_the_cause_of_a_gap_under_the_pointer(open_page, base_s):
    page = view(open_page, base_s + LENGTH_S + 2, span_s=60)
    box = page.locator(".track").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    expect(page.locator(".tip")).to_contain_text("camera away")
    before = period(page)
    page.mouse.wheel(0, 400)
    assert period(page)[1] - period(page)[0] > (before[1] - before[0]) * 1.5
    before = period(page)
    page.mouse.wheel(300, 0)
    assert period(page)[0] > before[0]


def test_an_exact_export_has_the_frames_of_its_range(open_page, base_s, tmp_path):
    page = view(open_page, base_s + 10, span_s=10)
    page.keyboard.press("x")
    begin = page.get_by_role("slider", name="Begin of the export")
    expect(begin).to_be_focused()
    page.keyboard.press("ArrowRight")
    end = page.get_by_role("slider", name="End of the export")
    end.focus()
    page.keyboard.press("PageUp")
    first_s, last_s = (float(handle.get_attribute("aria-valuenow")) for handle in (begin, end))
    page.get_by_label("How the export is cut").select_option("true")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    expect(page.locator(".export-state")).to_contain_text("Downloaded")
    numbers = decoded(Path(download.value.path()))
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] == pytest.approx((first_s - base_s) * FPS, abs=2)  # the handles tell tenths of seconds
    assert numbers[-1] + 1 == pytest.approx((last_s - base_s) * FPS, abs=2)
    page.get_by_role("button", name="Cancel").click()
    expect(begin).to_be_hidden()


def decoded(path):
    with av.open(str(path)) as video:
        return [coded.number_of(frame.to_ndarray(format="rgb24")) for frame in video.decode(video=0)]


@pytest.mark.parametrize("source", ["street", "yard"])
def test_the_times_of_frames_are_read_from_fragments(open_page, server, base_s, source):
    about = {"source": source, "from_s": base_s + 3, "to_s": base_s + 5}
    data = server.client.get("/api/v1/recordings/video", params=about).content
    with av.open(io.BytesIO(data)) as video:
        expected = [float(frame.time) for frame in video.decode(video=0)]
    times = page_times(open_page(), data)
    assert times == pytest.approx([time_s - expected[0] for time_s in expected], abs=1e-4)
    assert len(times) >= 50


def page_times(page, data):
    return page.evaluate(
        """async (bytes) => {
          const { frameTimes } = await import("/page/recordings/fragments.js");
          return frameTimes(new Uint8Array(bytes).buffer);
        }""",
        list(data),
    )


def test_what_is_recorded_now_is_shown_as_the_latest(open_page, server, base_s):
    page = view(open_page, base_s + 5, "street", "gate")
    page.keyboard.press("l")
    until(page, "() => document.querySelector('.pane[data-source=gate]').dataset.state === 'video'")
    shown_s = clock_s(page)
    assert time.time() - shown_s < 30
    about = {"source": "gate", "from_s": shown_s, "to_s": shown_s + 0.02}
    piece = server.client.get("/api/v1/recordings/video", params=about)
    with av.open(io.BytesIO(piece.content)) as video:
        frames = [(float(frame.time), frame.to_ndarray(format="rgb24")) for frame in video.decode(video=0)]
    at_s = shown_s - float(piece.headers["x-start-s"]) + frames[0][0]
    shows(page, coded.number_of([pixels for time_s, pixels in frames if time_s <= at_s + 0.002][-1]), "gate")


def test_the_axis_has_whole_hours_when_the_clocks_change(open_page, base_s):
    page = open_page(timezone_id="Europe/Berlin")
    words = page.evaluate(
        """async () => {
          const { Period, axisTimes, axisWords } = await import("/page/recordings/period.js");
          const from_s = Date.UTC(2026, 9, 24, 22) / 1000; // 25 hours of October 25 in Berlin
          const { step_s, times } = axisTimes(new Period(from_s, from_s + 25 * 3600), 10);
          return times.map((time_s) => axisWords(time_s, step_s));
        }"""
    )
    assert [word[-5:] for word in words[1:-1]] == [f"{hour:02}:00" for hour in range(3, 24, 3)]
    assert ["Oct 25" in words[0], "Oct 26" in words[-1]] == [True, True]


def test_a_refused_export_says_why(open_page, base_s):
    page = view(open_page, base_s + LENGTH_S + 2, span_s=10)
    page.keyboard.press("x")
    page.get_by_role("button", name="Download").click()
    expect(page.locator(".export-state")).to_have_text(re.compile("^Not exported: street is not recorded at that time"))


def test_an_unplayable_codec_is_shown_as_keyframes(open_page, base_s):
    page = view(open_page, base_s + 5.1, "door")
    shows(page, 120, "door")
    expect(page.locator(".pane .mode")).to_have_text("images")
    assert "does not play video/mp4" in page.locator(".pane .mode").get_attribute("title")


def test_sixteen_times_is_played_by_keyframes(open_page, base_s):
    page = view(open_page, base_s + 2)
    shows(page, 50)
    page.get_by_label("Speed").select_option("16")
    page.get_by_role("button", name="Play").click()
    until(page, f"() => ({NUMBER})('street') > 200")
    assert state(page) == "images"
    assert number(page) % GOP == 0


def test_events_are_on_the_timeline_and_lead_there_and_back(open_page, base_s, server):
    page = view(open_page, base_s + 1)
    page.keyboard.press("n")
    shows(page, 130)
    expect(page.locator(".note")).to_contain_text("Car 0 crossed")
    page.keyboard.press("n")
    shows(page, 380)
    page.keyboard.press("p")
    shows(page, 130)
    page.get_by_role("link", name="Open the event").click()
    expect(page.locator(".event-detail h3")).to_contain_text("Car 0 crossed")
    page.get_by_role("link", name="Show the recording").click()
    shows(page, 130)
    for _ in range(6):
        page.get_by_role("button", name="Zoom in").click()
    mark = page.locator(".lane .marks")
    expect(mark).to_have_attribute("d", re.compile("^M.*z$"))
    box = page.locator(".track").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2 + 3, box["y"] + 10)  # the playhead is on the event
    shows(page, 130)
    expect(page.locator(".note")).to_contain_text("Car 0 crossed")


def test_the_keyboard_alone_does_it(open_page, base_s):
    page = view(open_page, base_s + 10)
    page.evaluate("document.activeElement.blur()")
    page.locator("#skip").focus()
    walk(page, "Cameras 1 of 4")
    page.keyboard.press("Enter")
    for _ in range(8):
        page.keyboard.press("Tab")
        assert ring(page)
        if page.evaluate("document.activeElement.dataset.camera") == "yard":
            break
    page.keyboard.press("Space")
    expect(page.locator(".pane")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator("#recordings-cameras")).to_be_focused()
    expect(page.locator(".picker-box")).to_be_hidden()
    walk(page, "Play")
    walk(page, "Export")
    walk(page, "Time. Arrow keys move, Page keys move far, plus and minus zoom.")
    before_s = clock_s(page)
    page.keyboard.press("ArrowRight")
    assert clock_s(page) == pytest.approx(before_s + 8, abs=0.11)  # 1/150 of 20 minutes
    shows(page, 18 * FPS, "yard")
    words = page.locator(".track").get_attribute("aria-valuetext")
    assert "street recorded; yard recorded" in words


@in_sizes_and_schemes
def test_nothing_is_cut_or_overlaps_with_opened_items(open_page, base_s, size, scheme):
    axe = pytest.importorskip("axe_playwright_python.base", reason="no axe; pip install axe-playwright-python")
    viewport = DESK if size == "desk" else PHONE
    page = view(
        open_page,
        base_s + LENGTH_S + 2,
        "street",
        "yard",
        color_scheme=scheme,
        viewport=viewport,
        bypass_csp=True,
    )
    page.add_script_tag(path=axe.AXE_FILE_PATH)
    page.evaluate(SHIFTS)
    page.keyboard.press("x")
    expect(page.get_by_role("group", name="Export")).to_be_visible()
    assert violations(page) == []
    page.locator("#recordings-cameras").click()
    page.locator(".picker-box input[type=checkbox]").last.focus()
    assert violations(page, "{ include: ['.tools'] }") == []  # what the list covers has a background of its own
    assert wide(page) <= 0
    rows = [".tools", ".stage", ".transport", ".timelines"]
    boxes = [page.locator(f".recordings > {row}").bounding_box() for row in rows]
    for upper, lower in itertools.pairwise(boxes):
        assert upper["y"] + upper["height"] <= lower["y"] + 0.5
    for button in page.locator(".transport button, .tools button, .export button").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= viewport["width"]
        assert button.evaluate("button => button.scrollWidth <= button.clientWidth + 1")
    contrast = page.evaluate((Path(__file__).parent / "contrast.js").read_text())
    assert [text for text in contrast if text["ratio"] < 4.5] == []
    assert page.evaluate("window.shift") < 0.01


def violations(page, context="document"):
    results = page.evaluate(f"axe.run({context}, {{ resultTypes: ['violations'] }})")
    return [(violation["id"], violation["nodes"][0]["html"][:120]) for violation in results["violations"]]
