import dataclasses
from pathlib import Path

import numpy as np
import pytest

from streamkit.data import Device
from streamkit.errors import DeviceError, ModelError
from streamkit.models.card import Card, find_card, load_card
from streamkit.models.network import check_model, inspect
from streamkit.models.session import Session

CPU = Device()
F32, F16, U8, I64 = 1, 10, 2, 7  # onnx.TensorProto


def network(path: Path, inputs: dict, outputs: dict | None = None) -> Path:
    """Write a network that gives each input x back as `out` + 1; inputs are name: (element type, shape)."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes, initializers, results = [], [], []
    for name, (kind, shape) in inputs.items():
        initializers.append(helper.make_tensor(f"one_{name}", kind, [], [1]))
        nodes.append(helper.make_node("Add", [name, f"one_{name}"], [f"out_{name}"]))
        results.append(helper.make_tensor_value_info(f"out_{name}", kind, (outputs or {}).get(f"out_{name}", shape)))
    graph = helper.make_graph(
        nodes,
        "plus one",
        [helper.make_tensor_value_info(n, k, s) for n, (k, s) in inputs.items()],
        results,
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def card_for(file: Path, folder: Path, **changes) -> Card:
    path = folder / "net.yaml"
    path.write_text("task: detect\nfamily: yolox\nfile: x.onnx\ninput: {size: [416, 416]}\nlabels: coco\n")
    return dataclasses.replace(load_card(path).with_file(file), **changes)


# ------------------------------------------------------------------------------------------ what a file says of itself


@pytest.mark.parametrize(
    ("file", "image", "layout", "dtype", "batch", "size"),
    [
        ("yolox_nano_dyn.onnx", "images", "nchw", "f32", None, (416, 416)),
        ("deimv2_hgnetv2_atto_coco.onnx", "images", "nchw", "f32", None, (320, 320)),
        ("yunet_n_dynamic.onnx", "input", "nchw", "f32", None, None),
        ("movenet_lightning_192.onnx", "serving_default_input:0", "nhwc", "u8", 1, (192, 192)),
        ("person-reidentification-retail-0288.onnx", "inputs:0", "nhwc", "f32", 1, (128, 256)),
    ],
)
def test_inspect(file, image, layout, dtype, batch, size, test_data):
    info = inspect(test_data / "models" / file)
    assert (info.image_input, info.layout, info.dtype) == (image, layout, dtype)
    assert (info.batch, info.size) == (batch, size)


def test_inspect_sees_a_changed_file(tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (F32, [1, 3, 8, 8])})
    assert inspect(path).size == (8, 8)
    network(path, {"x": (F32, ["n", 3, 160, 8])})
    assert inspect(path).size == (8, 160)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"hello", "is not an ONNX model that can be read: "),
        (b"", "is not an ONNX model that can be read: "),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "is Git LFS's pointer to a model"),
    ],
)
def test_not_onnx(content, expected, tmp_path, capfd):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=expected) as caught:
        inspect(path)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_cut_file(tmp_path, test_data):
    whole = (test_data / "models" / "yolox_nano_dyn.onnx").read_bytes()
    path = tmp_path / "net.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="is not an ONNX model"):
        inspect(path)


def test_missing_file(tmp_path):
    with pytest.raises(ModelError, match="there is no file"):
        inspect(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        inspect(tmp_path)


@pytest.mark.parametrize(
    "inputs",
    [
        {"x": (F32, ["n", 3, 8])},
        {"x": (F32, ["n", 1, 8, 8])},
        {"x": (F32, ["n", 1, None, None])},
        {"x": (F32, ["n", 3, 8, 8]), "y": (F32, ["n", 3, 8, 8])},
    ],
)
def test_an_input_of_the_wrong_rank(inputs, tmp_path):
    path = network(tmp_path / "net.onnx", inputs)
    with pytest.raises(ModelError, match="must have one input of rank 4") as caught:
        inspect(path)
    assert "x [" in str(caught.value)


def test_pictures_of_a_dtype_nobody_makes(tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (I64, ["n", 3, 8, 8])})
    with pytest.raises(ModelError, match="takes pictures as int64"):
        inspect(path)


# ----------------------------------------------------------------------------------------------------- file and card


def test_check_model_fills_layout_and_dtype(test_data, tmp_path):
    card = card_for(test_data / "models" / "yolox_nano_dyn.onnx", tmp_path)
    card = dataclasses.replace(card, input=dataclasses.replace(card.input, layout="nhwc", dtype="u8"))
    assert (check_model(card).input.layout, check_model(card).input.dtype) == ("nchw", "f32")


def test_everything_that_does_not_fit(test_data, tmp_path):
    card = card_for(test_data / "models" / "yolox_nano_dyn.onnx", tmp_path, labels=("a", "b"))
    card = dataclasses.replace(card, input=dataclasses.replace(card.input, size=(640, 416)))
    with pytest.raises(ModelError) as caught:
        check_model(card)
    texts = [problem.text for problem in caught.value.problems]
    assert len(texts) == 2
    assert "input.size says 640 x 416 (width, height), but yolox_nano_dyn.onnx takes 416 x 416" in texts
    assert any("80 classes" in text and "the label list has 2" in text for text in texts)
    assert all(problem.file == str(card.path) for problem in caught.value.problems)


def test_an_input_that_the_family_does_not_know(test_data, tmp_path):
    card = load_card(find_card("deimv2-atto")).with_file(test_data / "models" / "deimv2_hgnetv2_atto_coco.onnx")
    assert check_model(card).input.dtype == "f32"
    with pytest.raises(ModelError, match="family ssd has no value for the input orig_target_sizes"):
        check_model(dataclasses.replace(card, family="ssd"))


def test_a_file_that_is_not_there(tmp_path):
    card = card_for(tmp_path / "net.onnx", tmp_path)
    with pytest.raises(ModelError, match=r"its file .*net.onnx is not there; put the ONNX file there"):
        check_model(card)
    with pytest.raises(ModelError, match=r"is not there; fetch it with: run.py models pull net"):
        check_model(dataclasses.replace(card, url="https://example.org/x", sha256="0" * 64))
    with pytest.raises(ModelError, match=r"is not there; Ask\."):
        check_model(dataclasses.replace(card, note="Ask."))


def test_a_sum_that_differs(test_data, tmp_path):
    file = test_data / "models" / "yolox_nano_dyn.onnx"
    card = card_for(file, tmp_path, url="https://example.org/x", sha256="0" * 64)
    with pytest.raises(ModelError, match=r"its SHA-256 is 2a97133c.*, not 0{64}\..*run.py models pull net"):
        check_model(card)


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


MODELS = {
    "yolox-nano": "yolox_nano_dyn.onnx",
    "deimv2-atto": "deimv2_hgnetv2_atto_coco.onnx",
    "yunet": "yunet_n_dynamic.onnx",
}


def card_of(name: str, test_data: Path) -> Card:
    return check_model(load_card(find_card(name)).with_file(test_data / "models" / MODELS[name]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_is_its_pictures_bit_for_bit(name, threads, test_data):
    card = card_of(name, test_data)
    session, feeds = Session(card.file, CPU, threads=threads), noise(card, 3)
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
    found = session.run({"x": x, "more": more})
    assert np.array_equal(found["out_x"], x + 1)
    assert np.array_equal(found["out_more"], more + 1)


@pytest.mark.parametrize(
    ("kind", "dtype", "shape"),
    [(F16, np.float16, ["n", 3, 8, 8]), (U8, np.uint8, ["n", 8, 8, 3]), (F32, np.float32, ["n", 3, None, None])],
)
def test_dtypes_and_layouts(kind, dtype, shape, tmp_path):
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
def test_wrong_feeds(feeds, expected, tmp_path):
    session = Session(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}), CPU)
    with pytest.raises(ValueError, match=expected):
        session.run(feeds)


@pytest.mark.parametrize(
    ("kind", "options", "error", "expected"),
    [
        ("cpu", {"providers": ("cuda",)}, DeviceError, "the provider cuda needs device: cuda, not cpu"),
        ("cpu", {"providers": ("cpu", "gpu")}, ModelError, "there is no provider 'gpu'; known: tensorrt, cuda, cpu"),
        ("cpu", {"cuda_graph": True}, DeviceError, "cuda_graph needs device: cuda"),
    ],
)
def test_providers_that_do_not_fit(kind, options, error, expected, tmp_path):
    path = network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])})
    with pytest.raises(error, match=expected):
        Session(path, Device(kind), **options)


def test_the_cpu_build_says_that_it_has_no_cuda(tmp_path):
    import onnxruntime as ort

    from streamkit.models.providers import open_session, provider_options

    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this is the GPU build")
    path = network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])})
    options = provider_options(("cuda", "cpu"), Device("cuda"), 1, False, False)
    with pytest.raises(
        DeviceError, match=r"has no CUDAExecutionProvider \(it has .*CPU.*pip install 'streamkit\[gpu\]'"
    ):
        open_session(path, ("cuda", "cpu"), options, 1)


# ----------------------------------------------------------------------------------------------------- on the GPU


@pytest.fixture
def stream():
    import cupy

    with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
        yield stream


def alike(found, expected) -> None:
    """Scores and boxes of a GPU and a CPU, or of two batch sizes, within f32 rounding of long sums."""
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].get(), value, rtol=2e-3, atol=2e-3 * max(1.0, np.abs(value).max()))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "cuda_graph"), [("yolox-nano", False), ("yolox-nano", True), ("yunet", False)])
def test_gpu_gives_the_cpus_answer(name, cuda_graph, stream, test_data):
    import cupy

    card = card_of(name, test_data)
    feeds = noise(card, 4)
    expected = Session(card.file, CPU).run(feeds)
    session = Session(card.file, Device("cuda"), cuda_graph=cuda_graph)
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


@pytest.mark.gpu
@pytest.mark.parametrize("quick", [True, False])
def test_gpu_sessions_that_go_leave_nothing_behind(quick, stream, test_data):
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
def test_gpu_outputs_of_open_shape(stream, test_data):
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
def test_gpu_runs_come_after_what_the_stream_was_given_before(stream, test_data):
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
def test_gpu_fixed_batch(stream, tmp_path, test_data):
    import cupy

    file = test_data / "models" / "movenet_lightning_192.onnx"
    x = np.random.default_rng(1).integers(0, 256, (3, 192, 192, 3)).astype(np.uint8)
    session = Session(file, Device("cuda"))
    assert session.fixed_batch == 1
    name = session.image_input
    expected = Session(file, CPU).run({name: x})
    found = session.run({name: cupy.asarray(x)})
    (output,) = expected
    assert found[output].shape == expected[output].shape == (3, 1, 17, 3)


@pytest.mark.gpu
def test_gpu_refuses_what_would_be_silent(stream, test_data, tmp_path):
    import cupy

    card = card_of("yolox-nano", test_data)
    session = Session(card.file, Device("cuda"))
    x = noise(card, 2)["images"]
    with pytest.raises(ValueError, match="the pictures must be on cuda:0; they are on the host"):
        session.run({"images": x})
    with pytest.raises(ValueError, match="must be C-contiguous"):
        session.run({"images": cupy.asarray(x)[:, :, ::-1]})
    with cupy.cuda.Stream(non_blocking=True), pytest.raises(ValueError, match="belongs to another CUDA stream"):
        session.run({"images": cupy.asarray(x)})
    with cupy.cuda.Stream.null, pytest.raises(ValueError, match="a CUDA stream of its own"):
        Session(card.file, Device("cuda"))
    with pytest.raises(DeviceError, match="use device: cpu"):
        Session(card.file, Device("cuda"), providers=("cpu",))


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "dtype"), [(F16, np.float16), (F32, np.float32)])
@pytest.mark.parametrize("batch", ["n", None, 2])
def test_gpu_dtypes_and_batches(kind, dtype, batch, stream, tmp_path):
    import cupy

    session = Session(network(tmp_path / "net.onnx", {"x": (kind, [batch, 3, 8, 8])}), Device("cuda"))
    x = np.random.default_rng(0).random((5, 3, 8, 8)).astype(dtype)
    assert np.array_equal(session.run({"x": cupy.asarray(x)})["out_x"].get(), x + dtype(1))


@pytest.mark.gpu
def test_tensorrt_is_there_or_refused(stream, test_data):
    card = card_of("yolox-nano", test_data)
    try:
        session, text = Session(card.file, Device("cuda"), providers=("tensorrt", "cuda", "cpu")), ""
    except DeviceError as error:
        session, text = None, str(error)
    if session is None:
        assert "tensorrt" in text.lower()
        assert "streamkit[gpu]" in text
    else:
        assert "TensorrtExecutionProvider" in session.nodes
