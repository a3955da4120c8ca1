"""The pages for Python users: their code runs, the notebook is theirs, and the reference has every attribute."""

import ast
import dataclasses
import functools
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

import streamkit
from streamkit import Detections, Event, Frame
from streamkit.api.loop import run
from streamkit.testing.kit import detections, frames

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python-frames.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "data-reference.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial-notebook.md").read_text(encoding="utf-8")
NOT_FOR_USERS = {"__hash__"}


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def rows(heading):
    """The rows of the table under a heading of the reference: the cells of each."""
    part = re.search(rf"^## {heading}\n(.*?)(?=^#|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)[1]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in part.splitlines() if "`" in row[:4]]


def names(heading):
    return {name for row in rows(heading) for name in re.findall(r"`([a-z]\w*)", row[0])}


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
def test_the_reference_has_every_attribute_and_no_other(kind):
    fields = {field.name for field in dataclasses.fields(kind)}
    public = {name for name in vars(kind) if not name.startswith("_") and name not in NOT_FOR_USERS}
    assert names(kind.__name__) - {"table", "rows"} == {name for name in fields | public if not name.startswith("_")}


def test_the_reference_has_the_attributes_of_tensors():
    planes = frames(1, pixels=True)[0].nv12()
    assert names("PixelTensor") == {name for name in vars(planes.y) if not name.startswith("_")}
    assert names("Nv12Planes") == set(planes._fields)


def test_the_reference_has_the_shapes_and_types_of_a_real_frame(monkeypatch):
    monkeypatch.chdir(ROOT)
    frame = next(streamkit.run("samples/street.mp4", model="demo", stages={"track": {}}, device="cpu", limit=1))
    checked = 0
    values = {"n": len(frame.detections), "height": frame.height, "width": frame.width}
    for heading, owner in (("Frame", frame), ("Detections", frame.detections)):
        for name, type_, _ in rows(heading):
            if match := re.match(r"\((.*?)\) (\w+)", type_):
                value = getattr(owner, re.match(r"`(\w+)", name)[1])
                array = np.asarray(value() if callable(value) else value)
                shape = tuple(values.get(side) or int(side) for side in re.findall(r"\w+", match[1]))
                assert (array.shape, str(array.dtype)) == (shape, match[2]), name
                checked += 1
    assert checked == 10


def test_the_types_of_a_frame_are_those_of_the_reference():
    frame = Frame("a", 0, 0.0, 6, 4)
    frame.detections = detections([[0, 0, 1, 1]])
    frame.emit("seen")
    for heading, owner in (("Frame", frame), ("Event", frame.events[0]), ("Detections", frame.detections)):
        for name, type_, _ in rows(heading):
            attributes = re.findall(r"`(\w+)`", name)
            for attribute, wanted in zip(
                attributes, type_.split(", ") if len(attributes) > 1 else [type_], strict=False
            ):
                value = getattr(owner, attribute)
                word = wanted.replace(" of ", " or ").split(" or ")
                if not wanted.startswith("(") and wanted != "object":
                    assert type(value).__name__ in [*word, "NoneType" if "None" in word else "", *_arrays(word)], name


def _arrays(word):
    return ["ExtraColumns"] if word[0] == "dict" else []


@pytest.fixture
def notebook_module():
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_has_the_cells_of_the_tutorial(notebook_module):
    text = notebook_module.NOTEBOOK.read_text(encoding="utf-8")
    assert text == notebook_module.text_of(TUTORIAL), "run python docs/notebook.py"
    code = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert code[1:] == [block.strip() for block in blocks(TUTORIAL)]
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (notebook_module.NOTEBOOK.parent / link).is_file(), link


def test_the_notebook_counts_objects_at_the_line(notebook_module, monkeypatch, capsys, on_the_cpu):
    monkeypatch.chdir(ROOT / "examples")
    namespace = {}
    shown = []
    for cell in notebook_module.notebook(TUTORIAL)["cells"]:
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
