"""The short forms of the soaks; `soak.py` beside this file runs the long ones."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import soak  # the path is set just above
from rig import Promises
from soak import SHORT, run


@pytest.mark.soak
@pytest.mark.parametrize("name", ["restarts", "neighbors", "soak"])
def test_the_promises_about_cameras_hold(name, tmp_path, test_data, rtsp_there):
    promises = run(name, tmp_path, **SHORT[name])
    assert promises.hold, str(promises)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["churn", "overload"])
def test_the_promises_about_load_hold(name, tmp_path, test_data):
    promises = run(name, tmp_path, **SHORT[name])
    assert promises.hold, str(promises)


@pytest.mark.soak
def test_cameras_failing_at_random_do_not_delay_others(tmp_path, test_data):
    promises = run("fleet", tmp_path, cameras=5, seconds=5.0, device="cpu")
    assert promises.hold, str(promises)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("fleet", {"seconds": 40.0}), ("churn", {"times": 1600})])
def test_the_promises_on_a_gpu_hold(name, options, tmp_path, test_data):
    promises = run(name, tmp_path, **options, device="cuda")
    assert promises.hold, str(promises)


def test_a_broken_promise_is_reported():
    promises = Promises("one")
    assert not promises.hold  # nothing was promised
    promises.limit("frames lost", 1, 2)
    assert promises.hold
    promises.none("cameras that failed", ["gate: away"])
    assert not promises.hold
    assert promises.report()["holds"] is False
    assert "! cameras that failed" in str(promises)
    assert "gate: away" in str(promises)


@pytest.mark.parametrize("broken", [1, 2, None])
def test_the_worst_of_several_runs_counts(monkeypatch, capsys, tmp_path, broken):
    """Both are run and reported, also where the first was well, and where it was not."""
    held = []

    def promised(name, folder, **options):
        held.append(name)
        promises = Promises(name)
        promises.limit("frames lost", 3 if len(held) == broken else 0, 2)
        return promises

    monkeypatch.setattr(soak, "run", promised)
    report = tmp_path / "soak.json"
    monkeypatch.setattr(sys, "argv", ["soak.py", "overload", "--short", "--runs", "2", "--json", str(report)])
    assert soak.main() == (broken is not None)
    assert held == ["overload", "overload"]
    output = capsys.readouterr().out
    assert output.index("run 1 of 2: ") < output.index("run 2 of 2: ")
    runs = json.loads(report.read_text())["soaks"]
    assert [run_report["run"] for run_report in runs] == [1, 2]
    assert [run_report["holds"] for run_report in runs] == [broken != 1, broken != 2]
