"""Who looks at live pictures, and how many may."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import anyio
import pytest
from starlette.requests import ClientDisconnect
from support.servers import served

from streamkit.runtime.preview.gallery import Gallery
from streamkit.serve import live as module
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.live import MAX_VIEWERS, Watchers

TEXT = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"


@pytest.fixture(scope="module")
def two(root):
    """A server at which two may look."""
    with served(TEXT, root, viewers=2) as instance:
        instance.running("cam")
        yield instance


def test_viewers_are_limited_and_slots_are_freed(two):
    live = "/api/v1/sources/cam/live.mjpg"
    for _ in range(3):
        with ExitStack() as stack:
            for _ in range(2):
                assert stack.enter_context(two.client.stream("GET", live)).status_code == 200
            refused = two.client.get(live)
            assert refused.status_code == 429
            assert refused.json()["error"] == "the maximum of 2 live streams is reached; close one of them"
        two.until(lambda: free(two))


def free(server):
    with (
        server.client.stream("GET", "/api/v1/sources/cam/live.mjpg") as stream,
        server.client.stream("GET", "/api/v1/sources/cam/live.mjpg") as other_stream,
    ):
        return stream.status_code == other_stream.status_code == 200


def test_simultaneous_viewers_are_counted(two):
    two.until(lambda: free(two))
    go = threading.Barrier(12)
    done = threading.Event()

    def look(_):
        go.wait(20)
        with two.client.stream("GET", "/api/v1/sources/cam/live.mjpg") as answer:
            if answer.status_code == 200:
                done.wait(20)
            return answer.status_code

    with ThreadPoolExecutor(12) as pool:
        replies = [pool.submit(look, n) for n in range(12)]
        two.until(lambda: sum(reply.done() for reply in replies) >= 10)
        done.set()
    assert sorted(reply.result() for reply in replies) == [200] * 2 + [429] * 10


def test_a_refused_viewer_takes_no_slot(two):
    for _ in range(5):
        assert two.client.get("/api/v1/sources/nobody/live.mjpg").status_code == 404
        assert two.open.get("/api/v1/sources/cam/live.mjpg").status_code == 401
    two.until(lambda: free(two))


class _Engine:
    """An engine with a source and no pipeline."""

    class running:
        stopping = False
        states: dict = {}  # noqa: RUF012

    class rights:
        @staticmethod
        def sees(source):
            return True

    def __init__(self):
        self.gallery = Gallery()

    def state(self, source):
        if source != "cam":
            raise RequestRejected(404, "none")


def test_a_slot_is_freed_although_no_image_was_sent():
    """A client that leaves before the answer begins."""
    watchers = Watchers(_Engine(), 1)

    async def broken(_):
        raise OSError("gone")

    async def look():
        answer = watchers.stream("cam", None)
        with pytest.raises(RequestRejected, match="maximum of 1 live streams"):
            watchers.stream("cam", None)
        with pytest.raises(ClientDisconnect):
            await answer({"type": "http", "asgi": {"spec_version": "2.4"}}, None, broken)

    for _ in range(3):
        anyio.run(look)


def test_the_default_limit_is_64_viewers():
    watchers = Watchers(_Engine())
    assert MAX_VIEWERS == 64
    for _ in range(64):
        watchers.stream("cam", None)
    with pytest.raises(RequestRejected, match="maximum of 64 live streams") as rejection:
        watchers.stream("cam", None)
    assert rejection.value.status == 429


@pytest.mark.parametrize("end", ["removed", "unknown", "stopping", "gone"])
def test_each_image_is_sent_once_until_source_or_client_end(end, monkeypatch):
    engine = _Engine()
    state = SimpleNamespace(removed=False)
    left = []
    engine.running = SimpleNamespace(stopping=False, states={"cam": state})

    async def disconnected():
        return bool(left)

    def leave():
        if end == "removed":
            state.removed = True
        elif end == "unknown":
            engine.running.states.clear()
        elif end == "stopping":
            engine.running.stopping = True
        else:
            left.append(True)
        engine.gallery.put("cam", b"late", 2, 0.2)

    steps = iter([lambda: None, lambda: engine.gallery.put("cam", b"second", 1, 0.1), lambda: None, leave])

    async def sleep(seconds):
        assert seconds == 0.05
        next(steps)()

    monkeypatch.setattr(module, "anyio", SimpleNamespace(sleep=sleep))
    engine.gallery.put("cam", b"first", 0, 0.0)

    async def look():
        answer = Watchers(engine).stream("cam", disconnected)
        assert answer.media_type == "multipart/x-mixed-replace; boundary=frame"
        return [part async for part in answer.body_iterator]

    assert anyio.run(look) == [
        b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 5\r\n\r\nfirst\r\n",
        b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 6\r\n\r\nsecond\r\n",
    ]
    assert engine.gallery.wants("cam", time.monotonic() + 1)


# ---------------------------------------------------------------------------------------------------- a single picture


def looked_for(engine, monkeypatch, now_s, image_s=None):
    """Make a picture at `image_s`, and a clock that goes on while somebody sleeps; return how long it did each time."""
    if image_s is not None:
        monkeypatch.setattr("streamkit.runtime.preview.gallery.time", SimpleNamespace(monotonic=lambda: image_s))
        engine.gallery.put("cam", b"jpeg", 3, 0.1)
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        now_s[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now_s[0])
    monkeypatch.setattr("streamkit.runtime.preview.gallery.time", clock)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "anyio", SimpleNamespace(sleep=sleep))
    return slept


def test_a_recent_image_is_returned_at_once(monkeypatch):
    engine = _Engine()
    now_s = [100.0]
    slept = looked_for(engine, monkeypatch, now_s, 99.5)
    assert anyio.run(Watchers(engine).image, "cam").frame == 3
    assert not slept


def test_an_old_image_is_returned_after_two_seconds_without_a_newer_one(monkeypatch):
    engine = _Engine()
    now_s = [100.0]
    slept = looked_for(engine, monkeypatch, now_s, 99.4)
    assert anyio.run(Watchers(engine).image, "cam").frame == 3
    assert sum(slept) == pytest.approx(2.0, abs=0.06)


def test_a_missing_image_is_answered_with_the_state_of_the_source(monkeypatch):
    engine = _Engine()
    now_s = [100.0]
    slept = looked_for(engine, monkeypatch, now_s)

    class source:
        state = "reconnecting"
        message = "connection refused"

    engine.source = lambda _: source
    with pytest.raises(
        RequestRejected, match=r"^there is no image of cam: the source is reconnecting: connection refused$"
    ) as rejection:
        anyio.run(Watchers(engine).image, "cam")
    assert rejection.value.status == 503
    source.message = ""
    with pytest.raises(RequestRejected, match=r"the source is reconnecting$"):
        anyio.run(Watchers(engine).image, "cam")
    assert sum(slept) == pytest.approx(4.0, abs=0.12)
    engine.running = type("running", (), {"stopping": True})
    slept.clear()
    with pytest.raises(RequestRejected):
        anyio.run(Watchers(engine).image, "cam")
    assert not slept  # at the end nobody waits
    with pytest.raises(RequestRejected, match="none"):
        anyio.run(Watchers(engine).image, "nobody")
