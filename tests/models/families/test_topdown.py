"""Top-down poses: the authors' own postprocessors, which network is which, and outputs that are damaged."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.detector_forms import TOP_DOWN, random_outputs
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models.derive import derive
from streamkit.models.families import CAUSES, ReadOptions, begin_table, family
from streamkit.models.labels import SKELETONS
from streamkit.models.network import check_model
from streamkit.ops.boxes import views_around

TRUTH = Path(__file__).parent / "truth"
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
HALF_PX = 0.5  # authors count from the center of the first pixel, streamkit from the edge of the frame
ALL = ReadOptions(np.zeros(1, np.float32))
SIZE = (96, 64)
PORTRAIT = ["N", 3, 256, 192]


def read_points(name, outputs, geometry, size, device="cpu"):
    """The keypoints (n, points, 3) of one object per image, in source pixels."""
    xp = Device(device).xp
    outputs = {output: xp.asarray(values) for output, values in outputs.items()}
    frames = np.full((len(geometry), 2), 10_000)
    table, _ = begin_table(family(name), outputs, geometry, frames, size, ALL, ("person",))
    return table()[0].extra["keypoints"]


@pytest.mark.parametrize("device", DEVICES)
def test_simcc_equals_rtmlib(device):
    truth = np.load(TRUTH / "rtmpose.npz")
    size = tuple(truth["size"].tolist())
    views = views_around(truth["boxes"], 0.125, size)
    scale = size / (views[:, 2:] - views[:, :2])
    # the authors' map takes the middle of the box to the middle of the input, both from the first pixel's center
    offset = np.array(size) / 2 + HALF_PX - scale * ((views[:, :2] + views[:, 2:]) / 2 + HALF_PX)
    geometry = np.concatenate([scale, offset], axis=1).astype(np.float32)
    points = read_points("simcc", {"simcc_x": truth["x"], "simcc_y": truth["y"]}, geometry, size, device)
    np.testing.assert_allclose(points[:, :, :2] - HALF_PX, truth["keypoints"], atol=2e-3)
    smaller = np.minimum(truth["x"].max(axis=2), truth["y"].max(axis=2))
    np.testing.assert_array_equal(points[:, :, 2], smaller)


@pytest.mark.parametrize("device", DEVICES)
def test_heat_maps_and_scores_equal_those_of_mmpose(device):
    truth = np.load(TRUTH / "mmpose.npz")
    size = tuple(truth["size"].tolist())
    geometry = np.array([[1, 1, 0, 0]] * 2, np.float32)
    points = read_points("heatmaps", {"output": truth["heatmaps"]}, geometry, size, device)
    np.testing.assert_allclose(points[:, :, :2] - HALF_PX, truth["keypoints"], atol=1e-4)
    points = read_points("simcc", {"simcc_x": truth["x"], "simcc_y": truth["y"]}, geometry, size, device)
    np.testing.assert_allclose(points[:, :, 2], truth["scores"], atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_heat_maps_of_vitpose_equal_those_of_transformers(device):
    truth = np.load(TRUTH / "vitpose.npz")
    size = tuple(truth["size"].tolist())
    boxes = np.concatenate([truth["boxes"][:, :2], truth["boxes"][:, :2] + truth["boxes"][:, 2:]], axis=1)
    views = views_around(boxes, 0.125, size)
    inner = np.array(size) - 1
    scale = inner / (views[:, 2:] - views[:, :2])
    offset = inner / 2 + HALF_PX - scale * ((views[:, :2] + views[:, 2:]) / 2 + HALF_PX)
    geometry = np.concatenate([scale, offset], axis=1).astype(np.float32)
    points = read_points("heatmaps_udp", {"heatmaps": truth["heatmaps"]}, geometry, size, device)
    np.testing.assert_allclose(points[:, :, :2] - HALF_PX, truth["keypoints"], atol=5e-3)
    np.testing.assert_allclose(points[:, :, 2], truth["scores"], atol=1e-6)


@pytest.mark.parametrize("form", TOP_DOWN)
@pytest.mark.parametrize("damage", [np.nan, np.inf])
@pytest.mark.parametrize("device", DEVICES)
def test_an_object_with_a_value_that_is_not_finite_is_counted(form, damage, device):
    outputs = random_outputs(form, 2, np.float32)
    for values in outputs.values():
        values[0, 3].reshape(-1)[7] = damage
    xp = Device(device).xp
    outputs = {name: xp.asarray(values) for name, values in outputs.items()}
    packed = family(form).read(outputs, np.array([[1, 1, 0, 0]] * 2, np.float32), np.array([SIZE] * 2), SIZE, ALL)
    counts = packed.counts if device == "cpu" else packed.counts.get()
    assert counts[:, 0].tolist() == [0, 1]
    assert counts[:, 1 + CAUSES.index("not_finite")].tolist() == [1, 0]


def test_values_beyond_1_and_below_0_are_cut():
    x = np.full((1, 2, 192), -3, np.float32)
    y = np.full((1, 2, 128), -3, np.float32)
    x[0, 0, 20] = 8
    y[0, 0, 30] = 5
    points = read_points("simcc", {"simcc_x": x, "simcc_y": y}, np.array([[1, 1, 0, 0]], np.float32), SIZE)
    assert points[0, 0].tolist() == [10.5, 15.5, 1.0]
    assert points[0, 1, 2] == 0


@pytest.mark.parametrize("names", [("simcc_x", "simcc_y"), ("a", "b"), ("out_Y", "out_X")])
def test_outputs_of_simcc_are_told_by_name_or_length(names):
    outputs = dict(zip(names, random_outputs("simcc", 1, np.float32).values(), strict=True))
    if names[0] == "out_Y":
        outputs = {"out_Y": outputs["out_X"], "out_X": outputs["out_Y"]}
    geometry = np.array([[1, 1, 0, 0]], np.float32)
    expected = read_points("simcc", random_outputs("simcc", 1, np.float32), geometry, SIZE)
    np.testing.assert_array_equal(read_points("simcc", outputs, geometry, SIZE), expected)


def test_outputs_that_do_not_tell_x_from_y_are_refused():
    outputs = {name: np.zeros((1, 17, 128), np.float32) for name in ("a", "b")}
    with pytest.raises(ValueError, match="say which is of x and which of y; export the network with the names simcc_x"):
        read_points("simcc", outputs, np.array([[1, 1, 0, 0]], np.float32), (64, 64))
    outputs = random_outputs("simcc", 1, np.float32)
    with pytest.raises(ValueError, match="same number of places for each pixel of the input, which is 64x96"):
        read_points("simcc", outputs, np.array([[1, 1, 0, 0]], np.float32), (64, 96))


# ------------------------------------------------------------------------------------------------- which family


@pytest.mark.parametrize(("points", "skeleton"), [(17, "coco"), (26, "halpe"), (133, "wholebody"), (21, None)])
def test_simcc_is_derived_with_the_skeleton_of_its_number_of_points(points, skeleton, tmp_path):
    outputs = {"simcc_x": ["N", points, 384], "simcc_y": ["N", points, 512]}
    card = derive(shaped(tmp_path / "pose.onnx", outputs, image=PORTRAIT)).card()
    assert (card.task, card.family, card.labels, card.score) == ("pose", "simcc", ("person",), 0)
    assert (card.input.resize, card.input.pad, card.input.color) == ("letterbox", 0, "rgb")
    assert card.skeleton == (None if skeleton is None else SKELETONS[skeleton])


def test_skeletons_have_as_many_names_as_points():
    counts = {"coco": 17, "halpe": 26, "wholebody": 133}
    for name, count in counts.items():
        skeleton = SKELETONS[name]
        assert len(set(skeleton.names)) == count
        assert max(max(edge) for edge in skeleton.edges) < count


def test_a_card_with_another_number_of_points_than_the_network_is_refused(tmp_path):
    file = shaped(tmp_path / "pose.onnx", {"simcc_x": ["N", 26, 384], "simcc_y": ["N", 26, 512]}, image=PORTRAIT)
    card = dataclasses.replace(derive(file).card(), skeleton=SKELETONS["coco"])
    with pytest.raises(ModelError, match=r"pose.onnx has 26 keypoints, and keypoints lists 17; list the keypoints"):
        check_model(card)


def test_heat_maps_without_a_name_ask_for_the_family(tmp_path):
    file = shaped(tmp_path / "pose.onnx", {"output": ["N", 17, 64, 48]}, image=PORTRAIT)
    with pytest.raises(
        ModelError, match=r"several families .*heatmaps \(pose, 1 class\), heatmaps_udp \(pose"
    ) as error:
        derive(file)
    assert "--family F" in str(error.value)
    assert derive(file, family="heatmaps").card().skeleton == SKELETONS["coco"]


def test_an_output_that_is_not_read_is_not_dropped(tmp_path):
    outputs = {"simcc_x": ["N", 17, 384], "simcc_y": ["N", 17, 512], "simcc_z": ["N", 17, 576]}
    file = shaped(tmp_path / "pose.onnx", outputs, image=PORTRAIT)
    with pytest.raises(ModelError, match="family simcc does not read simcc_z"):
        derive(file)
    assert derive(file, family="simcc").card().ignore_outputs == ("simcc_z",)


def test_maps_of_logits_are_doubted(tmp_path):
    tops = np.full((1, 17, 64, 48), 7.0)
    file = shaped(
        tmp_path / "pose.onnx", {"heatmaps": [1, 17, 64, 48]}, image=[1, *PORTRAIT[1:]], values={"heatmaps": tops}
    )
    with pytest.raises(
        ModelError, match=r"not heatmaps: the tops of its maps are from 7.0 to 7.0, which are no scores"
    ):
        derive(file)
