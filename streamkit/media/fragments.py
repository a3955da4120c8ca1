# SPDX-License-Identifier: Apache-2.0
"""Packets of a source as fragmented MP4, for players that take a video in pieces; nothing is decoded or encoded."""

from __future__ import annotations

from streamkit.media.encode import TIME_BASE
from streamkit.media.ring import StreamFormat

FRAGMENTED = ("h264", "hevc")
"""Codecs that `FragmentMuxer` supports, as FFmpeg names them."""

_OPTIONS = {"movflags": "empty_moov+default_base_moof+frag_every_frame", "video_track_timescale": "90000"}


class FragmentMuxer:
    """Writes packets as fragmented MP4, one fragment for each packet.

    A fragment has the duration of its frame, so it is complete when the next packet comes.

    Args:
        form: the stream's parameters.

    Attributes:
        init: the initialization segment, which comes before the first fragment.
        codecs: the codec with profile and level by RFC 6381, such as `avc1.64001e`.

    Raises:
        ValueError: the codec is not one of `FRAGMENTED`, or its parameters are missing.
    """

    def __init__(self, form: StreamFormat) -> None:
        import av

        if form.codec not in FRAGMENTED:
            raise ValueError(f"browsers play {' and '.join(FRAGMENTED)} in pieces, and this is {form.codec}")
        self._sink = ByteSink()
        self._container = av.open(self._sink, "w", format="mp4", options=_OPTIONS)
        self._stream = form.add_to(self._container)
        if form.codec == "hevc":
            self._stream.codec_context.codec_tag = "hvc1"  # Safari plays no hev1
        self._container.start_encoding()
        self.init = self._sink.take()
        self.codecs = codecs_of(self.init)
        self._pending_keyframe = False

    def __del__(self) -> None:
        """Close the container, which holds its stream, which holds the container."""
        if hasattr(self, "_container"):
            self._container.close()

    def put(self, data: bytes, pts: int, dts: int, *, keyframe: bool) -> tuple[bytes, bool] | None:
        """Add a packet; return the fragment of the packet before it, and whether that one is a keyframe.

        Args:
            data: the packet's bytes, as received.
            pts: presentation time in ticks of `TIME_BASE`.
            dts: decoding time, likewise; rises from packet to packet, from 0.
            keyframe: whether decoding can start with the packet.

        Returns:
            None for the first packet.
        """
        import av

        packet = av.Packet(data)
        packet.stream = self._stream
        packet.time_base = TIME_BASE
        packet.pts = pts
        packet.dts = dts
        packet.is_keyframe = keyframe
        self._container.mux_one(packet)
        fragment = self._sink.take()
        was_keyframe = self._pending_keyframe
        self._pending_keyframe = keyframe
        return (fragment, was_keyframe) if fragment else None


class ByteSink:
    """Collects what a container writes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Take bytes."""
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def codecs_of(init: bytes) -> str:
    """The codec of an initialization segment by RFC 6381. Raises ValueError if it has no parameters."""
    if (at := init.find(b"avcC")) >= 0 and len(init) > at + 8:
        return f"avc1.{init[at + 5 : at + 8].hex()}"
    if (at := init.find(b"hvcC")) >= 0 and len(init) > at + 17:
        return _hevc_codecs(init[at + 4 :])
    raise ValueError("the stream does not announce the parameters of its codec")


def _hevc_codecs(config: bytes) -> str:
    """The codec of an `HEVCDecoderConfigurationRecord`, by ISO/IEC 14496-15 Annex E."""
    space = config[1] >> 6
    high = config[1] >> 5 & 1
    profile = config[1] & 31
    flags = int(f"{int.from_bytes(config[2:6]):032b}"[::-1], 2)
    constraints = config[6:12].rstrip(b"\0")
    parts = [f"hvc1.{['', 'A', 'B', 'C'][space]}{profile}", f"{flags:x}", f"{'LH'[high]}{config[12]}"]
    return ".".join([*parts, *(f"{flag_byte:x}" for flag_byte in constraints)])
