"""A stage that hangs is told of with its stack, once, and once more when it comes back."""

import sys
import threading
from pathlib import Path

from streamkit.runtime.watchdog import HUNG, stack, stacks

sys.path.insert(0, str(Path(__file__).parent))
from cameras import HOLD, going, pipeline, until  # the path is set just above


def test_a_stage_that_hangs_is_said_and_counted():
    HOLD.clear()
    running, said = pipeline(
        "watchdog: 200ms\nsources: {a: {stage: camera}}\nstages: {slow: {hangs: true, run: {instances: 1}}, note: {}}"
    )
    with going(running):
        until(lambda: said)
        assert said[0].startswith("slow hangs: it has been in one call for ")
        assert "(watchdog: 0.2s)\n" in said[0]
        assert "in process" in said[0]
        assert "HOLD.wait(WAIT_S)" in said[0]  # the line it is at
        assert running.counts()[HUNG] >= 1
        HOLD.set()
        until(lambda: any("slow: the call that hung has come back" in text for text in said))
    assert running.states["a"].out > 0


def test_the_stack_of_a_thread():
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="waits")
    thread.start()
    assert "in wait" in stack(thread.ident)
    assert stacks([thread]).startswith("  waits:\n")
    over.set()
    thread.join()
    assert stack(thread.ident) == stack(None) == "    (its thread has ended)"
