"""What is wrong in a pipeline: `check` and `run` tell it alike, before the first frame."""

from pathlib import Path

import pytest
from support.commands import PIPELINE, Here, write


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("detect: {model", "detekt: {model"), "p.yaml:5:3: unknown stage 'detekt'; did you mean 'detect'?"),
        (("min_score", "min_scor"), "detect has no option 'min_scor'; did you mean 'min_score'?"),
        (("model: demo", "model: dmo"), "did you mean 'demo'?"),
        (("min_score: 0.4", "min_score: 4"), "detect.min_score must be 0 to 1"),
        (("draw: {}", "draw: {from: nowhere}"), "there is no stage 'nowhere'"),
    ],
)
def test_an_invalid_yaml_exits_with_2(
    root: Path, here: Here, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out").replace(*change)
    for subcommand in ("run", "check"):
        completed = here(subcommand, write(tmp_path, text), "--device", "cpu", cwd=root)
        assert completed.returncode == 2
        assert message in completed.stderr
        assert "Traceback" not in completed.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("subcommand", ["run", "check"])
def test_every_missing_network_is_reported_with_its_line(
    root: Path, here: Here, tmp_path: Path, subcommand: str
) -> None:
    card = "task: detect\nfamily: yolox\nfile: {0}.onnx\ninput: {{size: [64, 64]}}\nlabels: [a]\nlicense: none\n"
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(card.format(name))
    text = "sources: {a: 'test://'}\nstages:\n  one: {stage: detect, model: one}\n  two: {stage: detect, model: two}\n"
    completed = here(subcommand, write(tmp_path, text), "--device", "cpu", cwd=root)
    assert completed.returncode == 2
    lines = completed.stderr.splitlines()
    for line, (number, name) in zip(lines, ((3, "one"), (4, "two")), strict=True):
        assert line.startswith(f"{tmp_path}/p.yaml:{number}:31: {name}: model card {name} ")
        assert f"its file {tmp_path}/{name}.onnx does not exist" in line


@pytest.mark.parametrize("place", ["", "sources: {a: 'test://', b: 'no/such/*.mp4'}", "sources: {b: no/such.mp4}"])
def test_a_pattern_without_matches_fails_alone_like_a_missing_file(
    root: Path, here: Here, tmp_path: Path, place: str
) -> None:
    sources = place or f"sources: {{a: 'test://?frames=3', b: {tmp_path}/none}}"
    (tmp_path / "none").mkdir()
    path = write(tmp_path, f"{sources}\nstages: {{jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}}}\n")
    checked = here("check", path, cwd=root)
    assert checked.returncode == 0
    assert checked.stderr.count("(warning)") == 1
    assert "source b: " in checked.stderr
    completed = here(path, "--device", "cpu", "--limit", 3, cwd=root)
    assert completed.returncode == 1
    assert "source b failed: " in completed.stderr
    assert (tmp_path / "a.jsonl").exists() == ("a: " in sources)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("sources: {a: 'test://'}\nstages: {jsonl: {path: a.jsonl}}\n", "1 source, 1 stage (0 on the device)"),
        (
            "sources: {a: 'test://', b: 'test://'}\n"
            "stages: {detect: {model: demo}, draw: {}, jsonl: {path: a.jsonl}}\n",
            "2 sources, 3 stages (2 on the device)",
        ),
    ],
)
def test_stages_are_counted_by_their_yaml_names(root: Path, here: Here, tmp_path: Path, text: str, counts: str) -> None:
    """Not the parts that a composite stands for, which no user wrote."""
    path = write(tmp_path, text)
    assert here("check", path, cwd=root).stdout == f"{path}: ok, {counts}\n"


def test_warnings_are_counted_and_strict_refuses_them(root: Path, here: Here, tmp_path: Path) -> None:
    (tmp_path / "note.mp4").write_text("hello")
    path = write(tmp_path, "sources: {a: note.mp4, b: none.mp4}\nstages: {jsonl: {path: '{source}.jsonl'}}\n")
    completed = here("check", path, cwd=root)
    assert (completed.returncode, completed.stdout) == (
        0,
        f"{path}: ok, 2 warnings, 2 sources, 1 stage (0 on the device)\n",
    )
    strict = here("check", path, "--strict", cwd=root)
    assert (strict.returncode, strict.stdout) == (2, "")
    assert strict.stderr == completed.stderr.replace(" (warning)", "")


def test_warnings_are_shown_beside_problems(root: Path, here: Here, tmp_path: Path) -> None:
    path = write(tmp_path, "sources: {a: none.mp4}\nstages: {jsonl: {pth: 'a.jsonl'}}\n")
    completed = here("check", path, cwd=root)
    assert completed.returncode == 2
    assert [line.endswith("(warning)") for line in completed.stderr.splitlines()] == [True, False]


def test_control_characters_of_names_are_escaped(here, tmp_path):
    (tmp_path / "p.yaml").write_text(
        'sources: {a: "test://"}\n'
        "stages: {detect: {model: demo}, track: {}, zone: {polygon: [[0, 0], [9, 0], [9, 9]]}}\n"
        'tests: [{name: "clear\\e[2J", insert_at: zone, given: [{xyxy: [], track_id: []}], expect: {events: []}}]\n'
    )
    completed = here("test", "p.yaml", cwd=tmp_path)
    assert "clear\\x1b[2J" in completed.stdout, completed.stderr
    assert "\x1b" not in completed.stdout + completed.stderr
