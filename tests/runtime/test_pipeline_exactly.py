"""What a pipeline is before its run, how it is ended, and the parts that need no run."""

from types import SimpleNamespace

import pytest
from support.messages import collect
from support.noting import pipeline, test_uri

from streamkit.core.data import Device
from streamkit.core.errors import OutputError, SourceError, StageError
from streamkit.runtime import pipeline as module
from streamkit.runtime.execution.future import ThreadFuture
from streamkit.runtime.run import RunConfig


def test_before_its_run_it_is_neither_ready_nor_stopped():
    run = pipeline({"a": test_uri()}, "keep: {}")
    assert (run.ready, run.stopping, run.seconds, run.fatal, run.frames) == (False, False, 0.0, None, 0)
    assert run.queues() == {"batcher": 0, "keep": 0}
    run.finished.clear()
    assert run.frames == 0
    report = run.report(0)
    assert (report["seconds"], "removed" in report, "alarms" in report) == (0.0, False, False)


@pytest.mark.parametrize(("live", "at_once"), [(0, False), (4, False), (5, True), (6, True)])
def test_networks_are_tuned_meanwhile_next_to_few_live_sources_alone(live, at_once):
    run = pipeline({"a": test_uri()}, "keep: {}")
    run._live = live
    context = run._context("keep")
    assert issubclass(context.runtime.future, ThreadFuture) is not at_once
    assert context.runtime.future.at_once is at_once
    assert context.threads == 1


@pytest.mark.parametrize(("expected", "live"), [(0, 0), (2, 5), (67, 67)])
def test_networks_are_tuned_before_a_run_is_ready_for_live_sources_that_it_expects(expected, live):
    graph = pipeline({"a": test_uri()}, "keep: {}").graph
    run = module.PipelineRun(graph, Device("cpu"), RunConfig(keep_running=True, expected_live=expected))
    assert run._live == live
    assert run._context("keep").runtime.future.at_once is bool(expected)


def test_a_stop_counts_from_its_first_call(monkeypatch):
    run = pipeline({"a": test_uri()}, "keep: {}")
    drained, started = [], []
    emitter = SimpleNamespace(begin_drain=lambda: drained.append(1))
    monkeypatch.setattr(module, "emitters", lambda runners: [("x", emitter)])
    monkeypatch.setattr(module, "start", lambda name, target: started.append(target))
    times = iter([5.0, 9.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(times)))
    run.stop()
    run.stop()
    assert (run.stopping, run._stopped_at_s, drained) == (True, 5.0, [1, 1])
    assert started == [run.sources.stop] * 2


@pytest.mark.parametrize(("kind", "dropped"), [(OutputError, 0), (StageError, 0), (SourceError, 1)])
def test_the_first_error_is_kept_and_only_some_drop_frames(kind, dropped):
    run = pipeline({"a": test_uri()}, "keep: {}")
    aborts = []
    run._abort = lambda: aborts.append(1)
    error = kind.__new__(kind)
    run.fail(error)
    assert (run.fatal, len(aborts), run.sources.stopping) == (error, dropped, True)
    run.fail(OutputError("later"))
    assert run.fatal is error


def test_a_failed_source_is_told_and_a_read_one_is_not():
    run, logged = pipeline({"a": test_uri()}, "keep: {}"), collect()
    run._source_read("a", SimpleNamespace(error=None))
    run._source_read("b", SimpleNamespace(error="no camera"))
    assert logged == ["source b failed: no camera"]
