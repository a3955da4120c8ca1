"""The budget of calls: exact, over threads, processes and restarts."""

import json
import subprocess
import sys
import threading
import time

from support.messages import collect

from streamkit.core.units import Rate
from streamkit.stages.inference.ask.call_budget import CallBudget


def test_a_budget_limits_the_calls_of_any_period(tmp_path, monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    budget = CallBudget(Rate(3, "min"), tmp_path / "spool" / "calls")
    assert [budget.take() for _ in range(5)] == [True, True, True, False, False]
    now_s = 1059.9
    assert not budget.take()
    now_s = 1060.0
    assert [CallBudget(Rate(3, "min"), tmp_path / "spool" / "calls").take() for _ in range(4)] == [True] * 3 + [False]
    now_s = 900.0  # the clock was set back: times in the future do not count
    assert budget.take()


def test_calls_without_a_budget_are_unlimited_and_write_no_file(tmp_path):
    assert all(CallBudget(None, tmp_path / "calls").take() for _ in range(1000))
    assert list(tmp_path.iterdir()) == []


def test_threads_and_processes_share_a_budget(tmp_path):
    path = tmp_path / "calls"
    code = (
        "import sys; from pathlib import Path; from streamkit.core.units import Rate; "
        "from streamkit.stages.inference.ask.call_budget import CallBudget; "
        "made = CallBudget(Rate(50, 'h'), Path(sys.argv[1])); print(sum(made.take() for _ in range(30)))"
    )
    others = [subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    taken = []

    def take():
        budget = CallBudget(Rate(50, "h"), path)
        taken.extend(budget.take() for _ in range(20))

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) + sum(int(process.communicate()[0]) for process in others) == 50
    assert len(json.loads(path.read_text())) == 50


def test_a_torn_file_is_empty_and_an_unwritable_one_is_reported(tmp_path):
    path = tmp_path / "calls"
    path.write_text("[1785585600.25, 17855")
    budget = CallBudget(Rate(2, "min"), path)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    path.write_text(f"[{time.time()}]9, 1785585600.25]")  # killed before it was cut off
    assert [budget.take() for _ in range(2)] == [True, False]
    logged = collect()
    (tmp_path / "file").write_text("in the way")
    budget = CallBudget(Rate(2, "min"), tmp_path / "file" / "calls")
    assert [budget.take() for _ in range(3)] == [True, True, False], "it still holds in this process"
    assert logged[0].startswith(f"{tmp_path}/file/calls: ")
    assert logged[0].endswith("; the budget of calls holds for this process only")
    assert len(logged) == 1


def test_a_file_that_becomes_unwritable_does_not_renew_the_budget(tmp_path):
    budget = CallBudget(Rate(3, "h"), tmp_path / "spool" / "calls")
    assert [budget.take() for _ in range(2)] == [True, True]
    (tmp_path / "spool" / "calls").unlink()
    (tmp_path / "spool").rmdir()
    (tmp_path / "spool").write_text("in the way")
    assert [budget.take() for _ in range(2)] == [True, False]
