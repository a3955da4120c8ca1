"""How the arithmetic of a network is chosen, with runs of the demo network in f16 and f32 on the CPU."""

import dataclasses
import functools
import itertools
import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.engine.errors import EngineError
from streamkit.media.spread_frames import spread_frames
from streamkit.models.agreement import Images
from streamkit.models.arithmetic import F32, Arithmetic
from streamkit.models.arithmetic_choice import ArithmeticChoice, choice_file, read_choice, write_choice
from streamkit.models.card import load_card
from streamkit.models.half import f16_file
from streamkit.models.layer_check import LayerCheck, keep_outside, tensors_outside
from streamkit.models.network import check_model
from streamkit.models.session import Session
from streamkit.ops.preprocess import preprocess
from streamkit.stages.inference.arithmetic_trial import ArithmeticTrial, compare_on_files

FUSED = Arithmetic("fused", "f16")
TF32 = Arithmetic("onnxruntime", "tf32")


class SessionOnCpu(Session):
    """What a GPU computes, on the CPU."""

    outside = frozenset()


@pytest.fixture(scope="module")
def demo(root):
    return check_model(load_card(root / "models" / "demo.yaml"))


@pytest.fixture(scope="module")
def street(demo, root):
    """The demo network's input for 24 frames, its outputs in f32, and what decoding needs to know."""
    frames = spread_frames([], [root / "samples" / "street.mp4"], 24)
    sizes = [(frame.width, frame.height) for frame in frames]
    tensor, geometry = preprocess([frame.surface for frame in frames], sizes, demo.input)
    session = Session(demo.file, Device())
    feeds = {session.image_input: tensor}
    return feeds, session.run(feeds), Images(geometry, np.array(sizes, np.int64), demo.labels)


@pytest.fixture(scope="module")
def demo_f16(demo, tmp_path_factory):
    """The file of the demo network in f16."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return f16_file(demo.file)


@pytest.fixture(scope="module")
def street_outputs(demo, demo_f16, street):
    """The outputs for the frames of `street`, by file: each network runs on them once."""
    feeds, reference, _ = street
    return {demo.file: reference, demo_f16: Session(demo_f16, Device()).run(feeds)}


@pytest.fixture
def opened(demo, demo_f16, street, street_outputs, tmp_path, monkeypatch):
    """What opens sessions on the CPU, and the arithmetics that it was called with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls = []

    def open_session(arithmetic: Arithmetic) -> Session:
        calls.append(arithmetic)
        file = demo_f16 if arithmetic == FUSED else demo.file
        session = SessionOnCpu(file, Device())
        run = session.run
        session.run = lambda feeds: street_outputs[file] if feeds is street[0] else run(feeds)
        session.arithmetic = arithmetic
        session.outside = tensors_outside(demo.file) if arithmetic == FUSED else frozenset()
        return session

    open_session.calls = calls
    return open_session


def broken_in_f16(open_session):
    """Return what opens sessions whose outputs are wrong in f16."""

    def open_broken(arithmetic: Arithmetic) -> Session:
        session = open_session(arithmetic)
        if arithmetic == FUSED:
            run = session.run
            session.run = lambda feeds: {name: values * 1.5 for name, values in run(feeds).items()}
        return session

    return open_broken


def compare_until_decided(trial: ArithmeticTrial, street, limit: int = 5) -> None:
    feeds, reference, images = street
    for _ in range(limit):
        trial.compare(reference, lambda session: session.run(feeds), images, feeds)


def test_the_fastest_precision_with_equal_results_is_selected_and_stored(demo, street, opened, tmp_path, caplog):
    file = tmp_path / "choice.json"
    with caplog.at_level(logging.INFO):
        trial = ArithmeticTrial(demo, (FUSED, TF32, F32), opened, file)
        compare_until_decided(trial, street)
    assert trial.choice.arithmetic == FUSED
    assert trial.session.arithmetic == FUSED
    assert opened.calls == [FUSED]
    assert read_choice(file) == trial.choice
    assert "confident objects are the same" in trial.choice.reason
    assert "demo.onnx runs in f16 with the fused engine: " in caplog.text


def test_a_precision_with_different_results_is_skipped(demo, street, opened, tmp_path):
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), broken_in_f16(opened), tmp_path / "choice.json")
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == TF32
    assert "f16 with the fused engine is not used: " in trial.choice.reason


def with_layers(open_session, checks, large=()):
    """Return what opens sessions that report these tensors as too large, and these checks of layers, one an opening."""
    large = itertools.chain(large, itertools.repeat(()))
    checks = itertools.chain(checks, itertools.repeat(None))

    def open_reporting(arithmetic: Arithmetic) -> Session:
        session = open_session(arithmetic)
        if arithmetic == FUSED:
            names = next(large)
            check = next(checks)
            session.large_tensors = lambda feeds: names
            session.check_layers = lambda feeds: check
        return session

    return open_reporting


def test_layers_that_overflow_are_excluded_and_f16_is_retried(demo, street, opened, tmp_path):
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), with_layers(opened, [], [("a", "b")]), tmp_path / "c.json")
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == FUSED
    assert opened.calls == [FUSED, FUSED]
    assert tensors_outside(demo.file) == {"a", "b"}


def test_overflowing_layers_are_excluded_once(demo, street, opened, tmp_path):
    large = itertools.repeat(("a",))
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), with_layers(opened, [], large), tmp_path / "c.json")
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == FUSED
    assert opened.calls == [FUSED, FUSED]


def test_an_overflow_that_changes_objects_excludes_its_layer(demo, street, opened, tmp_path):
    check = LayerCheck("a", np.inf, ("a",))
    broken = with_layers(broken_in_f16(opened), [check, LayerCheck("b", 0.4, ())])
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), broken, tmp_path / "c.json")
    compare_until_decided(trial, street)
    assert opened.calls == [FUSED, FUSED, TF32]
    assert trial.choice.arithmetic == TF32
    assert "the first tensor that differs is b, by 40%" in trial.choice.reason


@pytest.mark.parametrize("checked", ["large_tensors", "check_layers"])
def test_a_failed_check_is_not_a_permanent_decision(checked, demo, street, opened, tmp_path):
    def open_failing(arithmetic: Arithmetic) -> Session:
        session = (broken_in_f16(opened) if checked == "check_layers" else opened)(arithmetic)
        if arithmetic == FUSED:
            setattr(session, checked, lambda feeds: np.empty(1 << 60))  # more than there is
        return session

    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), open_failing, tmp_path / "c.json")
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == TF32
    assert "cannot be checked" in trial.choice.reason
    assert trial.choice.expires_at_s is not None


def test_layers_excluded_by_another_process_are_excluded(demo, street, opened, tmp_path):
    file = tmp_path / "c.json"
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), opened, file)
    keep_outside(demo.file, ["a"])
    write_choice(file, ArithmeticChoice("fused", "f16", "the other process's"))
    compare_until_decided(trial, street)
    assert opened.calls == [FUSED, FUSED]
    assert trial.choice.arithmetic == FUSED


def test_a_precision_that_cannot_run_is_skipped(demo, street, opened, tmp_path):
    def refuse(arithmetic: Arithmetic) -> Session:
        if arithmetic == FUSED:
            raise EngineError("convolutions are 3% of its work")
        return opened(arithmetic)

    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), refuse, tmp_path / "choice.json")
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == TF32
    assert "f16 with the fused engine cannot be used: convolutions are 3% of its work" in trial.choice.reason


def test_a_choice_after_a_failure_is_repeated_after_an_hour(demo, street, opened, tmp_path):
    def fail(arithmetic: Arithmetic) -> Session:
        if arithmetic == FUSED:
            raise MemoryError("128 MB")
        return opened(arithmetic)

    file = tmp_path / "choice.json"
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), fail, file)
    compare_until_decided(trial, street)
    assert read_choice(file) == trial.choice
    assert 3500 < trial.choice.expires_at_s - time.time() <= 3600
    file.write_text(json.dumps({**dataclasses.asdict(trial.choice), "expires_at_s": time.time() - 1}))
    assert read_choice(file) is None


def test_f32_is_used_if_no_other_precision_agrees(demo, street, opened, tmp_path):
    trial = ArithmeticTrial(demo, (FUSED, F32), broken_in_f16(opened), tmp_path / "choice.json")
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == F32
    assert trial.session is None


def test_no_decision_is_made_without_enough_objects(demo, street, opened, tmp_path):
    feeds, reference, images = street
    few = {name: values[:2] for name, values in feeds.items()}
    trial = ArithmeticTrial(demo, (FUSED, F32), opened, tmp_path / "choice.json")
    first = Images(images.geometry[:2], images.sizes_wh[:2], images.labels)
    trial.compare(
        {name: values[:2] for name, values in reference.items()}, lambda session: session.run(few), first, few
    )
    assert trial.choice is None
    assert not (tmp_path / "choice.json").exists()
    assert not trial.is_due()  # half a second later again


def test_a_decision_of_another_process_is_used(demo, street, opened, tmp_path):
    file = tmp_path / "choice.json"
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), opened, file)
    write_choice(file, ArithmeticChoice("onnxruntime", "tf32", "another process"))
    compare_until_decided(trial, street, 1)
    assert trial.choice.arithmetic == TF32
    assert trial.session.arithmetic == TF32
    assert trial.choice.reason == "another process"


def test_the_first_decision_is_final(tmp_path):
    file = tmp_path / "choice.json"
    first = ArithmeticChoice("fused", "f16", "first")
    assert write_choice(file, first) == first
    assert write_choice(file, dataclasses.replace(first, precision="tf32", engine="onnxruntime")) == first


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", json.dumps({"engine": "fused"}), json.dumps({"engine": "x", "precision": "f16", "reason": ""})],
)
def test_a_damaged_decision_is_repeated_with_a_warning(text, tmp_path, caplog):
    file = tmp_path / "choice.json"
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert read_choice(file) is None
    assert str(file) in caplog.text


def test_a_decision_that_cannot_be_stored_applies_to_the_run(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    choice = ArithmeticChoice("fused", "f16", "measured")
    with caplog.at_level(logging.WARNING):
        assert write_choice(tmp_path / "file" / "choice.json", choice) == choice
    assert "chosen again at each start" in caplog.text


def test_concurrent_decisions_converge(tmp_path):
    def decide(file, number):
        return write_choice(file, ArithmeticChoice("fused", "f16", f"process {number}"))

    with ThreadPoolExecutor(8) as pool:
        for place in range(40):
            file = tmp_path / f"{place}.json"
            decisions = set(pool.map(functools.partial(decide, file), range(8)))
            assert decisions == {read_choice(file)}
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_decision_is_replaced(tmp_path):
    file = tmp_path / "choice.json"
    file.write_text("{")
    choice = ArithmeticChoice("fused", "f16", "measured")
    assert write_choice(file, choice) == read_choice(file) == choice


def test_options_that_allow_other_precisions_have_separate_decisions(demo):
    size = demo.input.size
    of_auto = choice_file(demo.file, size, "H200", (FUSED, TF32, F32))
    assert choice_file(demo.file, size, "H200", (TF32, F32)) != of_auto
    assert choice_file(demo.file, size, "H200", (FUSED, TF32, F32)) == of_auto


def test_a_decision_forbidden_by_the_options_is_ignored(demo, street, opened, tmp_path):
    file = tmp_path / "choice.json"
    trial = ArithmeticTrial(demo, (TF32, F32), opened, file)
    write_choice(file, ArithmeticChoice("fused", "f16", "other options"))
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == TF32
    assert FUSED not in opened.calls


def test_a_precision_that_fails_on_the_images_is_skipped(demo, street, opened, tmp_path):
    def failing(feeds):
        raise RuntimeError("out of memory")

    def open_failing(arithmetic: Arithmetic) -> Session:
        session = opened(arithmetic)
        if arithmetic == FUSED:
            session.run = failing
        return session

    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), open_failing, tmp_path / "choice.json")
    compare_until_decided(trial, street)
    assert trial.choice.arithmetic == TF32
    assert "f16 with the fused engine cannot be used: RuntimeError: out of memory" in trial.choice.reason


def test_another_processs_decision_that_cannot_be_opened_falls_back_to_f32(demo, street, opened, tmp_path):
    """Such as one whose session no longer fits into the memory of the GPU."""
    tried = []

    def open_once(arithmetic: Arithmetic) -> Session:
        tried.append(arithmetic)
        if arithmetic == TF32:
            raise RuntimeError("out of memory")
        return opened(arithmetic)

    file = tmp_path / "choice.json"
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), open_once, file)
    write_choice(file, ArithmeticChoice("onnxruntime", "tf32", "another process"))
    compare_until_decided(trial, street, 1)
    assert trial.choice.arithmetic == F32
    assert "tf32 with ONNX Runtime cannot be used: RuntimeError: out of memory" in trial.choice.reason
    assert read_choice(file).arithmetic == TF32


def test_files_decide_on_their_first_frames(demo, opened, root, tmp_path):
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), opened, tmp_path / "choice.json")
    reference = Session(demo.file, Device())
    compare_on_files(trial, reference, demo, demo.labels, [str(root / "samples" / "street.mp4")], 6)
    assert trial.choice.arithmetic == FUSED
    assert read_choice(tmp_path / "choice.json") == trial.choice


def test_images_decide_on_many_of_them(demo, opened, root, tmp_path):
    video = cv2.VideoCapture(str(root / "samples" / "street.mp4"))
    files = [tmp_path / f"{number:02}.png" for number in range(30)]
    for file in files:
        assert cv2.imwrite(str(file), video.read()[1])
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), opened, tmp_path / "choice.json")
    compare_on_files(trial, Session(demo.file, Device()), demo, demo.labels, list(map(str, files)), 6)
    assert trial.choice.arithmetic == FUSED


def test_files_with_few_objects_decide_nothing(demo, opened, tmp_path):
    image = tmp_path / "gray.png"
    cv2.imwrite(str(image), np.full((360, 640, 3), 128, np.uint8))
    trial = ArithmeticTrial(demo, (FUSED, TF32, F32), opened, tmp_path / "choice.json")
    compare_on_files(trial, Session(demo.file, Device()), demo, demo.labels, [str(image), str(tmp_path / "no.mp4")], 4)
    assert trial.choice is None
    assert "0 confident objects in 1 images" in str(trial)
