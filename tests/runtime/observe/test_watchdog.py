"""A stage that hangs is told of with its stack, once, and once more when it comes back."""

import threading
import time
import types

from support.cameras import HOLD, going, pipeline, until
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.runtime.observe import watchdog
from streamkit.runtime.observe.watchdog import HUNG, Watchdog, stack, stacks


def test_a_hanging_stage_is_reported_and_counted():
    HOLD.clear()
    running, logged = pipeline(
        "watchdog: 200ms\nsources: {a: {stage: camera}}\nstages: {slow: {hangs: true, run: {instances: 1}}, note: {}}"
    )
    with going(running):
        until(lambda: logged)
        assert logged[0].startswith("slow hangs: one call has taken ")
        assert "(watchdog: 0.2s)\n" in logged[0]
        assert "in process" in logged[0]
        assert "HOLD.wait(WAIT_S)" in logged[0]  # the line it is at
        assert running.counts()[HUNG] >= 1
        HOLD.set()
        until(lambda: any("slow: the call that hung has returned" in text for text in logged))
    assert running.states["a"].out > 0


class Calls:
    """A stage's runner, as far as the watchdog sees it."""

    def __init__(self, id_="slow"):
        self.node = types.SimpleNamespace(id=id_)
        self.counters = Counters()
        self.call = None


def test_a_call_above_the_limit_is_reported_once(monkeypatch):
    now_s = [1000.0]
    logged = collect()
    call_runner = Calls()
    other = Calls("other")
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now_s[0])
    dog = Watchdog(2.0, [call_runner, other])

    def look(at_s):
        now_s[0] = at_s
        dog.check()
        return len(logged)

    call_runner.call = (1000.0, None)
    assert [look(1000.0 + s) for s in (0.5, 1.9, 2.0)] == [0, 0, 0]
    assert look(1002.1) == 1
    assert logged[0].startswith("slow hangs: one call has taken 2 s (watchdog: 2s)\n")
    assert (look(1002.5), look(1030.0)) == (1, 1)
    other.call = (1029.0, None)
    assert look(1031.5) == 2
    assert logged[1].startswith("other hangs: one call has taken 2 s ")
    call_runner.call = (1031.0, None)  # the next one
    assert look(1032.0) == 3
    assert logged[2] == "slow: the call that hung has returned after 32 s"
    assert look(1033.1) == 4
    assert logged[3].startswith("slow hangs: ")
    call_runner.call = other.call = None
    assert look(1034.0) == 6
    assert look(1035.0) == 6
    assert (call_runner.counters[HUNG], other.counters[HUNG]) == (2, 1)


def test_the_hang_time_does_not_depend_on_the_wall_clock(monkeypatch):
    """Soon after the machine has started, the monotonic clock is small."""
    now_s = [1.0]
    logged = collect()
    call_runner = Calls()
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now_s[0])
    dog = Watchdog(2.0, [call_runner])
    call_runner.call = (1.0, None)
    now_s[0] = 8.0
    dog.check()
    assert logged[0].startswith("slow hangs: one call has taken 7 s ")


def test_the_yaml_sets_the_limit_checked_each_second():
    """A second's grace between two looks; a limit that was ten times as long would show here."""
    HOLD.clear()
    running, logged = pipeline(
        "watchdog: 1s\nsources: {a: {stage: camera}}\nstages: {slow: {hangs: true, run: {instances: 1}}, note: {}}"
    )
    with going(running):
        until(lambda: any(runner.call for runner in running._runners))
        until(lambda: logged)
        assert "(watchdog: 1s)" in logged[0]
        call_start_s = next(runner.call[0] for runner in running._runners if runner.call)
        assert time.monotonic() - call_start_s > 1.0
        HOLD.set()


def test_the_stack_of_a_thread_is_read():
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="waits")
    thread.start()
    assert "in wait" in stack(thread.ident)
    assert stacks([thread]).startswith("  waits:\n")
    over.set()
    thread.join()
    assert stack(thread.ident) == stack(None) == "    (its thread has ended)"


def test_the_innermost_calls_of_a_stack_are_shown():
    here = threading.Event()
    over = threading.Event()

    def deeper(calls):
        if calls:
            between(calls - 1)
        else:
            here.set()
            over.wait(60)

    def between(calls):
        deeper(calls)

    threads = [threading.Thread(target=deeper, args=(20,), name=name) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    try:
        assert here.wait(60)
        until(lambda: "in wait" in stack(threads[0].ident) and "in wait" in stack(threads[1].ident))
        innermost = stack(threads[0].ident)
        both = stacks(threads)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert len([line for line in innermost.splitlines() if line.startswith("  File ")]) == 12
    assert innermost == innermost.rstrip()
    names = [line for line in both.splitlines() if line in ("  one:", "  two:")]
    assert names == ["  one:", "  two:"]
    assert stacks([]) == ""


def test_a_hanging_call_is_reported_with_its_stack(monkeypatch):
    logged = collect()
    call_runner = Calls()
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: 107.0)
    call_runner.call = (100.0, threading.get_ident())
    Watchdog(0.25, [call_runner]).check()
    first, *rest = logged[0].split("\n")
    assert first == "slow hangs: one call has taken 7 s (watchdog: 0.25s)"
    assert any("in test_a_hanging_call_is_reported_with_its_stack" in line for line in rest)


def test_consecutive_calls_have_separate_hang_times(monkeypatch):
    now_s = [100.0]
    logged = collect()
    call_runner = Calls()
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now_s[0])
    dog = Watchdog(2.0, [call_runner])
    call_runner.call = (100.0, None)
    now_s[0] = 103.0
    dog.check()
    call_runner.call = (103.5, None)
    now_s[0] = 106.0
    dog.check()
    assert [text.split("\n")[0] for text in logged] == [
        "slow hangs: one call has taken 3 s (watchdog: 2s)",
        "slow: the call that hung has returned after 6 s",
        "slow hangs: one call has taken 2 s (watchdog: 2s)",
    ]
    assert call_runner.counters[HUNG] == 2
    call_runner.call = None
    dog.check()
    dog.check()
    assert len(logged) == 4
