"""What `models check` says of cards that were broken on purpose, and of right ones."""

import dataclasses

import numpy as np
import onnx
import pytest
from support.map_networks import anomaly_card, depth_card, gray_frames
from support.shaped_networks import shaped
from support.small_networks import NetworkBuilder

from streamkit.models.card import Card, find_card, load_card
from streamkit.models.check import frames_of
from streamkit.models.derive import derive
from streamkit.models.hints import hints

FILES = {"yolox-nano": "yolox_nano_dyn.onnx", "deimv2-atto": "deimv2_hgnetv2_atto_coco.onnx"}


@pytest.fixture(scope="module")
def street(root):
    return frames_of([root / "samples" / "street.mp4"], 8)


def broken(name: str, test_data, **changes) -> Card:
    card = load_card(find_card(name))
    if name in FILES:
        card = card.with_file(test_data / "models" / FILES[name])
    return dataclasses.replace(card, input=dataclasses.replace(card.input, **changes))


@pytest.mark.parametrize("name", ["demo", "yolox-nano"])
def test_a_correct_card_has_no_hint(name, street, test_data):
    assert hints(broken(name, test_data), street) == []


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("demo", {"scale": 1}, "input.scale: 1/255 fits better than 1"),
        ("demo", {"color": "bgr"}, "input.color: rgb fits better than bgr"),
        ("yolox-nano", {"scale": 1 / 255}, "input.scale: 1 fits better than 1/255"),
        ("yolox-nano", {"color": "rgb"}, "input.color: bgr fits better than rgb"),
        ("deimv2-atto", {"resize": "letterbox"}, "input.resize: stretch fits better than letterbox"),
    ],
)
def test_the_mistake_in_a_card_is_named(name, changes, expected, street, test_data):
    (hint,) = hints(broken(name, test_data, **changes), street)
    assert hint.startswith(f"{expected}: the sum of squared scores is ")


def rows(*classes: int) -> np.ndarray:
    values = np.zeros((1, 300, 6))
    for i, number in enumerate(classes):
        values[0, i] = 20 * i, 300, 20 * i + 15, 330, 0.8, number
    return values


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["cat", "dog"], (1, 2, 1), "the network counts classes from 1; put background before the first label"),
        (["cat", "dog"], (0, 1), None),
        (["cat", "dog"], (0, 2), None),
        (["background", "cat"], (0, 1), "the network counts classes from 0; remove that label"),
        (["background", "cat"], (1, 1), None),
    ],
)
def test_classes_shifted_by_a_background_class_are_noticed(labels, classes, expected, street, tmp_path):
    (tmp_path / "labels.txt").write_text("\n".join(labels))
    card = derive(shaped(tmp_path / "e2e.onnx", {"o": [1, 300, 6]}, values={"o": rows(*classes)})).card()
    listed = hints(card, street[:2])
    assert listed == [] if expected is None else expected in listed[0]


@pytest.mark.parametrize("score", [0.0, 0.2, 0.26])
def test_a_network_without_detections_is_reported(score, street, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog")
    values = rows(0)
    values[0, 0, 4] = score
    card = derive(shaped(tmp_path / "e2e.onnx", {"o": [1, 300, 6]}, values={"o": values})).card()
    listed = hints(card, street[:2])
    best = score if score >= 0.1 else 0
    start = f"no object has a score of 0.25 or more in 2 frames (the best: {best:.2f}): show frames with objects"
    assert [text.startswith(start) for text in listed] == ([] if score > 0.25 else [True])


def test_no_variant_is_tried_without_objects(street):
    assert hints(load_card(find_card("color")), street[:1]) == []


@pytest.mark.parametrize(
    ("family", "labels", "shape", "values", "expected"),
    [
        ("rtdetr", 3, [1, 300, 7], np.full((1, 300, 7), 50.0), "its rows are not shares and scores"),
        ("logits", 2, [1, 2], np.array([[0.25, 0.75]]), "its outputs sum to 1"),
        ("probabilities", 2, [1, 2], np.array([[1.0, 0.75]]), "its outputs do not sum to 1"),
        ("logits", 2, [1, 2], np.array([[1.0, 0.75]]), ""),
    ],
)
def test_a_family_that_contradicts_the_output_values_is_noticed(
    family, labels, shape, values, expected, street, tmp_path
):
    names = ", ".join(f"class {number}" for number in range(labels))
    shaped(tmp_path / "net.onnx", {"o": shape}, image=[1, 3, 64, 64], values={"o": values})
    task = "detect" if family == "rtdetr" else "classify"
    (tmp_path / "net.yaml").write_text(
        f"task: {task}\nfamily: {family}\nfile: net.onnx\nlabels: [{names}]\n"
        "input: {size: [64, 64], resize: stretch, scale: 1/255}\n"
    )
    listed = hints(load_card(tmp_path / "net.yaml"), street[:1])
    text = f"family {family} does not fit: {expected}, in a run on a gray image"
    assert (text in listed) == bool(expected)
    assert any("does not fit" in hint for hint in listed) == bool(expected)


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (None, 0, ""),
        (4, 6.5, "its scores are not from 0 to 1"),
        (slice(2, 4), 15, "its boxes are not corners"),
        (slice(0, 4), 0.5, "its boxes are shares of the input"),
    ],
)
def test_values_of_frames_that_contradict_the_family_are_noticed(column, values, expected, street, tmp_path):
    """A network with a selection of its own: on a gray image it finds nothing."""
    objects = rows(0, 1, 0, 1)[:, :4]
    if column is not None:
        objects[0, :, column] = values
    network = NetworkBuilder((1, 3, 64, 64))
    white = network.node("Round", network.node("ReduceMax", network.images, keepdims=0))
    onnx.save(network.model(network.node("Mul", network.constant(objects), white)), tmp_path / "net.onnx")
    (tmp_path / "net.yaml").write_text(
        "task: detect\nfamily: yolo_e2e\nfile: net.onnx\nlabels: [cat, dog]\ninput: {size: [64, 64], scale: 1/255}\n"
    )
    listed = [text for text in hints(load_card(tmp_path / "net.yaml"), street) if "does not fit" in text]
    assert listed == ([f"family yolo_e2e does not fit: {expected}"] if expected else [])


@pytest.mark.parametrize("swapped", [False, True])
def test_swapped_axes_are_noticed(swapped, street, tmp_path):
    """The street is letterboxed: there are no objects in the upper and lower quarter of the input."""
    objects = np.zeros((1, 300, 6))
    for i in range(20):
        objects[0, i] = 30 * i, 200 + 10 * i, 30 * i + 20, 230 + 10 * i, 0.8, 0
    if swapped:
        objects = objects[:, :, [1, 0, 3, 2, 4, 5]]
    (tmp_path / "labels.txt").write_text("cat\ndog")
    card = derive(shaped(tmp_path / "e2e.onnx", {"o": [1, 300, 6]}, values={"o": objects})).card()
    assert [text[:39] for text in hints(card, street[:2])] == ["x and y of the boxes are swapped: 40% o"] * swapped


RGB = (0.485, 0.456, 0.406)
RGB_LEVELS = (123.675, 116.28, 103.53)


@pytest.mark.parametrize(
    ("color", "scale", "mean", "order"),
    [
        ("rgb", 1 / 255, RGB, ""),
        ("bgr", 1 / 255, RGB[::-1], ""),
        ("bgr", 1 / 255, RGB, "rgb"),
        ("rgb", 1 / 255, RGB[::-1], "bgr"),
        ("bgr", 1, RGB_LEVELS, "rgb"),
        ("rgb", 1, RGB_LEVELS[::-1], "bgr"),
        ("rgb", 1, (124, 116, 104), ""),
        ("bgr", 1 / 255, (0.5, 0.5, 0.5), ""),
        ("bgr", 1, (0, 0, 0), ""),
    ],
)
def test_a_mean_in_the_wrong_channel_order_is_noticed(color, scale, mean, order, street):
    card = load_card(find_card("color"))
    card = dataclasses.replace(card, input=dataclasses.replace(card.input, color=color, scale=scale, mean=mean))
    listed = hints(card, street[:1])
    assert len(listed) == bool(order)
    assert all(f"is ImageNet's in the order {order}, and color is {color}: unless" in text for text in listed)


STANDING = [
    (0.50, 0.05), (0.52, 0.04), (0.48, 0.04), (0.54, 0.05), (0.46, 0.05), (0.60, 0.20), (0.40, 0.20), (0.65, 0.35),
    (0.35, 0.35), (0.66, 0.50), (0.34, 0.50), (0.56, 0.52), (0.44, 0.52), (0.56, 0.75), (0.44, 0.75), (0.56, 0.97),
    (0.44, 0.97),
]  # fmt: skip
"""The 17 points of COCO in shares of a person's box."""


def persons(order=None, exchanged=False, score=0.8) -> np.ndarray:
    """The rows of a network that always finds six people with these points."""
    points = np.array(STANDING)[list(range(17)) if order is None else order]
    values = np.zeros((1, 300, 57))
    for i in range(6):
        x = 80 * i + 40
        y = 260 + 20 * (i % 2)
        values[0, i, :6] = x, y, x + 60, y + 100, 0.9, 0
        placed = points * (60, 100) + (x, y)
        placed = placed[:, ::-1] if exchanged else placed
        values[0, i, 6:] = np.concatenate([placed, np.full((17, 1), score)], axis=1).ravel()
    return values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (persons(), None),
        (persons(order=[0, 5, 6, 8, 10, 7, 9, 11, 12, 14, 16, 13, 15, 2, 1, 4, 3]), "keypoints: the skeleton joins"),
        (persons(exchanged=True), "keypoints: x and y are exchanged: "),
        (persons(score=1.0), "keypoints: 100% of the points have a score of 1 or more, as where logits"),
    ],
)
def test_wrong_keypoints_are_noticed(values, expected, street, tmp_path):
    (tmp_path / "labels.txt").write_text("person")
    shaped(tmp_path / "pose.onnx", {"o": [1, 300, 57]}, values={"o": values})
    card = dataclasses.replace(
        derive(tmp_path / "pose.onnx").card(), skeleton=load_card(find_card("movenet-lightning")).skeleton
    )
    texts = [text for text in hints(card, street) if text.startswith("keypoints")]
    assert [text[: len(expected or "")] for text in texts] == ([] if expected is None else [expected])


def slopes(top, bottom, count=3):
    """Frames whose brightness goes from `top` to `bottom`."""
    lines = np.linspace(top, bottom, 64).astype(np.uint8)
    return gray_frames(np.tile(lines[:, None], (count, 1, 96)))


@pytest.mark.parametrize(
    ("family", "factor", "frames", "expected"),
    [
        ("metric_depth", 10, slopes(200, 20), ""),
        ("inverse_depth", 10, slopes(20, 200), ""),
        ("metric_depth", 10, slopes(20, 200, count=2), ""),
        ("metric_depth", 10, slopes(20, 200), "by metric_depth, the lower third of every frame is farther"),
        ("relative_depth", 10, slopes(20, 200), "larger values are nearer, as in the family inverse_depth"),
        ("inverse_depth", 10, slopes(200, 20), "larger values are farther, as in the family metric_depth or relative"),
        ("metric_depth", 0, slopes(200, 20), "every place has the same depth: correct input.scale, mean and std"),
        ("relative_depth", -10, slopes(20, 200), "some depths are below 0, which relative_depth never is"),
        ("metric_depth", np.inf, slopes(0, 200), "3 of 3 maps have values that are not finite"),
    ],
)
def test_the_scale_and_the_direction_of_depth_are_noticed(family, factor, frames, expected, tmp_path):
    listed = hints(depth_card(tmp_path, family, factor), frames)
    assert bool(listed) == bool(expected)
    assert not expected or any(expected in text for text in listed)


@pytest.mark.parametrize(
    ("factor", "frames", "expected"),
    [
        (1, slopes(20, 100)[:1] + slopes(20, 200)[:1], ""),
        (30, slopes(20, 200)[:1] + slopes(20, 100)[:1], "scores reach from 11.6 to 23.4, and a score is from 0 to 1"),
        (1, slopes(20, 200), "every frame has the score 0.7"),
        (np.nan, slopes(20, 200), "some scores are not finite"),
    ],
)
def test_scores_of_anomalies_that_are_none_are_noticed(factor, frames, expected, tmp_path):
    listed = hints(anomaly_card(tmp_path, factor), frames)
    assert bool(listed) == bool(expected)
    assert not expected or expected in listed[0]
