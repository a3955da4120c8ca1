"""Which arithmetic a data set's networks have."""

import json

import pytest

from streamkit.batch.fixed_arithmetic import arithmetic_overrides
from streamkit.batch.folder import MANIFEST, SCHEMA
from streamkit.batch.job import BatchSettings, FrameSelection
from streamkit.batch.pipeline import config_for
from streamkit.core.data import Device

CPU = Device()
GPU = Device("cuda", 0)
F32 = {"stages.detect.engine": "onnxruntime", "stages.detect.precision": "f32"}
TF32 = {"stages.detect.engine": "onnxruntime", "stages.detect.precision": "tf32"}


def graph_of(folder, detect="{model: demo}"):
    file = folder / "p.yaml"
    file.write_text(f"sources: {{}}\nstages:\n  detect: {detect}\n  track: {{}}\n")
    return config_for(BatchSettings(file, (), folder / "out", ("jsonl",), FrameSelection()))


def dataset_with(folder, engine, precision):
    """Make the description of a data set that was begun in an arithmetic."""
    folder.mkdir()
    identity = {"stages": {"detect": {"engine": engine, "precision": precision}}}
    (folder / MANIFEST).write_text(json.dumps({"schema": SCHEMA, "pipeline": "p", "identity": identity}))


def overrides(graph, folder, device):
    return dict(arithmetic_overrides(graph, folder / "out", device))


@pytest.mark.parametrize("device", [CPU, GPU, None], ids=["cpu", "gpu", "cluster"])
def test_the_default_precision_is_f32(tmp_path, device):
    assert overrides(graph_of(tmp_path), tmp_path, device) == F32


def test_the_precision_of_the_yaml_is_used(tmp_path):
    graph = graph_of(tmp_path, "{model: demo, precision: tf32}")
    assert overrides(graph, tmp_path, GPU) == overrides(graph, tmp_path, None) == TF32
    assert overrides(graph, tmp_path, CPU) == F32  # which is what a CPU computes


def test_the_precision_of_the_card_is_used_unless_the_yaml_sets_it(tmp_path, root):
    card = (root / "models" / "demo.yaml").read_text().replace("file: ", f"precision: tf32\nfile: {root}/models/")
    (tmp_path / "pinned.yaml").write_text(card)
    assert overrides(graph_of(tmp_path, "{model: pinned.yaml}"), tmp_path, GPU) == TF32
    assert overrides(graph_of(tmp_path, "{model: pinned.yaml, precision: f32}"), tmp_path, GPU) == F32


def test_a_data_set_continues_with_its_precision(tmp_path):
    dataset_with(tmp_path / "out", "onnxruntime", "tf32")
    assert overrides(graph_of(tmp_path), tmp_path, GPU) == TF32
    assert overrides(graph_of(tmp_path, "{model: demo, precision: f32}"), tmp_path, GPU) == F32


def test_a_damaged_description_is_reported_by_the_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST).write_text("{")
    assert overrides(graph_of(tmp_path), tmp_path, GPU) == F32


def test_a_data_set_of_a_gpu_in_f16_is_not_continued_on_a_cpu(tmp_path, here, root):
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text("sources: {}\nstages:\n  detect: {model: demo}\n")
    clip = root / "samples" / "street.mp4"
    out = tmp_path / "out"
    words = ("batch", pipeline, clip, "--out", out, "--format", "jsonl", "--end", "0.2")
    assert here(*words, cwd=tmp_path).returncode == 0
    description = json.loads((out / MANIFEST).read_text())
    assert description["identity"]["stages"]["detect"]["precision"] == "f32"
    description["identity"]["stages"]["detect"]["precision"] = "f16"
    description["pipeline"] = "0" * 16
    (out / MANIFEST).write_text(json.dumps(description))
    again = here(*words, cwd=tmp_path)
    assert again.returncode == 2
    assert "stages.detect.precision was f16 and is f32" in again.stderr
