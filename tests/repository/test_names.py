"""Names say what a value is, and not that somebody found, made or was given it."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

VAGUE = frozenset(
    {
        "one",
        "found",
        "made",
        "known",
        "given",
        "mine",
        "own",
        "kept",
        "told",
        "said",
        "asked",
        "begun",
        "gone",
        "most",
        "least",
    }
)
FILLERS = frozenset({"value", "item", "result", "data", "obj", "thing", "res", "tmp"})


def names_of(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield ("bound" or "defined", name) for each variable, parameter, function, class and attribute."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield "bound", name
            case ast.arg(arg=name) if name not in ("self", "cls"):
                yield "bound", name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield "defined", name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield "defined", name


def shares(files: Iterator[Path]) -> dict[str, float]:
    """Return the share of vague, partly vague and filler names, in per cent of all names of their kind."""
    totals = Counter[str]()
    counts = Counter[str]()
    for file in files:
        for kind, name in names_of(ast.parse(file.read_text(encoding="utf-8"))):
            totals[kind] += 1
            bare = name.strip("_").lower()
            if bare in VAGUE:
                counts[f"{kind} vague"] += 1
            elif VAGUE.intersection(bare.split("_")) and not bare.startswith("test_"):
                counts[f"{kind} parts"] += 1
            elif bare in FILLERS:
                counts[f"{kind} filler"] += 1
    return {key: 100 * count / totals[key.split()[0]] for key, count in counts.items()}


LIMITS = {"bound vague": 0.3, "bound parts": 0.3, "bound filler": 2.0, "defined vague": 0.1, "defined parts": 0.1}


@pytest.mark.parametrize("folder", ["streamkit", "plugins", "tests", "benchmarks", "docs", "models", "samples"])
def test_names_of_a_folder_say_what_values_are(root, folder):
    measured = shares((root / folder).rglob("*.py"))
    assert {name: share for name, share in measured.items() if share > LIMITS.get(name, 100.0)} == {}


def test_vague_names_are_counted(tmp_path):
    source = tmp_path / "module.py"
    source.write_text("def found(given, first_known, frame):\n    result = frame\n    return result\n")
    assert shares(tmp_path.rglob("*.py")) == {
        "defined vague": 100.0,
        "bound vague": 25.0,
        "bound parts": 25.0,
        "bound filler": 25.0,
    }
