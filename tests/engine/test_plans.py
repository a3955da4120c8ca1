"""Plans of convolutions: their files, and, on a GPU, that they are built once and found again."""

import contextlib
import dataclasses
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.small_networks import NetworkBuilder

from streamkit.core.errors import OutputError
from streamkit.engine.build_plans import read_signature
from streamkit.engine.convolutions import Signature
from streamkit.engine.plans import SerializedPlan, load, plan_file, save

ABOUT = Signature(
    source=(2, 12, 10, 8, 960, 80, 8),
    target=(2, 12, 10, 16, 1920, 160, 16),
    weight=(16, 3, 3, 8),
    strides=(1, 1),
    pads=(1, 1, 1, 1),
    dilations=(1, 1),
    then=(("silu", 0.0, 0.0), ("Added", 2, 12, 10, 16, 1920, 160, 16)),
)


def test_plans_are_read_as_they_were_written(tmp_path):
    plans = [SerializedPlan(b"first\n\x00", 12.5), SerializedPlan(b"second", None)]
    save(tmp_path, ABOUT, plans)
    assert load(tmp_path, ABOUT) == plans


@pytest.mark.parametrize(
    ("name", "value"),
    [("pads", (0, 0, 0, 0)), ("strides", (2, 2)), ("dilations", (2, 2)), ("then", ()), ("weight", (16, 3, 3, 16))],
)
def test_another_convolution_has_another_file(tmp_path, name, value):
    assert plan_file(tmp_path, dataclasses.replace(ABOUT, **{name: value})) != plan_file(tmp_path, ABOUT)


@pytest.mark.parametrize("damage", ["cut", "changed", "no plan", "other text"])
def test_a_damaged_file_is_an_error(tmp_path, damage):
    save(tmp_path, ABOUT, [SerializedPlan(b"a plan of some length", 3.0)])
    file = plan_file(tmp_path, ABOUT)
    data = file.read_bytes()
    file.write_bytes(
        {"cut": data[:-5], "changed": data[:-1] + b"?", "no plan": b"[]\n", "other text": b"<html>"}[damage]
    )
    with pytest.raises((ValueError, KeyError, TypeError)):
        load(tmp_path, ABOUT)


@pytest.mark.parametrize("then", [ABOUT.then, (("clip", 0.0, float("inf")),), (("leaky_relu", 0.1, 0.0),)])
def test_a_signature_passes_to_another_process(then, tmp_path):
    about = dataclasses.replace(ABOUT, then=then)
    read = read_signature(json.loads(json.dumps(dataclasses.asdict(about))))
    assert read == about
    assert plan_file(tmp_path, read) == plan_file(tmp_path, about)


def test_stages_with_the_same_network_keep_a_plan_at_the_same_time(tmp_path):
    plans = [SerializedPlan(bytes(1_000_000), 3.0)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            list(pool.map(lambda _: save(tmp_path, ABOUT, plans), range(8)))
    assert load(tmp_path, ABOUT) == plans


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        save(tmp_path / "file", ABOUT, [SerializedPlan(b"plan", 3.0)])


# ------------------------------------------------------------------------------------------------ on a GPU


@pytest.fixture
def stream():
    import cupy

    with cupy.cuda.Stream(non_blocking=True) as current:
        yield current


@pytest.mark.gpu
def test_plans_are_built_once_and_then_read(tmp_path, stream):
    from streamkit.engine.plans import PlanStore

    first = PlanStore(tmp_path)
    first.prepare(ABOUT)
    assert (first.built, first.loaded) == (1, 0)
    second = PlanStore(tmp_path)
    second.prepare_all([ABOUT, ABOUT])
    assert (second.built, second.loaded) == (0, 1)
    assert len(load(tmp_path, ABOUT)) == 1
    assert load(tmp_path, ABOUT)[0].microseconds > 0


@pytest.mark.gpu
def test_a_damaged_plan_is_built_again_with_a_warning(tmp_path, stream, caplog):
    from streamkit.engine.plans import PlanStore

    PlanStore(tmp_path).prepare(ABOUT)
    file = plan_file(tmp_path, ABOUT)
    file.write_bytes(file.read_bytes()[:-40])
    store = PlanStore(tmp_path)
    with caplog.at_level(logging.WARNING):
        store.prepare(ABOUT)
    assert store.built == 1
    assert "is not a plan that can be used" in caplog.text
    assert load(tmp_path, ABOUT)


@pytest.mark.gpu
def test_plans_work_without_a_folder_that_can_be_written(tmp_path, stream, caplog):
    from streamkit.engine.plans import PlanStore

    (tmp_path / "file").write_text("")
    store = PlanStore(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        store.prepare(ABOUT)
    assert store.built == 1
    assert "built at each start" in caplog.text


@pytest.mark.gpu
def test_many_plans_are_built_by_other_processes(tmp_path, stream):
    from streamkit.engine.plans import PlanStore

    several = [
        dataclasses.replace(ABOUT, weight=(16, 3, 3, 8), source=(2, 12, 10, 8, 960 + 8 * n, 80, 8)) for n in range(16)
    ]
    store = PlanStore(tmp_path)
    store.prepare_all(several)
    assert store.loaded == len(several)
    assert len(list(tmp_path.glob("*.plan"))) == len(several)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.gpu
def test_a_convolution_that_cudnn_lacks_is_an_error(tmp_path, stream):
    from streamkit.engine.plans import PlanError, PlanStore

    impossible = dataclasses.replace(ABOUT, weight=(16, 3, 3, 8), source=(2, 12, 10, 7, 840, 70, 7))
    store = PlanStore(tmp_path)
    for _ in range(2):
        with pytest.raises(PlanError):
            store.prepare(impossible)
    assert np.sum([store.built, store.loaded]) == 0


@pytest.mark.gpu
def test_plans_are_loaded_while_another_thread_waits_for_the_whole_device(tmp_path, stream, caplog):
    import cupy

    from streamkit.engine.plans import PlanStore

    several = [dataclasses.replace(ABOUT, source=(2, 12, 10, 8, 960 + 8 * n, 80, 8)) for n in range(16)]
    PlanStore(tmp_path).prepare_all(several)
    stop = threading.Event()

    def wait_for_all() -> None:
        while not stop.wait(0.001):
            with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
                cupy.cuda.runtime.deviceSynchronize()

    thread = threading.Thread(target=wait_for_all)
    thread.start()
    try:
        for _ in range(4):
            store = PlanStore(tmp_path)
            store.prepare_all(several)
            assert (store.built, store.loaded) == (0, 16)
    finally:
        stop.set()
        thread.join()
    assert "is not a plan" not in caplog.text


@pytest.mark.gpu
def test_work_that_another_thread_queues_while_plans_are_loaded_is_done(tmp_path, stream):
    import cupy
    import onnx

    from streamkit.core.data import Device
    from streamkit.engine.plans import PlanStore
    from streamkit.models.session import Session

    builder = NetworkBuilder((1, 3, 64, 64))
    values = builder.images
    for _ in range(300):  # which ONNX Runtime queues without Python's lock
        values = builder.node("Add", values, builder.constant(1.0))
    file = tmp_path / "additions.onnx"
    onnx.save(builder.model(values), file)
    session = Session(file, Device("cuda"))
    session.warm((1,), (64, 64))
    images = cupy.zeros((1, 3, 64, 64), np.float32)
    PlanStore(tmp_path).prepare(ABOUT)
    stop = threading.Event()
    sums = []

    def run() -> None:
        with cupy.cuda.Device(0), stream:
            while not stop.is_set():
                (total,) = session.run({session.image_input: images}).values()
                sums.append(total.min())
                stream.synchronize()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            for _ in range(40):
                PlanStore(tmp_path).prepare(ABOUT)
        finally:
            stop.set()
        running.result()
    assert len(sums) > 10
    assert {float(total) for total in sums} == {300.0}
