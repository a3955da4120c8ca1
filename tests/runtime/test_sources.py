"""Files that wait for their turn: one that is paused keeps no other from beginning."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cameras import WRITTEN, going, pipeline, until  # the path is set just above

FILE, LONG = (f"'test://?width=16&height=16&frames={count}'" for count in (5, 1_000_000))


@pytest.fixture(autouse=True)
def _clean():
    WRITTEN.clear()


def files(*uris: str) -> str:
    return "sources:\n" + "".join(f"  f{n}: {uri}\n" for n, uri in enumerate(uris)) + "stages: {slow: {}, note: {}}"


def test_files_that_are_paused_before_their_turn_leave_it_to_the_others():
    running, _ = pipeline(files(*[FILE] * 6), at_once=2)
    for id_ in ("f0", "f1", "f2", "f4"):
        running.pause(id_)
    with going(running) as codes:
        until(lambda: running.states["f3"].done and running.states["f5"].done)
        assert [running.states[f"f{n}"].state for n in (0, 1, 2, 4)] == ["paused"] * 4
        assert not any(running.states[f"f{n}"].begun for n in (0, 1, 2, 4))
        until(lambda: not running.sources.threads)
        running.resume("f2")
        running.resume("f0")
        until(lambda: running.states["f0"].done and running.states["f2"].done)
        running.remove("f1")
        assert codes == []
    assert running.states["f4"].state == "ended"
    assert {id_: len(indices) for id_, indices in WRITTEN.items()} == {"f0": 5, "f2": 5, "f3": 5, "f5": 5}


def test_files_that_are_paused_on_the_way_make_room():
    running, _ = pipeline(files(LONG, FILE, LONG, FILE), at_once=1)
    with going(running):
        until(lambda: WRITTEN.get("f0"))
        assert not running.states["f1"].begun
        running.pause("f0")
        until(lambda: running.states["f1"].done and WRITTEN.get("f2"))
        assert not running.states["f3"].begun
        running.resume("f0")  # two are read for now: nobody is sent away
        so_far = len(WRITTEN["f0"])
        until(lambda: len(WRITTEN["f0"]) > so_far + 5)
        running.pause("f2")
        assert not running.states["f3"].begun
        running.remove("f0")
        until(lambda: running.states["f3"].done)
        running.pause("f2")
        assert len(running.sources.threads) == 1
    assert all(indices == list(range(len(indices))) for indices in WRITTEN.values())
