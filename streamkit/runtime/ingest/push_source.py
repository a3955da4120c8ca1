# SPDX-License-Identifier: Apache-2.0
"""A source whose frames a Python program pushes."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamkit.config.plan import SourceConfig
from streamkit.core.counters import Counters
from streamkit.core.data import Device, Frame
from streamkit.core.errors import PipelineEnded
from streamkit.core.stage import Source
from streamkit.core.yaml_tree import YamlNode
from streamkit.media.pushed_image import ImageImporter, as_array, check_image
from streamkit.runtime.ingest.batcher import QUEUE_FULL

_FRAMES = 4  # the batcher holds more
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class PushSource:
    """A source whose frames Python pushes, with `Pipeline.push`.

    Args:
        width: width of the images in pixels; by default, that of the first.
        height: height in pixels, likewise.
        fps: frames per second, for the times of frames that are pushed without `pts_s`.
        channels: order of the channels of an image; OpenCV's is `bgr`.
        live: whether the frames come from something that does not wait. `push` then never blocks: frames that the
            pipeline cannot take are dropped and counted. Otherwise `push` waits, and no frame is lost.

    Raises:
        ValueError: a value is out of range.
    """

    width: int | None = None
    height: int | None = None
    fps: float | None = None
    channels: Literal["rgb", "bgr"] = "rgb"
    live: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            size = getattr(self, name)
            if isinstance(size, np.integer):
                object.__setattr__(self, name, size := int(size))
            elif size is not None and not isinstance(size, int):
                raise ValueError(f"{name} must be a whole number of pixels, got {size!r}")
            if size is not None and size < 2:
                raise ValueError(
                    f"{name} must be at least 2 pixels, got {size!r}; leave it out to take the first image's"
                )
        if self.fps is not None and not (isinstance(self.fps, int | float) and 0 < self.fps < math.inf):
            raise ValueError(f"fps must be a number above 0, got {self.fps!r}; leave it out to push times")
        if self.channels not in ("rgb", "bgr"):
            raise ValueError(f"channels must be 'rgb' or 'bgr', got {self.channels!r}")

    def config(self, id_: str, device: Device) -> SourceConfig:
        """The source as an entry of a graph."""
        return SourceConfig(id_, PushedFrames, {"queue": PushQueue(self, id_, device)}, YamlNode({}, "pipeline", 0, 0))


class PushQueue:
    """Frames on their way from the program to the source.

    Args:
        source: what the program declared.
        id_: the source's id.
        device: where the surfaces are made.

    Attributes:
        counters: copies between host and device, and dropped frames.
    """

    def __init__(self, source: PushSource, id_: str, device: Device) -> None:
        self.source = source
        self._id = id_
        self.counters = Counters()
        self._import = ImageImporter(device, bgr=source.channels == "bgr", counters=self.counters)
        self._size = source.width, source.height
        self._index = 0
        self._pts_s = -math.inf
        self._start_s = 0.0
        self._waiting: deque[Frame] = deque()
        self._ended = False
        self._changed = threading.Condition()
        self._pushing = threading.Lock()  # several threads may push into one source

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Width and height of the images in pixels; None until it is known."""
        return self._size

    def push(self, image: Any, pts_s: float | None, check: Callable[[], None]) -> None:
        """Convert an image on the calling thread, and queue it.

        Args:
            image: (height, width, 3) uint8 on host or device; may be changed as soon as this returns.
            pts_s: time in seconds; None to count by `fps`, or by the clock for a live source.
            check: raises an error if waiting is of no use; called while the queue is full.

        Raises:
            PipelineEnded: the source has ended.
            TypeError: the image is no array.
            ValueError: the image or its time does not fit.
        """
        with self._pushing:
            if self._ended:
                raise self._over()
            array = as_array(image)
            width, height = check_image(array, self._size)
            pts_s = self._time_s(pts_s)
            frame = Frame(self._id, self._index, pts_s, width, height, self._import(array))
            if self.source.live:
                frame.due_s = time.monotonic()
                frame.time_s = time.time()
            self._put(frame, check)
            self._size = (width, height)
            self._index += 1
            self._pts_s = pts_s

    def _time_s(self, pts_s: float | None) -> float:
        """The time of the next frame; checked."""
        live = self.source.live
        fps = self.source.fps
        id_ = self._id
        if pts_s is None and live:
            now_s = time.monotonic()
            self._start_s = self._start_s or now_s
            return max(now_s - self._start_s, math.nextafter(self._pts_s, math.inf))
        if pts_s is None and fps is None:
            raise ValueError(
                f"source {id_}: a frame needs its time: push it with pts_s, in seconds, or set fps: PushSource(fps=25)"
            )
        if pts_s is None:
            assert fps is not None
            time_s = self._index / fps
        elif isinstance(pts_s, bool) or not hasattr(pts_s, "__float__"):
            raise TypeError(f"source {id_}: pts_s must be a number of seconds, got {pts_s!r}")
        else:
            time_s = float(pts_s)
        if not math.isfinite(time_s):
            raise ValueError(f"source {id_}: pts_s must be a finite number of seconds, got {pts_s!r}")
        if time_s <= self._pts_s:
            raise ValueError(
                f"source {id_}: pts_s must rise from frame to frame, got {time_s:g} s after {self._pts_s:g} s; "
                "push frames in order, and another video into a source of its own"
            )
        return time_s

    def _put(self, frame: Frame, check: Callable[[], None]) -> None:
        with self._changed:
            while len(self._waiting) >= _FRAMES and not self._ended:
                if self.source.live:  # the run has not started, or is paused; the batcher drops other frames
                    self._waiting.popleft()
                    self.counters.add(QUEUE_FULL)
                    break
                check()
                self._changed.wait(_POLL_S)
            if self._ended:
                raise self._over()
            self._waiting.append(frame)
            self._changed.notify_all()

    def take(self) -> Frame | None:
        """Wait for the next frame; None at the end."""
        with self._changed:
            while not self._waiting and not self._ended:
                self._changed.wait()
            if not self._waiting:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def end(self, *, drop: bool = False) -> None:
        """End the source after its queued frames, or drop those."""
        with self._changed:
            self._ended = True
            if drop:
                self._waiting.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """End the source, and release its buffers once no thread pushes."""
        self.end()
        with self._pushing:
            self._import.close()

    def _over(self) -> PipelineEnded:
        return PipelineEnded(f"source {self._id} has ended and takes no further frame; add a source with another id")


@dataclass(eq=False)
class PushedFrames(Source, name="push", writes="pixels"):
    """Yields the frames of a `PushQueue`."""

    queue: Any

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`: it must not occupy the place of a file."""
        return True

    def stop(self) -> None:
        """End the source."""
        self.queue.end(drop=True)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order."""
        queue: PushQueue = self.queue
        width, height = queue.size
        facts = {"width": width, "height": height, "fps": queue.source.fps}
        self.context.runtime.facts.update({name: value for name, value in facts.items() if value is not None})
        queue.counters.values.update(self.context.counters.values)
        self.context.counters.values = queue.counters.values  # the report shows what the pushing thread counts
        try:
            while (frame := queue.take()) is not None:
                yield frame
                del frame
        finally:
            queue.close()
