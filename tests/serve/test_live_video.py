"""Live video and records over WebSockets, of a real server: each frame is the record's, and who may see what."""

import json
import time

import anyio
import httpx
import pytest
from support import coded
from support.live_clients import left_of_box, received, socket, watch
from support.servers import TOKEN, served
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streamkit.runtime.preview.live import MAX_WAITING, LiveFragment, LiveStart
from streamkit.serve.live_sockets import send_video
from streamkit.serve.token import COOKIE

LOOP = 20  # frames

TEXT = """
{head}
plugins: [{folder}/white.py]
sources:
{sources}
stages:
  white: {{}}
  line: {{stage: line_counter, line: {{door: [[150, 20], [150, 239]]}}}}
"""
SOURCES = """
  loop: {{uri: {folder}/loop.mp4, pace: realtime, loop: true}}
  other: {{uri: {folder}/loop.mp4, pace: realtime, loop: true}}
"""


def text(folder, sources=SOURCES, head=""):
    (folder / "white.py").write_text(coded.PLUGIN)
    if not (folder / "loop.mp4").exists():
        coded.clip(folder / "loop.mp4", LOOP)
    return TEXT.format(folder=folder, head=head, sources=sources.format(folder=folder))


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def server(request, root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("video")
    head = "" if request.param == 1 else "device: {use: cpu, processes: 2}"
    with served(text(folder, head=head), root) as made:
        made.running("loop")
        made.running("other")
        yield made


def record_at(records, pts_s):
    """The record of the frame that is shown at that time."""
    return next((one for one in records if abs(one["pts_s"] - pts_s) < 0.004), None)


@pytest.mark.alone  # a busy machine drops frames, which have no record
@pytest.mark.parametrize(
    ("server", "source"), [(1, "loop"), (2, "other")], indirect=["server"], ids=["one process", "two processes"]
)
def test_each_frame_of_the_video_is_the_one_of_its_record_over_loops(server, source):
    with socket(server, f"records?source={source}") as records, socket(server, f"sources/{source}/live.mp4") as video:
        watched = watch(video, lambda one: one.fragments > 4 * LOOP)
        found = [one for one in received(records, 2.0) if "schema" in one]
    (start,) = watched.starts
    assert start["mime"].startswith('video/mp4; codecs="avc1.')
    assert (start["width"], start["height"]) == (coded.WIDTH, coded.HEIGHT)
    pairs = [(record_at(found, pts_s), image) for pts_s, _, image in watched.pictures() if pts_s is not None]
    known = [(record, image) for record, image in pairs if record is not None]
    assert len(known) > 3 * LOOP
    for record, image in known:
        assert record["source"] == source
        assert record["frame"] % LOOP == coded.number_of(image)
        assert abs(record["objects"][0]["box"][0] - left_of_box(image)) <= 1
    frames = [record["frame"] for record, _ in known]
    assert frames == list(range(frames[0], frames[0] + len(frames))), "none is missing"


def test_a_second_viewer_begins_at_once_and_shares_the_video(server):
    with socket(server, "sources/loop/live.mp4") as first:
        before = watch(first, lambda one: one.fragments > 15)
        begun_s = time.monotonic()
        with socket(server, "sources/loop/live.mp4") as second:
            later = watch(second, lambda one: one.fragments > 5)
            assert time.monotonic() - begun_s < 1.5
        assert later.pictures()[0][1] > 0, "it does not begin at the first frame of the other"
        assert len(before.starts) == len(later.starts) == 1
        assert later.numbers()[0] % 10 == 0
    server.until(lambda: server.engine.gallery.live.viewers == 0)


def test_records_have_objects_shapes_and_events_and_only_of_the_sources_asked_for(server):
    with socket(server, "records?source=loop") as one, socket(server, "records") as every:
        time.sleep(1.5)
        own, all_ = received(one), received(every)
    records = [message for message in own if "schema" in message]
    assert len(records) > 20
    assert {message["source"] for message in records} == {"loop"}
    assert {message["source"] for message in all_ if "schema" in message} == {"loop", "other"}
    record = records[-1]
    assert (record["width"], record["height"]) == (coded.WIDTH, coded.HEIGHT)
    assert record["objects"][0]["label"] == "box"
    assert record["objects"][0]["track_id"] == 7
    (shape,) = record["shapes"]
    assert shape["points"] == [[150, 20], [150, 239]]
    assert shape["text"].startswith("door in ")
    assert not shape["closed"]
    assert record["skipped"] == []


def test_events_come_as_in_the_list_of_events(root, tmp_path):
    plugin = tmp_path / "tick.py"
    plugin.write_text(
        "from streamkit import stage\n\n@stage('tick', writes='events')\ndef tick(frame):\n"
        "    '''Emit.'''\n    if frame.index % 10 == 0:\n        frame.emit('ticked', n=frame.index)\n"
    )
    yaml = f"plugins: [{plugin}]\nsources: {{a: {{uri: 'test://', pace: 20}}}}\nstages: {{tick: {{}}}}"
    with served(yaml, root) as one:
        one.running("a")
        with socket(one, "records") as opened:
            time.sleep(2)
            events = [message["event"] for message in received(opened) if "event" in message]
        listed = {event["number"]: event for event in one.open.get("/api/v1/events").json()}
    assert len(events) >= 2
    assert [event["kind"] for event in events] == ["ticked"] * len(events)
    assert all(event["data"] == listed[event["number"]]["data"] for event in events)


def test_nothing_is_made_while_no_client_is_there(server, monkeypatch):
    live, made = server.engine.gallery.live, []
    server.until(lambda: not any(live.viewed(id_) or live.heard(id_) for id_ in ("loop", "other")))
    assert live.viewers == 0
    assert "streamkit_live_viewers 0.0" in server.open.get("/metrics").text
    time.sleep(0.5)  # what was under way
    monkeypatch.setattr(live, "put", lambda *given: made.append(given))
    monkeypatch.setattr(live, "put_records", lambda *given: made.append(given))
    time.sleep(1)
    assert made == []
    with socket(server, "records?source=loop"), socket(server, "sources/loop/live.mp4"):
        server.until(lambda: len(made) > 10)


# ------------------------------------------------------------------------------------------------------------- refusals


def refusal(server, path, headers=None):
    with pytest.raises(InvalidStatus) as raised, socket(server, path, headers):
        pass
    answer = raised.value.response
    return answer.status_code, json.loads(answer.body)["error"] if answer.body else ""


@pytest.mark.parametrize("path", ["sources/loop/live.mp4", "records"])
def test_without_the_token_nothing_is_sent(server, path):
    assert refusal(server, path, {}) == (403, "")
    assert refusal(server, path, {"Authorization": "Bearer wrong"}) == (403, "")


def test_another_page_may_not_open_it_with_the_browsers_cookie(server):
    with httpx.Client(base_url=server.url) as browser:
        browser.post("/api/v1/session", json={"token": TOKEN})
        cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    own = server.url.strip("/")
    with socket(server, "records", {**cookie, "Origin": own}):
        pass
    assert refusal(server, "sources/loop/live.mp4", {**cookie, "Origin": "http://elsewhere.example"}) == (403, "")


def test_what_is_not_there_is_refused_with_the_reason(server):
    assert refusal(server, "sources/nobody/live.mp4") == (404, "there is no source 'nobody'")
    assert refusal(server, "records?source=nobody") == (404, "there is no source 'nobody'")
    server.client.post("/api/v1/sources", json={"id": "bars", "uri": "test://", "options": {"pace": 10}})
    try:
        status, why = refusal(server, "sources/bars/live.mp4")
    finally:
        server.client.delete("/api/v1/sources/bars")
    assert (status, why) == (409, "bars is a test_pattern, which has no video of its own: watch live.mjpg")


def test_too_many_viewers_are_refused(root, tmp_path):
    with served(text(tmp_path), root, viewers=2) as one:
        one.running("loop")
        with socket(one, "sources/loop/live.mp4"), socket(one, "records"):
            status, why = refusal(one, "sources/other/live.mp4")
            assert (status, why.partition(";")[0]) == (429, "the maximum of 2 live streams is reached")
            assert one.client.get("/api/v1/sources/loop/live.mjpg").status_code == 429
        one.until(lambda: one.engine.gallery.live.viewers == 0)
        with socket(one, "sources/other/live.mp4") as opened:
            watch(opened, lambda found: found.fragments)


@pytest.mark.parametrize("option", ["blur: [box]", "pixelate: all"])
def test_what_a_stage_hides_is_not_sent_as_video(root, tmp_path, option):
    with served(text(tmp_path) + f"  draw: {{{option}}}\n", root) as one:
        one.running("loop")
        status, why = refusal(one, "sources/loop/live.mp4")
        assert status == 403
        assert why == (
            "the camera's own video shows what draw hides: watch live.mjpg, or remove blur and pixelate from draw"
        )
        assert one.open.get("/api/v1/status").json()["hides"] == ["draw"]
        with socket(one, "records?source=loop") as records:
            assert received(records, 3.0)


def test_video_ends_when_the_source_is_removed_and_when_something_is_hidden(root, tmp_path, monkeypatch):
    with served(text(tmp_path), root) as one:
        one.running("loop")
        with socket(one, "sources/other/live.mp4") as opened:
            watch(opened, lambda found: found.fragments)
            one.client.delete("/api/v1/sources/other")
            watched = watch(opened, lambda found: found.errors)
            assert watched.errors == ["there is no source 'other'"]
            with pytest.raises(ConnectionClosed):
                opened.recv(timeout=5)
        with socket(one, "sources/loop/live.mp4") as opened:
            watch(opened, lambda found: found.fragments)
            monkeypatch.setattr(one.engine, "hides", lambda: ["draw"])
            assert "draw hides" in watch(opened, lambda found: found.errors).errors[0]


# -------------------------------------------------------------------------------------------------- cameras and clients


@pytest.mark.long
def test_a_camera_that_comes_back_goes_on_and_another_size_starts_again(root, rtsp, tmp_path):
    coded.clip(tmp_path / "gate.mp4", 250)
    coded.clip(tmp_path / "wide.mp4", 250, size=(400, 240))
    camera = rtsp({"gate": tmp_path / "gate.mp4"})
    sources = f"  cam: {{{{uri: '{camera.url('gate')}', timeout: 3s}}}}\n"
    with served(text(tmp_path, sources), root) as one, socket(one, "sources/cam/live.mp4") as video:
        watched = watch(video, lambda found: found.fragments > 30, 60)
        camera.restart()
        one.until(lambda: one.source("cam")["state"] == "reconnecting")
        one.until(lambda: one.source("cam")["state"] == "running", 60)
        before = watched.fragments
        watch(video, lambda found: found.fragments > before + 40, 60, watched)
        assert len(watched.starts) == 1
        times = [media_s for _, media_s, _ in watched.pictures()]
        assert times == sorted(set(times))
        with socket(one, "records?source=cam") as records:
            time.sleep(0.7)
            record = received(records)[0]

        def matching(found):
            """The image of the record's frame, once it has come."""
            pictures = found.pictures() if found.fragments % 10 == 0 else []
            return [image for pts_s, _, image in pictures if pts_s and record_at([record], pts_s)]

        (same,) = matching(watch(video, matching, 60, watched))
        assert abs(record["objects"][0]["box"][0] - left_of_box(same)) <= 1
        camera.swap("gate", tmp_path / "wide.mp4")
        watch(video, lambda found: len(found.starts) > 1 and found.fragments > 10, 60, watched)
        assert [(start["width"], start["height"]) for start in watched.starts] == [(320, 240), (400, 240)]
        assert watched.pictures()[0][2].shape == (240, 400, 3)


class Slow:
    """A WebSocket whose client reads nothing until `reads` is set."""

    def __init__(self):
        self.reads, self.got = anyio.Event(), []

    async def send_bytes(self, data):
        self.got.append(data)
        await self.reads.wait()

    async def send_text(self, data):
        self.got.append(data)


def test_a_slow_client_loses_up_to_a_keyframe_and_holds_nothing_up(server):
    """The messages are put as fast as they can be: none waits for the client."""
    live, engine = server.engine.gallery.live, server.engine

    async def work():
        slow = Slow()
        async with anyio.create_task_group() as group:
            group.start_soon(send_video, engine, "gone", slow)
            await anyio.sleep(0.05)
            generation = live.viewed("gone")
            live.put("gone", LiveStart(generation, "avc1.42c01e", 64, 48, b"init"))
            while len(slow.got) < 2:  # from then on, nothing is read
                await anyio.sleep(0.01)
            for number in range(10 * MAX_WAITING):
                live.put("gone", LiveFragment(b"%d," % number, number % 50 == 0))
                await anyio.sleep(0)
            slow.reads.set()
            await anyio.sleep(0.2)
            group.cancel_scope.cancel()
        return slow.got

    state = engine.running.states["loop"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "check_video", lambda id_: state)
        got = anyio.run(work)
    assert got[1] == b"init"
    numbers = [int(one) for one in b"".join(got[2:]).split(b",") if one]
    assert numbers[0] % 50 == 0
    assert len(numbers) <= MAX_WAITING
    assert numbers[-1] == 10 * MAX_WAITING - 1
    assert live.lost >= 10 * MAX_WAITING - len(numbers)
    assert "streamkit_live_lost_total" in server.open.get("/metrics").text


@pytest.mark.parametrize("server", [1], indirect=True)
def test_a_socket_stays_open_for_longer_than_a_request_may_take(server):
    with socket(server, "records?source=loop") as opened:
        time.sleep(11)  # a request has 10 s
        assert received(opened, 2.0)
