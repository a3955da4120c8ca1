"""Live video and records over WebSockets, of a real server: each frame is the record's, and who may see what."""

import json
import time
from contextlib import suppress

import anyio
import httpx
import pytest
from support import coded
from support.live_clients import left_of_box, received, socket, videos
from support.servers import TOKEN, served
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streamkit.runtime.preview.live import MAX_WAITING, LiveFragment, LiveStart
from streamkit.serve.live import Watchers
from streamkit.serve.live_sockets import VideoChoice, send_videos
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
    with served(text(folder, head=head), root) as video_server:
        video_server.running("loop")
        video_server.running("other")
        yield video_server


def record_at(records, pts_s):
    """The record of the frame that is shown at that time."""
    return next((frame_record for frame_record in records if abs(frame_record["pts_s"] - pts_s) < 0.004), None)


@pytest.mark.quiet  # a busy machine drops frames, which have no record
def test_video_frames_match_their_records_over_loops(server):
    with socket(server, "records") as records, videos(server, "loop", "other") as both:
        for source in ("loop", "other"):
            both.watch(source, lambda watch: watch.fragments > 4 * LOOP)
        all_records = [message for message in received(records, 2.0) if "schema" in message]
    for source, watched in both.of.items():
        (start,) = watched.starts
        assert start["mime"].startswith('video/mp4; codecs="avc1.')
        assert (start["width"], start["height"]) == (coded.WIDTH, coded.HEIGHT)
        source_records = [frame_record for frame_record in all_records if frame_record["source"] == source]
        pairs = [
            (record_at(source_records, pts_s), image) for pts_s, _, image in watched.pictures() if pts_s is not None
        ]
        shown_records = [(record, image) for record, image in pairs if record is not None]
        assert len(shown_records) > 3 * LOOP
        for record, image in shown_records:
            assert record["frame"] % LOOP == coded.number_of(image)
            assert abs(record["objects"][0]["box"][0] - left_of_box(image)) <= 1
        frames = [record["frame"] for record, _ in shown_records]
        assert frames == list(range(frames[0], frames[0] + len(frames))), "none is missing"


def test_a_video_continues_while_others_start_and_stop(server):
    live = server.engine.gallery.live
    with videos(server, "loop") as opened:
        loop = opened.watch("loop", lambda watch: watch.fragments > 5)
        opened.choose("loop", "other")
        other = opened.watch("other", lambda watch: watch.fragments > 5)
        assert live.viewers == 2
        opened.choose("loop")
        server.until(lambda: live.viewers == 1)
        messages = opened.messages
        before = loop.fragments
        started_s = time.monotonic()
        opened.watch("loop", lambda watch: watch.fragments > before + 25)
        limit = 11 * (time.monotonic() - started_s) + 5
        assert opened.messages - messages <= limit, "one message for what comes together"
        assert len(loop.starts) == 1
        media_s = [time for _, time, _ in loop.pictures()]
        assert media_s == sorted(set(media_s))
        assert len(other.starts) == 1
        opened.choose("other")
        opened.watch("other", lambda watch: len(watch.starts) == 2 and watch.fragments > 5)
    server.until(lambda: live.viewers == 0)


@pytest.mark.quiet
def test_a_second_viewer_starts_at_once_and_shares_the_video(server):
    with videos(server, "loop") as first:
        before = first.watch("loop", lambda watch: watch.fragments > 15)
        started_s = time.monotonic()
        with videos(server, "loop") as second:
            later = second.watch("loop", lambda watch: watch.fragments > 5)
            assert time.monotonic() - started_s < 1.5
        assert later.pictures()[0][1] > 0, "it does not begin at the first frame of the other"
        assert len(before.starts) == len(later.starts) == 1
        assert later.numbers()[0] % 10 == 0
    server.until(lambda: server.engine.gallery.live.viewers == 0)


def test_records_have_objects_shapes_and_events_of_the_requested_sources(server):
    with socket(server, "records?source=loop") as stream, socket(server, "records") as every:
        records = []
        end_s = time.monotonic() + 30
        while len(records) <= 20 and time.monotonic() < end_s:
            records += [message for message in received(stream) if "schema" in message]
        all_ = received(every)
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


def test_streamed_events_equal_those_of_the_list(root, tmp_path):
    plugin = tmp_path / "tick.py"
    plugin.write_text(
        "from streamkit import stage\n\n@stage('tick', writes='events')\ndef tick(frame):\n"
        "    '''Emit.'''\n    if frame.index % 10 == 0:\n        frame.emit('ticked', n=frame.index)\n"
    )
    yaml = f"plugins: [{plugin}]\nsources: {{a: {{uri: 'test://', pace: 20}}}}\nstages: {{tick: {{}}}}"
    with served(yaml, root) as instance:
        instance.running("a")
        with socket(instance, "records") as opened:
            events = []
            until_s = time.monotonic() + 30
            while len(events) < 2 and time.monotonic() < until_s:
                events += [message["event"] for message in received(opened) if "event" in message]
        listed = {event["number"]: event for event in instance.open.get("/api/v1/events").json()}
    assert len(events) >= 2
    assert [event["kind"] for event in events] == ["ticked"] * len(events)
    assert all(event["data"] == listed[event["number"]]["data"] for event in events)


def test_nothing_is_encoded_without_a_client(server, monkeypatch):
    live = server.engine.gallery.live
    puts = []
    server.until(lambda: not any(live.viewed(id_) or id_ in live.heard() for id_ in ("loop", "other")))
    assert live.viewers == 0
    assert "streamkit_live_viewers 0.0" in server.open.get("/metrics").text
    time.sleep(0.5)  # what was under way
    monkeypatch.setattr(live, "put", lambda *arguments: puts.append(arguments))
    monkeypatch.setattr(live, "put_records", lambda *arguments: puts.append(arguments))
    time.sleep(1)
    assert puts == []
    with socket(server, "records?source=loop"), videos(server, "loop"):
        server.until(lambda: len(puts) > 10)


# ------------------------------------------------------------------------------------------------------------- refusals


def refusal(server, path, headers=None):
    with pytest.raises(InvalidStatus) as raised, socket(server, path, headers):
        pass
    answer = raised.value.response
    return answer.status_code, json.loads(answer.body)["error"] if answer.body else ""


@pytest.mark.parametrize("path", ["videos", "records"])
def test_a_client_without_token_gets_nothing(server, path):
    assert refusal(server, path, {}) == (403, "")
    assert refusal(server, path, {"Authorization": "Bearer wrong"}) == (403, "")


def test_another_origin_cannot_open_it_with_the_cookie(server):
    with httpx.Client(base_url=server.url) as browser:
        browser.post("/api/v1/session", json={"token": TOKEN})
        cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    origin = server.url.strip("/")
    with socket(server, "records", {**cookie, "Origin": origin}):
        pass
    assert refusal(server, "videos", {**cookie, "Origin": "http://elsewhere.example"}) == (403, "")


def test_an_ending_session_ends_its_videos(server):
    with httpx.Client(base_url=server.url) as browser:
        browser.post("/api/v1/session", json={"token": TOKEN})
        session_headers = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}", "Origin": server.url.strip("/")}
        with videos(server, "loop", headers=session_headers) as opened:
            opened.watch("loop", lambda watch: watch.fragments)
            browser.delete("/api/v1/session", headers={"Origin": session_headers["Origin"]})
            with suppress(ConnectionClosed):
                for _ in opened.opened:  # what was under way; the video would never end
                    pass
            assert opened.opened.close_code == 1008


@pytest.mark.parametrize(
    "message", ["loop", "[]", '{"sources": "loop"}', '{"sources": [1]}', json.dumps({"sources": ["loop"] * 257})]
)
def test_an_invalid_selection_of_sources_closes_the_connection_with_the_reason(server, message):
    with socket(server, "videos") as opened:
        opened.send(message)
        with pytest.raises(ConnectionClosed) as raised:
            opened.recv(timeout=5)
    assert (raised.value.rcvd.code, raised.value.rcvd.reason) == (
        1008,
        'send {"sources": ["ID", ...]} with at most 256 sources',
    )


def test_a_refused_source_does_not_end_other_videos(server):
    server.client.post("/api/v1/sources", json={"id": "bars", "uri": "test://", "options": {"pace": 10}})
    try:
        with videos(server, "missing", "loop", "bars") as opened:
            loop = opened.watch("loop", lambda watch: watch.fragments > 20)
            assert {id_: watch.errors for id_, watch in opened.of.items() if watch.errors} == {
                "missing": ["there is no source 'missing'"],
                "bars": ["bars is a test_pattern, which has no video of its own: watch live.mjpg"],
            }
            opened.choose("loop")
            before = loop.fragments
            opened.watch("loop", lambda watch: watch.fragments > before + 10)
            opened.choose("loop", "missing")
            opened.watch("missing", lambda watch: len(watch.errors) == 2)
    finally:
        server.client.delete("/api/v1/sources/bars")


def test_records_of_an_unknown_source_are_refused(server):
    assert refusal(server, "records?source=missing") == (404, "there is no source 'missing'")


def test_too_many_viewers_are_refused(root, tmp_path):
    with served(text(tmp_path), root, viewers=2) as instance:
        instance.running("loop")
        with videos(instance, "loop") as first, socket(instance, "records"):
            first.watch("loop", lambda watch: watch.fragments)
            status, reason = refusal(instance, "records")
            assert (status, reason.partition(";")[0]) == (429, "the maximum of 2 live streams is reached")
            assert instance.client.get("/api/v1/sources/loop/live.mjpg").status_code == 429
            with videos(instance, "other") as second:
                assert second.watch("other", lambda watch: watch.errors).errors == [reason]
                second.choose()
                first.choose()
                instance.until(lambda: instance.engine.gallery.live.viewers == 1)
                time.sleep(0.2)
                second.choose("other")
                second.watch("other", lambda watch: watch.fragments)
        instance.until(lambda: instance.engine.gallery.live.viewers == 0)
        with videos(instance, "loop", "other") as opened:
            opened.watch("loop", lambda watch: watch.fragments)
            opened.watch("other", lambda watch: watch.fragments)


@pytest.mark.parametrize("option", ["blur: [box]", "pixelate: all"])
def test_video_is_refused_for_sources_with_hidden_regions(root, tmp_path, option):
    with served(text(tmp_path) + f"  draw: {{{option}}}\n", root) as instance:
        instance.running("loop")
        with videos(instance, "loop") as opened:
            assert opened.watch("loop", lambda watch: watch.errors).errors == [
                "the camera's own video shows what draw hides: watch live.mjpg, or remove blur and pixelate from draw"
            ]
            assert not received(opened.opened, 1.0), "nothing else comes"
        assert instance.open.get("/api/v1/status").json()["hides"] == ["draw"]
        with socket(instance, "records?source=loop") as records:
            assert received(records, 3.0)


def test_video_ends_when_the_source_is_removed_or_a_mask_is_added(root, tmp_path, monkeypatch):
    with served(text(tmp_path), root) as instance:
        instance.running("loop")
        with videos(instance, "loop", "other") as opened:
            opened.watch("other", lambda watch: watch.fragments)
            instance.client.delete("/api/v1/sources/other")
            assert opened.watch("other", lambda watch: watch.errors).errors == ["there is no source 'other'"]
            opened.watch("loop", lambda watch: watch.fragments)
            monkeypatch.setattr(instance.engine, "hides", lambda: ["draw"])
            assert "draw hides" in opened.watch("loop", lambda watch: watch.errors).errors[0]
            assert not received(opened.opened, 1.0), "nothing else comes"


# -------------------------------------------------------------------------------------------------- cameras and clients


@pytest.mark.long
def test_video_continues_after_a_reconnection_and_restarts_at_another_size(root, rtsp, tmp_path):
    coded.clip(tmp_path / "gate.mp4", 250)
    coded.clip(tmp_path / "wide.mp4", 250, size=(400, 240))
    camera = rtsp({"gate": tmp_path / "gate.mp4"})
    sources = f"  cam: {{{{uri: '{camera.url('gate')}', timeout: 3s}}}}\n"
    with served(text(tmp_path, sources), root) as instance, videos(instance, "cam") as opened:
        watched = opened.watch("cam", lambda watch: watch.fragments > 30, 60)
        camera.restart()
        instance.until(lambda: instance.source("cam")["state"] == "reconnecting")
        instance.until(lambda: instance.source("cam")["state"] == "running", 60)
        before = watched.fragments
        opened.watch("cam", lambda watch: watch.fragments > before + 40, 60)
        assert len(watched.starts) == 1
        times = [media_s for _, media_s, _ in watched.pictures()]
        assert times == sorted(set(times))
        with socket(instance, "records?source=cam") as records:
            time.sleep(0.7)
            some = received(records)

        count = watched.fragments
        opened.watch("cam", lambda watch: watch.fragments > count + 25, 60)
        shown = [(record_at(some, pts_s), image) for pts_s, _, image in watched.pictures() if pts_s]
        record, same = next((record, image) for record, image in shown if record)
        assert abs(record["objects"][0]["box"][0] - left_of_box(same)) <= 1
        camera.swap("gate", tmp_path / "wide.mp4")
        opened.watch("cam", lambda watch: len(watch.starts) > 1 and watch.fragments > 10, 60)
        assert [(start["width"], start["height"]) for start in watched.starts] == [(320, 240), (400, 240)]
        assert watched.pictures()[0][2].shape == (240, 400, 3)


class Slow:
    """A WebSocket whose client reads no video until `reads` is set."""

    def __init__(self):
        self.reads = anyio.Event()
        self.received = []

    async def send_bytes(self, data):
        self.received.append(data[4 + int.from_bytes(data[:4], "big") :])
        await self.reads.wait()

    async def send_text(self, data):
        pass


def test_a_slow_client_drops_frames_up_to_a_keyframe_and_delays_no_other(server):
    """The messages are put as fast as they can be: none waits for the client."""
    live = server.engine.gallery.live
    engine = server.engine

    async def work():
        slow = Slow()
        choice = VideoChoice()
        choice.read('{"sources": ["gone"]}')
        async with anyio.create_task_group() as group:
            group.start_soon(send_videos, engine, Watchers(engine), choice, slow)
            await anyio.sleep(0.05)
            generation = live.viewed("gone")
            live.put("gone", [LiveStart(generation, "avc1.42c01e", 64, 48, b"init")])
            while not slow.received:  # from then on, nothing is read
                await anyio.sleep(0.01)
            for number in range(10 * MAX_WAITING):
                live.put("gone", [LiveFragment(b"%d," % number, number % 50 == 0)])
                await anyio.sleep(0)
            slow.reads.set()
            await anyio.sleep(0.2)
            group.cancel_scope.cancel()
        return slow.received

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "check_video", lambda id_: None)
        pieces = anyio.run(work)
    assert pieces[0] == b"init"
    numbers = [int(number) for number in b"".join(pieces[1:]).split(b",") if number]
    assert numbers[0] % 50 == 0
    assert len(numbers) <= MAX_WAITING
    assert numbers[-1] == 10 * MAX_WAITING - 1
    assert live.lost >= 10 * MAX_WAITING - len(numbers)
    assert "streamkit_live_lost_total" in server.open.get("/metrics").text


@pytest.mark.parametrize("server", [1], indirect=True)
def test_a_socket_outlives_the_deadline_of_requests(server):
    with socket(server, "records?source=loop") as opened:
        time.sleep(11)  # a request has 10 s
        assert received(opened, 2.0)
