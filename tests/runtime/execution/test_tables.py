"""Branches that meet: what each says of the whole frame."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from support.one_stage import Picky, Rig, batch, key

from streamkit.core.data import Batch, Frame, FrameMap
from streamkit.runtime.execution.tables import join, merge_batches, new_batch, split
from streamkit.testing.kit import detections, frames


def test_tables_of_branches_are_merged_side_by_side():
    whole = Batch(frames(2))
    first = whole.fork()
    second = whole.fork()
    first.frames[0].facts["attributes"] = {"scene": {"label": "street", "score": 0.5}}
    second.frames[0].facts["attributes"] = {"weather": {"label": "rain", "score": 0.9}}
    second.frames[1].facts["segmentation"] = {"road": "..."}
    met = merge_batches([first, second])
    assert met.frames[0].facts["attributes"] == {
        "weather": {"label": "rain", "score": 0.9},
        "scene": {"label": "street", "score": 0.5},
    }
    assert met.frames[1].facts == {"segmentation": {"road": "..."}}
    assert whole.frames[0].facts == {}


def fork_pair(change: Callable[[Batch], Any]) -> tuple[Batch, Batch]:
    origin = batch("a0 b0", ended="b", rows=(2, 1))
    other = origin.fork()
    change(other)
    return origin, other


def test_equal_tables_of_branches_are_merged_once():
    first, other = fork_pair(lambda b: None)
    table = first.table("detect")
    merged = merge_batches([first, other])
    assert merged.table("detect") is table
    assert list(merged.tables) == ["detect"]
    assert (merged.sequence, merged.ended, key(merged.frames)) == (5, ("b",), "a0 b0")


def test_the_merge_has_columns_and_tables_of_every_branch():
    def change(b: Batch) -> None:
        table = b.table("detect")
        b.tables["detect"] = table[1:].with_columns(speed=np.array([7, 8], np.float32))
        b.tables["faces"] = detections([[1, 1, 2, 2]])

    first, other = fork_pair(change)
    merged = merge_batches([first, other])
    np.testing.assert_array_equal(merged.table("detect").extra["speed"], [np.nan, 7, 8])
    np.testing.assert_array_equal(merged.table("detect").batch_row, [0, 0, 1])
    assert list(merged.tables) == ["detect", "faces"]


def test_a_frame_has_the_maps_of_every_branch():
    first = batch("a0")
    other = first.fork()
    values = np.zeros((2, 2), np.float32)
    depth = FrameMap("depth", values, values.astype(np.uint8), (1.0, 1.0, 0.0, 0.0), (0, 0, 2, 2))
    other.frames[0].maps["depth"] = depth
    assert first.frames[0].maps == {}
    assert merge_batches([first, other]).frames[0].maps == {"depth": depth}


def test_events_from_before_the_branches_are_kept_once():
    input_batch = batch("a0")
    input_batch.frames[0].emit("above")
    forks = [input_batch, input_batch.fork(), input_batch.fork()]
    for number, fork in enumerate(forks[1:]):
        fork.frames[0].emit("own", n=number)
    merged = merge_batches(forks)
    assert [event.kind for event in merged.frames[0].events] == ["above", "own", "own"]


def test_an_event_changed_by_branches_has_the_additions_of_each():
    above = Batch(frames(1))
    above.frames[0].emit("rang", n=1)
    first = above.fork()
    second = above.fork()
    third = above.fork()
    for branch, added in ((first, {"clip": "a.mp4"}), (second, {"snapshot": "a.jpg", "n": 2})):
        (event,) = branch.frames[0].events
        branch.frames[0].events = [replace(event, data={**event.data, **added})]
    second.frames[0].emit("saved")
    (frame,) = merge_batches([first, second, third]).frames
    assert [(event.kind, event.data) for event in frame.events] == [
        ("rang", {"n": 1, "clip": "a.mp4", "snapshot": "a.jpg"}),
        ("saved", {}),
    ]


def test_a_frame_that_failed_in_a_branch_has_failed_after_the_merge():
    input_batch = batch("a0 b0 a1", ended="a", rows=(1, 2, 1))
    input_batch.ready = ready = object()
    forks = [input_batch, input_batch.fork(), input_batch.fork()]
    merged = merge_batches([forks[0], Rig(Picky, bad=("b0",))(forks[1]), Rig(Picky, bad=("b0", "a1"))(forks[2])])
    assert (key(merged.frames), sorted(key([f]) for f in merged.failed)) == ("a0", ["a1", "b0"])
    assert all(frame.error for frame in merged.failed)
    np.testing.assert_array_equal(merged.table("detect").batch_row, [0])
    assert (merged.ended, merged.sequence) == (("a",), 5)
    assert merged.ready is ready  # whoever reads on must still wait for the device


def test_a_failed_frame_keeps_the_events_of_every_branch():
    input_batch = batch("a0 b0 a1", rows=(1, 1, 1))
    input_batch.frames[1].emit("above")
    forks = [input_batch, input_batch.fork(), input_batch.fork(), input_batch.fork()]
    for number, fork in enumerate(forks[1:]):
        for frame in fork.frames:
            frame.emit("own", n=number)
    broken = [Rig(Picky, bad=("b0",))(fork) for fork in forks[1:3]]
    merged = merge_batches([forks[0], *broken, forks[3]])
    (lost,) = merged.failed
    assert lost.error
    events = [(event.kind, event.data.get("n")) for event in lost.events]
    assert sorted(events, key=str) == sorted([("above", None), ("own", 0), ("own", 1), ("own", 2)], key=str)
    assert [[event.data.get("n") for event in frame.events] for frame in merged.frames] == [[0, 1, 2]] * 2


def test_a_merge_without_any_frame_is_empty():
    input_batch = batch("a0 b0", ended="ab")
    other = input_batch.fork()
    merged = merge_batches([Rig(Picky, bad=("b0",))(input_batch), Rig(Picky, bad=("a0",))(other)])
    assert (merged.frames, sorted(key([f]) for f in merged.failed), merged.ended) == ([], ["a0", "b0"], ("a", "b"))


def test_a_new_batch_has_the_position_and_failures_of_its_frames():
    listed = [Frame("a", n, n / 10, 64, 48, error="bad" if n == 1 else None) for n in range(3)]
    output_batch = new_batch(listed, np)
    assert (key(output_batch.frames), key(output_batch.failed)) == ("a0 a2", "a1")
    assert [frame._state.position for frame in listed] == [0, 1, 2]
    assert (output_batch.sequence, output_batch.ended, output_batch.xp) == (0, (), np)
    later = new_batch(listed, np, sequence=4, ended=("a",))
    assert (later.sequence, later.ended) == (4, ("a",))


def test_each_frame_gets_its_rows_of_every_table():
    input_batch = batch("a0 b0 a1", rows=(2, 0, 1))
    input_batch.tables["faces"] = detections([[1, 1, 2, 2]])
    split(input_batch)
    assert [{name: len(table) for name, table in frame.tables.items()} for frame in input_batch.frames] == [
        {"detect": 2, "faces": 1},
        {"detect": 0, "faces": 0},
        {"detect": 1, "faces": 0},
    ]
    np.testing.assert_allclose(input_batch.frames[2].tables["detect"].score, [2.0])


def test_replaced_tables_are_joined_and_others_unchanged():
    input_batch = batch("a0 b0", rows=(2, 1))
    input_batch.tables["faces"] = faces = detections([[1, 1, 2, 2]])
    split(input_batch)
    before = [dict(frame.tables) for frame in input_batch.frames]
    second = input_batch.frames[1]
    second.tables["detect"] = second.tables["detect"].with_columns(sure=np.array([True]))
    second.tables["plates"] = detections([[3, 3, 4, 4], [5, 5, 6, 6]])
    join(input_batch, before)
    assert list(input_batch.tables) == ["detect", "faces", "plates"]
    assert input_batch.table("faces") is faces
    np.testing.assert_array_equal(input_batch.table("detect").batch_row, [0, 0, 1])
    assert input_batch.table("detect").extra["sure"].tolist() == [None, None, True]  # unknown is not False
    np.testing.assert_array_equal(input_batch.table("plates").batch_row, [1, 1])
    np.testing.assert_array_equal(input_batch.table("plates").xyxy[:, 0], [3, 5])


def test_a_table_emptied_by_a_stage_is_empty():
    input_batch = batch("a0 b0", rows=(2, 1))
    split(input_batch)
    before = [dict(frame.tables) for frame in input_batch.frames]
    input_batch.frames[0].tables.clear()
    join(input_batch, before)
    np.testing.assert_array_equal(input_batch.table("detect").batch_row, [1])


def test_the_first_branch_provides_the_event_of_written_arrays():
    first = batch("a0")
    second = first.fork()
    first.ready = object()
    second.ready = object()
    assert merge_batches([first, second]).ready is first.ready


def test_facts_that_are_not_mappings_come_from_the_first_branch():
    first, second = (Batch(frames(1)).fork() for _ in range(2))
    both = {"road": 1}
    first.frames[0].facts = {"level": 1, "scene": {"label": "street"}, "view": 3, "same": both}
    second.frames[0].facts = {"level": 2, "scene": "street", "view": {"label": "far"}, "same": both, "own": 5}
    (frame,) = merge_batches([first, second]).frames
    assert frame.facts == {"level": 1, "scene": {"label": "street"}, "view": 3, "same": {"road": 1}, "own": 5}
    assert frame.facts["same"] is both


def test_shown_shapes_and_skipped_detectors_of_branches_are_merged():
    first, second = (Batch(frames(1)).fork() for _ in range(2))
    line = object()
    zone = object()
    first.frames[0].shown = {"count.line": line}
    second.frames[0].shown = {"count.zone": zone}
    first.frames[0]._state.skipped_detectors = frozenset({"faces"})
    second.frames[0]._state.skipped_detectors = frozenset({"plates"})
    (frame,) = merge_batches([first, second]).frames
    assert frame.shown == {"count.line": line, "count.zone": zone}
    assert frame._state.skipped_detectors == {"faces", "plates"}


def test_formatted_lines_are_discarded_at_a_merge():
    first, other = fork_pair(lambda fork: fork)
    first.lines = other.lines = [b"stale\n"] * len(first)
    assert merge_batches([first, other]).lines is None
