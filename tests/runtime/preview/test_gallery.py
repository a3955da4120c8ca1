"""The hand-over of pictures and events between the pipeline and those who look."""

import time
from collections import deque
from types import SimpleNamespace

from streamkit.core.data import Event
from streamkit.runtime.preview import gallery as module
from streamkit.runtime.preview.gallery import Gallery


def event(kind="crossed", source="gate", frame=3):
    return Event(kind, "line", source, frame, frame / 25, 7, {"direction": "in"})


def test_no_image_is_wanted_without_a_request():
    gallery = Gallery()
    assert not gallery.wants("gate", time.monotonic())
    gallery.request("gate")
    assert gallery.wants("gate", time.monotonic())
    assert not gallery.wants("door", time.monotonic())


def test_images_are_rate_limited():
    gallery = Gallery(images_per_s=5)
    gallery.request("gate")
    gallery.put("gate", b"one", 1, 0.04)
    preview = gallery.newest("gate")
    assert preview.jpeg == b"one"
    assert not gallery.wants("gate", preview.created_s + 0.19)
    assert gallery.wants("gate", preview.created_s + 0.21)


def test_idle_viewers_are_forgotten_with_their_image():
    gallery = Gallery()
    gallery.request("gate")
    gallery.put("gate", b"one", 1, 0.04)
    assert not gallery.wants("gate", time.monotonic() + module.REQUESTED_FOR_S + 1)
    assert gallery.newest("gate") is None
    assert not gallery.wants("gate", time.monotonic())


def test_images_have_distinct_numbers():
    gallery = Gallery()
    for source in ("gate", "door", "gate"):
        gallery.put(source, b"x", 0, 0.0)
    assert gallery.newest("gate").number == 3
    assert gallery.newest("door").number == 2


def test_events_are_listed_newest_first_and_bounded():
    gallery = Gallery(keep=5)
    for frame in range(8):
        gallery.add_events(100.0 + frame, [event(frame=frame)], b"jpeg" if frame % 2 else None)
    events = gallery.events(3)
    assert [entry.event.frame for entry in events] == [7, 6, 5]
    assert len(gallery.events(100)) == 5
    assert gallery.event(8).jpeg == b"jpeg"
    assert gallery.event(1) is None
    assert [entry.number for entry in gallery.events(100, after=6)] == [8, 7]


def test_events_are_filtered_by_source():
    gallery = Gallery()
    gallery.add_events(1.0, [event(source="gate"), event("left", source="gate")], None)
    gallery.add_events(2.0, [event(source="door")], None)
    assert [entry.event.kind for entry in gallery.events(10, "gate")] == ["left", "crossed"]


def test_event_images_are_rate_limited_per_source():
    gallery = Gallery(event_images_per_s=2)
    assert gallery.wants_event("gate", 10.0)
    assert not gallery.wants_event("gate", 10.4)
    assert gallery.wants_event("door", 10.4)
    assert gallery.wants_event("gate", 10.6)


def test_a_removed_source_keeps_only_its_events():
    gallery = Gallery()
    gallery.request("gate")
    gallery.put("gate", b"one", 1, 0.04)
    gallery.add_events(1.0, [event()], None)
    gallery.forget("gate")
    assert gallery.newest("gate") is None
    assert not gallery.wants("gate", time.monotonic())
    assert len(gallery.events(10)) == 1


def test_the_default_rates_and_limits_apply():
    gallery = Gallery()
    assert (gallery.images_per_s, gallery.event_images_per_s, gallery.keep) == (5.0, 4.0, 200)
    assert module.REQUESTED_FOR_S == 3.0


def test_the_rate_limits_are_exact(monkeypatch):
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    gallery = Gallery(images_per_s=4, event_images_per_s=2)
    gallery.request("gate")
    gallery.put("gate", b"one", 1, 0.04)
    assert not gallery.wants("gate", 100.24)
    assert gallery.wants("gate", 100.25)
    assert gallery.wants("gate", 103.0)
    assert not gallery.wants("gate", 103.01)
    assert gallery.wants_event("gate", 10.0)
    assert not gallery.wants_event("gate", 10.49)
    assert gallery.wants_event("gate", 10.5)


def test_a_readded_source_has_an_image_of_its_first_event():
    gallery = Gallery()
    assert gallery.wants_event("gate", 10.0)
    gallery.forget("gate")
    assert gallery.wants_event("gate", 10.1)


def test_reading_retries_while_events_are_added():
    class Busy(deque):
        times = 2

        def __iter__(self):
            self.times -= 1
            if self.times >= 0:
                raise RuntimeError("deque mutated during iteration")
            return super().__iter__()

    gallery = Gallery()
    gallery._events = Busy()
    gallery.add_events(1.0, [event()], None)
    assert [entry.number for entry in gallery.events(10)] == [1]
    assert gallery.event(1).event.kind == "crossed"


def test_each_request_is_forwarded(monkeypatch):
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    gallery = Gallery()
    passed = []
    gallery.on_request = lambda *arguments: passed.append(arguments)
    gallery.request("gate")
    assert passed == [("gate", 103.0)]
    assert gallery.watched("gate", 103.0)
    assert not gallery.watched("gate", 103.01)
    assert not gallery.watched("door", 100.0)


def test_unwatched_images_are_discarded(monkeypatch):
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    gallery = Gallery()
    for source in ("gate", "door"):
        gallery.put(source, b"one", 1, 0.04)
    gallery.watch("gate", 103.0)
    gallery.watch("door", 101.0)
    gallery.discard_unwatched(102.0)
    assert gallery.newest("gate").jpeg == b"one"
    assert gallery.newest("door") is None
    assert "door" not in gallery._requested
