"""Checks what this machine supports, and names a fix for each problem.

Each finding is `ok`, `warn` (pipelines run, but not as well as possible) or `fail` (something that pipelines need is
broken). A problem comes with the command that fixes it.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from streamkit.core.errors import describe
from streamkit.core.text import DISTRIBUTION, ONNXRUNTIMES, UNINSTALL, install_command
from streamkit.doctor.finding import GIB, Finding, installed
from streamkit.doctor.gpu import driver, gpus

_IMPORTS = {"opencv-python-headless": "cv2", "pyyaml": "yaml", "typing-extensions": "typing_extensions"}
_BASE = ("av", "click", "numpy", "opencv-python-headless", "orjson", "pydantic", "pyyaml", "rich", "typing-extensions")


def examine(echo: Callable[[str], None]) -> int:
    """Check the machine and report, one line a finding.

    Args:
        echo: receives each line.

    Returns:
        The exit code: 0 if pipelines can run, at least on the CPU; 1 if something that they need is broken.
    """
    failed = warned = 0
    for check in (python, packages, onnxruntimes, ffmpeg, host, demo, gpus):
        for finding in _guarded(check):
            echo(str(finding))
            failed += finding.level == "fail"
            warned += finding.level == "warn"
    echo(f"{failed} broken, {warned} to know of" if failed or warned else "all well")
    return 1 if failed else 0


def _guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # an odd machine must not keep the other findings from being told
        yield Finding("warn", check.__name__, f"could not be checked: {describe(error)}")


# ----------------------------------------------------------------------------------------------------------- Python


def python() -> Iterator[Finding]:
    """Check the interpreter's version."""
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        yield Finding("ok", "python", f"{version} ({sys.executable})")
    else:
        yield Finding("fail", "python", f"{version}; streamkit runs on 3.11 to 3.13", "python3.12 -m venv .venv")


def packages() -> Iterator[Finding]:
    """Check that the required packages are installed, in a supported version, and importable."""
    wanted = requirements()
    for name in _BASE:
        version, spec = installed(name), wanted.get(name, "")
        if version is None:
            yield Finding("fail", name, "is not installed", install_command())
            continue
        try:
            importlib.import_module(_IMPORTS.get(name, name))
        except Exception as error:  # a package with missing libraries raises what it likes
            again = f"python -m pip install --force-reinstall '{name}{spec}'"
            yield Finding("fail", name, f"{version} cannot be imported: {describe(error)}", again)
            continue
        if outside(version, spec):
            yield Finding("warn", name, f"{version} is not {spec}", f"python -m pip install '{name}{spec}'")
        else:
            yield Finding("ok", name, version)


def requirements() -> dict[str, str]:
    """The versions that streamkit requires, by package; empty if streamkit itself is not installed."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)", line) for line in lines)
    return {match[1].lower(): match[2].strip() for match in found if match}


def outside(version: str, spec: str) -> bool:
    """Whether a version does not satisfy a specification such as `>=1.2,<3`."""
    mine = _numbers(version)
    low = [_numbers(one) for one in re.findall(r">=([\w.]+)", spec)]
    high = [_numbers(one) for one in re.findall(r"<([\w.]+)", spec)]
    return any(mine < one for one in low) or any(mine >= one for one in high)


def _numbers(version: str) -> tuple[int, ...]:
    found = [int(one) for one in re.findall(r"\d+", version)[:3]]
    return (*found, *[0] * (3 - len(found)))


def onnxruntimes() -> Iterator[Finding]:
    """Check that exactly one ONNX Runtime is installed: the two packages overwrite each other's files."""
    there = {name: version for name in ONNXRUNTIMES if (version := installed(name)) is not None}
    extra = "gpu" if driver()[0] else "cpu"
    if not there:
        yield Finding("fail", "onnxruntime", "is not installed", install_command(extra))
        return
    if len(there) == 2:
        text = "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files"
        yield Finding("fail", "onnxruntime", text, f"{UNINSTALL} && {install_command(extra)}")
        return
    [(name, version)] = there.items()
    try:
        module = importlib.import_module("onnxruntime")
        providers = module.get_available_providers()
    except Exception as error:  # a missing library, or files of the other package
        again = f"python -m pip uninstall -y {name} && {install_command('gpu' if name.endswith('gpu') else 'cpu')}"
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
        known = [name for name in names if _has_codec(name, mode)]
        lost = [name for name in names if name not in known]
        if known:
            yield Finding("ok", "FFmpeg", f"{what} {', '.join(known)}")
        if lost:
            yield Finding("warn", "FFmpeg", f"it {what} no {', '.join(lost)}", wheel)
    known = [name for name in ("rtsp", "hls") if name in av.formats_available]
    known += [name for name in ("https", "rtsps") if _has_protocol(name)]
    lost = [name for name in ("rtsp", "hls", "https", "rtsps") if name not in known]
    if known:
        yield Finding("ok", "FFmpeg", f"reads {', '.join(known)}")
    if lost:
        yield Finding("warn", "FFmpeg", f"it reads no {', '.join(lost)}", wheel)


def _has_codec(name: str, mode: Any) -> bool:
    import av

    try:
        av.Codec(name, mode)
    except ValueError:  # UnknownCodecError is one
        return False
    return True


def _has_protocol(name: str) -> bool:
    """Connect to a closed port of this machine: only a supported protocol gets that far."""
    import av

    try:
        av.open(f"{name}://127.0.0.1:1/", timeout=1).close()
    except av.error.ProtocolNotFoundError:
        return False
    except Exception:  # refused, or cut off from the network: either way it was tried
        return True
    return True


def host() -> Iterator[Finding]:
    """Report cores, free memory and free disk space."""
    from streamkit.runtime.execution.sizes import cores

    yield Finding("ok", "cores", str(cores()))
    free = free_memory()
    if free is not None:
        low = free < GIB
        fix = "end other programs, or set batch: 1" if low else ""
        yield Finding("warn" if low else "ok", "memory", f"{free / GIB:.1f} GiB free", fix)
    disk = shutil.disk_usage(Path.cwd())
    low = disk.free < GIB
    fix = "let outputs go elsewhere, or free some space" if low else ""
    yield Finding("warn" if low else "ok", "disk", f"{disk.free / GIB:.1f} GiB free in {Path.cwd()}", fix)


def free_memory() -> int | None:
    """Free memory in bytes, within a container's limit; None if unknown."""
    found = []
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        found += [int(size) * 1024 for size in re.findall(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)]
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        found += [int(limit) - int(used)] if limit.isdigit() else []
    except OSError:
        pass
    return min(found, default=None)


def demo() -> Iterator[Finding]:
    """Check that the demo network and video are present and run on the CPU."""
    from streamkit.models.card import load_card, shipped_models

    models = shipped_models()
    card, video = models / "demo.yaml", models.parent / "samples" / "street.mp4"
    back = "git checkout -- models samples"
    if not card.is_file() or not (network := load_card(card)).file.is_file():
        yield Finding("warn", "demo", f"the network that ships is not in {models}", back)
    else:
        from streamkit.core.data import Device
        from streamkit.models.session import Session

        try:
            session = Session(network.file, Device())
            session.warm((1,), network.input.size)
            begun = time.perf_counter()
            session.warm((1,), network.input.size)
            told = (
                f"the network runs on the CPU, {(time.perf_counter() - begun) * 1e3:.0f} ms a picture with one thread"
            )
            yield Finding("ok", "demo", told)
        except Exception as error:  # whatever it is, pipelines on the CPU meet it too
            yield Finding(
                "fail", "demo", f"the network does not run on the CPU: {describe(error)}", install_command("cpu")
            )
    if not video.is_file():
        yield Finding("warn", "demo", f"the video that ships is not at {video}", back)
        return
    import av

    try:
        with av.open(str(video)) as container:
            picture = next(container.decode(video=0))
        yield Finding("ok", "demo", f"the video decodes on the CPU, {picture.width}x{picture.height}")
    except Exception as error:  # FFmpeg's errors have no common base of their own
        yield Finding("fail", "demo", f"{video} does not decode: {describe(error)}", back)
