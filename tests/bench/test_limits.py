"""The parts of a pipeline alone, on the CPU."""

import json
import time

import pytest

from streamkit.bench import limits
from streamkit.bench.child import results
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.errors import SourceError

CPU = Device("cpu")


@pytest.fixture
def street(root):
    return str(root / "samples" / "street.mp4")


def plan(street, stages):
    return json.dumps({"device": "cpu", "sources": {"a": street}, "stages": stages})


def test_readers_loop_and_count(street):
    assert limits.decode_alone(street, CPU, 2, 0.5) > 50


def test_an_unreadable_clip_is_an_error(tmp_path):
    with pytest.raises(SourceError, match=r"none.mp4"):
        limits.decode_alone(str(tmp_path / "none.mp4"), CPU, 2, 0.2)


def test_every_part_of_a_detector_is_measured(street, root):
    graph = build(read_text(plan(street, {"detect": {"model": "demo"}}), folder=root))
    parts = list(limits.stages_alone(graph, street, CPU, 3, 0.2))
    assert [(part.what, part.batch) for part in parts] == [("preprocess", 3), ("infer", 3), ("postprocess", 3)]
    assert all(part.fps > 10 for part in parts)
    assert parts[2].fps > parts[1].fps


def test_a_pipeline_without_a_network_can_be_measured(street, root):
    graph = build(read_text(plan(street, {"preprocess": {"model": "demo"}}), folder=root))
    assert [part.what for part in limits.stages_alone(graph, street, CPU, 2, 0.1)] == ["preprocess"]


def test_more_frames_than_the_clip_has_can_be_measured(street):
    frames = limits.first_frames(street, CPU, 405)
    assert [frame.index for frame in frames] == [*range(400), *range(5)]


def test_the_child_reports_the_machine_and_each_part(street, tmp_path, root):
    path = tmp_path / "pipeline.yaml"
    path.write_text(plan(street, {"detect": {"model": str(root / "models" / "demo.yaml")}}))
    machine, *parts = results(limits.LimitsSpec({"h264": street}, [1], [2], str(path), {}, "cpu", 0.2))
    assert machine["machine"]["gpu"] is None
    assert machine["machine"]["cores"] >= 1
    assert [part["what"] for part in parts] == ["decode", "preprocess", "infer", "postprocess"]


def test_a_child_over_time_is_killed_and_its_results_kept(street, tmp_path, root):
    path = tmp_path / "pipeline.yaml"
    path.write_text(plan(street, {"detect": {"model": str(root / "models" / "demo.yaml")}}))
    spec = limits.LimitsSpec({"h264": street}, [1], [2], str(path), {}, "cpu", 60.0)
    start_s = time.monotonic()
    parts = []
    with pytest.raises(TimeoutError, match=r"streamkit\.bench\.limits was stopped"):
        parts.extend(results(spec, until_s=start_s + 5.0))
    assert time.monotonic() - start_s >= 5.0
    assert len(parts) <= 1
    with pytest.raises(TimeoutError):
        list(results(spec, until_s=time.monotonic() - 1.0))


@pytest.mark.gpu
def test_parts_are_measured_alone_on_the_gpu(street, root):
    device = Device("cuda")
    assert limits.decode_alone(street, device, 2, 0.5) > 100
    graph = build(read_text(plan(street, {"detect": {"model": "demo"}}).replace('"cpu"', '"cuda"'), folder=root))
    parts = list(limits.stages_alone(graph, street, device, 8, 0.3))
    assert [part.what for part in parts] == ["preprocess", "infer", "postprocess"]
    assert all(part.fps > 100 for part in parts)
