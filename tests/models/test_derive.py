"""Cards that are derived from ONNX files: by metadata, by the files beside them, and by shapes."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped, with_metadata

from streamkit.core.errors import ModelError
from streamkit.models.beside_facts import companions
from streamkit.models.card import Card, find_card, load_card
from streamkit.models.derive import derive, open_model
from streamkit.models.facts import Underivable
from streamkit.models.labels import LABEL_LISTS, SKELETONS
from streamkit.models.network import check_model

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
TWO = "{0: 'cat', 1: 'dog'}"


def ultralytics(task: str = "detect", names: str = TWO, **more: str) -> dict[str, str]:
    return {"task": task, "names": names, "stride": "32", "imgsz": "[640, 640]", "author": "Ultralytics"} | more


def wrong(file: Path, **options) -> str:
    with pytest.raises(Underivable) as caught:
        derive(file, **options)
    return "\n".join(problem.text for problem in caught.value.problems)


def write_json(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(json.dumps(content))


# ------------------------------------------------------------------------------------------------- the given networks


MODELS = {
    "yolox-nano": ("yolox_nano_dyn.onnx", "coco"),
    "yolov8n": ("yolov8n_640_deq_dyn.onnx", ""),
    "yolov8n-seg": ("yolov8n-seg_320_deq_dyn.onnx", ""),
    "deimv2-atto": ("deimv2_hgnetv2_atto_coco.onnx", "coco"),
    "movenet-lightning": ("movenet_lightning_192.onnx", ""),
    "deeplabv3-voc": ("deeplabv3_mnv2_voc_257.onnx", "voc_segmentation"),
}


def beside(data: Path, folder: Path, name: str) -> Path:
    """The network alone in a folder, with a list of its labels if it needs one."""
    file, labels = MODELS[name]
    (folder / file).symlink_to(data / "models" / file)
    if labels:
        (folder / "labels.txt").write_text("\n".join(LABEL_LISTS[labels]))
    return folder / file


@pytest.mark.parametrize("name", ["yolox-nano", "yolov8n", "yolov8n-seg", "deimv2-atto", "movenet-lightning"])
def test_a_derived_card_equals_the_shipped_one(name, test_data, tmp_path):
    file = beside(test_data, tmp_path, name)
    card = open_model(file.name, tmp_path)
    shipped = load_card(find_card(name)).with_file(file)
    size = (320, 320) if name == "yolov8n-seg" else shipped.input.size
    expected = dataclasses.replace(
        shipped,
        name=file.stem,
        path=file,
        note="",
        license=card.license,
        file=card.file,
        input=dataclasses.replace(shipped.input, size=size),
        iou=card.iou if "yol" not in name else shipped.iou,
    )
    assert card == expected
    assert check_model(card).task == shipped.task


def test_a_written_card_loads_as_the_derived_card(test_data, tmp_path):
    file = beside(test_data, tmp_path, "yolov8n")
    derived_card = derive(file)
    (tmp_path / "best.yaml").write_text(derived_card.text(tmp_path))
    written = load_card(tmp_path / "best.yaml")
    derived = derived_card.card()
    assert dataclasses.replace(written, name=derived.name, path=derived.path) == derived


def test_a_network_without_metadata_needs_the_input_options(test_data, tmp_path):
    file = beside(test_data, tmp_path, "deeplabv3-voc")
    assert "no source says how an image becomes the input" in wrong(file)
    derived_card = derive(file, family="semantic", assume=True)
    assert derived_card.card().labels == LABEL_LISTS["voc_segmentation"]
    assert "# CHECK: no source says input.resize" in derived_card.text(tmp_path)
    assert "ASSUMED" in derived_card.text(tmp_path)


# ----------------------------------------------------------------------------------------------- Ultralytics' metadata


@pytest.mark.parametrize(
    ("task", "outputs", "family", "card_task"),
    [
        ("detect", {"o": ["N", 6, 8400]}, "yolov8", "detect"),
        ("detect", {"o": ["N", 300, 6]}, "yolo_e2e", "detect"),
        ("detect", {"o": ["N", 25200, 7]}, "yolov5", "detect"),
        ("detect", {"o": ["batch", 6, "anchors"]}, "yolov8", "detect"),
        ("segment", {"o": ["N", 38, 8400], "p": ["N", 32, 160, 160]}, "yolov8_seg", "segment"),
        ("pose", {"o": ["N", 57, 8400]}, "yolov8_pose", "pose"),
        ("obb", {"o": ["N", 7, 8400]}, "yolov8_obb", "detect"),
        ("obb", {"o": ["N", 300, 7]}, "yolo_e2e_obb", "detect"),
        ("obb", {"o": ["batch", 7, "anchors"]}, "yolov8_obb", "detect"),
        ("segment", {"o": ["N", 300, 38], "p": ["N", 32, 160, 160]}, "yolo_e2e_seg", "segment"),
        ("pose", {"o": ["N", 300, 57]}, "yolo_e2e_pose", "pose"),
        ("classify", {"o": ["N", 2]}, "probabilities", "classify"),
        ("semantic", {"o": ["N", 2, 640, 640]}, "semantic", "segment"),
    ],
)
def test_the_task_is_read_from_the_metadata(task, outputs, family, card_task, tmp_path):
    card = derive(shaped(tmp_path / "best.onnx", outputs, metadata=ultralytics(task))).card()
    assert (card.family, card.task, card.labels) == (family, card_task, ("cat", "dog"))
    assert check_model(card).input.scale == 1 / 255
    assert card.input.resize == ("crop" if task == "classify" else "letterbox")
    assert card.input.antialias is (task == "classify")
    assert (card.input.pad, card.input.anchor, card.input.color) == (114, "center", "rgb")


def selected_rows(largest: float, last: float = 1.0) -> np.ndarray:
    """Rows of objects whose boxes reach from 0 to `largest`."""
    rows_of_boxes = np.zeros((1, 300, 6))
    rows_of_boxes[0, :, :4] = np.linspace(0, largest, 300)[:, None]
    rows_of_boxes[0, :, 4:] = (0.5, last)
    return rows_of_boxes


SELECTED = [
    (selected_rows(639), "yolo_e2e", "letterbox"),  # YOLOv10 and 26
    (np.zeros((1, 300, 6)), "yolo_e2e", "letterbox"),  # nms=True, which found nothing
    (selected_rows(0.9), "rtdetr_e2e", "stretch"),
    (selected_rows(0.9, last=0.25), "rtdetr", "stretch"),  # before the network selected: scores of two classes
]


@pytest.mark.parametrize(("values", "family", "resize"), SELECTED)
def test_a_trial_run_identifies_rows_of_six_values(values, family, resize, tmp_path):
    path = shaped(tmp_path / "best.onnx", {"o": [1, 300, 6]}, values={"o": values}, metadata=ultralytics())
    card = derive(path).card()
    assert (card.family, card.input.resize, card.input.antialias) == (family, resize, False)
    assert (card.input.color, card.input.scale, card.score) == ("rgb", 1 / 255, 0.25)


@pytest.mark.parametrize(("head", "family"), [("RTDETRDecoder", "rtdetr_e2e"), ("Detect", "yolo_e2e")])
def test_the_head_in_the_metadata_identifies_rtdetr(head, family, tmp_path):
    names = "{0: 'a', 1: 'b', 2: 'c'}"
    meta = ultralytics(names=names, head=head)
    assert derive(shaped(tmp_path / "best.onnx", {"o": ["N", 300, 6]}, metadata=meta)).card().family == family
    other = shaped(tmp_path / "other.onnx", {"o": ["N", 300, 7]}, metadata=ultralytics(names=names, head=head))
    if head == "Detect":
        assert "tried yolov8, yolov5, yolo_e2e; export it" in wrong(other)
    else:
        assert derive(other).card().family == "rtdetr"


def test_a_trial_run_determines_open_row_sizes(tmp_path):
    meta = ultralytics(head="RTDETRDecoder")
    open_ = ["batch", "queries", "values"]
    path = shaped(tmp_path / "best.onnx", {"o": open_}, values={"o": np.full((1, 1, 1), 0.5)}, metadata=meta)
    assert "reads its outputs o['?', 1, 1]; tried rtdetr, rtdetr_e2e" in wrong(path)


def test_oriented_boxes_need_metadata_or_a_family(tmp_path):
    file = shaped(tmp_path / "best.onnx", {"o": ["N", 7, 8400]})
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    message = wrong(file)
    assert "labels are 2 (cat, dog) in labels.txt, but the outputs o['?', 7, 8400] have 3 classes, or 2" in message
    assert "2 classes and the angle of oriented boxes, which streamkit models new" in message
    assert "--family yolov8_obb reads; give the list of this network" in message
    assert derive(file, family="yolov8_obb").card().labels == ("cat", "dog")


def test_names_in_any_order_and_the_license_are_read_from_the_metadata(tmp_path):
    names = "{1: 'b', 10: 'k', 0: 'a', 2: 'c', 3: 'd', 4: 'e', 5: 'f', 6: 'g', 7: 'h', 8: 'i', 9: 'j'}"
    meta = ultralytics(names=names, license="AGPL-3.0 License (https://x)", description="My model")
    derived_card = derive(shaped(tmp_path / "best.onnx", {"o": ["N", 15, 8400]}, metadata=meta))
    assert derived_card.card().labels == tuple("abcdefghijk")
    assert derived_card.card().license == "AGPL-3.0"
    assert derived_card.text(tmp_path).startswith("# Derived from best.onnx by streamkit models new. My model\n")


def test_metadata_of_yolov5_have_names_and_stride_only(tmp_path):
    meta = {"names": "['cat', 'dog']", "stride": "32"}
    card = derive(shaped(tmp_path / "best.onnx", {"o": [1, 25200, 7]}, metadata=meta)).card()
    assert (card.family, card.iou, card.labels) == ("yolov5", 0.45, ("cat", "dog"))


def test_an_open_input_gets_the_size_of_the_metadata(tmp_path):
    path = tmp_path / "best.onnx"
    meta = ultralytics(imgsz="[384, 640]")
    shaped(path, {"o": ["N", 6, "anchors"]}, image=["N", 3, "height", "width"], metadata=meta)
    assert derive(path).card().input.size == (640, 384)
    meta.pop("imgsz")
    shaped(path, {"o": ["N", 6, "anchors"]}, image=["N", 3, "height", "width"], metadata=meta)
    assert "leaves height and width open" in wrong(path)
    assert f"models new {path} --size WIDTHxHEIGHT" in wrong(path)
    assert derive(path, size=(320, 224)).card().input.size == (320, 224)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((650, 480), "yunet.onnx cannot be run on images of 650 x 480: "),
        ((8, 8), "the output has 21 anchors, and an input of 8x8 with strides 8, 16, 32 has 1"),
    ],
)
def test_an_unsupported_size_of_an_open_network_is_refused(size, expected, test_data, tmp_path, capfd):
    path = tmp_path / "yunet.onnx"
    path.symlink_to(test_data / "models" / "yunet_n_dynamic.onnx")
    with pytest.raises(ModelError) as caught:
        derive(path, size=size)
    assert expected in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert derive(path, size=(640, 480)).card().family == "yunet"


def test_keypoints_of_a_person_default_to_coco(tmp_path):
    path = tmp_path / "best.onnx"
    meta = ultralytics("pose", "{0: 'person'}", kpt_shape="[17, 3]")
    assert derive(shaped(path, {"o": ["N", 56, 8400]}, metadata=meta)).card().skeleton == SKELETONS["coco"]
    meta = ultralytics("pose", "{0: 'gate'}", kpt_shape="[4, 3]")
    assert derive(shaped(path, {"o": ["N", 17, 8400]}, metadata=meta)).card().skeleton is None
    shaped(path, {"o": ["N", 11, 8400]}, metadata=ultralytics("pose", "{0: 'gate'}", kpt_shape="[3, 2]"))
    assert "a keypoint must have x, y and a score" in wrong(path)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (
            ultralytics(names="{0: 'cat'}"),
            "the labels are 1 (cat) in the metadata of best.onnx (names), but the "
            "outputs o['?', 6, 8400] have 2 classes; give the list of this network",
        ),
        (
            ultralytics(imgsz="[320, 320]"),
            "input.size is 320 x 320 in the metadata of best.onnx (imgsz, height and "
            "width) but 640 x 640 in the shape of input 'images'; export the network again",
        ),
        (ultralytics(names="{0: 'cat', 2: 'dog'}"), "must number the classes from 0 without gaps"),
        (ultralytics(names="cat, dog"), "names in the metadata of best.onnx is not a list or mapping: 'cat, dog'"),
        (ultralytics(task="flow"), "task is 'flow' in the metadata of best.onnx, and no family reads it"),
        (ultralytics(task="depth"), "no family of the metadata of best.onnx (task: depth) reads its outputs"),
        (ultralytics(task="classify"), "no family of the metadata of best.onnx (task: classify) reads its outputs"),
        (ultralytics(imgsz="640, 640, 3"), "imgsz in the metadata of best.onnx must be height and width"),
        (ultralytics(imgsz="None"), "imgsz in the metadata of best.onnx must be height and width, got 'None'"),
        (ultralytics("pose", kpt_shape="17"), "kpt_shape is 17 in the metadata of best.onnx; a keypoint must have"),
    ],
)
def test_contradicting_metadata_are_reported(metadata, expected, tmp_path):
    assert expected in wrong(shaped(tmp_path / "best.onnx", {"o": ["N", 6, 8400]}, metadata=metadata))


@pytest.mark.parametrize(
    ("names", "points", "keypoints"),
    [("{0: 'person'}", 17, 17), ("{0: 'cat'}", 17, 0), ("{0: 'adult'}", 17, 0), ("{0: 'person'}", 12, 0)],
)
def test_seventeen_keypoints_of_a_person_get_coco_names(names, points, keypoints, tmp_path):
    meta = ultralytics("pose", names, kpt_shape=f"[{points}, 3]")
    card = derive(shaped(tmp_path / "best.onnx", {"o": ["N", 5 + 3 * points, 8400]}, metadata=meta)).card()
    assert len(card.skeleton.names if card.skeleton else ()) == keypoints


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"names": "{-1: 'cat', 0: 'dog'}"}, "names in the metadata of best.onnx must number the classes from 0"),
        ({"imgsz": "[640, -640]"}, "must be height and width, got '[640, -640]'"),
        ({"imgsz": "[640, 640, 3]"}, "must be height and width"),
        ({"imgsz": "[640.0, 640]"}, "must be height and width"),
    ],
)
def test_implausible_metadata_are_reported(metadata, expected, tmp_path):
    text = wrong(shaped(tmp_path / "best.onnx", {"o": ["N", 6, 8400]}, metadata=ultralytics(**metadata)))
    assert expected in text


@pytest.mark.parametrize("stride", ["0", "many"])
def test_an_invalid_stride_is_ignored(stride, tmp_path):
    path = tmp_path / "best.onnx"
    shaped(path, {"o": ["N", 6, "anchors"]}, image=["N", 3, "height", "width"], metadata=ultralytics(stride=stride))
    assert derive(path, size=(641, 479)).card().input.size == (641, 479)


@pytest.mark.parametrize(("task", "values"), [("pose", 56), ("pose", 57)])
def test_a_number_of_keypoints_other_than_in_the_outputs_is_reported(task, values, tmp_path):
    """Of 56 values and one class, 17 points of the outputs against 12; of 57, rows of a network that selects itself."""
    shape = ["N", values, 8400] if values == 56 else ["N", 300, values]
    meta = ultralytics(task, "{0: 'person'}", kpt_shape="[12, 3]")
    message = wrong(shaped(tmp_path / "best.onnx", {"o": shape}, metadata=meta))
    assert "the keypoints are 12 in the metadata of best.onnx (kpt_shape), but the outputs o[" in message
    assert "have 17; export the network again" in message


def test_a_size_that_is_not_a_multiple_of_the_stride_is_refused(tmp_path):
    path = tmp_path / "best.onnx"
    meta = ultralytics(stride="64")
    shaped(path, {"o": ["N", 6, "anchors"]}, image=["N", 3, "height", "width"], metadata=meta)
    expected = (
        "input.size is 640 x 416 in --size, and width and height must be multiples of 64, by the metadata of "
        "best.onnx (stride); write a card"
    )
    assert expected in wrong(path, size=(640, 416))
    assert derive(path, size=(640, 448)).card().input.size == (640, 448)


def test_yolov5_with_masks_is_not_read_as_a_detector(tmp_path):
    path = shaped(tmp_path / "best.onnx", {"o": [1, 25200, 39], "p": [1, 32, 160, 160]})
    assert "no family reads its outputs o[1, 25200, 39], p[1, 32, 160, 160]" in wrong(path)


def test_an_output_without_dimensions_is_read_by_no_family(tmp_path):
    assert "no family reads its outputs o[]" in wrong(shaped(tmp_path / "best.onnx", {"o": []}))


def test_metadata_of_other_exporters_are_ignored(tmp_path):
    path = shaped(tmp_path / "best.onnx", {"o": ["N", 6, 8400]}, metadata={"names": "cat;dog", "made_by": "me"})
    assert "no source names 2 classes (family yolov8" in wrong(path)


# --------------------------------------------------------------------------------------------------------- Hugging Face

RT_DETR = {"architectures": ["RTDetrForObjectDetection"], "model_type": "rt_detr", "id2label": {"0": "cat", "1": "dog"}}
STEPS = {
    "do_resize": True,
    "size": {"height": 640, "width": 640},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": False,
    "image_mean": list(IMAGENET[0]),
    "image_std": list(IMAGENET[1]),
}
RAW = {"logits": ["N", 300, 2], "pred_boxes": ["N", 300, 4]}


@pytest.mark.parametrize("count", [2, 40, 300])
def test_long_lists_of_labels_are_wrapped(tmp_path, count):
    labels = {str(number): f"a thing of kind {number}" for number in range(count)}
    write_json(tmp_path, "config.json", RT_DETR | {"id2label": labels})
    write_json(tmp_path, "preprocessor_config.json", STEPS)
    file = shaped(tmp_path / "model.onnx", {"logits": ["N", 300, count], "pred_boxes": ["N", 300, 4]})
    text = derive(file).text(tmp_path)
    (tmp_path / "model.yaml").write_text(text)
    assert load_card(tmp_path / "model.yaml").labels == tuple(labels.values())
    listed = text[text.index("labels: [") :].splitlines()[1:-1] if count > 2 else []
    wrapped = [line for line in listed if line.startswith("  ")]
    assert all(len(line) < 112 for line in wrapped)
    assert all(len(line) > 85 for line in wrapped[:-1]), "no line ends early"
    assert bool(wrapped) is (count > 2)


def test_a_detr_of_hugging_face_is_derived(tmp_path):
    write_json(tmp_path, "config.json", RT_DETR)
    write_json(tmp_path, "preprocessor_config.json", STEPS)
    card = derive(shaped(tmp_path / "onnx" / "model.onnx", RAW, image=["N", 3, "h", "w"])).card()  # one folder up
    assert (card.family, card.labels, card.select, card.input.size) == ("detr", ("cat", "dog"), "", (640, 640))
    assert (card.input.resize, card.input.color, card.input.scale) == ("stretch", "rgb", 1 / 255)
    assert (card.input.mean, card.input.std) == ((0, 0, 0), (1, 1, 1))
    write_json(tmp_path, "preprocessor_config.json", STEPS | {"do_normalize": True})
    card = derive(tmp_path / "onnx" / "model.onnx").card()
    assert (card.input.mean, card.input.std) == IMAGENET


def test_an_extra_class_may_mean_no_object(tmp_path):
    path = shaped(tmp_path / "model.onnx", RAW | {"logits": ["N", 300, 4]})
    (tmp_path / "labels.txt").write_text("cat\ndog")
    assert "have 4 classes; give the list of this network" in wrong(path)
    shaped(path, RAW | {"logits": ["N", 300, 3]})
    (tmp_path / "labels.txt").write_text("cat\ndog")
    assert (
        "have 3 classes. The last may be no object, as in the first DETR: put its config.json beside it, or write a "
        "card with select: softmax. Otherwise give the list of this network" in wrong(path)
    )


@pytest.mark.parametrize("dropped", [(), ("architectures",)])
def test_the_original_detr_selects_by_softmax(dropped, tmp_path):
    config = RT_DETR | {"model_type": "detr"}
    write_json(tmp_path, "config.json", {key: value for key, value in config.items() if key not in dropped})
    write_json(tmp_path, "preprocessor_config.json", STEPS)
    path = shaped(tmp_path / "model.onnx", RAW | {"logits": ["N", 100, 3], "pred_boxes": ["N", 100, 4]})
    card = derive(path).card()
    assert card.select == "softmax"
    assert check_model(card).labels == ("cat", "dog")


@pytest.mark.parametrize(
    ("steps", "resize", "resize_to", "size"),
    [
        ({"size": {"height": 224, "width": 224}}, "stretch", None, (224, 224)),
        ({"size": 224}, "stretch", None, (224, 224)),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
            "crop",
            256,
            (224, 224),
        ),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, "crop", 256, (224, 224)),
    ],
)
def test_a_classifier_of_hugging_face_is_derived(steps, resize, resize_to, size, tmp_path):
    config = {"architectures": ["ViTForImageClassification"], "id2label": {"0": "cat", "1": "dog"}}
    write_json(tmp_path, "config.json", config)
    write_json(tmp_path, "preprocessor_config.json", {"image_mean": [0.5] * 3, "image_std": [0.5] * 3} | steps)
    card = derive(shaped(tmp_path / "model.onnx", {"logits": ["N", 2]}, image=["N", 3, 224, 224])).card()
    assert (card.task, card.family, card.labels) == ("classify", "logits", ("cat", "dog"))
    assert (card.input.resize, card.input.resize_to, card.input.size) == (resize, resize_to, size)
    assert (card.input.mean, card.input.std) == ((0.5,) * 3, (0.5,) * 3)
    assert card.input.scale == pytest.approx(1 / 255)
    assert card.input.antialias


@pytest.mark.parametrize(
    ("resample", "antialias", "note"),
    [
        (2, True, ""),
        (3, True, "the bicubic filter (resample: 3), and streamkit with the bilinear one, antialiased;"),
        (1, True, "the lanczos filter (resample: 1)"),
        (4, True, "the box filter (resample: 4)"),
        (5, True, "the hamming filter (resample: 5)"),
        (0, False, "the nearest filter (resample: 0), and streamkit with the bilinear one;"),
    ],
)
def test_an_unsupported_resize_filter_is_noted(resample, antialias, note, tmp_path):
    write_json(tmp_path, "config.json", RT_DETR)
    write_json(tmp_path, "preprocessor_config.json", STEPS | {"resample": resample})
    derived_card = derive(shaped(tmp_path / "model.onnx", RAW))
    assert derived_card.card().input.antialias is antialias
    assert (note in derived_card.card().note) if note else derived_card.card().note == ""
    (tmp_path / "model.yaml").write_text(derived_card.text(tmp_path))
    assert load_card(tmp_path / "model.yaml").note == derived_card.card().note


@pytest.mark.parametrize(
    ("steps", "scale"),
    [
        ({"rescale_factor": 1 / 255}, "1/255"),
        ({"rescale_factor": 0.00392156862745098}, "1/255"),
        ({"rescale_factor": 0.5}, "1/2"),
        ({"rescale_factor": 1 / 127.5}, 1 / 127.5),
        ({"rescale_factor": 1}, 1),
        ({"do_rescale": False}, 1),
        ({"do_rescale": False, "rescale_factor": 0.5}, 1),
    ],
)
def test_the_scale_of_an_image_processor_is_read(steps, scale, tmp_path):
    write_json(tmp_path, "config.json", RT_DETR)
    write_json(tmp_path, "preprocessor_config.json", STEPS | steps)
    assert derive(shaped(tmp_path / "model.onnx", RAW)).facts["input.scale"].value == scale


def test_a_mean_of_zero_is_accepted(tmp_path):
    write_json(tmp_path, "config.json", RT_DETR)
    steps = {"do_normalize": True, "image_mean": [0, 0, 0], "image_std": 0.5}
    write_json(tmp_path, "preprocessor_config.json", STEPS | steps)
    card = derive(shaped(tmp_path / "model.onnx", RAW)).card()
    assert (card.input.mean, card.input.std) == ((0, 0, 0), (0.5, 0.5, 0.5))


def test_configuration_files_are_read_from_the_networks_folder_or_above_onnx(tmp_path):
    (tmp_path / "onnx").mkdir()
    assert companions(tmp_path / "onnx" / "model.onnx") == []
    for name in ("config.json", "labels.txt", "onnx/data.yaml", "other.json"):
        (tmp_path / name).write_text("")
    listed = companions(tmp_path / "onnx" / "model.onnx")
    assert [str(path.relative_to(tmp_path)) for path in listed] == ["onnx/data.yaml", "labels.txt", "config.json"]
    assert [path.name for path in companions(tmp_path / "model.onnx")] == ["labels.txt", "config.json"]


@pytest.mark.parametrize(("flipped", "color"), [(True, "bgr"), (False, "rgb"), (None, "rgb")])
def test_the_channel_order_is_that_of_the_image_processor(flipped, color, tmp_path):
    write_json(tmp_path, "config.json", RT_DETR)
    steps = STEPS if flipped is None else STEPS | {"do_flip_channel_order": flipped}
    write_json(tmp_path, "preprocessor_config.json", steps)
    derived = derive(shaped(tmp_path / "model.onnx", RAW))
    assert derived.card().input.color == color
    assert derived.facts["input.color"].origin == "preprocessor_config.json (do_flip_channel_order)"


@pytest.mark.parametrize(
    ("config", "steps", "expected"),
    [
        (
            RT_DETR,
            {"size": {"shortest_edge": 800, "longest_edge": 1333}},
            "resizes the shorter side to "
            "800 pixels, so the input's shape depends on the frame's, and an input of streamkit has one size; write a "
            'fixed one there, such as "size": {"height": 800, "width": 1333}',
        ),
        (RT_DETR, {"size": {"max_height": 9}}, "which has no fixed height and width"),
        (
            RT_DETR,
            {"size": {"height": 320, "width": 320}},
            "input.size is 320 x 320 in preprocessor_config.json (size) but 640 x 640 in the shape of input 'images'",
        ),
        (
            RT_DETR | {"id2label": {"0": "cat", "1": "dog", "2": "emu"}},
            {},
            "the labels are 3 (cat, dog, emu) in "
            "config.json (id2label), but the outputs logits['?', 300, 2], pred_boxes['?', 300, 4] have 2 classes",
        ),
        (RT_DETR | {"id2label": {"1": "dog"}}, {}, "id2label in"),
        (RT_DETR, {"rescale_factor": "1/255"}, 'must be a number above 0, got "1/255"'),
        (RT_DETR, {"rescale_factor": 0}, "must be a number above 0, got 0"),
        (RT_DETR, {"do_normalize": True, "image_mean": [0.5]}, "must be a number or three, got [0.5]"),
        (RT_DETR, {"do_normalize": True, "image_std": [1, 1, 0]}, "must be a number or three above 0, got [1, 1, 0]"),
        (RT_DETR, {"do_normalize": True, "image_mean": None}, "normalizes (do_normalize) without image_mean, so it"),
        (
            RT_DETR,
            {"size": {"shortest_edge": 9}, "do_center_crop": True, "crop_size": {"height": 9}},
            "width of crop_size in",
        ),
        (RT_DETR, {"size": {"shortest_edge": 9}, "crop_pct": 0}, "crop_pct in"),
        (RT_DETR, {"size": {"shortest_edge": "9 px"}}, 'must be a number of pixels, got "9 px"'),
    ],
)
def test_contradicting_files_of_hugging_face_are_reported(config, steps, expected, tmp_path):
    write_json(tmp_path, "config.json", config)
    write_json(tmp_path, "preprocessor_config.json", STEPS | steps)
    assert expected in wrong(shaped(tmp_path / "model.onnx", RAW))


def test_a_raw_detr_without_processor_settings_is_refused(tmp_path):
    write_json(tmp_path, "config.json", RT_DETR)
    message = wrong(shaped(tmp_path / "model.onnx", RAW))
    assert "no source says how an image becomes the input" in message
    assert "put preprocessor_config.json beside it" in message


def test_unreadable_json_is_reported(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert "config.json cannot be read as JSON" in wrong(shaped(tmp_path / "model.onnx", RAW))


# ------------------------------------------------------------------------------------------------------------ Roboflow


def environment(form: str, **more: object) -> dict[str, object]:
    resize = {"resize": {"enabled": True, "width": 640, "height": 640, "format": form}}
    return {"PREPROCESSING": json.dumps(resize | more)}


@pytest.mark.parametrize(
    ("form", "resize", "pad"),
    [
        ("Stretch to", "stretch", 114),
        ("Fit (black edges) in", "letterbox", 0),
        ("Fit (white edges) in", "letterbox", 255),
    ],
)
def test_the_resize_of_roboflow_is_read(form, resize, pad, tmp_path):
    write_json(tmp_path, "environment.json", environment(form))
    (tmp_path / "class_names.txt").write_text("cat\ndog\n")
    card = derive(shaped(tmp_path / "weights.onnx", {"o": [1, 6, 8400]})).card()
    assert (card.family, card.labels) == ("yolov8", ("cat", "dog"))
    assert (card.input.resize, card.input.pad, card.input.scale) == (resize, pad, 1 / 255)


RF_DETR = {"dets": [1, 100, 4], "labels": [1, 100, 2]}
RF_DETR_ANGLES = RF_DETR | {"angles": [1, 100]}


def rf_detr(folder: Path, outputs: dict[str, list]) -> Path:
    write_json(folder, "environment.json", environment("Stretch to") | {"CLASS_LIST": ["cat", "dog"]})
    return shaped(folder / "weights.onnx", outputs)


def test_an_rf_detr_is_derived(tmp_path):
    card = derive(rf_detr(tmp_path, RF_DETR)).card()
    assert (card.family, card.labels, card.input.resize) == ("detr", ("cat", "dog"), "stretch")
    assert (card.input.mean, card.input.std) == IMAGENET


def test_an_output_unknown_to_the_family_is_refused(tmp_path):
    path = rf_detr(tmp_path, RF_DETR_ANGLES)
    assert wrong(path) == (
        "no family reads all of its outputs dets[1, 100, 4], labels[1, 100, 2], angles[1, 100]: family detr "
        "does not read angles; to go without, write a card that ignores what is left: streamkit models new "
        f"{path} --family detr; otherwise write a family in a plugin"
    )


def test_the_suggested_command_keeps_the_users_family(tmp_path):
    path = shaped(tmp_path / "best.onnx", RF_DETR_ANGLES)
    text = wrong(path, family="detr", assume=True)
    assert text.endswith(f"write a card: streamkit models new {path} --family detr --labels FILE")
    (tmp_path / "labels.txt").write_text("cat\ndog")
    assert derive(path, family="detr", assume=True).card().labels == ("cat", "dog")


def test_the_users_family_ignores_other_outputs(tmp_path):
    derived = derive(rf_detr(tmp_path, RF_DETR_ANGLES), family="detr", assume=True)
    assert derived.assumed == ("family detr does not read angles[1, 100]; ignore_outputs drops what is there",)
    (tmp_path / "weights.yaml").write_text(derived.text(tmp_path))
    card = load_card(tmp_path / "weights.yaml")
    assert (card.family, card.ignore_outputs, card.labels) == ("detr", ("angles",), ("cat", "dog"))
    assert check_model(card).ignore_outputs == ("angles",)
    assert "ignore_outputs: [angles]          # not read by family detr\n" in derived.text(tmp_path)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (environment("Fit within"), "resizes by 'Fit within', and a card can do Stretch to"),
        (environment("Stretch to", grayscale={"enabled": True}), "has grayscale, which a card cannot do"),
        ({"PREPROCESSING": "{"}, "is not JSON"),
        ({"PREPROCESSING": "[]"}, "must hold a JSON mapping, got list"),
        (environment("Stretch to") | {"CLASS_LIST": "cat"}, 'must be a list of names, got "cat"'),
        ({"PREPROCESSING": {"resize": {"width": "w", "height": 640}}}, 'must be a number of pixels, got "w"'),
    ],
)
def test_unsupported_steps_of_roboflow_are_reported(settings, expected, tmp_path):
    write_json(tmp_path, "environment.json", settings)
    assert expected in wrong(shaped(tmp_path / "weights.onnx", {"o": [1, 6, 8400]}))


# -------------------------------------------------------------------------------------------------- shapes and labels


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", "cat\n\ndog\n"),
        ("classes.txt", "\ufeffcat\r\ndog"),
        ("data.yaml", "nc: 2\nnames: [cat, dog]\n"),
        ("data.yaml", "names:\n  1: dog\n  0: cat\n"),
    ],
)
def test_labels_are_read_from_a_file_beside_the_network(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    card = derive(shaped(tmp_path / "best.onnx", {"o": [1, 6, 8400]})).card()
    assert (card.family, card.labels) == ("yolov8", ("cat", "dog"))


def test_a_list_beside_must_number_its_classes_from_0(tmp_path):
    (tmp_path / "data.yaml").write_text("names:\n  -1: dog\n  0: cat\n")
    text = wrong(shaped(tmp_path / "best.onnx", {"o": [1, 6, 8400]}))
    assert "data.yaml must number the classes from 0 without gaps, got -1, 0" in text


def test_contradicting_lists_of_labels_are_reported(tmp_path):
    path = shaped(tmp_path / "best.onnx", {"o": [1, 6, 8400]})
    (tmp_path / "labels.txt").write_text("cat\ndog")
    (tmp_path / "classes.txt").write_text("a\nb\nc")
    assert derive(path).card().labels == ("cat", "dog")  # the other has another number of classes
    (tmp_path / "classes.txt").write_text("dog\ncat")
    assert "the labels are ambiguous: 2 (cat, dog) in labels.txt, 2 (dog, cat) in classes.txt; decide with" in wrong(
        path
    )
    assert derive(path, labels=str(tmp_path / "classes.txt")).card().labels == ("dog", "cat")
    (tmp_path / "labels.txt").write_text("cat")
    (tmp_path / "classes.txt").unlink()
    assert "the labels are 1 (cat) in labels.txt, but the outputs o[1, 6, 8400] have 2 classes" in wrong(path)


def test_a_labels_file_that_contradicts_the_metadata_is_reported(tmp_path):
    path = shaped(tmp_path / "best.onnx", {"o": [1, 6, 8400]}, metadata=ultralytics())
    (tmp_path / "labels.txt").write_text("dog\ncat")
    assert "labels are 2 (cat, dog) in the metadata of best.onnx (names) but 2 (dog, cat) in labels.txt" in wrong(path)
    shaped(tmp_path / "other.onnx", {"o": [1, 6, 8400]})  # then the list may be the other network's
    assert derive(path).card().labels == ("cat", "dog")


def test_names_of_other_classes_do_not_make_a_classifier_an_embedding(tmp_path):
    write_json(tmp_path, "environment.json", environment("Stretch to") | {"CLASS_LIST": ["cat", "dog"]})
    text = wrong(shaped(tmp_path / "weights.onnx", {"o": [1, 100]}))
    assert "labels are 2 (cat, dog) in environment.json (CLASS_LIST), but the outputs o[1, 100] have 100" in text


def test_missing_labels_are_reported_with_the_builtin_lists(tmp_path):
    message = wrong(shaped(tmp_path / "best.onnx", {"o": [1, 84, 8400]}))
    assert "no source names 80 classes (family yolov8, outputs o[1, 84, 8400]); put labels.txt beside it" in message
    assert message.endswith("(coco has as many)")
    assert derive(tmp_path / "best.onnx", labels="coco").card().labels == LABEL_LISTS["coco"]
    assert "neither a file nor a known list" in wrong(tmp_path / "best.onnx", labels="cocoo")


def rows(decoded: bool) -> np.ndarray:
    values = np.zeros((1, 8400, 7))
    values[0, :, :2] = np.linspace(0, 639 if decoded else 4, 8400)[:, None]
    return values


def test_a_trial_run_distinguishes_yolox_from_decoded_boxes(tmp_path):
    path = tmp_path / "best.onnx"
    (tmp_path / "labels.txt").write_text("cat\ndog")
    card = derive(shaped(path, {"o": [1, 8400, 7]}, values={"o": rows(decoded=False)})).card()
    assert (card.family, card.input.color, card.input.anchor, card.input.scale) == ("yolox", "bgr", "top_left", 1)
    shaped(path, {"o": [1, 8400, 7]}, values={"o": rows(decoded=True)})
    message = wrong(path)
    assert "YOLOX exported with --decode_in_inference" in message
    assert "YOLOv6" in message
    card = derive(path, family="yolov5", assume=True).card()
    assert (card.family, card.input.scale, card.input.resize) == ("yolov5", 1 / 255, "letterbox")
    halved = rows(decoded=True) / 2
    assert "several families read its outputs o[1, 8400, 7]: yolox (detect, 2 classes), yolov5 (detect, 2" in wrong(
        shaped(path, {"o": [1, 8400, 7]}, values={"o": halved})
    )


def test_three_anchors_a_cell_identify_yolov5(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog")
    assert derive(shaped(tmp_path / "best.onnx", {"o": [1, 25200, 7]})).card().family == "yolov5"


@pytest.mark.parametrize(("values", "family"), [([0.25, 0.75], "probabilities"), ([-1.0, 3.0], "logits")])
def test_a_trial_run_identifies_the_last_layer_of_a_classifier(values, family, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog")
    write_json(tmp_path, "preprocessor_config.json", STEPS)
    path = shaped(tmp_path / "best.onnx", {"o": [1, 2]}, values={"o": np.array([values])})
    assert derive(path).card().family == family


@pytest.mark.parametrize(
    ("outputs", "options", "expected"),
    [
        (
            {"o": ["N", 256]},
            {},
            "several families read its outputs o['?', 256]: logits (classify, 256 classes), "
            "probabilities (classify, 256 classes), embedding (embed); decide with streamkit models new",
        ),
        ({"o": ["N", 56, 8400]}, {}, "yolov8 (detect, 52 classes), yolov8_pose (pose, 1 class)"),
        ({"boxes": ["N", 300, 4], "scores": ["N", 300], "labels": ["N", 300]}, {}, "detr (detect), ssd (detect)"),
        ({"o": ["N", 7]}, {"family": "yolov8"}, "family yolov8 reads one output of 3 dimensions"),
        ({"o": ["N", 7]}, {"family": "yolov9"}, "--family yolov9 is unknown; did you mean"),
        ({"o": ["n", 7]}, {}, "no source names 7 classes (family logits, outputs o['?', 7])"),
        ({"o": ["N"]}, {}, "no family reads its outputs o['?']; tried "),
        ({"o": ["N", 6, 8400]}, {"size": (320, 320)}, "--size is 320 x 320, but input 'images' takes 640 x 640"),
    ],
)
def test_an_ambiguous_network_is_reported_with_the_choices(outputs, options, expected, tmp_path):
    assert expected in wrong(shaped(tmp_path / "best.onnx", outputs), **options)


def test_the_users_family_is_used(tmp_path):
    path = shaped(tmp_path / "best.onnx", {"o": ["N", 56, 8400]}, metadata={})
    (tmp_path / "names.txt").write_text("person")
    card = derive(path, family="yolov8_pose", labels=str(tmp_path / "names.txt")).card()
    assert (card.task, card.family, card.labels) == ("pose", "yolov8_pose", ("person",))


END_TO_END = {"labels": ["N", 300], "boxes": ["N", 300, 4], "scores": ["N", 300]}


@pytest.mark.parametrize(
    ("layer", "mean"), [("/model/backbone/dinov3/blocks.0", IMAGENET[0]), ("/model/backbone/stem", (0, 0, 0))]
)
def test_layer_names_identify_deimv2_with_dinov3(layer, mean, tmp_path):
    onnx = pytest.importorskip("onnx")
    path = shaped(tmp_path / "best.onnx", END_TO_END, extra={"orig_target_sizes": ["N", 2]}, integers=("labels",))
    model = onnx.load(path)
    model.graph.node[0].name = layer
    onnx.save(model, path)
    (tmp_path / "labels.txt").write_text("cat\ndog")
    card = derive(path).card()
    assert (card.family, card.input.resize, card.input.antialias, card.input.mean) == ("detr", "stretch", True, mean)


def test_unknown_inputs_are_named(tmp_path):
    path = shaped(tmp_path / "best.onnx", RAW, extra={"pixel_mask": ["N", 64, 64]})
    (tmp_path / "labels.txt").write_text("cat\ndog")
    assert (
        "its inputs are images['?', 3, 640, 640], pixel_mask['?', 64, 64], and no family has a value for pixel_mask "
        "beside the images; export it with the images as the only input" in wrong(path)
    )


# ------------------------------------------------------------------------------------------------------ the file itself


def test_a_missing_network_is_reported_with_a_similar_file(tmp_path):
    shaped(tmp_path / "best.onnx", {"o": [1, 6, 8400]})
    with pytest.raises(ModelError, match=r"there is no file .*bset\.onnx; did you mean 'best\.onnx'"):
        open_model("bset.onnx", tmp_path)
    (tmp_path / "dir.onnx").mkdir()
    with pytest.raises(ModelError, match="is a folder; give the path of an ONNX file in it"):
        open_model("dir.onnx", tmp_path)
    (tmp_path / "gone.onnx").symlink_to("nothing.onnx")
    with pytest.raises(ModelError, match=r"there is no file .*gone\.onnx; did you mean 'best\.onnx'"):
        open_model("gone.onnx", tmp_path)
    with pytest.raises(ModelError, match=r"best\.pt is no ONNX file; export the network to ONNX, for Ultralytics with"):
        open_model("best.pt", tmp_path)


def test_a_file_that_is_not_onnx_is_refused(tmp_path):
    (tmp_path / "best.onnx").write_text("hello")
    with pytest.raises(ModelError, match="is not an ONNX model that can be read"):
        open_model("best.onnx", tmp_path)


def test_a_missing_file_of_weights_is_reported(test_data, tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(test_data / "models" / "yolox_nano_dyn.onnx")
    onnx.save(model, tmp_path / "best.onnx", save_as_external_data=True, location="best.data", size_threshold=1024)
    (tmp_path / "labels.txt").write_text("\n".join(LABEL_LISTS["coco"]))
    assert open_model("best.onnx", tmp_path).family == "yolox"
    (tmp_path / "best.data").unlink()
    (tmp_path / "best.onnx").touch()
    with pytest.raises(ModelError, match=r"has its weights in best\.data, and there is no such file beside it"):
        open_model("best.onnx", tmp_path)


def test_without_metadata_the_shapes_decide(test_data, tmp_path):
    source = test_data / "models" / "yolov8n_640_deq_dyn.onnx"
    path = with_metadata(source, tmp_path / "best.onnx", {})
    assert "no source names 80 classes (family yolov8" in wrong(path)
    (tmp_path / "labels.txt").write_text("\n".join(LABEL_LISTS["coco"]))
    stripped = derive(path).card()
    full = derive(source).card()
    assert dataclasses.replace(full, name="best", path=path, file=path, license="") == stripped


def test_labels_that_look_like_other_yaml_types_stay_text(tmp_path):
    names = ["no", "1e5", "a: b", "null", "x # y", "12", "two words", "é", "{a}", "it's", "-", "y"]
    meta = ultralytics(names=str(dict(enumerate(names))))
    path = shaped(tmp_path / "best.onnx", {"o": ["N", 4 + len(names), 8400]}, metadata=meta)
    (tmp_path / "best.yaml").write_text(derive(path).text(tmp_path))
    card: Card = load_card(tmp_path / "best.yaml")
    assert card.labels == derive(path).card().labels == tuple(names)


def test_the_file_is_opened_once_for_the_card_and_its_check(tmp_path, monkeypatch):
    import onnxruntime

    opened = []
    open_ = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda *args, **more: opened.append(args) or open_(*args, **more)
    )
    path = shaped(tmp_path / "best.onnx", {"o": ["N", 6, 8400]}, metadata=ultralytics())
    check_model(open_model("best.onnx", tmp_path))
    check_model(open_model("best.onnx", tmp_path))
    assert [args[0] for args in opened] == [path]
