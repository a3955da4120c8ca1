"""Cards of networks that read text: PP-OCR's recognizers name their characters, others need a card."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.core.errors import ModelError
from streamkit.models.card import load_card
from streamkit.models.card_writer import card_text
from streamkit.models.derive import derive, open_model
from streamkit.models.network import check_model


def recognizer(folder: Path, characters: str | None, classes: int, width: int | str = "W") -> Path:
    """A network of PP-OCR's shapes: (N, 3, 48, W) to (N, W / 8, classes), which sees nothing but brightness."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    array = onnx.numpy_helper.from_array
    kernel = np.random.default_rng(1).normal(0, 0.1, (classes, 3, 48, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["columns"], strides=[48, 8]),
        helper.make_node("Squeeze", ["columns", "axes"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["places"], perm=[0, 2, 1]),
        helper.make_node("Softmax", ["places"], ["y"], axis=2),
    ]
    graph = helper.make_graph(
        nodes,
        "reader",
        [helper.make_tensor_value_info("x", 1, ["N", 3, 48, width])],
        [helper.make_tensor_value_info("y", 1, ["N", "T", classes])],
        [array(kernel, "kernel"), array(np.array([2]), "axes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if characters is not None:
        helper.set_model_props(model, {"character": characters})
    onnx.save(model, folder / "rec.onnx")
    return folder / "rec.onnx"


def test_pp_ocr_is_derived_without_a_card(tmp_path):
    card = open_model(str(recognizer(tmp_path, "a\nb\nÄ", 5)))
    assert (card.task, card.family, card.blank) == ("read", "ctc", 0)
    assert card.labels == ("a", "b", "Ä", " ")  # and the space that PP-OCR adds
    spec = check_model(card).input
    assert (spec.size, spec.resize, spec.anchor, spec.color, spec.pad) == (
        (320, 48),
        "letterbox",
        "top_left",
        "bgr",
        127.5,
    )
    factor, summand, pad = spec.affine()
    assert (factor[0] * 255 + summand[0], summand[0], pad[0]) == pytest.approx((1.0, -1.0, 0.0))


def test_the_size_comes_from_the_file_or_the_user(tmp_path):
    assert open_model(str(recognizer(tmp_path, "a\nb", 3, 160))).input.size == (160, 48)
    assert derive(recognizer(tmp_path, "a\nb", 3), size=(240, 48)).card().input.size == (240, 48)


@pytest.mark.parametrize("characters", ["a\nb\nÄ", "a\nbb\n1"])
def test_the_written_card_loads_as_the_derived_card(tmp_path, characters):
    derived = derive(recognizer(tmp_path, characters, 5))
    (tmp_path / "rec.yaml").write_text(derived.text(tmp_path), encoding="utf-8")
    again = load_card(tmp_path / "rec.yaml")
    assert (again.labels, again.input, again.blank) == (derived.card().labels, derived.card().input, 0)
    (tmp_path / "other.yaml").write_text(card_text(again, "rec.onnx", "0" * 64), encoding="utf-8")
    assert load_card(tmp_path / "other.yaml").labels == again.labels


def test_characters_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ModelError, match="the alphabet has 2 characters, with the blank 3 classes"):
        check_model(open_model(str(recognizer(tmp_path, "a\nb", 9))))


def test_other_readers_need_a_card(tmp_path):
    with pytest.raises(
        ModelError, match="needs its alphabet, which its file does not name; write a card with task: read"
    ):
        derive(recognizer(tmp_path, None, 5), family="ctc")


def test_labels_are_refused(tmp_path):
    with pytest.raises(ModelError, match="--labels is for classes, and the file names its characters"):
        derive(recognizer(tmp_path, "a\nb", 3), labels="coco")
