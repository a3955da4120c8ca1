"""Runs every soak, one after the other, and writes a dated report.

usage: python tests/soak/report.py [--out docs/soaks] [--only REGEX] [--resume]

A soak is a promise in figures that takes too long, or needs too quiet a machine, for the test suite: the long forms of
`soak.py` beside this file, and every test marked `soak`. Together they take about three hours. The report
`docs/soaks/DATE.md` is written after each soak, so that nothing is lost if the run is stopped; `--resume` then skips
what held earlier that day. Exit code 1 if a promise does not hold.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from soak import NAMES  # noqa: E402  the path is set just above

_SHORT_FORMS = "tests/soak/test_soak.py"  # what soak.py runs in its long form
_FIGURE = re.compile(r"^(?![=_.\[]|$|[FsE]+$|(INFO|WARNING|ERROR) |.*(?<![\w.])/\w+/).*\d.*$")
"""A line with a number, but no progress, rule, log message or path of this machine."""


@dataclass(frozen=True)
class Soak:
    """One soak: a name and the command that runs it."""

    name: str
    command: list[str]


@dataclass(frozen=True)
class Result:
    """What a soak gave: `holds`, `fails` or `skipped`, how long it took, and the figures that it printed."""

    name: str
    outcome: str
    seconds: float
    figures: list[str]
    commit: str


def soaks() -> Iterator[Soak]:
    """All soaks that run without a GPU, those first that want a quiet machine least."""
    listed = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-n",
            "0",
            "-m",
            "soak and not gpu",
            f"--ignore={_SHORT_FORMS}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for test in listed:
        if "::" in test:
            yield Soak(test, [sys.executable, "-m", "pytest", "-q", "-n", "0", "-rP", "-m", "soak", test])
    for name in NAMES:
        yield Soak(f"soak.py {name}", [sys.executable, "tests/soak/soak.py", name])


def run(soak: Soak, commit: str) -> Result:
    """Run one soak to its end."""
    start_s = time.monotonic()
    completed = subprocess.run(soak.command, cwd=ROOT, capture_output=True, text=True)
    seconds = time.monotonic() - start_s
    text = completed.stdout + completed.stderr
    skipped = (
        completed.returncode == 0 and re.search(r"\b\d+ skipped\b", text) and not re.search(r"\b\d+ passed\b", text)
    )
    outcome = "skipped" if skipped else "holds" if completed.returncode == 0 else "fails"
    lines = [line.strip() for line in text.splitlines()]
    figures = [line for line in lines if _FIGURE.match(line) and not line.startswith(("tests/", "PASSED", "SKIPPED"))]
    return Result(soak.name, outcome, seconds, figures[-40:] if outcome == "fails" else figures[-20:], commit)


def page(results: list[Result], date: str) -> str:
    """The report as Markdown: a table of outcomes, then each soak's figures."""
    cores = len(os.sched_getaffinity(0))
    held = sum(soak_result.outcome == "holds" for soak_result in results)
    text = [
        f"# Soak report of {date}\n",
        f"{cores} CPU cores, Python {sys.version.split()[0]}. {held} of {len(results)} soaks hold.",
        "`python tests/soak/report.py` repeats them.\n",
        "| soak | outcome | seconds | commit |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{soak_result.name}` | {soak_result.outcome} | {soak_result.seconds:.0f} | `{soak_result.commit}` |"
            for soak_result in results
        ),
    ]
    for soak_result in results:
        if soak_result.figures:
            text += [f"\n## {soak_result.name}\n", "```text", *soak_result.figures, "```"]
    return "\n".join(text) + "\n"


def replace(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "soaks")
    parser.add_argument(
        "--only", default="", help="a regular expression that the names of those wanted match somewhere"
    )
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    date = datetime.date.today().isoformat()
    saved = ROOT / "out" / "soaks.json"
    saved.parent.mkdir(exist_ok=True)
    results: list[Result] = []
    if args.resume and saved.is_file() and (before := json.loads(saved.read_text()))["date"] == date:
        results = [Result(**entry) for entry in before["soaks"] if entry["outcome"] == "holds"]
    for soak in soaks():
        if not re.search(args.only, soak.name) or soak.name in {soak_result.name for soak_result in results}:
            continue
        print(f"{soak.name} ...", flush=True)
        results.append(result := run(soak, commit))
        print(f"  {result.outcome} after {result.seconds:.0f} s", flush=True)
        replace(saved, json.dumps({"date": date, "soaks": [asdict(soak_result) for soak_result in results]}, indent=1))
        replace(args.out / f"{date}.md", page(results, date))
    return 1 if any(soak_result.outcome == "fails" for soak_result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
