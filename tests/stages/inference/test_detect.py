"""preprocess, infer, postprocess and the composite detect, with the network that ships."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Color, Frame, Surface
from streamkit.core.stage import Context
from streamkit.models.card import load_card
from streamkit.ops.color import from_rgb
from streamkit.ops.preprocess import preprocess_reference
from streamkit.stages.inference.detectors import Detect
from streamkit.stages.inference.infer import Infer
from streamkit.stages.inference.postprocess import Postprocess
from streamkit.stages.inference.preprocess import Preprocess
from streamkit.stages.sources.source import VideoSource
from streamkit.testing.kit import run_stage

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def card():
    return load_card(ROOT / "models" / "demo.yaml")


@pytest.fixture(scope="module")
def street() -> list[Frame]:
    """Frames 0, 20, 40 and 60 of the street that ships."""
    street_frames = []
    source = VideoSource(uri=str(ROOT / "samples" / "street.mp4"), every=20, end=2.5)
    for frame in run_stage(source):
        street_frames.append(frame)
    return street_frames[:4]


def context(sizes=(1, 2, 4)) -> Context:
    return Context("detect.postprocess", batch_sizes=sizes, counters=Counters())


def opened(stage, sizes=(1, 2, 4)):
    stage.context = context(sizes)
    stage.open()
    return stage


def copies(frames: list[Frame]) -> list[Frame]:
    return [dataclasses.replace(frame, tables={}, events=[]) for frame in frames]


@pytest.fixture(scope="module")
def outputs(card, street):
    """A batch of all frames behind the network, and the closed-over stages that made it."""
    batch = opened(Preprocess(model=card)).process(Batch(copies(street)))
    infer = opened(Infer(model=card))
    batch = infer.process(batch)
    infer.close()
    return batch


def read(card, outputs, **options) -> tuple[Batch, Counters]:
    stage = opened(Postprocess(model=card, **options))
    batch = stage.process(dataclasses.replace(outputs, outputs=dict(outputs.outputs), tables={}))
    stage.close()
    return batch, stage.context.counters


# ------------------------------------------------------------------------------------------------------- preprocess


def test_preprocess_equals_the_reference_for_any_image_size(card, street):
    rng = np.random.default_rng(0)
    small = Surface(from_rgb(rng.integers(0, 255, (51, 37, 3)).astype(np.uint8), Color("bt601")), Color("bt601"))
    frames = [*copies(street)[:1], Frame("b", 0, 0.0, 37, 51, small)]
    stage = opened(Preprocess(model=card))
    batch = stage.process(Batch(frames))
    surfaces = [frame.surface for frame in frames]
    sizes = [(frame.width, frame.height) for frame in frames]
    wanted = preprocess_reference(surfaces, sizes, stage._spec)
    assert batch.tensor.shape == wanted.shape == (2, 3, 384, 640)
    assert np.abs(batch.tensor - wanted).max() <= 1.6 / 255
    assert batch.geometry.shape == (2, 4)
    assert batch.geometry.dtype == np.float32
    np.testing.assert_allclose(batch.geometry[1, :2], 384 / 51, rtol=5e-3)  # edges are on whole pixels


@pytest.mark.parametrize(("n", "sizes", "rows"), [(1, (1, 2, 4), 1), (3, (1, 2, 4), 4), (4, (4,), 4), (3, (1, 2), 3)])
def test_a_partial_batch_is_padded_to_a_warmed_size(card, street, n, sizes, rows):
    batch = opened(Preprocess(model=card), sizes).process(Batch(copies(street)[:n]))
    assert batch.tensor.shape[0] == rows
    assert len(batch.geometry) == len(batch) == n


def test_preprocess_needs_pixels(card):
    with pytest.raises(ValueError, match="frames with pixels"):
        opened(Preprocess(model=card)).process(Batch([Frame("a", 0, 0.0, 64, 48)]))


# ------------------------------------------------------------------------------------------------------------ infer


def test_infer_returns_outputs_of_every_row_and_releases_the_tensor(outputs, street):
    assert outputs.tensor is None
    assert outputs.outputs
    assert all(len(output) == len(street) for output in outputs.outputs.values())
    assert all(np.isfinite(output).all() for output in outputs.outputs.values())


def test_infer_needs_a_tensor(card, street):
    infer = opened(Infer(model=card), (1,))
    with pytest.raises(ValueError, match="put preprocess before it"):
        infer.process(Batch(copies(street)))
    infer.close()
    infer.close()  # also where it is closed already


# ------------------------------------------------------------------------------------------------------ postprocess


def test_the_table_has_the_stages_name_and_boxes_within_the_image(card, outputs, street):
    batch, _ = read(card, outputs)
    assert list(batch.tables) == ["detect"]
    assert batch.outputs == {}
    table = batch.table("detect")
    assert table.labels == card.labels
    assert len(table) > 10
    assert set(table.batch_row.tolist()) == set(range(len(street)))
    assert (np.diff(table.batch_row) >= 0).all()
    assert (table.score >= np.float32(card.score)).all()
    limits = np.array([street[0].width, street[0].height] * 2)
    assert ((table.xyxy >= 0) & (table.xyxy <= limits)).all()
    for part in table.split(len(street)):
        assert (np.diff(part.score) <= 0).all()


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        ({"min_score": 0.8}, lambda t: t.score >= np.float32(0.8)),
        ({"labels": ["car"]}, lambda t: t.class_id == 0),
        ({"min_score": {"person": 0.99}}, lambda t: (t.class_id != 1) | (t.score >= np.float32(0.99))),
        ({"min_size": 20}, lambda t: np.minimum(*(t.xyxy[:, 2:] - t.xyxy[:, :2]).T) >= 20),
        ({"max_size": 60}, lambda t: np.maximum(*(t.xyxy[:, 2:] - t.xyxy[:, :2]).T) <= 60),
    ],
)
def test_each_filter_keeps_the_selected_objects(card, outputs, options, keeps):
    plain = read(card, outputs)[0].table("detect")
    table = read(card, outputs, **options)[0].table("detect")
    rows = keeps(plain)
    assert 0 < rows.sum() < len(plain)  # or the test would say nothing
    np.testing.assert_array_equal(table.xyxy, plain.xyxy[rows])
    np.testing.assert_array_equal(table.class_id, plain.class_id[rows])


def test_top_k_keeps_the_best_objects_of_each_frame(card, outputs, street):
    plain = read(card, outputs)[0].table("detect").split(len(street))
    table = read(card, outputs, top_k=2)[0].table("detect").split(len(street))
    for best, all_ in zip(table, plain, strict=True):
        np.testing.assert_array_equal(best.score, all_.score[:2])


def test_removed_objects_are_counted(card, outputs):
    plain, before = read(card, outputs)
    few, counters = read(card, outputs, min_size=20, top_k=3)
    assert counters["boxes removed: size"] > before["boxes removed: size"]
    assert len(few.table("detect")) < len(plain.table("detect"))


@pytest.mark.parametrize("options", [{"labels": ["cra"]}, {"min_score": {"cra": 0.3}}])
@pytest.mark.parametrize("kind", [Postprocess, Detect])
def test_a_label_that_the_model_lacks_is_refused(card, kind, options):
    with pytest.raises(ValueError, match=r"demo has no class 'cra'.*car"):
        kind(model=card, **options)


# ----------------------------------------------------------------------------------------------------------- detect


def test_detect_equals_its_three_parts_with_their_options(card):
    stage = Detect(model=card, min_score=0.5, threads=2, top_k=7, engine="fused")
    parts = {part.name: part for part in stage.parts()}
    assert {name: part.type for name, part in parts.items()} == {
        "preprocess": Preprocess,
        "infer": Infer,
        "postprocess": Postprocess,
    }
    assert parts["preprocess"].options == {"model": card}
    assert parts["infer"].options == {
        "model": card,
        "engine": "fused",
        "precision": "auto",
        "threads": 2,
        "prompts": None,
    }
    assert parts["postprocess"].options == {
        "model": card,
        "min_score": 0.5,
        "iou": None,
        "class_agnostic": False,
        "multi_label": False,
        "labels": None,
        "prompts": None,
        "top_k": 7,
        "min_size": 0.0,
        "max_size": None,
        "roi": None,
        "units": "pixels",
        "anchor": "foot",
        "tiles": None,
    }
    fields = {f.name for f in dataclasses.fields(Detect)}
    part_options = {name for part in parts.values() for name in part.options}
    assert fields - {"of", "pad", "batch", "every"} == part_options  # no option is lost on the way; these are for crops
    look = Detect(model=card, every=3).parts()[0]
    assert (look.name, look.options["every"]) == ("regions", 3)


def test_detect_refuses_a_card_of_another_task(card):
    with pytest.raises(ValueError, match="task: detect; demo has task: pose, which the stage pose runs"):
        Detect(model=dataclasses.replace(card, task="pose"))


def test_multi_label_needs_anchors_with_a_score_per_class(card):
    assert Detect(model=dataclasses.replace(card, family="yolov8"), multi_label=True).multi_label
    with pytest.raises(
        ValueError, match="families yolov8, yolov8_pose, yolov8_seg, yolov5, yolo_world, and demo is of family yolo_e2e"
    ):
        Detect(model=dataclasses.replace(card, family="yolo_e2e"), multi_label=True)


@pytest.mark.parametrize("batch", [1, 3])
def test_detections_do_not_depend_on_the_batch(card, outputs, street, batch):
    frames = run_stage(Detect(model=card), copies(street), batch=batch)
    wanted = read(card, outputs)[0].table("detect").split(len(street))
    for frame, table in zip(frames, wanted, strict=True):
        detected = frame.tables["detect"]
        assert detected.label == table.label
        np.testing.assert_allclose(detected.xyxy, table.xyxy, atol=0.05)
        np.testing.assert_allclose(detected.score, table.score, atol=1e-4)


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_detections(card, run_pipeline):
    text = f"""
sources: {{a: {ROOT}/samples/street.mp4}}
stages:
  detect: {{model: {card.path}}}
  collect: {{}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=40) for device in ("cpu", "cuda"))
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    counts = [[len(rows) for _, rows in run.boxes("a")] for run in (cpu, gpu)]
    assert abs(sum(counts[0]) - sum(counts[1])) <= 0.02 * sum(counts[0])


def test_a_network_with_ignored_masks_gives_boxes(tmp_path, street):
    """The card drops the masks; the boxes are those of the same network without them."""
    outputs = {"dets": [1, 2, 4], "labels": [1, 2, 2]}
    values = {
        "dets": np.array([[[0.5, 0.5, 0.2, 0.2], [0.2, 0.2, 0.1, 0.1]]]),
        "labels": np.array([[[3.0, -9.0], [-9.0, 2.0]]]),
    }
    shaped(tmp_path / "boxes.onnx", outputs, image=[1, 3, 64, 64], values=values)
    shaped(tmp_path / "masks.onnx", outputs | {"masks": [1, 2, 16, 16]}, image=[1, 3, 64, 64], values=values)
    text = "task: detect\nfamily: detr\nfile: {}\ninput: {{size: [64, 64], resize: stretch}}\nlabels: [cat, dog]\n"
    (tmp_path / "boxes.yaml").write_text(text.format("boxes.onnx"))
    (tmp_path / "masks.yaml").write_text(text.format("masks.onnx") + "ignore_outputs: [masks]\n")
    tables = [
        frame.detections
        for name in ("boxes", "masks")
        for frame in run_stage(Detect(model=load_card(tmp_path / f"{name}.yaml")), copies(street[:1]))
    ]
    assert tables[0].label == tables[1].label == ["cat", "dog"]
    assert np.array_equal(tables[0].xyxy, tables[1].xyxy)
