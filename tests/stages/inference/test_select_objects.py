"""Which objects a network is asked about, and when again."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.config.diagram import as_text
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.stage import BatchStage, Collecting, default_registry, stage
from streamkit.core.units import Of
from streamkit.models.card import find_card, load_card
from streamkit.stages.inference.crop_models import Classify, Embed
from streamkit.stages.inference.postprocess import Postprocess
from streamkit.stages.inference.preprocess import Preprocess
from streamkit.stages.inference.select_objects import INFERRED, TOO_SMALL, UNTRACKED, SelectFrames, SelectObjects
from streamkit.testing.kit import detections, frames, run_nodes, run_stage

ROOT = Path(__file__).resolve().parents[3]
BOX = [10, 10, 50, 50]


def select(footage, batch=4, **options):
    """The (frame index, row_id) of each crop, with the instance: the selection itself, without what follows it."""
    stage = SelectObjects(of=options.pop("of", Of("detect")), **options)
    stage.context = type(stage.context)("x")
    from streamkit.testing.kit import _batches

    states = {}
    selected = []
    for batch_of_frames in _batches(footage, (batch,)):
        for frame in batch_of_frames.frames:
            states.setdefault(frame.source, stage.new_state(frame.source))
        selection = stage.process(batch_of_frames, states)
        assert selection.rows.dtype == np.int32
        assert (np.diff(selection.rows) >= 0).all()
        pairs = zip(selection.rows.tolist(), selection.crops.row_id.tolist(), strict=True)
        selected += [
            (batch_of_frames.frames[row].source, batch_of_frames.frames[row].index, row_id) for row, row_id in pairs
        ]
    return selected, stage


def film(n=10, step_s=0.1, source="test", box=BOX, tracks=(7,), **more):
    footage = frames(n, source, step_s=step_s)
    for frame in footage:
        frame.detections = detections([box] * len(tracks), track_id=list(tracks), label=["car"] * len(tracks), **more)
    return footage


@pytest.mark.parametrize("batch", [1, 3, 10])
def test_new_tracks_are_selected_and_again_at_intervals(batch):
    crops, stage = select(film(25), batch, every=1.0)
    assert [index for _, index, _ in crops] == [0, 10, 20]
    assert stage.context.counters[INFERRED] == 3


@pytest.mark.parametrize(
    ("every", "times_s", "rows"),
    [
        (1.0, [0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4], [0, 3, 6]),
        (0.0, [0.0, 0.4, 0.8], [0, 1, 2]),
        (1.0, [5.0, 5.5, 1.0, 1.5, 2.0], [0, 2, 4]),  # time that goes back
    ],
)
def test_whole_frames_are_selected_at_intervals(every, times_s, rows):
    stage = SelectFrames(every=every)
    timed = frames(len(times_s), "a")
    for frame, time_s in zip(timed, times_s, strict=True):
        frame.pts_s = time_s
    states = {"a": stage.new_state("a")}
    from streamkit.testing.kit import _batches

    chosen = []
    for batch in _batches(timed, (2,)):
        first = batch.frames[0].index
        selection = stage.process(batch, states)
        chosen += [first + row for row in selection.rows.tolist()]
        assert selection.crops.rects.tolist() == [[0, 0, 640, 360]] * len(selection.rows)
    assert chosen == rows


def test_the_selection_does_not_depend_on_the_frame_rate():
    times = [
        [index * step for _, index, _ in select(film(n, step), every=1.0)[0]] for n, step in ((40, 0.1), (80, 0.05))
    ]
    np.testing.assert_allclose(times[0], times[1])


def test_sources_have_separate_tracks():
    mixed = [frame for pair in zip(film(3), film(3, source="b"), strict=True) for frame in pair]
    assert select(mixed, every=60)[0] == [("test", 0, 0), ("b", 0, 0)]


def test_without_a_tracker_every_object_is_selected():
    footage = frames(3)
    for frame in footage:
        frame.detections = detections([BOX, BOX])
    assert len(select(footage, every=60)[0]) == 6
    assert len(select(film(3, tracks=(-1, 7)), every=60)[0]) == 3 + 1


def test_untracked_objects_are_skipped_and_counted_by_option():
    crops, stage = select(film(3, tracks=(-1, 7)), every=60, untracked=False)
    assert crops == [("test", 0, 1)]
    assert stage.context.counters[UNTRACKED] == 3
    assert stage.context.counters[TOO_SMALL] == 0
    assert len(select(film(3, tracks=(-1, -1), box=[10, 10, 12, 12]), untracked=False, min_size=16)[0]) == 0


def test_classify_and_embed_skip_untracked_objects():
    assert not Classify(model=load_card(find_card("color")), of=Of("detect")).parts()[0].options["untracked"]
    assert not Embed(model=load_card(find_card("look")), of=Of("detect")).parts()[0].options["untracked"]


def test_a_better_view_is_selected_at_once():
    footage = film(5)
    for frame, side, score in zip(footage, [20, 25, 30, 30, 31], [0.5, 0.5, 0.5, 1, 1], strict=True):
        frame.detections = detections([[10, 10, 10 + side, 10 + side]], [score], track_id=[7])
    # 200, 312, 450: more than twice the first; 900: not more than twice 450; 961 is.
    assert [index for _, index, _ in select(footage, every=60, requery_ratio=2.0)[0]] == [0, 2, 4]
    assert [index for _, index, _ in select(footage, every=60, requery_ratio=9.0)[0]] == [0]


def test_a_track_after_a_long_absence_starts_over():
    footage = film(31)
    for frame in footage[2:29]:
        frame.detections = detections([BOX], track_id=[8])
    assert [i for _, i, _ in select(footage, every=60, track_ttl=2)[0]] == [0, 2, 29]
    assert [i for _, i, _ in select(footage, every=60, track_ttl=5)[0]] == [0, 2]


@pytest.mark.parametrize(("away_s", "times"), [(9.9, 1), (10.1, 2)])
def test_the_default_absence_is_ten_seconds(away_s, times):
    sightings = film(2, away_s)
    assert len(select(sightings, every=60)[0]) == times


def test_forgotten_tracks_release_their_memory():
    footage = frames(200, step_s=0.1)
    for frame in footage:
        frame.detections = detections([BOX], track_id=[frame.index])
    stage = SelectObjects(of=Of("detect"), track_ttl=1.0)
    stage.context = type(stage.context)("x")
    from streamkit.testing.kit import _batches

    states = {"test": stage.new_state("test")}
    for batch in _batches(footage, (7,)):
        stage.process(batch, states)
    assert len(states["test"].by_track) <= 22


def test_small_objects_are_counted_and_selected_once_large():
    footage = film(4)
    for frame, side in zip(footage, [8, 12, 16, 20], strict=True):
        frame.detections = detections([[0, 0, side, 90]], track_id=[7])
    crops, stage = select(footage, every=60, min_size=16, requery_ratio=99)
    assert [index for _, index, _ in crops] == [2]
    assert stage.context.counters[TOO_SMALL] == 2
    beside = film(1, box=[700, 10, 900, 50])
    assert select(beside)[0] == []


def test_predicted_objects_are_not_selected():
    footage = film(3, predicted=np.array([True]))
    assert select(footage)[0] == []


def test_objects_are_selected_by_label():
    footage = frames(1)
    footage[0].detections = detections([BOX, BOX, BOX], label=["car", "person", "car"])
    assert [row_id for _, _, row_id in select(footage, of=Of("detect", ("car",)))[0]] == [0, 2]
    assert [row_id for _, _, row_id in select(footage, of=Of("detect", ("person", "dog")))[0]] == [1]


def test_a_time_jump_back_selects_again():
    footage = film(3)
    footage[2].pts_s = -50.0
    assert [index for _, index, _ in select(footage, every=60)[0]] == [0, 2]


# ------------------------------------------------------------------------------------------------- what check refuses

HEAD = """\
sources: {a: samples/street.mp4}
stages:
  detect: {model: demo, labels: [car, person]}
"""


def problems(text, root):
    config = read_text(HEAD + text, folder=root)
    try:
        build(config)
    except ConfigError as error:
        return [str(problem).partition(":")[2] for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("  c: {stage: classify, model: color, of: detect.car}", []),
        ("  c: {stage: classify, model: color, of: {stage: detect, labels: [car, person]}}", []),
        (
            "  c: {stage: classify, model: color, of: detct}",
            ["4:42: c.of: there is no stage 'detct'; did you mean 'detect'?"],
        ),
        (
            "  c: {stage: classify, model: color, of: zzz}",
            ["4:42: c.of: there is no stage 'zzz'; objects come from detect"],
        ),
        (
            "  c: {stage: classify, model: color, of: {stage: draw, labels: [car]}}\n  draw: {}",
            ["4:50: c.of: draw finds no objects; objects come from detect"],
        ),
        (
            "  c: {stage: classify, model: color, of: late}\n  late: {stage: detect, model: demo, from: decode}",
            ["4:42: c.of: late does not stand above this stage; objects come from detect"],
        ),
        (
            "  c: {stage: classify, model: color, of: detect.caar}",
            ["4:42: c.of: detect has no class 'caar'; did you mean 'car'?"],
        ),
        (
            "  c: {stage: classify, model: color, of: {stage: detect, labels: [bike]}}",
            ["4:66: c.of: detect keeps no 'bike': its labels are car, person"],
        ),
        (
            "  c: {stage: classify, model: demo, of: detect}",
            ["4:6: c: classify needs a card with task: classify; demo has task: detect, which the stage detect runs"],
        ),
        (
            "  c: {stage: embed, model: color, of: detect}",
            ["4:6: c: embed needs a card with task: embed; color has task: classify, which the stage classify runs"],
        ),
        (
            "  c: {stage: classify, model: color, of: detect, requery_ratio: 0.5}",
            ["4:6: c: requery_ratio must be 1 or more: how many times better a view has to be, got 0.5"],
        ),
        (
            "  c: {stage: classify, model: color, of: [detect]}",
            [
                "4:42: c.of must be a stage, a stage and a label as in detect.person, or "
                "{stage: detect, labels: [person]}, got ['detect']"
            ],
        ),
        (
            "  c: {stage: classify, model: color, of: {stage: detect, labels: []}}",
            [
                "4:42: c.of must name a class in labels, or leave labels out for all objects, got "
                "{'stage': 'detect', 'labels': []}"
            ],
        ),
    ],
)
def test_check_reports_invalid_selections(text, messages, root):
    assert problems(text, root) == messages


def test_of_without_a_detector_is_refused(root):
    config = read_text("sources: {a: samples/street.mp4}\nstages:\n  c: {stage: embed, model: look, of: detect}")
    with pytest.raises(ConfigError) as caught:
        build(config)
    assert any("put a detector such as detect above it" in str(p) for p in caught.value.problems)


def test_the_graph_shows_copied_columns(root):
    graph = build(read_text(HEAD + "  c: {stage: classify, model: color, of: detect}", folder=root))
    text = as_text(graph, "cuda")
    assert "c.select: the rectangles to cut go from host to device, one small copy a batch" in text
    assert "c.postprocess: the results go from device to host, one copy a batch" in text
    parts = ("select", "preprocess", "infer", "postprocess", "apply")
    assert [graph.nodes[f"c.{name}"].on_device for name in parts] == [False, True, True, True, False]
    assert graph.nodes["c.preprocess"].type is Preprocess
    assert graph.nodes["detect.postprocess"].type is Postprocess


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ("detect", Of("detect")),
        ("detect.traffic light", Of("detect", ("traffic light",))),
        ("detect.a.b", Of("detect", ("a.b",))),
        ({"stage": "detect", "labels": ["a", "b"]}, Of("detect", ("a", "b"))),
        ({"stage": "detect"}, Of("detect")),
    ],
)
def test_of_accepts_all_its_forms(value, parsed):
    assert Of.read(value) == parsed
    assert Of.read(parsed) is parsed
    assert str(Of("detect", ("a", "b"))) == "detect.a|b"


@pytest.mark.parametrize(
    "value", ["", 3, None, {"labels": ["a"]}, {"stage": "a", "label": "b"}, {"stage": "a", "labels": "b"}]
)
def test_invalid_values_of_of_are_refused(value):
    with pytest.raises(ValueError, match="must be a stage, a stage and a label"):
        Of.read(value)


# ------------------------------------------------------------------------------------------------- bounded in memory


def crowd(n=50, size=24):
    """A frame with many objects in rows, each of a color of its own."""
    rng = np.random.default_rng(3)
    rgb = np.full((10 * size, 10 * size, 3), 90, np.uint8)
    boxes = []
    for i in range(n):
        y = size * (i // 10)
        x = size * (i % 10)
        rgb[y : y + size, x : x + size] = rng.integers(0, 256, 3)
        boxes.append([x, y, x + size, y + size])
    (frame,) = frames(1, pixels=rgb)
    frame.detections = detections(boxes, label=["car"] * n)
    return frame


def test_only_the_crops_of_a_run_are_in_memory(monkeypatch):
    from streamkit.models.session import Session
    from streamkit.ops import preprocess

    happened = []
    cut = preprocess.preprocess
    run = Session.run

    def cutting(*args, **options):
        happened.append(("cut", options["batch"]))
        return cut(*args, **options)

    def running(self, inputs):
        happened.append(("run", len(inputs[self.image_input])))
        return run(self, inputs)

    monkeypatch.setattr(preprocess, "preprocess", cutting)
    monkeypatch.setattr(Session, "run", running)
    color = load_card(find_card("color"))
    answers = []
    for batch in (4, 64):
        (frame,) = run_stage(Classify(model=color, of=Of("detect"), batch=batch), [crowd()])
        cuts = [call for call in happened if call[0] == "cut"]
        answers.append(frame.detections.extra["attributes"].tolist())
        if batch == 4:
            at = happened.index(cuts[0])  # what comes before warms the network
            assert happened[at:] == [("cut", 4), ("run", 4)] * 12 + [("cut", 2), ("run", 2)]
        else:
            assert cuts == [("cut", 50)], "as many as a run takes are cut in one go"
        happened.clear()
    for small_batch, large_batch in zip(*answers, strict=True):
        assert small_batch["classify"]["label"] == large_batch["classify"]["label"]
        assert small_batch["classify"]["score"] == pytest.approx(large_batch["classify"]["score"], abs=2e-4)


def test_a_stage_between_gets_all_crops_as_an_array():
    seen = []

    with Collecting(default_registry()) as registry:

        @stage("looking", reads="tensor", writes="tensor")
        class Looking(BatchStage):
            """Look at the tensor."""

            def process(self, batch):
                seen.append((type(batch.tensor), batch.tensor.shape))
                return batch

        registry.add(Looking)
    text = """
sources: {a: samples/street.mp4}
stages:
  detect: {model: demo}
  c: {stage: classify, model: color, of: detect, batch: 4, insert: {after: preprocess, stage: looking}}
"""
    nodes = build(read_text(text, folder=ROOT, registry=registry)).nodes
    chain = [node for id_, node in nodes.items() if id_.startswith("c.")]
    (frame,) = run_nodes(chain, [crowd()])
    assert [(kind, shape[0]) for kind, shape in seen] == [(np.ndarray, 50)]
    assert len(frame.detections.extra["attributes"]) == 50
