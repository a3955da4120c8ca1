"""How a run on made-up sources ends: what fails, alone or with all, and what a stop lets through."""

import gc
import threading
import time

import pytest
from support.clips import write
from support.noting import LOG, WAIT_S, _nothing_is_left_behind, entries_of, pipeline, run_fixture, test_uri  # noqa: F401  fixtures

from streamkit.core.data import Device
from streamkit.core.errors import ModelError, OutputError, StreamkitError
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig

# ---------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("options", "frames", "error"),
    [
        ("fails_at: 3", 3, "it broke"),
        ("fails_at: 0, trouble: error", 0, "ValueError: it broke"),
        ("trouble: open", 0, "there is no such camera"),
    ],
)
def test_a_failed_source_does_not_stop_the_others(run, options, frames, error):
    result = run({"bad": f"{{stage: gray, {options}}}", "good": "{stage: gray, frames_: 8}"}, "find: {}", "keep: {}")
    assert result.code == 1
    assert [entry[1] for entry in entries_of(source="good")] == list(range(8))
    assert [entry[1] for entry in entries_of(source="bad")] == list(range(frames))
    assert result.report["sources"]["bad"] == {"frames": frames, "error": error}
    assert result.logged == [f"source bad failed: {error}"]
    closed = [entry[1] for entry in LOG if isinstance(entry, tuple) and entry[0] == "close"]
    assert sorted(closed) == (["good"] if "open" in options else ["bad", "good"])


def test_a_failed_frame_is_counted_and_the_run_continues(run):
    result = run({"a": test_uri(frames=6)}, "tell: {bad: 2}", "collect: {}")
    assert result.code == 1
    assert [record["frame"] for record in result.records["a"]] == list(range(6))
    assert [bool(record.get("error")) for record in result.records["a"]] == [i == 2 for i in range(6)]
    assert result.report["counts"]["frames failed"] == 1


def test_on_error_stop_ends_the_run(run):
    with pytest.raises(StreamkitError, match=r"find failed on a frame 3 \(0\.12 s\): ValueError: a bad one"):
        run({"a": "{stage: gray, frames_: 5000}"}, "find: {bad: 3, run: {on_error: stop}}", "keep: {}")
    assert ("close", "a") in LOG
    assert 4 <= len(entries_of()) < 1000  # what was decoded goes to the outputs, and no more is


def test_an_internal_error_ends_the_run(run):
    with pytest.raises(StreamkitError, match="no more of this"):
        run({"a": "{stage: gray, frames_: 200}"}, "trouble: {where: process}", "keep: {}")
    assert LOG.count("trouble opened") == LOG.count("trouble closed") >= 1


def test_an_error_in_close_is_reported_and_loses_no_frame(run):
    result = run({"a": "{stage: gray, frames_: 200}"}, "trouble: {where: close}", "keep: {}")
    assert result.code == 1
    assert len(entries_of()) == 200
    assert any("trouble failed as it was closed: RuntimeError: it does not work" in text for text in result.logged)


@pytest.mark.parametrize(
    ("stage_", "kind", "text"),
    [("trouble", StreamkitError, "it does not work"), ("model_trouble", ModelError, "no such model")],
)
def test_a_stage_that_cannot_be_opened_ends_the_run_before_its_first_frame(run, stage_, kind, text):
    with pytest.raises(StreamkitError, match=text) as caught:
        run(
            {f"s{i}": "{stage: gray}" for i in range(40)},
            "n1: {stage: noted, run: {instances: 2}}",
            "k1: {stage: keep, from: n1}",
            f"{stage_}: {{from: n1}}",
            "k2: {stage: keep}",
        )
    assert type(caught.value) is kind
    opened = [e[1:] for e in LOG if isinstance(e, tuple) and e[0] == "opened"]
    closed = [e[1:] for e in LOG if isinstance(e, tuple) and e[0] == "closed"]
    assert len(opened) == 2
    assert sorted(opened) == sorted(closed)  # each on its own thread
    assert [e for e in LOG if isinstance(e, tuple) and e[0] == "open"] == []  # no source was started


@pytest.mark.parametrize("where", ["open", "write", "end"])
def test_an_output_error_ends_the_run_without_hanging(run, where):
    """With more sources than batches may wait between lanes."""
    with pytest.raises(OutputError, match="the disk is full"):
        run(
            {f"s{i}": "{stage: gray, frames_: 3}" for i in range(60)},
            f"unwritable: {{where: {where}, path: 'x', from: decode}}",
            "find: {from: decode}",
            "keep: {}",
        )
    if where == "open":
        assert entries_of() == []
    else:
        for source in {
            entry[0] for entry in entries_of()
        }:  # what was decoded has gone to the other output, without a gap
            indices = [entry[1] for entry in entries_of(source=source)]
            assert indices == list(range(len(indices)))


# -------------------------------------------------------------------------------------------------------- ends early


def test_stop_drains_decoded_frames():
    running = pipeline(dict.fromkeys("abc", "{stage: gray, frames_: 1000000, pause_s: 0.001}"), "find: {}", "keep: {}")
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()))
    thread.start()
    until = time.monotonic() + WAIT_S
    while len(entries_of()) < 30 and time.monotonic() < until:
        time.sleep(0.005)
    running.stop()
    thread.join(WAIT_S)
    assert codes == [130]
    for name in "abc":
        indices = [entry[1] for entry in entries_of(source=name)]
        assert indices == list(range(running.states[name].frames))  # all that was handed over, in order
        assert ("close", name) in LOG
    assert sum(state.frames for state in running.states.values()) >= 30


def test_stop_ends_the_wait_for_a_paced_frame():
    uri = test_uri(frames=0, fps=0.001)
    running = pipeline({"a": f"{{stage: test_pattern, uri: {uri}, pace: realtime, pace_seed: 0}}"}, "keep: {}")
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()))
    thread.start()
    time.sleep(0.2)
    running.stop()
    thread.join(WAIT_S)
    assert codes == [130]


@pytest.mark.parametrize("frozen", ["nothing", "by Python", "by the application"])
def test_a_live_run_freezes_loaded_objects_for_the_garbage_collector(frozen, monkeypatch):
    gc.unfreeze()
    count = gc.get_freeze_count
    if frozen == "by Python":  # as Python 3.12 begins
        monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    if frozen == "by the application":
        gc.freeze()
    running = pipeline({"a": f"{{stage: test_pattern, uri: {test_uri(frames=0)}, pace: realtime}}"}, "keep: {}")
    thread = threading.Thread(target=running.run)
    thread.start()
    until = time.monotonic() + WAIT_S
    while not entries_of() and time.monotonic() < until:
        time.sleep(0.005)
    meanwhile = count()
    running.stop()
    thread.join(WAIT_S)
    after = count()
    gc.freeze()  # as for every test
    assert meanwhile > 0
    assert bool(after) == (frozen == "by the application")


@pytest.mark.parametrize("live_may_come", [True, False])
def test_a_run_that_waits_for_cameras_freezes_loaded_objects(live_may_come):
    gc.unfreeze()
    file = {"a": f"{{stage: test_pattern, uri: {test_uri(frames=2)}}}"}
    running = pipeline(file, "keep: {}", keep_running=True, live_may_come=live_may_come)
    thread = threading.Thread(target=running.run)
    thread.start()
    until = time.monotonic() + WAIT_S
    while not running.ready and time.monotonic() < until:
        time.sleep(0.005)
    meanwhile = gc.get_freeze_count()
    running.stop()
    thread.join(WAIT_S)
    gc.freeze()  # as for every test
    assert bool(meanwhile) == live_may_come


def test_networks_are_tuned_after_the_first_frames():
    run = pipeline({"a": f"{{stage: test_pattern, uri: {test_uri(frames=50)}}}"}, "keep: {}")
    run.device = Device("cuda")
    future = run._future()
    run.device = Device("cpu")
    later = future(lambda dropped: len(entries_of()))
    time.sleep(0.2)
    assert not later.ready
    thread = threading.Thread(target=run.run)
    thread.start()
    assert later.result() > 0
    thread.join(WAIT_S)
    assert future.held


@pytest.mark.parametrize("failed", [False, True])
def test_host_stages_open_during_tuning_and_sinks_after_it(failed, monkeypatch):
    run = pipeline({"a": f"{{stage: test_pattern, uri: {test_uri(frames=2)}}}"}, "find: {}", "tell: {}", "keep: {}")
    run.device = Device("cuda")
    opened = []
    tuned = threading.Event()
    open_ = threading.Event()
    open_.set()

    def begin(lane):
        opened.append(lane.nodes[0].id)
        return tuned if lane.on_device else open_

    for lane in run._lanes:
        lane.workers = 1
    monkeypatch.setattr(run, "_open_lane", begin)
    thread = threading.Thread(target=run._open_lanes, daemon=True)
    thread.start()
    time.sleep(0.2)
    assert opened == ["find", "tell"]
    if failed:
        run.fatal = ModelError("no such network")
    tuned.set()
    thread.join(WAIT_S)
    assert opened == ["find", "tell"] + ["keep"] * (not failed)


@pytest.mark.parametrize(
    ("sources", "options", "held"),
    [
        ({"a": "realtime"}, {}, False),
        ({}, {"keep_running": True}, False),
        ({"a": ""}, {"keep_running": True}, False),
        ({"a": ""}, {"keep_running": True, "live_may_come": False}, True),
        ({"a": ""}, {}, True),
    ],
)
def test_networks_are_tuned_at_once_with_live_or_possible_cameras(sources, options, held):
    listed = {
        id_: f"{{stage: test_pattern, uri: {test_uri(frames=2)}{f', pace: {pace}' if pace else ''}}}"
        for id_, pace in (sources or {"a": ""}).items()
    }
    graph = pipeline(listed, "keep: {}").graph
    if not sources:
        graph.sources = []
    run = PipelineRun(graph, Device("cpu"), RunConfig(**options))
    assert not run._future().held
    run.device = Device("cuda")
    assert run._future().held is held


@pytest.mark.parametrize(("pace", "held"), [("unpaced", True), ("realtime", False)])
def test_a_looping_file_is_not_a_camera(pace, held, tmp_path):
    path = write(tmp_path / "a.mp4", frames=5)
    run = PipelineRun(pipeline({"a": f"{{uri: {path}, loop: true, pace: {pace}}}"}, "keep: {}").graph, Device("cpu"))
    run.device = Device("cuda")
    run.sources.start_early()
    assert run._future().held is held
    run.sources.stop()
    run._abort()
    for thread in list(run.sources.threads):
        thread.join(WAIT_S)
    assert not run.sources.threads
