"""A full disk, and folders without rights: a message with the fix, and nothing unfinished under its final name."""

import re
from pathlib import Path

import pytest
from support.clips import write
from support.commands import Here
from support.full_disk import small_disk
from support.unprivileged import without_rights

EACH = """
import sys
from streamkit.cli import main
for path in sys.argv[1:]:
    sys.argv = ["streamkit", "run", path, "--device", "cpu"]
    try:
        main()
    except SystemExit as ended:
        print("exit code", ended.code, file=sys.stderr)
"""
"""Runs pipelines in one process, as the command does."""
OUTPUTS = {
    "video": ('video: {path: "disk/{source}.mp4"}', 1, "disk/camera.mp4: the disk is full; free some space, or set"),
    "jsonl": (
        'jsonl: {path: "disk/{source}.jsonl"}',
        1,
        "disk/camera.jsonl: the disk is full; free some space, or set",
    ),
    "parquet": (
        "parquet: {path: disk, spool: {path: spool}, drain_timeout: 1.5}",
        0,
        "the disk is full; free some space, or set a path on another disk; records wait in the spool",
    ),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_full_disk_gets_no_unfinished_file(here: Here, tmp_path: Path, output: str) -> None:
    stage, code, message = OUTPUTS[output]
    (tmp_path / "pipeline.yaml").write_text(f"sources: {{camera: 'test://?frames=3'}}\nstages: {{{stage}}}\n")
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        completed = here("run", "pipeline.yaml", "--device", "cpu", cwd=tmp_path)
        assert (completed.returncode, message in completed.stderr) == (code, True), completed.stderr
        assert [path.name for path in disk.folder.iterdir()] == ["ballast"]
        assert "accepts records again" not in completed.stderr, "no record has been written"


def test_folders_without_rights_are_reported(tmp_path: Path) -> None:
    for name in ("input", "closed", "drop"):
        (tmp_path / name).mkdir()
    write(tmp_path / "input" / "a.mp4", frames=2)
    text = "sources: {{a: {}}}\nstages: {{jsonl: {{path: {}}}}}\n"
    paths = {"written": "closed/a.jsonl", "listed": "drop/a.jsonl"}
    for name, path in paths.items():
        (tmp_path / f"{name}.yaml").write_text(text.format("test://?frames=2", path))
    (tmp_path / "read.yaml").write_text(text.format("input", "out/a.jsonl"))
    for name, mode in (("input", 0), ("closed", 0o555), ("drop", 0o333)):
        (tmp_path / name).chmod(mode)
    pipelines = [tmp_path / f"{name}.yaml" for name in ("read", "written", "listed")]
    completed = without_rights("-c", EACH, *pipelines, cwd=tmp_path)
    for name in ("input", "drop"):
        (tmp_path / name).chmod(0o755)
    assert re.findall(r"^exit code (\d+)$", completed.stderr, re.MULTILINE) == ["1", "1", "0"], completed.stderr
    assert "no permission to look into this folder; change its rights, or name another folder" in completed.stderr
    assert "closed/a.jsonl: no permission to write there; change its rights, or" in completed.stderr
    assert list((tmp_path / "closed").iterdir()) == []
    assert (tmp_path / "drop" / "a.jsonl").read_text().count("\n") == 2, "a folder to write to, and not to list"
