# SPDX-License-Identifier: Apache-2.0
"""Selection of a sink's encoder and its options; encoding with NVENC."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

from streamkit.core.counters import Counters
from streamkit.core.data import SQUARE, Color, Device, Surface
from streamkit.core.errors import DeviceError, MissingPackage, StreamkitError
from streamkit.core.units import Unit
from streamkit.media.bitstream import nal_units
from streamkit.media.encode import H273, TIME_BASE, CpuEncoder, Encoder, Encoding
from streamkit.media.nv_caps import primary_context

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

logger = logging.getLogger(__name__)


_PRESETS = {
    "cpu": ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo"),
    "nvenc": ("p1", "p2", "p3", "p4", "p5", "p6", "p7"),
}


def _parse_bitrate(value: Any) -> int:
    """Parse bits per second: `4M`, `800k` or a number. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kM]?)\s*", str(value))
    if match is None or isinstance(value, bool) or float(match[1]) == 0:
        raise ValueError(f"must be bits per second such as 4M or 800k, got {value!r}")
    return int(float(match[1]) * {"": 1, "k": 10**3, "M": 10**6}[match[2]])


BitRate = Annotated[int, Unit("bits a second", _parse_bitrate, pattern=r"^\s*[0-9]+(\.[0-9]+)?\s*[kM]?\s*$")]
"""Bits a second; a YAML may say `4M`."""

Quality = Annotated[int, Unit("0..51", minimum=0, maximum=51)]
"""A constant rate factor, 0 (best) to 51."""


def check_encoding(encoder: str, preset: str | None, quality: int | None, bitrate: int | None) -> None:
    """Reject encoder options that exclude each other and unknown presets. Raises ValueError."""
    if quality is not None and bitrate is not None:
        raise ValueError("quality and bitrate exclude each other; remove one of them")
    presets = _PRESETS.get(encoder, _PRESETS["cpu"] + _PRESETS["nvenc"])
    if preset is not None and preset not in presets:
        raise ValueError(f"preset must be one of {', '.join(presets)}, got {preset!r}")


def choose_encoder(requested: str, codec: str, preset: str | None, device: Device, what: str = "video") -> str:
    """Resolve `auto` to `nvenc` or `cpu`; check that any other choice is available.

    Raises:
        DeviceError: `nvenc` without a GPU, or on a GPU without NVENC.
        MissingPackage: `nvenc` without PyNvVideoCodec.
    """
    if requested == "nvenc" and device.kind == "cpu":
        raise DeviceError("encoder: nvenc needs frames on a GPU; set device: cuda, or encoder: cpu")
    if requested == "nvenc":
        check_nvenc(codec, device.index)
    if requested != "auto":
        return requested
    if device.kind == "cpu" or preset in _PRESETS["cpu"]:
        return "cpu"
    try:
        check_nvenc(codec, device.index)
    except StreamkitError as error:
        logger.warning(f"{what} is encoded on the CPU, frames are copied to the host: {error}")
        return "cpu"
    return "nvenc"


def make_encoder(
    chosen: str,
    encoding: Encoding,
    like: Surface,
    rate: Fraction,
    device: Device,
    threads: int,
    counters: Counters,
    pixel_aspect: Fraction = SQUARE,
) -> Encoder:
    """Create an encoder for surfaces with the size and color format of `like`.

    Args:
        chosen: `nvenc` or `cpu`.
        encoding: encoder options.
        like: one of the surfaces.
        rate: frames per second, a hint.
        device: device of the surfaces.
        threads: maximum number of threads on the CPU.
        counters: counts copies from a GPU.
        pixel_aspect: width of a pixel divided by its height.
    """
    if chosen == "nvenc":
        return NvEncoder(encoding, like.width, like.height, like.color, rate, device.index, pixel_aspect)
    return CpuEncoder(encoding, like.width, like.height, like.color, rate, threads, counters, pixel_aspect)


def check_nvenc(codec: str, device: int) -> None:
    """Check for NVENC by creating an encoder.

    Raises:
        MissingPackage: PyNvVideoCodec is not installed.
        DeviceError: the GPU or its driver has no encoder for the codec. H200, H100 and A100 have no NVENC.
    """
    try:
        import PyNvVideoCodec as nvc  # noqa: N813
    except ModuleNotFoundError as error:
        raise MissingPackage("PyNvVideoCodec", "gpu", "encoder: nvenc") from error
    except Exception as error:  # its import talks to the driver
        raise DeviceError(f"NVENC cannot be used{_cause(error)}; set encoder: cpu") from error
    try:
        with primary_context(device):
            nvc.CreateEncoder(640, 384, "NV12", False, gpu_id=device, codec=codec)
    except Exception as error:
        raise DeviceError(
            f"the GPU cuda:{device} cannot encode {codec}{_cause(error)}; set encoder: cpu, or auto, which uses NVENC "
            "if the GPU has one"
        ) from error


def _cause(error: BaseException) -> str:
    """Return the first line of an error in parentheses that is more than a heading, such as `PyNvEncoderCaps :`."""
    lines = [line.strip() for line in str(error).splitlines()]
    cause = next((line for line in lines if line and not line.endswith(":")), "")
    return f" ({cause})" if cause else ""


class NvEncoder:
    """NVENC through PyNvVideoCodec, with NV12 input in device memory; pixels are not copied to the host.

    It creates no B frames, so packets are in frame order. The stream is added with the first packet, whose headers
    describe it. Tags of color and pixel aspect ratio are written into the bitstream after encoding, as the encoder
    accepts none.

    Args:
        encoding: encoder options.
        width: width of the surfaces in pixels, even.
        height: height of the surfaces in pixels, even.
        color: color format of the surfaces.
        rate: frames per second, a hint for rate control.
        device: the GPU's index.
        pixel_aspect: width of a pixel divided by its height.
    """

    def __init__(
        self,
        encoding: Encoding,
        width: int,
        height: int,
        color: Color,
        rate: Fraction,
        device: int,
        pixel_aspect: Fraction = SQUARE,
    ) -> None:
        import PyNvVideoCodec as nvc  # noqa: N813

        options: dict[str, Any] = {
            "codec": encoding.codec,
            "gpu_id": device,
            "preset": (encoding.preset or "p4").upper(),
            "tuning_info": "low_latency" if encoding.live else "high_quality",
            "bf": 0,
            "fps": max(1, round(rate)),
            "gop": encoding.gop or 250,
            "rc": "vbr",
        }
        if encoding.bitrate is not None:
            options["bitrate"] = encoding.bitrate
        else:
            options["cq"] = 23 if encoding.quality is None else encoding.quality
        self._nvc = nvc
        self._codec = encoding.codec
        self._color = color
        self._pixel_aspect = pixel_aspect
        with primary_context(device):
            self._encoder = nvc.CreateEncoder(width, height, "NV12", False, **options)
        self._pending: dict[int, Surface] = {}  # the encoder may still read them
        self._stream: Any = None

    def start(self, container: OutputContainer) -> None:
        """Set the container; the stream is added with the first packet."""
        self._container = container

    def encode(self, surface: Surface, ticks: int) -> Sequence[Packet[VideoStream]]:
        """See `Encoder.encode`."""
        if surface.ready is not None:
            surface.ready.synchronize()  # the encoder copies on its own stream
        self._pending[ticks] = surface
        parameters = self._nvc.NV_ENC_PIC_PARAMS()
        parameters.inputTimeStamp = ticks
        return self._packets(self._encoder.Encode(_planes(surface), parameters))

    def flush(self) -> Sequence[Packet[VideoStream]]:
        """See `Encoder.flush`."""
        return self._packets(self._encoder.EndEncode())

    def _packets(self, encoded: Any) -> list[Packet[VideoStream]]:
        from av import Packet

        packets = []
        for chunk in encoded:
            ticks = int(chunk["timestamp"])
            data = bytes(chunk["data"])
            self._pending.pop(ticks, None)
            if self._stream is None:
                self._add_stream(data)
            for packet in self._tag.filter(Packet(data)):
                packet.pts = packet.dts = ticks
                packet.time_base = TIME_BASE
                packet.is_keyframe = _is_keyframe(data, self._codec)
                packet.stream = self._stream
                packets.append(packet)
        return packets

    def _add_stream(self, data: bytes) -> None:
        """Add the stream, from the headers at the start of the first packet."""
        import av

        primaries, transfer, matrix = H273[self._color.matrix]
        rule = (
            f"{self._codec}_metadata=colour_primaries={primaries}:transfer_characteristics={transfer}"
            f":matrix_coefficients={matrix}:video_full_range_flag={int(self._color.full_range)}"
            f":sample_aspect_ratio={self._pixel_aspect.numerator}/{self._pixel_aspect.denominator}"
        )
        with av.open(io.BytesIO(data), format=self._codec) as bare:
            self._tag = av.BitStreamFilterContext(rule, bare.streams.video[0])
        tagged = b"".join(bytes(packet) for packet in self._tag.filter(av.Packet(data)))
        with av.open(io.BytesIO(tagged), format=self._codec) as headed:
            self._stream = self._container.add_stream_from_template(headed.streams.video[0], opaque=True)
            self._stream.time_base = TIME_BASE
            if self._codec == "hevc":
                self._stream.codec_context.codec_tag = "hvc1"


def _planes(surface: Surface) -> Any:
    """A device surface in the form that PyNvVideoCodec expects: `cuda()` returns its planes."""
    width = surface.width
    height = surface.height
    address = int(surface.data.data.ptr)
    planes = [
        SimpleNamespace(
            __cuda_array_interface__={
                "shape": shape,
                "strides": strides,
                "data": (at, False),
                "typestr": "|u1",
                "version": 3,
            }
        )
        for at, shape, strides in (
            (address, (height, width, 1), (width, 1, 1)),
            (address + width * height, (height // 2, width // 2, 2), (width, 2, 1)),
        )
    ]
    return SimpleNamespace(cuda=lambda: planes)


def _is_keyframe(data: bytes, codec: str) -> bool:
    """Whether an Annex B access unit contains an IDR (H.264) or IRAP (HEVC) frame."""
    kinds = (5,) if codec == "h264" else range(16, 22)
    return any(kind in kinds for kind, _ in nal_units(codec, data))
