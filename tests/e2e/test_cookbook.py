"""docs/cookbook.md: each recipe runs as a reader would run it, and writes the files that the page names."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from support.clips import start_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
FRAMES = 50
"""Of the street video, in place of its 400."""
LIMITS = {"second.yaml": 20, "accuracy.yaml": FRAMES}
"""Frames of pipelines that would not end, or whose labels are of the whole video."""
NEED_A_SERVER = {"streamkit serve site.yaml --data site", "streamkit rows.yaml"}
"""Commands that do not run here: `check` reads their pipelines."""


def code_blocks(recipe: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)


def commands(recipe: str) -> list[str]:
    lines = [line for block in code_blocks(recipe, "sh") for line in block.splitlines()]
    return [line.removesuffix(" &") for line in lines if line.startswith("streamkit ")]


def outputs(recipe: str) -> list[str]:
    """The files and folders that the text of a recipe names as written."""
    text = re.sub(r"^```.*?^```$", "", recipe, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`(out/[\w./-]+|\w+\.png)`", text)


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """The folder of a reader: the samples, a part of the street video, and a network as `best.onnx`."""
    (tmp_path / "samples").mkdir()
    for name in ("street.truth.jsonl", "plates.mp4", "plates.truth.jsonl"):
        (tmp_path / "samples" / name).symlink_to(ROOT / "samples" / name)
    start_of(ROOT / "samples" / "street.mp4", tmp_path / "samples" / "street.mp4", FRAMES)
    shutil.copy(ROOT / "models" / "demo.onnx", tmp_path / "best.onnx")
    (tmp_path / "labels.txt").write_text("car\nperson\nbike\n")
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


@pytest.mark.parametrize("task", RECIPES)
def test_a_recipe_runs_and_writes_what_it_names(task, reader, here):
    recipe = RECIPES[task]
    save(recipe, reader)
    for command in commands(recipe):
        words = shlex.split(command)[1:]
        limit = next((LIMITS[word] for word in words if word in LIMITS), None)
        if command not in NEED_A_SERVER:
            completed = here(*words, *([] if limit is None else ["--limit", limit]), cwd=reader)
            assert completed.returncode == 0, completed.stdout + completed.stderr
    assert [name for name in outputs(recipe) if not (reader / name).exists()] == []
