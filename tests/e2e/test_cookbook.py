"""docs/cookbook.md: each recipe runs as a reader would run it, and writes the files that the page names."""

import html
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest
from support.built_site import build_site
from support.clips import start_of
from support.commands import Here

ROOT = Path(__file__).resolve().parents[2]
FRAMES = 50
"""Of the street video, in place of its 400."""
LIMITS = {"second.yaml": 20}
"""Frames of pipelines that would not end."""
PART_LIMITS = LIMITS | {"accuracy.yaml": FRAMES}
"""The same where the labels of the whole video meet a part of it."""
NEED_A_SERVER = {"streamkit serve site.yaml --data site", "streamkit rows.yaml"}
"""Commands that do not run here: `check` reads their pipelines."""
MAX_S = 12 * 60
"""What all recipes may take, in seconds."""


def recipes_of(page: str) -> dict[str, str]:
    """The recipes of a page by their tasks."""
    return dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))


RECIPES = recipes_of((ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8"))


def code_blocks(recipe: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)


def commands(recipe: str) -> list[str]:
    lines = [line for block in code_blocks(recipe, "sh") for line in block.splitlines()]
    return [line.removesuffix(" &") for line in lines if line.startswith("streamkit ")]


def outputs(recipe: str) -> list[str]:
    """The files and folders that the text of a recipe names as written."""
    text = re.sub(r"^```.*?^```$", "", recipe, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`(out/[\w./-]+|\w+\.png)`", text)


def furnish(folder: Path) -> None:
    """Give a reader's folder the samples beside the street video, and a network as `best.onnx`."""
    (folder / "samples").mkdir()
    for name in ("street.truth.jsonl", "plates.mp4", "plates.truth.jsonl"):
        (folder / "samples" / name).symlink_to(ROOT / "samples" / name)
    shutil.copy(ROOT / "models" / "demo.onnx", folder / "best.onnx")
    (folder / "labels.txt").write_text("car\nperson\nbike\n")


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """The folder of a reader, with a part of the street video."""
    furnish(tmp_path)
    start_of(ROOT / "samples" / "street.mp4", tmp_path / "samples" / "street.mp4", FRAMES)
    return tmp_path


@pytest.fixture
def patient_reader(tmp_path: Path) -> Path:
    """The folder of a reader, with the whole street video."""
    furnish(tmp_path)
    (tmp_path / "samples" / "street.mp4").symlink_to(ROOT / "samples" / "street.mp4")
    return tmp_path


def save(recipe: str, folder: Path) -> None:
    """Save the blocks of a recipe under the names in their first lines."""
    for text in [*code_blocks(recipe, "yaml"), *code_blocks(recipe, "python")]:
        path = folder / re.match(r"# (\S+)\n", text)[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_page_has_twelve_recipes_with_a_result_and_a_link():
    assert len(RECIPES) == 12
    assert [task for task, recipe in RECIPES.items() if not commands(recipe) or "\nMore: [" not in recipe] == []
    assert {command for recipe in RECIPES.values() for command in commands(recipe)} >= NEED_A_SERVER


def follow(recipe: str, folder: Path, here: Here, limits: dict[str, int]) -> None:
    """Save the blocks of a recipe, run its commands, and look for the files that it names."""
    save(recipe, folder)
    for command in commands(recipe):
        words = shlex.split(command)[1:]
        limit = next((limits[word] for word in words if word in limits), None)
        if command not in NEED_A_SERVER:
            completed = here(*words, *([] if limit is None else ["--limit", limit]), cwd=folder)
            assert completed.returncode == 0, completed.stdout + completed.stderr
    assert [name for name in outputs(recipe) if not (folder / name).exists()] == []


@pytest.mark.parametrize("task", RECIPES)
def test_a_recipe_runs_and_writes_what_it_names(task, reader, here):
    follow(RECIPES[task], reader, here, PART_LIMITS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    return folder


def shown_code(page: str) -> list[str]:
    """The blocks of code that a reader sees on a page of HTML."""
    blocks = re.findall(r'<div class="language-\w+ highlight">.*?<code>(.*?)</code>', page, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", "", block)) for block in blocks]


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(MAX_S + 300)
def test_the_recipes_of_the_built_site_take_at_most_twelve_minutes(site, patient_reader, here, capfd):
    page = (site / "cookbook.md").read_text(encoding="utf-8")
    recipes = recipes_of(page)
    assert len(recipes) == 12
    written_code = re.findall(r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown_code((site / "cookbook.html").read_text(encoding="utf-8")) == written_code
    seconds = {}
    for task, recipe in recipes.items():
        started_s = time.monotonic()
        follow(recipe, patient_reader, here, LIMITS)
        seconds[task] = time.monotonic() - started_s
    total_s = sum(seconds.values())
    with capfd.disabled():
        print(
            "".join(f"\n{spent_s:6.1f} s  {task}" for task, spent_s in seconds.items()), f"\n{total_s:6.1f} s  in all"
        )
    assert total_s <= MAX_S
