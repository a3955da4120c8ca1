"""Objects on frames that a detector leaves out; `of:` is tested in stages/test_objects.py."""

import pytest


def warnings(text, root, tmp_path):
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    path = tmp_path / "p.yaml"
    sink = f"  jsonl: {{path: {tmp_path}/o.jsonl}}\n"
    path.write_text(f"sources: {{a: {root}/samples/street.mp4}}\nstages:\n{text}{sink}")
    return [str(warning).removeprefix(f"{path}:") for warning in build(read(path)).config.warnings]


@pytest.mark.parametrize(
    ("stages", "warns"),
    [
        ("  detect: {model: demo, every: 3}\n", True),
        ("  detect: {model: demo}\n", False),
        ("  detect: {model: demo, every: 3}\n  track: {}\n", False),
        ("  detect: {model: demo, every: 3}\n  draw: {}\n  track: {}\n", False),
        ("  detect: {model: demo, every: 3}\n  draw: {}\n  track: {from: detect}\n", True),
        (
            "  track: {from: other}\n  other: {stage: detect, model: demo, from: decode}\n"
            "  detect: {model: demo, every: 3, from: decode}\n",
            True,
        ),
    ],
)
def test_skipped_frames_without_a_tracker_give_a_warning(stages, warns, root, tmp_path):
    lines = warnings(stages, root, tmp_path)
    assert bool(lines) == warns
    if warns:
        assert "detect.every: 3 leaves all other frames without objects" in lines[0]
        assert lines[0].split(": ", 1)[0].endswith("32") or lines[0].startswith("5:")


def refused(text, root, registry=None):
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.core.errors import ConfigError

    try:
        build(read_text(f"sources: {{a: samples/street.mp4}}\nstages:\n{text}", folder=root, registry=registry))
    except ConfigError as error:
        return [str(problem).removeprefix("pipeline.yaml:") for problem in error.problems]
    return []


DETECT = "  detect: {model: demo}\n  track: {}\n"
GROUND = "points: [[210, 180], [420, 180], [560, 340], [60, 340]], ground: [[0, 0], [7, 0], [7, 24], [0, 24]]"


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("line_counter", "line: [[0, 0], [90, 90]]"),
        ("zone", "polygon: [[0, 0], [90, 0], [90, 90]]"),
        ("direction", "wrong: [up]"),
        ("speed", GROUND),
        ("proximity", "distance: 9"),
        ("heatmap", 'path: "out/{source}.png"'),
    ],
)
def test_an_undetected_class_is_refused_with_its_position(stage, options, root):
    text = f"  it: {{stage: {stage}, labels: [car, persn], {options}}}\n"
    column = text.index("persn") + 1
    assert refused(DETECT + text, root) == [
        f"5:{column}: it.labels: no detector above finds 'persn'; did you mean 'person'?"
    ]
    assert refused(DETECT + text.replace("persn", "person"), root) == []
    assert refused(DETECT.replace("demo", "demo, labels: [car]") + text.replace("persn", "person"), root) == [
        f"5:{column}: it.labels: detect keeps no 'person': its labels are car; add it there"
    ]


def test_classes_of_other_options_are_checked(root):
    text = "  near: {stage: proximity, distance: 9, labels: [person], others: [car, bkie]}\n"
    assert refused(DETECT + text, root) == ["5:73: near.others: no detector above finds 'bkie'; did you mean 'bike'?"]


def test_a_class_may_come_from_any_detector_above_or_one_of_unknown_classes(root):
    from streamkit.core.stage import BatchStage, Collecting, default_registry, stage

    registry = default_registry()
    with Collecting(registry):

        @stage("own", reads="pixels", writes="detections")
        class UserStage(BatchStage):
            """Finds what nobody knows."""

    two = (
        "  cars: {stage: detect, model: demo, labels: [car]}\n  others: {stage: detect, model: demo, labels: [bike]}\n"
        "  track: {}\n  it: {stage: zone, polygon: [[0, 0], [90, 0], [90, 90]], labels: [%s]}\n"
    )
    assert refused(two % "car, bike", root) == []
    assert len(refused(two % "person", root)) == 1
    assert refused("  own: {}\n" + two % "tree", root, registry) == []
    beside = "  own: {}\n" + two.replace("model: demo", "model: demo, from: decode", 1)
    assert len(refused(beside % "tree", root, registry)) == 1, "one that is not above says nothing"
