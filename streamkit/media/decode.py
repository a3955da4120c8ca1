# SPDX-License-Identifier: Apache-2.0
"""Entry point for decoding: NVDEC if the pipeline runs on a GPU and NVDEC supports the stream, else FFmpeg."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.media.frames import DecodedFrame
from streamkit.media.uris import mask

if TYPE_CHECKING:
    from streamkit.media.av_decoder import AvDecoder
    from streamkit.media.demux import Demuxer
    from streamkit.media.surfaces import SurfacePool

logger = logging.getLogger(__name__)

__all__ = ["DecodedFrame", "Decoder", "open_decoder"]


class Decoder(Protocol):
    """Decodes packets in decode order to frames in presentation order.

    Attributes:
        takes_received: whether `decode` takes a `ReceivedPacket` as well as an `av.Packet`.
    """

    takes_received: bool

    def decode(self, packet: Any | None, *, hidden: bool = False, unwanted: bool = False) -> list[DecodedFrame]:
        """Decode an `av.Packet` and return the frames that are complete; None flushes the decoder at the end.

        The frame of a hidden packet, which must have its own timestamp, is decoded and dropped without a trace. The
        frame of an unwanted packet is dropped too, but damage to it is counted, as other frames refer to it.
        """

    def restart(self, demuxer: Demuxer) -> None:
        """Continue with another demuxer, or with the same one after a seek."""

    def close(self) -> None:
        """Release all resources; surfaces that were returned stay valid."""


def open_decoder(
    demuxer: Demuxer,
    device: Device,
    pool: SurfacePool,
    counters: Counters,
    *,
    threads: int = 1,
    low_delay: bool = False,
) -> Decoder:
    """Create the decoder for a stream; its surfaces are on `device`.

    A stream that NVDEC does not support (codec, 4:4:4, odd size) is decoded by FFmpeg and uploaded. A warning is
    logged, and each such frame is counted under `frames decoded on the cpu`.
    """
    from streamkit.media.av_decoder import AvDecoder

    def software(demuxer: Demuxer, why: str = "") -> AvDecoder:
        if why:
            logger.warning(f"{mask(demuxer.uri)} is decoded on the CPU and uploaded: {why}")
        return AvDecoder(demuxer, device, pool, counters, threads=threads, low_delay=low_delay)

    if device.kind == "cpu":
        return software(demuxer)
    from streamkit.media.nv_decoder import NvDecoder, NvUnsupported

    try:
        return NvDecoder(demuxer, device, pool, counters, software, low_delay=low_delay)
    except NvUnsupported as why:
        return software(demuxer, str(why))
