"""docs/python.md: every Python block runs; and a typed program passes a strict type check."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.MULTILINE | re.DOTALL)
PROGRAM = """
import numpy as np
import streamkit

def count(path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    with streamkit.Pipeline({"a": path, "b": streamkit.PushSource(fps=25)}, model="demo") as pipeline:
        ids: list[str] = pipeline.add_source("c", {"uri": path})
        pipeline.push("b", np.zeros((36, 64, 3), np.uint8), 0.5)
        for frame in pipeline:
            found[frame.source] = found.get(frame.source, 0) + len(frame.detections)
            for row in frame.detections:
                labels: list[str] = row.label
            luma = np.from_dlpack(frame.nv12().y)
            shape: tuple[int, ...] = frame.rgb().shape
        rate: float = pipeline.stats.sources["a"].fps
    for one in streamkit.run([path], model="demo"):
        index: int = one.index
    streamkit.Pipeline(streamkit.PushSource(), model="demo")
    streamkit.Pipeline([streamkit.PushSource(), path], model="demo")
    return found
"""


def test_the_page_has_examples():
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(BLOCKS.index(block)))
def test_every_example_runs(block, tmp_path, monkeypatch):
    for name in ("samples", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/python.md", "exec"), {})


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("", "", "Success"),
        ("index: int", "index: str", 'expression has type "int", variable has type "str"'),
        ("nv12().y", "nv12().luma", '"Nv12Planes" has no attribute "luma"'),
        ("rgb().shape", "rgb().size", '"DLPackArray" has no attribute "size"'),
    ],
    ids=["right", "type", "plane", "tensor"],
)
def test_a_strict_type_check_reads_the_annotations(tmp_path, old, new, error):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM.replace(old, new) if old else PROGRAM)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "program.py")]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (completed.returncode == 0) is (not old), completed.stdout
    assert error in completed.stdout
