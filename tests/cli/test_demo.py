"""`streamkit demo`: its folder is its own, and what a user has there is not touched.

tests/repository/test_wheel.py runs it on its whole video.
"""

from pathlib import Path

import pytest
import yaml
from support.clips import write
from support.default_network import shipped_as_default

from streamkit.cli.demo import claim
from streamkit.cli.starter import demo_text
from streamkit.core.errors import ConfigError, MissingPackage

TEXT = demo_text()


def test_demo_runs_again_in_its_folder(here, tmp_path, monkeypatch):
    short = write(tmp_path / "short.mp4", 64, 48, 2)
    monkeypatch.setattr("streamkit.models.card.sample_video", lambda: short)
    words = ("demo", "there", "--device", "cpu")
    for _ in range(2):
        completed = here(*words, cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        assert "edit there/pipeline.yaml and run it with: streamkit run there/pipeline.yaml" in completed.stdout
    names = {path.relative_to(tmp_path / "there").as_posix() for path in (tmp_path / "there").rglob("*.*")}
    assert names == {".streamkit-demo", "pipeline.yaml", "samples/street.mp4", "out/street.mp4", "out/street.jsonl"}
    assert (tmp_path / "there" / "samples" / "street.mp4").read_bytes() == short.read_bytes()
    (tmp_path / "there" / "pipeline.yaml").write_text("mine")
    completed = here(*words, cwd=tmp_path)
    assert completed.returncode == 2
    assert completed.stderr == (
        "there/pipeline.yaml was edited; run it with: streamkit run there/pipeline.yaml; or name another folder: "
        "streamkit demo FOLDER\n"
    )
    assert (tmp_path / "there" / "pipeline.yaml").read_text() == "mine"


def test_the_picture_of_the_drawn_scene_says_demo():
    assert yaml.safe_load(TEXT)["stages"]["draw"] == {"title": "demo"}


def test_a_video_is_processed_with_the_default_network(here, root, tmp_path):
    shipped_as_default(tmp_path)
    write(tmp_path / "my.mp4", 64, 48, 2)
    completed = here("demo", "my.mp4", "--device", "cpu", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "  my: my.mp4\n" in completed.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["my.jsonl", "my.mp4"]
    missing = here("demo", "other.mp4", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "there is no file other.mp4\n")
    assert not (tmp_path / "other.mp4").exists()


def test_a_folder_of_the_user_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"has files that the demo did not make; name another folder"):
        claim(tmp_path, TEXT)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_folder_or_one_of_an_older_demo_is_accepted(tmp_path):
    claim(tmp_path, "older")
    (tmp_path / "pipeline.yaml").write_text("older")
    claim(tmp_path, TEXT)
    (tmp_path / "pipeline.yaml").write_text(TEXT)
    claim(tmp_path, TEXT)


def test_braces_in_the_folder_are_refused():
    with pytest.raises(ConfigError, match=r"must be without \{ and \}, got \{a\}"):
        claim(Path("{a}"), TEXT)


def test_without_onnx_runtime_nothing_is_written(here, tmp_path, monkeypatch):
    def missing():
        raise MissingPackage("onnxruntime", "cpu", "a network")

    monkeypatch.setattr("streamkit.models.onnxruntime_package.need_onnxruntime", missing)
    completed = here("demo", cwd=tmp_path)
    assert completed.returncode == 2
    assert completed.stderr.startswith(
        "a network needs the package onnxruntime; install it with: python -m pip install"
    )
    assert list(tmp_path.iterdir()) == []
