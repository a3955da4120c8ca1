"""Branches that meet: what each says of the whole frame."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from support.one_stage import Picky, Rig, batch, key

from streamkit.core.data import Batch
from streamkit.runtime.execution.tables import merge_batches
from streamkit.testing.kit import detections, frames


def test_what_branches_say_of_a_frame_stands_side_by_side():
    whole = Batch(frames(2))
    first, second = whole.fork(), whole.fork()
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
    given = batch("a0 b0", ended="b", rows=(2, 1))
    other = given.fork()
    change(other)
    return given, other


def test_equal_tables_are_one_where_branches_meet():
    one, other = fork_pair(lambda b: None)
    table = one.table("detect")
    found = merge_batches([one, other])
    assert found.table("detect") is table
    assert list(found.tables) == ["detect"]
    assert (found.sequence, found.ended, key(found.frames)) == (5, ("b",), "a0 b0")


def test_columns_and_tables_of_every_branch_are_there():
    def change(b: Batch) -> None:
        table = b.table("detect")
        b.tables["detect"] = table[1:].with_columns(speed=np.array([7, 8], np.float32))
        b.tables["faces"] = detections([[1, 1, 2, 2]])

    one, other = fork_pair(change)
    found = merge_batches([one, other])
    np.testing.assert_array_equal(found.table("detect").extra["speed"], [np.nan, 7, 8])
    np.testing.assert_array_equal(found.table("detect").batch_row, [0, 0, 1])
    assert list(found.tables) == ["detect", "faces"]


def test_events_from_above_the_branches_are_kept_once():
    given = batch("a0")
    given.frames[0].emit("above")
    forks = [given, given.fork(), given.fork()]
    for number, one in enumerate(forks[1:]):
        one.frames[0].emit("own", n=number)
    found = merge_batches(forks)
    assert [event.kind for event in found.frames[0].events] == ["above", "own", "own"]


def test_an_event_that_branches_have_added_to_is_one_with_what_each_added():
    above = Batch(frames(1))
    above.frames[0].emit("rang", n=1)
    first, second, third = above.fork(), above.fork(), above.fork()
    for branch, added in ((first, {"clip": "a.mp4"}), (second, {"snapshot": "a.jpg", "n": 2})):
        (event,) = branch.frames[0].events
        branch.frames[0].events = [replace(event, data={**event.data, **added})]
    second.frames[0].emit("saved")
    (frame,) = merge_batches([first, second, third]).frames
    assert [(event.kind, event.data) for event in frame.events] == [
        ("rang", {"n": 1, "clip": "a.mp4", "snapshot": "a.jpg"}), ("saved", {}),
    ]  # fmt: skip


def test_a_frame_that_failed_in_one_branch_has_failed_where_they_meet():
    given = batch("a0 b0 a1", ended="a", rows=(1, 2, 1))
    given.ready = ready = object()
    forks = [given, given.fork(), given.fork()]
    found = merge_batches([forks[0], Rig(Picky, bad=("b0",))(forks[1]), Rig(Picky, bad=("b0", "a1"))(forks[2])])
    assert (key(found.frames), sorted(key([f]) for f in found.failed)) == ("a0", ["a1", "b0"])
    assert all(frame.error for frame in found.failed)
    np.testing.assert_array_equal(found.table("detect").batch_row, [0])
    assert (found.ended, found.sequence) == (("a",), 5)
    assert found.ready is ready  # whoever reads on must still wait for the device


def test_a_frame_that_failed_keeps_the_events_of_every_branch():
    given = batch("a0 b0 a1", rows=(1, 1, 1))
    given.frames[1].emit("above")
    forks = [given, given.fork(), given.fork(), given.fork()]
    for number, one in enumerate(forks[1:]):
        for frame in one.frames:
            frame.emit("own", n=number)
    broken = [Rig(Picky, bad=("b0",))(one) for one in forks[1:3]]
    found = merge_batches([forks[0], *broken, forks[3]])
    (lost,) = found.failed
    assert lost.error
    told = [(event.kind, event.data.get("n")) for event in lost.events]
    assert sorted(told, key=str) == sorted([("above", None), ("own", 0), ("own", 1), ("own", 2)], key=str)
    assert [[event.data.get("n") for event in frame.events] for frame in found.frames] == [[0, 1, 2]] * 2


def test_when_the_branches_have_lost_every_frame_between_them():
    given = batch("a0 b0", ended="ab")
    other = given.fork()
    found = merge_batches([Rig(Picky, bad=("b0",))(given), Rig(Picky, bad=("a0",))(other)])
    assert (found.frames, sorted(key([f]) for f in found.failed), found.ended) == ([], ["a0", "b0"], ("a", "b"))
