"""Mutation testing: changes the code in a copy of the checkout and reports the changes that no test notices.

usage: python tests/mutants/run.py random PACKAGE [--tests PATH ...] [--count 40] [--seed 0] [--timeout-s 180]
       python tests/mutants/run.py known [--only TEXT] [--timeout-s 180]

`random` draws mutants of one package (`streamkit/rules`) with cosmic-ray and runs its tests against each.
`known` applies the mutants in `known.yaml` beside this file: mistakes that matter, each with the tests that must fail.

Exit code: 0 if at least nine in ten random mutants are killed, or all known ones; 1 otherwise; 2 if the tests fail
without any mutant.
"""

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
KNOWN = Path(__file__).with_name("known.yaml")
LEAST_KILLED = 0.9

# Operators whose mutants change nothing that a test could see, or that only a type checker should find.
_LEFT_OUT = ("core/ReplaceUnaryOperator_USub_Invert", "core/RemoveDecorator", "core/ExceptionReplacer")


@dataclass(frozen=True)
class Known:
    """A mutant by its text: `old`, which stands in `file` exactly once, becomes `new`; `tests` must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @classmethod
    def read(cls, path: Path = KNOWN) -> list["Known"]:
        """All mutants of a YAML file."""
        rows = yaml.safe_load(path.read_text())
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
    data = os.environ.get("STREAMKIT_TEST_DATA", str(ROOT.parent / "shared" / "data"))
    server = os.environ.get("STREAMKIT_RTSP_SERVER", str(ROOT.parent / "shared" / "tools" / "rtsp_server.py"))
    return {
        **os.environ, "PYTHONPATH": str(copy), "STREAMKIT_TEST_DATA": data, "STREAMKIT_RTSP_SERVER": server,
        "NUMBA_CACHE_DIR": str(copy / ".numba"),
    }  # fmt: skip


def command(tests: tuple[str, ...]) -> list[str]:
    """Run these tests up to the first failure."""
    return [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]


def passes(copy: Path, tests: tuple[str, ...], timeout_s: float) -> bool:
    """Whether these tests pass in the copy; one that takes too long fails."""
    try:
        done = subprocess.run(
            command(tests), cwd=copy, env=environment(copy), timeout=timeout_s, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):  # 2: not collected, which a mutant may cause; 4, 5: a wrong path or no test
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        if done.returncode in (4, 5):
            raise SystemExit(f"pytest finds no test by {' '.join(tests)}")
    return done.returncode == 0


def run_known(copy: Path, only: str, timeout_s: float) -> int:
    """Apply each known mutant; return the exit code."""
    survivors = []
    chosen = [one for one in Known.read() if only in one.name or only in one.file]
    for one in chosen:
        path = copy / one.file
        text = path.read_text()
        path.write_text(one.mutate(text))
        begun = time.monotonic()
        survived = passes(copy, one.tests, timeout_s)
        path.write_text(text)
        if survived:
            survivors.append(one.name)
        print(f"{'SURVIVED' if survived else 'killed  '} {one.name} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    return 1 if survivors else 0


def run_random(copy: Path, package: str, tests: tuple[str, ...], count: int, seed: int, timeout_s: float) -> int:
    """Draw mutants of a package and run its tests against each; return the exit code."""
    if not passes(copy, tests, 10 * timeout_s):
        print(f"the tests fail without a mutant: {' '.join(command(tests))}", file=sys.stderr)
        return 2
    settings, session = copy / "cosmic-ray.toml", copy / "session.sqlite"
    words = " ".join(command(tests))
    settings.write_text(
        f'[cosmic-ray]\nmodule-path = ["{package}"]\ntimeout = {timeout_s}\nexcluded-modules = []\n'
        f"test-command = '{words}'\n[cosmic-ray.distributor]\nname = \"local\"\n"
    )
    tool = [sys.executable, "-m", "cosmic_ray.cli"]
    subprocess.run([*tool, "init", str(settings), str(session)], cwd=copy, check=True, env=environment(copy))
    all_of_them = _draw(session, count, seed)
    subprocess.run([*tool, "exec", str(settings), str(session)], cwd=copy, check=True, env=environment(copy))
    killed, survivors = _results(session)
    for diff in survivors:
        print(diff, end="\n\n")
    total = killed + len(survivors)
    print(f"{package}: {killed} of {total} mutants killed ({killed / total:.0%}) of {all_of_them}, seed {seed}")
    return 0 if killed >= LEAST_KILLED * total else 1


def _draw(session: Path, count: int, seed: int) -> int:
    """Keep `count` mutants of the session; return how many there were."""
    with sqlite3.connect(session) as database:
        rows = database.execute(
            "select job_id, operator_name from mutation_specs "
            "order by module_path, start_pos_row, start_pos_col, operator_name, occurrence"
        ).fetchall()
        candidates = [job for job, operator in rows if operator not in _LEFT_OUT]
        kept = set(random.Random(seed).sample(candidates, min(count, len(candidates))))
        left_out = [(job,) for job, _ in rows if job not in kept]
        for table in ("mutation_specs", "work_items"):
            database.executemany(f"delete from {table} where job_id = ?", left_out)
    return len(candidates)


def _results(session: Path) -> tuple[int, list[str]]:
    """How many mutants were killed, and the diffs of those that survived."""
    with sqlite3.connect(session) as database:
        rows: list[tuple[Any, ...]] = database.execute("select test_outcome, diff from work_results").fetchall()
    survived = [diff for outcome, diff in rows if str(outcome).lower().endswith("survived")]
    return len(rows) - len(survived), survived


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    drawn, known = ways.add_parser("random"), ways.add_parser("known")
    drawn.add_argument("package", help="a package or a module, as a path: streamkit/rules")
    drawn.add_argument("--tests", nargs="+", help="what must notice; the package's folder of tests by default")
    drawn.add_argument("--count", type=int, default=40)
    drawn.add_argument("--seed", type=int, default=0)
    known.add_argument("--only", default="", help="a part of the name or file of those wanted")
    for one in (drawn, known):
        one.add_argument("--timeout-s", type=float, default=180.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamkit-mutants-") as folder:
        copy = Path(folder)
        copy_checkout(copy)
        if args.way == "known":
            return run_known(copy, args.only, args.timeout_s)
        package = args.package.rstrip("/")
        tests = tuple(args.tests or [package.replace("streamkit", "tests", 1)])
        if missing := [one for one in tests if not (copy / one.split("::")[0]).exists()]:
            parser.error(f"{missing[0]} does not exist; name the tests of {package} with --tests")
        return run_random(copy, package, tests, args.count, args.seed, args.timeout_s)


if __name__ == "__main__":
    sys.exit(main())
