"""The ends of a graph count frames, objects and events once, and show each batch to listeners once."""

import logging
import time

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Event, Frame, FrameState
from streamkit.core.stage import BatchStage, Collecting, Sink, default_registry, stage
from streamkit.runtime.execution.graph_outputs import GraphOutputs
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.testing.kit import detections


class EndLane:
    """A lane as far as the outputs see it: its stages."""

    def __init__(self, *nodes) -> None:
        self.nodes = list(nodes)


@pytest.fixture
def registry():
    """The built-in stages, a detector `boxes` and a sink `note`."""
    registry = default_registry()
    with Collecting(registry):

        @stage("boxes", writes="detections")
        class Boxes(BatchStage):
            """Writes a table."""

        @stage("note")
        class Note(Sink):
            """Takes records."""

    return registry


@pytest.fixture
def counting_outputs(root, registry):
    """The outputs of `detect` with two sinks below it and one below `other`; a lane for each sink; what was counted."""
    text = (
        "sources: {a: 'test://', b: 'test://'}\nstages: {detect: {stage: boxes}, one: {stage: note}, "
        "two: {stage: note, from: detect}, other: {stage: boxes, from: decode}, three: {stage: note, from: other}}"
    )
    graph = build(read_text(text, folder=root, registry=registry))
    lanes = [EndLane(node) for node in graph.nodes.values()]
    counted = []
    through = []
    whole = []
    outputs = GraphOutputs(
        graph,
        lanes,
        lambda frames, ended, now_s: counted.append([frame.index for frame in frames]),
        through.append,
        whole.append,
    )
    return outputs, {lane.nodes[0].id: lane for lane in lanes}, counted, through, whole


def batch_of(*indices, failed=(), ended=(), sequence=0):
    listed = [Frame("a", n, n / 10, 64, 48, _state=FrameState(position=n)) for n in (*indices, *failed)]
    batch = Batch(listed[: len(indices)], failed=listed[len(indices) :], ended=ended, sequence=sequence)
    batch.tables["detect"] = detections([(0, 0, 9, 9)] * 2)
    batch.tables["other"] = detections([(0, 0, 9, 9)])
    return batch


def test_branches_count_shared_frames_objects_and_events_once(counting_outputs):
    outputs, lanes, counted, through, whole = counting_outputs
    batch = batch_of(0, 1, failed=[2], ended=("a",), sequence=7)
    batch.frames[0].events = [Event("seen", "detect", "a", 0, 0.0), Event("left", "other", "a", 0, 0.0)]
    outputs.count(lanes["detect"], batch)  # no end
    assert not outputs.finished
    for name in ("one", "two"):
        outputs.count(lanes[name], batch)
    assert whole == []
    outputs.count(lanes["three"], batch)
    assert outputs.finished == {"one": 3, "two": 3, "three": 3}
    assert outputs.detections == {"detect": 2, "other": 1}
    assert outputs.events == {"seen": 1, "left": 1}
    assert (counted, through, whole) == ([[0, 1, 2]], [7], ["a"])


def test_latency_counts_frames_with_a_due_time(counting_outputs):
    outputs, lanes, *_ = counting_outputs
    batch = batch_of(0, 1)
    batch.frames[1].due_s = time.monotonic() - 3.0
    outputs.count(lanes["one"], batch)
    assert list(outputs.latency) == ["one"]
    assert outputs.latency["one"].counts.sum() == 1
    assert 2.9 < outputs.latency["one"].quantile(0.5) < 30


def test_the_first_output_shows_every_frame_in_order_and_others_only_their_events(counting_outputs):
    outputs, lanes, *_ = counting_outputs
    seen = []
    stop = outputs.listen(
        lambda shown: seen.append([(f.index, f.surface, [e.kind for e in kinds]) for f, kinds in shown])
    )
    batch = batch_of(0, 2, failed=[1])
    batch.frames[1].events = [Event("seen", "detect", "a", 2, 0.2), Event("left", "other", "a", 2, 0.2)]
    for name in ("one", "two", "three"):
        outputs.count(lanes[name], batch)
    assert seen == [[(0, None, []), (1, None, []), (2, None, ["seen"])], [(2, None, ["left"])]]
    stop()
    outputs.count(lanes["one"], batch)
    assert len(seen) == 2


def test_a_failing_listener_is_removed_and_the_others_continue(counting_outputs, caplog):
    outputs, lanes, *_ = counting_outputs
    seen = []

    def fails(shown):
        raise KeyError("x")

    outputs.listen(fails)
    outputs.listen(lambda shown: seen.append(len(shown)))
    with caplog.at_level(logging.WARNING, "streamkit"):
        outputs.count(lanes["one"], batch_of(0))
        outputs.count(lanes["one"], batch_of(1))
    assert seen == [1, 1]
    assert [text for text in caplog.messages if "a listener failed and is removed" in text] != []
    assert len(caplog.messages) == 1


def test_events_of_no_frame_are_counted(counting_outputs):
    counting_outputs[0].count_event(1.0, Event("down", "alarm", "a", 0, 0.0))
    assert counting_outputs[0].events == {"down": 1}


TWO_SINKS = "stages: {detect: {stage: boxes}, one: {stage: note}, two: {stage: note, from: detect}}"


@pytest.fixture
def nodes_of(root, registry):
    """Builds a graph; returns it and its nodes."""

    def graph_and_nodes(stages):
        graph = build(read_text(f"sources: {{a: 'test://', b: 'test://'}}\n{stages}", folder=root, registry=registry))
        return graph, graph.nodes

    return graph_and_nodes


def nothing(frames, ended, now_s):
    pass


def test_a_lane_that_ends_in_a_sink_is_an_output(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lanes = [EndLane(nodes["detect"], nodes["one"]), EndLane(nodes["two"])]
    outputs = GraphOutputs(graph, lanes, nothing)
    outputs.count(lanes[0], batch_of(0, 1))
    assert outputs.finished == {"one": 2}


def test_a_stage_without_a_reader_is_an_output_although_it_is_no_sink(nodes_of):
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


def test_objects_are_counted_by_source_on_request_only(nodes_of):
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


def test_a_source_that_is_added_again_completes_again(nodes_of):
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


def test_stopping_a_listener_keeps_an_equal_listener(nodes_of):
    graph, nodes = nodes_of(TWO_SINKS)
    lane = EndLane(nodes["one"])
    outputs = GraphOutputs(graph, [lane], nothing)
    seen = []
    stop = outputs.listen(seen.append)
    outputs.listen(seen.append)
    outputs.count(lane, batch_of(0))
    assert len(seen) == 2
    stop()
    outputs.count(lane, batch_of(1))
    assert len(seen) == 3
