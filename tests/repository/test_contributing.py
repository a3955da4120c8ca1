"""What CONTRIBUTING.md, SECURITY.md and the decisions name exists: paths, names in files, recipes, marks."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "CONTRIBUTING.md",
    "docs/contributing-map.md",
    "docs/contributing-examples.md",
    "SECURITY.md",
    *(f"docs/decisions/{path.name}" for path in (ROOT / "docs/decisions").iterdir()),
]
TEXT = "\n\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES[:2])
FOLDERS = r"(?:streamkit|tests|docs|models|examples|plugins|samples|\.ci|\.github)"
LATER = {"docs/soaks/"}  # made by a command


def rows(heading: str) -> list[list[str]]:
    """The cells of the table that begins with a heading row."""
    table = TEXT.partition(heading)[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


TASKS = rows("| to | start in | then | test |")


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_path_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(rf"(?<![\w./-]){FOLDERS}/[\w./-]*\w/?", text)) - LATER
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_paths_in_text_are_recognized():
    assert len(re.findall(rf"`{FOLDERS}/[\w./-]+`", TEXT)) > 60


def test_newcomers_find_their_task():
    tasks = " ".join(task for task, *_ in TASKS)
    for words in (
        "add a sink",
        "add a detector family",
        "add a condition function to rules",
        "change how frames are dropped",
        "add a tracker method",
        "add a broker",
        "add an option type with a unit",
        "add a check to `check`",
        "add a metric",
        "add a container format",
        "add a source kind",
        "change the web page",
        "add a CLI command",
    ):
        assert words in tasks


@pytest.mark.parametrize("row", TASKS, ids=[row[0] for row in TASKS])
def test_every_task_leads_to_code_and_a_test(row):
    task, start, then, test = row
    assert "`streamkit/" in start or task == "add an option to a stage"
    assert then
    assert "`tests/" in test
    for name, path in re.findall(r"`(\w+)` in `([\w./]+\.py)`", start):  # such as `FACTS` in a file
        assert re.search(rf"^(?:class )?{name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name


def test_every_folder_of_the_package_is_in_the_map():
    folders = {path.parent.name for path in (ROOT / "streamkit").glob("*/__init__.py")}
    named = set(re.findall(r"`streamkit/(\w+)/`", " ".join(row[0] for row in rows("| folder | holds |"))))
    assert named == folders - {"plugin_api"}


def test_every_recipe_exists():
    recipes = set(re.findall(r"^([\w-]+)(?: .*)?:$", (ROOT / "justfile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)just ([a-z][\w-]*)", TEXT, re.MULTILINE))
    assert {"setup", "test", "lint", "docs", "mutants", "soak"} <= named <= recipes


def test_every_mark_is_explained():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    marks = {mark.partition(":")[0] for mark in options["markers"]}
    assert {cells[0].strip("`") for cells in rows("| mark | meaning |")} == marks


def test_extras_exist():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {extra for extra_list in re.findall(r"'\.\[([\w,]+)\]'", TEXT) for extra in extra_list.split(",")}
    assert named
    assert named <= extras
