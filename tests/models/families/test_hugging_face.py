"""Vectors and class maps of Hugging Face's exports, and what transformers makes of them; see truth/hugging_face.py."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.models.families import family
from streamkit.ops import rle
from streamkit.ops.class_maps import class_masks, pixel_classes

TRUTH = np.load(Path(__file__).parent / "truth" / "hugging_face.npz")
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def outputs_of(network, device, n=1):
    xp = Device(device).xp
    names = [name for name in TRUTH.files if name.startswith(f"{network}.")]
    outputs = {name.split(".")[1]: TRUTH[name].astype(np.float32) for name in names}
    return {name: xp.asarray(np.repeat(array, n, axis=0)) for name, array in outputs.items() if name != "vector"}


@DEVICES
@pytest.mark.parametrize("n", [1, 32])
@pytest.mark.parametrize("network", ["dinov3", "clip"])
def test_an_embedding_is_the_vector_of_the_authors(network, n, device):
    reads = family("embedding")
    vectors = reads.vectors(outputs_of(network, device, n))
    vectors = np.asarray(vectors.get() if hasattr(vectors, "get") else vectors)
    expected = TRUTH[f"{network}.vector"][0]
    expected = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(reads.finish(vectors), np.repeat(expected[None], n, axis=0), atol=1e-5)


@DEVICES
def test_classes_of_segformer_equal_those_of_the_authors(device):
    scores = family("semantic").scores({"logits": outputs_of("segformer", device)["logits"]}, 5)
    width, height = TRUTH["frame"].tolist()
    geometry = np.float32([[96 / width, 96 / height, 0, 0]])
    pixels = pixel_classes(scores, geometry, np.array([(width, height)]), (96, 96), width * height)[0]
    masks = class_masks(np.asarray(pixels.get() if hasattr(pixels, "get") else pixels), (width, height))
    expected = TRUTH["segformer.classes"]
    agreeing = sum(int((rle.decode(mask) & (expected == number)).sum()) for number, mask in masks.items())
    assert agreeing / expected.size >= 0.995
