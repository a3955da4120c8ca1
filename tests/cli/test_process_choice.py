"""`check` and `graph` print the number of processes on a GPU and its reason."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from streamkit.cli.inspect import check, graph
from streamkit.core.data import Device
from streamkit.runtime.execution import device as runtime_device
from streamkit.runtime.multiprocess import process_count


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """200 cameras, on a machine that seems to have a GPU and 16 cores."""

    def choose(name: str) -> Device:
        return Device("cpu") if name == "cpu" else Device("cuda", 0)

    monkeypatch.setattr(process_count, "gpu_trouble", lambda index: None)
    monkeypatch.setattr(process_count, "choose", choose)
    monkeypatch.setattr(runtime_device, "choose", choose)
    monkeypatch.setattr(process_count, "cores", lambda: 16)
    sources = ", ".join(f"c{i}: 'rtsp://10.0.0.7/{i}'" for i in range(200))
    path = tmp_path / "p.yaml"
    path.write_text(
        f"sources: {{{sources}}}\nstages: {{detect: {{model: demo}}, jsonl: {{path: 'o/{{source}}.jsonl'}}}}\n"
    )
    return str(path)


REASON = (
    "4 processes on cuda:0: 200 cameras at 30 frames/s need about 6,000 frames/s, one process serves about 2,000; "
    "a spare process replaces one that dies"
)


def test_check_shows_the_number_of_processes_with_the_reason(pipeline: str) -> None:
    lines = CliRunner().invoke(check, [pipeline], catch_exceptions=False, standalone_mode=False).output.splitlines()
    network = (
        "detect: demo.onnx begins in f32 with ONNX Runtime: "
        "the first run decides whether a faster arithmetic finds the same"
    )
    assert lines == [f"{pipeline}: ok, 200 sources, 2 stages (1 on the device)", REASON, network]
    output = CliRunner().invoke(check, [pipeline, "--set", "device.processes=2"], catch_exceptions=False).output
    assert output.splitlines()[1] == (
        "2 processes on cuda:0: set by device.processes; a spare process replaces one that dies"
    )
    output = CliRunner().invoke(check, [pipeline, "--device", "cpu"], catch_exceptions=False).output
    assert len(output.splitlines()) == 1


def test_graph_shows_the_sources_of_each_process(pipeline: str) -> None:
    lines = CliRunner().invoke(graph, [pipeline], catch_exceptions=False).output.splitlines()
    assert lines[-1] == REASON
    assert [line.partition(":0: ")[0] for line in lines[-5:-1]] == ["process on cuda"] * 4
    assert lines[-5].startswith("process on cuda:0: c0, c4, c8, ")
    output = CliRunner().invoke(graph, [pipeline, "--device", "cpu"], catch_exceptions=False).output
    assert "process on" not in output
    output = CliRunner().invoke(graph, [pipeline, "--format", "mermaid"], catch_exceptions=False).output
    assert "processes on" not in output
    assert "process on" not in output
