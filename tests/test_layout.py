"""The rules of the source tree that ARCHITECTURE.md names: which way imports point, and who may name what."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "streamkit"
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
HEAVY = [
    "cupy",
    "cupyx",
    "av",
    "cv2",
    "onnxruntime",
    "numba",
    "pydantic",
    "PIL",
    "PyNvVideoCodec",
    "rich",
    "paho",
    "redis",
    "confluent_kafka",
    "httpx",
    "psycopg",
    "fastavro",
    "google",
    "pyarrow",
    "pika",
    "nats",
    "nkeys",
    "asyncio",
    "smtplib",
    "ssl",
    "celpy",
    "lark",
]

# for each folder or file, the parts of streamkit that it may not import, not even within a function
FORBIDDEN = {
    "data.py": ["stages", "models", "media", "runtime", "graph", "config", "stage", "cli"],
    "detections.py": ["data", "stages", "models", "media", "ops", "runtime", "graph", "config", "stage", "cli"],
    "surface.py": ["data", "stages", "models", "media", "ops", "runtime", "graph", "config", "stage", "cli"],
    "errors.py": ["data", "stages", "models", "media", "ops", "runtime", "graph", "config", "stage", "cli"],
    "units.py": ["stages", "media", "ops", "runtime", "graph", "config", "stage", "cli"],
    "stage.py": ["models", "media", "ops", "runtime", "graph", "config", "cli"],
    "plan.py": ["models", "media", "ops", "runtime", "graph", "config", "cli"],
    "config.py": ["runtime", "graph", "cli"],
    "graph.py": ["runtime", "cli"],
    "formats/": ["stages", "models", "media", "ops", "runtime", "graph", "config", "stage", "emit", "batch", "cli"],
    "tablefile.py": ["stages", "models", "media", "ops", "runtime", "graph", "config", "stage", "emit", "batch", "cli"],
    "emit/": ["stages", "models", "runtime", "graph", "config", "cli"],
    "rules/": ["stages", "models", "media", "ops", "runtime", "graph", "config", "stage", "cli"],
    "analytics/": ["stages", "models", "media", "ops", "runtime", "graph", "config", "stage", "cli"],
    "ops/": ["stages", "models", "media", "runtime", "graph", "config", "stage", "cli"],
    "media/": ["stages", "models", "runtime", "graph", "config", "stage", "cli"],
    "models/": ["stages", "media", "runtime", "graph", "config", "stage", "cli"],
    "stages/": ["runtime", "graph", "cli"],
    "runtime/": ["stages", "models", "serve", "cli", "progress"],
    "serve/": ["stages", "models", "cli", "progress"],
}


def parse(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text())


def imported(tree: ast.AST, skip_typing: bool = True) -> Iterator[str]:
    """Full names of the modules that are imported anywhere; blocks under TYPE_CHECKING left out."""
    for node in ast.iter_child_nodes(tree):
        if skip_typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imported(node, skip_typing)


def at_top(name: str) -> Iterator[str]:
    tree = parse(name)
    tree.body = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return imported(tree)


def packages(names) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_the_walk_sees_imports():
    tree = ast.parse("import a.b\nif TYPE_CHECKING:\n    import no\ndef f():\n    from c.d import e, f\n    import g")
    assert list(imported(tree)) == ["a.b", "c.d.e", "c.d.f", "g"]
    assert "no" in list(imported(tree, skip_typing=False))
    assert len(FILES) > 60


@pytest.mark.parametrize("name", FILES)
def test_imports_point_one_way(name):
    refused = [part for place, parts in FORBIDDEN.items() if name == place or name.startswith(place) for part in parts]
    found = {".".join(one.split(".")[:2]) for one in imported(parse(name)) if one.startswith("streamkit.")}
    named = {one.removeprefix("streamkit.") for one in found}
    if name == "stage.py":  # the registry finds the built-in stages by name
        named.discard("stages")
    assert not named & set(refused)


def allowed(name: str, *places: str) -> bool:
    return any(name == place or (place.endswith("/") and name.startswith(place)) for place in places)


@pytest.mark.parametrize("name", FILES)
def test_who_names_cupy(name):
    places = ("ops/", "data.py", "detections.py", "models/session.py", "models/bound.py", "media/", "runtime/device.py")
    diagnosis = ("doctor/", "bench/")  # they say whether it is there
    if not allowed(name, *places, *diagnosis):
        assert not packages(imported(parse(name), skip_typing=False)) & {"cupy", "cupyx"}


@pytest.mark.parametrize("name", FILES)
def test_only_the_runtime_knows_threads(name):
    # the spool is where a stage's thread and a sender's meet; nats-py knows asyncio only, which runs on the sender's
    if not allowed(name, "runtime/", "emit/spool.py", "emit/nats.py", "bench/brokers.py"):
        used = packages(imported(parse(name))) & {"threading", "queue", "concurrent", "multiprocessing", "asyncio"}
        assert not used


@pytest.mark.parametrize("name", FILES)
def test_heavy_packages_are_imported_where_they_are_used(name):
    assert not packages(at_top(name)) & set(HEAVY)


@pytest.mark.parametrize("name", FILES)
def test_no_file_is_longer_than_a_reader_likes(name):
    most = 500
    assert len((PACKAGE / name).read_text().splitlines()) <= most


def loaded(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print('\\n'.join(sys.modules))"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(out.stdout.split())


def test_importing_streamkit_costs_little():
    modules = loaded("import streamkit")
    assert not packages(modules) & {*HEAVY, "orjson", "click", "typer", "yaml", "onnx", "torch"}
    own = {name for name in modules if name.startswith("streamkit")}
    for part in ("cli", "stages", "models", "media", "ops", "runtime", "graph", "bench"):
        assert not any(name == f"streamkit.{part}" or name.startswith(f"streamkit.{part}.") for name in own)


def test_a_graph_can_be_checked_without_heavy_packages():
    modules = loaded("import streamkit.graph; from streamkit.stage import default_registry; default_registry()")
    assert not packages(modules) & {"cupy", "cupyx", "av", "cv2", "onnxruntime", "PyNvVideoCodec"}
