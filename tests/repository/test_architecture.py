"""ARCHITECTURE.md and its pages name layers, files, classes and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("architecture-*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
PLACES = [ROOT, ROOT / "streamkit"]
SYMBOLS = sorted(set(re.findall(r"([a-z_/]+\.py):([A-Za-z_.]*[A-Za-z_])", TEXT)))
PATHS = sorted({path for path in re.findall(r"`([a-z_/0-9]+(?:\.py|/))`", TEXT) if "/" in path})


def layers() -> list[list[str]]:
    """The diagram of layers, from the bottom up."""
    block = re.search(r"## Layers.*?```text\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    lines = [line for line in block[1].splitlines() if line and not line.startswith(" ")]
    return [re.split(r" {3,}", line)[0].split() for line in reversed(lines)]


def test_the_diagram_shows_the_layers_that_are_checked():
    tree = ast.parse((ROOT / "tests" / "repository" / "test_layout.py").read_text(encoding="utf-8"))
    constant = next(n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "LAYERS")
    assert [sorted(layer) for layer in layers()] == [sorted(layer) for layer in ast.literal_eval(constant)]


@pytest.mark.parametrize(("path", "symbol"), SYMBOLS)
def test_a_symbol_exists(path, symbol):
    body = ast.parse((ROOT / "streamkit" / path).read_text(encoding="utf-8")).body
    for name in symbol.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        body = next(node for node in body if isinstance(node, kinds) and node.name == name).body


@pytest.mark.parametrize("path", PATHS)
def test_a_path_exists(path):
    assert any((place / path).exists() for place in PLACES)


def test_the_path_of_a_frame_is_drawn():
    assert len(SYMBOLS) > 15
    assert len(PATHS) > 30
