"""When a wait drops frames and when it leaves threads behind, by a clock of the test."""

from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.runtime import shutdown
from streamkit.runtime.shutdown import wait


class Thread:
    """Alive for a number of joins."""

    def __init__(self, joins: int) -> None:
        self.joins, self.waited = joins, []

    def is_alive(self) -> bool:
        return self.joins > 0

    def join(self, timeout_s: float) -> None:
        self.waited.append(timeout_s)
        self.joins -= 1


def waited(
    monkeypatch: pytest.MonkeyPatch, threads: list[Any], times_s: list[float | None], hangs: Any = None
) -> tuple[list[Any], int]:
    """The threads that are left behind, and how often frames are dropped; the run was stopped at 20 s."""
    drops: list[int] = []
    now = iter(times_s)
    current: list[float] = [0.0]

    def stopped_at_s() -> float | None:
        if (time_s := next(now, None)) is None:
            return None
        current[0] = 20.0 + time_s
        return 20.0

    monkeypatch.setattr(shutdown, "time", SimpleNamespace(monotonic=lambda: current[0]))
    more = {} if hangs is None else {"hangs": hangs}
    return wait(threads, stopped_at_s, lambda: drops.append(1), **more), len(drops)


def test_each_wait_is_short_so_that_signals_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Thread(3), Thread(1)
    assert waited(monkeypatch, [first, second], []) == ([], 0)
    assert (first.waited, second.waited) == ([0.2] * 3, [0.2])


@pytest.mark.parametrize(
    ("times_s", "drops", "left"),
    [([3.5, 4.0], 0, False), ([4.01, 4.5, 5.0], 1, False), ([4.5, 5.01], 1, True), ([6.0], 1, True)],
)
def test_frames_are_dropped_after_four_seconds_and_threads_left_after_five(
    times_s: list[float | None], drops: int, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = Thread(len(times_s) + 1)
    assert waited(monkeypatch, [thread], times_s) == ([thread] if left else [], drops)


@pytest.mark.parametrize(("last_s", "left"), [(14.5, False), (15.0, False), (15.01, True), (15.5, True)])
def test_what_closes_a_file_has_ten_seconds_more(last_s: float, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    thread, other = Thread(3), Thread(3)
    outcome = waited(monkeypatch, [thread, other], [5.5, last_s], lambda candidate: candidate is other)
    assert outcome == ([thread, other] if left else [], 1)


def test_a_thread_that_has_just_ended_does_not_keep_the_others_from_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, hung = Thread(1), Thread(9)
    assert waited(monkeypatch, [ended, hung], [6.0, 6.1]) == ([hung], 1)
    assert (len(ended.waited), len(hung.waited)) == (1, 1)
