import dataclasses
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.cards import card_of as detail_card
from support.cards import tiny_pose
from support.map_networks import anomaly_card, depth_card
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.core.errors import ModelError, SourceError
from streamkit.models import reference
from streamkit.models.card import Card, family_of, find_card, list_cards, load_card
from streamkit.models.check import check, frames_of, same_places
from streamkit.models.families import FAMILIES
from streamkit.ops.letterbox import InputSpec

FILES = {
    "yolox-nano": "yolox_nano_dyn.onnx",
    "yolov8n": "yolov8n_640_deq_dyn.onnx",
    "deimv2-atto": "deimv2_hgnetv2_atto_coco.onnx",
    "yunet": "yunet_n_dynamic.onnx",
}
AT_HAND = [path for path in list_cards() if load_card(path).file.is_file()]


def card_of(name: str, test_data: Path) -> Card:
    return load_card(find_card(name)).with_file(test_data / "models" / FILES[name])


@pytest.fixture(scope="module")
def frames(test_data):
    odd = test_data / "coco" / "val2017" / "000000000139.jpg"
    pictures = [odd] if odd.is_file() else sorted((test_data / "coco" / "val2017").glob("*.jpg"))[:1]
    return frames_of([test_data / "videos" / "carnd_test_video.mp4", *pictures], 3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", FILES)
def test_networks_of_the_test_data_pass(name, device, frames, test_data):
    report = check(card_of(name, test_data), frames, Device(device))
    assert report.passed, str(report)
    assert report.frames == len(frames)
    assert report.objects
    assert str(report).endswith("passed")


@pytest.mark.parametrize("path", AT_HAND, ids=lambda path: path.stem)
def test_every_card_with_an_available_file_passes(path, frames):
    card = load_card(path)
    report = check(card, frames, prompts=["red car", "person"] if card.takes_prompts else None)
    assert report.passed, str(report)


def test_a_network_with_prompts_needs_prompts(frames):
    with pytest.raises(ModelError, match=r"demo-words finds what prompts name; add prompts.*\(--prompts\)"):
        check(load_card(find_card("demo-words")), frames)


def ssd_like(form: str, test_data: Path, folder: Path) -> Card:
    """A real detector, its outputs brought into a form of `ssd`."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    numpy_helper = onnx.numpy_helper
    model = onnx.load(test_data / "models" / FILES["deimv2-atto"])
    graph = model.graph
    del graph.input[1]  # the size that boxes are scaled to: it becomes a part of the network
    wide = 320 if form.startswith("torchvision") else 1
    graph.initializer.append(numpy_helper.from_array(np.full((1, 2), wide, np.int64), "orig_target_sizes"))
    del graph.output[:]

    def node(kind: str, inputs: list[str], output_name: str, **attributes) -> None:
        graph.node.append(helper.make_node(kind, inputs, [output_name], **attributes))

    def constant(name: str, value: Any) -> None:
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))

    def output(name: str, kind: int, shape: list) -> None:
        graph.output.append(helper.make_tensor_value_info(name, kind, shape))

    if form == "tensorflow":
        constant("yxyx", [1, 0, 3, 2])
        node("Gather", ["boxes", "yxyx"], "detection_boxes", axis=2)
        node("Identity", ["scores"], "detection_scores")
        node("Cast", ["labels"], "detection_classes", to=1)
        output("detection_boxes", 1, [1, "K", 4])
        output("detection_scores", 1, [1, "K"])
        output("detection_classes", 1, [1, "K"])
    elif form == "zoo":
        node("Identity", ["boxes"], "bboxes")
        output("bboxes", 1, [1, "K", 4])
        output("scores", 1, [1, "K"])
        output("labels", 7, [1, "K"])
    elif form == "torchvision without a batch":
        constant("first", [0])
        for old, new in (("boxes", "boxes1"), ("scores", "scores1"), ("labels", "labels1")):
            for graph_node in graph.node:
                graph_node.output[:] = [new if name == old else name for name in graph_node.output]
                graph_node.input[:] = [new if name == old else name for name in graph_node.input]
            node("Squeeze", [new, "first"], old)
        output("boxes", 1, ["K", 4])
        output("scores", 1, ["K"])
        output("labels", 7, ["K"])
    elif form == "torchvision":
        output("boxes", 1, [1, "K", 4])
        output("scores", 1, [1, "K"])
        output("labels", 7, [1, "K"])
    else:
        assert form == "openvino"
        constant("zero", np.float32(0))
        constant("columns", [2])
        constant("one", [1])
        node("Cast", ["labels"], "label", to=1)
        node("Mul", ["label", "zero"], "picture")
        for name in ("picture", "label", "scores"):
            node("Unsqueeze", [name, "columns"], f"{name}_column")
        node("Concat", ["picture_column", "label_column", "scores_column", "boxes"], "rows", axis=2)
        node("Unsqueeze", ["rows", "one"], "detection_out")
        output("detection_out", 1, [1, 1, "K", 7])
    onnx.save(model, folder / "ssd.onnx")
    card = load_card(find_card("deimv2-atto"))
    return dataclasses.replace(card.with_file(folder / "ssd.onnx"), family="ssd")


SSD_FORMS = ["openvino", "tensorflow", "zoo", "torchvision", "torchvision without a batch"]


@pytest.mark.parametrize("form", SSD_FORMS)
def test_every_form_of_ssd_passes(form, frames, test_data, tmp_path):
    report = check(ssd_like(form, test_data, tmp_path), frames)
    assert report.passed, str(report)
    assert report.objects > 3


BOX = [8.0, 12.0, 32.0, 36.0]  # network pixels of 64 x 48; (1/8, 1/4, 1/2, 3/4) of it
LABEL = 2


@pytest.mark.parametrize(
    "outputs",
    [
        {
            "detection_out": [
                [[[0, LABEL, 0.9, 1 / 8, 1 / 4, 1 / 2, 3 / 4], [-1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 1, 1]]]
            ]
        },
        {
            "detection_boxes": [[[1 / 4, 1 / 8, 3 / 4, 1 / 2], [0, 0, 1, 1]]],
            "detection_scores": [[0.9, 1.0]],
            "detection_classes": [[LABEL, 1]],
            "num_detections": [1],
        },
        {"bboxes": [[[1 / 8, 1 / 4, 1 / 2, 3 / 4]]], "scores": [[0.9]], "labels": [[LABEL]]},
        {"boxes": [[BOX]], "scores": [[0.9]], "labels": [[LABEL]]},
        {"boxes": [BOX], "scores": [0.9], "labels": [LABEL]},
    ],
    ids=SSD_FORMS,
)
def test_the_reference_reads_ssd_up_to_the_end_marker(outputs):
    arrays = {name: np.array(value) for name, value in outputs.items()}
    spec = InputSpec(size=(64, 48))
    rows = reference.objects(FAMILIES["ssd"], arrays, (0.5, 0.25, 4.0, 2.0), (128, 96), spec, min_score=0.5, iou=0.5)
    np.testing.assert_allclose(rows, [[8, 40, 56, 96, 0.9, LABEL]])


def test_every_family_but_those_of_maps_and_texts_has_a_plain_reference():
    without = {name for name, family in FAMILIES.items() if family.traits.reference is None}
    of_maps = ("read", "depth", "anomaly")
    assert without == {name for name, family in FAMILIES.items() if family.regions or family.task in of_maps}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("make", [depth_card, anomaly_card])
def test_networks_for_depth_and_anomaly_pass(make, device, frames, tmp_path):
    report = check(make(tmp_path), frames, Device(device))
    assert report.passed, str(report)
    assert report.objects == len(frames)


def test_other_depth_is_detected():
    before = np.linspace(0, 10, 400)
    assert same_places(before, before + 0.09) == 1
    assert same_places(before, before + 0.11) == 0
    assert same_places(np.full(4, np.nan), np.full(4, np.nan)) == 1


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["seg", "movenet", "deeplab"])
def test_networks_with_masks_keypoints_and_class_maps_pass(name, device, frames, test_data, tmp_path):
    report = check(detail_card(name, test_data, tmp_path), frames, Device(device))
    assert report.passed, str(report)
    assert report.objects
    assert str(report).endswith("passed")


def test_a_network_of_yolov8_pose_passes(frames, tmp_path):
    report = check(tiny_pose(tmp_path), frames)
    assert report.passed, str(report)
    assert report.objects == len(frames)


def constant_card(folder: Path, task: str, family: str, values: np.ndarray, labels: str) -> Card:
    """The card of a network that gives these values for every frame."""
    shaped(folder / "net.onnx", {"o": list(values.shape)}, image=[1, 3, 64, 64], values={"o": values})
    (folder / "net.yaml").write_text(
        f"task: {task}\nfamily: {family}\nfile: net.onnx\ninput: {{size: [64, 64]}}\nlabels: {labels}\n"
    )
    return load_card(folder / "net.yaml")


def test_keypoints_of_several_classes_pass(frames, tmp_path):
    values = np.array([32, 32, 40, 40, 0.1, 0.9, 30, 30, 0.8, 40, 40, 0.9]).reshape(1, 12, 1)
    report = check(constant_card(tmp_path, "pose", "yolov8_pose", values, "[cat, dog]"), frames)
    assert report.passed, str(report)
    assert report.objects == len(frames)


def test_oriented_boxes_of_scaled_frames_pass(frames, tmp_path):
    values = np.array([[32, 30, 20, 10, 0.1, 0.9, 0.3], [20, 40, 12, 6, 0.8, 0.1, -0.4]]).T[None]
    report = check(constant_card(tmp_path, "detect", "yolov8_obb", values, "[cat, dog]"), frames)
    assert report.passed, str(report)
    assert report.objects == 2 * len(frames)
    assert report.worst < 0.01


@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_raw_detr_passes_with_every_resize(resize, frames, tmp_path):
    boxes = np.array([[[0.5, 0.5, 0.2, 0.2], [0.4, 0.6, 0.3, 0.1]]])
    outputs = {"logits": np.array([[[2.0, -9], [-9, 1]]]), "pred_boxes": boxes}
    shapes = {name: list(value.shape) for name, value in outputs.items()}
    shaped(tmp_path / "net.onnx", shapes, image=[1, 3, 64, 64], values=outputs)
    (tmp_path / "net.yaml").write_text(
        "task: detect\nfamily: detr\nfile: net.onnx\nlabels: [cat, dog]\n"
        f"input: {{size: [64, 64], resize: {resize}, scale: 1/255}}\n"
    )
    report = check(load_card(tmp_path / "net.yaml"), frames)
    assert report.passed, str(report)
    assert report.objects == 2 * len(frames)


def test_an_embedding_beside_feature_maps_passes(frames, tmp_path):
    outputs = {"last_hidden_state": np.ones((1, 5, 20)), "pooler_output": np.arange(20.0)[None]}
    shapes = {name: list(value.shape) for name, value in outputs.items()}
    shaped(tmp_path / "net.onnx", shapes, image=[1, 3, 64, 64], values=outputs)
    (tmp_path / "net.yaml").write_text(
        "task: embed\nfamily: embedding\nfile: net.onnx\ninput: {size: [64, 64], scale: 1/255}\n"
    )
    report = check(load_card(tmp_path / "net.yaml"), frames[:1])
    assert report.passed, str(report)


@pytest.mark.parametrize("form", ["scores", "scores behind", "classes", "classes of one channel"])
def test_every_form_of_class_map_passes(form, frames, tmp_path):
    """Two classes, the second where the map is 1."""
    places = np.random.default_rng(2).integers(0, 2, (16, 16))
    maps = {
        "scores": np.stack([1 - places, places])[None] * 3.0,
        "scores behind": np.stack([1 - places, places], axis=-1)[None] * 3.0,
        "classes": places[None],
        "classes of one channel": places[None, None],
    }
    values = maps[form]
    integers = ("o",) if form.startswith("classes") else ()
    path = tmp_path / "net.onnx"
    shaped(path, {"o": list(values.shape)}, image=[1, 3, 64, 64], values={"o": values}, integers=integers)
    (tmp_path / "net.yaml").write_text(
        "task: segment\nfamily: semantic\nfile: net.onnx\nlabels: [cat, dog]\ninput: {size: [64, 64], scale: 1/255}\n"
    )
    card = load_card(tmp_path / "net.yaml")
    report = check(card, frames[:2])
    assert report.passed, str(report)
    assert (report.objects, report.same, report.worst) == (2, 1.0, 1.0)
    np.testing.assert_array_equal(family_of(card).maps({"o": values}, 2)[0], places)


def test_only_as_many_objects_are_compared_as_the_pipeline_keeps(frames, tmp_path):
    values = np.zeros((1, 900, 6))
    values[0, :, 0] = np.arange(900) % 30
    values[0, :, 1] = np.arange(900) // 30 + 20
    values[0, :, 2:4] = values[0, :, :2] + 8
    values[0, :, 4] = np.linspace(0.9, 0.4, 900)
    report = check(constant_card(tmp_path, "detect", "yolo_e2e", values, "[cat]"), frames[:1])
    assert report.passed, str(report)
    assert report.objects == 300


@pytest.mark.parametrize("name", ["seg", "deeplab"])
def test_wrong_masks_are_detected(name, frames, test_data, tmp_path, monkeypatch):
    from streamkit.models.families import semantic
    from streamkit.ops import masks

    right = masks.InstanceMasks.rows
    best = semantic.best_classes
    monkeypatch.setattr(masks.InstanceMasks, "rows", lambda self, index: right(self, index[::-1]))
    monkeypatch.setattr(semantic, "best_classes", lambda *args: best(*args) + 1)
    report = check(detail_card(name, test_data, tmp_path), frames)
    assert not report.passed
    assert str(report).endswith("FAILED")


def test_wrong_keypoints_are_detected(frames, test_data, tmp_path, monkeypatch):
    from streamkit.models.families import base

    right = base.unpack

    def wrong(*args):
        table = right(*args)
        return table.with_columns(keypoints=table.extra["keypoints"] + np.float32(2))

    monkeypatch.setattr(base, "unpack", wrong)
    report = check(detail_card("movenet", test_data, tmp_path), frames)
    assert not report.passed
    assert report.worst == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((650, 480), "cannot be run on images of 650 x 480: .*multiples of 32"), ((8, 8), "the output has 21 anchors")],
)
def test_an_unsupported_size_of_an_open_network_is_reported(size, expected, frames, test_data):
    card = load_card(find_card("yunet")).with_file(test_data / "models" / "yunet_n_dynamic.onnx")
    card = dataclasses.replace(card, input=dataclasses.replace(card.input, size=size))
    with pytest.raises(ModelError, match=expected):
        check(card, frames)


def test_a_wrong_tensor_is_detected(frames, test_data, monkeypatch):
    from streamkit.ops import preprocess as module

    right = module.preprocess

    def brighter(*args, **options):
        tensor, geometry = right(*args, **options)
        return tensor + np.float32(2), geometry

    monkeypatch.setattr(module, "preprocess", brighter)
    report = check(card_of("yolox-nano", test_data), frames)
    assert not report.passed
    assert report.tensor_max == pytest.approx(2, abs=0.01)
    assert str(report).endswith("FAILED")


@pytest.mark.parametrize("column", ["xyxy", "score", "class_id"])
def test_wrong_objects_are_detected(column, frames, test_data, monkeypatch):
    from streamkit.models.families import base

    right = base.unpack

    def wrong(*args):
        table = right(*args)
        change = {"xyxy": 3.0, "score": -0.02, "class_id": 1}[column]
        return table.with_columns(**{column: getattr(table, column) + np.asarray(change, getattr(table, column).dtype)})

    monkeypatch.setattr(base, "unpack", wrong)
    report = check(card_of("yolox-nano", test_data), frames)
    assert not report.passed
    assert report.tensor_max < 0.01
    assert report.same < 0.9


def test_a_missed_object_is_detected(frames, test_data, monkeypatch):
    from streamkit.models.families import base

    right = base.unpack
    monkeypatch.setattr(base, "unpack", lambda *args: right(*args)[1:])
    assert not check(card_of("yolox-nano", test_data), frames).passed


def test_an_unsuitable_network_is_reported(frames, test_data):
    card = dataclasses.replace(card_of("yolox-nano", test_data), labels=("a",))
    with pytest.raises(ModelError, match="the label list has 1"):
        check(card, frames)
    with pytest.raises(ModelError, match="no frames"):
        check(card_of("yolox-nano", test_data), [])


def test_unreadable_frames_are_reported(tmp_path):
    for name in ("a.mp4", "a.jpg"):
        with pytest.raises(SourceError, match=f"{name} cannot be read|{name}: No such file"):
            frames_of([tmp_path / name])
    with pytest.raises(SourceError, match=r"^[^\[]*a.mp4 cannot be read: No such file or directory$"):
        frames_of([tmp_path / "a.mp4"])
    for name in ("a.mp4", "a.jpg"):
        (tmp_path / name).write_text("no video, no picture")
        with pytest.raises(SourceError, match=f"{name} cannot be read|{name}: this is not an image"):
            frames_of([tmp_path / name])


def test_the_reference_keeps_the_better_of_overlapping_boxes():
    rows = np.array([[0, 0, 10, 10, 0.9, 0], [0, 0, 10, 9, 0.8, 0], [0, 0, 10, 9, 0.7, 1], [20, 0, 30, 10, 0.6, 0]])
    assert reference.overlap(rows[0], rows[1]) == pytest.approx(0.9)
    assert reference.overlap(rows[0], rows[3]) == 0
    assert reference._without_doubles(rows, 0.5)[:, 4].tolist() == [0.9, 0.7, 0.6]
    assert len(reference._without_doubles(rows, 0.95)) == 4


def test_an_image_above_the_limit_is_refused_and_a_large_one_is_scaled_down(tmp_path):
    large = str(tmp_path / "large.tif")
    assert cv2.imwrite(large, np.full((10, 5000, 3), 90, np.uint8))
    (frame,) = frames_of([Path(large)])
    assert (frame.width, frame.height) == (4096, 8)
    with pytest.raises(
        SourceError, match=r"large\.tif: 5000x10 is 0\.1 megapixels, and the limit is 0\.04; raise --max"
    ):
        frames_of([Path(large)], max_megapixels=0.04)
    assert cv2.imwrite(large, np.full((10, 4096, 3), 90, np.uint8))
    assert frames_of([Path(large)])[0].width == 4096


# -------------------------------------------------------------------------------------------------------- vectors


@pytest.fixture(scope="module")
def shown(root):
    return frames_of([root / "samples" / "street.mp4"], 3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["color", "look", "stripes"])
def test_shipped_vector_cards_pass(name, device, shown):
    report = check(load_card(find_card(name)), shown, Device(device))
    assert report.passed, str(report)
    assert report.frames == 3
    assert str(report).endswith("passed")
    assert ("best class" in str(report)) == (name == "color")


@pytest.mark.parametrize("name", ["color", "look", "stripes"])
def test_wrong_vectors_are_detected(name, shown, monkeypatch):
    from streamkit.models.families import family

    card = load_card(find_card(name))
    reads = family(card.family)
    right = reads.finish
    monkeypatch.setattr(reads, "finish", lambda vectors: right(np.roll(vectors, 1, axis=1)))
    report = check(card, shown)
    assert not report.passed
    assert report.tensor_max < 0.01
    assert str(report).endswith("FAILED")


def test_a_wrong_tensor_of_a_classifier_is_detected(shown, monkeypatch):
    from streamkit.ops import preprocess as module

    right = module.preprocess

    def brighter(*args, **options):
        tensor, geometry = right(*args, **options)
        return tensor + np.float32(2), geometry

    monkeypatch.setattr(module, "preprocess", brighter)
    assert not check(load_card(find_card("color")), shown).passed


def test_a_wrong_number_of_labels_of_a_classifier_is_reported(shown):
    card = dataclasses.replace(load_card(find_card("color")), labels=("a",))
    with pytest.raises(ModelError, match="the label list has 1"):
        check(card, shown)
