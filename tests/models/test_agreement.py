"""Whether a network in f16 finds what it finds in f32: on real runs of both on the CPU."""

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from streamkit.core.data import Device, Surface
from streamkit.media.spread_frames import spread_frames
from streamkit.models.agreement import MIN_OBJECTS, ArithmeticAgreement, Images
from streamkit.models.card import Card, load_card
from streamkit.models.half import f16_file
from streamkit.models.network import check_model
from streamkit.models.session import Session
from streamkit.ops.preprocess import preprocess


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Converted networks go to a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def demo(root) -> Card:
    return check_model(load_card(root / "models" / "demo.yaml"))


@pytest.fixture(scope="module")
def street(root):
    """Frames with nine or ten objects each."""
    return spread_frames([], [root / "samples" / "street.mp4"], 32)


def run_of(card: Card, frames) -> tuple[dict[str, np.ndarray], Images]:
    """Return the images of frames as the card's input, and what decoding needs to know of them."""
    sizes = [(frame.width, frame.height) for frame in frames]
    tensor, geometry = preprocess([frame.surface for frame in frames], sizes, card.input)
    return {Session(card.file, Device()).image_input: tensor}, Images(geometry, np.array(sizes, np.int64), card.labels)


def compared(card: Card, other: Card, frames) -> ArithmeticAgreement:
    """Compare two networks on frames."""
    feeds, images = run_of(card, frames)
    agreement = ArithmeticAgreement(card)
    agreement.add(Session(card.file, Device()).run(feeds), Session(other.file, Device()).run(feeds), images)
    return agreement


def in_f16(card: Card) -> Card:
    return dataclasses.replace(card, file=f16_file(card.file))


def edited(card: Card, folder, edit) -> Card:
    """Return a card whose network an edit has changed in place."""
    model = onnx.load(card.file)
    edit(model.graph)
    file = folder / "edited.onnx"
    onnx.save(model, file)
    return dataclasses.replace(card, file=file)


def with_random_weights(graph) -> None:
    rng = np.random.default_rng(5)
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.ndim == 4:
            scale = 1.4 / np.sqrt(np.prod(values.shape[1:]))
            tensor.CopyFrom(
                numpy_helper.from_array((rng.standard_normal(values.shape) * scale).astype(np.float32), tensor.name)
            )


def with_a_layer_that_overflows(graph) -> None:
    """Multiply the images by a million and divide by it again: f16 ends at 65,504."""
    name = graph.input[0].name
    for node in graph.node:
        node.input[:] = ["restored" if source == name else source for source in node.input]
    for constant, value in (("million", 1e6), ("millionth", 1e-6)):
        graph.initializer.append(numpy_helper.from_array(np.float32(value), constant))
    graph.node.insert(0, helper.make_node("Mul", ["enlarged", "millionth"], ["restored"]))
    graph.node.insert(0, helper.make_node("Mul", [name, "million"], ["enlarged"]))


def test_a_trained_network_gives_the_same_objects_in_f16(demo, street):
    agreement = compared(demo, in_f16(demo), street)
    assert agreement.objects >= MIN_OBJECTS
    assert agreement.verdict == "same"
    assert "confident objects are the same" in str(agreement)


def test_a_scene_without_objects_does_not_select_f16(demo, street):
    dark = [Surface(np.full_like(frame.surface.data, 16), frame.surface.color) for frame in street]
    sizes = [(frame.width, frame.height) for frame in street]
    tensor, geometry = preprocess(dark, sizes, demo.input)
    feeds = {Session(demo.file, Device()).image_input: tensor}
    agreement = ArithmeticAgreement(demo)
    other = Session(in_f16(demo).file, Device()).run(feeds)
    agreement.add(Session(demo.file, Device()).run(feeds), other, Images(geometry, np.array(sizes), demo.labels))
    assert agreement.objects < MIN_OBJECTS
    assert agreement.verdict == "unknown"
    assert f"{MIN_OBJECTS} are needed" in str(agreement)


def test_random_weights_do_not_select_f16(demo, street, tmp_path):
    random = edited(demo, tmp_path, with_random_weights)
    assert compared(random, in_f16(random), street[:2]).verdict != "same"


def test_a_layer_that_overflows_rejects_f16(demo, street, tmp_path):
    overflowing = edited(demo, tmp_path, with_a_layer_that_overflows)
    assert compared(overflowing, demo, street).verdict == "same"  # in f32 it is the same network
    agreement = compared(overflowing, in_f16(overflowing), street)
    assert agreement.verdict == "different"


def test_non_finite_values_reject_f16(demo, street):
    feeds, images = run_of(demo, street[:2])
    outputs = Session(demo.file, Device()).run(feeds)
    other = {name: values.copy() for name, values in outputs.items()}
    next(iter(other.values()))[1, 4, 0] = np.inf
    agreement = ArithmeticAgreement(demo)
    agreement.add(outputs, other, images)
    assert agreement.verdict == "different"
    assert "not finite" in str(agreement)


def test_a_decision_needs_enough_objects(demo, street):
    feeds, images = run_of(demo, street[:4])
    outputs = Session(demo.file, Device()).run(feeds)
    other = {name: values * np.float32(1.0001) for name, values in outputs.items()}
    agreement = ArithmeticAgreement(demo)
    runs = 0
    while agreement.verdict == "unknown":
        agreement.add(outputs, other, images)
        runs += 1
        assert (agreement.verdict == "unknown") == (agreement.objects < MIN_OBJECTS)
    assert agreement.images == 4 * runs
    assert agreement.verdict == "same"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda boxes, scores: (boxes + 0.02, scores), "same"),
        (lambda boxes, scores: (boxes + 6.0, scores), "different"),
        (lambda boxes, scores: (boxes, scores + 0.015), "same"),
        (lambda boxes, scores: (boxes, np.maximum(scores - 0.03, 0)), "different"),
    ],
    ids=["boxes of almost the same place", "boxes apart", "scores close", "scores apart"],
)
def test_boxes_and_scores_are_compared(demo, street, change, verdict):
    feeds, images = run_of(demo, street)
    outputs = Session(demo.file, Device()).run(feeds)
    ((name, values),) = outputs.items()
    boxes, scores = change(values[:, :4], values[:, 4:])
    agreement = ArithmeticAgreement(demo)
    agreement.add(outputs, {name: np.concatenate([boxes, scores], axis=1)}, images)
    assert agreement.verdict == verdict


def test_padding_rows_are_ignored(demo, street):
    feeds, images = run_of(demo, street)
    outputs = Session(demo.file, Device()).run(feeds)
    wrong_padding = {name: np.concatenate([values, values[:1]]) for name, values in outputs.items()}
    other = {name: np.concatenate([values, np.full_like(values[:1], np.nan)]) for name, values in outputs.items()}
    agreement = ArithmeticAgreement(demo)
    agreement.add(wrong_padding, other, images)
    assert agreement.verdict == "same"


def test_a_classifier_is_compared_by_its_outputs(tmp_path):
    from support.networks import classifier

    card = check_model(classifier(tmp_path))
    images = Images(None, np.full((16, 2), 32, np.int64), card.labels)
    outputs = {"logits": np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)}
    for error, verdict in ((1e-3, "same"), (2e-2, "different")):
        agreement = ArithmeticAgreement(card)
        for _ in range(4):
            assert agreement.verdict == "unknown"
            agreement.add(outputs, {name: values * np.float32(1 + error) for name, values in outputs.items()}, images)
        assert agreement.verdict == verdict
