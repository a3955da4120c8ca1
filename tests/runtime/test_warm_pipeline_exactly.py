"""What a warm pipeline is made with, and what `end` says of each way to end."""

from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.errors import StreamkitError
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import DEFAULT, RunConfig
from streamkit.runtime.warm_pipeline import WarmPipeline


@pytest.fixture
def warm_and_configs(monkeypatch: pytest.MonkeyPatch) -> tuple[WarmPipeline, list[RunConfig]]:
    """A warm pipeline that was not begun, and the configuration of its base."""
    configs: list[RunConfig] = []
    begin = PipelineRun.__init__

    def recording_init(self: PipelineRun, graph: Any, device: Device, config: RunConfig = DEFAULT) -> None:
        configs.append(config)
        begin(self, graph, device, config)

    monkeypatch.setattr(PipelineRun, "__init__", recording_init)
    graph = build(read_text("batch: 4\nsources: {a: 'test://'}\nstages: {jsonl: {path: '-'}}"))
    graph.sources = []
    return WarmPipeline(graph, Device("cpu")), configs


def test_by_default_one_source_is_read_at_a_time_and_batches_are_of_one_source(warm_and_configs: Any) -> None:
    warm, configs = warm_and_configs
    assert configs == [RunConfig(keep_running=True, parallel_files=1, own_cores=None, per_source=True)]
    assert warm._sizes == PipelineRun(warm.graph, Device("cpu"))._sizes
    assert warm.outputs.by_source is True


@pytest.mark.parametrize(
    ("opened", "over", "hung", "ended"),
    [
        (False, False, [], True),
        (False, True, [], True),
        (True, True, [], True),
        (True, True, ["thread"], False),
        (True, False, [], False),
        (True, False, ["thread"], False),
    ],
)
def test_an_end_says_whether_something_hangs(
    warm_and_configs: Any, opened: bool, over: bool, hung: list[Any], ended: bool
) -> None:
    warm, _ = warm_and_configs
    waits: list[float] = []
    warm._opened = SimpleNamespace(is_set=lambda: opened)
    warm._over = SimpleNamespace(wait=lambda within_s: waits.append(within_s) or over)
    warm.hung_threads = hung
    assert warm.end() is ended
    assert warm.stopping
    assert waits == ([20.0] if opened else [])


def test_whoever_begins_one_that_cannot_be_opened_learns_why(warm_and_configs: Any) -> None:
    warm, _ = warm_and_configs
    error = StreamkitError("it cannot be opened")

    def run() -> int:
        raise error

    warm.run = run
    with pytest.raises(StreamkitError, match="it cannot be opened") as caught:
        warm.begin()
    assert caught.value is error
    with pytest.raises(StreamkitError, match="it cannot be opened"):
        warm.send(SimpleNamespace(id="a"))
    assert warm._awaited == {}


def test_sources_that_nobody_awaits_are_left_alone(warm_and_configs: Any) -> None:
    warm, _ = warm_and_configs
    calls: list[str] = []
    warm._awaited["a"] = SimpleNamespace(set=lambda: calls.append("out")), lambda: calls.append("read")
    warm._source_read("b", None)
    warm._source_complete("b")
    assert calls == []
    warm._source_read("a", None)
    warm._source_complete("a")
    assert calls == ["read", "out"]
