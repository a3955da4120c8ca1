"""Networks for depth and anomaly, by exports of their authors; truth/ has the scripts that made the arrays."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.errors import ModelError
from streamkit.models.derive import derive
from streamkit.models.facts import Underivable
from streamkit.models.families import family
from streamkit.ops.frame_maps import frame_rects, medians, object_samples, ranged, to_maps

TRUTH = Path(__file__).parent / "truth"
CONFIG = {"architectures": ["DepthAnythingForDepthEstimation"], "model_type": "depth_anything"}
STEPS = {
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "size": {"height": 42, "width": 70},
}


def truth(name):
    with np.load(TRUTH / f"{name}.npz") as arrays:
        return {key: arrays[key] for key in arrays}


def depth_anything(folder, **config):
    """The network of the fixture in a folder, with its config.json if there are keys for it."""
    predicted = truth("depth_anything")["predicted_depth"]
    if config:
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "preprocessor_config.json").write_text(json.dumps(STEPS))
    shape = ["N", *predicted.shape[1:]]
    values = {"predicted_depth": predicted}
    return shaped(folder / "model.onnx", {"predicted_depth": shape}, image=["N", 3, 42, 70], values=values)


def measured(form, maps, frame, boxes):
    """The medians of boxes in one map, on a frame that was stretched to a network's input."""
    width, height = frame
    size = maps.shape[2], maps.shape[1]
    geometry = np.array([[size[0] / width, size[1] / height, 0, 0]])
    placed = to_maps(geometry, size, size)
    rects = frame_rects(placed, np.array([frame]), size)
    values, _, _ = ranged(maps, rects, form)
    samples, flags = object_samples(boxes, np.zeros(len(boxes), np.int64), placed, rects)
    return medians(values, samples, flags)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"depth_estimation_type": "metric"}, "metric_depth"),
        ({"depth_estimation_type": "relative"}, "inverse_depth"),
        ({}, "inverse_depth"),
        ({"model_type": "zoedepth"}, "metric_depth"),
    ],
)
def test_the_config_says_the_form_of_depth(config, name, tmp_path):
    card = derive(depth_anything(tmp_path, **CONFIG | config)).card()
    assert (card.task, card.family, card.input.size, card.labels) == ("depth", name, (70, 42), ())
    assert card.input.mean == (0.485, 0.456, 0.406)


def test_without_a_source_the_user_is_asked_for_the_form_once(tmp_path):
    with pytest.raises(Underivable) as caught:
        derive(depth_anything(tmp_path))
    (problem,) = caught.value.problems
    assert problem.text.startswith("no source says in which form its outputs predicted_depth['?', 42, 70] give depth")
    assert "--family metric_depth (in meters) or --family relative_depth (without a unit, larger is f" in problem.text
    card = derive(depth_anything(tmp_path), family="inverse_depth").card()
    assert (card.family, card.input.resize, card.input.std) == ("inverse_depth", "stretch", (0.229, 0.224, 0.225))


def test_depth_below_zero_is_none_of_the_forms_that_have_none(tmp_path):
    path = shaped(
        tmp_path / "model.onnx",
        {"depth": ["N", 42, 70]},
        image=["N", 3, 42, 70],
        values={"depth": np.full((1, 42, 70), -1.0)},
    )
    with pytest.raises(Underivable, match="--family inverse_depth") as caught:
        derive(path)
    assert "metric_depth" not in str(caught.value)


def test_medians_of_objects_equal_those_of_depth_anything_enlarged_to_the_picture():
    arrays = truth("depth_anything")
    maps = family("inverse_depth").maps({"predicted_depth": arrays["predicted_depth"]})
    depths = measured("inverse", maps, arrays["frame"], arrays["boxes"])
    wanted = (arrays["highest"] - arrays["medians"]) / (arrays["highest"] - arrays["lowest"])
    np.testing.assert_allclose(depths, wanted, atol=0.03)  # the authors interpolate between places


def test_yolo26_depth_is_read_in_meters(tmp_path):
    arrays = truth("yolo26_depth")
    output = arrays["output0"]
    metadata = dict(arrays["metadata"].tolist())
    path = shaped(
        tmp_path / "best.onnx",
        {"output0": ["N", *output.shape[1:]]},
        image=["N", 3, 32, 64],
        values={"output0": output},
        metadata=metadata,
    )
    card = derive(path).card()
    assert (card.task, card.family, card.input.resize, card.labels) == ("depth", "metric_depth", "stretch", ())
    maps = family(card.family).maps({"output0": output})
    np.testing.assert_allclose(measured("metric", maps, arrays["frame"], arrays["boxes"]), arrays["medians"], rtol=0.01)


def test_scores_and_maps_of_anomalib_are_those_it_compares_with_its_threshold():
    arrays = truth("padim")
    reads = family("anomalib")
    scores = reads.finish(reads.vectors(arrays))[:, 0]
    assert scores.tolist() == arrays["pred_score"][:, 0].tolist()
    assert (scores > 0.5).tolist() == arrays["pred_label"][:, 0].tolist() == [False, False, False, True]
    np.testing.assert_array_equal(reads.maps(arrays) > 0.5, arrays["pred_mask"][:, 0])


@pytest.mark.parametrize(
    ("name", "outputs", "text"),
    [
        ("metric_depth", {"depth": (1, 3, 8, 8)}, "reads one map"),
        ("metric_depth", {"a": (1, 8, 8), "b": (1, 8, 8)}, "reads one map"),
        ("anomalib", {"anomaly_map": (1, 1, 8, 8)}, "the network lacks pred_score"),
        ("anomalib", {"pred_score": (1, 8, 8)}, r"'pred_score' must be \(N,\) or \(N, 1\)"),
        ("anomalib", {"pred_score": (1,), "anomaly_map": (1, 3, 8, 8)}, r"'anomaly_map' must be \(N, 1, h, w\)"),
    ],
)
def test_other_outputs_are_refused(name, outputs, text):
    with pytest.raises(ValueError, match=text):
        family(name).check(outputs, 0)


def test_a_network_with_confidence_beside_depth_is_refused_until_it_is_ignored(tmp_path):
    path = shaped(
        tmp_path / "model.onnx", {"depth": ["N", 42, 70], "depth_conf": ["N", 42, 70]}, image=["N", 3, 42, 70]
    )
    with pytest.raises(ModelError):
        derive(path)
