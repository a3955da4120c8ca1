"""What `check` refuses and warns of in pipelines that hide objects; tests/stages/video/test_draw.py has the pixels."""

from typing import Annotated

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Sink, default_registry, stage
from streamkit.ops.boxes import iou_matrix

HEAD = "sources: {street: samples/street.mp4}\nstages:\n"
FOLLOWS = "{confirm: 0, new_score: 0.35, high_score: 0.35}"


def problems_and_warnings(root, *stages, registry=None):
    """What `check` refuses, and what it warns of."""
    config = read_text(HEAD + "".join(f"  {line}\n" for line in stages), folder=root, registry=registry)
    try:
        build(config)
    except ConfigError as error:
        return [str(problem).removeprefix("pipeline.yaml:") for problem in error.problems], []
    return [], [str(warning).removeprefix("pipeline.yaml:") for warning in config.warnings]


@pytest.mark.parametrize(
    ("detect", "blur", "text"),
    [
        ("labels: [car]", "[person]", "detect keeps no 'person': its labels are car; add it there"),
        ("labels: [car]", "{labels: [person]}", "detect keeps no 'person': its labels are car; add it there"),
        ("labels: []", "[person]", "detect keeps no 'person': its labels are none; add it there"),
        ("labels: [car]", "[persn]", "no detector above finds 'persn'; it has: car"),
    ],
)
def test_hiding_a_class_that_the_detector_drops_is_refused(detect, blur, text, root):
    problems, _ = problems_and_warnings(root, f"detect: {{model: demo, {detect}}}", f"draw: {{blur: {blur}}}")
    assert len(problems) == 1
    assert f": draw.blur: {text.partition(';')[0]}" in problems[0]


def test_a_class_kept_by_any_detector_can_be_hidden(root):
    more = "more: {stage: detect, model: demo, labels: [person]}"
    assert problems_and_warnings(root, "detect: {model: demo, labels: [car]}", more, "draw: {blur: [person]}") == (
        [],
        [],
    )


CLEAR = "3:32: draw.blur: on frames that detect.every: 5 leaves out, nothing is hidden; "


@pytest.mark.parametrize("blur", ["[person]", "all", "{labels: [person], zone: [[0, 0], [90, 0], [90, 90]]}"])
@pytest.mark.parametrize("on", ["", ", from: detect"], ids=["alone", "beside a tracker"])
def test_hiding_is_refused_if_skipped_frames_would_be_clear(blur, on, root):
    beside = ("track: {}", "jsonl: {path: out/a.jsonl}") if on else ()
    problems, _ = problems_and_warnings(root, "detect: {model: demo, every: 5}", *beside, f"draw: {{blur: {blur}{on}}}")
    assert problems == [CLEAR + "put a tracker, `track: {}`, between detect and draw, or leave out every"]


@pytest.mark.parametrize(
    ("blur", "detect"),
    [
        ("{zone: [[0, 0], [90, 0], [90, 90]]}", "detect: {model: demo, every: 5}"),
        ("[person]", "detect: {model: demo, every: 1}"),
        ("[car]", "detect: {model: demo}\n  more: {stage: detect, model: demo, every: 5, labels: [person]}"),
    ],
    ids=["a zone alone", "every frame", "other classes"],
)
def test_hiding_on_every_frame_is_accepted(blur, detect, root):
    problems, warnings = problems_and_warnings(root, detect, f"draw: {{blur: {blur}}}")
    assert problems == []
    assert not any("draw.blur" in warning for warning in warnings)


def test_the_suggested_fix_shows_nothing_hidden_by_stages_above(root):
    hiding = "faces: {stage: draw, blur: all}", "zones: {stage: draw, pixelate: {zone: [[0, 0], [90, 0], [90, 90]]}}"
    above = "detect: {model: demo}", "track: {}", "door: {stage: line_counter, line: [[0, 0], [9, 9]]}"
    problems, _ = problems_and_warnings(
        root, *above, *hiding, "snapshot: {path: 'out/{source}/{time}.jpg', when: door, from: door}"
    )
    assert len(problems) == 1
    assert "snapshot would show what faces, zones hides; write from: zones, first where" in problems[0]
    problems, _ = problems_and_warnings(
        root, *above, *hiding, "snapshot: {path: 'out/{source}/{time}.jpg', when: door, from: zones}"
    )
    assert problems == []


@pytest.mark.parametrize(
    ("detect", "track", "way"),
    [
        ("", "", "new_score: 0.35, high_score: 0.35, confirm: 0"),
        ("", "confirm: 0, new_score: 0.4", "new_score: 0.35, high_score: 0.35"),
        (", min_score: 0.5", "", "confirm: 0"),
        (", min_score: 0.05", "confirm: 0", "new_score: 0.05, high_score: 0.05, low_score: 0.05"),
        (", min_score: {person: 0.2}", "confirm: 0", "new_score: 0.2, high_score: 0.2"),
        ("", "confirm: 0, new_score: 0.35, high_score: 0.35", None),
        (", min_score: 0.6", "confirm: 0", None),
    ],
)
def test_objects_a_tracker_does_not_follow_give_a_warning_with_the_fix(detect, track, way, root):
    stages = f"detect: {{model: demo, every: 5{detect}}}", f"track: {{{track}}}", "draw: {blur: [person]}"
    problems, warnings = problems_and_warnings(root, *stages)
    assert problems == []
    if way is None:
        assert warnings == []
    else:
        text = "leaves out, weak and new objects, which track does not follow, are clear"
        assert [warning.partition("every: 5 ")[2] for warning in warnings] == [
            f"{text}; with {way} under track it follows all"
        ]


def test_the_suggested_fix_tracks_every_object_on_skipped_frames(run_pipeline):
    text = f"""
sources: {{street: samples/street.mp4}}
stages:
  detect: {{model: demo, every: 5}}
  track: {FOLLOWS}
  draw: {{blur: all}}
  collect: {{}}
"""
    records = run_pipeline(text, limit=60).records["street"]
    tracked = [
        {detection["track_id"]: detection["box"] for detection in record["objects"] if "track_id" in detection}
        for record in records
    ]
    assert sum(map(len, tracked)) > 100
    for number, (record, here) in enumerate(zip(records, tracked, strict=True)):
        last = tracked[number - number % 5].keys()
        assert here.keys() <= last or number % 5 == 0
        assert len(last - here.keys()) <= 1, "but for one that has left the picture"
        without = [detection["box"] for detection in record["objects"] if "track_id" not in detection]
        overlap = iou_matrix(np.array(without).reshape(-1, 4), np.array([*here.values()]).reshape(-1, 4))
        assert (overlap.max(axis=1, initial=0) > 0.6).all(), "but for a second box of one object"


def test_a_plugin_tracker_may_not_predict_skipped_frames(root):
    config = read_text(
        "plugins: [plugins]\n" + HEAD + "  detect: {model: demo, every: 5}\n  follow: {stage: simple_track}\n"
        "  draw: {blur: [person]}\n",
        folder=root,
    )
    build(config)
    assert [str(warning).partition("leaves out, ")[2] for warning in config.warnings] == [
        "objects stay visible if follow does not predict them; leave out every to be sure"
    ]


def test_objects_within_objects_are_missing_on_skipped_frames(root):
    parts = "plate: {stage: detect, model: demo, of: detect.car}", "draw: {blur: [person]}"
    problems, _ = problems_and_warnings(root, "detect: {model: demo, every: 5, labels: [car]}", "track: {}", *parts)
    assert problems == [CLEAR + "leave out every"]


@pytest.mark.parametrize(
    ("blur", "text"),
    [
        ("person", "4:16: draw.blur must be all, or a list of classes: write [person], got 'person'"),
        (
            "true",
            "4:16: draw.blur must be all, or a list of classes: write all, or classes such as [person], got True",
        ),
        (
            "{labels: [], zone: [[0, 0], [90, 0], [90, 90]]}",
            "4:9: draw: blur.labels names no class; leave it out to hide the zone itself",
        ),
    ],
)
def test_an_invalid_list_of_classes_is_refused_with_the_fix(blur, text, root):
    assert problems_and_warnings(root, "detect: {model: demo}", f"draw: {{blur: {blur}}}") == ([text], [])


def printers():
    """The stages, with two sinks that have an option `show_hidden`; only one of them has to do with pixels."""
    registry = default_registry()
    with Collecting(registry):

        @stage("printer", reads="pixels", unhide_option="show_hidden")
        class Printer(Sink):
            """Print images."""

            show_hidden: Annotated[bool, "they may show everything"] = False

            def write(self, frame: Frame) -> None:
                """Nothing is printed."""

        @stage("teller", reads="detections")
        class Teller(Sink):
            """Tell of events."""

            show_hidden: Annotated[bool, "the board is wiped first"] = False

            def write(self, frame: Frame) -> None:
                """Nothing is told."""

    return registry


@pytest.mark.parametrize(
    ("written", "refused"),
    [
        ("crowd: {stage: rule, when: count(person) > 3, from: crossing}", False),
        ("crowd: {stage: rule, when: count(person) > 3, clear: count(person) < 2, from: crossing}", False),
        ("shot: {stage: snapshot, when: crossing, from: crossing}", True),
        ("shot: {stage: snapshot, when: crossing, show_hidden: true, from: crossing}", False),
        ("shot: {stage: snapshot, when: crossing, from: draw}", False),
        ("tells: {stage: teller, from: crossing}", False),
        ("prints: {stage: printer, from: crossing}", True),
        ("prints: {stage: printer, show_hidden: true, from: crossing}", False),
    ],
)
def test_only_stages_that_write_images_are_checked_for_hidden_objects(written, refused, root):
    above = "detect: {model: demo}", "track: {}", "crossing: {stage: line_counter, line: [[0, 9], [90, 9]]}"
    problems, _ = problems_and_warnings(root, *above, "draw: {blur: [person]}", written, registry=printers())
    way = "write from: draw, first where there are several, or show_hidden: true where that is meant"
    name = written.partition(":")[0]
    shown = [f"{name} would show what draw hides; {way}"] if refused else []
    assert [problem.partition(": ")[2] for problem in problems] == shown
