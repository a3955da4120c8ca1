"""Commands without root's privilege to read all files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ROOTS = "-dac_override,-dac_read_search"
_DROP = ["setpriv", f"--bounding-set={_ROOTS}", f"--inh-caps={_ROOTS}"]


def without_rights(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python without root's privilege to read all files; skip the test if that is not possible."""
    drop = _DROP if os.geteuid() == 0 else []
    if drop and (shutil.which("setpriv") is None or subprocess.run([*drop, "true"], capture_output=True).returncode):
        pytest.skip("root may read everything, and setpriv cannot take that away here")
    command = [*drop, sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
