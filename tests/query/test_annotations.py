"""Annotations, as those who read them see them: pycocotools, streamkit's own reader of YOLO, an XML parser."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
import yaml

from streamkit.core.data import Frame, Skeleton
from streamkit.io.yolo_folder import read_yolo_folder
from streamkit.ops import rle
from streamkit.query.annotations import CocoAnnotations, CvatAnnotations, YoloAnnotations
from streamkit.query.label_studio import LabelStudioAnnotations
from streamkit.query.selected_frames import SelectedFrame
from streamkit.testing.kit import detections

LABELS = ("car", "person", "bike & co")
BOXES = [[10, 20, 60, 50], [100.25, 40, 140.5, 100]]


def selected(number=0, boxes=BOXES, class_id=(0, 2), **columns):
    table = detections(boxes, class_id=list(class_id), score=[0.5, 0.875][: len(boxes)], labels=LABELS, **columns)
    frame = Frame("a.mp4", number, number / 25, 200, 120, tables={"objects": table})
    return SelectedFrame(f"a-{number:06}", "a.mp4", frame)


def written(writer, *frames):
    for selected_frame in frames:
        writer.add(f"{selected_frame.name}.jpg", selected_frame)
    writer.finish()


def blob():
    """A mask of a triangle."""
    canvas = np.zeros((120, 200), np.uint8)
    cv2.fillPoly(canvas, [np.array([[20, 20], [60, 25], [30, 70]])], 1)
    return canvas.astype(bool)


def masks():
    column = np.full(2, None)
    column[0] = rle.encode(blob(), 200, 120)
    return column


CORNERS = np.array([[[20, 10], [60, 30], [50, 50], [10, 30]], [[np.nan] * 2] * 4], np.float32)
POINTS = np.array([[[12, 22, 0.9], [50, 40, 0.0], [np.nan] * 3], [[np.nan] * 3] * 3], np.float32)


# -------------------------------------------------------------------------------------------------------------- COCO


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools
def test_pycocotools_loads_and_evaluates_coco(tmp_path):
    coco_module = pytest.importorskip("pycocotools.coco")
    evaluator = pytest.importorskip("pycocotools.cocoeval").COCOeval
    written(CocoAnnotations(tmp_path, LABELS), selected(3, mask=masks()), selected(8, [], ()), selected(9))
    coco = coco_module.COCO(str(tmp_path / "annotations" / "instances_default.json"))
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == list(LABELS)
    assert [(image["id"], image["file_name"], image["frame_id"]) for image in coco.dataset["images"]] == [
        (1, "a-000003.jpg", 3),
        (2, "a-000008.jpg", 8),
        (3, "a-000009.jpg", 9),
    ]
    first, other = coco.loadAnns(coco.getAnnIds(imgIds=1))
    assert (first["bbox"], first["category_id"], other["category_id"]) == ([10, 20, 50, 30], 1, 3)
    assert np.array_equal(coco.annToMask(first), blob())
    loaded = coco.loadRes([{**annotation, "score": annotation["score"]} for annotation in coco.dataset["annotations"]])
    run = evaluator(coco, loaded, "bbox")
    run.evaluate()
    run.accumulate()
    run.summarize()
    assert run.stats[0] == pytest.approx(1.0)


def test_coco_has_keypoints_and_rotated_boxes(tmp_path):
    skeleton = SimpleNamespace(skeleton=Skeleton(("nose", "eye", "ear"), ((0, 1),)))
    selected_frame = selected(keypoints=POINTS, corners=CORNERS)
    object.__setattr__(selected_frame.frame.tables["objects"], "skeleton", skeleton.skeleton)
    written(CocoAnnotations(tmp_path, LABELS), selected_frame)
    document = json.loads((tmp_path / "annotations" / "instances_default.json").read_text())
    first, other = document["annotations"]
    assert first["keypoints"] == [12, 22, 2, 50, 40, 0, 0, 0, 0]
    assert (first["num_keypoints"], "keypoints" in other) == (1, False)
    assert first["segmentation"] == [[20, 10, 60, 30, 50, 50, 10, 30]]
    assert document["categories"][0]["keypoints"] == ["nose", "eye", "ear"]


# -------------------------------------------------------------------------------------------------------------- YOLO


def lines(folder, stem="a-000000"):
    text = (folder / "labels" / f"{stem}.txt").read_text()
    return [[float(word) for word in line.split()] for line in text.splitlines()]


def test_yolo_boxes_are_read_back(tmp_path):
    written(YoloAnnotations(tmp_path, LABELS, ["x1"], 0), selected(0), selected(1, [], ()))
    rows = read_yolo_folder(tmp_path, first_frame=0)
    assert rows.labels == LABELS
    assert rows.class_id.tolist() == [0, 2]
    np.testing.assert_allclose(rows.xyxy * [200, 120, 200, 120], BOXES, atol=1e-3)
    assert (tmp_path / "labels" / "a-000001.txt").read_text() == "", "an image without objects is a background"
    about = yaml.safe_load((tmp_path / "data.yaml").read_text())
    assert about == {"path": ".", "train": "images", "val": "images", "names": dict(enumerate(LABELS))}


def test_yolo_shares_are_within_the_frame(tmp_path):
    written(YoloAnnotations(tmp_path, LABELS, ["x1"], 0), selected(0, [[-20, -10, 250, 130]], (1,)))
    assert lines(tmp_path) == [[1, 0.5, 0.5, 1, 1]]


def test_yolo_outlines_are_those_of_masks(tmp_path):
    written(YoloAnnotations(tmp_path, LABELS, ["mask"], 0), selected(mask=masks()))
    outline, box = lines(tmp_path)
    canvas = np.zeros((120, 200), np.uint8)
    points = np.array(outline[1:]).reshape(-1, 2) * [200, 120] - 0.5
    cv2.fillPoly(canvas, [np.rint(points).astype(np.int32)], 1)
    assert (canvas.astype(bool) & blob()).sum() / (canvas.astype(bool) | blob()).sum() > 0.98
    corners = np.array([100.25, 40, 140.5, 40, 140.5, 100, 100.25, 100]).reshape(4, 2) / [200, 120]
    np.testing.assert_allclose(np.array(box[1:]).reshape(4, 2), corners, atol=1e-6)


@pytest.mark.parametrize("large", [(10, 10, 60, 50), (10, 60, 60, 110)], ids=["above", "below"])
def test_yolo_uses_the_largest_part_of_a_mask(tmp_path, large):
    """An object behind a pole has several parts; the order in which they are found does not matter."""
    canvas = np.zeros((120, 200), np.uint8)
    x1, y1, x2, y2 = large
    canvas[y1:y2, x1:x2] = 1
    for top in (2, 54, 114):
        canvas[top : top + 4, 100:104] = 1
    column = np.full(2, None)
    column[0] = rle.encode(canvas.astype(bool), 200, 120)
    written(YoloAnnotations(tmp_path, LABELS, ["mask"], 0), selected(mask=column))
    points = np.array(lines(tmp_path)[0][1:]).reshape(-1, 2) * [200, 120]
    assert points.min(axis=0) == pytest.approx([x1 + 0.5, y1 + 0.5], abs=0.01)
    assert points.max(axis=0) == pytest.approx([x2 - 0.5, y2 - 0.5], abs=0.01)


def test_yolo_has_rotated_boxes(tmp_path):
    written(YoloAnnotations(tmp_path, LABELS, ["keypoints", "corners"], 0), selected(corners=CORNERS))
    first, other = lines(tmp_path)
    np.testing.assert_allclose(np.array(first[1:]).reshape(4, 2) * [200, 120], CORNERS[0], atol=1e-3)
    assert (len(other), other[0]) == (9, 2)


def test_yolo_has_keypoints(tmp_path):
    written(YoloAnnotations(tmp_path, LABELS, ["keypoints"], 3), selected(0, keypoints=POINTS), selected(1))
    first, other = lines(tmp_path)
    assert first[5:] == pytest.approx([12 / 200, 22 / 120, 2, 0, 0, 0, 0, 0, 0], abs=1e-6)
    assert other[5:] == [0] * 9
    assert len(lines(tmp_path, "a-000001")[0]) == 14
    assert yaml.safe_load((tmp_path / "data.yaml").read_text())["kpt_shape"] == [3, 3]


# -------------------------------------------------------------------------------------------------------------- CVAT


def cvat(folder, *frames):
    written(CvatAnnotations(folder, LABELS, len(frames)), *frames)
    return ElementTree.parse(folder / "annotations.xml").getroot()


def test_cvat_has_the_elements_of_its_schema(tmp_path):
    root = cvat(tmp_path, selected(0, track_id=[7, -1]), selected(4, [], ()))
    assert (root.tag, root.findtext("version"), root.findtext("meta/task/size")) == ("annotations", "1.1", "2")
    assert root.findtext("meta/task/mode") == "annotation"
    assert [label.findtext("name") for label in root.findall("meta/task/labels/label")] == list(LABELS)
    assert [image.attrib for image in root.findall("image")] == [
        {"id": "0", "name": "a-000000.jpg", "width": "200", "height": "120"},
        {"id": "1", "name": "a-000004.jpg", "width": "200", "height": "120"},
    ]
    first, other = root.findall("image/box")
    assert first.attrib == {
        "label": "car",
        "source": "auto",
        "occluded": "0",
        "xtl": "10.00",
        "ytl": "20.00",
        "xbr": "60.00",
        "ybr": "50.00",
        "z_order": "0",
    }
    assert {attribute.get("name"): attribute.text for attribute in first.findall("attribute")} == {
        "score": "0.5",
        "track_id": "7",
    }
    assert (other.get("label"), [attribute.text for attribute in other]) == ("bike & co", ["0.875"])


@pytest.mark.parametrize("filled", [False, True])
def test_cvat_masks_are_run_lengths(tmp_path, filled):
    mask = np.zeros((120, 200), bool)
    mask[30:40, 50:70] = True
    mask = mask if filled else blob()
    column = np.full(2, None)
    column[:] = [rle.encode(mask, 200, 120), rle.encode(np.zeros((120, 200), bool), 200, 120)]
    root = cvat(tmp_path, selected(mask=column))
    (mask_element,) = root.findall("image/mask")
    left, top, width, height = (int(mask_element.get(name)) for name in ("left", "top", "width", "height"))
    runs = [int(word) for word in mask_element.get("rle").split(",")]
    assert sum(runs) == width * height
    decoded = np.zeros((120, 200), bool)
    part = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width)
    decoded[top : top + height, left : left + width] = part
    assert np.array_equal(decoded, mask)
    assert len(root.findall("image/box")) == 1, "an empty mask is no object's outline"


def test_cvat_has_polygons_and_points(tmp_path):
    root = cvat(tmp_path, selected(corners=CORNERS, keypoints=POINTS))
    assert root.find("image/polygon").get("points") == "20.00,10.00;60.00,30.00;50.00,50.00;10.00,30.00"
    assert [points.get("points") for points in root.findall("image/points")] == ["12.00,22.00"]
    assert len(root.findall("image/box")) == 1


# ------------------------------------------------------------------------------------------------------ Label Studio


def test_label_studio_numbers_keypoints_without_names(tmp_path):
    points = np.array([[[12, 22, 0.9], [50, 40, 0.0], [30, 30, 0.5]], [[np.nan] * 3] * 3], np.float32)
    written(LabelStudioAnnotations(tmp_path, "export", LABELS, ["keypoints"]), selected(keypoints=points))
    config = ElementTree.parse(tmp_path / "label_config.xml").getroot()
    assert [label.get("value") for label in config.find("KeyPointLabels")] == ["point 1", "point 3"]
    (task,) = json.loads((tmp_path / "tasks.json").read_text())
    regions = [region for region in task["predictions"][0]["result"] if region["type"] == "keypointlabels"]
    assert [region["value"]["keypointlabels"] for region in regions] == [["point 1"], ["point 3"]]
