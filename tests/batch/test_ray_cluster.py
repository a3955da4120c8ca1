"""What is sent to other machines: the files that a pipeline is made of, all of them and no others."""

import shutil
from pathlib import Path

import pytest

from streamkit.batch.job import BatchSettings, FrameSelection
from streamkit.batch.pipeline import config_for
from streamkit.batch.ray_cluster import pack
from streamkit.core.errors import ConfigError
from streamkit.models.card import Card

PLUGIN = """
from streamkit.core.stage import FrameStage, stage

@stage("nothing")
class Nothing(FrameStage):
    \"\"\"Do nothing.\"\"\"

    def process(self, frame):
        pass
"""

YAML = """
plugins: [../../plugins]
stages:
  detect: {model: ../../cards/mine.yaml}
  nothing: {}
  jsonl: {path: a}
"""


def settings(pipeline: Path, **overrides: str) -> BatchSettings:
    return BatchSettings(pipeline, tuple(overrides.items()), Path("out"), ("parquet",), FrameSelection())


def inside(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    """A pipeline with plugins above it, a card elsewhere, a network that is a link, and much that is not its own."""
    place = tmp_path / "project"
    for folder in ("pipelines/night", "plugins", "cards", "store", "videos"):
        (place / folder).mkdir(parents=True)
    (place / "plugins" / "nothing.py").write_text(PLUGIN)
    (place / "plugins" / "notes.txt").write_text("not code")
    (place / "videos" / "long.mp4").write_bytes(b"0" * 1000)
    shutil.copy(root / "models" / "demo.onnx", place / "store" / "demo.onnx")
    (place / "cards" / "net.onnx").symlink_to(place / "store" / "demo.onnx")
    (place / "cards" / "net.onnx.data").write_bytes(b"weights")
    (place / "cards" / "names.txt").write_text("car\nperson\nbicycle\n")
    card = (root / "models" / "demo.yaml").read_text()
    lines = [line for line in card.splitlines() if not line.startswith(("file:", "labels:", "sha256:", "url:"))]
    (place / "cards" / "mine.yaml").write_text("\n".join([*lines, "file: net.onnx", "labels: names.txt"]) + "\n")
    (place / "pipelines" / "night" / "p.yaml").write_text(YAML)
    return place


def test_files_named_by_a_pipeline_are_sent_with_their_paths(project, tmp_path):
    (sent := tmp_path / "sent").mkdir()
    yaml = pack(settings(project / "pipelines" / "night" / "p.yaml"), sent)
    assert yaml == Path("pipelines/night/p.yaml")
    assert inside(sent) == {
        "pipelines/night/p.yaml",
        "plugins/nothing.py",
        "cards/mine.yaml",
        "cards/net.onnx",
        "cards/net.onnx.data",
        "cards/names.txt",
    }
    assert not (sent / "cards" / "net.onnx").is_symlink()
    shutil.rmtree(project)  # another machine does not have it
    graph = config_for(settings(sent / yaml))
    options = [value for node in graph.nodes.values() for value in node.options.values()]
    cards = {value.path.resolve() for value in options if isinstance(value, Card)}
    assert cards == {sent / "cards" / "mine.yaml"}


def test_an_overridden_model_is_sent(project, tmp_path):
    (sent := tmp_path / "sent").mkdir()
    pack(settings(project / "pipelines" / "night" / "p.yaml", **{"stages.detect.model": "demo"}), sent)
    names = {Path(name).name for name in inside(sent)}
    assert names == {"p.yaml", "nothing.py", "demo.yaml", "demo.onnx"}


def test_a_network_without_a_card_is_sent_with_its_metadata_files(project, tmp_path):
    (sent := tmp_path / "sent").mkdir()
    (project / "cards" / "names.txt").rename(project / "cards" / "labels.txt")
    pack(settings(project / "pipelines" / "night" / "p.yaml", **{"stages.detect.model": "../../cards/net.onnx"}), sent)
    assert {name for name in inside(sent) if name.startswith("cards/")} == {
        "cards/net.onnx",
        "cards/net.onnx.data",
        "cards/labels.txt",
    }


def test_an_unreadable_pipeline_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        pack(settings(tmp_path / "none.yaml"), tmp_path / "sent")
