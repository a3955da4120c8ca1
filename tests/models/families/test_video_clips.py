"""Networks that take clips: the authors' VideoMAE, what is derived of it, and how the shapes of clips are read."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from support.clip_networks import convolution

from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.core.errors import ModelError
from streamkit.models.check import check
from streamkit.models.derive import derive
from streamkit.models.facts import Underivable
from streamkit.models.hints import hints
from streamkit.models.network import check_model, inspect
from streamkit.ops.color import from_rgb
from streamkit.ops.preprocess import preprocess
from streamkit.stages.inference.action import Action
from streamkit.testing.kit import run_stage

TRUTH = np.load(Path(__file__).parent / "truth" / "videomae.npz")
X3D = np.load(Path(__file__).parent / "truth" / "x3d.npz")
PROCESSOR = json.loads(str(TRUTH["preprocessor"]))
COLOR = Color("bt601", full_range=True, chroma_x=0.5)


@pytest.fixture
def network(tmp_path):
    """The authors' export, with the files that they save beside it."""
    (tmp_path / "model.onnx").write_bytes(TRUTH["network"].tobytes())
    (tmp_path / "config.json").write_text(str(TRUTH["config"]))
    (tmp_path / "preprocessor_config.json").write_text(str(TRUTH["preprocessor"]))
    return tmp_path / "model.onnx"


@pytest.fixture
def x3d(tmp_path):
    """The authors' export, with the names of its classes."""
    (tmp_path / "x3d.onnx").write_bytes(X3D["network"].tobytes())
    (tmp_path / "labels.txt").write_text("walk\nrun\nfall\nsit\nwave\n")
    return tmp_path / "x3d.onnx"


def video(frames=TRUTH["frames"]):
    surfaces = [Surface(from_rgb(rgb, COLOR), COLOR) for rgb in frames]
    height, width = frames.shape[1:3]
    return [Frame("a", index, index / 10, width, height, surface) for index, surface in enumerate(surfaces)]


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_videomae_is_derived_without_a_card(network):
    card = derive(network).card()
    assert (card.task, card.family) == ("action", "clip_logits")
    assert card.labels == ("walk", "run", "fall", "sit", "wave")
    spec = card.input
    assert (spec.size, spec.resize, spec.antialias, spec.color) == ((16, 16), "crop", True, "rgb")
    assert (spec.scale, spec.mean, spec.std) == (pytest.approx(1 / 255), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert inspect(network).clip.order == "tchw"
    assert inspect(network).clip.frames == 4
    assert check_model(card).input.layout == "nchw"


def test_the_file_of_a_video_processor_says_the_same(network):
    card = derive(network).card()
    beside = network.with_name("preprocessor_config.json")
    beside.rename(network.with_name("video_preprocessor_config.json"))
    assert derive(network).card().input == card.input


def test_frames_equal_those_of_the_authors_processor(network):
    spec = check_model(derive(network).card()).input
    frames = video()
    tensor, _ = preprocess([frame.surface for frame in frames], [(frame.width, frame.height) for frame in frames], spec)
    levels = tensor * 127.5 + 127.5
    assert np.abs(levels - TRUTH["levels"]).max() < 4  # their frames and their resize are rounded to whole levels
    assert np.abs(levels - TRUTH["levels"]).mean() < 0.7


@pytest.mark.parametrize("batch", [1, 32])
def test_answers_equal_those_of_the_authors(network, batch):
    expected = softmax(TRUTH["logits"])
    assert len(set(expected.argmax(axis=1))) >= 3
    card = derive(network).card()
    stage = Action(model=card, stride=1, every=0.0, min_score=0.0)
    processed = run_stage(stage, video(), batch=batch)
    assert [frame.index for frame in processed if "attributes" in frame.facts] == list(range(3, 10))
    for frame, probabilities in zip(processed[3:], expected, strict=True):
        answer = frame.facts["attributes"]["action"]
        assert answer["label"] == card.labels[probabilities.argmax()]
        assert answer["score"] == pytest.approx(probabilities.max(), abs=0.02)


def test_a_network_without_labels_asks_for_them_alone(network):
    config = json.loads(str(TRUTH["config"]))
    del config["id2label"]
    network.with_name("config.json").write_text(json.dumps(config))
    with pytest.raises(Underivable) as refusal:
        derive(network)
    (problem,) = refusal.value.problems
    assert problem.text.startswith("no source names 5 classes (family clip_logits, outputs logits['?', 5]); put labels")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_check_compares_whole_clips_with_the_reference(network, device):
    report = check(derive(network).card(), video(), Device(device))
    assert report.passed
    assert report.objects == 3
    assert report.frames == 10
    for order in ("cthw", "thwc"):
        card = convolution(network.parent / order, order, frames=None)
        assert check(card, video(), Device(device)).passed


def test_a_network_of_open_length_that_takes_few_frames_is_derived_by_its_config(network):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(network)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "frames"
    onnx.save(model, network)
    card = derive(network).card()
    with pytest.raises(ValueError, match="leaves the number of frames of a clip open: set window"):
        Action(model=card)
    processed = run_stage(Action(model=card, window=4, stride=1, every=0.0, min_score=0.0), video())
    assert processed[3].facts["attributes"]["action"]["label"] == card.labels[TRUTH["logits"][0].argmax()]


def test_check_hints_at_logits_that_are_taken_for_probabilities(network):
    card = derive(network, family="clip_probabilities").card()
    (hint,) = hints(card, video())
    assert hint.startswith("family clip_probabilities does not fit: its outputs do not sum to 1")


def test_clips_and_single_images_are_not_confused(network):
    image_card = dataclasses.replace(derive(network).card(), task="classify", family="logits")
    with pytest.raises(ModelError, match=r"takes clips, pixel_values .*, and family logits is for single images"):
        check_model(image_card)


def test_x3d_is_derived_without_a_card(x3d):
    card = derive(x3d).card()
    assert (card.task, card.family) == ("action", "clip_probabilities")
    spec = card.input
    assert (spec.size, spec.resize, spec.color) == ((32, 32), "crop", "rgb")
    assert (spec.scale, spec.mean, spec.std) == (pytest.approx(1 / 255), (0.45,) * 3, (0.225,) * 3)
    assert (inspect(x3d).clip.order, inspect(x3d).clip.frames) == ("cthw", 4)


def test_x3d_without_labels_asks_for_them_alone(x3d):
    x3d.with_name("labels.txt").unlink()
    with pytest.raises(Underivable, match="no source names 5 classes") as refusal:
        derive(x3d)
    assert len(refusal.value.problems) == 1


def test_frames_of_x3d_equal_those_of_the_authors_transforms(x3d):
    spec = check_model(derive(x3d).card()).input
    frames = video(X3D["frames"])
    tensor, _ = preprocess([frame.surface for frame in frames], [(frame.width, frame.height) for frame in frames], spec)
    levels = (tensor * 0.225 + 0.45) * 255
    assert np.abs(levels - X3D["levels"]).max() < 4  # the colors of a frame are rounded, half as many as pixels
    assert np.abs(levels - X3D["levels"]).mean() < 0.7


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_check_compares_clips_of_x3d_with_the_reference(x3d, device):
    report = check(derive(x3d).card(), video(X3D["frames"]), Device(device))
    assert (report.passed, report.frames) == (True, 10)


@pytest.mark.parametrize("batch", [1, 32])
def test_answers_of_x3d_equal_those_of_the_authors(x3d, batch):
    expected = X3D["probabilities"]
    assert len(set(expected.argmax(axis=1))) >= 3
    card = derive(x3d).card()
    stage = Action(model=card, stride=1, every=0.0, min_score=0.0)
    processed = run_stage(stage, video(X3D["frames"]), batch=batch)
    for frame, probabilities in zip(processed[3:], expected, strict=True):
        answer = frame.facts["attributes"]["action"]
        assert answer["score"] == pytest.approx(probabilities.max(), abs=0.02)
        best = probabilities[card.labels.index(answer["label"])]
        assert best == pytest.approx(probabilities.max(), abs=0.02)  # two classes of a clip are equally likely
