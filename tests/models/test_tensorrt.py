"""The options of the TensorRT provider, and what is said where it is missing. No test can run it."""

import numpy as np
import pytest
from support.networks import classifier
from support.plus_one import F16, F32, I64, network

from streamkit.core.data import Device
from streamkit.core.errors import DeviceError, OutputError
from streamkit.models import int8
from streamkit.models.network import inspect
from streamkit.models.providers import open_session, provider_options
from streamkit.models.session import Session
from streamkit.models.tensorrt import cache_folder, tensorrt_options


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "streamkit" / "tensorrt"


SHAPES = {"x": ((1, 3, 8, 8), (4, 3, 8, 8), (4, 3, 8, 8)), "more": ((1, 2), (4, 2), (4, 2))}


def test_a_single_engine_covers_all_batch_sizes(tmp_path, cache):
    info = inspect(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8]), "more": (I64, ["n", 2])}))
    options = tensorrt_options(info, shapes=SHAPES)
    assert options["trt_profile_min_shapes"] == "x:1x3x8x8,more:1x2"
    assert options["trt_profile_opt_shapes"] == options["trt_profile_max_shapes"] == "x:4x3x8x8,more:4x2"
    assert not any(name.startswith("trt_profile") for name in tensorrt_options(info))


def test_engines_and_timings_are_stored_in_the_users_cache(tmp_path, cache):
    info = inspect(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}))
    options = tensorrt_options(info, False, SHAPES)
    assert options["trt_engine_cache_enable"] == options["trt_timing_cache_enable"] == "True"
    assert options["trt_timing_cache_path"] == str(cache) == str(cache_folder())
    engines = options["trt_engine_cache_path"]
    assert engines.startswith(str(cache / "net-"))
    assert (cache / engines).is_dir()
    assert tensorrt_options(info, False, SHAPES) == options
    assert tensorrt_options(info, False)["trt_engine_cache_path"] != engines  # other shapes
    other = inspect(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 16])}))
    assert tensorrt_options(other, False, SHAPES)["trt_engine_cache_path"] != engines  # another network of that name


def test_an_unwritable_cache_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    info = inspect(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}))
    with pytest.raises(OutputError, match=r"cannot write .*file/streamkit/tensorrt/net-.*a part of the path is a file"):
        tensorrt_options(info, False)


def test_an_f32_network_runs_in_f16_on_request(tmp_path, cache):
    info = inspect(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}))
    assert tensorrt_options(info, True)["trt_fp16_enable"] == "True"


def test_the_network_decides_the_precision(tmp_path):
    card = classifier(tmp_path)
    images = np.random.default_rng(0).random((8, 1, 3, 32, 32), np.float32)
    int8.write_int8(card.file, tmp_path / "int8.onnx", [{"images": image} for image in images], symmetric=True)
    half = network(tmp_path / "half.onnx", {"x": (F16, ["n", 3, 8, 8])})
    precisions = {}
    for file in (card.file, tmp_path / "int8.onnx", half):
        options = tensorrt_options(inspect(file), False)
        precisions[file.stem] = options["trt_fp16_enable"], options["trt_int8_enable"]
    assert precisions == {"small": ("False", "False"), "int8": ("False", "True"), "half": ("True", "False")}


def test_a_session_reports_the_shapes_of_its_profile(tmp_path):
    """On the CPU, as far as it goes without the provider."""
    session = Session(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8]), "more": (I64, ["n", 2])}), Device())
    assert session._profile((4, 2, 1), (8, 8)) == SHAPES
    assert session._profile((), (8, 8)) is None
    fixed = Session(network(tmp_path / "fixed.onnx", {"x": (F32, [2, 3, 8, 8])}), Device())
    assert fixed._profile((4,), (8, 8)) is None


def test_a_build_without_the_provider_names_the_package(tmp_path):
    import onnxruntime as ort

    if "TensorrtExecutionProvider" in ort.get_available_providers():
        pytest.skip("this is the GPU build")
    path = network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])})
    names = ("tensorrt", "cuda", "cpu")
    options = provider_options(names, Device("cuda"), 1, tensorrt={"trt_int8_enable": "True"})
    assert options[0] == {"device_id": "0", "user_compute_stream": "1", "trt_int8_enable": "True"}
    with pytest.raises(DeviceError) as caught:
        open_session(path, names, options, 1)
    text = str(caught.value)
    assert "has no TensorrtExecutionProvider" in text
    assert "TensorRT's libraries are not among them" in text
    assert "use engine: auto" in text


def test_on_the_cpu_onnx_runtime_runs_the_network(run_pipeline):
    text = "sources: {a: 'test://?frames=2'}\nstages:\n  detect: {model: demo, engine: tensorrt}\n  collect: {}\n"
    assert len(run_pipeline(text).records["a"]) == 2


@pytest.mark.gpu
def test_an_int8_card_on_a_gpu_warns_once(run_pipeline, root, tmp_path):
    from streamkit.media.spread_frames import spread_frames
    from streamkit.models.card import load_card
    from streamkit.models.precision import PrecisionRequest, quantize_card

    frames = spread_frames([], [root / "samples" / "street.mp4"], 16)
    card = load_card(root / "models" / "demo.yaml")
    out = tmp_path / "d8.yaml"
    quantize_card(PrecisionRequest(card, out, frames[::2], frames[1::2], Device()), reduce_range=False)
    text = f"sources: {{a: samples/street.mp4}}\nstages:\n  detect: {{model: {out}}}\n  collect: {{}}\n"
    logged = run_pipeline(text, device="cuda", limit=8).logged
    assert sum("is int8, which is for CPUs" in line for line in logged) == 1
