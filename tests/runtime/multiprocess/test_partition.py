"""Which device has which sources, and which sinks run in the parent process."""

from typing import Any

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import Graph
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, FrameStage, Sink, default_registry, stage
from streamkit.runtime.multiprocess.partition import assign_sources, shared_sinks


def graph(device: str, stages: str, sources: int = 5, head: str = "") -> Graph:
    registry = default_registry()
    with Collecting(registry):

        class Nothing(Sink):
            def write(self, frame: Frame) -> None: ...

        @stage("plain")
        class Plain(Nothing):
            """Needs no pixels and has no path."""

        @stage("shots", reads="pixels")
        class Shots(Nothing):
            """Needs pixels and has no path."""

        @stage("window", reads="pixels", target="")
        class Window(Nothing):
            """Needs pixels and writes no file."""

        @stage("film", reads="pixels", target="path")
        class Film(Nothing):
            """Needs pixels and has a path."""

            path: str

        @stage("lines", reads_if={"pictures": "pixels", "crops": "pixels"}, target="path")
        class Lines(Nothing):
            """Needs pixels for an option."""

            path: str
            pictures: bool = False
            crops: bool = False

        @stage("packets", wants_packets=True)
        class Packets(Nothing):
            """Wants packets."""

        @stage("other")
        class Other(FrameStage):
            """Is no sink."""

            def process(self, frame: Frame) -> None: ...

    listed = ", ".join(f"s{i}: 'video{i}.mp4'" for i in range(sources))
    text = f"device: {device}\n{head}sources: {{{listed}}}\nstages: {{{stages}}}"
    return build(read_text(text, registry=registry))


@pytest.mark.parametrize(
    ("device", "sources", "expected"),
    [
        ("cpu", 2, [("cpu", ["s0", "s1"])]),
        ("[cpu]", 2, [("cpu", ["s0", "s1"])]),
        ("[cpu, 'cuda:1']", 1, [("cpu", ["s0"])]),
        ("[cpu, 'cuda:1']", 2, [("cpu", ["s0"]), ("cuda:1", ["s1"])]),
        ("[cpu, 'cuda:1']", 5, [("cpu", ["s0", "s2", "s4"]), ("cuda:1", ["s1", "s3"])]),
        ("[cpu, 'cuda:1', 'cuda:2']", 2, [("cpu", ["s0"]), ("cuda:1", ["s1"])]),
    ],
)
def test_devices_have_the_sources_in_turn_and_none_is_without(device: str, sources: int, expected: Any) -> None:
    assert assign_sources(graph(device, "plain: {}", sources)) == expected


@pytest.mark.parametrize("device", ["cpu", "[cpu, cpu]"])
def test_without_any_source_the_first_device_is_there(device: str) -> None:
    made = graph(device, "plain: {}")
    made.sources = []
    assert assign_sources(made) == [("cpu", [])]


def test_every_device_has_a_process_if_sources_may_come() -> None:
    made = graph("[cpu, cpu]", "plain: {}", 1)
    assert assign_sources(made, keep_running=True) == [("cpu", ["s0"]), ("cpu", [])]


def test_state_is_kept_with_several_devices(tmp_path: Any) -> None:
    assert len(assign_sources(graph("[cpu, cpu]", "plain: {}", 2, f"state: {tmp_path}/state.db\n"))) == 2


@pytest.mark.parametrize(
    ("stages", "shared"),
    [
        ("plain: {}", ["plain"]),
        ("other: {}, plain: {}", ["plain"]),
        ("shots: {}", ["shots"]),
        ("window: {}", []),
        ("packets: {}", []),
        ("film: {path: a}", ["film"]),
        ("film: {path: 'a/{source}'}", []),
        ("lines: {path: a}", ["lines"]),
        ("lines: {path: 'a/{source}', pictures: true}", []),
        ("plain: {}, film: {path: a, from: decode}, packets: {from: decode}", ["plain", "film"]),
    ],
)
def test_sinks_of_several_sources_are_shared(stages: str, shared: list[str]) -> None:
    assert [node.id for node in shared_sinks(graph("cpu", stages))] == shared


def test_every_shared_sink_that_needs_pixels_is_told_with_its_fix() -> None:
    stages = (
        "film: {path: a}, plain: {from: decode}, one: {stage: lines, path: b, crops: true, from: decode}, "
        "two: {stage: lines, path: c, from: decode}"
    )
    assert len(assign_sources(graph("[cpu, cpu]", stages, 1))) == 1
    with pytest.raises(ConfigError) as caught:
        assign_sources(graph("[cpu, cpu]", stages))
    head = "reads pixels of sources on several devices, but pixels are never copied between devices; "
    assert [problem.text for problem in caught.value.problems] == [
        f'film {head}write "{{source}}" into its path, so that each source has its own, or name one device',
        f"one {head}leave out crops, or name one device",
    ]
