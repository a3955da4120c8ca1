"""A test that hangs does not stop the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist")

TESTS = """
import contextlib
import ctypes
import time
from pathlib import Path

import pytest

def first_time(name):
    known = Path(name).exists()
    Path(name).touch()
    return not known

@pytest.mark.timeout(1)
def test_goes_on():
    hangs = first_time("goes on")
    while hangs:
        with contextlib.suppress(BaseException):
            time.sleep(60)

@pytest.fixture
def never_ends():
    yield
    if first_time("never ends"):
        ctypes.PyDLL(None).sleep(60)  # holds the GIL

def test_fails_and_then_hangs(never_ends):
    assert Path("never ends").exists()

def test_another():
    pass
"""


def test_a_test_that_cannot_be_interrupted_fails_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "hung_soon.py").write_text("from hung import *\nimport hung\nhung._CLEANUP_S = 1.0\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 30\n")
    env = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{tmp_path}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = [word for name in ("xdist", "pytest_timeout", "hung_soon") for word in ("-p", name)]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "pytest", "-q", *plugins, *words]
        return subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False)

    completed = run("-n", "1", "--dist", "loadfile")
    # two tests ended a process and passed in the next
    assert "3 failed, 3 passed" in completed.stdout, completed.stdout + completed.stderr
    for name in ("test_goes_on", "never_ends"):
        assert f"in {name}" in completed.stderr, completed.stdout + completed.stderr
    again = run("--last-failed", "--collect-only")
    assert "2 tests collected" in again.stdout, again.stdout
