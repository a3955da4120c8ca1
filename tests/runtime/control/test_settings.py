"""Options that may change while a pipeline runs: which they are, their values, and what is refused."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.stage import BatchStage, Collecting, Sink, default_registry, stage
from streamkit.runtime.control.settings import changeable, checked, nodes_of, value_of

YAML = """
sources: {a: 'test://'}
stages: {before: {stage: note}, detect: {model: demo, from: decode}, tuned: {least: 5}, note: {}}
"""


@pytest.fixture
def graph(root):
    registry = default_registry()
    with Collecting(registry):

        @stage("tuned", changeable=("most", "least"))
        class Tuned(BatchStage):
            """Takes numbers between two others."""

            alpha: int = 1
            zeta: int = 2
            most: int = 30
            least: int = 4

            def __post_init__(self) -> None:
                if self.least > self.most:
                    raise ValueError(f"least must be at most {self.most}")

        @stage("note")
        class Note(Sink):
            """Takes records."""

    return build(read_text(YAML, folder=root, registry=registry))


def test_the_changeable_options_of_a_stage_have_their_values(graph):
    assert changeable(graph, "tuned") == {"most": 30, "least": 5}
    assert changeable(graph, "note") == {}


def test_the_changeable_options_of_a_composite_are_those_of_its_parts(graph):
    parts = [node.id for node in nodes_of(graph, "".join("detect"))]
    assert len(parts) > 1
    assert parts == [id_ for id_ in graph.nodes if id_.startswith("detect.")]
    assert nodes_of(graph, "detect.postprocess") == [graph.nodes["detect.postprocess"]]
    options = changeable(graph, "detect")
    assert (options["min_score"], options["iou"]) == (None, None)
    assert not {"most", "least"} & set(options)


def test_an_option_without_a_value_has_its_default(graph):
    node = graph.nodes["tuned"]
    assert [value_of(node, "".join(name)) for name in ("alpha", "zeta", "most", "least")] == [1, 2, 30, 5]


@pytest.mark.parametrize("call", [changeable, nodes_of, lambda graph, id_: checked(graph, id_, {})])
def test_a_stage_that_does_not_exist_is_refused(graph, call):
    with pytest.raises(ConfigError, match=r"^there is no stage 'detekt'; did you mean 'detect'\?$"):
        call(graph, "detekt")


def test_new_values_are_passed_to_the_stage_with_the_option(graph):
    assert checked(graph, "tuned", {"most": 7}) == [(graph.nodes["tuned"], {"most": 7})]
    assert checked(graph, "detect", {"iou": 0.5}) == [(graph.nodes["detect.postprocess"], {"iou": 0.5})]
    assert checked(graph, "tuned", {}) == []
    assert changeable(graph, "tuned")["most"] == 30  # nothing is changed yet


def test_an_option_changes_in_the_parts_where_it_has_the_same_value(root):
    detect = "detect: {model: demo-words, prompts: [car]}"
    masks = "masks: {stage: segment, model: yolov8n-seg, of: detect, min_size: 20}"
    graph = build(read_text(f"sources: {{a: 'test://'}}\nstages: {{{detect}, {masks}}}", folder=root))

    def changed(id_, values):
        return [node.id for node, _ in checked(graph, id_, values)]

    assert changed("detect.infer", {"prompts": ["van"]}) == ["detect.infer", "detect.postprocess"]
    assert changed("masks.select", {"min_size": 30}) == ["masks.select"]
    assert changed("masks.postprocess", {"min_size": 30}) == ["masks.postprocess"]  # of the boxes in crops
    assert changed("masks", {"min_size": 30}) == ["masks.select", "masks.postprocess"]
    with pytest.raises(ConfigError, match=r"^detect: prompts must be a list, got 'van'$"):  # once for both parts
        checked(graph, "detect", {"prompts": "van"})


@pytest.mark.parametrize(
    ("id_", "values", "messages"),
    [
        ("tuned", {"speed": 1}, ["speed cannot change while the pipeline runs; most, least may"]),
        ("tuned", {"leest": 1}, ["leest cannot change while the pipeline runs; did you mean 'least'?"]),
        ("note", {"speed": 1}, ["speed cannot change while the pipeline runs"]),
        ("tuned", {"most": 3}, ["least must be at most 3"]),  # least is 5
        (
            "tuned",
            {"alpha": 9, "most": 3, "zeta": 1},  # the last check is not made where an option is not known
            [
                "alpha cannot change while the pipeline runs; most, least may",
                "zeta cannot change while the pipeline runs; most, least may",
            ],
        ),
    ],
)
def test_unchangeable_options_are_refused_with_every_problem(graph, id_, values, messages):
    with pytest.raises(ConfigError) as caught:
        checked(graph, id_, values)
    assert caught.value.problems == [Problem(id_, 0, 0, text) for text in messages]


def test_a_value_of_another_type_is_refused(graph):
    with pytest.raises(ConfigError, match="most must be a whole number, got 'many'"):
        checked(graph, "tuned", {"most": "many"})
