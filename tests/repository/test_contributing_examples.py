"""docs/contributing-examples.md: each addition touches few files, and its lines are those of the files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FILES = 5
SECTIONS = (ROOT / "docs/contributing-examples.md").read_text(encoding="utf-8").split("\n## ")[1:]
DIFFS = {section.partition("\n")[0]: re.findall(r"```diff\n(.*?)```", section, flags=re.DOTALL) for section in SECTIONS}


def files(diff: str) -> dict[str, list[str]]:
    """The lines that a diff adds, by file, stripped; without those that are abridged."""
    lines_by_file: dict[str, list[str]] = {}
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            added = lines_by_file.setdefault(line.removeprefix("+++ b/").split()[0], [])
        elif text := line.removeprefix("+").partition("...")[0].strip():
            added.append(text)
    return lines_by_file


def test_the_page_has_the_additions_that_newcomers_make():
    assert list(DIFFS) == [
        "Add a metric",
        "Add a broker",
        "Add a tracker",
        "Add a network output",
        "Add a source option",
    ]
    assert all(DIFFS.values())


@pytest.mark.parametrize("task", DIFFS)
def test_an_addition_touches_at_most_five_files(task):
    assert all(1 <= len(files(diff)) <= MAX_FILES for diff in DIFFS[task])


@pytest.mark.parametrize("task", DIFFS)
def test_the_lines_of_an_example_are_those_of_the_files(task):
    for diff in DIFFS[task]:
        for path, added in files(diff).items():
            content = (ROOT / path).read_text(encoding="utf-8")
            assert [line for line in added if line not in content] == [], path


def test_no_other_list_names_a_broker():
    """What names Redis beside the files of the example is about Redis, or an example of an emitter."""
    (diff,) = DIFFS["Add a broker"]
    code = [path for folder in ("streamkit", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    named = {path.relative_to(ROOT).as_posix() for path in code if re.search(r"\bredis\b", path.read_text("utf-8"))}
    assert named <= files(diff).keys()
