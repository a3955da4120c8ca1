"""Decoding on the CPU, by FFmpeg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.counters import Counters
from streamkit.data import Device
from streamkit.media.frames import Picture, to_surface
from streamkit.media.surfaces import SurfacePool, shared_pool
from streamkit.media.timing import Timing
from streamkit.media.upload import Upload

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

CONCEALED = "decode errors concealed"
UNDECODABLE = "packets not decodable"
SKIPPED = "packets before a keyframe"
_NOTED = 512
CENTRED = frozenset({"mjpeg", "mjpegb", "mpeg1video"})


class AvDecoder:
    """Packets to pictures on the host; with a device, each picture is uploaded.

    Args:
        demuxer: where the packets come from.
        device: where surfaces are wanted.
        pool: a pool of that device.
        counters: takes `decode errors concealed`, `packets not decodable` and, on a GPU, `frames decoded on the cpu`.
        threads: decoding threads; frames come later by as many.
        low_delay: hand a picture out as soon as it is whole: threads work on slices of one picture, not on several.
    """

    def __init__(
        self, demuxer: Demuxer, device: Device, pool: SurfacePool, counters: Counters, *, threads: int = 1,
        low_delay: bool = False,
    ) -> None:  # fmt: skip
        self._counters = counters
        self._host = pool if device.kind == "cpu" else shared_pool(Device("cpu"))
        self._upload = None if device.kind == "cpu" else Upload(device, pool)
        self._threads, self._low_delay = max(1, threads), low_delay
        self.restart(demuxer)

    def restart(self, demuxer: Demuxer) -> None:
        """Go on with another demuxer, or the same one after a seek."""
        self._context: Any = demuxer.stream.codec_context
        if self._context.is_open:
            self._context.flush_buffers()
        else:
            self._context.thread_count = self._threads
            self._context.thread_type = "SLICE" if self._low_delay else "AUTO"
        self._centred = demuxer.info.codec in CENTRED
        self._timing = Timing(demuxer)
        self._broken: dict[int, None] = {}  # times of packets that are known to be damaged, oldest first
        self._left_out: dict[int, bool] = {}  # times of pictures that nobody gets; whether to be silent about them
        self._live, self._lost = demuxer.info.live, False

    def decode(self, packet: Any | None, *, hidden: bool = False, unwanted: bool = False) -> list[Picture]:
        """The pictures that are whole once `packet` (an `av.Packet`) is in; None at the end gives the last ones.

        A packet that cannot be decoded is counted, and decoding goes on; with a live source at the next keyframe. The
        picture of a hidden one is left out, and no damage to it is counted; that of an unwanted one is only left out.
        """
        import av

        if self._lost and packet is not None:
            if not packet.is_keyframe:
                self._counters.add(SKIPPED)
                return []
            self._lost = False

        if (hidden or unwanted) and packet is not None:
            self._left_out[packet.pts] = hidden
        if packet is not None and packet.is_corrupt and packet.pts is not None:
            self._note(packet.pts)

        if packet is not None:
            self._timing.sent(packet)
        try:
            frames = self._context.decode(packet)
        except (ValueError, OSError, av.FFmpegError) as error:
            if isinstance(error, EOFError):
                return []
            self._counters.add(UNDECODABLE)
            if packet is not None:
                self._timing.lost(packet)
            self._lost = self._live
            return []
        if self._left_out:
            frames = [frame for frame in frames if not self._leave_out(frame)]
        return [self._picture(frame) for frame in frames]

    def close(self) -> None:
        """Let go of the codec's memory."""
        self._context = None
        if self._upload is not None:
            self._upload.close()

    def _leave_out(self, frame: Any) -> bool:
        if frame.pts not in self._left_out:
            return False
        if self._is_damaged(frame) and not self._left_out[frame.pts]:
            self._counters.add(CONCEALED)
        del self._left_out[frame.pts]
        return True

    def _note(self, pts: int) -> None:
        self._broken[pts] = None
        if len(self._broken) > _NOTED:  # their frames never came
            del self._broken[next(iter(self._broken))]

    def _is_damaged(self, frame: Any) -> bool:
        """Whether the decoder or the demuxer calls a frame damaged; decoders do not see all damage."""
        noted = frame.pts in self._broken
        self._broken.pop(frame.pts, None)
        return noted or bool(frame.is_corrupt)

    def _picture(self, frame: Any) -> Picture:
        damaged = self._is_damaged(frame)
        if damaged:
            self._counters.add(CONCEALED)
        width, height, surface = to_surface(frame, self._host, centred=self._centred)
        if self._upload is not None:
            self._counters.add("frames decoded on the cpu")
            surface = self._upload(surface)
        return Picture(self._timing(frame.pts), width, height, surface, damaged)
