"""Oriented boxes from a network that measures rotated rectangles to the record, and what carries their corners."""

import dataclasses
import math

import numpy as np
import pytest
from support.blobs import SCALE, blob_card, rotated_corners, rotated_picture

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.records import record
from streamkit.core.units import Of
from streamkit.models.card import load_card
from streamkit.models.check import check, frames_of
from streamkit.models.families import ReadOptions, family, unpack
from streamkit.models.network import check_model
from streamkit.plugin_api import rgb
from streamkit.stages.analytics.track import Track
from streamkit.stages.analytics.zone import Zone
from streamkit.stages.inference.detectors import Detect
from streamkit.stages.inference.inference_regions import Tiles
from streamkit.stages.video.draw import Draw
from streamkit.testing.kit import detections, frames, run_stage

OBJECTS = [
    ("red", 32, 24, 40, 16, 0.5),
    ("blue", 96, 24, 30, 10, -0.9),
    ("blue", 30, 72, 36, 20, 1.2),
    ("red", 100, 72, 30, 12, 0.0),
]


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return load_card(blob_card("yolov8_obb", tmp_path_factory.mktemp("card")))


def gap(corners, wanted):
    """The largest distance of a corner from the nearest wanted one, (4, 2) each: the order may begin anywhere."""
    gaps = np.linalg.norm(np.asarray(corners)[:, None] - np.asarray(wanted)[None], axis=2)
    return max(gaps.min(axis=0).max(), gaps.min(axis=1).max())


def assert_detected(table, objects, scale=SCALE, shift=(0, 0)):
    """Check that the corners are those of the objects, to a source pixel, and the boxes their hulls."""
    assert len(table) == len(objects)
    for color, *box in objects:
        wanted = rotated_corners(*box) * scale + shift
        assert min(gap(table.extra["corners"][i], wanted) for i in range(len(table)) if table.label[i] == color) < 1
    corners = table.extra["corners"]
    assert (corners.dtype, corners.shape) == (np.float32, (len(objects), 4, 2))
    hull = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    np.testing.assert_allclose(table.xyxy, hull.clip(0), atol=1e-3)


def test_corners_match_the_drawn_rectangles(card):
    (processed,) = run_stage(Detect(model=card), frames(1, pixels=rotated_picture(*OBJECTS)))
    assert_detected(processed.detections, OBJECTS)


def test_a_batch_of_32_equals_its_frames_one_by_one(card):
    turned = [[(*box[:5], box[5] + 0.05 * i) for box in OBJECTS] for i in range(32)]
    footage = [
        dataclasses.replace(frames(1, pixels=rotated_picture(*objects))[0], index=i) for i, objects in enumerate(turned)
    ]
    singly, batched = (run_stage(Detect(model=card), footage, batch=size) for size in (1, 32))
    for objects, alone, together in zip(turned, singly, batched, strict=True):
        assert_detected(alone.detections, objects)
        np.testing.assert_array_equal(together.detections.extra["corners"], alone.detections.extra["corners"])


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_corners(card, tmp_path, run_pipeline):
    import cv2

    for i in range(6):
        scene = rotated_picture(*((*box[:5], box[5] + 0.1 * i) for box in OBJECTS))
        cv2.imwrite(str(tmp_path / f"{i}.png"), scene[..., ::-1])
    text = (
        f"sources: {{a: {tmp_path}/*.png}}\nstages:\n  detect: {{model: {card.path}}}\n  draw: {{}}\n  collect: {{}}\n"
    )
    cpu, gpu = (run_pipeline(text, device=device) for device in ("cpu", "cuda"))
    for source, records in cpu.records.items():
        for cpu_record, gpu_record in zip(records, gpu.records[source], strict=True):
            assert len(cpu_record["objects"]) == len(gpu_record["objects"]) == 4
            for cpu_object, gpu_object in zip(cpu_record["objects"], gpu_record["objects"], strict=True):
                np.testing.assert_allclose(cpu_object["corners"], gpu_object["corners"], atol=0.5)


def test_unequal_scales_give_the_corners_of_a_parallelogram():
    box = np.float32([50, 40, 30, 10, 0.9, 0.6])
    geometry = np.float32([[0.5, 0.25, 4, 2]])
    sizes = np.array([[300, 400]])
    reads = family("yolov8_obb")
    packed = reads.read({"o": box.reshape(1, 6, 1)}, geometry, sizes, (96, 64), ReadOptions(np.float32([0.5])))
    table = unpack(packed.rows, packed.counts, ("ship",), reads.columns)
    wanted = (rotated_corners(*box[:4].tolist(), float(box[5])) - [4, 2]) / [0.5, 0.25]
    np.testing.assert_allclose(table.extra["corners"][0], wanted, atol=1e-3)  # in their order, too
    sides = np.diff(wanted, axis=0)
    assert abs(sides[0] @ sides[1]) > 100  # no rectangle any more
    np.testing.assert_allclose(table.xyxy[0], [*wanted.min(axis=0), *wanted.max(axis=0)], atol=1e-3)


def test_neighbors_with_overlapping_hulls_are_kept_and_duplicates_removed():
    row = [[40 + 9 * i, 60 - 9 * i, 60, 8, 0.9 - 0.1 * i, math.pi / 4] for i in range(3)]  # parked side by side
    row += [[box[0] + 1, box[1] + 1, box[2], box[3], 0.5, box[5] + 0.02] for box in row]
    reads = family("yolov8_obb")
    output = np.float32(row).T[None]
    options = ReadOptions(np.float32([0.1]), iou=0.45)
    packed = reads.read({"o": output}, np.float32([[1, 1, 0, 0]]), np.array([[200, 200]]), (200, 200), options)
    assert packed.counts[0, 0] == 3
    np.testing.assert_allclose(packed.rows[0, :3, 4], [0.9, 0.8, 0.7])
    upright = family("yolov8").read(
        {"o": np.concatenate([_hulls(row), output[:, 4:5]], axis=1)},
        np.float32([[1, 1, 0, 0]]),
        np.array([[200, 200]]),
        (200, 200),
        options,
    )
    assert upright.counts[0, 0] < 3  # what the hulls alone would leave


def _hulls(rows):
    corners = np.array([rotated_corners(*row[:4], row[5]) for row in rows])
    low = corners.min(axis=1)
    high = corners.max(axis=1)
    return np.concatenate([(low + high) / 2, high - low], axis=1).T[None].astype(np.float32)


def test_objects_seen_in_two_tiles_are_merged(card):
    scene = np.tile(rotated_picture(*OBJECTS), (1, 2, 1))
    (processed,) = run_stage(Detect(model=card, tiles=Tiles((256, 192), 0.0, False)), frames(1, pixels=scene))
    table = processed.detections
    for half in (0, 1):
        half_table = table[np.flatnonzero(table.center[:, 0] // 256 == half)]
        assert_detected(half_table, OBJECTS, shift=(256 * half, 0))


def test_an_object_cut_by_a_tile_is_reported_once():
    """One detection is whole, of one tile; the other is its part in the next tile."""
    from streamkit.ops.views import merge

    quarter = math.pi / 4
    whole = rotated_corners(100, 100, 80, 8, quarter)
    part = rotated_corners(124, 124, 12, 8, quarter)
    beside = rotated_corners(93, 107, 80, 8, quarter)  # parallel to it: the hulls overlap, the boxes do not
    corners = np.float32([whole, part, beside])
    hulls = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    cut = np.array([False, True, True])
    columns = hulls, np.float32([0.8, 0.9, 0.7]), np.zeros(3, np.int32), np.zeros(3, np.int32), np.array([0, 1, 1]), cut
    merged_rows, suppressed, _ = merge(*columns, iou=0.45, agnostic=False, top_k=9, corners=corners)
    assert (merged_rows.tolist(), suppressed) == ([0, 2], 1)


def test_oriented_boxes_are_detected_within_objects(card):
    footage = frames(1, pixels=np.tile(rotated_picture(*OBJECTS), (1, 2, 1)))
    footage[0].tables["area"] = detections([[256, 0, 512, 192]])
    (processed,) = run_stage(Detect(model=card, of=Of("area"), pad=0.0), footage, stage_id="inside")
    assert_detected(processed.tables["inside"], OBJECTS, shift=(256, 0))


def test_trackers_and_zones_use_the_hull(card):
    turned = [[(*box[:5], box[5] + 0.02 * i) for box in OBJECTS] for i in range(4)]
    footage = []
    for i, objects in enumerate(turned):
        (frame,) = frames(1, pixels=rotated_picture(*objects), start=i)
        footage.append(frame)
    processed = run_stage(Track(predicted=True), run_stage(Detect(model=card), footage))
    ids = [
        dict(zip(map(tuple, np.round(f.detections.center / 60).tolist()), f.detections.track_id.tolist(), strict=True))
        for f in processed
    ]
    assert all(len(set(ids_by_place.values()) - {-1}) == 4 for ids_by_place in ids[1:])
    assert processed[-1].detections.extra["corners"].shape == (4, 4, 2)
    left = run_stage(Zone(polygon=((0, 0), (128, 0), (128, 192), (0, 192))), processed)
    assert {event.kind for frame in left for event in frame.events} <= {"entered"}
    assert len({event.track_id for frame in left for event in frame.events}) == 2


def test_records_have_the_corners(card):
    (processed,) = run_stage(Detect(model=card), frames(1, pixels=rotated_picture(*OBJECTS)))
    recorded = record(processed)["objects"]
    assert len(recorded) == 4
    for detection, corners in zip(recorded, processed.detections.extra["corners"], strict=True):
        np.testing.assert_allclose(detection["corners"], corners, atol=0.006)
        assert all(round(value, 2) == value for corner in detection["corners"] for value in corner)
        x, y = zip(*detection["corners"], strict=True)
        assert detection["box"] == pytest.approx([min(x), min(y), max(x), max(y)], abs=0.011)


def test_objects_of_another_detector_have_no_corners(card):
    (processed,) = run_stage(Detect(model=card), frames(1, pixels=rotated_picture(*OBJECTS)))
    other = detections([[1, 2, 3, 4]], labels=("red",))
    processed.tables = {"both": type(other).concat([processed.detections, other])}
    recorded = record(processed)["objects"]
    assert ["corners" in detection for detection in recorded] == [True] * 4 + [False]


def test_all_record_formats_have_the_corners(card):
    fastavro = pytest.importorskip("fastavro")
    import io

    import orjson

    from streamkit.io.formats import avro, protobuf

    (processed,) = run_stage(Detect(model=card), frames(1, pixels=rotated_picture(*OBJECTS)))
    frame_record = orjson.loads(orjson.dumps(record(processed), option=orjson.OPT_SERIALIZE_NUMPY))
    schema = fastavro.parse_schema(avro.record_schema("frames"))
    read = fastavro.schemaless_reader(io.BytesIO(avro.encoder("frames")(frame_record)), schema)
    decoded = protobuf.message_class("frames").FromString(protobuf.encoder("frames")(frame_record))
    for detection, row, message in zip(frame_record["objects"], read["objects"], decoded.objects, strict=True):
        assert [[corner["x"], corner["y"]] for corner in row["corners"]] == detection["corners"]
        assert [[corner.x, corner.y] for corner in message.corners] == detection["corners"]
        assert row["extra"] is None


def test_tables_of_batch_have_a_column_of_corners(card, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from streamkit.batch.tables import tables_of

    text = f"sources: {{p: {{stage: test_pattern}}}}\nstages:\n  detect: {{model: {card.path}}}\n"
    tables = tables_of(build(read_text(text, folder=tmp_path)))
    (column,) = tables.columns
    assert column.name == "corners"
    assert column.type == pa.list_(pa.struct([("x", pa.float32()), ("y", pa.float32())]))
    values = np.full((2, 4, 2), np.nan, np.float32)
    values[0] = rotated_corners(20, 30, 10, 4, 0.5)
    stored = column.array(values).to_pylist()
    np.testing.assert_allclose([[corner["x"], corner["y"]] for corner in stored[0]], values[0], atol=0.006)
    assert stored[1] is None


# ----------------------------------------------------------------------------------------------------------- drawing


def drawn(card, **options):
    plain = np.repeat(np.repeat(rotated_picture(*OBJECTS[1:2]), 2, 0), 2, 1)
    detected = run_stage(Detect(model=card), frames(1, pixels=plain))
    before = rgb(detected[0]).astype(int)
    (processed,) = run_stage(Draw(labels=False, scores=False, **options), detected)
    return np.abs(rgb(processed).astype(int) - before).sum(axis=2) > 40, detected[0].detections.extra["corners"][0]


def test_the_outline_is_that_of_the_rotated_box(card):
    changed, corners = drawn(card)
    y, x = np.nonzero(changed)
    away = []
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        way = (end - start) / np.linalg.norm(end - start)
        along = ((x + 0.5 - start[0]) * way[0] + (y + 0.5 - start[1]) * way[1]).clip(0, np.linalg.norm(end - start))
        away.append(np.hypot(start[0] + along * way[0] - x - 0.5, start[1] + along * way[1] - y - 0.5))
        for share in (0.1, 0.5, 0.9):
            px, py = (start + share * (end - start)).astype(int)
            assert changed[py - 2 : py + 3, px - 2 : px + 3].any()
    assert np.min(away, axis=0).max() < 4  # nothing at the corners of the hull, nothing inside
    assert len(x) > 200


def test_the_tint_fills_only_the_rotated_box(card):
    changed, corners = drawn(card, fill=0.6)
    outline, _ = drawn(card)
    inside = np.zeros(changed.shape, np.uint8)
    import cv2

    cv2.fillConvexPoly(inside, np.round(corners).astype(np.int32), 1)
    only = changed & ~outline
    assert only[inside == 1].sum() > 0.8 * inside.sum()
    assert only[cv2.dilate(inside, np.ones((5, 5))) == 0].sum() == 0


def test_the_label_is_at_the_uppermost_corner():
    from streamkit.ops.annotate import annotate
    from streamkit.ops.glyphs import Atlas
    from streamkit.ops.style import Style

    corners = np.float32([rotated_corners(200, 200, 100, 40, -0.7)])  # its uppermost corner is near the right end
    box = [*corners[0].min(axis=0).tolist(), *corners[0].max(axis=0).tolist()]
    table = detections([box], labels=("ship",), corners=corners)
    marks, _ = annotate([frames(1, pixels=True)[0].surface], [table], Style(scores=False), Atlas())
    x, y = corners[0][corners[0][:, 1].argmin()]
    label = marks[-1]
    assert abs(int(label["x1"]) - x) <= 2
    assert abs(int(label["y2"]) - y) <= 4


def test_a_small_image_scales_the_corners():
    from streamkit.ops.thumbnail import _scaled

    corners = np.float32([rotated_corners(50, 40, 30, 10, 0.5)])
    scaled = _scaled(detections([[30, 25, 70, 55]], corners=corners), np.float32([0.5, 0.25]))
    np.testing.assert_allclose(scaled.extra["corners"], corners * [0.5, 0.25])


# ------------------------------------------------------------------------------------------------------------- check


@pytest.fixture
def scene(tmp_path):
    import cv2

    cv2.imwrite(str(tmp_path / "scene.png"), rotated_picture(*OBJECTS[:2])[..., ::-1])
    return frames_of([tmp_path / "scene.png"])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_models_check_passes(card, scene, device):
    report = check(card, scene, Device(device))
    assert report.passed, str(report)
    assert report.objects == 2


@pytest.mark.parametrize("what", ["corners", "xyxy"])
def test_models_check_detects_wrong_corners_or_boxes(card, scene, what, monkeypatch):
    from streamkit.models.families import base as module

    real = module.unpack

    def off(*arguments):
        table = real(*arguments)
        value = table.xyxy if what == "xyxy" else table.extra["corners"]
        return table.with_columns(**{what: value + np.float32(2)})

    monkeypatch.setattr(module, "unpack", off)
    assert not check(card, scene).passed


def test_a_card_with_other_classes_is_refused(card):
    with pytest.raises(Exception, match=r"holds 2 classes beside 5 other values, and the label list has 3"):
        check_model(dataclasses.replace(card, labels=("red", "blue", "green")))


def test_a_stage_may_read_the_corners(card, tmp_path):
    (tmp_path / "reads.py").write_text(
        "from streamkit import stage\n\n@stage('lean', reads='corners')\ndef lean(frame):\n    '''Read them.'''\n"
    )
    text = (
        "plugins: [reads.py]\nsources: {{p: {{stage: test_pattern}}}}\nstages:\n  detect: {{model: {}}}\n  lean: {{}}\n"
    )
    assert "corners" in build(read_text(text.format(card.path), folder=tmp_path)).nodes["lean"].available
    with pytest.raises(Exception, match="corners"):
        build(read_text(text.format("demo"), folder=tmp_path))
