"""Instance masks and classes of places, with real networks on real pictures, beside the authors' way."""

import dataclasses
import os
import pickle
import weakref
from pathlib import Path

import numpy as np
import pytest
from support.cards import card_of, tiny_pose

from streamkit.core.data import Detections, Frame
from streamkit.core.records import record
from streamkit.core.stage import Collecting, Registry, Sink, stage
from streamkit.models import reference
from streamkit.models.check import frames_of
from streamkit.models.network import check_model
from streamkit.ops import rle
from streamkit.ops.transfer import LateArray
from streamkit.stages.inference.detectors import Segment
from streamkit.stages.inference.inference_regions import Tiles
from streamkit.stages.inference.postprocess import best
from streamkit.testing.kit import run_stage

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cards")


@pytest.fixture(scope="module")
def seg(test_data, folder):
    return card_of("seg", test_data, folder)


@pytest.fixture(scope="module")
def deeplab(test_data, folder):
    return card_of("deeplab", test_data, folder)


@pytest.fixture(scope="module")
def pictures(test_data) -> list[Frame]:
    """Real pictures of several sizes."""
    coco_frames = frames_of([*sorted((test_data / "coco" / "val2017").glob("*.jpg"))[:10]])
    return coco_frames + frames_of([test_data / "videos" / "one-by-one-person-detection.mp4"], 3)


def copies(frames):
    return [dataclasses.replace(frame, tables={}, events=[], facts={}) for frame in frames]


def session_of(card):
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    return ort.InferenceSession(card.file, providers=["CPUExecutionProvider"])


# --------------------------------------------------------------------------------------------------- instance masks


def plain_masks(card, frame):
    """The authors' way, `process_mask_native`: logits enlarged to the picture, cut at the box, above 0."""
    import cv2

    spec = check_model(card).input
    tensor, geometry = reference.tensor(reference.rgb(frame.surface, frame.width, frame.height), spec)
    rows, prototypes = session_of(card).run(None, {"images": tensor})
    rows = rows[0].T
    score = rows[:, 4:84].max(axis=1)
    rows = rows[score >= card.score]
    score = score[score >= card.score]
    order = np.argsort(-score, kind="stable")
    rows = rows[order]
    score = score[order]
    scale_x, scale_y, left, top = geometry
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1)
    picked = []
    for i, row in enumerate(rows):
        c = row[4:84].argmax()
        near = [j for j in picked if rows[j][4:84].argmax() == c and reference.overlap(boxes[i], boxes[j]) > card.iou]
        if not near:
            picked.append(i)
    instances = []
    for i in picked:
        x1, y1, x2, y2 = (boxes[i] - [left, top, left, top]) / [scale_x, scale_y, scale_x, scale_y]
        logits = np.tensordot(rows[i][84:], prototypes[0], 1)
        whole = cv2.resize(logits, (320, 320), interpolation=cv2.INTER_LINEAR)
        across = (np.arange(frame.width) + 0.5) * scale_x + left - 0.5
        down = (np.arange(frame.height) + 0.5) * scale_y + top - 0.5
        grid = np.meshgrid(across.astype(np.float32), down.astype(np.float32))
        mask = cv2.remap(whole, *grid, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE) > 0
        x = np.arange(frame.width) + 0.5
        y = np.arange(frame.height)[:, None] + 0.5
        mask &= (x >= x1) & (x < x2) & (y >= y1) & (y < y2)
        instances.append((score[i], int(rows[i][4:84].argmax()), (x1, y1, x2, y2), mask))
    return instances


def test_instance_masks_equal_those_of_the_authors(seg, pictures):
    frames = run_stage(Segment(model=seg), copies(pictures), batch=4)
    compared = 0
    overlaps = []
    for picture, frame in zip(pictures, frames, strict=True):
        table = frame.tables["segment"]
        wanted = plain_masks(seg, picture)
        for score, class_id, box, mask in wanted:
            if score < 0.5 or mask.sum() < 1000:
                continue
            compared += 1
            same = [
                i
                for i in range(len(table))
                if table.class_id[i] == class_id and reference.overlap(table.xyxy[i].astype(float), np.array(box)) > 0.9
            ]
            if same:
                overlaps.append(rle.iou(table.extra["mask"][same[0]], rle.encode(mask, picture.width, picture.height)))
    # Two ways of making the tensor move each box a little, and weak or small masks with it.
    assert compared > 20
    assert len(overlaps) >= 0.97 * compared
    assert np.mean(overlaps) > 0.98
    assert np.min(overlaps) > 0.93


def test_masks_agree_with_annotated_ones(seg, test_data):
    from pycocotools.coco import COCO

    (annotations,) = (test_data / "coco" / "annotations").glob("*.json")
    coco = COCO(str(annotations))
    ids = sorted(coco.getImgIds())[:24]
    paths = [test_data / "coco" / "val2017" / coco.loadImgs(i)[0]["file_name"] for i in ids]
    frames = run_stage(Segment(model=seg, min_score=0.5), frames_of(paths), batch=4)
    overlaps = []
    for number, frame in zip(ids, frames, strict=True):
        table = frame.tables["segment"]
        truth = [a for a in coco.loadAnns(coco.getAnnIds(number, iscrowd=False)) if a["area"] > 4000]
        for annotation in truth:
            drawn = coco.annToRLE(annotation)
            drawn = {"size": drawn["size"], "counts": drawn["counts"].decode()}
            near = [rle.iou(mask, drawn) for mask in table.extra["mask"]]
            if near and max(near) > 0.5:
                overlaps.append(max(near))
    assert len(overlaps) > 15
    assert np.mean(overlaps) > 0.75


def test_batches_and_records_have_equal_masks(seg, pictures):
    singly, batched = (run_stage(Segment(model=seg), copies(pictures), batch=n) for n in (1, 5))
    for first, second in zip(singly, batched, strict=True):
        assert record(first) == record(second)
        for segmented in record(first)["objects"]:
            assert segmented["mask"]["size"] == [first.height, first.width]
            x1, y1, x2, y2 = segmented["box"]
            part, left, top = rle.crop(segmented["mask"])
            if part.size:
                assert left >= x1 - 1
                assert top >= y1 - 1
                assert left + part.shape[1] <= x2 + 1
                assert top + part.shape[0] <= y2 + 1


def test_objects_of_another_stage_get_masks(seg, pictures, test_data, folder, run_pipeline):
    card_of("nano", test_data, folder)
    text = f"""
sources: {{a: {test_data}/videos/one-by-one-person-detection.mp4}}
stages:
  detect: {{model: {folder}/nano.yaml}}
  masks: {{stage: segment, model: {folder}/seg.yaml, of: detect.person, min_size: 40}}
  collect: {{}}
"""
    outcome = run_pipeline(text, limit=150)
    assert outcome.code == 0
    people = [o for r in outcome.records["a"] for o in r["objects"] if o["label"] == "person"]
    others = [o for r in outcome.records["a"] for o in r["objects"] if o["label"] != "person"]
    assert len(people) > 20
    assert not any("mask" in o for o in others)
    large = [o for o in people if min(o["box"][2] - o["box"][0], o["box"][3] - o["box"][1]) > 60]
    assert sum("mask" in o for o in large) >= 0.9 * len(large) > 5
    for person in large:
        if "mask" in person:
            x1, y1, x2, y2 = person["box"]
            share = rle.area(person["mask"]) / ((x2 - x1) * (y2 - y1))
            assert 0.1 < share < 1.3  # the crop reaches a little beyond the box
    assert outcome.report["counts"]["objects inferred"] <= len(people)


def test_the_object_that_fills_the_crop_is_selected():
    table = Detections(
        np.array([[0, 0, 20, 100], [0, 0, 96, 98], [200, 0, 210, 9]], np.float32),
        np.array([0.9, 0.5, 0.8], np.float32),
        np.zeros(3, np.int32),
        np.array([0, 0, 2], np.int32),
        extra={"mask": np.array([{"size": 1}, {"size": 2}, {"size": 3}], object)},
    )
    answers = best(table, np.array([[0, 0, 100, 100], [0, 0, 9, 9], [200, 0, 210, 10]]))
    assert [answer and answer["mask"][0]["size"] for answer in answers] == [2, None, 3]


def test_masks_of_tiles_are_in_image_pixels(seg, pictures):
    tiles = Tiles((320, 320), 0.2)
    for frame in run_stage(Segment(model=seg, tiles=tiles), copies(pictures[:3]), batch=2):
        table = frame.tables["segment"]
        assert len(table)
        for box, mask in zip(table.xyxy, table.extra["mask"], strict=True):
            part, left, top = rle.crop(mask)
            middle = np.array([left + part.shape[1] / 2, top + part.shape[0] / 2])
            assert mask["size"] == [frame.height, frame.width]
            assert ((box[:2] - 1 <= middle) & (middle <= box[2:] + 1)).all() or not part.size


@pytest.fixture
def sampled(monkeypatch):
    """How many masks were sampled, by call."""
    from streamkit.ops import masks

    mask_counts = []
    right = masks._run_ends

    def counted(*arguments):
        mask_counts.append(len(arguments[1]))
        return right(*arguments)

    monkeypatch.setattr(masks, "_run_ends", counted)
    return mask_counts


SEEN: list[int] = []


with Collecting(Registry()):

    @stage("boxes")
    class Boxes(Sink):
        """Reads what most sinks read, but no masks."""

        def write(self, frame: Frame) -> None:
            assert frame.detections.xyxy.shape == (len(frame.detections), 4)
            assert "mask" in frame.detections.extra
            SEEN.append(len(frame.detections))


@pytest.mark.parametrize(
    ("rest", "reads"),
    [
        ("line_counter: {line: [[0, 200], [480, 200]]}\n  boxes: {}", False),
        ("draw: {masks: 0}\n  boxes: {}", False),
        ("draw: {}\n  boxes: {}", True),
        ("collect: {}", True),
    ],
)
def test_masks_are_computed_only_if_read(rest, reads, sampled, seg, test_data, folder, run_pipeline):
    text = f"""
sources: {{a: {test_data}/videos/vtest_480x360.mp4}}
stages:
  segment: {{model: {folder}/seg.yaml, labels: [person]}}
  track: {{}}
  {rest}
"""
    SEEN.clear()
    outcome = run_pipeline(text, limit=8, extra=[Boxes])
    assert outcome.code == 0
    assert sum(SEEN) > 8 or "boxes" not in rest
    assert bool(sampled) is reads


def test_a_loop_computes_the_masks_of_its_frames(sampled, seg, folder, test_data):
    import streamkit

    video = f"{test_data}/videos/vtest_480x360.mp4"
    some = {}
    stages = {"segment": {"model": f"{folder}/seg.yaml"}}
    for frame in streamkit.run(video, stages=stages, device="cpu", limit=6):
        if frame.index == 3:
            assert sampled == []
            some = {"table": frame.detections, "sent": pickle.loads(pickle.dumps(frame.detections))}
            assert sampled == [len(frame.detections)]
    assert sampled == [len(some["table"])]
    for mask, sent in zip(some["table"].extra["mask"], some["sent"].extra["mask"], strict=True):
        assert mask == sent
        assert mask["size"] == [360, 480]


def test_outputs_of_crops_are_retained_for_a_single_run(seg, test_data, folder, run_pipeline, monkeypatch):
    from streamkit.models.session import Session

    card_of("nano", test_data, folder)
    held = []
    peak = [0]
    right = Session.run

    def run(self, feeds):
        if len(self.outputs) == 2:  # of the network for masks
            peak[0] = max(peak[0], sum(ref() is not None for ref in held))
        outputs = right(self, feeds)
        if len(self.outputs) == 2:
            held.extend(weakref.ref(array) for array in outputs.values())
        return outputs

    monkeypatch.setattr(Session, "run", run)
    records = []
    for batch in (2, 32):
        text = f"""
sources: {{a: {test_data}/videos/vtest_480x360.mp4}}
stages:
  detect: {{model: {folder}/nano.yaml, min_score: 0.4}}
  masks: {{stage: segment, model: {folder}/seg.yaml, of: detect.person, batch: {batch}}}
  collect: {{}}
"""
        held.clear()
        outcome = run_pipeline(text, limit=8)
        assert outcome.code == 0
        assert outcome.report["counts"]["objects inferred"] > 24
        records.append(outcome.records["a"])
        if batch == 2:
            assert len(held) > 24
            assert peak[0] <= 2 * (os.cpu_count() or 1)  # two arrays for each thread of the lane
    assert records[0] == records[1]
    assert sum("mask" in o for r in records[0] for o in r["objects"]) > 16


# ------------------------------------------------------------------------------------------------- classes of places


def test_the_class_map_equals_that_of_the_network(deeplab, pictures):
    frames = run_stage(Segment(model=deeplab), copies(pictures), batch=4)
    session = session_of(deeplab)
    spec = check_model(deeplab).input
    agree = []
    for picture, frame in zip(pictures, frames, strict=True):
        assert frame.tables == {}
        rgb = reference.rgb(picture.surface, picture.width, picture.height)
        tensor, _ = reference.tensor(rgb, spec)
        classes = session.run(None, {session.get_inputs()[0].name: tensor})[0][0].argmax(axis=2)
        across = ((np.arange(picture.width) + 0.5) * 257 / picture.width).astype(int)
        down = ((np.arange(picture.height) + 0.5) * 257 / picture.height).astype(int)
        wanted = classes[down][:, across]
        drawn_classes = np.zeros_like(wanted)
        for label, mask in frame.facts["segmentation"].items():
            assert label != "background"
            drawn_classes[rle.decode(mask)] = deeplab.labels.index(label)
        agree.append((drawn_classes == wanted).mean())
    assert min(agree) > 0.99
    assert any(frame.facts["segmentation"] for frame in frames)


def test_classes_are_filtered(deeplab, pictures):
    plain = run_stage(Segment(model=deeplab), copies(pictures))
    labels = {label for frame in plain for label in frame.facts["segmentation"]}
    assert len(labels) > 2
    label = sorted(labels)[0]
    for frame in run_stage(Segment(model=deeplab, labels=[label, "background"]), copies(pictures)):
        assert set(frame.facts["segmentation"]) <= {label, "background"}
        assert "background" in frame.facts["segmentation"]
    for before, frame in zip(plain, run_stage(Segment(model=deeplab, min_share=0.05), copies(pictures)), strict=True):
        pixels = frame.width * frame.height
        large = {k: v for k, v in before.facts["segmentation"].items() if rle.area(v) >= 0.05 * pixels}
        assert frame.facts["segmentation"] == large
        assert record(frame)["segmentation"] == large


# ----------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_share": 0.1}, "min_share is for semantic networks, which seg is not: leave out min_share"),
        ({"pad": 0.2, "batch": 3}, "crops are made with of: leave out pad, batch"),
        ({"labels": ["cra"]}, "seg has no class 'cra'"),
        ({"of": "x", "top_k": 9}, "with of, the objects are those of another stage: leave out top_k"),
    ],
)
def test_options_without_effect_are_refused(options, text, seg):
    with pytest.raises(ValueError, match=text):
        Segment(model=seg, **options)


def test_a_semantic_network_gives_no_objects(deeplab):
    with pytest.raises(ValueError, match="deeplab is a semantic network, which finds no objects: leave out iou, top_k"):
        Segment(model=deeplab, iou=0.5, top_k=9)


def test_a_card_of_another_task_is_refused(seg):
    with pytest.raises(ValueError, match="segment needs a card with task: segment; seg has task: pose"):
        Segment(model=dataclasses.replace(seg, task="pose"))


# ------------------------------------------------------------------------------------------------------------- GPU


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_masks(seg, deeplab, test_data, folder, run_pipeline):
    text = f"""
sources: {{a: {test_data}/videos/one-by-one-person-detection.mp4, b: {test_data}/videos/vtest_480x360.mp4}}
stages:
  segment: {{model: {folder}/seg.yaml, min_score: 0.3}}
  places: {{stage: segment, model: {folder}/deeplab.yaml, from: decode}}
  collect: {{from: [segment, places]}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=120) for device in ("cpu", "cuda"))
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    overlaps = []
    missing = 0
    places = []
    for source in "ab":
        for cpu_record, gpu_record in zip(cpu.records[source], gpu.records[source], strict=True):
            for cpu_object in cpu_record["objects"]:
                near = [
                    o
                    for o in gpu_record["objects"]
                    if o["label"] == cpu_object["label"] and close(o["box"], cpu_object["box"])
                ]
                if near and rle.area(cpu_object["mask"]) > 50:
                    overlaps.append(rle.iou(near[0]["mask"], cpu_object["mask"]))
                missing += not near and cpu_object["score"] > 0.32
            for label, mask in cpu_record["segmentation"].items():
                if rle.area(mask) > 2000:
                    places.append(rle.iou(mask, gpu_record["segmentation"][label]))
    assert len(overlaps) > 100
    assert missing <= 0.01 * len(overlaps)
    assert np.mean(np.array(overlaps) >= 0.98) > 0.99
    assert np.mean(np.array(places) >= 0.98) > 0.95


@pytest.mark.gpu
@pytest.mark.parametrize(("stage_name", "name", "column"), [("segment", "seg", "mask"), ("pose", "tiny", "keypoints")])
def test_unread_columns_stay_on_the_gpu(stage_name, name, column, seg, folder, test_data):
    import streamkit
    from streamkit.ops import traffic

    tiny_pose(folder)
    video = f"{test_data}/videos/one-by-one-person-detection.mp4"
    crossed = []
    tables = []
    objects = 0
    for reads in (False, True):
        before = traffic.so_far().to_host
        for frame in streamkit.run(
            video,
            stages={stage_name: {"model": f"{folder}/{name}.yaml", "precision": "f32"}},
            device="cuda",
            limit=60,
        ):
            table = frame.detections
            objects += len(table)
            if reads and len(table):
                assert isinstance(table.extra[column], np.ndarray)
            tables.append(table)
        crossed.append(traffic.so_far().to_host - before)
    assert objects > 60
    assert crossed[0] < crossed[1]
    filled = next(table for table in tables if len(table))
    assert len(filled.extra[column]) == len(filled)  # long after the run, from its device
    assert len(pickle.loads(pickle.dumps(tables[-1])).extra[column]) == len(tables[-1])


@pytest.mark.gpu
def test_masks_of_many_retained_batches_move_to_the_host(seg, folder, test_data, monkeypatch):
    import streamkit
    from streamkit.stages.inference import postprocess

    monkeypatch.setattr(postprocess, "_MAX_LATE", 2)
    moved = []
    right = LateArray.to_host
    monkeypatch.setattr(LateArray, "to_host", lambda self: (moved.append(self), right(self))[1])
    video = f"{test_data}/videos/one-by-one-person-detection.mp4"
    stages = {"segment": {"model": f"{folder}/seg.yaml"}}
    tables = [frame.detections for frame in streamkit.run(video, stages=stages, device="cuda", limit=300)]
    assert moved
    assert all(isinstance(late.array, np.ndarray) for late in moved)
    wanted = [frame.detections for frame in streamkit.run(video, stages=stages, device="cpu", limit=300)]
    pairs = [
        (mask, other)
        for table, like in zip(tables, wanted, strict=True)
        if len(table) == len(like) == 1
        for mask, other in zip(table.extra["mask"], like.extra["mask"], strict=True)
    ]
    assert len(pairs) > 20
    assert np.mean([rle.iou(mask, other) for mask, other in pairs]) > 0.97


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_masks_of_crops(seg, test_data, folder, run_pipeline):
    card_of("nano", test_data, folder)
    masked = []
    for batch in (4, 64):
        text = f"""
sources: {{a: {test_data}/videos/vtest_480x360.mp4}}
stages:
  detect: {{model: {folder}/nano.yaml, min_score: 0.4}}
  masks: {{stage: segment, model: {folder}/seg.yaml, of: detect.person, batch: {batch}}}
  collect: {{}}
"""
        outcome = run_pipeline(text, device="cuda", limit=24)
        assert outcome.code == 0
        masked.append([o for r in outcome.records["a"] for o in r["objects"] if "mask" in o])
    assert len(masked[0]) == pytest.approx(len(masked[1]), rel=0.02)
    assert len(masked[0]) > 48
    pairs = [
        (small_batch, large_batch)
        for small_batch, large_batch in zip(*masked, strict=False)
        if small_batch["box"] == large_batch["box"]
    ]
    assert len(pairs) > 0.9 * len(masked[0])
    assert np.mean([rle.iou(small_batch["mask"], large_batch["mask"]) for small_batch, large_batch in pairs]) > 0.98


def close(a, b) -> bool:
    return reference.overlap(np.array(a), np.array(b)) > 0.95
