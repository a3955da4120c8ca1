"""Exports of what `collect` has collected: the objects of the lines, in each format, and what is left out."""

import json
import os
from pathlib import Path

import pytest
from support.collecting import LABELS, POINTS, labeled_folder

from streamkit.core.errors import ConfigError
from streamkit.query.collected import CollectedImages, export_collected


@pytest.fixture
def lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return labeled_folder("collected")


def exported(form, **options):
    images = CollectedImages(Path("collected"), **options)
    export_collected(images, Path(form), form)
    return images


def stage_objects(line, stage):
    return [entry for entry in line["objects"] if entry["stage"] == stage]


def test_coco_has_the_images_and_objects_of_the_lines(lines):
    exported("coco", of="detect")
    coco = json.loads(Path("coco/annotations/instances_default.json").read_text())
    assert [category["name"] for category in coco["categories"]] == list(LABELS)
    assert sorted(os.listdir("coco/images")) == sorted(image["file_name"] for image in coco["images"])
    for image, line in zip(coco["images"], lines, strict=True):
        assert (image["file_name"], image["width"], image["height"]) == (Path(line["image"]).name, 321, 240)
        assert (image["reason"], image["video"], image["collected"]) == ("low_score", "gate", line["collected"])
        same = Path("coco/images", image["file_name"]).read_bytes() == Path("collected", line["image"]).read_bytes()
        assert same, "an image is not encoded again"
        annotations = [annotation for annotation in coco["annotations"] if annotation["image_id"] == image["id"]]
        for annotation, expected in zip(annotations, stage_objects(line, "detect"), strict=True):
            x, y, width, height = annotation["bbox"]
            assert [x, y, x + width, y + height] == pytest.approx(expected["box"], abs=0.011)
            assert LABELS[annotation["category_id"] - 1] == expected["label"]
            assert annotation["score"] == expected["score"]


def test_an_object_of_two_detectors_is_exported_once(lines):
    images = exported("coco")
    coco = json.loads(Path("coco/annotations/instances_default.json").read_text())
    assert len(coco["annotations"]) == 3 * (4 + 3 - 2), "two are the same; the third has another label"
    assert images.left_out.objects == 3 * 2
    assert images.stages() == ["detect", "seg"]


def test_label_studio_gets_regions_of_the_labels_of_its_configuration(lines):
    from xml.etree import ElementTree

    exported("label-studio", of="seg")
    tasks = json.loads(Path("label-studio/tasks.json").read_text())
    config = ElementTree.parse("label-studio/label_config.xml").getroot()
    labels_of_tags = {tag.get("name"): [label.get("value") for label in tag] for tag in config if tag.tag != "Image"}
    assert labels_of_tags == {"box": list(LABELS), "polygon": list(LABELS), "keypoint": list(POINTS[:2])}
    for task, line in zip(tasks, lines, strict=True):
        assert task["data"]["image"] == f"/data/local-files/?d=label-studio/{line['image']}"
        regions = task["predictions"][0]["result"]
        assert [region["type"] for region in regions] == [
            *["polygonlabels", "keypointlabels", "keypointlabels"] * 2,
            "rectanglelabels",
        ]
        for region in regions:
            assert region["value"][region["type"]][0] in labels_of_tags[region["from_name"]]
            assert (region["original_width"], region["original_height"]) == (321, 240)
        objects = stage_objects(line, "seg")
        box = regions[-1]["value"]
        corners = [box["x"] * 3.21, box["y"] * 2.4, (box["x"] + box["width"]) * 3.21, (box["y"] + box["height"]) * 2.4]
        assert corners == pytest.approx(objects[2]["box"], abs=0.01)
        for number, expected_object in enumerate(objects[:2]):
            polygon = [(x * 3.21, y * 2.4) for x, y in regions[3 * number]["value"]["points"]]
            outline = [
                min(x for x, _ in polygon),
                min(y for _, y in polygon),
                max(x for x, _ in polygon),
                max(y for _, y in polygon),
            ]
            assert outline == pytest.approx(expected_object["box"], abs=2)
            for region, (x, y, score) in zip(regions[3 * number + 1 :], expected_object["keypoints"][:2], strict=False):
                assert (region["value"]["x"] * 3.21, region["value"]["y"] * 2.4) == pytest.approx((x, y), abs=0.01)
                assert region["score"] == score


def test_a_condition_selects_images(lines):
    images = CollectedImages(Path("collected"))
    images.keep("pts_s >= 10 AND reason = 'low_score' AND objects = 7")
    assert [line["frame"] for line in images.lines] == [1, 2]
    images.keep("frame = 2")
    with pytest.raises(ConfigError, match="--where 'frame = 1' selects none"):
        images.keep("frame = 1")
    with pytest.raises(ConfigError, match=r"--where is wrong: .*frames.*; the columns are image, source, reason"):
        images.keep("frames = 1")
    with pytest.raises(ConfigError, match="--where is wrong: "):
        images.keep("image IN (SELECT content FROM read_text('/etc/hostname'))")


def test_removed_images_are_skipped(lines):
    os.unlink(Path("collected", lines[1]["image"]))
    assert exported("coco").left_out.images == 1
    coco = json.loads(Path("coco/annotations/instances_default.json").read_text())
    assert [image["frame_id"] for image in coco["images"]] == [0, 2]
    for line in (lines[0], lines[2]):
        os.unlink(Path("collected", line["image"]))
    with pytest.raises(ConfigError, match="none of the 3 images of collected is there any more"):
        exported("yolo")
    assert not Path("yolo").exists()


def test_problems_of_a_folder_are_reported(lines):
    with pytest.raises(ConfigError, match="--of second: no objects come from it; there are detect, seg"):
        CollectedImages(Path("collected"), "second")
    path = Path("collected/collected.jsonl")
    whole = path.read_text()
    for line in ("no json", '{"schema": "streamkit/1"}', whole.splitlines()[0].replace("images/", "images/../../")):
        path.write_text(f"{whole}{line}\n")
        with pytest.raises(
            ConfigError, match=r"collected.jsonl: line 4 is not a line of collect; restore or remove it"
        ):
            CollectedImages(Path("collected"))
    path.write_text(whole + '{"schema":"streamkit/coll')
    assert len(CollectedImages(Path("collected")).lines) == 3, "the line that a process is writing"
    path.write_text("")
    with pytest.raises(ConfigError, match="collected has no images yet: nothing was collected"):
        CollectedImages(Path("collected"))


def test_the_command_exports_a_collected_folder(lines, here, tmp_path):
    completed = here("export", "collected", "--format", "yolo", "--out", "out", "--limit", "2", cwd=tmp_path)
    assert (completed.returncode, completed.stdout) == (0, "")
    assert completed.stderr.splitlines() == [
        "2 images in out",
        "4 objects that two detectors have found are exported once; --of detect exports those of one",
    ]
    for more, message in (
        (["--images", "png"], "as the JPEG that it has; leave out --images png"),
        (["SELECT 1"], "leave out the SELECT"),
    ):
        completed = here("export", "collected", *more, "--format", "yolo", "--out", "more", cwd=tmp_path)
        assert (completed.returncode, message in completed.stderr) == (2, True), completed.stderr
