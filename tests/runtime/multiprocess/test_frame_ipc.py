"""Frames on their way to a sink in another process: whole, in order, bounded, none lost unless the run is given up."""

import fcntl
import re
import threading
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from fractions import Fraction
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Color, Detections, Event, Frame, FrameState, Surface
from streamkit.core.errors import OutputError
from streamkit.core.records import line
from streamkit.core.stage import Collecting, Context, Sink, default_registry, stage
from streamkit.runtime.multiprocess.frame_ipc import ParentStages, RelaySink, Uplink, frame_pipe, unpack
from streamkit.runtime.multiprocess.frame_ipc import pack as pack_batch


def pack(row: Frame) -> bytes:
    """One frame with tables of its own."""
    return pack_batch([], {}, [row])


def first_of(packed: bytes) -> Frame:
    batch = unpack(packed)
    (unpacked,) = [*batch.frames, *batch.failed]
    return unpacked


def table(rows: int) -> Detections:
    boxes = np.arange(rows * 4, dtype=np.float32).reshape(-1, 4)
    detections = Detections(boxes, np.full(rows, 0.5, np.float32), np.zeros(rows, np.int32), labels=("car",))
    return detections.with_columns(track_id=np.arange(rows, dtype=np.int64), speed=np.full(rows, 1.5, np.float32))


def frame(index: int, source: str = "a", error: str | None = None) -> Frame:
    new_frame = Frame(
        source,
        index,
        index / 10,
        64,
        48,
        time_s=1e9,
        due_s=1.0,
        error=error,
        _state=FrameState(position=3, shape_size=(32, 24)),
    )
    new_frame.pixel_aspect = Fraction(2)
    new_frame.surface = Surface(np.zeros((72, 64), np.uint8), Color())
    new_frame._state.counters = threading.Lock()  # nothing that another process could have
    new_frame.tables = {"detect": table(2)}
    return new_frame


def test_a_packed_frame_keeps_everything_except_pixels() -> None:
    first = frame(7, error="no luck")
    first.events.append(Event("seen", "x", "a", 7, 0.7, 3, {"n": 1}))
    second = first_of(pack(first))
    assert second.surface is None
    assert first.surface is not None
    assert (second.source, second.index, second.pts_s, second.due_s, second.error) == ("a", 7, 0.7, 1.0, "no luck")
    assert second.pixel_aspect == 2
    assert second.shape_scale == (2, 2)
    assert second.events == first.events
    assert line(second) == line(first)
    assert second.tables["detect"].track_id.tolist() == [0, 1]
    assert second.tables["detect"].extra["speed"].dtype == np.float32


class Paint(Enum):
    RED = "red"


@dataclass
class Size:
    width: int


class Other:
    def __str__(self) -> str:
        return "other"


@pytest.mark.parametrize(
    "value",
    [
        1,
        2.5,
        "é",
        None,
        True,
        float("nan"),
        [1, (2, 3)],
        {"a": {"b": [1]}},
        np.float32(0.1),
        np.arange(3),
        datetime(2026, 1, 2, tzinfo=UTC),
        Paint.RED,
        Size(3),
        [Size(3), {"c": Paint.RED}],
        Other(),
        {1, 2},
        {5: 6},
        lambda: 0,
        2**70,
        np.array([Other(), 1], object),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),  # the same in every process
)
def test_event_data_of_any_kind_gives_the_same_record(value: object) -> None:
    first = frame(0)
    first.events.append(Event("seen", "x", "a", 0, 0.0, None, {"value": value}))
    packed = pack(first)
    for class_name in (b"Paint", b"Size", b"Other"):
        assert class_name not in packed  # nothing that needs the plugin's class
    assert line(first_of(packed)) == line(first)


def test_an_uplink_sends_in_order_and_waits_when_it_is_full() -> None:
    here, there = Pipe(duplex=False)
    uplink = Uplink(there, depth=4)
    put = []

    def work() -> None:
        for number in range(3000):
            uplink.put("x", bytes(1000), str(number))
            put.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    assert len(put) < 1000  # the pipe's buffer, and what may wait
    messages = []
    while len(messages) < 3000:
        messages += here.recv()
    thread.join()
    assert [int(source) for _, _, source in messages] == list(range(3000))
    uplink.put("", None, "a")
    uplink.close()
    assert here.recv() == [("", None, "a")]
    with pytest.raises(EOFError):
        here.recv()


@pytest.mark.parametrize("aborted", [True, False], ids=["run given up", "reader gone"])
def test_an_aborted_uplink_releases_its_senders(aborted: bool) -> None:
    here, there = Pipe(duplex=False)
    uplink = Uplink(there, depth=4)
    thread = threading.Thread(target=lambda: [uplink.put("x", bytes(1000)) for _ in range(3000)])
    thread.start()
    time.sleep(0.2)
    assert thread.is_alive()
    if aborted:
        uplink.abort()
    here.close()
    thread.join(5)
    assert not thread.is_alive()
    uplink.close()


def test_a_relay_packs_the_current_state_of_a_frame() -> None:
    here, there = Pipe(duplex=False)
    uplink = Uplink(there)
    relay = RelaySink(uplink, "all")
    shown = frame(1)
    relay.write(shown)
    relay.flush()
    shown.events.append(Event("late", "x", "a", 1, 0.1))
    relay.end("a")
    uplink.close()
    items = here.recv()
    while len(items) < 2:
        items += here.recv()
    (sink, packed, _), end = items
    assert (sink, end) == ("all", ("all", None, "a"))
    assert first_of(packed).events == []


# ------------------------------------------------------------------------------------------------------- shared sinks


class Shared:
    """Two sinks that write down what they get; one of them may fail."""

    def __init__(self, root: Path) -> None:
        self.wrote: dict[str, list[tuple[str, int, str | None]]] = {"one": [], "two": []}
        self.ended: list[str] = []
        self.closed: list[str] = []
        self.errors: list[BaseException] = []
        self.logged = collect()
        self.delay_s = 0.0
        registry = default_registry()
        me = self
        with Collecting(registry):

            @stage("note")
            class Note(Sink):
                """Write down."""

                def write(self, frame: Frame) -> None:
                    time.sleep(me.delay_s)
                    if frame.index == 13:
                        raise ValueError("thirteen")
                    if frame.index == 99:
                        raise OutputError("cannot write it")
                    assert frame.surface is None
                    me.wrote[self.context.id].append((frame.source, frame.index, frame.error))

                def end(self, source: str) -> None:
                    me.ended.append(f"{self.context.id} {source}")

                def close(self) -> None:
                    me.closed.append(self.context.id)

        text = "sources: {a: 'test://', b: 'test://'}\nstages: {one: {stage: note}, two: {stage: note, from: decode}}"
        graph = build(read_text(text, folder=root, registry=registry))
        self.owners: dict[str, str] = {}
        self.sinks = ParentStages(graph, ["a", "b"], lambda id_: Context(id_), self.errors.append, self.owners.get)


@pytest.fixture
def shared(root: Path) -> Shared:
    return Shared(root)


def test_shared_sinks_get_every_frame_in_order_and_close(shared: Shared) -> None:
    shared.sinks.open()

    def bring(source: str) -> None:
        for index in range(0, 60, 3):
            rows = [frame(i, source, "bad" if i % 5 == 1 else None) for i in range(index, index + 3)]
            shared.sinks.put([(sink, pack(row), "") for row in rows for sink in ("one", "two")])
        shared.sinks.put([("one", None, source), ("two", None, source)])

    threads = [threading.Thread(target=bring, args=(source,)) for source in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.sinks.close()
    for id_ in ("one", "two"):
        for source in ("a", "b"):
            source_rows = [(index, error) for name, index, error in shared.wrote[id_] if name == source]
            assert source_rows == [(i, "bad" if i % 5 == 1 else None) for i in range(60) if i != 13]
    assert shared.sinks.finished == {"one": 120, "two": 120}
    assert sorted(shared.ended) == ["one a", "one b", "two a", "two b"]
    assert sorted(shared.closed) == ["one", "two"]
    assert not shared.errors
    report = shared.sinks.run_counts().report()
    assert report["stages"]["one"]["failed"] == 2
    assert report["counts"]["frames failed"] == 4
    assert shared.sinks.latency["one"].counts.sum() == 120
    text = "one failed on a frame 13 (1.30 s): ValueError: thirteen (test_frame_ipc.py:"
    assert any(message.startswith(text) for message in shared.logged)


def test_latency_is_measured_until_the_sink_has_written_the_frame(shared: Shared) -> None:
    shared.sinks.open()
    due = frame(0)
    due.due_s = time.monotonic() - 2.0
    without = frame(1)
    without.due_s = None
    shared.sinks.put([("one", pack(due), ""), ("one", pack(without), "")])
    shared.sinks.close()
    assert shared.sinks.finished["one"] == 2
    assert shared.sinks.latency["one"].counts.sum() == 1
    assert 1.9 < shared.sinks.latency["one"].quantile(0.5) < 30.0


def test_a_slow_sink_blocks_its_senders(shared: Shared) -> None:
    shared.delay_s = 0.05
    shared.sinks.open()
    start_s = time.monotonic()
    for index in range(20):
        shared.sinks.put([("one", pack(frame(index + 20)), "")])
    assert time.monotonic() - start_s > 0.6  # all but the few that may wait
    shared.sinks.close()
    assert len(shared.wrote["one"]) == 20


def test_an_output_error_ends_the_run_and_releases_senders(shared: Shared) -> None:
    shared.sinks.open()
    for index in (1, 99, *range(100, 120)):
        shared.sinks.put([("one", pack(frame(index)), ""), ("two", pack(frame(index)), "")])
    shared.sinks.close()
    assert [str(error) for error in shared.errors] == ["cannot write it"] * 2
    assert [index for _, index, _ in shared.wrote["one"]] == [1]


def test_after_an_abort_frames_are_dropped_and_sinks_closed(shared: Shared) -> None:
    shared.delay_s = 0.05
    shared.sinks.open()
    thread = threading.Thread(target=lambda: [shared.sinks.put([("one", pack(frame(20)), "")]) for _ in range(200)])
    thread.start()
    time.sleep(0.2)
    shared.sinks.abort()
    thread.join(5)
    assert not thread.is_alive()
    shared.sinks.close()
    assert sorted(shared.closed) == ["one", "two"]
    assert len(shared.wrote["one"]) < 20


# ------------------------------------------------------------------------------------------- sources read once more


def batch_of(source: str, *indices: int, failed: tuple[int, ...] = ()) -> bytes:
    """A packed batch with one object per frame in the tables of the batch."""
    rows = [frame(index, source) for index in indices]
    for row in rows:
        row.tables = {}
    detections = Detections(
        np.arange(len(rows) * 4, dtype=np.float32).reshape(-1, 4),
        np.ones(len(rows), np.float32),
        np.zeros(len(rows), np.int32),
        labels=("car",),
        batch_row=np.arange(len(rows), dtype=np.int32),
    )
    return pack_batch(rows, {"detect": detections}, [frame(index, source, "bad") for index in failed])


def test_a_file_read_again_gives_each_sink_only_missing_frames(shared: Shared) -> None:
    owners = shared.owners
    owners.update(a="first", b="other")
    shared.sinks.open()
    put = shared.sinks.put
    put([("one", batch_of("a", 0, 1, 2, failed=(3,)), ""), ("two", batch_of("a", 0, 1), "")], "first")
    assert (shared.sinks.delivered("a", "first"), shared.sinks.delivered("a", "other")) == (3, -1)
    shared.sinks.skip_repeated("a", "first", "second")
    owners["a"] = "second"
    put([("one", batch_of("b", 0, 1), "")], "other")  # frames of others are not skipped
    for sink in ("one", "two"):
        put([(sink, batch_of("a", 0, 1), "")], "second")
    assert shared.sinks.delivered("a", "second") == -1  # all were repeated
    shared.sinks.skip_repeated("a", "second", "third")  # which died before it had come to where the first was
    owners["a"] = "third"
    for sink in ("one", "two"):
        put(
            [(sink, batch_of("a", 0, 1, 2), ""), (sink, batch_of("a", 4, 5, failed=(3,)), ""), (sink, None, "a")],
            "third",
        )
    shared.sinks.close()
    for sink in ("one", "two"):
        assert sorted(index for source, index, _ in shared.wrote[sink] if source == "a") == [0, 1, 2, 3, 4, 5]
    assert [index for source, index, _ in shared.wrote["one"] if source == "b"] == [0, 1]
    assert sorted(shared.ended) == ["one a", "two a"]


def test_a_sink_gets_no_frames_after_the_end_of_a_source(shared: Shared) -> None:
    owners = shared.owners
    owners["a"] = "first"
    shared.sinks.open()
    shared.sinks.put([("one", batch_of("a", 0, 1), ""), ("one", None, "a"), ("two", batch_of("a", 0), "")], "first")
    assert shared.sinks.delivered("a", "first") == 0
    shared.sinks.skip_repeated("a", "first", "second")
    owners["a"] = "second"
    for sink in ("one", "two"):
        shared.sinks.put([(sink, batch_of("a", 0, 1), ""), (sink, None, "a")], "second")
    shared.sinks.close()
    assert [shared.wrote[sink] for sink in ("one", "two")] == [[("a", 0, None), ("a", 1, None)]] * 2
    assert sorted(shared.ended) == ["one a", "two a"]


def test_a_replaced_source_is_distinguished_from_a_repeated_one(shared: Shared) -> None:
    owners = shared.owners
    owners["a"] = "first"
    shared.sinks.open()
    shared.sinks.put([("one", batch_of("a", *range(10)), "")], "first")
    shared.sinks.skip_repeated("a", "first", "second")
    shared.sinks.forget_process("first")
    owners["a"] = "third"  # it was changed
    shared.sinks.forget_source("a")
    shared.sinks.put([("one", batch_of("a", 0, 1), "")], "third")  # before the old one has ended
    shared.sinks.put([("one", batch_of("a", 8, 9), ""), ("one", None, "a")], "second")
    owners["a"] = "second"  # it was changed once more
    shared.sinks.put([("one", None, "a")], "third")
    shared.sinks.put([("one", batch_of("a", 0, 1, 2), "")], "second")
    shared.sinks.close()
    assert [index for _, index, _ in shared.wrote["one"]] == [*range(10), 0, 1, 0, 1, 2]
    assert shared.sinks._last["one"] == {("a", "second"): 2}  # nothing is kept of those that are gone
    assert shared.sinks._repeated["one"] == {}


def test_removed_sources_leave_no_state(shared: Shared) -> None:
    shared.sinks.open()
    for number in range(300):
        source = f"s{number}"
        shared.owners[source] = "first"
        shared.sinks.put([("one", batch_of(source, 0), "")], "first")
        if number % 2:  # a file that ends before it is removed
            shared.sinks.put([("one", None, source)], "first")
        del shared.owners[source]
        shared.sinks.forget_source(source)
        if not number % 2:
            shared.sinks.put([("one", batch_of(source, 1), ""), ("one", None, source)], "first")
    assert shared.sinks._last["one"] == {}
    shared.sinks.close()


def test_a_packed_batch_keeps_its_tables() -> None:
    batch = unpack(batch_of("a", 3, 4, failed=(5,)))
    assert [row.index for row in batch.frames] == [3, 4]
    assert [(row.index, row.error, list(row.tables)) for row in batch.failed] == [(5, "bad", ["detect"])]
    assert batch.table("detect").batch_row.tolist() == [0, 1]
    assert batch.table("detect").xyxy.shape == (2, 4)


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="only Linux sets the size of a pipe")
def test_few_frames_wait_in_the_pipe() -> None:
    reader, writer = frame_pipe()
    assert fcntl.fcntl(writer.fileno(), fcntl.F_GETPIPE_SZ) == 16_384
    writer.send("there")
    assert reader.recv() == "there"
    reader.close()
    writer.close()


def test_a_changed_source_is_written_although_its_predecessor_ends_later(shared: Shared) -> None:
    shared.owners["a"] = "first"
    shared.sinks.open()
    shared.sinks.put([("one", batch_of("a", 0, 1), ""), ("one", None, "a")], "first")  # of the source before the change
    shared.sinks.skip_repeated("a", "first", "second", replaced=True)
    shared.sinks.put([("one", batch_of("a", 0, 1), "")], "second")
    shared.sinks.close()
    assert [index for _, index, _ in shared.wrote["one"]] == [0, 1, 0, 1]


def received_data(value: Any) -> Any:
    frame = Frame("a", 0, 0.0, 16, 16)
    frame.events.append(Event("seen", "x", "a", 0, 0.0, None, {"value": value}))
    return unpack(pack(frame)).frames[0].events[0].data["value"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (date(2026, 1, 2), date(2026, 1, 2)),
        (float("inf"), float("inf")),
        (np.float32(0.1), np.float32(0.1)),
        ((1, Paint.RED), [1, "red"]),
        ({1, 2}, {1, 2}),
        (frozenset({Paint.RED}), {"red"}),
        ({5: Paint.RED, Paint.RED: (None,)}, {5: "red", "Paint.RED": [None]}),
        (np.array([Paint.RED, 1], object), ["red", 1]),
        (Paint.RED, "red"),
        (1 + 2j, "(1+2j)"),
    ],
    ids=repr,
)
def test_event_data_keeps_its_type_if_the_other_process_has_it(value: Any, expected: Any) -> None:
    received = received_data(value)
    assert (type(received), received) == (type(expected), expected)
