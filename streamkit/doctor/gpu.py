"""Checks of NVIDIA GPUs for `run.py doctor`."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from streamkit.core.errors import StreamkitError, describe
from streamkit.core.text import gpu_command, install_command
from streamkit.doctor.finding import GIB, Finding, installed

_NEEDS_CUDA = (13, 0)
_PROBES = (("h264", 8), ("hevc", 8), ("hevc", 10), ("av1", 8), ("av1", 10), ("vp9", 8), ("vp8", 8), ("mpeg4", 8))


def driver() -> tuple[tuple[int, int] | None, str]:
    """The newest CUDA that the NVIDIA driver supports, as (major, minor), or None; and its version, or why none.

    Calls the driver's own library, so that it needs no package.
    """
    number = ctypes.c_int()
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        code = cuda.cuInit(0)
        if code:
            return None, f"the driver finds no GPU it can use (CUDA error {code})"
        cuda.cuDriverGetVersion(ctypes.byref(number))
    except OSError:
        return None, "there is no NVIDIA driver"
    version = "version unknown"
    with_version = Path("/proc/driver/nvidia/version")
    if with_version.is_file():
        match = re.search(r"\s(\d+\.[\d.]+)\s", with_version.read_text(encoding="utf-8", errors="replace"))
        version = match[1] if match else version
    return (number.value // 1000, number.value % 1000 // 10), version


def gpus() -> Iterator[Finding]:
    """Every GPU with its memory, decoders and encoders, and whether networks and kernels run on it."""
    from streamkit.runtime.execution.device import gpu_count, gpu_trouble

    cuda, told = driver()
    for name in ("cupy-cuda13x", "PyNvVideoCodec"):
        version = installed(name)
        if version is not None:
            yield Finding("ok", name, version)
    if cuda is None:
        yield Finding("ok", "GPU", f"none: {told}; device: auto runs on the CPU")
        return
    if cuda < _NEEDS_CUDA:
        text = f"the driver {told} goes up to CUDA {cuda[0]}.{cuda[1]}, streamkit's packages need 13.0"
        yield Finding("warn", "driver", text, "install NVIDIA's driver 580 or a newer one")
        return
    yield Finding("ok", "driver", f"{told}, up to CUDA {cuda[0]}.{cuda[1]}")
    trouble = gpu_trouble()
    if trouble is not None:
        # Without the packages `device: auto` runs on the CPU and all is well; with them something is in the way.
        level: Literal["warn", "fail"] = "fail" if installed("cupy-cuda13x") else "warn"
        yield Finding(level, "GPU", f"cannot be used: {trouble.partition(';')[0]}", gpu_command())
        return
    for index in range(gpu_count()):
        yield from gpu(index)


def gpu(index: int) -> Iterator[Finding]:
    """Check one GPU: memory, kernels, networks, decoders and encoders."""
    from streamkit.runtime.execution.device import describe_gpu

    found, name = describe_gpu(index), f"cuda:{index}"
    free, total = found["free"] / GIB, found["total"] / GIB
    versions = "{}.{}".format(*found["runtime"])
    text = f"{found['name']}, compute {found['compute']}, {free:.1f} of {total:.1f} GiB free, CUDA runtime {versions}"
    low = free < 2
    yield Finding("warn" if low else "ok", name, text, "end what else uses it (nvidia-smi shows it)" if low else "")
    yield from _work(index, name)
    yield from _decoders(index, name)
    yield from _encoders(index, name)


def _work(index: int, name: str) -> Iterator[Finding]:
    """Compile a kernel and run the demo network."""
    from streamkit.core.data import Device
    from streamkit.models.card import load_card, shipped_models
    from streamkit.models.session import Session
    from streamkit.ops.cuda.load import kernel
    from streamkit.runtime.execution.device import lane_device

    device = Device("cuda", index)
    lane = lane_device(device, on_device=True)
    with lane.enter():
        try:
            kernel("preprocess.cu", "preprocess", ("OUT=__half", "NHWC=0"))
            yield Finding("ok", name, "kernels compile")
        except Exception as error:  # NVRTC, its headers or the driver
            yield Finding("fail", name, f"kernels do not compile: {describe(error)}", install_command("gpu"))
        card = shipped_models() / "demo.yaml"
        if not card.is_file() or not (network := load_card(card)).file.is_file():
            return
        try:
            session = Session(network.file, device)
            session.warm((1,), network.input.size)
            lane.settle()
        except StreamkitError as error:
            yield Finding("fail", name, f"ONNX Runtime's CUDA provider: {describe(error)}")
            return
        except Exception as error:  # cuDNN, memory: pipelines meet it too
            text = f"ONNX Runtime's CUDA provider does not run the demo network: {describe(error)}"
            yield Finding("fail", name, text, gpu_command())
            return
        nodes = ", ".join(f"{count} nodes on {who}" for who, count in session.nodes.items())
        yield Finding("ok", name, f"ONNX Runtime's CUDA provider runs the demo network ({nodes})")


def _decoders(index: int, name: str) -> Iterator[Finding]:
    """Report what NVDEC decodes; everything else is decoded on the CPU and copied to the GPU."""
    from streamkit.media.nv_caps import capabilities, nv_module

    module = nv_module()
    if isinstance(module, str):
        text = f"no NVDEC, pictures are decoded on the CPU and copied over: {module.partition(';')[0]}"
        yield Finding("warn", name, text, install_command("gpu"))
        return
    known, lost = [], []
    for codec, bits in _PROBES:
        caps = capabilities(index, codec, bits)
        if caps.get("supported", 1) and caps.get("num_decoder_engines", 1) and caps.get("width_max"):
            engines = caps.get("num_decoder_engines")
            on = f" on {engines} engines" if engines else ""
            known.append(f"{codec} {bits} bit up to {caps['width_max']}x{caps['height_max']}{on}")
        else:
            lost.append(f"{codec} {bits} bit")
    if known:
        yield Finding("ok", name, f"NVDEC decodes {', '.join(known)}")
    if lost:
        yield Finding("ok", name, f"NVDEC has no {', '.join(lost)}: decoded on the CPU and copied over")


def _encoders(index: int, name: str) -> Iterator[Finding]:
    """Report what NVENC encodes; everything else is encoded on the CPU."""
    from streamkit.media.encoders import check_nvenc

    for codec in ("h264", "hevc"):
        try:
            check_nvenc(codec, index)
            yield Finding("ok", name, f"NVENC encodes {codec}")
        except StreamkitError as error:
            why = describe(error).partition(";")[0]
            yield Finding("ok", name, f"no NVENC for {codec}, encoder: auto takes the CPU ({why})")
