"""The part of a pipeline that produces records: which stages' tables they are, and what stays with other sinks."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import DECODE
from streamkit.runtime.record_graph import past_sinks, record_inputs, with_sinks

CARS, PEOPLE = (
    f"  {name}: {{stage: detections, path: samples/street.truth.jsonl, from: decode}}\n" for name in ("cars", "people")
)


def graph_of(root, stages):
    return build(read_text(f"device: cpu\nsources: {{street: samples/street.mp4}}\nstages:\n{stages}", folder=root))


@pytest.mark.parametrize(
    ("stages", "inputs"),
    [
        (CARS + "  jsonl: {path: a.jsonl}\n", ["cars"]),
        (CARS + "  draw: {}\n  csv: {path: a.csv}\n", ["cars"]),
        (CARS + "  draw: {}\n  other: {stage: draw}\n  csv: {path: a.csv}\n", ["cars"]),
        (CARS + "  csv: {path: a.csv}\n  draw: {}\n  jsonl: {path: a.jsonl}\n", ["cars"]),
        (CARS + PEOPLE + "  jsonl: {path: a.jsonl, from: [people, cars]}\n", ["people", "cars"]),
        (CARS + PEOPLE + "  draw: {from: [people, cars]}\n  jsonl: {path: a.jsonl}\n", ["people", "cars"]),
        (
            CARS + PEOPLE + "  csv: {path: a.csv, from: people}\n  jsonl: {path: a.jsonl, from: cars}\n",
            ["people", "cars"],
        ),
        (CARS + "  track: {}\n  csv: {path: a.csv, from: cars}\n", ["cars"]),
        (CARS + "  track: {}\n  draw: {}\n", ["track"]),
        (CARS + PEOPLE, ["cars", "people"]),
        ("  draw: {}\n", [DECODE]),
    ],
)
def test_records_have_the_inputs_of_their_sinks_or_of_the_last_stages(root, stages, inputs):
    assert record_inputs(graph_of(root, stages)) == inputs


def test_stages_below_a_sink_read_what_the_sink_reads(root):
    stages = CARS + PEOPLE + "  csv: {path: a.csv, from: [cars, people]}\n  video: {path: a.mp4}\n  track: {}\n"
    graph = graph_of(root, stages)
    assert past_sinks(graph, graph.nodes["track"]) == ["cars", "people"]
    reduced = with_sinks(graph, ["track"], [])
    assert {id_: node.inputs for id_, node in reduced.nodes.items()} == {
        "cars": [DECODE],
        "people": [DECODE],
        "track": ["cars", "people"],
    }
    assert graph.nodes["track"].inputs == ["video"]


def test_stages_without_a_reader_are_removed(root):
    stages = CARS + "  track: {}\n  draw: {}\n  csv: {path: a.csv}\n" + PEOPLE
    graph = graph_of(root, stages)
    assert list(with_sinks(graph, ["cars"], []).nodes) == ["cars"]
    assert list(with_sinks(graph, [DECODE], []).nodes) == []
    assert list(with_sinks(graph, ["cars"], [graph.nodes["csv"]]).nodes) == ["cars", "track", "draw", "csv"]
