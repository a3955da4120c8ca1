"""What the user reads about the arithmetic of a network."""

import dataclasses

import pytest

from streamkit.core.data import Device
from streamkit.models.arithmetic import candidates, check_arithmetic
from streamkit.models.arithmetic_choice import ArithmeticChoice, choice_file, describe_arithmetic, write_choice
from streamkit.models.card import find_card, load_card
from streamkit.models.versions import gpu_versions

GPU = Device("cuda", 0)


@pytest.fixture
def card(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return load_card(root / "models" / "demo.yaml")


def test_the_first_run_makes_the_choice(card):
    assert describe_arithmetic(card, "auto", "auto", GPU) == (
        "demo.onnx begins in f32 with ONNX Runtime: the first run decides whether a faster arithmetic finds the same"
    )


def test_a_choice_is_reported_with_its_reason(card):
    allowed = candidates("auto", "auto", GPU)
    choice = ArithmeticChoice(allowed[0].engine, allowed[0].precision, "all are the same")
    write_choice(choice_file(card.file, card.input.size, gpu_versions(0), allowed), choice)
    assert describe_arithmetic(card, "auto", "auto", GPU) == f"demo.onnx runs in {allowed[0]}: all are the same"


def test_options_with_an_explicit_precision_need_no_choice(card):
    assert describe_arithmetic(card, "auto", "tf32", GPU) == "demo.onnx runs in tf32 with ONNX Runtime"


def test_a_missing_file_is_reported(card, tmp_path):
    missing = dataclasses.replace(card, file=tmp_path / "net.onnx")
    assert describe_arithmetic(missing, "auto", "auto", GPU) == f"{tmp_path / 'net.onnx'} is missing"


@pytest.mark.parametrize(("of_card", "of_stage", "precision"), [("f32", "auto", "f32"), ("tf32", "f32", "f32")])
def test_the_card_sets_the_precision_unless_the_stage_does(card, of_card, of_stage, precision):
    pinned = dataclasses.replace(card, precision=of_card)
    assert describe_arithmetic(pinned, "auto", of_stage, GPU) == f"demo.onnx runs in {precision} with ONNX Runtime"


@pytest.mark.parametrize(
    ("of_card", "of_stage", "named"),
    [("f32", "auto", "the card's precision is f32"), ("auto", "tf32", "and precision is tf32")],
)
def test_a_precision_that_the_fused_engine_lacks_is_refused_with_its_origin(of_card, of_stage, named):
    with pytest.raises(ValueError, match=f"f16, .*{named}; set precision: f16"):
        check_arithmetic("fused", of_card, of_stage)


def test_the_stage_overrides_a_card_that_the_fused_engine_cannot_use():
    check_arithmetic("fused", "f32", "f16")


def test_a_network_that_takes_clips_runs_in_f32_unless_a_precision_is_set():
    card = load_card(find_card("activity"))
    assert describe_arithmetic(card, "auto", "auto", GPU).startswith("activity.onnx runs in f32 with ONNX Runtime: ")
    assert describe_arithmetic(card, "auto", "tf32", GPU) == "activity.onnx runs in tf32 with ONNX Runtime"
