"""The command itself: what it says where a word of it is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Here


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("chek", "pipeline.yaml"), "No such command 'chek'; did you mean 'check'?"),
        (("samples/street.mp4",), "samples/street.mp4 is not a pipeline; run a YAML that lists it under sources"),
        (("capacity", "pipeline.yaml", "--most", "4"), "; it is now '--max-streams'"),
        (("bench", "gpu", "--behind", "x.yaml"), "; it is now '--extra-stages'"),
        (("batch", "pipeline.yaml", "a.mp4", "--again"), "; it is now '--overwrite'"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(root: Path, here: Here, args: tuple[str, ...], message: str) -> None:
    completed = here(*args, cwd=root)
    assert completed.returncode == 2
    assert message in completed.stderr


def test_python_m_runs_the_command(root: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "streamkit", "--help"], cwd=root, capture_output=True, text=True, check=True
    )
    assert "bench" in completed.stdout
