"""Which device has which sources, and which sinks run in the parent process."""

from typing import Any

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import Graph
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Sink, default_registry, stage
from streamkit.runtime.multiprocess.partition import (
    assign_sources,
    counted_across_sources,
    entries,
    shared_sinks,
    stages_across_sources,
    without_stages_across_sources,
)


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

        @stage("across", scope="pipeline")
        class Across(FrameStage):
            """Compares sources."""

            def process(self, frame: Frame) -> None: ...

        @stage("looks", scope="pipeline", reads_if={"crops": "pixels"})
        class Looks(FrameStage):
            """Compares the pixels of sources."""

            crops: bool = False

            def process(self, frame: Frame) -> None: ...

        @stage("tensors", scope="pipeline", reads="tensor")
        class Tensors(BatchStage):
            """Compares tensors."""

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
        ("{use: cpu, processes: 2}", 5, [("cpu", ["s0", "s2", "s4"]), ("cpu", ["s1", "s3"])]),
        ("{use: cpu, processes: 3}", 2, [("cpu", ["s0"]), ("cpu", ["s1"])]),
        ("{use: [cpu, 'cuda:1'], processes: 2}", 2, [("cpu", ["s0"]), ("cuda:1", ["s1"])]),
        ("{use: [cpu, 'cuda:1'], processes: 2}", 3, [("cpu", ["s0"]), ("cuda:1", ["s1"]), ("cpu", ["s2"])]),
    ],
)
def test_sources_are_assigned_to_devices_in_turn(device: str, sources: int, expected: Any) -> None:
    assert assign_sources(graph(device, "plain: {}", sources)) == expected


@pytest.mark.parametrize("device", ["cpu", "{use: cpu, processes: 2}"])
def test_a_plan_without_sources_has_the_first_device(device: str) -> None:
    pipeline_graph = graph(device, "plain: {}")
    pipeline_graph.sources = []
    assert assign_sources(pipeline_graph) == [("cpu", [])]


def test_a_plan_has_the_number_of_processes_of_each_device() -> None:
    pipeline_graph = graph("[cpu, 'cuda:1']", "plain: {}")
    assert assign_sources(pipeline_graph, [1, 3]) == [
        ("cpu", ["s0", "s4"]),
        ("cuda:1", ["s1"]),
        ("cuda:1", ["s2"]),
        ("cuda:1", ["s3"]),
    ]


def test_stages_across_sources_and_those_below_run_in_the_parent() -> None:
    stages = (
        "other: {}, plain: {}, across: {from: other}, two: {stage: other, from: [across, across]}, "
        "own: {stage: lines, path: 'a/{source}'}, beside: {stage: other, from: other}"
    )
    pipeline_graph = graph("[cpu, 'cuda:1']", stages)
    nodes = stages_across_sources(pipeline_graph)
    assert list(nodes) == ["across", "two", "own"]
    assert [node.id for node in entries(nodes)] == ["across"]
    assert [node.id for node in shared_sinks(pipeline_graph)] == ["plain"]
    assert list(without_stages_across_sources(pipeline_graph).nodes) == ["other", "plain", "beside"]
    assert counted_across_sources(pipeline_graph) == {"across", "two", "own"}  # `plain` is the first end below `other`
    assert counted_across_sources(graph("cpu", "other: {}, plain: {}")) == set()
    assert len(assign_sources(pipeline_graph)) == 2


ACROSS = "looks across sources (scope: pipeline)"


@pytest.mark.parametrize(
    ("stages", "problem"),
    [
        (
            "looks: {crops: true}",
            f"looks {ACROSS} and reads pixels, which never leave the process of a source; leave out crops",
        ),
        (
            "detect: {model: demo, insert: {after: preprocess, stage: tensors}}",
            f"detect.tensors {ACROSS} and reads tensors, which never leave the process of a source; compute what it "
            "needs in a stage above it, as a column or an event",
        ),
        (
            "detect: {model: demo, insert: {after: preprocess, stage: across}}",
            f"detect.infer reads tensors below detect.across, which {ACROSS}; move detect.across below detect",
        ),
        (
            "other: {}, across: {}, two: {stage: other}, film: {path: 'a/{source}'}",
            f"film reads pixels below across, which {ACROSS}; set from: other at film",
        ),
        ("across: {}, window: {}", f"window reads pixels below across, which {ACROSS}; set from: decode at window"),
        ("across: {}, packets: {}", f"packets reads packets below across, which {ACROSS}; set from: decode at packets"),
        (
            "other: {}, across: {}, plain: {from: [across, other]}",
            f"plain joins branches below across, which {ACROSS}; let across read from the joined branches",
        ),
        (
            "across: {}, two: {stage: across, from: decode}, plain: {from: [across, two]}",
            f"plain joins branches below across, which {ACROSS}; let across read from the joined branches",
        ),
    ],
)
def test_stages_that_the_parent_cannot_run_are_refused_with_the_fix(stages: str, problem: str) -> None:
    assert len(assign_sources(graph("cpu", stages))) == 1
    with pytest.raises(ConfigError) as caught:
        assign_sources(graph("[cpu, 'cuda:1']", stages))
    assert [reported.text for reported in caught.value.problems] == [f"{problem}, or name one device with processes: 1"]


def test_stages_of_the_main_script_are_refused_only_on_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    single = graph("cpu", "other: {}")
    several = graph("{use: cpu, processes: 2}", "other: {}, plain: {}")
    for pipeline_graph in (single, several):
        monkeypatch.setattr(pipeline_graph.nodes["other"].type, "__module__", "__main__")
    assert len(assign_sources(single)) == 1
    with pytest.raises(ConfigError, match=r"other is a stage of the main script, .*; move it to a file") as raised:
        assign_sources(several)
    assert "plain" not in str(raised.value)
    several.sources[1].type = several.nodes["other"].type
    with pytest.raises(ConfigError, match=r"s1 is a stage of the main script"):
        assign_sources(several)


def test_every_device_has_a_process_if_sources_may_come() -> None:
    pipeline_graph = graph("{use: cpu, processes: 2}", "plain: {}", 1)
    assert assign_sources(pipeline_graph, keep_running=True) == [("cpu", ["s0"]), ("cpu", [])]


def test_state_is_kept_with_several_devices(tmp_path: Any) -> None:
    assert len(assign_sources(graph("{use: cpu, processes: 2}", "plain: {}", 2, f"state: {tmp_path}/state.db\n"))) == 2


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


def test_every_shared_sink_that_needs_pixels_is_refused_with_the_fix() -> None:
    stages = (
        "film: {path: a}, plain: {from: decode}, one: {stage: lines, path: b, crops: true, from: decode}, "
        "two: {stage: lines, path: c, from: decode}"
    )
    assert len(assign_sources(graph("{use: cpu, processes: 2}", stages, 1))) == 1
    with pytest.raises(ConfigError) as caught:
        assign_sources(graph("{use: cpu, processes: 2}", stages))
    head = "reads pixels of sources in several processes, but pixels are never copied between processes; "
    tail = "or name one device with processes: 1"
    assert [problem.text for problem in caught.value.problems] == [
        f'film {head}write "{{source}}" into its path, so that each source has its own, {tail}',
        f"one {head}leave out crops, {tail}",
    ]
