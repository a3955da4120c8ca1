"""The rules of the source tree that ARCHITECTURE.md names: which way imports point, and who may name what."""

import ast
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from streamkit.core.stage import default_registry
from streamkit.emit.broker import brokers

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "streamkit"
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
MODULES_OF = {
    name: "streamkit." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in FILES
} | {"__init__.py": "streamkit"}
MODULES = set(MODULES_OF.values())
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
    "fastavro",
    "google",
    "duckdb",
    "asyncio",
    "smtplib",
    "ssl",
    "celpy",
    "lark",
    "pycocotools",
    "trackeval",
    "scipy",
    "tabulate",
    "mcp",
    *(module for broker in brokers(default_registry()).values() for module in broker.modules),
]

# From the bottom up: a package imports from packages below it only. Those of one line do not know each other.
LAYERS = [
    ["core"],
    ["ops", "tracking", "analytics"],
    ["io"],
    ["engine"],
    ["rules", "models"],
    ["media"],
    ["emit"],
    ["config"],
    ["stages"],
    ["runtime"],
    ["serve", "batch", "bench", "evaluate", "doctor", "testing", "plugin_api", "api"],
    ["cluster", "query"],
    ["cli"],
]
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}


@functools.cache
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
    body = [node for node in parse(name).body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return imported(ast.Module(body, []))


def packages(names) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_the_walk_sees_imports():
    tree = ast.parse("import a.b\nif TYPE_CHECKING:\n    import no\ndef f():\n    from c.d import e, f\n    import g")
    assert list(imported(tree)) == ["a.b", "c.d.e", "c.d.f", "g"]
    assert "no" in list(imported(tree, skip_typing=False))
    assert len(FILES) > 60


@functools.cache
def imports_of(name: str) -> set[str]:
    """Every module of streamkit that a file imports, within functions and for typing too."""
    modules = set()
    for node in ast.walk(parse(name)):
        if isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            modules |= {module if module in MODULES else str(node.module) for module in whole}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {module for module in modules if module.split(".")[0] == "streamkit"}


def test_nothing_is_loose():
    assert {name for name in FILES if "/" not in name} == {"__init__.py", "__main__.py"}
    assert {name.split("/")[0] for name in FILES if "/" in name} == set(LEVEL)


def test_a_package_imports_from_lower_layers_only():
    upward = {}
    for name in FILES:
        package = name.split("/")[0]
        others = {module.split(".")[1] for module in imports_of(name) if "." in module} - {package}
        if "/" in name and (upward_imports := {other for other in others if LEVEL[other] >= LEVEL[package]}):
            upward[name] = upward_imports
    assert upward == {}


def test_no_layer_names_a_module_of_a_higher_one():
    """Modules that are imported by name: `streamkit/__init__.py`, which is above all layers, names the stages."""
    upward = set()
    for name in FILES:
        level = LEVEL.get(name.split("/")[0], len(LAYERS))
        for node in ast.walk(parse(name)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                named = {text.split(".")[1] for text in texts if str(text).startswith("streamkit.")}
                upward |= {(name, package) for package in named if LEVEL.get(package, 0) > level}
    assert upward == set()


def test_the_package_imports_no_benchmark_and_no_test():
    assert offenders({"benchmarks", "tests", "support", "samples"}, lambda name: imported(parse(name), False)) == {}


def test_no_modules_import_each_other():
    graph = {MODULES_OF[name]: imports_of(name) - {MODULES_OF[name]} for name in FILES}
    while leaves := {name for name, below in graph.items() if not below & graph.keys()}:
        graph = {name: below for name, below in graph.items() if name not in leaves}
    assert graph == {}


def test_the_name_of_a_class_is_unique():
    places: dict[str, list[str]] = {}
    for name in FILES:
        for node in parse(name).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def allowed(name: str, *places: str) -> bool:
    return any(name == place or (place.endswith("/") and name.startswith(place)) for place in places)


def offenders(forbidden: set[str], of: Callable[[str], Iterator[str]], *places: str) -> dict[str, set[str]]:
    """The files outside of `places` that import a forbidden package, and which."""
    uses = {name: packages(of(name)) & forbidden for name in FILES if not allowed(name, *places)}
    return {name: those for name, those in uses.items() if those}


def test_only_listed_modules_name_cupy():
    places = (
        "ops/",
        "core/data.py",
        "core/detections.py",
        "engine/",
        "models/fused.py",
        "models/io_binding.py",
        "models/session.py",
        "models/versions.py",
        "media/",
        "runtime/execution/device.py",
        "runtime/observe/nvml.py",
    )
    diagnosis = ("doctor/", "bench/")  # they say whether it is there
    assert offenders({"cupy", "cupyx"}, lambda name: imported(parse(name), False), *places, *diagnosis) == {}


def test_only_the_runtime_imports_threads():
    # the spool is where a stage's thread and a sender's meet; nats-py knows asyncio only, which runs on the sender's
    threads = {"threading", "queue", "concurrent", "multiprocessing", "asyncio"}
    # locks, no threads: any thread calls the methods of streamkit.Pipeline; the driver creates one decoder at a time,
    # and is asked once what it decodes; standard output is replaced while CUDA's libraries are loaded; requests share
    # the index of recordings
    places = (
        "runtime/",
        "emit/spool.py",
        "stages/sinks/brokers/nats.py",
        "api/pipeline.py",
        "media/nv_sessions.py",
        "media/nv_caps.py",
        "models/providers.py",
        "serve/store/recording_index.py",
    )
    assert offenders(threads, lambda name: imported(parse(name)), *places) == {}


def test_heavy_packages_are_imported_where_they_are_used():
    assert offenders(set(HEAVY), at_top) == {}


def test_a_function_fits_on_a_screen():
    """Its docstring is left out."""
    long = {}
    for name in FILES:
        for node in ast.walk(parse(name)):
            if isinstance(node, ast.FunctionDef):
                docstring = ast.get_docstring(node, clean=False) or ""
                lines = (node.end_lineno or 0) - node.lineno + 1 - len(docstring.splitlines())
                if lines > 70:
                    long[f"{name}:{node.name}"] = lines
    assert long == {}


def loaded(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print('\\n'.join(sys.modules))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.split())


def test_importing_streamkit_costs_little():
    modules = loaded("import streamkit")
    assert not packages(modules) & {*HEAVY, "orjson", "click", "typer", "yaml", "onnx", "torch"}
    modules_of_streamkit = {name for name in modules if name.startswith("streamkit")}
    for part in LEVEL.keys() - {"core"}:
        assert not any(
            name == f"streamkit.{part}" or name.startswith(f"streamkit.{part}.") for name in modules_of_streamkit
        )


def test_a_graph_can_be_checked_without_heavy_packages():
    modules = loaded(
        "import streamkit.config.graph; from streamkit.core.stage import default_registry; default_registry()"
    )
    assert not packages(modules) & {"cupy", "cupyx", "av", "cv2", "onnxruntime", "PyNvVideoCodec"}


def test_no_message_of_the_command_names_the_script_of_the_checkout():
    """An installed command has no `run.py`."""
    naming = [
        name for name in FILES if "run.py" in (PACKAGE / name).read_text(encoding="utf-8").replace("cluster_run.py", "")
    ]
    assert naming == ["__init__.py", "cli/__init__.py"]  # comments that say that both are the same
