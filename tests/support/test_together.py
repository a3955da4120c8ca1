"""Tests marked `alone` run beside no other, `quiet` ones beside few, and those of a Ray cluster in one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist")

TESTS = """
import os
import time
from pathlib import Path

import pytest

def noted(name):
    begun_s = time.monotonic()
    time.sleep(0.15)
    with Path("log").open("a") as log:
        log.write(f"{name} {begun_s} {time.monotonic()} {os.getpid()}\\n")

@pytest.mark.parametrize("n", range(3))
def test_among_others(n):
    noted("among")

@pytest.mark.alone
@pytest.mark.timeout(2)
@pytest.mark.parametrize("n", range(2))
def test_alone(n):
    noted("alone")

@pytest.mark.quiet
@pytest.mark.parametrize("n", range(2))
def test_quiet(n):
    noted("quiet")

@pytest.fixture
def ray_nodes():
    pass

def test_ray(ray_nodes):
    noted("ray")
"""


def test_alone_tests_overlap_with_no_other_and_quiet_tests_with_those_of_one_process_per_core(tmp_path: Path) -> None:
    for name in ("one", "two", "four"):
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    (tmp_path / "test_three.py").write_text("")  # each process then collects other files
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone: no others\n  quiet: few others\n")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TMPDIR": str(tmp_path)}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others take seconds to load, in each of four processes
    plugins = [word for name in ("xdist", "pytest_timeout", "together") for word in ("-p", name)]
    line = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if sys.platform == "linux" else []
    line += [sys.executable, "-m", "pytest", "-q", *plugins, "-n", "3", "--dist", "loadfile"]
    completed = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert "24 passed" in completed.stdout, completed.stdout + completed.stderr
    rows = [row.split() for row in (tmp_path / "log").read_text().splitlines()]
    spans = sorted((float(start_s), float(ended), name, pid) for name, start_s, ended, pid in rows)
    assert len({pid for *_, name, pid in spans if name != "among"}) == 1
    names = [name for *_, name, _ in spans]
    begins = names.index("alone")
    assert names[begins : begins + 6] == ["alone"] * 6  # the processes wait for each other once
    assert [name for name in names if name != "among"] == ["alone"] * 6 + ["quiet"] * 6 + ["ray"] * 3
    overlaps = [(a[2:], b[2:]) for n, a in enumerate(spans) for b in spans[n + 1 :] if b[0] < a[1]]
    assert all("alone" not in (a[0], b[0]) for a, b in overlaps)
    beside_quiet = {
        pid for pair in overlaps for name, pid in pair if "quiet" in (pair[0][0], pair[1][0]) and name == "among"
    }
    assert len(beside_quiet) == 1
    assert list(tmp_path.glob("streamkit-tests-*")) == []  # nothing is left behind
