"""What a network's file says of itself, and whether it fits its card."""

import dataclasses
from pathlib import Path

import pytest
from support.plus_one import F32, I64, U8, network
from support.shaped_networks import shaped

from streamkit.core.errors import ModelError
from streamkit.models.card import Card, find_card, load_card
from streamkit.models.network import check_model, inspect, takes_single_images


def card_for(file: Path, folder: Path, **changes) -> Card:
    path = folder / "net.yaml"
    path.write_text("task: detect\nfamily: yolox\nfile: x.onnx\ninput: {size: [416, 416]}\nlabels: coco\n")
    return dataclasses.replace(load_card(path).with_file(file), **changes)


# ------------------------------------------------------------------------------------------ what a file says of itself


@pytest.mark.parametrize(
    ("file", "image", "layout", "dtype", "batch", "size"),
    [
        ("yolox_nano_dyn.onnx", "images", "nchw", "f32", None, (416, 416)),
        ("deimv2_hgnetv2_atto_coco.onnx", "images", "nchw", "f32", None, (320, 320)),
        ("yunet_n_dynamic.onnx", "input", "nchw", "f32", None, None),
        ("movenet_lightning_192.onnx", "serving_default_input:0", "nhwc", "u8", 1, (192, 192)),
        ("person-reidentification-retail-0288.onnx", "inputs:0", "nhwc", "f32", 1, (128, 256)),
    ],
)
def test_inspect_reads_inputs_and_outputs(file, image, layout, dtype, batch, size, test_data):
    info = inspect(test_data / "models" / file)
    assert (info.image_input, info.layout, info.dtype) == (image, layout, dtype)
    assert (info.batch, info.size) == (batch, size)


def test_inspect_sees_a_changed_file(tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (F32, [1, 3, 8, 8])})
    assert inspect(path).size == (8, 8)
    network(path, {"x": (F32, ["n", 3, 160, 8])})
    assert inspect(path).size == (8, 160)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"hello", "is not an ONNX model that can be read: it has another format or is damaged; copy or export"),
        (b"", "is empty; copy or export it again"),
        (
            b"PK\x03\x04best/data.pkl",
            r"as PyTorch writes its weights \(.pt\); export them to ONNX, for Ultralytics with",
        ),
        (b"\x80\x02\x8a\nl\xfc\x9cF", r"is a Python pickle, as PyTorch wrote .*; export them to ONNX"),
        (b"<!DOCTYPE html><html>", "is a web page or XML, not an ONNX file; download the file itself"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "is Git LFS's pointer to a model"),
    ],
)
def test_a_file_that_is_not_onnx_is_refused(content, expected, tmp_path, capfd):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=expected) as caught:
        inspect(path)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_newer_format_than_onnx_runtime_reads_is_reported(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])})
    model = onnx.load(path)
    model.opset_import[0].version = 999
    onnx.save(model, path)
    with pytest.raises(
        ModelError, match=r"has opset 999, and ONNX Runtime [\d.]+ reads up to opset \d+; export it with"
    ):
        inspect(path)
    model.opset_import[0].version = 17
    model.ir_version = 99
    onnx.save(model, tmp_path / "ir.onnx")
    with pytest.raises(
        ModelError, match=r"has IR version 99, and ONNX Runtime [\d.]+ reads up to \d+; export it with an"
    ):
        inspect(tmp_path / "ir.onnx")


@pytest.mark.parametrize(("domain", "name"), [("", "Foo"), ("TRT", "TRT:EfficientNMS_TRT")])
def test_an_unsupported_operator_is_reported(domain, name, tmp_path):
    onnx = pytest.importorskip("onnx")
    path = network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])})
    model = onnx.load(path)
    model.graph.node[0].op_type = name.removeprefix("TRT:")
    model.graph.node[0].domain = domain
    if domain:
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    onnx.save(model, path)
    with pytest.raises(
        ModelError, match=rf"has the operator {name}, which ONNX Runtime [\d.]+ lacks; export the netwo"
    ):
        inspect(path)


def test_integer_inputs_are_not_scaled_to_one(tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (U8, ["n", 3, 416, 416])}, {"out_x": ["n", 3, 416]})
    card = card_for(path, tmp_path)
    small = dataclasses.replace(card, input=dataclasses.replace(card.input, scale=1 / 255))
    with pytest.raises(ModelError, match=r"takes images of whole numbers \(uint8\), and scale 0.003922 leaves few of"):
        check_model(small)
    with pytest.raises(ModelError) as caught:
        check_model(card)
    assert "whole numbers" not in str(caught.value)  # the family does not read this output


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        ((0, 0, 0), (1, 1, 1), ""),
        ((127, 127, 127), (1, 1, 1), "scale, mean and std turn pixels into -127 to 128, which are cut at 0 and 255"),
        ((0, 0, 1), (1, 1, 1), "turn pixels into -1 to 255, which"),
        ((0, 0, 0), (1, 1, 0.5), "turn pixels into 0 to 510, which"),
        ((0, 0, 0), (1, 1, 8), "scale 1 leaves few of them"),
    ],
)
def test_pixel_values_of_an_integer_input_fill_0_to_255(mean, std, expected, tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (U8, ["n", 3, 416, 416])}, {"out_x": ["n", 3, 416]})
    card = card_for(path, tmp_path)
    changed = dataclasses.replace(card, input=dataclasses.replace(card.input, mean=mean, std=std))
    with pytest.raises(ModelError) as caught:
        check_model(changed)
    texts = [problem.text for problem in caught.value.problems if "whole numbers" in problem.text]
    assert len(texts) == bool(expected)
    assert all(expected in text for text in texts)


def test_a_truncated_file_is_reported(tmp_path, test_data):
    whole = (test_data / "models" / "yolox_nano_dyn.onnx").read_bytes()
    path = tmp_path / "net.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="is not an ONNX model"):
        inspect(path)


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(ModelError, match="there is no file"):
        inspect(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        inspect(tmp_path)


@pytest.mark.parametrize(
    "inputs",
    [
        {"x": (F32, ["n", 3, 8])},
        {"x": (F32, ["n", 1, 8, 8])},
        {"x": (F32, ["n", 1, None, None])},
        {"x": (F32, ["n", 3, 8, 8]), "y": (F32, ["n", 3, 8, 8])},
    ],
)
def test_an_input_of_the_wrong_rank_is_refused(inputs, tmp_path):
    path = network(tmp_path / "net.onnx", inputs)
    with pytest.raises(ModelError, match="must have one input of rank 4") as caught:
        inspect(path)
    assert "x [" in str(caught.value)


def test_an_unsupported_dtype_of_images_is_refused(tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (I64, ["n", 3, 8, 8])})
    with pytest.raises(ModelError, match="takes images as int64"):
        inspect(path)


# ----------------------------------------------------------------------------------------------------- file and card


def test_check_model_fills_layout_and_dtype(test_data, tmp_path):
    card = card_for(test_data / "models" / "yolox_nano_dyn.onnx", tmp_path)
    card = dataclasses.replace(card, input=dataclasses.replace(card.input, layout="nhwc", dtype="u8"))
    assert (check_model(card).input.layout, check_model(card).input.dtype) == ("nchw", "f32")


def test_all_mismatches_are_reported_at_once(test_data, tmp_path):
    card = card_for(test_data / "models" / "yolox_nano_dyn.onnx", tmp_path, labels=("a", "b"))
    card = dataclasses.replace(card, input=dataclasses.replace(card.input, size=(640, 416)))
    with pytest.raises(ModelError) as caught:
        check_model(card)
    texts = [problem.text for problem in caught.value.problems]
    assert len(texts) == 2
    assert "input.size is 640 x 416 (width, height), but yolox_nano_dyn.onnx takes 416 x 416" in texts
    assert any("80 classes" in text and "the label list has 2" in text for text in texts)
    assert all(problem.file == str(card.path) for problem in caught.value.problems)


def test_an_unknown_input_is_refused(test_data, tmp_path):
    card = load_card(find_card("deimv2-atto")).with_file(test_data / "models" / "deimv2_hgnetv2_atto_coco.onnx")
    assert check_model(card).input.dtype == "f32"
    with pytest.raises(ModelError, match="family ssd has no value for the input orig_target_sizes"):
        check_model(dataclasses.replace(card, family="ssd"))


MASKED = {"dets": [1, 100, 4], "labels": [1, 100, 2], "masks": [1, 100, 16, 16], "more": [1, 3]}


def card_of_masks(folder: Path, ignored: tuple[str, ...]) -> Card:
    """A card for boxes of a network that has masks and a vector, too."""
    path = shaped(folder / "net.onnx", MASKED, image=[1, 3, 64, 64])
    card = card_for(path, folder, labels=("a", "b"))
    spec = dataclasses.replace(card.input, size=(64, 64))
    return dataclasses.replace(card, family="detr", input=spec, ignore_outputs=ignored)


UNREAD = {
    (): (
        "family detr does not read the outputs masks[1, 100, 16, 16], more[1, 3]; take a family that does, or to go "
        "without, write ignore_outputs: [masks, more] in the card"
    ),
    ("more",): "family detr does not read the output masks[1, 100, 16, 16]; take a family",
    ("mask", "masks", "more"): (
        "ignore_outputs names 'mask', and net.onnx has no such output; its outputs are dets, labels, masks, more; did "
        "you mean 'masks'?"
    ),
    ("masks", "more", "dets"): "family detr reads the outputs labels, boxes, scores",
}


@pytest.mark.parametrize("ignored", UNREAD)
def test_unread_outputs_must_be_listed_in_the_card(ignored, tmp_path):
    with pytest.raises(ModelError) as caught:
        check_model(card_of_masks(tmp_path, ignored))
    (problem,) = caught.value.problems
    assert problem.text.startswith(UNREAD[ignored])


def test_a_card_may_ignore_outputs(tmp_path):
    assert check_model(card_of_masks(tmp_path, ("more", "masks"))).input.dtype == "f32"


def test_a_file_that_does_not_exist_is_reported(tmp_path):
    card = card_for(tmp_path / "net.onnx", tmp_path)
    with pytest.raises(ModelError, match=r"its file .*net.onnx does not exist; put the ONNX file there"):
        check_model(card)
    with pytest.raises(ModelError, match=r"does not exist; fetch it with: streamkit models pull net"):
        check_model(dataclasses.replace(card, url="https://example.org/x", sha256="0" * 64))
    with pytest.raises(ModelError, match=r"does not exist; Ask\."):
        check_model(dataclasses.replace(card, note="Ask."))


def test_a_wrong_checksum_is_reported(test_data, tmp_path):
    file = test_data / "models" / "yolox_nano_dyn.onnx"
    card = card_for(file, tmp_path, url="https://example.org/x", sha256="0" * 64)
    with pytest.raises(ModelError, match=r"its SHA-256 is 2a97133c.*, not 0{64}\..*streamkit models pull net"):
        check_model(card)


@pytest.mark.parametrize(("boxes", "single"), [(["K", 4], True), (["N", 100, 4], False)])
def test_networks_that_list_the_objects_of_one_image_take_one(boxes, single, tmp_path):
    shapes = {"boxes": boxes, "labels": boxes[:-1], "scores": boxes[:-1]}
    shaped(tmp_path / "net.onnx", shapes, image=["N", 3, 64, 64], integers=("labels",))
    (tmp_path / "net.yaml").write_text(
        "task: detect\nfamily: ssd\nfile: net.onnx\nlabels: [a]\ninput: {size: [64, 64], resize: stretch}\n"
    )
    assert takes_single_images(load_card(tmp_path / "net.yaml")) is single
