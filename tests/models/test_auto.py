"""`model: auto`: downloaded by the first run, there for the next ones, and an error with a way out."""

import time
from collections import Counter
from pathlib import Path

import pytest
from support.commands import Here, records
from support.default_network import downloadable_as_default, file_server, one_image_at_a_time

from streamkit.core.errors import ModelError
from streamkit.models.derive import open_model
from streamkit.models.network_file import inspect

PIPELINE = """\
sources: {{campus: {video}}}
stages:
  detect: {{model: auto, min_score: 0.35}}
  jsonl: {{path: "{{source}}.jsonl"}}
"""

IN_THE_PICTURE = ("person", "car", "truck")
"""Classes of COCO in the video: persons, a parked car, and a white van, for which COCO has car and truck only."""


@pytest.fixture
def network(test_data, tmp_path, monkeypatch) -> bytes:
    """The default network, which is in the folder `files`; the user's cache is empty."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    content = one_image_at_a_time(test_data / "models" / "yolox_nano_dyn.onnx")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "yolox_nano.onnx").write_bytes(content)
    (tmp_path / "p.yaml").write_text(PIPELINE.format(video=test_data / "videos" / "vtest_480x360.mp4"))
    return content


def test_the_first_run_downloads_and_the_next_needs_no_server(here: Here, tmp_path: Path, network: bytes) -> None:
    with file_server(tmp_path / "files") as address:
        downloadable_as_default(tmp_path, network, f"{address}/yolox_nano.onnx")
        first = here("p.yaml", "--device", "cpu", "--limit", 8, cwd=tmp_path)
        assert first.returncode == 0, first.stderr
        assert f"downloading yolox-nano (3.6 MB) from {address}/yolox_nano.onnx, once: it stays at" in first.stderr
    rows = records(tmp_path / "campus.jsonl")
    labels = Counter(detection["label"] for row in rows for detection in row["objects"])
    absent = labels.total() - sum(labels[label] for label in IN_THE_PICTURE)
    assert labels["person"] >= 4 * len(rows)
    assert absent <= 0.05 * labels.total()
    again = here("p.yaml", "--device", "cpu", "--limit", 8, cwd=tmp_path)
    assert again.returncode == 0
    assert "downloading" not in again.stderr
    assert records(tmp_path / "campus.jsonl") == rows
    assert inspect(open_model("auto", tmp_path).file).batch is None
    assert open_model("yolox-nano", tmp_path).file == open_model("auto", tmp_path).file


def test_detect_finds_what_is_in_the_picture(here: Here, tmp_path: Path, network: bytes, test_data: Path) -> None:
    video = test_data / "videos" / "vtest_480x360.mp4"
    words = ("detect", video, "--device", "cpu", "--limit", 40, "--jsonl", "rows.jsonl")
    with file_server(tmp_path / "files") as address:
        downloadable_as_default(tmp_path, network, f"{address}/yolox_nano.onnx")
        completed = here(*words, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "downloading yolox-nano" in completed.stderr
    rows = records(tmp_path / "rows.jsonl")
    labels = Counter(detection["label"] for row in rows for detection in row["objects"])
    absent = labels.total() - sum(labels[label] for label in IN_THE_PICTURE)
    assert labels["person"] >= 4 * len(rows)
    assert absent <= 0.05 * labels.total(), labels


@pytest.mark.alone
def test_detect_without_a_connection_fails_within_5_s(here: Here, tmp_path: Path, network: bytes, root: Path) -> None:
    with file_server(tmp_path / "files") as address:
        downloadable_as_default(tmp_path, network, f"{address}/yolox_nano.onnx")
    started_s = time.monotonic()
    failed = here("detect", root / "samples" / "street.mp4", "--device", "cpu", "--jsonl", "a.jsonl", cwd=tmp_path)
    assert time.monotonic() - started_s < 5
    assert failed.returncode == 2
    assert f"{address}/yolox_nano.onnx cannot be fetched: Connection refused; or download it" in failed.stderr
    assert not (tmp_path / "a.jsonl").exists()


def test_without_a_connection_the_message_has_a_way_out(here: Here, tmp_path: Path, network: bytes) -> None:
    downloadable_as_default(tmp_path, network, "http://127.0.0.1:9/yolox_nano.onnx")
    started_s = time.monotonic()
    failed = here("p.yaml", "--device", "cpu", cwd=tmp_path)
    assert time.monotonic() - started_s < 5
    assert failed.returncode == 2
    place = tmp_path / "cache" / "streamkit" / "models"
    assert "http://127.0.0.1:9/yolox_nano.onnx cannot be fetched: Connection refused; or download it" in failed.stderr
    assert f"put it here: {place}/yolox-nano-" in failed.stderr
    assert "name a network of yours, as in model: best.onnx. `streamkit demo` runs without a download" in failed.stderr
    assert not (tmp_path / "campus.jsonl").exists()
    with pytest.raises(ModelError) as error:
        open_model("auto", tmp_path)
    copied = Path(str(error.value).split("put it here: ")[1].split(";")[0])
    copied.write_bytes(network)
    assert open_model("auto", tmp_path).file.parent == place


def test_pull_and_list_know_the_default_network(here: Here, tmp_path: Path, network: bytes) -> None:
    with file_server(tmp_path / "files") as address:
        downloadable_as_default(tmp_path, network, f"{address}/yolox_nano.onnx")
        assert "-batches.onnx" in here("models", "pull", "auto", cwd=tmp_path).stdout
        assert "-batches.onnx" in here("models", "pull", "yolox-nano", cwd=tmp_path).stdout
    lines = here("models", "list", cwd=tmp_path).stdout.splitlines()
    rows = {line.split()[0]: line for line in lines}
    assert rows["demo"].endswith("ready")
    assert rows["yolox-s"].endswith("streamkit models pull yolox-s")
    assert rows["auto:"] == "auto: yolox-nano, which is downloaded when a pipeline names it"
    assert "yolov8n" not in rows  # nothing can be downloaded: the last line names it
    assert "yolov8n" in lines[-1]
