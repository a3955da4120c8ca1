"""Queues of live video and records: what a slow viewer loses, what a late one begins with, what nobody wants."""

import time
from contextlib import contextmanager

from streamkit.runtime.multiprocess.messages import LiveData, Ready
from streamkit.runtime.preview import live as module
from streamkit.runtime.preview.live import (
    MAX_WAITING,
    FragmentQueue,
    LiveFragment,
    LiveHub,
    LiveOffset,
    LiveStart,
)
from streamkit.runtime.preview.remote_live import LiveRelay, RemoteLive


def fragment(number, gop=10):
    return LiveFragment(b"%d," % number, number % gop == 0)


def numbers(messages):
    text = b"".join(message.data for message in messages if isinstance(message, LiveFragment))
    return [int(number) for number in text.split(b",") if number]


def start(generation, **fields):
    return LiveStart(generation, "avc1.42c01e", 64, 48, b"init", **fields)


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)
    return answer


# ----------------------------------------------------------------------------------------------------------- the queue


def test_a_full_queue_resumes_at_its_newest_keyframe():
    queue = FragmentQueue()
    for number in range(MAX_WAITING + 6):
        queue.put(fragment(number, 30))
        assert len(queue) <= MAX_WAITING
    assert numbers(queue.take()) == [*range(60, MAX_WAITING + 6)]
    assert queue.lost == 60


def test_a_full_queue_without_keyframe_resumes_at_the_next_keyframe():
    queue = FragmentQueue()
    for number in range(MAX_WAITING + 9):
        queue.put(fragment(number, 100))
    assert numbers(queue.take()) == []
    for number in range(98, 102):
        queue.put(fragment(number, 100))
    assert numbers(queue.take()) == [100, 101]
    assert queue.lost == MAX_WAITING + 9 + 2


def test_the_queue_is_limited_by_bytes(monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 1000)
    queue = FragmentQueue()
    for number in range(8):
        queue.put(LiveFragment(bytes(300), number == 0))
        assert len(queue) <= 4
    assert queue.lost == 8


def test_a_new_start_replaces_waiting_fragments_and_keeps_offsets():
    queue = FragmentQueue()
    for number in range(MAX_WAITING + 1):
        queue.put(fragment(number, 1000))
        if number == 3:
            queue.put(LiveOffset(1.0, 2.0))
    assert queue.take() == [LiveOffset(1.0, 2.0)]
    queue.put(start(2))
    queue.put(fragment(1))
    assert numbers(queue.take()) == [1], "a new video begins with a keyframe"
    queue.put(fragment(2))
    queue.put(start(3))
    assert queue.take() == [start(3)]


# ------------------------------------------------------------------------------------------------------------- the hub


def test_each_viewer_starts_at_a_keyframe():
    hub = LiveHub()
    with hub.view("gate") as first:
        generation = hub.viewed("gate")
        assert generation
        hub.put("gate", [fragment(0)])
        assert first.take() == ([], []), "nothing without a start"
        hub.put("gate", [start(generation)])
        for number in range(10, 15):
            hub.put("gate", [fragment(number)])
        hub.put("gate", [LiveOffset(0.2, 5.0)])
        messages, _ = first.take()
        assert messages[0] == start(generation)
        assert numbers(messages) == [10, 11, 12, 13, 14]
        with hub.view("gate") as second:
            assert hub.viewed("gate") == generation, "the video goes on"
            hub.put("gate", [fragment(15)])
            messages, _ = second.take()
            assert messages[:2] == [start(generation), LiveOffset(0.2, 5.0)]
            assert numbers(messages) == [10, 11, 12, 13, 14, 15]
        hub.put("gate", [fragment(20)])
        with hub.view("gate") as third:
            messages, _ = third.take()
            assert messages[0] == start(generation, offset_s=5.0)
            assert numbers(messages) == [20]
            assert hub.viewers == 2
    assert hub.viewers == 0


def test_a_viewer_after_the_last_has_left_gets_a_new_video():
    hub = LiveHub()
    with hub.view("gate"):
        before = hub.viewed("gate")
        hub.put("gate", [start(before)])
    hub.put("gate", [fragment(0)])  # while it is still wanted
    with hub.view("gate") as viewer:
        assert hub.viewed("gate") != before
        hub.put("gate", [fragment(10)])
        hub.put("gate", [start(before)])
        assert viewer.take() == ([], [])


def test_an_oversized_gop_is_not_stored_for_later_viewers(monkeypatch):
    monkeypatch.setattr(module, "_MAX_GOP_BYTES", 20)

    hub = LiveHub()
    with hub.view("gate"):
        hub.put("gate", [start(hub.viewed("gate"))])
        for number in range(100, 109):
            hub.put("gate", [fragment(number)])
        with hub.view("gate") as late:
            hub.put("gate", [fragment(110)])
            messages, _ = late.take()
            assert numbers(messages) == [110]


def test_video_and_records_are_wanted_only_while_requested(monkeypatch):
    monkeypatch.setattr(module, "WANTED_FOR_S", 0.05)

    hub = LiveHub()
    assert not hub.viewed("gate")
    assert "gate" not in hub.heard()
    with hub.view("gate"), hub.listen(None):
        hub.request_records("gate")
        assert hub.viewed("gate")
        assert "gate" in hub.heard()
        assert not hub.viewed("yard")
        assert "yard" not in hub.heard()
        time.sleep(0.06)
        assert not hub.viewed("gate")
        assert "gate" not in hub.heard()


def test_listeners_get_the_records_of_their_sources_and_drop_the_oldest(monkeypatch):
    monkeypatch.setattr(module, "_MAX_RECORDS", 3)

    hub = LiveHub()
    with hub.listen(frozenset({"gate"})) as gate_listener, hub.listen(None) as every:
        hub.put_records([("gate", b"1"), ("yard", b"2")])
        assert gate_listener.take() == ([], [b"1"])
        assert every.take() == ([], [b"1", b"2"])
        hub.put_records([("gate", b"%d" % n) for n in range(5)])
        hub.put_records([("gate", b"5")])
        assert gate_listener.take()[1] == [b"3", b"4", b"5"]
        assert gate_listener.lost == 3
    assert hub.lost == 6


# ------------------------------------------------------------------------------------------------------ two processes


class Packets:
    """The packets of a source, of which each becomes a message; and results, of which each becomes a record."""

    def __init__(self):
        self.waiting = []
        self.results = []

    def make_video(self):
        packets = self.waiting
        self.waiting = []
        return packets, 0

    def make_records(self):
        records = self.results
        self.results = []
        return records, 0


class Parent:
    """The pipe to the parent, and the hub there; `hang` makes the parent receive nothing."""

    def __init__(self):
        self.hub = LiveHub()
        self.hangs = False
        self.waits = False
        self.remote = RemoteLive(self.send)
        self.relay = LiveRelay(self.hub, self.remote.order)
        self.packets = Packets()
        self.remote.attach("gate", self.packets)
        self.remote.attach_records(self.packets)

    def send(self, message):
        while self.hangs:
            self.waits = True
            time.sleep(0.005)
        assert self.relay.handle(message)


@contextmanager
def parent():
    process = Parent()
    try:
        yield process
    finally:
        process.hangs = False
        process.remote.close()


def test_demand_reaches_the_worker_and_its_output_the_viewers():
    with parent() as process, process.hub.view("gate") as viewer, process.hub.listen(None) as listener:
        generation = process.remote.viewed("gate")
        assert generation == process.hub.viewed("gate") > 0
        assert "gate" not in process.remote.heard()
        process.hub.request_records("gate")
        assert "gate" in process.remote.heard()
        assert process.remote.viewed("gate") == generation
        process.packets.waiting = [start(generation), fragment(0)]
        process.packets.results = [("gate", b"{}")]
        received = []
        records = []
        until(lambda: received.extend(viewer.take()[0]) or len(received) == 2)
        assert received == [start(generation), fragment(0)]
        until(lambda: records.extend(listener.take()[1]) or records)
        assert records == [b"{}"]
        process.remote.forget("gate")
        assert not process.remote.viewed("gate")


def test_packets_wait_at_the_reader_while_the_parent_hangs():
    with parent() as process, process.hub.view("gate") as viewer:
        process.hangs = True
        process.packets.waiting = [start(process.hub.viewed("gate"))]
        until(lambda: process.waits)
        process.packets.waiting = [fragment(number) for number in range(3)]
        process.packets.results = [("gate", b"{}")]
        time.sleep(0.2)
        assert len(process.packets.waiting) == 3, "none is taken which cannot be sent"
        assert process.packets.results
        process.hangs = False
        received = []
        until(lambda: received.extend(viewer.take()[0]) or len(received) == 4)
        assert numbers(received) == [0, 1, 2]


def test_nothing_is_produced_without_demand_or_for_removed_sources(monkeypatch):
    monkeypatch.setattr(module, "WANTED_FOR_S", 0.3)
    with parent() as process:
        with process.hub.view("gate"):
            process.packets.waiting = [fragment(0)]
            until(lambda: not process.packets.waiting)
        until(lambda: not process.remote.viewed("gate"))
        time.sleep(0.1)
        process.packets.waiting = [fragment(1)]
        time.sleep(0.2)
        assert process.packets.waiting
        process.packets = None
        assert process.remote.make_video("gate") == process.remote.make_records() == ([], 0)


def test_packets_and_results_dropped_by_a_worker_are_counted():
    hub = LiveHub()
    LiveRelay(hub, lambda source, wish: None).handle(LiveData([("gate", [], 3)], [], 2))
    assert hub.lost == 5


def test_unrelated_messages_are_not_consumed():
    relay = LiveRelay(LiveHub(), lambda source, wish: None)
    assert not relay.handle(Ready())
    assert relay.handle(LiveData([], [], 0))
