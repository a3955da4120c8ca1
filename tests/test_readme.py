"""The README's promises: its table is fresh, its pipelines pass check, its commands are there, its code runs."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from streamkit.cli import cli
from streamkit.config import read
from streamkit.describe import stage_table
from streamkit.graph import build
from streamkit.stage import Registry, default_registry

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")
BEGIN, END = "<!-- stages -->\n", "<!-- /stages -->\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every command line of the README: of its shell blocks, and in the text."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    lines += re.findall(r"`(python [^`]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL))
    lines = [" ".join(line.split()) for line in lines]
    return [one.strip() for line in lines for one in line.split("&&")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as a reader would have it who saved the README's Python blocks where their first lines say."""
    (tmp_path / "plugins").mkdir()  # the reader's own: those of the repository are not needed
    for block in blocks("python"):
        name = re.match(r"# (\S+\.py)\n", block)
        assert name, f"a Python block begins with its file's name, as in # plugins/mine.py:\n{block}"
        (tmp_path / name[1]).write_text(block, encoding="utf-8")
    return tmp_path


def test_the_stage_table_is_fresh() -> None:
    known = default_registry()
    kinds = {name: kind for name in known.names() if (kind := known.get(name)) is not None}
    ships = {name: kind for name, kind in kinds.items() if kind.__module__.startswith("streamkit.stages.")}
    assert README.count(BEGIN) == README.count(END) == 1
    found = README.partition(BEGIN)[2].partition(END)[0].strip()
    table = stage_table(Registry(ships))
    assert found == table, f"put this between the markers of README.md:\n\n{table}\n"


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_every_pipeline_passes_check(number: int, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # sources are relative to the working folder
    path = checkout / "pipeline.yaml"
    path.write_text(blocks("yaml")[number], encoding="utf-8")
    config = read(path)
    graph = build(config)
    assert graph.nodes
    assert config.warnings == []


def test_the_tutorial_s_test_passes(checkout: Path) -> None:
    assert (checkout / "test_doorway.py").is_file()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_doorway.py"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_tutorial_s_stage_is_about_fifteen_lines(checkout: Path) -> None:
    text = (checkout / "plugins" / "doorway.py").read_text()
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 18


@pytest.mark.parametrize("line", [line for line in commands() if "run.py" in line])
def test_every_command_there_is(line: str) -> None:
    python, script, *words = shlex.split(line.partition(">")[0])
    assert (python, script) == ("python", "run.py")
    assert (ROOT / script).is_file()
    if words[0].endswith(".yaml"):
        assert (ROOT / words[0]).is_file()
        words = ["run", *words]
    command: click.Command = cli
    while isinstance(command, click.Group):
        assert words[0] in command.commands, f"{line}: there is no {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert [word for word in words if word.startswith("--") and word not in known] == []
    paths = [word for word in words if "/" in word and not word.startswith("out/")]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_two_commands_are_all_the_set_up() -> None:
    first, second = blocks("sh")[:2]
    assert first.split("&&")[1].split() == ["python", "run.py", "pipeline.yaml"]
    assert second.split("&&")[-1].split() == ["python", "-m", "pytest"]
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {extra for part in re.findall(r"pip install -e '\.\[([\w,]+)\]'", README) for extra in part.split(",")}
    assert named == {"cpu", "dev", "gpu", "track"}
    assert named <= extras


def test_the_test_command_installs_all_that_tests_skip_without() -> None:
    """A package that a test skips without is in the extra `dev`, or in the README's command itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["cpu"], *extras["dev"]]
    installed = set(re.findall(r"--no-deps '([\w-]+)", blocks("sh")[1]))
    for requirement in wanted:  # grows with the extras that an extra names
        name, more = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
        if name == project["name"]:
            wanted.extend(one for extra in more.split(",") for one in extras[extra])
        installed.add(name)
    distribution = {"cv2": "opencv-python-headless", "nkeys": "nats-py", "xdist": "pytest-xdist"}
    skipped = {
        name.split(".")[0]
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'importorskip\("([\w.]+)"', path.read_text(encoding="utf-8"))
    }
    assert skipped
    assert {distribution.get(name, name.replace("_", "-")) for name in skipped} - installed == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_linked_is_there(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_architecture_names_what_there_is() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    folders = [
        name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]
    places = [ROOT, ROOT / "streamkit"]
    assert len(folders) > 15
    assert [name for name in folders if not any((place / name).exists() for place in places)] == []
    assert len(text.splitlines()) <= 90, "one page"
