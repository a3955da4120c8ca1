"""Exports of `collect`, opened by the tools that they are for: their importers find what the lines say.

Datumaro, FiftyOne and the SDK of Label Studio are large, so the tests of each run where it is installed. Of FiftyOne,
the importers run, which need no database.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from support.collecting import LABELS, labeled_folder

from streamkit.ops import rle
from streamkit.query.collected import CollectedImages, export_collected

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # the tools' own warnings


def installed(module):
    """A module of a tool; skips where the tool is not installed, which no extra does."""
    return pytest.importorskip(module, reason=f"{module.partition('.')[0].replace('_', '-')} is not installed")


@pytest.fixture(scope="module")
def objects_by_image(tmp_path_factory):
    """The lines; the working folder has `collected` and all exports of both detectors."""
    before = Path.cwd()
    folder = tmp_path_factory.mktemp("tools")
    os.chdir(folder)
    lines = labeled_folder("collected")
    for of in ("detect", "seg"):
        for form in ("coco", "yolo", "cvat", "label-studio"):
            export_collected(CollectedImages(Path("collected"), of), Path(f"{form}-{of}"), form)
    yield {Path(line["image"]).stem: line["objects"] for line in lines}
    os.chdir(before)


def expected(objects_by_image, name, stage):
    return [expected_object for expected_object in objects_by_image[name] if expected_object["stage"] == stage]


def same_boxes(boxes, objects):
    """Whether (label, x1, y1, x2, y2) are those of the objects: labels and counts equal, boxes within half a pixel."""
    assert [label for label, *_ in boxes] == [expected_object["label"] for expected_object in objects]
    for (_, *box), expected_object in zip(boxes, objects, strict=True):
        assert box == pytest.approx(expected_object["box"], abs=0.5)


# -------------------------------------------------------------------------------------------------------- datumaro


@pytest.mark.parametrize("form", ["coco", "yolo", "cvat"])
def test_datumaro_reads_boxes(objects_by_image, form):
    datumaro = installed("datumaro")
    dataset = datumaro.Dataset.import_from(f"{form}-detect", form)
    names = [category.name for category in dataset.categories()[datumaro.AnnotationType.label]]
    assert {dataset_item.id for dataset_item in dataset} == set(objects_by_image)
    for item in dataset:
        assert item.media.data.shape[:2] == (240, 321)
        boxes = [(names[a.label], *a.points) for a in sorted(item.annotations, key=lambda a: a.id)]
        same_boxes(boxes, expected(objects_by_image, item.id, "detect"))


@pytest.mark.parametrize("form", ["coco", "cvat"])
def test_datumaro_reads_masks_and_keypoints(objects_by_image, form):
    datumaro = installed("datumaro")
    dataset = datumaro.Dataset.import_from(f"{form}-seg", form)
    names = [category.name for category in dataset.categories()[datumaro.AnnotationType.label]]
    for item in dataset:
        objects = expected(objects_by_image, item.id, "seg")
        masks = [a for a in item.annotations if a.type == datumaro.AnnotationType.mask]
        masks.sort(key=lambda a: a.id)
        assert [names[a.label] for a in masks] == [expected_object["label"] for expected_object in objects[:2]]
        for expected_object, mask in zip(objects, masks, strict=False):
            assert np.array_equal(np.asarray(mask.image, bool), rle.decode(expected_object["mask"]))
        boxes = [a for a in item.annotations if a.type == datumaro.AnnotationType.bbox]
        boxes.sort(key=lambda a: a.id)
        same_boxes([(names[a.label], *a.points) for a in boxes], objects[-len(boxes) :])
        assert len(boxes) == (3 if form == "coco" else 1), "COCO has a box for each mask, too"
        if form == "cvat":
            points = [a.points for a in item.annotations if a.type == datumaro.AnnotationType.points]
            shown = [
                [xy for x, y, score in expected_object["keypoints"] if score > 0 for xy in (x, y)]
                for expected_object in objects[:2]
            ]
            assert [list(flat_points) for flat_points in points] == [
                pytest.approx(flat_points, abs=0.02) for flat_points in shown
            ]


# -------------------------------------------------------------------------------------------------------- FiftyOne


def of_fiftyone(detections):
    """Label and box in pixels of FiftyOne's detections."""
    boxes = []
    for detection in detections:
        x, y, width, height = detection.bounding_box
        boxes.append((detection.label, x * 321, y * 240, (x + width) * 321, (y + height) * 240))
    return boxes


def test_fiftyone_reads_coco(objects_by_image):
    coco = installed("fiftyone.utils.coco")
    place = {"data_path": "images", "labels_path": "annotations/instances_default.json"}
    importer = coco.COCODetectionDatasetImporter(dataset_dir="coco-detect", label_types="detections", **place)
    count = 0
    with importer:
        for path, _, label in importer:
            objects = expected(objects_by_image, Path(path).stem, "detect")
            same_boxes(of_fiftyone(label.detections), objects)
            assert [detection.confidence for detection in label.detections] == [
                expected_object["score"] for expected_object in objects
            ]
            count += 1
    assert count == len(objects_by_image)
    types = ["detections", "segmentations", "keypoints"]
    importer = coco.COCODetectionDatasetImporter(dataset_dir="coco-seg", label_types=types, **place)
    with importer:
        for path, _, labels in importer:
            objects = expected(objects_by_image, Path(path).stem, "seg")
            same_boxes(of_fiftyone(labels["detections"].detections), objects)
            for expected_object, annotation in zip(objects, labels["segmentations"].detections, strict=False):
                whole = np.zeros((240, 321), bool)
                x = round(annotation.bounding_box[0] * 321)
                y = round(annotation.bounding_box[1] * 240)
                height, width = annotation.mask.shape
                whole[y : y + height, x : x + width] = annotation.mask
                want = rle.decode(expected_object["mask"])
                assert (whole & want).sum() > 0.97 * (whole | want).sum(), "FiftyOne cuts masks out of rounded boxes"
            for expected_object, annotation in zip(objects[:2], labels["keypoints"].keypoints, strict=True):
                places = [(x * 321, y * 240) for x, y in annotation.points[:2]]
                assert places == [pytest.approx(point[:2], abs=0.5) for point in expected_object["keypoints"][:2]]


def test_fiftyone_reads_yolo_and_cvat(objects_by_image):
    yolo = installed("fiftyone.utils.yolo")
    cvat = installed("fiftyone.utils.cvat")
    importer = yolo.YOLOv5DatasetImporter(dataset_dir="yolo-detect", yaml_path="data.yaml", split="train")
    with importer:
        label_by_name = {Path(path).stem: label for path, _, label in importer}
    assert set(label_by_name) == set(objects_by_image)
    for name, label in label_by_name.items():
        same_boxes(of_fiftyone(label.detections), expected(objects_by_image, name, "detect"))
    importer = yolo.YOLOv5DatasetImporter(
        dataset_dir="yolo-seg", yaml_path="data.yaml", split="train", label_type="polylines"
    )
    with importer:
        for path, _, label in importer:
            for expected_object, line in zip(
                expected(objects_by_image, Path(path).stem, "seg"), label.polylines, strict=True
            ):
                x, y = np.array(line.points[0]).T * [[321], [240]]
                assert line.label == expected_object["label"]
                assert [x.min(), y.min(), x.max(), y.max()] == pytest.approx(expected_object["box"], abs=2)
    importer = cvat.CVATImageDatasetImporter(
        dataset_dir="cvat-detect", data_path="images", labels_path="annotations.xml"
    )
    with importer:
        for path, _, labels in importer:
            same_boxes(
                of_fiftyone(labels["detections"].detections), expected(objects_by_image, Path(path).stem, "detect")
            )


# ---------------------------------------------------------------------------------------------------- Label Studio


def test_label_studio_accepts_tasks_and_predictions(objects_by_image):
    interface = installed("label_studio_sdk.label_interface").LabelInterface
    for of in ("detect", "seg"):
        config = interface(Path(f"label-studio-{of}/label_config.xml").read_text())
        config.validate()
        tasks = json.loads(Path(f"label-studio-{of}/tasks.json").read_text())
        assert len(tasks) == len(objects_by_image)
        for task in tasks:
            prediction = task["predictions"][0]
            assert config.validate_prediction(prediction)
            assert config.validate_task({"data": task["data"]})
            other = {**prediction["result"][0], "from_name": "nothing"}
            assert not config.validate_prediction({**prediction, "result": [other]}), (
                "the validator rejects an unknown control"
            )


def test_label_studio_converts_accepted_predictions_to_coco(objects_by_image):
    converter = installed("label_studio_sdk.converter").Converter
    tasks = json.loads(Path("label-studio-detect/tasks.json").read_text())
    for number, task in enumerate(tasks):
        prediction = task.pop("predictions")[0]
        task["id"] = number
        task["annotations"] = [{**prediction, "id": number, "completed_by": 1}]
        task["data"]["image"] = f"/{Path(task['data']['image'].partition('=')[2]).name}"
    Path("accepted.json").write_text(json.dumps(tasks))
    coco_converter = converter(
        Path("label-studio-detect/label_config.xml").read_text(), project_dir=".", download_resources=False
    )
    coco_converter.convert_to_coco(
        "accepted.json", "accepted", output_image_dir="label-studio-detect/images", is_dir=False
    )
    coco = json.loads(Path("accepted/result.json").read_text())
    names = {category["id"]: category["name"] for category in coco["categories"]}
    assert sorted(names.values()) == sorted(LABELS)
    for image in coco["images"]:
        boxes = []
        for annotation in coco["annotations"]:
            if annotation["image_id"] == image["id"]:
                x, y, width, height = annotation["bbox"]
                boxes.append((names[annotation["category_id"]], x, y, x + width, y + height))
        same_boxes(boxes, expected(objects_by_image, Path(image["file_name"]).stem.partition("__")[2], "detect"))


def test_fiftyone_reads_the_regions_of_label_studio(objects_by_image):
    labelstudio = installed("fiftyone.utils.labelstudio")
    for task in json.loads(Path("label-studio-detect/tasks.json").read_text()):
        name = Path(task["data"]["image"]).stem
        regions = [labelstudio.import_label_studio_annotation(region) for region in task["predictions"][0]["result"]]
        same_boxes(of_fiftyone([region for _, region in regions]), expected(objects_by_image, name, "detect"))
