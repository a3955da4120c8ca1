"""L2CS: angles of the gaze from bins, named as the card's labels."""

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models import reference
from streamkit.models.derive import derive
from streamkit.models.families import family
from streamkit.ops.transfer import fetch

FACE = ["N", 3, 448, 448]


def peaks(*places: float, bins: int = 90) -> np.ndarray:
    """Logits whose expected bin is at these places."""
    away = np.arange(bins) - np.array(places)[:, None]
    return (-(away**2) / 2).astype(np.float32)


@pytest.mark.parametrize(("bins", "width", "offset"), [(90, 4, 180), (28, 3, 42)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_angles_are_the_expected_bins(bins, width, offset, device, dtype):
    xp = Device(device).xp
    outputs = {
        "pitch": xp.asarray(peaks(10, 20.5, bins=bins).astype(dtype)),
        "yaw": xp.asarray(peaks(14, 12.25, bins=bins).astype(dtype)),
    }
    reads = family("l2cs")
    angles = reads.finish(fetch([reads.vectors(outputs)])()[0])
    np.testing.assert_allclose(angles, np.array([[14, 10], [12.25, 20.5]]) * width - offset, atol=0.02)
    assert angles.dtype == np.float32


def test_the_plain_reference_gives_the_same_angles():
    rng = np.random.default_rng(2)
    outputs = {name: rng.normal(0, 3, (1, 90)).astype(np.float32) for name in ("pitch", "yaw")}
    reads = family("l2cs")
    np.testing.assert_allclose(reads.finish(reads.vectors(outputs))[0], reference.answer(reads, outputs), atol=1e-3)


def test_a_network_is_derived_with_the_names_of_the_angles(tmp_path):
    card = derive(shaped(tmp_path / "gaze.onnx", {"pitch": ["N", 90], "yaw": ["N", 90]}, image=FACE)).card()
    assert (card.task, card.family, card.labels) == ("classify", "l2cs", ("yaw", "pitch"))
    assert (card.input.resize, card.input.mean) == ("stretch", (0.485, 0.456, 0.406))
    assert card.attributes("gaze") == ("gaze_yaw", "gaze_pitch")


@pytest.mark.parametrize(
    ("outputs", "classes", "text"),
    [
        ({"a": ("N", 90), "b": ("N", 90)}, 2, r"whose names have yaw and pitch; the network has a\['N', 90\]"),
        ({"yaw": ("N", 90), "pitch": ("N", 66)}, 2, r"output 'pitch' must be \(N, 90\) or \(N, 28\)"),
        ({"yaw": ("N", 90), "pitch": ("N", 90)}, 3, r"gives two angles, .* has 3; give it \[yaw, pitch\]"),
    ],
)
def test_other_outputs_are_refused(outputs, classes, text):
    with pytest.raises(ValueError, match=text):
        family("l2cs").check(outputs, classes)


def test_another_output_is_not_dropped(tmp_path):
    outputs = {"pitch": ["N", 90], "yaw": ["N", 90], "landmarks": ["N", 10]}
    with pytest.raises(ModelError, match="family l2cs does not read landmarks"):
        derive(shaped(tmp_path / "gaze.onnx", outputs, image=FACE))
