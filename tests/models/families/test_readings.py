"""Every family against a reference in plain loops, on random outputs and on those of real networks."""

import cmath
import json
import math

import numpy as np
import pytest
from support.detector_forms import SINGLE_CLASS, TOP_DOWN, reader_of

from streamkit.models.families import CAUSES, ReadOptions, family, unpack
from streamkit.models.families.base import PlainImage

SIZE = (96, 64)
CLASSES = 5
ROTATED = ("yolov8_obb", "yolo_e2e_obb")
UNSUPPRESSED = (
    "yolo_e2e",
    "yolo_e2e_obb",
    "yolo_e2e_pose",
    "yolo_e2e_seg",
    "rtdetr",
    "rtdetr_e2e",
    "detr",
    "ssd",
    "movenet",
    "efficient_nms",
    "mmdeploy",
    "ppyoloe_e2e",
    *TOP_DOWN,
)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def pyramid(size):
    return [
        (level, y * (size[0] // stride) + x, x, y, stride)
        for level, stride in enumerate((8, 16, 32))
        for y in range(size[1] // stride)
        for x in range(size[0] // stride)
    ]


def around(cx, cy, w, h):
    return [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]


def turned(cx, cy, w, h, angle):
    """The hull and the corners of a rotated box, by complex numbers."""
    turn = cmath.exp(1j * angle)
    points = [complex(cx, cy) + complex(x * w / 2, y * h / 2) * turn for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    corners = [(point.real, point.imag) for point in points]
    hull = [end(values) for end in (min, max) for values in zip(*corners, strict=True)]
    return hull, [value for corner in corners for value in corner]


def rotated_overlap(a, b):
    """The probabilistic IoU of two boxes of corners, by matrices."""
    means = []
    spreads = []
    for values in (a, b):
        corners = np.array(values).reshape(4, 2)
        sides = np.stack([corners[1] - corners[0], corners[3] - corners[0]])
        means.append(corners.mean(axis=0))
        spreads.append(sides.T @ sides / 12)
    mean = (spreads[0] + spreads[1]) / 2
    away = means[0] - means[1]
    dets = [np.linalg.det(matrix) for matrix in (mean, *spreads)]
    distance = away @ np.linalg.inv(mean) @ away / 8 + math.log(dets[0] / math.sqrt(dets[1] * dets[2])) / 2
    return 1 - math.sqrt(1 - math.exp(-max(distance, 0)))


def points_of_a_grid(scores, distances):
    """The same as `anchors_of` for DetectNet: distances to the four edges for each class and each 16th pixel."""
    for label, (of_class, sides) in enumerate(
        zip(scores, distances.reshape(len(scores), 4, *scores.shape[1:]), strict=True)
    ):
        for row, line in enumerate(of_class.tolist()):
            for column, score in enumerate(line):
                left, upper, right, lower = (35 * side for side in sides[:, row, column].tolist())
                x = 16 * column + 0.5
                y = 16 * row + 0.5
                yield score, label, [x - left, y - upper, x + right, y + lower], []


def anchors_of(form, outputs, frame, size, geometry, wh):
    """Yield (score, class, box in network pixels, points) of each anchor of one frame."""
    out = {name: value[frame].astype(float) for name, value in outputs.items() if len(value) > frame}
    first = next(iter(out.values()))
    if form == "yolox":
        for row, (_, _, x, y, s) in zip(first.tolist(), pyramid(size), strict=True):
            c = max(range(5, len(row)), key=lambda k: row[k])
            box = around((row[0] + x) * s, (row[1] + y) * s, math.exp(row[2]) * s, math.exp(row[3]) * s)
            yield row[4] * row[c], c - 5, box, []
    elif form == "yolov5":
        for row in first.tolist():
            c = max(range(5, len(row)), key=lambda k: row[k])
            yield row[4] * row[c], c - 5, around(*row[:4]), []
    elif form == "yolov8":
        for row in first.T.tolist():
            c = max(range(4, len(row)), key=lambda k: row[k])
            yield row[c], c - 4, around(*row[:4]), []
    elif form == "yolov8_seg":
        for row in first.T.tolist():
            c = max(range(4, 4 + CLASSES), key=lambda k: row[k])
            yield row[c], c - 4, around(*row[:4]), row[4 + CLASSES :]
    elif form == "yolov8_obb":
        for row in first.T.tolist():
            c = max(range(4, 4 + CLASSES), key=lambda k: row[k])
            yield row[c], c - 4, *turned(*row[:4], row[-1])
    elif form == "yolo_e2e_obb":
        for *box, score, label, angle in first.tolist():
            yield score, int(label), *turned(*box, angle)
    elif form == "yolov8_pose":
        for row in first.T.tolist():
            yield row[4], 0, around(*row[:4]), row[5:]
    elif form == "movenet":
        points = [(x * size[0], y * size[1], score) for y, x, score in first[0].tolist()]
        seen = [point for point in points if point[2] >= 0.2] or points
        (low_x, high_x), (low_y, high_y) = ((min(v), max(v)) for v in list(zip(*seen, strict=True))[:2])
        mean = sum(score for *_, score in points) / len(points)
        yield mean, 0, [low_x, low_y, high_x, high_y], [value for point in points for value in point]
    elif form in TOP_DOWN:
        (row,) = reader_of(form).reference_rows(PlainImage(out, size)).tolist()
        yield row[4], 0, row[:4], row[6:]
    elif form == "detectnet":
        yield from points_of_a_grid(out["output_cov/Sigmoid:0"], out["output_bbox/BiasAdd:0"])
    elif form == "efficient_nms":
        objects = zip(out["det_boxes"].tolist(), out["det_scores"], out["det_classes"], strict=True)
        for row, (box, score, label) in enumerate(objects):
            yield score if row < out["num_dets"][0] else -1, int(label), box, []
    elif form == "ppyoloe":
        for box, of_anchor in zip(out["boxes"].tolist(), out["scores"].T.tolist(), strict=True):
            c = max(range(len(of_anchor)), key=lambda k, of_anchor=of_anchor: of_anchor[k])
            yield of_anchor[c], c, box, []
    elif form == "ppyoloe_e2e":
        for row, (label, score, *box) in enumerate(out["rows"].tolist()):
            yield score if row < out["count"][0] else -1, int(label), box, []
    elif form == "mmdeploy":
        for (*box, score), label in zip(out["dets"].tolist(), out["labels"], strict=True):
            yield score, int(label), box, []
    elif form == "deepstream_yolo parts":
        for box, (score,), (label,) in zip(out["boxes"].tolist(), out["scores"], out["classes"], strict=True):
            yield score, int(label), box, []
    elif form in ("yolo_e2e", "deepstream_yolo"):
        for *box, score, label in first.tolist():
            yield score, int(label), box, []
    elif form in ("yolo_e2e_pose", "yolo_e2e_seg"):
        for row in first.tolist():
            yield row[4], int(row[5]), row[:4], row[6:]
    elif form.startswith("rtdetr"):
        for cx, cy, w, h, *rest in first.tolist():
            best = max(range(len(rest)), key=lambda k, rest=rest: rest[k])
            score, label = rest if form == "rtdetr_e2e" else (rest[best], best)
            yield score, int(label), around(cx * size[0], cy * size[1], w * size[0], h * size[1]), []
    elif form == "detr":
        for label, box, score in zip(out["labels"], out["boxes"].tolist(), out["scores"], strict=True):
            # Already source pixels: as network pixels of a stretched picture.
            yield score, int(label), [v * geometry[i % 2] + geometry[2 + i % 2] for i, v in enumerate(box)], []
    elif form.startswith("detr "):
        for row, (cx, cy, w, h) in zip(out["logits"].tolist(), out["pred_boxes"].tolist(), strict=True):
            box = around(cx * size[0], cy * size[1], w * size[0], h * size[1])
            if form == "detr raw":
                yield from ((sigmoid(value), c, box, []) for c, value in enumerate(row))
                continue
            classes = row[:-1] if form == "detr softmax" else row
            c = max(range(len(classes)), key=lambda k: classes[k])
            share = math.exp(row[c]) / sum(math.exp(value) for value in row)
            yield share if form == "detr softmax" else sigmoid(row[c]), c, box, []
    elif form == "ssd openvino":
        for _, label, score, x1, y1, x2, y2 in first[0].tolist():
            yield score, int(label), [x1 * size[0], y1 * size[1], x2 * size[0], y2 * size[1]], []
    elif form == "ssd tensorflow":
        objects = zip(out["detection_boxes"], out["detection_scores"], out["detection_classes"], strict=True)
        for (y1, x1, y2, x2), score, label in objects:
            yield score, int(label), [x1 * size[0], y1 * size[1], x2 * size[0], y2 * size[1]], []
    elif form == "ssd torchvision":
        for box, score, label in zip(out["boxes"].tolist(), out["scores"], out["labels"], strict=True):
            yield score, int(label), box, []
    else:
        for _, k, x, y, s in pyramid(size):
            cls, obj = (min(max(out[f"{kind}_{s}"][k, 0], 0), 1) for kind in ("cls", "obj"))
            dx, dy, w, h = out[f"bbox_{s}"][k]
            points = [(v + (x, y)[i % 2]) * s for i, v in enumerate(out[f"kps_{s}"][k].tolist())]
            score = math.sqrt(cls * obj)
            points = [value for i in range(0, 10, 2) for value in (*points[i : i + 2], score)]
            yield score, 0, around((x + dx) * s, (y + dy) * s, math.exp(w) * s, math.exp(h) * s), points


def overlap(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    both = max(w, 0) * max(h, 0)
    areas = [max(c[2] - c[0], 0) * max(c[3] - c[1], 0) for c in (a, b)]
    return both / (sum(areas) - both) if both else 0


def slow_read(form, outputs, frame, geometry, wh, size, options):
    """The rows and the counts by cause that one frame must have."""
    counts = dict.fromkeys(CAUSES, 0)
    floor = options.min_score.min()
    candidates = []
    for anchor, (score, label, box, points) in enumerate(anchors_of(form, outputs, frame, size, geometry, wh)):
        wanted = 0 <= label < len(options.min_score) and np.isfinite(options.min_score[label])
        if score < floor or (wanted and score < options.min_score[label]):
            counts["min_score"] += 1
        elif not wanted:
            counts["label"] += 1
        else:
            candidates.append((-score, anchor, label, box, points))
    suppressing = []
    rows = []
    for negative, _, label, box, points in sorted(candidates):
        same = [b for b in suppressing if options.agnostic or b[0] == label]
        shape, alike = (points, rotated_overlap) if form == "yolov8_obb" else (box, overlap)
        if form.split()[0] not in UNSUPPRESSED and any(alike(b, shape) > options.iou for _, b in same):
            counts["nms"] += 1
            continue
        if len(rows) == options.top_k:
            counts["top_k"] += 1
            continue
        suppressing.append((label, shape))
        # x, y, score; other values are no places
        step = 3 if form in (*SINGLE_CLASS, "yolo_e2e_pose") else 2 if form in ROTATED else 0
        xy = [(v - geometry[2 + i % 2]) / geometry[i % 2] for i, v in enumerate(box)]
        more = [
            (v - geometry[2 + i % step]) / geometry[i % step] if step and i % step < 2 else v
            for i, v in enumerate(points)
        ]
        clipped = [min(max(v, 0), wh[i % 2]) for i, v in enumerate(xy)]
        w = clipped[2] - clipped[0]
        h = clipped[3] - clipped[1]
        if w <= 0 or h <= 0:
            counts["outside"] += 1
        elif min(w, h) < options.min_size or max(w, h) > options.max_size:
            counts["size"] += 1
        else:
            rows.append([*clipped, -negative, label, *more])
    return rows, [len(rows), *counts.values()]


def pairs_of(form, outputs, frame, size):
    """The same as `anchors_of`, once for each class of an anchor."""
    first = next(iter(outputs.values()))[frame].astype(float)
    for row in (first if form == "yolov5" else first.T).tolist():
        scores = [row[4] * class_score for class_score in row[5:]] if form == "yolov5" else row[4 : 4 + CLASSES]
        for c, score in enumerate(scores):
            yield score, c, around(*row[:4]), row[4 + CLASSES :] if form == "yolov8_seg" else []


def table(rows, packed):
    return np.array(rows).reshape(-1, packed.rows.shape[2])


def per_class(form, **options):
    """Different thresholds, and one class that is not wanted."""
    thresholds = np.array([0.2, 0.5, np.inf, 0.3, 0.6], np.float32)
    return ReadOptions(thresholds[:1] if form in SINGLE_CLASS else thresholds, **options)


VIEWS = {
    "plain": {},
    "agnostic": {"agnostic": True, "iou": 0.2},
    "few": {"top_k": 4},
    "sizes": {"min_size": 12, "max_size": 60, "top_k": 9},
}
GEOMETRY = np.array([(0.5, 0.5, 0, 4), (0.25, 0.75, 3, 0), (2, 2, -8, 0)], np.float32)
SIZES = np.array([(180, 110), (320, 80), (50, 30)])


def frames_of(form):
    geometry = GEOMETRY
    if form == "detr":  # its boxes are source pixels of stretched pictures
        geometry = np.concatenate([np.array(SIZE) / SIZES, np.zeros((3, 2))], axis=1).astype(np.float32)
    return geometry, SIZES


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("form", ["yolov5", "yolov8", "yolov8_seg"])
@pytest.mark.parametrize("max_pairs", [None, 400])
def test_a_box_may_give_objects_of_several_classes(form, device, max_pairs, outputs_for, monkeypatch):
    from streamkit.core.data import Device
    from streamkit.ops.transfer import fetch

    outputs = outputs_for(form, 4, np.float32)
    geometry = GEOMETRY
    xp = Device(device).xp
    options = per_class(form, multi_label=True, top_k=1000)
    if max_pairs:
        monkeypatch.setattr("streamkit.ops.candidates.MAX_PAIRS", max_pairs)
    packed = reader_of(form).read(
        {name: xp.asarray(value) for name, value in outputs.items()}, geometry, SIZES, SIZE, options
    )
    tables, counts, _ = packed.over(fetch([packed.buffer])()[0], packed.rows.shape)
    for frame in range(3):
        pairs = list(pairs_of(form, outputs, frame, SIZE))
        if max_pairs:
            pairs = [
                pair
                for pair in pairs
                if pair[0] >= sorted((scored[0] for scored in pairs), reverse=True)[max_pairs - 1]
            ]
        monkeypatch.setitem(globals(), "anchors_of", lambda *_, pairs=pairs: pairs)
        rows, expected = slow_read(form, outputs, frame, geometry[frame], SIZES[frame], SIZE, options)
        assert counts[frame].tolist() == expected
        np.testing.assert_allclose(tables[frame, : len(rows)], table(rows, packed), rtol=1e-4, atol=2e-3)
        boxes = tables[frame, : len(rows), :4].round(2)
        assert len(np.unique(boxes, axis=0)) < len(boxes)


def test_pairs_with_equal_scores_are_ordered_by_anchor(monkeypatch):
    monkeypatch.setattr("streamkit.ops.candidates.MAX_PAIRS", 40)
    rng = np.random.default_rng(5)
    scores = rng.uniform(0.1, 0.2, (30, 5))
    scores[rng.permutation(30)[:12], 3] = 0.9
    boxes = np.stack([np.arange(30) * 3.0, np.full(30, 9.0), np.full(30, 2.0), np.full(30, 2.0)], axis=1)
    outputs = {"o": np.concatenate([boxes, scores], axis=1).T[None].astype(np.float32)}
    options = ReadOptions(np.full(5, 0.5, np.float32), multi_label=True)
    packed = family("yolov8").read(outputs, np.array([(1, 1, 0, 0)], np.float32), np.array([SIZE]), SIZE, options)
    rows = packed.rows[0, : packed.counts[0, 0]]
    assert len(rows) == 12
    assert (np.diff(rows[:, 0]) > 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("view", VIEWS)
def test_decoding_equals_the_plain_reference(form, view, dtype, outputs_for):
    outputs = outputs_for(form, 4, dtype)
    options = per_class(form, **VIEWS[view])
    read = reader_of(form)
    geometry, sizes = frames_of(form)
    packed = read.read(outputs, geometry, sizes, SIZE, options)  # the fourth frame is padding
    assert packed.rows.dtype == np.float32
    assert len(packed.counts) == 3
    for frame in range(3):
        rows, counts = slow_read(form, outputs, frame, geometry[frame], sizes[frame], SIZE, options)
        assert packed.counts[frame].tolist() == counts
        np.testing.assert_allclose(packed.rows[frame, : len(rows)], table(rows, packed), rtol=1e-4, atol=2e-3)
        assert not packed.rows[frame, len(rows) :].any()
    assert packed.counts[:, 0].any()


def test_a_batch_equals_its_frames_one_by_one(form, outputs_for):
    outputs = outputs_for(form, 3, np.float32)
    read = reader_of(form)
    options = per_class(form, top_k=12)
    geometry, sizes = frames_of(form)
    whole = read.read(outputs, geometry, sizes, SIZE, options)
    for i in range(3):
        outputs_of_frame = {name: value[i : i + 1] for name, value in outputs.items()}
        alone = read.read(outputs_of_frame, geometry[i : i + 1], sizes[i : i + 1], SIZE, options)
        np.testing.assert_array_equal(alone.rows[0], whole.rows[i])
        np.testing.assert_array_equal(alone.counts[0], whole.counts[i])


@pytest.mark.parametrize("name", ["yolox", "yolov8", "detr", "yunet"])
@pytest.mark.parametrize("min_score", [0.3, 0.05])
def test_real_networks_equal_the_plain_reference(name, min_score, real):
    run = real(name, 2)
    options = ReadOptions(np.full(run.classes, min_score, np.float32))
    packed = family(name).read(run.outputs, run.geometry, run.sizes, run.input_size, options)
    for i in range(2):
        rows, counts = slow_read(
            name, run.outputs, i, run.geometry[i].tolist(), run.sizes[i].tolist(), run.input_size, options
        )
        assert packed.counts[i].tolist() == counts
        np.testing.assert_allclose(packed.rows[i, : len(rows)], table(rows, packed), atol=0.02)


@pytest.mark.parametrize(("name", "min_recall"), [("yolox", 0.45), ("yolov8", 0.6), ("detr", 0.45)])
def test_real_networks_detect_the_objects_of_test_images(name, min_recall, real, test_data):
    run = real(name, 12)
    packed = family(name).read(
        run.outputs, run.geometry, run.sizes, run.input_size, ReadOptions(np.full(80, 0.3, np.float32))
    )
    annotations = json.loads(next((test_data / "coco" / "annotations").glob("*.json")).read_text())
    category = {c["id"]: i for i, c in enumerate(sorted(annotations["categories"], key=lambda c: c["id"]))}
    hits = total = 0
    for truth in annotations["annotations"]:
        if truth["image_id"] not in run.ids or truth["iscrowd"] or truth["area"] < 48**2:
            continue
        frame = run.ids.index(truth["image_id"])
        x, y, w, h = truth["bbox"]
        rows = packed.rows[frame, : packed.counts[frame, 0]].tolist()
        total += 1
        hits += any(
            int(row[5]) == category[truth["category_id"]] and overlap(row[:4], [x, y, x + w, y + h]) > 0.5
            for row in rows
        )
    assert total >= 20
    assert hits / total >= min_recall


def test_boxes_of_letterboxed_detr_are_in_source_pixels(outputs_for):
    # A 200x100 picture in a 96x64 input: 96x48 below 8 rows of padding. The network was told 200x100, so it
    # stretches its whole input, padding included, to that.
    network = np.array([24, 20, 72, 44], np.float32)
    stretched = network * np.array([200 / 96, 100 / 64] * 2)
    outputs = {
        "labels": np.zeros((1, 1), np.int64),
        "boxes": stretched.astype(np.float32).reshape(1, 1, 4),
        "scores": np.full((1, 1), 0.9, np.float32),
    }
    options = ReadOptions(np.full(1, 0.5, np.float32))
    packed = family("detr").read(
        outputs, np.array([[0.48, 0.48, 0, 8]], np.float32), np.array([[200, 100]]), SIZE, options
    )
    assert packed.rows[0, 0, :4].tolist() == pytest.approx([50, 25, 150, 75], abs=1e-3)


def test_faces_have_their_landmarks(real):
    run = real("yunet", 32)
    options = ReadOptions(np.full(1, 0.7, np.float32))
    yunet = family("yunet")
    packed = yunet.read(run.outputs, run.geometry, run.sizes, run.input_size, options)
    table = unpack(packed.rows, packed.counts, ("face",), yunet.columns)
    assert len(table) >= 3
    points = table.extra["keypoints"]
    assert points.shape == (len(table), 5, 3)
    np.testing.assert_array_equal(points[:, :, 2], np.repeat(table.score[:, None], 5, 1))
    points = points[:, :, :2]
    low = table.xyxy[:, None, :2]
    high = table.xyxy[:, None, 2:]
    slack = (high - low) * 0.3
    assert ((points > low - slack) & (points < high + slack)).all()
    # Eyes above the corners of the mouth, for all but faces on their side.
    assert (points[:, :2, 1].mean(axis=1) < points[:, 3:, 1].mean(axis=1)).mean() > 0.7


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_values_are_counted(bad, outputs_for):
    outputs = outputs_for("yolox", 1, np.float32)
    rows = outputs["output"][0]
    rows[:, 4:] = 0.9
    rows[3, 4] = np.nan  # objectness
    rows[5, 7] = bad  # a class
    rows[9, 0] = bad  # a box
    rows[11, 2] = 1000  # exp overflows
    packed = family("yolox").read(outputs, *(a[:1] for a in frames_of("yolox")), SIZE, per_class("yolox"))
    assert packed.counts[0, 1 + CAUSES.index("not_finite")] == 4 if np.isnan(bad) else 3
    assert np.isfinite(packed.rows).all()


def test_a_person_without_confident_points_has_the_box_of_all_points():
    points = np.full((1, 1, 17, 3), 0.125, np.float32)
    points[0, 0, :, 0] = np.linspace(0.25, 0.75, 17)
    points[0, 0, :, 1] = np.linspace(0.5, 1.0, 17)
    geometry = np.array([[1, 1, 0, 0]], np.float32)
    options = ReadOptions(np.array([0.1], np.float32))
    packed = family("movenet").read({"points": points}, geometry, np.array([SIZE]), SIZE, options)
    assert packed.counts[0, 0] == 1
    assert packed.rows[0, 0, :5].tolist() == [48, 16, 96, 48, 0.125]
