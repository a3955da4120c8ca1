"""Selection of a sink's encoder, and its options."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

from streamkit.core.counters import Counters
from streamkit.core.data import Device, Surface
from streamkit.core.errors import DeviceError, StreamkitError
from streamkit.core.units import Unit
from streamkit.media.encode import CpuEncoder, Encoder, Encoding
from streamkit.media.nvenc import NvEncoder, check_nvenc

_PRESETS = {
    "cpu": ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo"),
    "nvenc": ("p1", "p2", "p3", "p4", "p5", "p6", "p7"),
}


def _bits(value: Any) -> int:
    """Parse bits per second: `4M`, `800k` or a number. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kM]?)\s*", str(value))
    if match is None or isinstance(value, bool) or float(match[1]) == 0:
        raise ValueError(f"must be bits a second such as 4M or 800k, got {value!r}")
    return int(float(match[1]) * {"": 1, "k": 10**3, "M": 10**6}[match[2]])


BitRate = Annotated[int, Unit("bits a second", _bits, pattern=r"^\s*[0-9]+(\.[0-9]+)?\s*[kM]?\s*$")]
"""Bits a second; a YAML may say `4M`."""

Quality = Annotated[int, Unit("0..51", minimum=0, maximum=51)]
"""A constant rate factor, 0 (best) to 51."""


def check_encoding(encoder: str, preset: str | None, quality: int | None, bitrate: int | None) -> None:
    """Reject encoder options that exclude each other and unknown presets. Raises ValueError."""
    if quality is not None and bitrate is not None:
        raise ValueError("quality and bitrate exclude each other; leave one of them out")
    known = _PRESETS.get(encoder, _PRESETS["cpu"] + _PRESETS["nvenc"])
    if preset is not None and preset not in known:
        raise ValueError(f"preset must be one of {', '.join(known)}, got {preset!r}")


def choose_encoder(
    asked: str, codec: str, preset: str | None, device: Device, say: Callable[[str], None], what: str = "video"
) -> str:
    """Resolve `auto` to `nvenc` or `cpu`; check that any other choice is available.

    Raises:
        DeviceError: `nvenc` without a GPU, or on a GPU without NVENC.
        MissingPackage: `nvenc` without PyNvVideoCodec.
    """
    if asked == "nvenc" and device.kind == "cpu":
        raise DeviceError("encoder: nvenc needs frames on a GPU; set device: cuda, or encoder: cpu")
    if asked == "nvenc":
        check_nvenc(codec, device.index)
    if asked != "auto":
        return asked
    if device.kind == "cpu" or preset in _PRESETS["cpu"]:
        return "cpu"
    try:
        check_nvenc(codec, device.index)
    except StreamkitError as error:
        say(f"{what} is encoded on the CPU, frames are copied to the host: {error}")
        return "cpu"
    return "nvenc"


def make_encoder(
    chosen: str, asked: Encoding, like: Surface, rate: Fraction, device: Device, threads: int, counters: Counters
) -> Encoder:
    """Create an encoder for surfaces with the size and colour format of `like`.

    Args:
        chosen: `nvenc` or `cpu`.
        asked: encoder options.
        like: one of the surfaces.
        rate: frames per second, a hint.
        device: device of the surfaces.
        threads: maximum number of threads on the CPU.
        counters: counts copies from a GPU.
    """
    if chosen == "nvenc":
        return NvEncoder(asked, like.width, like.height, like.color, rate, device.index)
    return CpuEncoder(asked, like.width, like.height, like.color, rate, threads, counters)
