"""Tests marked `alone` share the machine with no other, and those of a Ray cluster share a process."""

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

@pytest.mark.parametrize("n", range(4))
def test_among_others(n):
    noted("among")

@pytest.mark.alone
@pytest.mark.timeout(2)
@pytest.mark.parametrize("n", range(4))
def test_alone(n):
    noted("alone")

@pytest.fixture
def ray_nodes():
    pass

def test_ray(ray_nodes):
    noted("ray")
"""


def test_alone_tests_overlap_with_no_other_and_ray_tests_share_a_process(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    (tmp_path / "test_three.py").write_text("")  # each process then collects other files
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone: no others\n")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TMPDIR": str(tmp_path)}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others take seconds to load, in each of three processes
    plugins = [word for name in ("xdist", "pytest_timeout", "together") for word in ("-p", name)]
    line = [sys.executable, "-m", "pytest", "-q", *plugins, "-n", "2", "--dist", "loadfile"]
    completed = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert "18 passed" in completed.stdout, completed.stdout + completed.stderr
    rows = [row.split() for row in (tmp_path / "log").read_text().splitlines()]
    spans = sorted((float(start_s), float(ended), name) for name, start_s, ended, _ in rows)
    assert len({pid for name, *_, pid in rows if name == "alone"}) == 1
    names = [name for *_, name in spans]
    begins = names.index("alone")
    assert names[begins : begins + 8] == ["alone"] * 8  # the processes wait for each other once
    assert len({pid for name, *_, pid in rows if name == "ray"}) == 1
    overlaps = [(a[2], b[2]) for n, a in enumerate(spans) for b in spans[n + 1 :] if b[0] < a[1]]
    assert all("alone" not in pair for pair in overlaps)
    assert list(tmp_path.glob("streamkit-tests-*")) == []  # nothing is left behind
