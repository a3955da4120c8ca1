"""Pictures as a source: a folder, a pattern or a single file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from streamkit.data import Color, Frame, Surface
from streamkit.errors import SourceError
from streamkit.stage import Count, Source, stage
from streamkit.stages.source import Rate

if TYPE_CHECKING:
    import numpy as np

    from streamkit.media.pacing import Pacer

_JPEG = Color("bt601", full_range=True, chroma_x=0.5, chroma_y=0.5)
_NAMED = 3


@stage("pictures", writes="pixels")
class Pictures(Source):
    """Take pictures (JPEG, PNG, BMP, TIFF, WebP) in the natural order of their names, 2 before 10.

    Each is turned upright as its EXIF data say. One that cannot be read becomes a frame that has failed; the others go
    on, and the source fails at the end.

    Options:
        uri: a folder, a pattern such as shots/*.jpg or shots/%04d.png, or one file.
        rate: frames a second, for the frames' times.
        loop: take them again and again, or so many times.
        every: take every n-th picture only.
        pace: hand them out as a camera would, at their own times (realtime) or at so many frames a second.
        phase: the pace's phase is random; a number makes it the same in every run.
    """

    uri: str
    rate: Rate = 1.0
    loop: bool | Count = False
    every: Count = 1
    pace: Literal["realtime"] | Rate | None = None
    phase: int | None = None

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            SourceError: there is no picture, or, after the last one, some could not be read.
        """
        from streamkit.media.find import picture_files
        from streamkit.media.pacing import Pacer
        from streamkit.media.upload import place

        context = self.context
        files = picture_files(self.uri)
        self._pacer = None if self.pace is None else Pacer(self.pace, 1 / self.rate, self.phase, context.id)
        turns = 1 if self.loop is False else math.inf if self.loop is True else self.loop
        broken: dict[str, str] = {}
        index = -1
        with place(context.device) as put:
            while (index + 1) // len(files) < turns:
                index += 1
                if index % self.every:
                    continue
                name = files[index % len(files)]
                try:
                    data, width, height = read_picture(name)
                    frame = Frame(context.id, index, index / self.rate, width, height, put(Surface(data, _JPEG)))
                except SourceError as error:
                    context.counters.add("pictures that cannot be read")
                    broken[name] = str(error)
                    frame = Frame(context.id, index, index / self.rate, 0, 0, error=str(error))
                if self._pacer is not None:
                    frame.due_s = self._pacer.due_s(index, frame.pts_s)
                    self._pacer.wait(frame.due_s)
                    if self._pacer.stopped:
                        return
                yield frame
        if broken:
            more = f"; and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
            raise SourceError("; ".join(list(broken.values())[:_NAMED]) + more)

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self.pace is not None or self.loop is True

    def stop(self) -> None:
        """End a wait for a frame's time; any thread may call it."""
        pacer: Pacer | None = getattr(self, "_pacer", None)
        if pacer is not None:
            pacer.stopped = True


def read_picture(name: str) -> tuple[np.ndarray, int, int]:
    """A picture file as NV12 data (BT.601, full range, centred chroma), its width and its height.

    Raises:
        SourceError: it cannot be read; the text names the file.
    """
    import cv2
    import numpy as np

    from streamkit.ops.color import from_rgb

    try:
        raw = np.fromfile(name, np.uint8)
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from error
    if not raw.size:
        raise SourceError(f"{name}: the file is empty")
    # OpenCV fills what is missing of a JPEG with gray, and says so on stderr only
    if raw[:2].tobytes() == b"\xff\xd8" and b"\xff\xd9" not in raw[-65536:].tobytes():
        raise SourceError(f"{name}: the JPEG is cut short")
    try:
        rgb = cv2.imdecode(raw, cv2.IMREAD_COLOR_RGB)
    except cv2.error as error:
        raise SourceError(f"{name}: {error.err}") from error
    if rgb is None:
        raise SourceError(f"{name}: this is not a picture that OpenCV can read")
    return from_rgb(rgb, _JPEG), rgb.shape[1], rgb.shape[0]
