# SPDX-License-Identifier: Apache-2.0
"""Checks what this machine supports, and names a fix for each problem.

Each finding is `ok`, `none` (an optional part is not there), `warn` (pipelines run, but not as well as possible) or
`fail` (a required part is broken). A problem comes with the command that fixes it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from streamkit.core.errors import MissingPackage, StreamkitError, describe
from streamkit.core.text import (
    DISTRIBUTION,
    ONNXRUNTIMES,
    UNINSTALL,
    eval_command,
    gpu_command,
    install_command,
    restore_command,
)
from streamkit.models.onnxruntime_package import BOTH_INSTALLED

GIB = 2**30
_IMPORTS = {
    "markdown-it-py": "markdown_it",
    "opencv-python-headless": "cv2",
    "pyyaml": "yaml",
    "typing-extensions": "typing_extensions",
}
_BASE = (
    "av",
    "click",
    "markdown-it-py",
    "numpy",
    "opencv-python-headless",
    "orjson",
    "pydantic",
    "pyyaml",
    "rich",
    "typing-extensions",
)
_NEEDS_CUDA = 13  # the major version
_PROBES = (("h264", 8), ("hevc", 8), ("hevc", 10), ("av1", 8), ("av1", 10), ("vp9", 8), ("vp8", 8), ("mpeg4", 8))


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: level, topic, what was found, and the fix."""

    level: Literal["ok", "none", "warn", "fail"]
    topic: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"; fix: {self.fix}" if self.fix else ""
        return f"{self.level:<4}  {self.topic}: {' '.join(self.text.split())}{fix}"


def _low(low: bool, topic: str, text: str, fix: str) -> Finding:
    """A warning with its fix if a resource is low."""
    return Finding("warn" if low else "ok", topic, text, fix if low else "")


def _lists(what: str, available: Sequence[str], missing: Sequence[str], fix: str) -> Iterator[Finding]:
    """What FFmpeg supports, and a warning for what is missing."""
    if available:
        yield Finding("ok", "FFmpeg", f"{what} {', '.join(available)}")
    if missing:
        yield Finding("warn", "FFmpeg", f"it {what} no {', '.join(missing)}", fix)


def installed(name: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def examine(echo: Callable[[str], None], *more: Callable[[], Iterator[Finding]]) -> int:
    """Check the machine and report, one line a finding.

    Args:
        echo: receives each line.
        more: further checks.

    Returns:
        The exit code: 0 if pipelines can run, at least on the CPU; 1 if something that they need is broken.
    """
    levels = Counter[str]()
    for check in (python, packages, accuracy, onnxruntimes, ffmpeg, host, demo, gpus, *more):
        for finding in _guarded(check):
            echo(str(finding))
            levels[finding.level] += 1
    has_problems = levels["fail"] or levels["warn"]
    echo(f"{levels['fail']} broken, {levels['warn']} warnings" if has_problems else "no problems")
    return 1 if levels["fail"] else 0


def _guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # must not hide the other findings
        name = getattr(check, "__name__", "check")
        yield Finding("warn", name, f"could not be checked: {describe(error)}")


# ----------------------------------------------------------------------------------------------------------- Python


def python() -> Iterator[Finding]:
    """Check the interpreter's version."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "python", f"{version} ({sys.executable})")
    folder = Path(__file__).resolve().parents[1]
    if sys.dont_write_bytecode and not Path(importlib.util.cache_from_source(__file__)).exists():
        text = "each process compiles its modules, which takes 0.4 s: PYTHONDONTWRITEBYTECODE is set"
        yield Finding("warn", "python", text, f"python -m compileall -q {shlex.quote(str(folder))}")


def packages() -> Iterator[Finding]:
    """Check that the required packages are installed, in a supported version, and importable."""
    wanted = requirements()
    for name in _BASE:
        version = installed(name)
        spec = wanted.get(name, "")
        if version is None:
            yield Finding("fail", name, "is not installed", install_command())
            continue
        try:
            importlib.import_module(_IMPORTS.get(name, name))
        except Exception as error:  # a package with missing libraries may raise anything
            again = f"python -m pip install --force-reinstall '{name}{spec}'"
            yield Finding("fail", name, f"{version} cannot be imported: {describe(error)}", again)
            continue
        if outside(version, spec):
            yield Finding("warn", name, f"{version} is not {spec}", f"python -m pip install '{name}{spec}'")
        else:
            yield Finding("ok", name, version)


def accuracy() -> Iterator[Finding]:
    """Check what `streamkit eval` needs, if it is there, and that no package overwrites OpenCV's files."""
    if installed("opencv-python") is not None:
        again = "python -m pip uninstall -y opencv-python opencv-python-headless && " + install_command()
        yield Finding("warn", "opencv-python", "overwrites files of opencv-python-headless", again)
    version = installed("trackeval")
    if version is None:
        yield Finding("none", "trackeval", f"is not installed; streamkit eval needs it: {eval_command()}")
        return
    missing = [name for name in ("pycocotools", "scipy", "tabulate") if installed(name) is None]
    text = f"{version}; streamkit eval also needs {', '.join(missing)}" if missing else version
    yield Finding("warn" if missing else "ok", "trackeval", text, install_command("eval") if missing else "")


def requirements() -> dict[str, str]:
    """The versions that streamkit requires, by package; empty if streamkit itself is not installed."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    matches = (re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)", line) for line in lines)
    return {match[1].lower(): match[2].strip() for match in matches if match}


def outside(version: str, spec: str) -> bool:
    """Whether a version does not satisfy a specification such as `>=1.2,<3`."""
    numbers = _numbers(version)
    low = [_numbers(bound) for bound in re.findall(r">=([\w.]+)", spec)]
    high = [_numbers(bound) for bound in re.findall(r"<([\w.]+)", spec)]
    return any(numbers < bound for bound in low) or any(numbers >= bound for bound in high)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(digits) for digits in re.findall(r"\d+", version)[:3]]
    return (*numbers, *[0] * (3 - len(numbers)))


def onnxruntimes() -> Iterator[Finding]:
    """Check that exactly one ONNX Runtime is installed: the two packages overwrite each other's files."""
    there = {name: version for name in ONNXRUNTIMES if (version := installed(name)) is not None}
    extra = "gpu" if driver()[0] else "cpu"
    if not there:
        yield Finding("fail", "onnxruntime", "is not installed", install_command(extra))
        return
    if len(there) == 2:
        yield Finding("fail", "onnxruntime", BOTH_INSTALLED, f"{UNINSTALL} && {install_command(extra)}")
        return
    [(name, version)] = there.items()
    try:
        module = importlib.import_module("onnxruntime")
        providers = module.get_available_providers()
    except Exception as error:  # a missing library, or files of the other package
        again = f"{UNINSTALL} && {install_command('gpu' if name.endswith('gpu') else 'cpu')}"
        yield Finding("fail", name, f"{version} cannot be imported: {describe(error)}", again)
        return
    yield Finding("ok", name, f"{version}, built with {', '.join(providers)}")


# ------------------------------------------------------------------------------------------------------------- host


def ffmpeg() -> Iterator[Finding]:
    """Report the codecs and protocols of PyAV's FFmpeg."""
    import av

    yield Finding("ok", "FFmpeg", f"{getattr(av, 'ffmpeg_version_info', 'of an unknown version')}, by PyAV")
    wheel = "python -m pip install --force-reinstall --only-binary av av"
    for what, names, mode in (
        ("decodes", ("h264", "hevc", "av1", "vp9"), "r"),
        ("encodes", ("libx264", "libx265"), "w"),
    ):
        available = [name for name in names if _has_codec(name, mode)]
        yield from _lists(what, available, [name for name in names if name not in available], wheel)
    available = [name for name in ("rtsp", "hls") if name in av.formats_available]
    available += [name for name in ("https", "rtsps") if _has_protocol(name)]
    yield from _lists("reads", available, [n for n in ("rtsp", "hls", "https", "rtsps") if n not in available], wheel)


def _has_codec(name: str, mode: Any) -> bool:
    import av

    try:
        return bool(av.Codec(name, mode))
    except ValueError:  # the base of UnknownCodecError
        return False


def _has_protocol(name: str) -> bool:
    """Connect to a closed port of this machine: only a supported protocol gets that far."""
    import av

    try:
        av.open(f"{name}://127.0.0.1:1/", timeout=1).close()
    except av.error.ProtocolNotFoundError:
        return False
    except Exception:  # connection refused, or no network: the protocol is supported
        return True
    return True


def host() -> Iterator[Finding]:
    """Report cores, free memory and free disk space."""
    from streamkit.runtime.execution.cores import cores

    yield Finding("ok", "cores", str(cores()))
    free = free_memory()
    if free is not None:
        yield _low(free < GIB, "memory", f"{free / GIB:.1f} GiB free", "end other programs, or set batch: 1")
    disk = shutil.disk_usage(Path.cwd()).free
    fix = "write outputs to another disk, or free some space"
    yield _low(disk < GIB, "disk", f"{disk / GIB:.1f} GiB free in {Path.cwd()}", fix)


def free_memory() -> int | None:
    """Free memory in bytes, within a container's limit; None if unknown."""
    limits = []
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        limits += [int(size) * 1024 for size in re.findall(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)]
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        limits += [int(limit) - int(used)] if limit.isdigit() else []
    except OSError:
        pass
    return min(limits, default=None)


def demo() -> Iterator[Finding]:
    """Check that the demo network and video are present and run on the CPU."""
    from streamkit.models.card import load_card, sample_video, shipped_models

    models = shipped_models()
    video = sample_video()
    restore = restore_command()
    card = models / "demo.yaml"
    if not card.is_file() or not (network := load_card(card)).file.is_file():
        yield Finding("warn", "demo", f"the demo network is not in {models}", restore)
    else:
        from streamkit.core.data import Device
        from streamkit.models.session import Session

        try:
            session = Session(network.file, Device())
            session.warm((1,), network.input.size)
            start_s = time.perf_counter()
            session.warm((1,), network.input.size)
            took_ms = (time.perf_counter() - start_s) * 1e3
            yield Finding("ok", "demo", f"the network runs on the CPU, {took_ms:.0f} ms per frame with one thread")
        except MissingPackage:
            pass  # `onnxruntimes` reports it
        except Exception as error:  # of any type: pipelines on the CPU would fail likewise
            text = f"the network does not run on the CPU: {describe(error)}"
            yield Finding("fail", "demo", text, install_command("cpu"))
    if not video.is_file():
        yield Finding("warn", "demo", f"the demo video is not at {video}", restore)
        return
    import av

    try:
        with av.open(str(video)) as container:
            frame = next(container.decode(video=0))
        yield Finding("ok", "demo", f"the video decodes on the CPU, {frame.width}x{frame.height}")
    except Exception as error:  # FFmpeg's errors have no common base class
        yield Finding("fail", "demo", f"{video} does not decode: {describe(error)}", restore)


# -------------------------------------------------------------------------------------------------------------- GPUs


def driver() -> tuple[tuple[int, int] | None, str]:
    """The newest CUDA that the NVIDIA driver supports, as (major, minor), or None; and its version, or why none.

    Calls the driver's own library, so that it needs no package.
    """
    number = ctypes.c_int()
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        code = cuda.cuInit(0)
        if code:
            return None, f"the driver finds no usable GPU (CUDA error {code})"
        cuda.cuDriverGetVersion(ctypes.byref(number))
    except OSError:
        return None, "there is no NVIDIA driver"
    version = "version unknown"
    with_version = Path("/proc/driver/nvidia/version")
    if with_version.is_file():
        match = re.search(r"\s(\d+\.[\d.]+)\s", with_version.read_text(encoding="utf-8", errors="replace"))
        version = match[1] if match else version
    return cuda_version(number.value), version


def cuda_version(number: int) -> tuple[int, int]:
    """The version of CUDA, (major, minor), from the number that the driver returns, such as 13020."""
    return number // 1000, number % 1000 // 10


def gpus() -> Iterator[Finding]:
    """Every GPU with its memory, decoders and encoders, and whether networks and kernels run on it."""
    from streamkit.runtime.execution.device import gpu_count, gpu_trouble

    cuda, version_or_cause = driver()
    for name in ("cupy-cuda13x", "PyNvVideoCodec"):
        version = installed(name)
        if version is not None:
            yield Finding("ok", name, version)
    if cuda is None:
        yield Finding("none", "GPU", f"{version_or_cause}; device: auto runs on the CPU")
        return
    if cuda[0] < _NEEDS_CUDA:
        text = f"the driver {version_or_cause} supports CUDA up to {cuda[0]}.{cuda[1]}, streamkit's packages need 13.0"
        yield Finding("warn", "driver", text, "install NVIDIA driver 580 or newer")
        return
    yield Finding("ok", "driver", f"{version_or_cause}, up to CUDA {cuda[0]}.{cuda[1]}")
    trouble = gpu_trouble()
    if trouble is not None:
        # without the packages, `device: auto` runs on the CPU; with them, something is broken
        level: Literal["warn", "fail"] = "fail" if installed("cupy-cuda13x") else "warn"
        yield Finding(level, "GPU", f"cannot be used: {trouble.partition(';')[0]}", gpu_command())
        return
    yield shared_gpu()
    for index in range(gpu_count()):
        yield from gpu(index)


def shared_gpu() -> Finding:
    """How many processes share a GPU at most, and whether they use it at the same time."""
    from streamkit.runtime.execution.cores import cores
    from streamkit.runtime.multiprocess.mps import CONTROL, find_control
    from streamkit.runtime.multiprocess.prestart import CORES_PER_PROCESS

    max_processes = max(1, cores() // CORES_PER_PROCESS)
    text = f"device: cuda runs up to {max_processes} process{'es' * (max_processes > 1)} on a GPU ({cores()} CPU cores)"
    if max_processes == 1:
        return Finding("ok", "MPS", f"{text}, which needs none")
    if find_control() is None:
        return Finding("none", "MPS", f"{text}, which take turns: {CONTROL} is not installed")
    return Finding("ok", "MPS", f"{text}, at the same time, by {CONTROL}")


def gpu(index: int) -> Iterator[Finding]:
    """Check one GPU: memory, kernels, networks, decoders and encoders."""
    from streamkit.runtime.execution.device import describe_gpu

    facts = describe_gpu(index)
    name = f"cuda:{index}"
    free = facts["free"] / GIB
    total = facts["total"] / GIB
    versions = "{}.{}".format(*facts["runtime"])
    text = f"{facts['name']}, compute {facts['compute']}, {free:.1f} of {total:.1f} GiB free, CUDA runtime {versions}"
    yield _low(free < 2, name, text, "end other programs that use it (nvidia-smi lists them)")
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
    with lane.activate():
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
            lane.synchronize()
        except StreamkitError as error:
            yield Finding("fail", name, f"ONNX Runtime's CUDA provider: {describe(error)}")
            return
        except Exception as error:  # cuDNN, memory: pipelines would fail likewise
            text = f"ONNX Runtime's CUDA provider does not run the demo network: {describe(error)}"
            yield Finding("fail", name, text, gpu_command())
            return
        nodes = ", ".join(f"{count} nodes on {who}" for who, count in session.nodes.items())
        yield Finding("ok", name, f"ONNX Runtime's CUDA provider runs the demo network ({nodes})")


def _decoders(index: int, name: str) -> Iterator[Finding]:
    """Report what NVDEC decodes; everything else is decoded on the CPU and copied to the GPU."""
    from streamkit.media.nv_caps import capabilities

    decoded = []
    lost = []
    for codec, bits in _PROBES:
        try:
            caps = capabilities(index, codec, bits)
        except RuntimeError as error:
            reason, _, fix = str(error).partition("; ")
            text = f"no NVDEC, frames are decoded on the CPU and copied to the GPU: {reason}"
            yield Finding("warn", name, text, fix or install_command("gpu"))
            return
        if caps.get("supported", 1) and caps.get("num_decoder_engines", 1) and caps.get("width_max"):
            engines = caps.get("num_decoder_engines")
            on = f" on {engines} engines" if engines else ""
            decoded.append(f"{codec} {bits} bit up to {caps['width_max']}x{caps['height_max']}{on}")
        else:
            lost.append(f"{codec} {bits} bit")
    if decoded:
        yield Finding("ok", name, f"NVDEC decodes {', '.join(decoded)}")
    if lost:
        yield Finding("ok", name, f"NVDEC has no {', '.join(lost)}: decoded on the CPU and copied to the GPU")


def _encoders(index: int, name: str) -> Iterator[Finding]:
    """Report what NVENC encodes; everything else is encoded on the CPU."""
    from streamkit.media.encoders import check_nvenc

    for codec in ("h264", "hevc"):
        try:
            check_nvenc(codec, index)
            yield Finding("ok", name, f"NVENC encodes {codec}")
        except StreamkitError as error:
            reason = describe(error).partition(";")[0]
            yield Finding("ok", name, f"no NVENC for {codec}, encoder: auto uses the CPU ({reason})")
