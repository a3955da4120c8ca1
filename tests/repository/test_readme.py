"""The README and the guides: commands exist, and the stages that they show do what the text says."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from streamkit import Batch, Frame
from streamkit.testing.kit import detections, frames, plugin_stages, run_stage

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (  # their Python blocks are files, which their pipelines name
    "README.md",
    *(f"docs/plugins{part}.md" for part in ("", "-families", "-kinds")),
)
GUIDES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
PLACES = ("out/", "videos/", "val2017/", "/", "@")  # of words in commands that name no file of the repository


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)


def pipelines(page: str) -> list[str]:
    """The YAML blocks of a page that are whole pipelines; others show a part."""
    return [
        block for block in blocks("yaml", page) if {"sources:", "stages:"} <= set(re.findall(r"^\w+:", block, re.M))
    ]


def commands(page: str) -> list[str]:
    """Every command line of a page: of its shell blocks, and in the text."""
    lines = [line.partition(" #")[0] for block in blocks("sh", page) for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    lines += re.findall(r"`(python [^`]+)`", prose)
    lines = [" ".join(line.split()) for line in lines]
    return [command.strip() for line in lines for command in line.split("&&")]


def named(page: str) -> set[str]:
    """The files that a page tells the reader to save: the first lines of its blocks, or its text, say which."""
    matches = [
        re.match(r"# (\S+\.(?:py|yaml))\n", block) for kind in ("python", "yaml") for block in blocks(kind, page)
    ]
    return {match[1] for match in matches if match} | set(re.findall(r"[Ss]ave this as `([\w.-]+)`", text_of(page)))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as a reader would have it who saved the pages' Python blocks where their first lines say."""
    (tmp_path / "plugins").mkdir()  # the reader's own: those of the repository are not needed
    for page in TUTORIAL:
        for block in blocks("python", page):
            name = re.match(r"# (\S+\.py)\n", block)
            assert name, f"a Python block begins with its file's name, as in # plugins/mine.py:\n{block}"
            (tmp_path / name[1]).write_text(block, encoding="utf-8")
    return tmp_path


def test_the_guides_have_pipelines() -> None:
    """Each guide to a task begins with one that runs."""
    tasks = ("cameras", "emitters", "pipeline", "plugins", "recording", "snapshots")
    assert [page for page in ("README.md", *(f"docs/{name}.md" for name in tasks)) if not pipelines(page)] == []


def test_the_tutorials_tests_pass(checkout: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_doorway.py", "test_nearest.py"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "2 passed" in completed.stdout


def frames_with_objects(source: str = "test") -> list[Frame]:
    """Two frames, each with two people, one of whom is tracked."""
    source_frames = frames(2, source)
    for frame in source_frames:
        frame.detections = detections([[0, 0, 9, 9]] * 2, label=["person"] * 2, track_id=[7, -1])
    return source_frames


def test_the_tutorial_s_stages_work(checkout: Path) -> None:
    """Each stage that a page shows does what its text says."""
    kinds = plugin_stages(checkout / "plugins")
    assert sorted(kinds) == ["age", "blank", "busy", "count_log", "crowd", "crowded_site", "doorway", "gain", "heights"]
    source_frames = frames_with_objects()
    crowded = run_stage(kinds["crowd"](more_than=1), source_frames)
    assert [event.data for frame in crowded for event in frame.events] == [{"count": 2}] * 2
    ages = run_stage(kinds["age"](), source_frames)
    assert ages[1].detections.extra["age_s"].tolist() == [pytest.approx(0.04), 0]
    run_stage(kinds["count_log"](path=str(checkout / "{source}.txt")), source_frames)
    assert (checkout / "test.txt").read_text() == "0 2\n1 2\n"
    blank = run_stage(kinds["blank"](count=3))
    assert [(frame.index, frame.width, frame.height) for frame in blank] == [
        (0, 640, 360),
        (1, 640, 360),
        (2, 640, 360),
    ]
    tall = run_stage(kinds["heights"](more_than=8), frames_with_objects())[0]
    assert tall.detections.extra["height_px"].tolist() == [9, 9]
    assert [(event.kind, event.data) for event in tall.events] == [("tall", {"height_px": 9.0})] * 2
    site = run_stage(kinds["crowded_site"](more_than=3), frames_with_objects("a") + frames_with_objects("b"))
    assert [(frame.source, event.data) for frame in site for event in frame.events] == [("b", {"count": 4})] * 2
    batch = Batch(frames(1), tensor=np.ones((1, 3, 4, 4), np.float32))
    assert (kinds["gain"](factor=1.5).process(batch).tensor == 1.5).all()


@pytest.mark.parametrize("name", ["crowd", "doorway"])
def test_the_tutorial_s_stage_is_about_fifteen_lines(name: str, checkout: Path) -> None:
    text = (checkout / "plugins" / f"{name}.py").read_text()
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 18


def test_two_commands_are_all_the_set_up() -> None:
    first, second = blocks("sh")[:2]
    assert first.split("&&")[1].split() == ["python", "run.py", "pipeline.yaml"]
    assert second.split("&&")[-1].split() == ["python", "-m", "pytest"]
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert extras_of("README.md") == {"cpu", "dev", "gpu", "track"}
    assert set().union(*map(extras_of, GUIDES)) <= extras


def extras_of(page: str) -> set[str]:
    """The extras that a page's commands install."""
    extras_lists = re.findall(r"pip install -e '\.\[([\w,]+)\]'", text_of(page))
    return {extra for part in extras_lists for extra in part.split(",")}


def test_the_readme_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= 130


def test_the_test_command_installs_all_that_tests_skip_without() -> None:
    """A package that a test skips without is in the extra `dev`, or in the README's command itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["cpu"], *extras["dev"]]
    installed = set(re.findall(r"--no-deps '([\w-]+)", blocks("sh")[1]))
    for requirement in wanted:  # grows with the extras that an extra names
        name, more = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
        if name == project["name"]:
            wanted.extend(requirement for extra in more.split(",") for requirement in extras[extra])
        installed.add(name)
    distribution = {"cv2": "opencv-python-headless", "PIL": "pillow", "nkeys": "nats-py", "xdist": "pytest-xdist"}
    skipped = {
        name.split(".")[0]
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'importorskip\("([\w.]+)"', path.read_text(encoding="utf-8"))
    }
    assert skipped
    assert {distribution.get(name, name.replace("_", "-")) for name in skipped} - installed == set()
