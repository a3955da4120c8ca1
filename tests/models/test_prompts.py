"""Prompts as an input of networks: the forms that exports have, and what is refused."""

import builtins
import dataclasses

import numpy as np
import pytest
from support import worded

from streamkit.core.data import Device
from streamkit.core.errors import MissingPackage, ModelError
from streamkit.models.card import find_card, load_card
from streamkit.models.network import check_model
from streamkit.models.prompts import check_prompts, prepare
from streamkit.models.session import Session
from streamkit.models.text_encoder import TextEncoder

TEXTS = ("red car", "person", "van")
IMAGES = np.random.default_rng(0).random((2, 3, 384, 640), np.float32)
TOKENS = {"tokenizer": f"{worded.shipped_models()}/{worded.TEXT['tokenizer']}"}


def outputs(card, texts=TEXTS, images=IMAGES):
    session = Session(card.file, Device())
    prompts = prepare(check_model(card), texts, Device())
    return session.run({"images": images, "net_images": images}, prompts.shared), prompts.texts


@pytest.fixture(scope="module")
def expected():
    outputs_of_texts, texts = outputs(load_card(find_card("demo-words")))
    assert texts == TEXTS
    assert np.ptp(outputs_of_texts["output0"][:, 4:], axis=1).max() > 0.001  # the texts make a difference
    return outputs_of_texts["output0"]


@pytest.mark.parametrize(
    ("make_model", "slots"),
    [
        (lambda: worded.with_dims(1, 8, 64), 8),
        (lambda: worded.with_dims("N", "P", 64), 3),
        (worded.of_rank_2, 3),
        (worded.of_tokens, 3),
    ],
    ids=["a fixed number", "for each image", "two dimensions", "tokens"],
)
def test_all_forms_of_text_input_give_the_same_objects(make_model, slots, expected, tmp_path):
    model = make_model()
    card = worded.card(tmp_path, model, text=TOKENS if make_model is worded.of_tokens else None)
    outputs_by_name, texts = outputs(card)
    assert texts == TEXTS + ("",) * (slots - 3)
    (output,) = outputs_by_name.values()
    assert output.shape == (2, 4 + slots, 20160)
    np.testing.assert_allclose(output[:, :7], expected, atol=2e-3)


def test_each_image_is_matched_with_all_texts(expected, tmp_path):
    model = worded.with_dims(1, "P", 64)
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    outputs_by_name, _ = outputs(worded.card(tmp_path, model))
    np.testing.assert_allclose(outputs_by_name["output0"], expected, atol=2e-3)


def test_text_embeddings_are_normalized_and_independent():
    encoder = TextEncoder(load_card(find_card("demo-words")))
    alone = encoder.embed(["red van"])
    both = encoder.embed(["person in blue", "red van"])
    np.testing.assert_array_equal(alone[0], both[1])
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1, atol=1e-6)
    assert alone.shape == (1, 64)
    assert encoder.size == 64


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (None, "demo-words finds what prompts name; add prompts, such as [forklift, person]"),
        ([], "add prompts"),
        (["car", " "], "prompts has an empty text, ' '; remove it"),
        (["red car", "van", "Red  car"], "prompts has 'red car' and 'Red  car', which are the same; remove one"),
    ],
)
def test_invalid_prompts_are_refused(prompts, message):
    with pytest.raises(ValueError, match="prompts") as caught:
        check_prompts(load_card(find_card("demo-words")), prompts)
    assert message in str(caught.value)


def test_prompts_for_a_closed_network_are_refused():
    message = (
        r"demo finds the classes that it was trained on \(car, person, bike\), and takes no prompts; leave prompts out"
    )
    with pytest.raises(ValueError, match=message):
        check_prompts(load_card(find_card("demo")), ["car"])


def test_more_prompts_than_the_export_takes_are_refused(tmp_path):
    card = worded.card(tmp_path, worded.with_dims(1, 2, 64))
    check_prompts(card, ["car", "van"])
    with pytest.raises(ValueError, match=r"prompts has 3 texts, and words.onnx takes at most 2; remove some"):
        check_prompts(card, TEXTS)


def test_a_prompt_that_is_too_long_is_refused(tmp_path):
    files = {name: f"{worded.shipped_models()}/{file}" for name, file in worded.TEXT.items()}
    card = worded.card(tmp_path, text={**files, "length": 3})
    check_prompts(card, ["person in red"])
    with pytest.raises(ValueError, match=r"'person in dark red' has 4 tokens, and the network takes 3; shorten it"):
        check_prompts(card, ["person in dark red"])


def test_the_template_is_applied_to_a_prompt(tmp_path):
    files = {name: f"{worded.shipped_models()}/{file}" for name, file in worded.TEXT.items()}
    plain = worded.card(tmp_path)
    around = worded.card(tmp_path, text={**files, "template": "person in {}"})
    np.testing.assert_array_equal(TextEncoder(around).embed(["red"]), TextEncoder(plain).embed(["person in red"]))


@pytest.mark.parametrize(
    ("make_model", "text", "message"),
    [
        (lambda: worded.closed(np.eye(2, 64, dtype=np.float32)), None, "has no input for texts; its classes are fixed"),
        (lambda: worded.with_dims(1, "P", 32), None, "embeddings of 32 values, and demo-words-text.onnx makes 64"),
        (worded.network, TOKENS, "has the input text_embeds[1, 'P', 64] of float32, which is not for tokens"),
        (worded.network, {**TOKENS, "encoder": "gone.onnx"}, "gone.onnx"),
        (
            worded.network,
            {"tokenizer": "gone.json", "encoder": f"{worded.shipped_models()}/demo-words-text.onnx"},
            "there is no tokenizer",
        ),
        (worded.network, {**TOKENS, "encoder": f"{worded.shipped_models()}/color.onnx"}, "which is not for tokens"),
    ],
)
def test_a_network_that_does_not_match_its_text_encoder_is_refused(make_model, text, message, tmp_path):
    card = worded.card(tmp_path, make_model(), text=text)
    with pytest.raises(ModelError) as caught:
        check_model(card)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ({"encoder": "a.onnx"}, {}, "the key 'text.tokenizer' is missing"),
        ({"tokenizer": "a.json", "encodr": "a.onnx"}, {}, "a card has no key 'text.encodr'; did you mean 'encoder'?"),
        ({"tokenizer": "a.json", "template": "a photo"}, {}, "text.template must be a text with one {} in it"),
        ({"tokenizer": "a.json", "length": 0}, {}, "text.length must be a whole number"),
        ("a.json", {}, "text must be a mapping such as {tokenizer: tokenizer.json}"),
        ({"tokenizer": "a.json"}, {"labels": "[car]"}, "the prompts are the labels of a network with text"),
        ({"tokenizer": "a.json"}, {"task": "pose", "family": "yolov8_pose"}, "for the tasks detect, segment, embed"),
        ({"tokenizer": "a.json"}, {"task": "embed", "family": "embedding"}, "the key 'text.encoder' is missing"),
    ],
)
def test_an_invalid_text_entry_of_a_card_is_refused(text, more, message, tmp_path):
    with pytest.raises(ModelError) as caught:
        worded.card(tmp_path, text=text, **more)
    assert message in str(caught.value)


def test_a_network_with_texts_needs_a_card_with_text(tmp_path):
    card = dataclasses.replace(load_card(find_card("demo-words")), text=None, labels=("car",))
    with pytest.raises(ModelError, match=r"no value for the input text_embeds; if it takes texts, write a card with"):
        check_model(card)


def test_a_missing_package_is_reported_with_the_command(monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    from streamkit.stages.inference.infer import Infer

    stage = Infer(model=load_card(find_card("demo-words")), prompts=["car"])
    with pytest.raises(
        MissingPackage, match=r"a text for a network needs the package tokenizers; install it with: .*text"
    ):
        stage.probe()


@pytest.mark.gpu
def test_gpu_and_cpu_agree_on_old_and_new_prompts(expected):
    import cupy

    with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True):
        _compare_with_gpu(cupy, expected)


def _compare_with_gpu(cupy, expected):
    card = check_model(load_card(find_card("demo-words")))
    device = Device("cuda")
    prompts = prepare(card, TEXTS, device)
    session = Session(card.file, device, shared=prompts.shared)
    session.warm((2,), card.input.size)
    images = cupy.asarray(IMAGES)
    on_device = session.run({"images": images}, prompts.shared)["output0"]
    fewer = session.run({"images": images}, prepare(card, TEXTS[1:], device).shared)["output0"]
    np.testing.assert_allclose(on_device.get(), expected, atol=5e-3)
    np.testing.assert_allclose(fewer.get(), np.delete(expected, 4, axis=1), atol=5e-3)
