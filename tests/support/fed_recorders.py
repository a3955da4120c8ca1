"""A recorder around the clock that is fed with packets of a real video, at any speed and by any clock."""

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import Frame
from streamkit.io.segment_files import RecordedFile, SegmentFolder
from streamkit.io.segment_retention import SegmentLimits, SegmentRetention
from streamkit.media.ring import PacketRing
from streamkit.stages.video.continuous import ContinuousRecorder


def drawn(path, size=(64, 48), count=50, gop=5):
    """A video without B frames whose pictures show their number."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": str(gop), "bf": "0", "sc_threshold": "0", "crf": "10"}
        for number in range(count):
            planes = np.full((size[1] * 3 // 2, size[0]), 128, np.uint8)
            planes[: size[1]] = 40 + number
            out.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        out.mux(stream.encode(None))
    return path


class FedCamera:
    """A camera that repeats a video; its clock and the time between its frames are the caller's.

    Attributes:
        time_s: wall clock of the next frame.
    """

    def __init__(self, source: str, video: Path, time_s: float, *, step_s: float = 0.04) -> None:
        self.source = source
        self.time_s = time_s
        self.step_s = step_s
        self.index = 0
        self.ring = PacketRing(("record",), limit_bytes=1 << 30)
        self._pts_s = 0.0
        self.connect(video)

    def connect(self, video: Path) -> None:
        """Send this video from now on, as after a reconnection."""
        self._container = av.open(str(video))
        stream = self._container.streams.video[0]
        self._packets = [packet for packet in self._container.demux(stream) if packet.size]
        self._place = 0
        self._tick = float(stream.time_base)
        self.ring.begin(stream)

    def away(self, gap_s: float) -> None:
        """Send nothing for a while."""
        self.time_s += gap_s
        self._pts_s += gap_s

    def frames(self, count: int) -> Iterator[Frame]:
        """The next frames; without B frames, so each packet is one."""
        for _ in range(count):
            packet = self._packets[self._place % len(self._packets)]
            self._place += 1
            packet.pts = packet.dts = round(self._pts_s / self._tick)
            packet.duration = round(self.step_s / self._tick)
            self.ring.put(packet)
            frame = Frame(self.source, self.index, self._pts_s, 64, 48, None)
            frame.time_s = self.time_s
            frame._state.packet_ref = self.ring.packet_ref(packet.pts * self._tick)
            yield frame
            self.index += 1
            self._pts_s += self.step_s
            self.time_s += self.step_s


class FedRecorder:
    """A recorder with its counters.

    Attributes:
        now_s: the wall clock, for the age of files.
    """

    def __init__(
        self, root: Path, limits: SegmentLimits | None = None, *, segment_s: float = 60.0, after_s: float = 20.0
    ) -> None:
        self.root = root
        self.now_s = 0.0
        self.counters = Counters()
        self.retention = SegmentRetention(root, limits or SegmentLimits(), self.counters, lambda: self.now_s)
        self.recorder = ContinuousRecorder(
            self.retention, segment_s=segment_s, before_s=10.0, after_s=after_s, counters=self.counters
        )
        self.recorder.open()

    def feed(self, camera: FedCamera, count: int) -> None:
        """Record the next frames of a camera."""
        for frame in camera.frames(count):
            self.recorder.write(frame)
            camera.ring.release("record", self.recorder.needed(camera.source) or 0)
        self.now_s = max(self.now_s, camera.time_s)

    def files(self) -> list[RecordedFile]:
        """The complete files, oldest first."""
        folder = SegmentFolder(self.root)
        folder.refresh()
        return [file for file in folder.segments() if file.complete]
