"""The gallery of a worker process: images and events reach the parent, requests reach the worker."""

import enum
import math
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Event
from streamkit.runtime.execution.device import choose
from streamkit.runtime.multiprocess.children import Child, ParentConnection, wait
from streamkit.runtime.multiprocess.messages import Fatal, GalleryEvents, PreviewImage, Ready, Stop, Watch
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.preview import remote as module
from streamkit.runtime.preview.gallery import REQUESTED_FOR_S, Gallery
from streamkit.runtime.preview.live import LiveWish
from streamkit.runtime.preview.remote import GalleryRelay, RemoteGallery
from streamkit.runtime.preview.stage import follow_sinks, preview_graph
from streamkit.runtime.run import RunConfig

LOOP = "{uri: samples/street.mp4, pace: realtime, loop: true}"
PIPELINE = f"""
plugins: [plugins]
sources: {{street: {LOOP}, gate: {LOOP}}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  line: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
  snapshot: {{when: line, capture: frame, max_size: 320, path: "OUT/{{source}}-{{time}}.jpg"}}
"""


def event(frame=0, source="gate", **data):
    return Event("crossed", "line", source, frame, frame / 25, 7, data)


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)
    return answer


# ------------------------------------------------------------------------------------------------------- two processes


def work(link: ParentConnection, text: str, root: Any) -> None:
    """A worker process: run a pipeline with a remote gallery, and execute orders."""
    remote = RemoteGallery(link.send)
    graph = preview_graph(read_text(text, folder=root), remote)
    running = PipelineRun(graph, choose("cpu"), RunConfig(keep_running=True, realtime=True))
    follow_sinks(running, remote)
    thread = threading.Thread(target=running.run)
    thread.start()
    until(lambda: running.frames)
    link.send(Ready())
    for order in link.orders():
        match order:
            case Watch(source, until_s):
                remote.request({source: until_s})
            case "frames":
                link.send(("frames", running.frames))
            case Stop():
                break
    running.stop()
    thread.join()
    remote.close()
    link.send(("end", running.report(0)))


@dataclass
class Parent:
    """The parent of one worker process.

    Attributes:
        received: the messages, each with the monotonic time of its arrival in seconds.
        orders: the orders, in the same form.
    """

    child: Child
    gallery: Gallery = field(default_factory=Gallery)
    received: list[tuple[float, Any]] = field(default_factory=list)
    orders: list[tuple[float, str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.relay = GalleryRelay(self.gallery, self._order)

    def _order(self, source: str, until_s: float) -> None:
        self.orders.append((time.monotonic(), source, until_s))
        self.child.send(Watch(source, until_s))

    def receive(self, seconds: float, *watched: str, end: str = "") -> Any:
        """Receive messages for a time or until one of kind `end`, whose value is returned; watch sources meanwhile."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s:
            for source in watched:
                self.gallery.request(source)
            wait([self.child], min(0.05, until_s - now_s))
            for message in self.child.receive():
                assert not isinstance(message, Fatal), message
                self.received.append((time.monotonic(), message))
                assert self.relay.handle(message) == isinstance(message, PreviewImage | GalleryEvents)
                if message == Ready() and end == "ready":
                    return None
                if isinstance(message, tuple) and message[0] == end:
                    return message[1]
        assert not end, f"no {end} within {seconds} s"
        return None

    def ask(self, order: Any, answer: str) -> Any:
        self.child.send(order)
        return self.receive(60, end=answer)

    def images(self, since_s: float = 0.0) -> list[tuple[float, Any]]:
        return [(at_s, image) for at_s, image in self.received if isinstance(image, PreviewImage) and at_s >= since_s]


@contextmanager
def parent(root, text):
    process = Parent(Child("worker", work, text, root))
    try:
        process.receive(60, end="ready")
        yield process
    finally:
        process.child.join(0.0)


def looked_at(jpeg):
    assert jpeg[:3] == b"\xff\xd8\xff"
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)


def frame_of_sample(root, index):
    video = cv2.VideoCapture(str(root / "samples" / "street.mp4"))
    try:
        for _ in range(index % int(video.get(cv2.CAP_PROP_FRAME_COUNT))):
            assert video.grab()
        return video.read()[1]
    finally:
        video.release()


@pytest.mark.quiet
def test_images_of_a_worker_reach_its_parents_viewers(root, tmp_path):
    with parent(root, PIPELINE.replace("OUT", str(tmp_path))) as process:
        enough = process.ask("frames", "frames") + 25
        until(lambda: process.ask("frames", "frames") > enough)
        assert process.images() == []  # no viewer

        receive_s = time.monotonic()
        process.receive(2.5, "street")
        first_s, first = process.images()[0]
        assert first_s - receive_s < 2.0
        assert {image.source for _, image in process.images()} == {"street"}
        shown = looked_at(first.jpeg)
        assert shown.shape == (360, 640, 3)
        assert first.pts_s == pytest.approx(first.frame / 25, abs=1e-3)
        changed = np.abs(shown.astype(int) - frame_of_sample(root, first.frame)).max(2) > 60
        assert 0.001 < changed.mean() < 0.3  # boxes and labels on that frame

        images = process.images()
        assert 2 <= len(images) <= 5 * 2.5 + 1
        assert all(late[1].frame > early[1].frame for early, late in pairwise(images))
        newest = process.gallery.newest("street")
        assert (newest.jpeg, newest.frame) == (images[-1][1].jpeg, images[-1][1].frame)
        assert len(process.orders) >= 2
        assert all(late[2] - early[2] >= 1.0 - 1e-3 for early, late in pairwise(process.orders))

        process.receive(REQUESTED_FOR_S + 2.5)  # no viewer is left
        process.ask("frames", "frames")  # a worker also sends reports, twice a second
        assert process.images(process.orders[-1][2] + 1.5) == []
        assert process.gallery.newest("street") is None


def test_events_of_a_worker_reach_its_parent_in_order_with_their_images(root, tmp_path):
    with parent(root, PIPELINE.replace("OUT", str(tmp_path))) as process:
        process.receive(6)
        report = process.ask(Stop(), "end")
    assert process.images() == []
    entries = process.gallery.events(500)[::-1]
    assert {each.event.source for each in entries} == {"street", "gate"}
    assert sum(each.event.stage == "line" for each in entries) == sum(
        count for kind, count in report["events"].items() if kind != "saved"
    )
    saved = [each for each in entries if each.event.kind == "saved"]
    assert len(saved) == report["events"]["saved"] > 0
    assert {looked_at(each.jpeg).shape for each in saved} == {(180, 320, 3)}
    with_image = set()
    for source in ("street", "gate"):
        line_entries = [each for each in entries if (each.event.source, each.event.stage) == (source, "line")]
        assert [each.event.frame for each in line_entries] == sorted(each.event.frame for each in line_entries)
        pictured = [each for each in line_entries if each.jpeg]
        assert pictured
        assert {looked_at(each.jpeg).shape for each in pictured} == {(360, 640, 3)}
        with_image |= {(source, each.event.frame) for each in pictured}
    left_out = report["counts"].get("event images left out", 0)
    line = {(each.event.source, each.event.frame) for each in entries if each.event.stage == "line"}
    assert len(with_image) + left_out == len(line)


# --------------------------------------------------------------------------------------------------------- the worker


class Busy:
    """A parent that receives a message only when it is allowed to."""

    def __init__(self):
        self.received = []
        self.waiting = threading.Event()
        self.free = threading.Event()

    def send(self, message):
        self.waiting.set()
        self.free.wait(30)
        self.received.append(message)


def test_a_request_expires():
    remote = RemoteGallery(lambda *_: None)
    assert not remote.wants("gate", 10.0)
    remote.request({"gate": 12.0, "door": 11.0})
    assert remote.wants("gate", 12.0)
    assert remote.wants("door", 11.0)
    assert not remote.wants("door", 11.01)
    assert "door" not in remote._requested
    remote.close()


def test_a_worker_respects_the_image_rates(monkeypatch):
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    remote = RemoteGallery(lambda *_: None, images_per_s=4, event_images_per_s=2)
    remote.request({"gate": 103.0})
    remote.put("gate", b"one", 1, 0.04)
    assert not remote.wants("gate", 100.24)
    assert remote.wants("gate", 100.25)
    assert remote.wants_event("gate", 10.0)
    assert not remote.wants_event("gate", 10.49)
    assert remote.wants_event("gate", 10.5)
    remote.forget("gate")
    assert remote.wants_event("gate", 10.6)
    remote.close()


def test_a_removed_source_is_no_longer_watched():
    remote = RemoteGallery(lambda *_: None)
    remote.request({"gate": math.inf})
    remote.live.order("gate", LiveWish(1, math.inf, math.inf))
    assert remote.wants("gate", 10.0)
    assert remote.live.viewed("gate")
    remote.forget("gate")
    assert not remote.wants("gate", 10.0)
    assert not remote.live.viewed("gate")
    remote.close()


def test_a_slow_parent_delays_no_worker_and_gets_the_newest():
    slow = Busy()
    remote = RemoteGallery(slow.send, keep=3)
    remote.put("gate", b"0", 0, 0.0)
    assert slow.waiting.wait(30)
    for frame in range(1, 9):
        remote.put("gate", b"%d" % frame, frame, frame / 25)
        remote.add_events(100.0 + frame, [event(frame)], b"%d" % frame)
    remote.put("door", b"1", 1, 0.04)
    slow.free.set()
    remote.close()
    assert slow.received == [
        PreviewImage("gate", b"0", 0, 0.0),
        PreviewImage("gate", b"8", 8, 8 / 25),
        PreviewImage("door", b"1", 1, 0.04),
        GalleryEvents([(100.0 + frame, event(frame), b"%d" % frame, None) for frame in (6, 7, 8)]),
    ]


def test_events_are_sent_in_batches():
    received = []
    remote = RemoteGallery(received.append)
    for frame in range(20):
        remote.add_events(1.0, [event(frame)], None)
        time.sleep(0.01)
    remote.close()
    assert [gallery_event.frame for message in received for _, gallery_event, *_ in message.events] == list(range(20))
    assert len(received) <= 8


class Paint(enum.StrEnum):
    RED = "red"


class Silent:
    def __str__(self):
        raise ValueError("no text")


def test_events_are_sent_with_plain_values():
    received = []
    remote = RemoteGallery(received.append)
    data = {"at": np.float32(0.5), "paint": Paint.RED, "own": [SimpleNamespace(x=1)]}
    unusual_event = Event(Paint.RED, "line", "gate", 0, 0.0, Paint.RED, data)
    remote.add_events(1.0, [unusual_event, event(3, bad=Silent())], None)
    remote.close()
    (_, sent, *_), (_, other, *_) = (gallery_event for message in received for gallery_event in message.events)
    assert sent.data == {"at": np.float32(0.5), "paint": "red", "own": ["namespace(x=1)"]}
    assert [type(plain) for plain in (sent.kind, sent.track_id, sent.data["paint"])] == [str] * 3
    assert sent.key is None
    assert (other.frame, other.data) == (3, {"bad": "(no text: __str__ raises ValueError)"})


# --------------------------------------------------------------------------------------------------------- the parent


@pytest.fixture
def clock(monkeypatch):
    time_state = SimpleNamespace(now_s=100.0)
    fake = SimpleNamespace(monotonic=lambda: time_state.now_s)
    monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr("streamkit.runtime.preview.gallery.time", fake)
    return time_state


def test_requests_are_forwarded_once_a_second_per_source(clock):
    gallery = Gallery()
    orders = []
    relay = GalleryRelay(gallery, lambda *arguments: orders.append(arguments))
    for step in range(25):
        clock.now_s = 100.0 + step * 0.125
        gallery.request("gate")
        if step == 4:
            gallery.request("door")
    assert orders == [("gate", 103.0), ("door", 103.5), ("gate", 104.0), ("gate", 105.0), ("gate", 106.0)]
    assert list(relay._ordered_s) == ["gate"]  # not every source that was ever watched


def test_unrequested_images_are_discarded(clock):
    gallery = Gallery()
    relay = GalleryRelay(gallery, lambda *_: None)
    assert relay.handle(PreviewImage("gate", b"jpeg", 3, 0.12))
    assert gallery.newest("gate") is None
    gallery.request("gate")
    assert relay.handle(PreviewImage("gate", b"jpeg", 3, 0.12))
    assert (gallery.newest("gate").jpeg, gallery.newest("gate").frame, gallery.newest("gate").pts_s) == (
        b"jpeg",
        3,
        0.12,
    )
    gallery.forget("gate")  # removed
    assert relay.handle(PreviewImage("gate", b"late", 4, 0.16))
    assert gallery.newest("gate") is None


def test_any_message_releases_images_without_viewers(clock):
    gallery = Gallery()
    relay = GalleryRelay(gallery, lambda *_: None)
    gallery.request("gate")
    relay.handle(PreviewImage("gate", b"jpeg", 3, 0.12))
    clock.now_s = 103.0
    assert not relay.handle(Ready())
    assert gallery.newest("gate") is not None
    clock.now_s = 104.0
    assert not relay.handle(Ready())
    assert gallery.newest("gate") is None


def test_events_are_numbered_in_the_parent():
    gallery = Gallery()
    relay = GalleryRelay(gallery, lambda *_: None)
    gallery.add_events(1.0, [event(0, "pipeline")], None)
    assert relay.handle(GalleryEvents([(2.0, event(1), b"jpeg", (0.1, 0.2, 0.3, 0.4)), (3.0, event(2), None, None)]))
    entries = gallery.events(10)
    assert [(entry.number, entry.time_s, entry.event.frame, entry.jpeg, entry.box) for entry in entries] == [
        (3, 3.0, 2, None, None),
        (2, 2.0, 1, b"jpeg", (0.1, 0.2, 0.3, 0.4)),
        (1, 1.0, 0, None, None),
    ]
