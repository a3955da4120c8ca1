"""Mutation testing: changes the code in a copy of the checkout and reports the changes that no test notices.

usage: python tests/mutants/run.py random PACKAGE [--tests PATH ...] [--count 40] [--seed 0] [--timeout-s 180]
       python tests/mutants/run.py known [--only TEXT] [--timeout-s 180]

`random` draws mutants of one package (`streamkit/rules`) with cosmic-ray and runs the mirrored tests against each.
`known` applies the mutants in `known.yaml` beside this file: mistakes that matter, each with the tests that must fail.

Exit code: 0 if at least nine in ten random mutants are killed, or all known ones; 1 otherwise; 2 if the tests fail
without any mutant.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
MUTANTS_FILE = Path(__file__).with_name("known.yaml")
MIN_KILLED_SHARE = 0.9

# Operators whose mutants change nothing that a test could see, or that only a type checker should find.
_LEFT_OUT = ("core/ReplaceUnaryOperator_USub_Invert", "core/RemoveDecorator", "core/ExceptionReplacer")


@dataclass(frozen=True)
class NamedMutant:
    """A mutant by its text: `old`, which stands in `file` exactly once, becomes `new`; `tests` must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @classmethod
    def read(cls, path: Path = MUTANTS_FILE) -> list["NamedMutant"]:
        """All mutants of a YAML file."""
        rows = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # ten times as fast
        return [cls(**{**row, "tests": tuple(row["tests"])}) for row in rows]

    def mutate(self, text: str) -> str:
        """The file's text with the mutation.

        Raises:
            ValueError: `old` does not stand there exactly once.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} must hold the old text once, found {count} times:\n{self.old}")
        return text.replace(self.old, self.new)


def copy_checkout(to: Path) -> None:
    """Copy the files that git tracks, and new ones that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def environment(copy: Path) -> dict[str, str]:
    """The tests' environment: modules come from the copy, and real test data from beside the checkout."""
    data = os.environ.get("STREAMKIT_TEST_DATA", str(ROOT.parent / "shared" / "data"))  # the copy lies elsewhere
    server = os.environ.get("STREAMKIT_RTSP_SERVER", str(ROOT.parent / "shared" / "tools" / "rtsp_server.py"))
    return {
        **os.environ,
        "PYTHONPATH": str(copy),
        "STREAMKIT_TEST_DATA": data,
        "STREAMKIT_RTSP_SERVER": server,
        "NUMBA_CACHE_DIR": str(copy / ".numba"),
    }


def command(tests: tuple[str, ...]) -> list[str]:
    """Run these tests up to the first failure."""
    return [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-m", "not soak", "-p", "no:cacheprovider", *tests]


def passes(copy: Path, tests: tuple[str, ...], timeout_s: float) -> bool:
    """Whether these tests pass in the copy; one that takes too long fails."""
    try:
        completed = subprocess.run(
            command(tests), cwd=copy, env=environment(copy), timeout=timeout_s, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return False
    if completed.returncode not in (0, 1):  # 2: not collected, which a mutant may cause; 4, 5: a wrong path or no test
        print(completed.stdout[-2000:], completed.stderr[-2000:], file=sys.stderr)
        if completed.returncode in (4, 5):
            raise SystemExit(f"pytest finds no test by {' '.join(tests)}")
    return completed.returncode == 0


def run_named(copy: Path, only: str, timeout_s: float) -> int:
    """Apply each known mutant; return the exit code."""
    survivors = []
    chosen = [mutant for mutant in NamedMutant.read() if only in mutant.name or only in mutant.file]
    for mutant in chosen:
        path = copy / mutant.file
        text = path.read_text()
        path.write_text(mutant.mutate(text))
        start_s = time.monotonic()
        survived = passes(copy, mutant.tests, timeout_s)
        path.write_text(text)
        if survived:
            survivors.append(mutant.name)
        print(
            f"{'SURVIVED' if survived else 'killed  '} {mutant.name} ({time.monotonic() - start_s:.0f} s)", flush=True
        )
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    return 1 if survivors else 0


def run_random(copy: Path, package: str, tests: tuple[str, ...], count: int, seed: int, timeout_s: float) -> int:
    """Draw mutants of a package and run tests against each; return the exit code."""
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_item import TestOutcome

    os.environ.update(environment(copy))
    os.chdir(copy)
    candidates = _mutants(package)
    drawn = random.Random(seed).sample(candidates, min(count, len(candidates)))
    chosen = {mutant.job_id: tests or mirrored_tests(str(mutant.mutations[0].module_path)) for mutant in drawn}
    if failing := [paths for paths in sorted(set(chosen.values())) if not passes(copy, paths, 10 * timeout_s)]:
        print(f"tests fail without a mutant: {failing}", file=sys.stderr)
        return 2
    survivors = 0
    for number, mutant in enumerate(drawn, 1):
        spec = mutant.mutations[0]
        paths = chosen[mutant.job_id]
        result = mutate_and_test(mutant.mutations, " ".join(command(paths)), timeout_s)
        survived = result.test_outcome == TestOutcome.SURVIVED
        survivors += survived
        where = f"{spec.module_path}:{spec.start_pos[0]} {spec.operator_name.removeprefix('core/')}"
        print(f"{number}/{len(drawn)} {'SURVIVED' if survived else 'killed  '} {where}", flush=True)
        if survived:
            print(f"{result.diff}\n(tests: {' '.join(paths)})\n", flush=True)
    killed = len(drawn) - survivors
    share = killed / len(drawn)
    print(f"{package}: {killed} of {len(drawn)} mutants killed ({share:.0%}) of {len(candidates)}, seed {seed}")
    return 0 if share >= MIN_KILLED_SHARE else 1


def mirrored_tests(module: str) -> tuple[str, ...]:
    """The tests that mirror a module: `tests/rules/test_engine*.py` of `streamkit/rules/engine.py`, else its folder.

    Where there is no such folder, those of the module's name, or of its package's, in the folder above.
    """
    folder = Path("tests", *Path(module).parts[1:-1])
    names = [Path(module).stem]
    while True:
        for name in names:
            if paths := sorted(str(path) for path in folder.glob(f"test_{name}*.py")):
                return tuple(paths)
        if folder.is_dir():
            return (str(folder),)
        names.append(folder.name)
        folder = folder.parent
        if folder == Path("tests"):
            raise SystemExit(f"no tests mirror {module}; name them with --tests")


def _mutants(package: str) -> list[Any]:
    """All mutants of a package or module, but for those that change nothing while the program runs."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import WorkDB, use_db

    paths = [Path(package)] if package.endswith(".py") else sorted(Path(package).rglob("*.py"))
    with use_db("mutants.sqlite", WorkDB.Mode.create) as database:
        init(paths, database, {})
        items = list(database.work_items)
    passive = {path: _annotations(path) for path in paths}
    return sorted((item for item in items if _is_active(item.mutations[0], passive)), key=_place)


def _place(item: Any) -> tuple[Any, ...]:
    """An order that is the same in every run."""
    spec = item.mutations[0]
    return str(spec.module_path), spec.start_pos, spec.operator_name, spec.occurrence


def _is_active(spec: Any, passive: dict[Path, set[int]]) -> bool:
    lines = passive[spec.module_path]
    return spec.operator_name not in _LEFT_OUT and not ("BitOr" in spec.operator_name and spec.start_pos[0] in lines)


def _annotations(path: Path) -> set[int]:
    """The lines that hold annotations, whose `|` is never evaluated."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for field in ("annotation", "returns"):
            if isinstance(annotation := getattr(node, field, None), ast.AST):
                lines.update(range(annotation.lineno, annotation.end_lineno + 1))  # type: ignore[attr-defined]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    drawn = ways.add_parser("random")
    named = ways.add_parser("known")
    drawn.add_argument("package", help="a package or a module, as a path: streamkit/rules")
    drawn.add_argument("--tests", nargs="+", help="what must notice; by default the tests that mirror the module")
    drawn.add_argument("--count", type=int, default=40)
    drawn.add_argument("--seed", type=int, default=0)
    named.add_argument("--only", default="", help="a part of the name or file of those wanted")
    for way in (drawn, named):
        way.add_argument("--timeout-s", type=float, default=180.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamkit-mutants-") as folder:
        copy = Path(folder)
        copy_checkout(copy)
        if args.way == "known":
            return run_named(copy, args.only, args.timeout_s)
        return run_random(
            copy, args.package.rstrip("/"), tuple(args.tests or ()), args.count, args.seed, args.timeout_s
        )


if __name__ == "__main__":
    sys.exit(main())
