"""Families that answer with a vector: what they take, and what their numbers mean."""

import numpy as np
import pytest

from streamkit.models import reference
from streamkit.models.families import FAMILIES, family


def test_logits_become_probabilities():
    probabilities = family("logits").finish(np.array([[1000.0, 1001.0], [0.0, 0.0]], np.float16))
    np.testing.assert_allclose(probabilities, [[1 / (1 + np.e), np.e / (1 + np.e)], [0.5, 0.5]], atol=1e-6)
    assert probabilities.dtype == np.float32


def test_probabilities_are_unchanged():
    probabilities = np.array([[0.25, 0.75]], np.float16)
    assert family("probabilities").finish(probabilities).tolist() == [[0.25, 0.75]]


def test_embeddings_have_length_1():
    vectors = family("embedding").finish(np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0, 0]], atol=1e-7)


@pytest.mark.parametrize(
    "name", [name for name, reads in FAMILIES.items() if reads.task in ("classify", "embed") and not reads.numbers]
)
def test_trailing_dimensions_of_size_1_are_ignored(name):
    reads = family(name)
    assert reads.vectors({"y": np.zeros((5, 3, 1, 1))}).shape == (5, 3)
    assert reads.length({"y": ["N", 3, 1, 1]}) == 3
    assert reads.length({"y": ["N", "D"]}) is None
    assert reads.finish(np.zeros((0, 3), np.float32)).shape == (0, 3)
    reads.check({"y": ["N", 3, 1, 1]}, 3)


@pytest.mark.parametrize(
    ("outputs", "classes", "message"),
    [
        ({"y": ["N", 10]}, 3, "holds 10 classes, and the label list has 3; it is trained on 10"),
        ({"y": ["N", 10, 7]}, 10, "reads one output"),
        ({"y": ["N", 10], "z": ["N", 3]}, 10, r"the network has y\['N', 10\], z\['N', 3\]|the network has"),
        ({}, 10, "no outputs"),
    ],
)
def test_unsuitable_outputs_are_refused(outputs, classes, message):
    with pytest.raises(ValueError, match=message):
        family("logits").check(outputs, classes)


@pytest.mark.parametrize(
    ("outputs", "read"),
    [
        ({"last_hidden_state": (2, 5, 4), "pooler_output": (2, 4)}, "pooler_output"),
        ({"last_hidden_state": (2, 5, 4), "pooler_output": (2, 4), "image_embeds": (2, 3)}, "image_embeds"),
        ({"image_embeds": (2, 3), "last_hidden_state": (2, 5, 4)}, "image_embeds"),
        ({"last_hidden_state": (2, 5, 4)}, "the first token of last_hidden_state"),
    ],
)
def test_an_embedding_is_the_vector_of_the_image(outputs, read):
    reads = family("embedding")
    rng = np.random.default_rng(0)
    values = {name: rng.random(shape) for name, shape in outputs.items()}
    vector = values[read.split()[-1]]
    expected = vector[:, 0] if read.startswith("the first") else vector
    np.testing.assert_array_equal(reads.vectors(values), expected)
    assert reads.length(outputs) == expected.shape[1]
    assert reads.claims(outputs, 1) == outputs.keys()
    plain = reference.answer(reads, values)
    np.testing.assert_allclose(plain, reads.finish(reads.vectors(values))[0], atol=1e-6)
    assert f"the vector is {read}" in reads.reading(outputs)


def test_tokens_of_places_alone_are_refused():
    with pytest.raises(ValueError, match="196 tokens of output 'last_hidden_state' are 14 x 14 places, and none is of"):
        family("embedding").check({"last_hidden_state": ("N", 196, 768)}, 1)
