"""Which process has which source, what is counted when sources go and processes die, and where a source continues."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import SourceConfig
from streamkit.core.errors import ConfigError
from streamkit.runtime.ingest.source_status import LastFrame, RemovedSources, SourceState
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.multiprocess.placement_policy import PlacementPolicy
from streamkit.runtime.multiprocess.source_scheduler import LOST, SourceScheduler
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.observe.report_merge import WorkerReport

CAMERA = "rtsp://127.0.0.1:1/x"
LOOP = "{uri: samples/street.mp4, loop: true}"
FILE = "samples/street.mp4"


@dataclass(eq=False)
class Process:
    """A process that notes its orders."""

    sent: list[messages.Order] = field(default_factory=list)
    takes_sources: bool = True

    def send(self, order: messages.Order) -> None:
        self.sent.append(order)

    @property
    def last_added(self) -> SourceOrder:
        """The source of its last order, which adds one."""
        order = self.sent[-1]
        assert isinstance(order, messages.Add)
        return order.source


class Sinks:
    """Shared sinks that have had frames up to an index."""

    def __init__(self, had: int = -1) -> None:
        self.had = had
        self.skipped = list[tuple[str, Any, Any]]()

    def delivered(self, source: str, process: Any) -> int:
        return self.had

    def skip_repeated(self, source: str, before: Any, process: Any, *, replaced: bool = False) -> None:
        self.skipped.append((source, before, process))


def configs(**sources: str) -> list[SourceConfig]:
    listed = ", ".join(f"{id_}: {uri if uri[0] == '{' else repr(uri)}" for id_, uri in sources.items())
    root = Path(__file__).parents[3]
    return read_text(f"sources: {{{listed}}}\nstages: {{jsonl: {{path: x.jsonl}}}}", folder=root).sources


class Fleet:
    """Sources of two processes."""

    def __init__(self, *, keep_running: bool = True, **sources: str) -> None:
        self.first = Process()
        self.second = Process()
        self.reported = RemovedSources()
        source_configs = configs(**sources)
        self.now_s = time.monotonic()
        self.sources = SourceScheduler(
            source_configs, source_configs, self.totals, keep_running, clock=lambda: self.now_s
        )
        for process, ids in ((self.first, list(sources)[::2]), (self.second, list(sources)[1::2])):
            self.sources.add_process(process)
            self.sources.assign(process, ids)
            self.sources.first_orders(process)

    def totals(self) -> RemovedSources:
        totals = RemovedSources()
        totals.add_totals(self.reported)
        return totals

    def report(
        self, process: Process, *, removed: RemovedSources | None = None, numbers: Any = None, **states: Any
    ) -> None:
        numbers_by_source = self.sources._numbers if numbers is None else numbers
        sent_numbers = {id_: numbers_by_source[id_] for id_ in states if id_ in numbers_by_source}
        self.sources.update(
            process, WorkerReport(states=states, numbers=sent_numbers, removed=removed or RemovedSources())
        )


def state(frames: int, out: int | None = None, last: Any = None, **more: Any) -> SourceState:
    return SourceState(frames, last=last, out=frames if out is None else out, **more)


# ------------------------------------------------------------------------------------------------ who has which source


def test_a_new_source_goes_to_the_process_with_the_lowest_rate() -> None:
    fleet = Fleet(a=CAMERA, b=CAMERA, c=CAMERA)
    slow = state(9)
    fast = state(9)
    for at_s, frames in ((0.0, 0), (1.0, 5)):
        slow.frames = frames
        slow.sample(at_s)
        fast.frames = frames * 20
        fast.sample(at_s)
    fleet.report(fleet.first, a=slow)  # 5 frames a second, and 30 of c, which is not known yet
    fleet.report(fleet.second, b=fast)  # 100
    for id_, expected in (("d", fleet.first), ("e", fleet.first), ("f", fleet.first), ("g", fleet.second)):
        fleet.sources.add(configs(**{id_: CAMERA})[0])
        assert fleet.sources.owner(id_) is expected
    fleet.first.takes_sources = False
    fleet.sources.add(configs(h=CAMERA)[0])
    assert fleet.sources.owner("h") is fleet.second
    order = fleet.second.last_added
    assert (order.id, order.paused, order.after) == ("h", False, None)
    assert order.entry is not None


def test_a_readded_source_of_the_yaml_is_ordered_with_its_entry() -> None:
    fleet = Fleet(a=CAMERA)
    config = fleet.sources._configs["a"]
    fleet.sources.remove("a")
    fleet.sources.add(config)  # a worker knows only those that it started with
    assert fleet.sources.owner("a").last_added.entry is not None  # type: ignore[attr-defined]


def test_removals_and_additions_of_the_state_file_are_applied() -> None:
    current = configs(a=CAMERA, c=CAMERA)
    sources = SourceScheduler(current, configs(a=CAMERA, b=CAMERA), RemovedSources, True)
    first = Process()
    second = Process()
    for process, ids in ((first, ["a"]), (second, ["b"])):
        sources.add_process(process)
        sources.assign(process, ids)
    sources.assign_rest()
    assert (sources.of(first), sources.of(second)) == (["a"], ["c"])
    assert sources.first_orders(second)[0].entry is not None


def test_a_report_older_than_a_replacement_does_not_end_the_new_source() -> None:
    fleet = Fleet(keep_running=False, a=CAMERA, b=FILE)
    before = dict(fleet.sources._numbers)
    fleet.sources.remove("a")
    fleet.sources.add(configs(a=FILE)[0])
    assert fleet.sources.owner("a") is fleet.first
    fleet.report(fleet.first, numbers=before, a=state(5, error="no such camera", done=True))
    fleet.report(fleet.second, b=state(5, done=True))
    assert (fleet.sources.states["a"].frames, fleet.sources.over) == (0, False)
    fleet.report(fleet.first, a=state(3, done=True))
    assert (fleet.sources.states["a"].frames, fleet.sources.over) == (3, True)
    with pytest.raises(ConfigError, match="source c cannot be added: the run has ended"):
        fleet.sources.add(configs(c=CAMERA)[0])


def test_a_late_refusal_does_not_fail_the_replacing_source() -> None:
    fleet = Fleet(a=CAMERA)
    fleet.sources.add(configs(b=CAMERA)[0])
    process = fleet.sources.owner("b")
    assert isinstance(process, Process)
    order = process.last_added
    fleet.sources.remove("b")
    assert not fleet.sources.refused(process, order, "it cannot be")
    fleet.sources.add(configs(b=CAMERA)[0])
    assert not fleet.sources.refused(process, order, "it cannot be")
    assert fleet.sources.states["b"].error is None
    fresh = fleet.sources.owner("b").last_added  # type: ignore[attr-defined]
    assert fleet.sources.refused(fleet.sources.owner("b"), fresh, "it cannot be")  # type: ignore[arg-type]
    assert (fleet.sources.states["b"].error, fleet.sources.states["b"].done) == ("it cannot be", True)


def test_a_source_added_while_all_processes_are_dead_starts_with_the_others() -> None:
    fleet = Fleet(a=CAMERA, b=CAMERA)
    fleet.first.takes_sources = fleet.second.takes_sources = False
    fleet.sources.add(configs(c=CAMERA)[0])
    new = Process()
    lost = [*fleet.sources.remove_process(fleet.first), *fleet.sources.remove_process(fleet.second)]
    assert sorted(lost) == ["a", "b", "c"]
    fleet.sources.add_process(new)
    assert [restarted.id for restarted in fleet.sources.restart(lost, Sinks())] == lost
    assert fleet.sources.of(new) == ["a", "b", "c"]


# ------------------------------------------------------------------------------------------------------------- counts


def test_a_removed_source_is_counted_once() -> None:
    fleet = Fleet(a=CAMERA, b=CAMERA, c=CAMERA, d=CAMERA, e=CAMERA)
    for id_ in "ace":
        fleet.report(fleet.first, **{id_: state(10, 7)})
    fleet.sources.remove("a")
    fleet.sources.remove("c")
    assert [order for order in fleet.first.sent if isinstance(order, messages.Remove)] == [
        messages.Remove("a"),
        messages.Remove("c"),
    ]
    fleet.reported = RemovedSources(sources=1, frames=12, out=12)  # the process has counted one of them
    fleet.report(fleet.first, removed=fleet.reported, e=state(10, 7))
    assert fleet.sources.removed.sources == 1
    fleet.sources.remove_process(fleet.first)  # and dies with the other one in flight
    fleet.sources.remove("e")  # whose process is gone
    removed = fleet.sources.removed
    assert (removed.sources, removed.frames, removed.out, removed.drops.values[LOST]) == (3, 32, 26, 6)
    assert fleet.sources.lost == 6


def test_the_counts_of_an_earlier_process_remain_when_a_source_is_removed() -> None:
    fleet = Fleet(a=CAMERA, b=CAMERA)
    fleet.report(fleet.first, a=state(10, 8, last=LastFrame(9, 1.0, 0.0)))
    assert fleet.sources.remove_process(fleet.first) == ["a"]
    (restarted,) = fleet.sources.restart(["a"], Sinks())
    assert (restarted.frames_lost, restarted.last) == (2, (9, 1.0, 0.0, None))
    fleet.report(fleet.second, a=state(5))
    whole = fleet.sources.states["a"]
    assert (whole.frames, whole.out, whole.dropped) == (
        15,
        13,
        2,
    )
    fleet.sources.remove("a")
    fleet.reported = RemovedSources(sources=1, frames=6, out=6)
    fleet.report(fleet.second, removed=fleet.reported)
    removed = fleet.sources.removed
    assert (removed.sources, removed.frames, removed.out, removed.drops.values[LOST]) == (1, 16, 14, 2)


def test_a_source_with_an_unreported_end_has_ended() -> None:
    fleet = Fleet(keep_running=False, a=FILE)
    fleet.report(fleet.first, a=state(10, 8))
    fleet.sources.passed_on(fleet.first, ["a", "nobody"])
    assert fleet.sources.remove_process(fleet.first) == []
    assert fleet.sources.states["a"].complete
    assert fleet.sources.over


def test_the_end_of_an_earlier_source_does_not_end_an_added_one_of_the_same_id() -> None:
    fleet = Fleet(a=FILE)
    fleet.sources.passed_on(fleet.first, ["a"])
    fleet.sources.remove("a")
    fleet.second.takes_sources = False
    fleet.sources.add(configs(a=FILE)[0])
    fleet.sources.passed_on(fleet.first, ["a"])
    assert fleet.sources.remove_process(fleet.first) == ["a"]


# ----------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize(("uri", "continues"), [(CAMERA, True), (LOOP, True), (FILE, False)])
def test_cameras_and_loops_continue_and_files_are_read_again(uri: str, continues: bool) -> None:
    fleet = Fleet(a=uri, b=CAMERA)
    sinks = Sinks(90)
    fleet.now_s = 102.0
    fleet.report(fleet.first, a=state(90, 88, last=LastFrame(99, 4.0, 100.0, (320, 240)), live=True))
    fleet.sources.remove_process(fleet.first)
    assert fleet.sources.restart(["a"], sinks)
    order = fleet.second.last_added
    assert order.id == "a"
    assert fleet.sources.states["a"].state == "reconnecting"
    if continues:  # 3 s at 90 frames a second
        assert (order.after, sinks.skipped) == ((99 + 270, 4.0, 100.0, (320, 240)), [])
        assert fleet.sources.states["a"].frames == 90
    else:
        assert (order.after, sinks.skipped) == (None, [("a", fleet.first, fleet.second)])
        assert fleet.sources.states["a"].frames == 0


def test_indices_never_repeat_at_any_estimate() -> None:
    fleet = Fleet(a=LOOP, b=CAMERA)
    after = -1
    fleet.now_s = 100.0
    processes = [fleet.first, fleet.second, Process(), Process()]
    for added in processes[2:]:
        fleet.sources.add_process(added)
    for had, frames in ((5000, 100), (20, 0), (50_000, 10)):
        process = fleet.sources.owner("a")
        assert isinstance(process, Process)
        if frames:
            fleet.report(process, a=state(frames, last=LastFrame(after + frames, 4.0, 100.0)))
        fleet.sources.remove_process(process)
        assert fleet.sources.restart(["a"], Sinks(had))
        order = fleet.sources.owner("a").last_added  # type: ignore[attr-defined]
        assert order.after[0] >= max(had, after + frames)
        after = order.after[0]
        if had == 5000:  # the times of a loop that is read as fast as possible have gone on, too
            assert order.after[1] > 4.0 * 5000 / 100


def test_four_deaths_within_ten_minutes_fail_a_source() -> None:
    fleet = Fleet(a=CAMERA, b=CAMERA)

    def die() -> bool:
        process = fleet.sources.owner("a")
        fleet.sources.add_process(Process())
        fleet.sources.remove_process(process)  # type: ignore[arg-type]
        return bool(fleet.sources.restart(["a"], Sinks()))

    assert [die(), die(), die()] == [True] * 3
    fleet.now_s += 601.0
    assert [die(), die(), die()] == [True] * 3
    assert (die(), fleet.sources.restarts_of("a")) == (False, 3)


class Apart:
    """Sources whose processes the test ends; further ones start up to a limit."""

    def __init__(self, limit: int, processes: Sequence[str]) -> None:
        source_configs = configs(**dict.fromkeys("".join(processes), CAMERA))
        self.limit = limit
        self.alive = list[Process]()
        self.now_s = 0.0
        self.sources = SourceScheduler(
            source_configs,
            source_configs,
            RemovedSources,
            True,
            policy=PlacementPolicy(start_another=lambda beyond: self.start(beyond)),
            clock=lambda: self.now_s,
        )
        for ids in processes:
            process = self.start(9)
            assert process is not None
            self.sources.assign(process, ids)
        self.restarts: Counter[str] = Counter()

    def start(self, beyond: int) -> Process | None:
        if len(self.alive) >= self.limit + beyond:
            return None
        self.alive.append(Process())
        self.sources.add_process(self.alive[-1])
        return self.alive[-1]

    def die(self, id_: str, *, of_source: bool = True) -> list[str]:
        """Let the process of a source die; return the sources that did not restart."""
        process = self.sources.owner(id_)
        assert isinstance(process, Process)
        self.alive.remove(process)
        ids = self.sources.remove_process(process)
        if not self.alive:
            self.start(0)
        again = [restarted.id for restarted in self.sources.restart(ids, Sinks(), of_source=of_source)]
        self.restarts.update(again)
        failed = [id_ for id_ in ids if id_ not in again]
        for failed_id in failed:
            self.sources.give_up(failed_id, "its process died")
        return failed

    @property
    def groups(self) -> list[str]:
        return sorted("".join(self.sources._running(process)) for process in self.alive)


@pytest.mark.parametrize("bad", "aceg")
def test_the_source_that_kills_its_process_is_identified_by_bisection(bad: str) -> None:
    fleet = Apart(2, ["abcdefgh", "xy"])
    assert fleet.die(bad) == []
    assert fleet.groups == ["abcdefghxy"]
    sizes = []
    while not (failed := fleet.die(bad)):
        sizes.append(next(len(group) for group in fleet.groups if bad in group))
    assert (failed, sizes) == ([bad], [4, 2, 1])
    assert [fleet.restarts[id_] for id_ in "xy"] == [1, 1]
    assert set("".join(fleet.groups)) == set("abcdefghxy") - {bad}


def test_suspects_that_cannot_be_split_stay_together_in_a_separate_process() -> None:
    fleet = Apart(2, ["abcdefgh", "xy"])
    fleet.die("a")
    fleet.die("a")
    fleet.limit = -1  # three of them run
    for _ in range(8):
        assert fleet.die("a") == []
        assert "aceg" in fleet.groups
    assert fleet.die("a") == list("aceg")
    assert "xy" in fleet.groups


def test_suspects_are_separated_from_other_sources_until_removed() -> None:
    fleet = Apart(2, ["ab", "cd"])
    fleet.die("a")
    assert fleet.groups == ["abcd"]
    fleet.die("a")
    assert fleet.groups == ["a", "b", "cd"]
    fleet.sources.add(configs(e=CAMERA)[0])
    assert fleet.groups == ["a", "b", "cde"]
    fleet.die("c")  # of another cause: c and d are suspect as well
    assert fleet.groups == ["a", "b", "c", "d", "e"]
    fleet.sources.remove("a")
    fleet.sources.add(configs(f=CAMERA)[0])
    assert "f" in fleet.groups  # in the process that is idle now


def test_a_spare_process_gets_the_sources_of_a_dead_process_except_suspects() -> None:
    fleet = Apart(3, ["abcd", "xy"])
    spare = Process()
    taken = list[Process]()

    def take() -> Process:
        taken.append(spare)
        fleet.alive.append(spare)
        fleet.sources.add_process(spare)
        return spare

    def die(id_: str) -> None:
        process = fleet.sources.owner(id_)
        assert isinstance(process, Process)
        fleet.alive.remove(process)
        ids = fleet.sources.remove_process(process)
        fleet.sources.restart(ids, Sinks(), of_source=True, take_spare=take)

    die("a")
    assert [type(order) for order in spare.sent] == [messages.Add] * 4
    assert fleet.groups == ["abcd", "xy"]
    spare = Process()
    die("a")
    assert fleet.groups == ["ac", "bd", "xy"]
    assert (len(taken), spare.sent) == (1, [])


def test_sources_are_not_suspect_if_several_processes_died_or_none_ran() -> None:
    fleet = Apart(2, ["ab", "cd"])
    for _ in range(2):
        assert fleet.die("a", of_source=False) == []
    assert fleet.groups == ["abcd"]
    fleet.die("a", of_source=False)
    assert fleet.die("a", of_source=False) == ["a", "b"]


def test_suspects_are_cleared_after_ten_minutes() -> None:
    fleet = Apart(2, ["ab", "cd"])
    fleet.die("a")
    fleet.die("a")
    fleet.now_s += 601.0
    fleet.die("a")
    assert fleet.restarts["a"] == 3
    assert len(fleet.alive) == 2  # with others again


def test_suspects_move_to_other_processes_if_none_can_be_started() -> None:
    fleet = Apart(-2, ["ab", "cd"])
    fleet.die("a")
    fleet.start = lambda beyond: None  # type: ignore[method-assign]
    fleet.alive.append(extra := Process())
    fleet.sources.add_process(extra)
    fleet.sources.assign(extra, ["c"])
    assert fleet.die("a") == []
    assert fleet.groups == ["abcd"]


# ----------------------------------------------------------------------------------------------------------- handles


def test_a_signal_may_interrupt_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[messages.Order] = []

    def send(order: messages.Order) -> None:
        if order == messages.Stop():
            signal.raise_signal(signal.SIGINT)
        sent.append(order)

    handle = WorkerHandle(device="cpu", child=SimpleNamespace(send=send))
    before = signal.signal(signal.SIGINT, lambda *_: handle.send(messages.Now()))
    try:
        assert threading.current_thread() is threading.main_thread()
        handle.end(messages.Stop())
    finally:
        signal.signal(signal.SIGINT, before)
    assert sent == [messages.Now(), messages.Stop()]


def test_orders_to_unstarted_or_ended_processes_are_dropped() -> None:
    handle = WorkerHandle(device="cpu")
    assert handle.takes_sources
    handle.send(messages.Add(SourceOrder("a")))
    handle.exited = True
    assert not handle.takes_sources


def test_a_source_refused_before_the_run_is_assigned_to_no_process() -> None:
    fleet = Fleet(a=CAMERA, b=CAMERA)
    sources = configs(a=CAMERA, b=CAMERA, c=CAMERA)
    refusing = SourceScheduler(sources, sources, RemovedSources, keep_running=False)
    refusing.add_process(fleet.first)
    refusing.assign(fleet.first, ["a", "b"])
    refusing.give_up("c", "no session")
    refusing.assign_rest()
    assert [order.id for order in refusing.first_orders(fleet.first)] == ["a", "b"]
    assert refusing.owner("c") is None
    state = refusing.states["c"]
    assert (state.done, state.error, state.state) == (True, "no session", "failed")
    refusing.pause("c")
    with pytest.raises(ConfigError, match="there is no source 'd'"):
        refusing.pause("d")
    refusing.remove("c")
    assert "c" not in refusing.states
    assert refusing.removed.sources == 1
    refusing.add(sources[2])
    assert refusing.owner("c") is fleet.first, "once there is room, it may be added again"
