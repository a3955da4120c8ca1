"""Exports of `collect`, opened by the tools that they are for: their importers find what the lines say.

Datumaro, FiftyOne and the SDK of Label Studio are large, so the tests of each run where it is installed. Of FiftyOne,
the importers run, which need no database.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from support.collecting import LABELS, labelled_folder

from streamkit.ops import rle
from streamkit.query.collected import CollectedImages, export_collected

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # the tools' own warnings


def installed(module):
    """A module of a tool; skips where the tool is not installed, which no extra does."""
    return pytest.importorskip(module, reason=f"{module.partition('.')[0].replace('_', '-')} is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The lines; the working folder has `collected` and all exports of both detectors."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("tools")
    os.chdir(folder)
    lines = labelled_folder("collected")
    for of in ("detect", "seg"):
        for form in ("coco", "yolo", "cvat", "label-studio"):
            export_collected(CollectedImages(Path("collected"), of), Path(f"{form}-{of}"), form)
    yield {Path(line["image"]).stem: line["objects"] for line in lines}
    os.chdir(before)


def expected(made, name, stage):
    return [one for one in made[name] if one["stage"] == stage]


def same_boxes(found, objects):
    """Whether (label, x1, y1, x2, y2) are those of the objects: labels and counts equal, boxes within half a pixel."""
    assert [label for label, *_ in found] == [one["label"] for one in objects]
    for (_, *box), one in zip(found, objects, strict=True):
        assert box == pytest.approx(one["box"], abs=0.5)


# -------------------------------------------------------------------------------------------------------- datumaro


@pytest.mark.parametrize("form", ["coco", "yolo", "cvat"])
def test_datumaro_reads_boxes(made, form):
    datumaro = installed("datumaro")
    found = datumaro.Dataset.import_from(f"{form}-detect", form)
    names = [one.name for one in found.categories()[datumaro.AnnotationType.label]]
    assert {one.id for one in found} == set(made)
    for item in found:
        assert item.media.data.shape[:2] == (240, 321)
        boxes = [(names[a.label], *a.points) for a in sorted(item.annotations, key=lambda a: a.id)]
        same_boxes(boxes, expected(made, item.id, "detect"))


@pytest.mark.parametrize("form", ["coco", "cvat"])
def test_datumaro_reads_masks_and_keypoints(made, form):
    datumaro = installed("datumaro")
    found = datumaro.Dataset.import_from(f"{form}-seg", form)
    names = [one.name for one in found.categories()[datumaro.AnnotationType.label]]
    for item in found:
        objects = expected(made, item.id, "seg")
        masks = [a for a in item.annotations if a.type == datumaro.AnnotationType.mask]
        masks.sort(key=lambda a: a.id)
        assert [names[a.label] for a in masks] == [one["label"] for one in objects[:2]]
        for one, mask in zip(objects, masks, strict=False):
            assert np.array_equal(np.asarray(mask.image, bool), rle.decode(one["mask"]))
        boxes = [a for a in item.annotations if a.type == datumaro.AnnotationType.bbox]
        boxes.sort(key=lambda a: a.id)
        same_boxes([(names[a.label], *a.points) for a in boxes], objects[-len(boxes) :])
        assert len(boxes) == (3 if form == "coco" else 1), "COCO has a box for each mask, too"
        if form == "cvat":
            points = [a.points for a in item.annotations if a.type == datumaro.AnnotationType.points]
            shown = [[xy for x, y, score in one["keypoints"] if score > 0 for xy in (x, y)] for one in objects[:2]]
            assert [list(one) for one in points] == [pytest.approx(one, abs=0.02) for one in shown]


# -------------------------------------------------------------------------------------------------------- FiftyOne


def of_fiftyone(detections):
    """Label and box in pixels of FiftyOne's detections."""
    found = []
    for one in detections:
        x, y, width, height = one.bounding_box
        found.append((one.label, x * 321, y * 240, (x + width) * 321, (y + height) * 240))
    return found


def test_fiftyone_reads_coco(made):
    coco = installed("fiftyone.utils.coco")
    place = {"data_path": "images", "labels_path": "annotations/instances_default.json"}
    importer, count = coco.COCODetectionDatasetImporter(dataset_dir="coco-detect", label_types="detections", **place), 0
    with importer:
        for path, _, label in importer:
            objects = expected(made, Path(path).stem, "detect")
            same_boxes(of_fiftyone(label.detections), objects)
            assert [one.confidence for one in label.detections] == [one["score"] for one in objects]
            count += 1
    assert count == len(made)
    types = ["detections", "segmentations", "keypoints"]
    importer = coco.COCODetectionDatasetImporter(dataset_dir="coco-seg", label_types=types, **place)
    with importer:
        for path, _, labels in importer:
            objects = expected(made, Path(path).stem, "seg")
            same_boxes(of_fiftyone(labels["detections"].detections), objects)
            for one, found in zip(objects, labels["segmentations"].detections, strict=False):
                whole = np.zeros((240, 321), bool)
                x, y = round(found.bounding_box[0] * 321), round(found.bounding_box[1] * 240)
                height, width = found.mask.shape
                whole[y : y + height, x : x + width] = found.mask
                want = rle.decode(one["mask"])
                assert (whole & want).sum() > 0.97 * (whole | want).sum(), "FiftyOne cuts masks out of rounded boxes"
            for one, found in zip(objects[:2], labels["keypoints"].keypoints, strict=True):
                places = [(x * 321, y * 240) for x, y in found.points[:2]]
                assert places == [pytest.approx(point[:2], abs=0.5) for point in one["keypoints"][:2]]


def test_fiftyone_reads_yolo_and_cvat(made):
    yolo, cvat = installed("fiftyone.utils.yolo"), installed("fiftyone.utils.cvat")
    importer = yolo.YOLOv5DatasetImporter(dataset_dir="yolo-detect", yaml_path="data.yaml", split="train")
    with importer:
        found = {Path(path).stem: label for path, _, label in importer}
    assert set(found) == set(made)
    for name, label in found.items():
        same_boxes(of_fiftyone(label.detections), expected(made, name, "detect"))
    importer = yolo.YOLOv5DatasetImporter(
        dataset_dir="yolo-seg", yaml_path="data.yaml", split="train", label_type="polylines"
    )
    with importer:
        for path, _, label in importer:
            for one, line in zip(expected(made, Path(path).stem, "seg"), label.polylines, strict=True):
                x, y = np.array(line.points[0]).T * [[321], [240]]
                assert line.label == one["label"]
                assert [x.min(), y.min(), x.max(), y.max()] == pytest.approx(one["box"], abs=2)
    importer = cvat.CVATImageDatasetImporter(
        dataset_dir="cvat-detect", data_path="images", labels_path="annotations.xml"
    )
    with importer:
        for path, _, labels in importer:
            same_boxes(of_fiftyone(labels["detections"].detections), expected(made, Path(path).stem, "detect"))


# ---------------------------------------------------------------------------------------------------- Label Studio


def test_label_studio_accepts_tasks_and_predictions(made):
    interface = installed("label_studio_sdk.label_interface").LabelInterface
    for of in ("detect", "seg"):
        config = interface(Path(f"label-studio-{of}/label_config.xml").read_text())
        config.validate()
        tasks = json.loads(Path(f"label-studio-{of}/tasks.json").read_text())
        assert len(tasks) == len(made)
        for task in tasks:
            prediction = task["predictions"][0]
            assert config.validate_prediction(prediction)
            assert config.validate_task({"data": task["data"]})
            other = {**prediction["result"][0], "from_name": "nothing"}
            assert not config.validate_prediction({**prediction, "result": [other]}), "it can refuse"


def test_label_studio_converts_accepted_predictions_to_coco(made):
    converter = installed("label_studio_sdk.converter").Converter
    tasks = json.loads(Path("label-studio-detect/tasks.json").read_text())
    for number, task in enumerate(tasks):
        task["id"], task["annotations"] = number, [{**task.pop("predictions")[0], "id": number, "completed_by": 1}]
        task["data"]["image"] = f"/{Path(task['data']['image'].partition('=')[2]).name}"
    Path("accepted.json").write_text(json.dumps(tasks))
    made_converter = converter(
        Path("label-studio-detect/label_config.xml").read_text(), project_dir=".", download_resources=False
    )
    made_converter.convert_to_coco(
        "accepted.json", "accepted", output_image_dir="label-studio-detect/images", is_dir=False
    )
    coco = json.loads(Path("accepted/result.json").read_text())
    names = {one["id"]: one["name"] for one in coco["categories"]}
    assert sorted(names.values()) == sorted(LABELS)
    for image in coco["images"]:
        boxes = [
            (
                names[a["category_id"]],
                a["bbox"][0],
                a["bbox"][1],
                a["bbox"][0] + a["bbox"][2],
                a["bbox"][1] + a["bbox"][3],
            )
            for a in coco["annotations"]
            if a["image_id"] == image["id"]
        ]
        same_boxes(boxes, expected(made, Path(image["file_name"]).stem.partition("__")[2], "detect"))


def test_fiftyone_reads_the_regions_of_label_studio(made):
    labelstudio = installed("fiftyone.utils.labelstudio")
    for task in json.loads(Path("label-studio-detect/tasks.json").read_text()):
        name = Path(task["data"]["image"]).stem
        regions = [labelstudio.import_label_studio_annotation(one) for one in task["predictions"][0]["result"]]
        same_boxes(of_fiftyone([found for _, found in regions]), expected(made, name, "detect"))
