"""What event data becomes on its way, and what shared sinks count and close."""

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Event, Frame
from streamkit.core.stage import Collecting, Context, Sink, default_registry, stage
from streamkit.runtime.execution import graph_outputs
from streamkit.runtime.multiprocess.frame_ipc import ParentStages, unpack
from streamkit.runtime.multiprocess.frame_ipc import pack as pack_batch


def pack(one: Frame) -> bytes:
    """One frame with tables of its own."""
    return pack_batch([], {}, [one])


class Colour(Enum):
    RED = "red"


def sent(value: Any) -> Any:
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
        ((1, Colour.RED), [1, "red"]),
        ({1, 2}, {1, 2}),
        (frozenset({Colour.RED}), {"red"}),
        ({5: Colour.RED, Colour.RED: (None,)}, {5: "red", "Colour.RED": [None]}),
        (np.array([Colour.RED, 1], object), ["red", 1]),
        (Colour.RED, "red"),
        (1 + 2j, "(1+2j)"),
    ],
    ids=repr,
)
def test_event_data_keeps_its_kind_where_the_other_process_knows_it(value: Any, expected: Any) -> None:
    found = sent(value)
    assert (type(found), found) == (type(expected), expected)


def test_an_array_of_numbers_stays_one() -> None:
    found = sent(np.arange(3, dtype=np.int16))
    assert (type(found), found.dtype, found.tolist()) == (np.ndarray, np.int16, [0, 1, 2])


@pytest.fixture
def sinks() -> tuple[ParentStages, list[Any]]:
    """Two sinks that note what they get; closing takes a while."""
    registry, noted = default_registry(), []
    with Collecting(registry):

        @stage("note")
        class Note(Sink):
            """Write down."""

            def write(self, frame: Frame) -> None:
                noted.append((self.context.id, frame.index))

            def end(self, source: str) -> None:
                noted.append((self.context.id, source))

            def close(self) -> None:
                time.sleep(0.03)
                noted.append((self.context.id, "closed"))

    text = "sources: {a: 'test://'}\nstages: {one: {stage: note}, two: {stage: note, from: decode}}"
    graph = build(read_text(text, registry=registry))
    return ParentStages(graph, ["a"], Context, lambda error: noted.append(error)), noted


def own(texts: Sequence[str]) -> list[str]:
    return ["".join(list(text)) for text in texts]  # strings of their own, as from a pipe


def test_each_sink_gets_its_own_items_and_is_closed_when_close_returns(sinks: Any) -> None:
    shared, noted = sinks
    assert shared.finished == {"one": 0, "two": 0}
    shared.open()
    packed = [pack(Frame("a", index, 0.0, 16, 16)) for index in range(4)]
    one, again, two, end = own(["one", "one", "two", "two"])
    shared.put([(two, packed[0], ""), (one, packed[1], ""), (again, packed[2], ""), (end, None, "a")])
    shared.close()
    assert [what for id_, what in noted if id_ == "one"] == [1, 2, "closed"]
    assert [what for id_, what in noted if id_ == "two"] == [0, "a", "closed"]
    assert shared.finished == {"one": 2, "two": 1}


def test_latency_is_the_time_since_a_frame_was_due(sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, _ = sinks
    monkeypatch.setattr(graph_outputs, "time", SimpleNamespace(monotonic=lambda: 10.0))
    frames = [Frame("a", index, 0.0, 16, 16, due_s=due_s) for index, due_s in enumerate((6.0, None, 6.0))]
    shared.outputs.count(shared.lanes[0], Batch(frames[:2], failed=frames[2:]))
    assert shared.finished == {"one": 3, "two": 0}
    assert list(shared.latency) == ["one"]
    assert shared.latency["one"].counts.sum() == 2
    assert 3.5 < shared.latency["one"].quantile(0.5) < 4.6
