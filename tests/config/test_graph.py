from pathlib import Path

import pytest

from streamkit import Batch, BatchStage, FrameStage, StreamStage
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, default_registry, stage

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = default_registry()

with Collecting(REGISTRY):

    @stage("track", reads="detections", writes="track_id")
    class Track(StreamStage):
        """Number objects."""

    @stage("zone", reads="track_id", writes=("events", "zone"))
    class Zone(FrameStage):
        """Add a column."""

    @stage("dwell", reads="zone")
    class Dwell(FrameStage):
        """Read that column."""

    @stage("blur", reads="pixels", writes="pixels")
    class Blur(BatchStage):
        """Change the pictures."""

        def process(self, batch: Batch) -> Batch:
            return batch

    @stage("shade", reads="tensor")
    class Shade(BatchStage):
        """Change the tensor."""

        def process(self, batch: Batch) -> Batch:
            return batch


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def graph(*lines, sources="{a: samples/street.mp4}"):
    text = f"sources: {sources}\nstages:\n" + "".join(f"  {line}\n" for line in lines)
    return build(read_text(text, folder=ROOT, registry=REGISTRY))


def problem_texts(*lines, **options):
    with pytest.raises(ConfigError) as caught:
        graph(*lines, **options)
    return [str(problem).removeprefix("pipeline.yaml:") for problem in caught.value.problems]


def wiring(built_graph):
    return {node.id: node.inputs for node in built_graph.nodes.values()}


DETECT = "detect: {model: demo}"


def test_stages_form_a_chain_in_the_written_order():
    built_graph = graph(DETECT, "track: {}", "draw: {}", "jsonl: {path: out/a}")
    assert wiring(built_graph) == {
        "detect.preprocess": ["decode"],
        "detect.infer": ["detect.preprocess"],
        "detect.postprocess": ["detect.infer"],
        "track": ["detect.postprocess"],
        "draw": ["track"],
        "jsonl": ["draw"],
    }
    assert built_graph.outputs == ["detect.preprocess"]
    assert built_graph.aliases == {"detect": "detect.postprocess"}
    assert [node.id for node in built_graph.ends] == ["jsonl"]
    assert built_graph.nodes["track"].readers == ["draw"]
    assert built_graph.nodes["jsonl"].available == {"pixels", "outputs", "detections", "track_id"}
    assert built_graph.nodes["detect.infer"].table == "detect"


def test_outputs_are_paths_and_addresses_without_secrets():
    built_graph = graph(
        DETECT,
        "jsonl: {path: 'out/{source}.jsonl'}",
        "webhook: {url: 'https://ann:word@example.com/hook'}",
        "hls: {stage: stream, url: 'live/{source}.m3u8'}",
        "push: {stage: stream, url: 'rtsp://ann:word@example.com/{source}'}",
    )
    assert built_graph.output_paths == ["out/{source}.jsonl", "live/{source}.m3u8"]
    assert built_graph.output_addresses == ["https://ann:***@example.com/hook", "rtsp://ann:***@example.com/{source}"]


def test_a_chain_continues_after_a_sink():
    built_graph = graph(DETECT, "jsonl: {path: out/a}", "draw: {}")
    assert built_graph.nodes["draw"].inputs == ["jsonl"]
    assert "detections" in built_graph.nodes["draw"].available


def test_branches_and_merges_are_built():
    built_graph = graph(
        DETECT,
        "draw: {}",
        "faces: {stage: detect, from: decode, model: demo}",
        "all: {stage: jsonl, from: [draw, faces, detect.infer], path: out/a}",
    )
    assert built_graph.outputs == ["detect.preprocess", "faces.preprocess"]
    assert built_graph.nodes["all"].inputs == ["draw", "faces.postprocess", "detect.infer"]
    assert built_graph.nodes["faces.infer"].table == "faces"
    assert [node.id for node in built_graph.ends] == ["all"]


def test_from_may_refer_to_a_stage_below():
    built_graph = graph("draw: {from: detect}", "detect: {from: decode, model: demo}")
    assert list(built_graph.nodes) == ["detect.preprocess", "detect.infer", "detect.postprocess", "draw"]


def test_a_stage_can_be_inserted_between_parts_of_a_composite():
    built_graph = graph(
        "detect: {model: demo, insert: [{after: preprocess, stage: blur}, {after: postprocess, stage: track}]}",
        "zone: {}",
    )
    assert wiring(built_graph) == {
        "detect.preprocess": ["decode"],
        "detect.blur": ["detect.preprocess"],
        "detect.infer": ["detect.blur"],
        "detect.postprocess": ["detect.infer"],
        "detect.track": ["detect.postprocess"],
        "zone": ["detect.track"],
    }
    assert built_graph.aliases == {"detect": "detect.track"}


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (
            ["track: {}"],
            "3:10: track reads detections, which no earlier stage writes; put a detector such as detect above it",
        ),
        ([DETECT, "zone: {}"], "4:9: zone reads track_id, which no earlier stage writes; put a tracker above it"),
        ([DETECT, "track: {}", "dwell: {}"], "5:10: dwell reads zone, which no earlier stage writes"),
        (["infer: {model: demo}"], "3:10: infer reads tensor, which no earlier stage writes; put preprocess above it"),
        (
            ["detect: {model: demo, insert: {after: postprocess, stage: shade}}"],
            "3:11: detect.shade reads tensor, which infer uses up; put it between preprocess and infer",
        ),
        ([DETECT, "track: {from: decode}"], "4:10: track reads detections, which no earlier stage writes"),
    ],
)
def test_data_read_by_a_stage_must_be_written_above_it(lines, text):
    (problem,) = problem_texts(*lines)
    assert problem.startswith(text)


def test_data_must_arrive_through_every_input():
    built_graph = graph(DETECT, "track: {}", "zone: {from: [decode, track]}", "dwell: {}")
    assert built_graph.nodes["dwell"].available >= {"zone", "track_id", "events"}


def test_missing_data_is_reported_once_per_reader_without_consequences():
    assert len(problem_texts(DETECT, "trak: {}", "zone: {}", "dwell: {}")) == 1


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        (["draw: {from: b}", "b: {stage: blur, from: draw}"], "draw -> b -> draw"),
        (["a: {stage: draw, from: c}", "b: {stage: blur, from: a}", "c: {stage: blur, from: b}"], "a -> b -> c -> a"),
        (["x: {stage: draw}", "a: {stage: draw, from: [x, b]}", "b: {stage: blur, from: a}"], "a -> b -> a"),
        (
            ["draw: {from: detect}", "detect: {model: demo, from: draw}"],
            "draw -> detect.preprocess -> detect.infer -> detect.postprocess -> draw",
        ),
    ],
)
def test_a_cycle_is_reported_once_with_its_path(lines, path):
    texts = problem_texts(*lines)
    assert len(texts) == 1
    assert texts[0].split("in a circle: ")[1] == path


def test_two_cycles_are_both_reported():
    lines = [
        "a: {stage: draw, from: b}",
        "b: {stage: blur, from: a}",
        "c: {stage: draw, from: d}",
        "d: {stage: blur, from: c}",
    ]
    assert len(problem_texts(*lines)) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("detect.infr", "there is no stage 'detect.infr'; did you mean 'detect.infer'?"),
        ("draw.x", "there is no stage 'draw.x'"),
        ("dtect", "there is no stage 'dtect'; did you mean 'detect'?"),
    ],
)
def test_an_unknown_from_is_refused(name, text):
    (problem,) = problem_texts(DETECT, "draw: {}", f"x: {{stage: draw, from: {name}}}")
    assert text in problem
    assert problem[0] == "5"


def test_outputs_of_stages_and_sources_must_differ():
    assert (
        'write "{source}" into the path'
        in problem_texts("video: {path: out/a.mp4}", sources="{a: samples/street.mp4, b: x.mp4}")[0]
    )
    assert graph('video: {path: "out/{source}.mp4"}', sources="{a: samples/street.mp4, b: x.mp4}")
    assert graph("jsonl: {path: out/a}", sources="{a: samples/street.mp4, b: x.mp4}")
    assert "video writes out/a.mp4 already" in problem_texts("video: {path: out/a.mp4}", "csv: {path: out/a.mp4}")[0]
    assert graph('jsonl: {path: "-"}', 'more: {stage: jsonl, path: "-"}')
    assert "csv: jsonl writes standard output already" in problem_texts('jsonl: {path: "-"}', 'csv: {path: "-"}')[0]


def test_copying_packets_below_a_drawing_stage_is_refused() -> None:
    text = "sources: {a: samples/street.mp4}\nstages:\n  draw: {}\n  video: {path: 'o/{source}.mp4', encoder: copy}\n"
    with pytest.raises(ConfigError, match="4:44: video: encoder: copy takes the source's own packets"):
        build(read_text(text))
    build(read_text(text.replace("draw", "meta").replace("  meta: {}\n", "")))


def test_equal_stages_between_parts_have_distinct_ids():
    insert = "{after: preprocess, stage: blur}"
    built_graph = graph(f"detect: {{model: demo, insert: [{insert}, {insert}, {{after: infer, stage: blur}}]}}")
    assert wiring(built_graph) == {
        "detect.preprocess": ["decode"],
        "detect.blur": ["detect.preprocess"],
        "detect.blur_2": ["detect.blur"],
        "detect.infer": ["detect.blur_2"],
        "detect.blur_3": ["detect.infer"],
        "detect.postprocess": ["detect.blur_3"],
    }


def test_an_inserted_stage_does_not_rename_a_part():
    built_graph = graph("detect: {model: demo, insert: {after: infer, stage: postprocess, model: demo}}")
    assert list(built_graph.nodes) == [
        "detect.preprocess",
        "detect.infer",
        "detect.postprocess_2",
        "detect.postprocess",
    ]


@pytest.mark.parametrize(
    ("inputs", "in_place"), [("track", True), ("[decode, track]", False), ("[track, decode]", False), ("decode", False)]
)
def test_only_a_sole_reader_of_pixels_draws_in_place(inputs, in_place):
    text = (
        "sources: {a: samples/street.mp4}\nstages:\n  detect: {model: demo}\n  track: {}\n"
        f"  draw: {{from: {inputs}}}\n  video: {{path: out/a.mp4}}\n"
    )
    graph = build(read_text(text, folder=ROOT))
    assert graph.nodes["draw"].in_place is in_place
