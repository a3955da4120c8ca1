"""`streamkit init`: each template passes `check` and runs, and nothing of the user's is overwritten."""

from pathlib import Path

import pytest
from support.commands import Here
from support.default_network import shipped_as_default

from streamkit.cli import starter
from streamkit.cli.starter import TEMPLATES

FOLDER = Path(starter.__file__).parent / "templates"
OUTPUTS = {
    "detect": {"street.mp4", "street.jsonl"},
    "count": {"street.mp4", "street.jsonl"},
    "cameras": {"clips/street/000000.000s-entered.mp4", "events.db"},
    "archive": {"files/street.jsonl"},
}


def test_every_template_is_listed_and_short():
    assert sorted([*TEMPLATES, "demo"]) == sorted(path.stem for path in FOLDER.iterdir())
    for name in TEMPLATES:
        lines = starter.template_text(name).splitlines()
        assert len(lines) <= 35
        assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_passes_check_and_runs(here: Here, tmp_path: Path, name: str) -> None:
    shipped_as_default(tmp_path)
    written = here("init", name, cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    assert written.stdout.splitlines() == [
        f"pipeline.yaml: {starter.summary_of(name)}",
        "samples/street.mp4: a video to try it on",
        "Next: streamkit run pipeline.yaml",
    ]
    checked = here("check", "pipeline.yaml", cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    completed = here("run", "pipeline.yaml", "--device", "cpu", "--limit", 3, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    written = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
    assert written == OUTPUTS[name]


def test_init_without_a_template_lists_all(here: Here, tmp_path: Path) -> None:
    completed = here("init", cwd=tmp_path)
    assert completed.returncode == 0
    assert [line.split()[0] for line in completed.stdout.splitlines()[:-1]] == list(TEMPLATES)
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_is_replaced_only_with_force_and_a_video_never(here: Here, tmp_path: Path) -> None:
    edited = tmp_path / "shop" / "pipeline.yaml"
    edited.parent.mkdir()
    edited.write_text("mine")
    (tmp_path / "shop" / "samples").mkdir()
    (tmp_path / "shop" / "samples" / "street.mp4").write_text("my video")
    completed = here("init", "count", "shop", cwd=tmp_path)
    assert completed.returncode == 2
    assert completed.stderr == "shop/pipeline.yaml exists; name another folder, or replace it with --force\n"
    assert edited.read_text() == "mine"
    assert here("init", "count", "shop", "--force", cwd=tmp_path).returncode == 0
    assert edited.read_text() == starter.template_text("count")
    assert (tmp_path / "shop" / "samples" / "street.mp4").read_text() == "my video"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cuont",), "there is no template 'cuont'; did you mean 'count'?"),
        (("shop",), "there is no template 'shop'; known: detect, count, cameras, archive"),
        (("count", "notes.txt"), "Directory 'notes.txt' is a file."),
    ],
)
def test_an_error_is_a_line_with_the_fix(here: Here, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    completed = here("init", *words, cwd=tmp_path)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_packages_that_a_template_needs_are_named(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numba", None)
    completed = here("init", "count", cwd=tmp_path)
    assert completed.returncode == 0
    assert "track needs the package numba; install it with: python -m pip install" in completed.stdout
