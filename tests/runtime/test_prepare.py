"""How a graph runs on this machine: in this process, or in several."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.tracing import Spans
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.prepare import prepare
from streamkit.runtime.run import RunConfig


def graph_of(device: str, sources: int = 2) -> Any:
    listed = ", ".join(f"s{i}: 'test://'" for i in range(sources))
    return build(read_text(f"device: {device}\nsources: {{{listed}}}\nstages: {{jsonl: {{path: all.jsonl}}}}"))


@pytest.mark.parametrize(
    ("device", "sources", "unused"), [("cpu", 2, 0), ("[cpu]", 2, 0), ("[cpu, 'cuda:1', 'cuda:2']", 1, 2)]
)
def test_a_single_share_runs_in_the_parent(device: str, sources: int, unused: int) -> None:
    logged = collect()
    trace: Any = SimpleNamespace(current_track=Spans)
    run = prepare(graph_of(device, sources), Path("p.yaml"), {}, RunConfig(limit=4), trace=trace)
    assert isinstance(run, PipelineRun)
    assert (str(run.device), run.limit, run._trace) == ("cpu", 4, trace)
    assert logged == [f"cuda:{i + 1} is not used: there are more devices than sources" for i in range(unused)]


def test_several_shares_run_as_a_fleet() -> None:
    fleet = prepare(graph_of("{use: cpu, processes: 2}"), Path("p.yaml"), {"a": "1"}, RunConfig(limit=4))
    assert isinstance(fleet, WorkerFleet)
    assert fleet.limit == 4
    assert [(worker.device, fleet.sources.of(worker)) for worker in fleet.processes.workers] == [
        ("cpu", ["s0"]),
        ("cpu", ["s1"]),
    ]
