"""`streamkit.run`: frames in a Python loop."""

import json
import threading

import pytest

import streamkit
from streamkit.core.errors import ConfigError
from streamkit.core.records import record

STREET = "samples/street.mp4"


def run_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"run", "batcher"}


def test_frames_have_the_records_that_jsonl_writes(tmp_path):
    pipeline = {
        "device": "cpu",
        "sources": {"street": STREET},
        "stages": {"detect": {"model": "demo"}, "track": {}, "jsonl": {"path": str(tmp_path / "{source}.jsonl")}},
    }
    rows = [json.loads(json.dumps(record(frame))) for frame in streamkit.run(pipeline, limit=20)]
    assert rows == [json.loads(line) for line in (tmp_path / "street.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    assert any(row["objects"] for row in rows)


def test_branches_deliver_each_frame_once_with_all_events():
    box = {"stage": "zone", "polygon": [[0, 0], [640, 0], [640, 360], [0, 360]]}
    stages = {"track": {}, "a": {**box, "from": "track"}, "b": {**box, "from": "track"}}
    frames = list(streamkit.run(STREET, model="demo", stages=stages, device="cpu", limit=8))
    assert [frame.index for frame in frames] == list(range(8))
    assert {event.stage for frame in frames for event in frame.events} == {"a", "b"}


def test_several_sources_keep_their_frames_in_order():
    seen = {}
    for frame in streamkit.run([STREET, STREET], model="demo", device="cpu", limit=5):
        assert frame.surface is not None
        seen.setdefault(frame.source, []).append(frame.index)
    assert seen == {"source_1": list(range(5)), "source_2": list(range(5))}


def test_leaving_the_loop_ends_the_run():
    for _ in streamkit.run(STREET, model="demo", device="cpu"):
        assert run_threads()
        break
    assert run_threads() == set()


def test_a_closed_stream_has_no_more_frames():
    with streamkit.run(STREET, model="demo", device="cpu") as frames:
        next(frames)
    assert list(frames) == []
    assert run_threads() == set()


def test_a_misspelt_option_is_refused_before_the_run():
    with pytest.raises(ConfigError, match="did you mean 'min_score'"):
        streamkit.run({"sources": {"a": STREET}, "stages": {"detect": {"model": "demo", "min_scor": 0.4}}})


def test_sources_need_a_detector():
    with pytest.raises(ConfigError, match="needs a detector"):
        streamkit.run(STREET)


def test_a_pipeline_takes_no_model():
    with pytest.raises(ConfigError, match="names its own"):
        streamkit.run("pipeline.yaml", model="demo")
