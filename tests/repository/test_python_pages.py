"""The page and the notebook for Python users: their code runs, and the generated reference has every attribute."""

import ast
import dataclasses
import functools
import importlib.util
import inspect
import json
import re
from pathlib import Path

import pytest

import streamkit
from streamkit import Detections, Event, Frame
from streamkit.api.loop import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python-frames.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "examples" / "counted_line.ipynb"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run_cell(code, namespace):
    """Run a cell as a notebook does; return what it would show."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


def usable(code):
    """Whether the optional packages that no test needs are there."""
    return "import torch" not in code or importlib.util.find_spec("torch") is not None


@pytest.fixture
def on_the_cpu(monkeypatch):
    """Run all pipelines on the CPU, where NumPy can read the pixels."""
    monkeypatch.setattr(streamkit, "run", functools.partial(run, device="cpu"), raising=False)


def test_the_code_of_the_page_runs(monkeypatch, capsys, on_the_cpu):
    monkeypatch.chdir(ROOT)
    namespace = {}
    for code in filter(usable, blocks(PAGE)):
        exec(compile(code, "docs/python-frames.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "Detections(" in printed
    assert "person" in printed
    assert namespace["image"].shape == (360, 640, 3)
    assert namespace["ok"]
    assert namespace["luma"].shape == (360, 640)
    assert (namespace["annotated"] != namespace["bgr"]).any()
    assert set(namespace["rows"]) >= {"frame", "label", "x1", "track_id"}


def test_the_printed_frame_of_the_page_is_real(monkeypatch):
    monkeypatch.chdir(ROOT)
    *_, frame = streamkit.run("samples/street.mp4", model="demo", stages={"track": {}}, device="cpu", limit=50)
    assert repr(frame) in PAGE


@pytest.mark.parametrize("kind", [Frame, Detections, Event])
def test_the_generated_reference_has_every_attribute(kind):
    text = inspect.getdoc(kind)
    attributes = [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    assert [name for name in attributes if not re.search(rf"^ +{name}: ", text, re.MULTILINE)] == []
    members = [getattr(kind, name) for name in vars(kind) if not name.startswith("_") and name not in attributes]
    assert [member for member in members if not inspect.getdoc(member)] == []


@pytest.fixture(scope="module")
def notebook():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_the_links_of_the_notebook_lead_to_files(notebook):
    text = "".join("".join(cell["source"]) for cell in notebook["cells"])
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links
    assert [link for link in links if not (NOTEBOOK.parent / link).is_file()] == []


def test_the_notebook_counts_objects_at_the_line(notebook, monkeypatch, capsys, on_the_cpu):
    monkeypatch.chdir(NOTEBOOK.parent)
    namespace, shown = {}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            shown.append(run_cell("".join(cell["source"]), namespace))
    printed = capsys.readouterr().out
    count = int(re.search(r"(\d+) objects have crossed the line", printed)[1])
    assert count == len(namespace["table"]) > 8
    assert "did you mean 'line'" in printed
    first, last = [output for output in shown if isinstance(output, Frame)]
    assert "data:image/jpeg" in first._repr_html_()
    assert (first.index, last.index) == (0, 199)
    by_direction = next(output for output in shown if type(output).__name__ == "Series")
    assert by_direction.sum() == count
