"""One door to decoding: NVDEC where the pipeline is on a GPU and NVDEC takes the stream, FFmpeg otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from streamkit.counters import Counters
from streamkit.data import Device
from streamkit.media.frames import Picture
from streamkit.media.uris import mask

if TYPE_CHECKING:
    from streamkit.media.av_decoder import AvDecoder
    from streamkit.media.demux import Demuxer
    from streamkit.media.surfaces import SurfacePool

__all__ = ["Decoder", "Picture", "open_decoder"]


class Decoder(Protocol):
    """Packets in decode order in, pictures in the order shown out."""

    def decode(self, packet: Any | None, *, hidden: bool = False, unwanted: bool = False) -> list[Picture]:
        """The pictures that are whole once `packet` (an `av.Packet`) is in; None at the end gives the last ones.

        The picture of a hidden packet, which must have a time of its own, is decoded and left out, as if it had never
        been; that of an unwanted one too, but damage to it is counted, for others refer to it.
        """

    def restart(self, demuxer: Demuxer) -> None:
        """Go on with another demuxer, or the same one after a seek."""

    def close(self) -> None:
        """Let go of everything; surfaces that were handed out live on."""


def open_decoder(
    demuxer: Demuxer, device: Device, pool: SurfacePool, counters: Counters, say: Callable[[str], None], *,
    threads: int = 1, low_delay: bool = False,
) -> Decoder:  # fmt: skip
    """The decoder for a stream, whose surfaces lie on `device`.

    What NVDEC cannot take (a codec, 4:4:4, an odd size) is decoded by FFmpeg and uploaded: said once through `say`, and
    each such frame is counted under `frames decoded on the cpu`.
    """
    from streamkit.media.av_decoder import AvDecoder

    def software(demuxer: Demuxer, why: str = "") -> AvDecoder:
        if why:
            say(f"{mask(demuxer.uri)} is decoded on the CPU and uploaded: {why}")
        return AvDecoder(demuxer, device, pool, counters, threads=threads, low_delay=low_delay)

    if device.kind == "cpu":
        return software(demuxer)
    from streamkit.media.nv_decoder import NvDecoder, NvUnsupported

    try:
        return NvDecoder(demuxer, device, pool, counters, software, low_delay=low_delay)
    except NvUnsupported as why:
        return software(demuxer, str(why))
