# SPDX-License-Identifier: Apache-2.0
"""Decoding on the CPU with FFmpeg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.io.image_file import PIXEL_LIMIT, STRICT_JPEG
from streamkit.media.frames import DecodedFrame, OrientationReader, StreamAspect, to_surface
from streamkit.media.surfaces import SurfacePool, Upload, shared_pool
from streamkit.media.timing import Timing

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

CONCEALED = "decode errors concealed"
UNDECODABLE = "packets not decodable"
SKIPPED = "packets before a keyframe"
_MAX_CORRUPT = 512
CENTERD = frozenset({"mjpeg", "mjpegb", "mpeg1video"})


class AvDecoder:
    """Decodes packets to host frames; with a GPU, each frame is uploaded.

    Args:
        demuxer: source of the packets.
        device: device of the surfaces.
        pool: surface pool of that device.
        counters: counts `decode errors concealed`, `packets not decodable` and, on a GPU, `frames decoded on the cpu`.
        threads: number of decoding threads; each delays the frames by one.
        low_delay: return each frame as soon as it is complete: threads decode slices of one frame, not several frames.
    """

    takes_received = False

    def __init__(
        self,
        demuxer: Demuxer,
        device: Device,
        pool: SurfacePool,
        counters: Counters,
        *,
        threads: int = 1,
        low_delay: bool = False,
    ) -> None:
        self._counters = counters
        self._host = pool if device.kind == "cpu" else shared_pool(Device("cpu"))
        self._upload = None if device.kind == "cpu" else Upload(device, pool)
        self._threads = max(1, threads)
        self._low_delay = low_delay
        self.restart(demuxer)

    def restart(self, demuxer: Demuxer) -> None:
        """Continue with another demuxer, or with the same one after a seek."""
        self._context: Any = demuxer.stream.codec_context
        self._codec = demuxer.info.codec
        self._lenient: Any = None  # decodes incomplete JPEG images as far as they go
        if self._context.is_open:
            self._context.flush_buffers()
        else:
            self._context.thread_count = self._threads
            self._context.thread_type = "SLICE" if self._low_delay else "AUTO"
            if self._codec == "mjpeg":
                self._context.options = {**PIXEL_LIMIT, **STRICT_JPEG}
        self._centerd = self._codec in CENTERD
        self._timing = Timing(demuxer)
        self._orientation = OrientationReader()
        self._aspect = StreamAspect(demuxer.stream)
        self._corrupt: dict[int, None] = {}  # times of packets that are known to be damaged, oldest first
        self._left_out: dict[int, bool] = {}  # times of frames that are discarded; whether they are hidden
        self._live = demuxer.info.live
        self._lost = False

    def decode(self, packet: Any | None, *, hidden: bool = False, unwanted: bool = False) -> list[DecodedFrame]:
        """Decode an `av.Packet` and return the frames that are complete; None flushes the decoder at the end.

        A packet that cannot be decoded is counted, and decoding continues, for live sources at the next keyframe. The
        frame of a hidden packet is dropped without counting damage to it; that of an unwanted one is only dropped.
        """
        import av

        if packet is not None:
            if self._lost and not packet.is_keyframe:
                self._counters.add(SKIPPED)
                return []
            self._lost = False
            if hidden or unwanted:
                self._left_out[packet.pts] = hidden
            if packet.is_corrupt and packet.pts is not None:
                self._corrupt[packet.pts] = None
                if len(self._corrupt) > _MAX_CORRUPT:  # their frames never came
                    del self._corrupt[next(iter(self._corrupt))]
            self._timing.sent(packet)
        try:
            frames = self._context.decode(packet)
        except EOFError:
            return []
        except (ValueError, OSError, av.FFmpegError):
            partial = self._partial_jpeg(packet)
            if partial is not None:
                return self._returned([partial], damaged=True)
            self._counters.add(UNDECODABLE)
            if packet is not None:
                self._timing.lost(packet)
            self._lost = self._live
            return []
        return self._returned(frames)

    def close(self) -> None:
        """Release the codec's memory."""
        self._context = self._lenient = None
        if self._upload is not None:
            self._upload.close()

    def _partial_jpeg(self, packet: Any | None) -> Any | None:
        """The frame of a JPEG image that ends early, with what there is of it; None if there is nothing of it."""
        import av

        if packet is None or self._codec != "mjpeg":
            return None
        if self._lenient is None:
            self._lenient = av.CodecContext.create("mjpeg", "r")
            self._lenient.options = dict(PIXEL_LIMIT)
        try:
            frames = self._lenient.decode(packet)
        except (ValueError, OSError, av.FFmpegError):
            return None
        return frames[0] if frames else None

    def _returned(self, frames: list[Any], *, damaged: bool = False) -> list[DecodedFrame]:
        """Convert the frames that are neither hidden nor unwanted."""
        converted = (self._converted(frame, damaged=damaged) for frame in frames)
        return [frame for frame in converted if frame is not None]

    def _converted(self, frame: Any, *, damaged: bool) -> DecodedFrame | None:
        """Convert a frame, and count damage that the decoder or the demuxer marks; decoders miss some damage."""
        damaged = damaged or bool(frame.is_corrupt) or frame.pts in self._corrupt
        self._corrupt.pop(frame.pts, None)
        hidden = self._left_out.pop(frame.pts, None)
        if damaged and not hidden:
            self._counters.add(CONCEALED)
        if hidden is not None:
            return None
        orientation = self._orientation(frame)
        width, height, surface = to_surface(frame, self._host, orientation=orientation, centerd=self._centerd)
        aspect = self._aspect.of(orientation, self._context)
        if self._upload is not None:
            self._counters.add("frames decoded on the cpu")
            surface = self._upload(surface)
        return DecodedFrame(self._timing(frame.pts), width, height, surface, damaged, aspect)
