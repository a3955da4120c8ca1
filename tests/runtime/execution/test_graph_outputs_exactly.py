"""Ends of a graph: which lanes are ends, what each counts, when a source is complete, and what listeners get."""

from types import SimpleNamespace

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Event, Frame, FrameState
from streamkit.core.stage import BatchStage, Collecting, Sink, default_registry, stage
from streamkit.runtime.execution import graph_outputs
from streamkit.runtime.execution.graph_outputs import GraphOutputs
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.testing.kit import detections

TWO_SINKS = "stages: {detect: {stage: boxes}, one: {stage: note}, two: {stage: note, from: detect}}"


class EndLane:
    """A lane as far as the outputs see it: its stages."""

    def __init__(self, *nodes) -> None:
        self.nodes = list(nodes)


@pytest.fixture
def nodes_of(root):
    """Builds a graph; returns it and its nodes."""
    registry = default_registry()
    with Collecting(registry):

        @stage("boxes", writes="detections")
        class Boxes(BatchStage):
            """Writes a table."""

        @stage("note")
        class Note(Sink):
            """Takes records."""

    def graph_and_nodes(stages):
        graph = build(read_text(f"sources: {{a: 'test://', b: 'test://'}}\n{stages}", folder=root, registry=registry))
        return graph, graph.nodes

    return graph_and_nodes


def nothing(frames, ended, now_s):
    pass


def batch_of(*indices, ended=()):
    batch = Batch(
        [Frame("a", n, n / 10, 64, 48, _state=FrameState(position=at)) for at, n in enumerate(indices)], ended=ended
    )
    batch.tables["detect"] = detections([(0, 0, 9, 9)] * 2)
    return batch


def test_the_last_stage_of_a_lane_tells_whether_the_lane_is_an_end(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lanes = [EndLane(nodes["detect"], nodes["one"]), EndLane(nodes["two"])]
    outputs = GraphOutputs(graph, lanes, nothing)
    outputs.count(lanes[0], batch_of(0, 1))
    assert outputs.finished == {"one": 2}


def test_a_stage_that_nothing_reads_is_an_end_although_it_is_no_sink(nodes_of):
    graph, nodes = nodes_of("stages: {detect: {stage: boxes}}")
    lane = EndLane(nodes["detect"])
    outputs = GraphOutputs(graph, [lane], nothing)
    outputs.count(lane, batch_of(0))
    assert outputs.finished == {"detect": 1}


def test_an_event_of_one_branch_is_not_counted_by_another(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lanes = [EndLane(nodes["one"]), EndLane(nodes["two"])]
    outputs = GraphOutputs(graph, lanes, nothing)
    batch = batch_of(0)
    batch.frames[0].events = [Event("sent", "one", "a", 0, 0.0), Event("seen", "detect", "a", 0, 0.0)]
    for lane in lanes:
        outputs.count(lane, batch)
    assert outputs.events == {"sent": 1, "seen": 1}


@pytest.mark.parametrize("highest_first", [False, True])
def test_the_first_end_is_that_of_the_first_lane(nodes_of, highest_first):
    graph, nodes = nodes_of(TWO_SINKS)
    lanes = sorted((EndLane() for _ in range(2)), key=id, reverse=highest_first)
    lanes[0].nodes, lanes[1].nodes = [nodes["one"]], [nodes["two"]]
    counted, seen = [], []
    outputs = GraphOutputs(graph, lanes, lambda frames, ended, now_s: counted.append(len(frames)))
    outputs.listen(lambda shown: seen.append([frame.index for frame, _ in shown]))
    for lane in lanes:
        outputs.count(lane, batch_of(0, 1, 2))
    assert counted == [3]
    assert seen == [[0, 1, 2]]


def test_objects_are_counted_by_source_only_if_asked(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lane = EndLane(nodes["one"])
    outputs = GraphOutputs(graph, [lane], nothing)
    states = [SourceState(), SourceState()]
    batch = batch_of(0, 1, 2)
    batch.tables["detect"] = detections([(0, 0, 9, 9)] * 5).with_columns(batch_row=np.array([0, 0, 1, 2, 2], np.int32))
    batch.frames[0]._state.source_state, batch.frames[2]._state.source_state = states  # the second frame has none
    outputs.count(lane, batch)
    assert [state.objects for state in states] == [0, 0]
    outputs.by_source = True
    outputs.count(lane, batch)
    assert [state.objects for state in states] == [2, 2]
    outputs.count(lane, batch)
    assert [state.objects for state in states] == [4, 4]


def test_latency_is_the_time_since_a_frame_was_due(nodes_of, monkeypatch):
    graph, nodes = nodes_of(TWO_SINKS)
    lane = EndLane(nodes["one"])
    outputs = GraphOutputs(graph, [lane], nothing)
    monkeypatch.setattr(graph_outputs, "time", SimpleNamespace(monotonic=lambda: 10.0))
    batch = batch_of(0, 1)
    batch.frames[1].due_s = 3.0
    outputs.count(lane, batch)
    assert outputs.latency["one"].counts.sum() == 1
    assert outputs.latency["one"].quantile(0.5) == pytest.approx(7.0, rel=0.02)


def test_a_source_may_be_complete_again(nodes_of):
    """A source that was removed and added again has the same id."""
    graph, nodes = nodes_of(TWO_SINKS)
    lanes = [EndLane(nodes["one"]), EndLane(nodes["two"])]
    complete = []
    outputs = GraphOutputs(graph, lanes, nothing, source_complete=complete.append)
    for turn in range(3):
        outputs.count(lanes[1], batch_of(0, ended=("a",)))
        assert complete == ["a"] * turn
        outputs.count(lanes[0], batch_of(0, ended=("a",)))
        assert complete == ["a"] * (turn + 1)


def test_listeners_get_each_frame_with_its_tables(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lane = EndLane(nodes["one"])
    outputs = GraphOutputs(graph, [lane], nothing)
    alone = batch_of(0, 1)
    outputs.count(lane, alone)
    assert [frame.tables for frame in alone.frames] == [{}, {}]  # nobody listens: the tables stay as they are
    lengths = []
    outputs.listen(lambda shown: lengths.extend(len(frame.tables["detect"]) for frame, _ in shown))
    outputs.count(lane, batch_of(0, 1))
    assert lengths == [2, 0]


def test_a_batch_without_frames_is_shown_to_nobody(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lane = EndLane(nodes["one"])
    outputs, seen = GraphOutputs(graph, [lane], nothing), []
    outputs.listen(seen.append)
    outputs.count(lane, Batch([], ended=("a",)))
    assert seen == []


def test_a_listener_that_stops_leaves_an_equal_one(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lane = EndLane(nodes["one"])
    outputs, seen = GraphOutputs(graph, [lane], nothing), []
    stop = outputs.listen(seen.append)
    outputs.listen(seen.append)
    outputs.count(lane, batch_of(0))
    assert len(seen) == 2
    stop()
    outputs.count(lane, batch_of(1))
    assert len(seen) == 3
