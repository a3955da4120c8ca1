"""Decodes one file with several decoders: its segments are decoded in parallel and returned in order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.media.gop_segments import SegmentCutter, SegmentDecoder
from streamkit.media.keyframes import CUTTABLE
from streamkit.media.nv_caps import capabilities, unsupported
from streamkit.media.uris import mask
from streamkit.ops.planes import nv12_shape

if TYPE_CHECKING:
    from streamkit.core.tasks import OrderedExecutor
    from streamkit.media.decode import DecodedFrame, Decoder
    from streamkit.media.demux import Demuxer
    from streamkit.media.stream_info import StreamInfo
    from streamkit.media.surfaces import SurfacePool

Decoders = int | Literal["auto"]

_DEEPEST, _SHALLOWEST = 256, 8  # frames of a piece that wait for its turn
_WORTH_IT = 100  # frames of a video for each decoder that `auto` takes


class SplitDecoder:
    """Decodes a file with several decoders.

    Args:
        uri: a path.
        count: number of decoders.
        open_: creates a decoder and its demuxer; called when it is first needed, on any thread.
        pool: surface pool of the decoders.
        counters: receives the decoders' counts when their frames are returned.
        ahead: runs the decoders.
        say: receives the reason if not all decoders are used.
    """

    def __init__(
        self, uri: str, count: int, open_: Callable[[Counters], tuple[Demuxer, Decoder]], pool: SurfacePool,
        counters: Counters, ahead: OrderedExecutor, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._uri, self._pool, self._counters, self._ahead, self._say = uri, pool, counters, ahead, say
        self._decoders = [SegmentDecoder(open_, replays=pool.device.kind == "cpu") for _ in range(count)]

    def frames(self, packets: Iterable[Any], demuxer: Demuxer) -> Generator[DecodedFrame]:
        """Yield the frames of `packets` in presentation order, as a single decoder would.

        Raises:
            SourceError: reading or decoding failed permanently; raised after the last good frame.
        """
        cut = SegmentCutter(packets, demuxer, lambda why: self._say(f"{mask(self._uri)} is decoded {why}"))
        depth = self._depth(demuxer.info)
        results: Any = self._ahead.run(iter(cut), self._decoders, depth)
        with closing(results):
            for frames, counts in results:
                for name, n in counts.items():
                    self._counters.add(name, n)
                yield from frames
        if cut.trouble is not None:
            raise cut.trouble

    def close(self) -> None:
        """Close the decoders."""
        for decoder in self._decoders:
            decoder.close()

    def _depth(self, info: StreamInfo) -> int:
        """Number of frames of a segment that may wait: all sources together may use a quarter of the pool."""
        rows, columns = nv12_shape(max(1, info.width), max(1, info.height))
        share = self._pool.limit // 4 // self._ahead.sources // (len(self._decoders) + 2)
        return max(_SHALLOWEST, min(_DEEPEST, share // (rows * columns)))


def how_many(wanted: Decoders, info: StreamInfo, device: Device, ahead: OrderedExecutor) -> int:
    """Number of decoders for a file.

    Args:
        wanted: a number, or `auto`: this file's share of the device's decoders, fewer if the file is short.
        info: stream information from the container.
        device: device of the surfaces.
        ahead: provides the number of sources and cores.
    """
    if info.live or info.codec not in CUTTABLE:
        return 1
    if wanted != "auto":
        return wanted
    engines = ahead.cores
    if device.kind == "cuda":
        why = unsupported(device.index, info.codec, info.chroma, info.bit_depth, info.width, info.height)
        if why is None:
            engines = capabilities(device.index, info.codec, info.bit_depth).get("num_decoder_engines", 1)
    frames = info.frames or round((info.duration_s or 0.0) * (info.average_rate or 25.0))
    return max(1, min(engines // ahead.sources, frames // _WORTH_IT))
