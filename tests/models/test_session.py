"""Sessions: one answer for any batch, step, type and device, and what is refused."""

import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from support.plus_one import F16, F32, I64, U8, network
from support.small_networks import NetworkBuilder

from streamkit.core.data import Device
from streamkit.core.errors import DeviceError, ModelError
from streamkit.models.arithmetic import Arithmetic
from streamkit.models.card import Card, find_card, load_card
from streamkit.models.layer_check import keep_outside
from streamkit.models.network import check_model, inspect
from streamkit.models.session import Session
from streamkit.runtime.execution.future import start

CPU = Device()


# ----------------------------------------------------------------------------------------------------- on the CPU


def noise(card: Card, n: int) -> dict[str, np.ndarray]:
    """Pictures of noise, smoothed so that detectors answer, and the extra inputs."""
    spec = card.input
    pictures = (
        np.random.default_rng(7).integers(0, 256, (n, 3, spec.size[1] // 8, spec.size[0] // 8)).astype(np.float32)
    )
    return {
        inspect(card.file).image_input: pictures.repeat(8, 2).repeat(8, 3) * np.float32(spec.scale),
        "orig_target_sizes": np.full((n, 2), 500, np.int64),
    }


@pytest.fixture
def no_collection():
    """Objects are freed only where their last reference goes."""
    gc.disable()
    yield
    gc.enable()


MODELS = {
    "yolox-nano": "yolox_nano_dyn.onnx",
    "deimv2-atto": "deimv2_hgnetv2_atto_coco.onnx",
    "yunet": "yunet_n_dynamic.onnx",
}


def card_of(name: str, test_data: Path) -> Card:
    return check_model(load_card(find_card(name)).with_file(test_data / "models" / MODELS[name]))


def test_a_session_is_freed_with_its_last_reference(tmp_path, no_collection):
    """Garbage collection may free it on any thread, and as the process ends, without waiting for the GPU."""
    session = Session(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}), CPU)
    session.run({"x": np.zeros((1, 3, 8, 8), np.float32)})
    freed = weakref.ref(session)
    del session
    assert freed() is None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_equals_its_images_bit_for_bit(name, threads, test_data):
    card = card_of(name, test_data)
    session = Session(card.file, CPU, threads=threads)
    feeds = noise(card, 3)
    together = session.run(feeds)
    assert list(together) == list(session.outputs)
    for i in range(3):
        alone = session.run({key: value[i : i + 1] for key, value in feeds.items()})
        for key in together:
            assert np.array_equal(alone[key][0], together[key][i]), key


@pytest.mark.parametrize(("fixed", "rows"), [(1, 1), (1, 3), (2, 2), (2, 5), (4, 3)])
def test_a_fixed_batch_is_run_in_steps(fixed, rows, tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (F32, [fixed, 3, 8, 8]), "more": (I64, [fixed, 2])})
    session = Session(path, CPU)
    assert session.fixed_batch == fixed
    x = np.random.default_rng(0).random((rows, 3, 8, 8), np.float32)
    more = np.arange(rows * 2).reshape(rows, 2)
    outputs = session.run({"x": x, "more": more})
    assert np.array_equal(outputs["out_x"], x + 1)
    assert np.array_equal(outputs["out_more"], more + 1)


@pytest.mark.parametrize("rows", [1, 3])
def test_ignored_outputs_are_not_computed(rows, tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (F32, [1, 3, 8, 8]), "more": (I64, [1, 2])})
    session = Session(path, CPU, ignore_outputs=("out_x",))
    assert list(session.outputs) == ["out_more"]
    more = np.arange(2 * rows).reshape(rows, 2)
    outputs = session.run({"x": np.zeros((rows, 3, 8, 8), np.float32), "more": more})
    assert list(outputs) == ["out_more"]
    assert np.array_equal(outputs["out_more"], more + 1)
    assert list(session.warm((1,), (8, 8))) == ["out_more"]


@pytest.mark.parametrize("moved", [False, True])
def test_a_replaced_network_is_reloaded(moved, tmp_path):
    """A copy may have the old file's time and size; a file that is moved there has another inode."""
    path = network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])})
    before = Session(path, CPU)
    times_ns = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    other = tmp_path / "other.onnx"
    other.write_bytes(path.read_bytes().replace(b"Add", b"Sub"))
    if moved:
        os.utime(other, ns=times_ns)
        other.replace(path)
    else:
        path.write_bytes(other.read_bytes())
        os.utime(path, ns=(times_ns[0], times_ns[1] + 1_000_000_000))
    x = np.full((1, 3, 8, 8), 5, np.float32)
    assert Session(path, CPU).run({"x": x})["out_x"].max() == 4
    assert before.run({"x": x})["out_x"].max() == 6


@pytest.mark.parametrize(
    ("kind", "dtype", "shape"),
    [(F16, np.float16, ["n", 3, 8, 8]), (U8, np.uint8, ["n", 8, 8, 3]), (F32, np.float32, ["n", 3, None, None])],
)
def test_sessions_accept_all_dtypes_and_layouts(kind, dtype, shape, tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (kind, shape)})
    session = Session(path, CPU)
    x = np.arange(2 * 3 * 64).reshape(2, *(8 if n is None else n for n in shape[1:])).astype(dtype)
    assert np.array_equal(session.run({"x": x, "a stranger": 1})["out_x"], x + dtype(1))
    session.warm((1, 2), (8, 8))


@pytest.mark.parametrize(
    ("feeds", "expected"),
    [
        ({}, "the network's input 'x' is missing"),
        ({"x": np.zeros((1, 3, 8, 8))}, r"'x' is float32\['n', 3, 8, 8\], got float64\[1, 3, 8, 8\]"),
        ({"x": np.zeros((3, 8, 8), np.float32)}, r"got float32\[3, 8, 8\]"),
    ],
)
def test_invalid_feeds_are_refused(feeds, expected, tmp_path):
    session = Session(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}), CPU)
    with pytest.raises(ValueError, match=expected):
        session.run(feeds)


def test_the_cpu_build_reports_missing_cuda(tmp_path):
    import onnxruntime as ort

    from streamkit.models.providers import open_session, provider_options

    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this is the GPU build")
    path = network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])})
    options = provider_options(("cuda", "cpu"), Device("cuda"), 1)
    with pytest.raises(DeviceError, match=r"has no CUDAExecutionProvider \(it has .*CPU.*pip install -e '.*\[gpu\]'"):
        open_session(path, ("cuda", "cpu"), options, 1)


# ----------------------------------------------------------------------------------------------------- on the GPU


@pytest.fixture
def stream():
    import cupy

    with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
        yield stream


def alike(outputs, expected) -> None:
    """Scores and boxes of a GPU and a CPU, or of two batch sizes, within f32 rounding of long sums."""
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name].get(), value, rtol=2e-3, atol=2e-3 * max(1.0, np.abs(value).max()))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["yolox-nano", "yunet"])
def test_gpu_and_cpu_agree(name, stream, test_data):
    import cupy

    card = card_of(name, test_data)
    feeds = noise(card, 4)
    expected = Session(card.file, CPU).run(feeds)
    session = Session(card.file, Device("cuda"))
    assert session.nodes["CUDAExecutionProvider"] > 9 * session.nodes.get("CPUExecutionProvider", 0)
    session.warm((2, 4), card.input.size)
    there = {name: cupy.asarray(value) for name, value in feeds.items()}
    first = session.run(there)
    again = session.run({name: value[::-1].copy() for name, value in there.items()})
    alike(first, expected)
    alike(again, {name: value[::-1] for name, value in expected.items()})
    alike(
        session.run({name: value[:3].copy() for name, value in there.items()}), {k: v[:3] for k, v in expected.items()}
    )
    assert (session.is_warm(4), session.is_warm(3)) == (True, False)  # 3 rows run as 4, which cuDNN has plans for


def use_the_gpu(over: threading.Event, errors: list[str]) -> None:
    """Allocate, free and query events until `over` is set, as decoders do."""
    import cupy

    try:
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as gpu_stream:
            while not over.is_set():
                cupy.cuda.runtime.free(cupy.cuda.runtime.malloc(1 << 20))
                event = cupy.cuda.Event(disable_timing=True)
                event.record(gpu_stream)
                event.synchronize()
    except Exception as error:
        errors.append(str(error))


FUSED = Arithmetic("fused", "f16")
FASTER = [FUSED, Arithmetic("onnxruntime", "tf32"), Arithmetic("onnxruntime", "f16")]


def near(outputs, expected, error=1e-2) -> None:
    """Outputs of a network in f16 on images, by the norm."""
    for name, value in expected.items():
        assert np.linalg.norm(outputs[name].get() - value) < error * np.linalg.norm(value), name


def pictures(card, test_data, count):
    """Return real images as a network's input."""
    import cv2

    files = sorted((test_data / "coco" / "val2017").glob("*.jpg"))[:count]
    images = [cv2.resize(cv2.imread(str(file)), card.input.size).transpose(2, 0, 1) for file in files]
    return {"images": np.ascontiguousarray(images, np.float32)}


@pytest.mark.gpu
@pytest.mark.parametrize("arithmetic", FASTER, ids=str)
def test_lower_precisions_stay_near_the_cpu(arithmetic, stream, test_data):
    import cupy

    card = card_of("yolox-nano", test_data)
    feeds = pictures(card, test_data, 4)
    expected = Session(card.file, CPU).run(feeds)
    session = Session(card.file, Device("cuda"), arithmetic=arithmetic)
    session.warm((2, 4), card.input.size)
    there = {name: cupy.asarray(value) for name, value in feeds.items()}
    error = 2e-2 if arithmetic == Arithmetic("onnxruntime", "f16") else 1e-2  # its sums are in f16, too
    near(session.run(there), expected, error)
    fewer = session.run({name: value[:3].copy() for name, value in there.items()})
    near(fewer, {name: value[:3] for name, value in expected.items()}, error)
    assert (session.fused_share > 0.99) == (arithmetic.engine == "fused")


@pytest.mark.gpu
def test_a_layer_that_overflows_f16_is_named_and_runs_outside_of_the_engine(stream, tmp_path, monkeypatch):
    import cupy
    import onnx

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    builder = NetworkBuilder((2, 3, 64, 64))
    first = builder.node("Relu", builder.convolution(builder.images, 3, 16))
    enlarged = builder.node("Mul", first, builder.constant(1e6))
    pooled = builder.node("MaxPool", enlarged, kernel_shape=[3, 3], pads=[1] * 4)
    restored = builder.node("Mul", pooled, builder.constant(1e-6))
    file = tmp_path / "large.onnx"
    onnx.save(builder.model(builder.convolution(builder.convolution(restored, 16, 32), 32, 8)), file)
    images = np.random.default_rng(3).random((2, 3, 64, 64), np.float32)
    expected = Session(file, CPU).run({"images": images})
    feeds = {"images": cupy.asarray(images)}

    session = Session(file, Device("cuda"), arithmetic=Arithmetic("fused", "f16"))
    session.warm((2,), (64, 64))
    before = session.check_layers(feeds)
    assert before is not None
    assert before.large
    assert session.large_tensors(feeds)
    keep_outside(file, before.large)
    session = Session(file, Device("cuda"), arithmetic=Arithmetic("fused", "f16"))
    session.warm((2,), (64, 64))
    near(session.run(feeds), expected)
    after = session.check_layers(feeds)
    assert (after.first, after.large, session.large_tensors(feeds)) == ("", (), ())
    assert 0 < session.fused_share <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("arithmetic", [Arithmetic("onnxruntime", "f32"), *FASTER], ids=str)
def test_gpu_memory_is_freed_with_the_last_reference(arithmetic, stream, test_data, no_collection):
    card = card_of("yolox-nano", test_data)
    session = Session(card.file, Device("cuda"), arithmetic=arithmetic)
    session.warm((1,), card.input.size)
    freed = weakref.ref(session)
    del session
    assert freed() is None


@pytest.mark.gpu
def test_cuda_graphs_are_captured_while_threads_of_the_run_use_the_gpu(stream, test_data):
    import cupy

    card = card_of("yolox-nano", test_data)
    over = threading.Event()
    errors = []
    feeds = pictures(card, test_data, 4)
    expected = Session(card.file, CPU).run(feeds)
    threads = [start("decodes", lambda: use_the_gpu(over, errors)) for _ in range(4)]
    try:
        for _ in range(2):
            session = Session(card.file, Device("cuda"), arithmetic=FUSED)
            session.warm((2, 4), card.input.size)
            near(session.run({name: cupy.asarray(values) for name, values in feeds.items()}), expected)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not errors


def test_warming_an_unsupported_size_is_an_error(test_data, capfd):
    session = Session(test_data / "models" / "yunet_n_dynamic.onnx", Device())
    with pytest.raises(ModelError, match=r"cannot be run on images of 650 x 480: .*; if its input has open sizes, set"):
        session.warm([1], (650, 480))
    assert capfd.readouterr() == ("", "")


@pytest.mark.gpu
@pytest.mark.parametrize("quick", [True, False])
def test_closed_gpu_sessions_leave_no_memory(quick, stream, test_data):
    import cupy

    file = test_data / "models" / "deimv2_hgnetv2_atto_coco.onnx"  # some of its nodes run on the CPU
    for turn in range(6):
        session = Session(file, Device("cuda", 0), quick=quick)
        session.warm([2], (320, 320))
        for _ in range(turn * 5):
            session.run({"images": cupy.zeros((2, 3, 320, 320), "f4"), "orig_target_sizes": np.ones((2, 2), np.int64)})
        del session  # with runs under way: what ONNX Runtime keeps for them must go before it does
    stream.synchronize()


@pytest.mark.gpu
def test_gpu_outputs_of_open_shape_are_returned(stream, test_data):
    import cupy

    card = card_of("deimv2-atto", test_data)
    session = Session(card.file, Device("cuda"))
    session.warm((4,), card.input.size)
    feeds = noise(card, 4)
    runs = [session.run({name: cupy.asarray(value) for name, value in feeds.items()}) for _ in range(3)]
    for run in runs:
        assert run["boxes"].shape == (4, 300, 4)
        for name, value in run.items():
            assert cupy.array_equal(value, runs[0][name]), name
    best = Session(card.file, CPU).run(feeds)["scores"].max(1)
    np.testing.assert_allclose(runs[0]["scores"].max(1).get(), best, atol=5e-3)


@pytest.mark.gpu
def test_gpu_runs_are_ordered_after_earlier_work_of_the_stream(stream, test_data):
    import cupy

    card = card_of("yolox-nano", test_data)
    session = Session(card.file, Device("cuda"))
    session.warm((8,), card.input.size)
    x = cupy.asarray(noise(card, 8)["images"])
    slow = cupy.ones((4000, 4000), cupy.float32)
    for _ in range(20):
        slow = slow @ slow * cupy.float32(1e-4)
    late = x + slow[0, 0] * 0  # ready only after the products above
    output = session.run({"images": late})["output"]
    assert bool(cupy.isfinite(output).all())
    np.testing.assert_array_equal(output.get(), session.run({"images": x})["output"].get())


@pytest.mark.gpu
def test_gpu_runs_a_fixed_batch_in_steps(stream, tmp_path, test_data):
    import cupy

    file = test_data / "models" / "movenet_lightning_192.onnx"
    x = np.random.default_rng(1).integers(0, 256, (3, 192, 192, 3)).astype(np.uint8)
    session = Session(file, Device("cuda"))
    assert session.fixed_batch == 1
    name = session.image_input
    expected = Session(file, CPU).run({name: x})
    outputs = session.run({name: cupy.asarray(x)})
    (output,) = expected
    assert outputs[output].shape == expected[output].shape == (3, 1, 17, 3)


@pytest.mark.gpu
def test_gpu_refuses_images_on_the_host_or_with_strides(stream, test_data, tmp_path):
    import cupy

    card = card_of("yolox-nano", test_data)
    session = Session(card.file, Device("cuda"))
    x = noise(card, 2)["images"]
    with pytest.raises(ValueError, match="the images must be on cuda:0; they are on the host"):
        session.run({"images": x})
    with pytest.raises(ValueError, match="must be C-contiguous"):
        session.run({"images": cupy.asarray(x)[:, :, ::-1]})
    with cupy.cuda.Stream(non_blocking=True), pytest.raises(ValueError, match="belongs to another CUDA stream"):
        session.run({"images": cupy.asarray(x)})
    with cupy.cuda.Stream.null, pytest.raises(ValueError, match="a separate CUDA stream is current"):
        Session(card.file, Device("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "dtype"), [(F16, np.float16), (F32, np.float32)])
@pytest.mark.parametrize("batch", ["n", None, 2])
def test_gpu_accepts_all_dtypes_and_batches(kind, dtype, batch, stream, tmp_path):
    import cupy

    session = Session(network(tmp_path / "net.onnx", {"x": (kind, [batch, 3, 8, 8])}), Device("cuda"))
    x = np.random.default_rng(0).random((5, 3, 8, 8)).astype(dtype)
    assert np.array_equal(session.run({"x": cupy.asarray(x)})["out_x"].get(), x + dtype(1))


@pytest.mark.gpu
def test_tensorrt_runs_or_is_refused(stream, test_data):
    card = card_of("yolox-nano", test_data)
    try:
        session = Session(card.file, Device("cuda"), arithmetic=Arithmetic("tensorrt", "f32"))
        text = ""
    except DeviceError as error:
        session = None
        text = str(error)
    if session is None:
        assert "tensorrt" in text.lower()
        assert "[gpu]" in text
    else:
        assert "TensorrtExecutionProvider" in session.nodes
