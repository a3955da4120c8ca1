"""Still images as a source: a folder, a pattern or a single file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from streamkit.core.data import Color, Frame, Surface
from streamkit.core.errors import SourceError
from streamkit.core.stage import Count, Seconds, Source, stage
from streamkit.core.units import Unit
from streamkit.io.image_file import MAX_MEGAPIXELS, read_rgb
from streamkit.media.frame_sampling import check_part, nothing_taken, numbers, sample_frames
from streamkit.stages.sources.source import Pace, Rate, turns

if TYPE_CHECKING:
    from streamkit.media.pacing import Pacer

_JPEG = Color("bt601", full_range=True, chroma_x=0.5, chroma_y=0.5)
_NAMED = 3
Megapixels = Annotated[float, Unit("megapixels", minimum=0.001)]
"""Millions of pixels."""


@stage("pictures", writes="pixels", has_pace=True)
class ImageSource(Source):
    """Read images (JPEG, PNG, BMP, TIFF, WebP) in the natural order of their names, 2 before 10.

    Each is rotated as its EXIF data say. An image that cannot be read becomes a failed frame; the others are still
    processed, and the source fails at the end.

    A frame's `index` is the image's number, also if `start`, `every` or `fps` leave images out; on a loop, index and
    time keep increasing.
    """

    uri: Annotated[str, "a folder, a pattern such as shots/*.jpg or shots/%04d.png, or one file."]
    rate: Annotated[Rate, "frames per second, for the frames' times."] = 1.0
    loop: Annotated[bool | Count, "repeat forever, or this many times."] = False
    start: Annotated[Seconds, "skip images before this time, counted from the first image."] = 0.0
    end: Annotated[Seconds | None, "skip images after this time, counted from the first image."] = None
    fps: Annotated[Rate | None, "reduce to at most this many frames per second, evenly."] = None
    every: Annotated[Count, "take every n-th image only."] = 1
    pace: Annotated[
        Pace | None,
        "deliver frames as a camera would, at their own times (realtime) or at this many frames per second; unpaced "
        "delivers them as fast as the pipeline takes them. Default: unpaced; realtime under serve.",
    ] = None
    phase: Annotated[int | None, "seed of the pace's random phase; a number makes it the same in every run."] = None
    max_megapixels: Annotated[
        Megapixels,
        "a larger image becomes a failed frame, rejected by its header before memory is allocated; each pixel takes 5 "
        "bytes.",
    ] = MAX_MEGAPIXELS

    def __post_init__(self) -> None:
        """Check that `start` and `end` leave images to take."""
        self.pace = None if self.pace == "unpaced" else self.pace
        check_part(self.start, self.end)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            SourceError: there is no image or none was taken; or, after the last one, some could not be read.
        """
        from streamkit.media.expected import expected_frames
        from streamkit.media.find import picture_files
        from streamkit.media.pacing import Pacer
        from streamkit.media.upload import place
        from streamkit.ops.color import from_rgb

        context = self.context
        files = picture_files(self.uri)
        part = numbers(len(files), self.rate, self.start, self.end)
        whole = {"frames": len(files), "fps": self.rate, "duration_s": len(files) / self.rate}
        context.facts["expected_frames"] = expected_frames(
            whole, self.start, self.end, self.every, self.fps, turns(self.loop)
        )
        self._pacer = None if self.pace is None else Pacer(self.pace, 1 / self.rate, self.phase, context.id)
        broken: dict[str, str] = {}
        none = True
        with place(context.device) as put:
            for index, name, pts_s in sample_frames(self._looped(files, part), self.every, self.fps):
                none = False
                try:
                    rgb = read_rgb(name, self.max_megapixels)
                    surface = put(Surface(from_rgb(rgb, _JPEG), _JPEG))
                    frame = Frame(context.id, index, pts_s, rgb.shape[1], rgb.shape[0], surface)
                except SourceError as error:
                    context.counters.add("unreadable images")
                    broken[name] = str(error)
                    frame = Frame(context.id, index, pts_s, 0, 0, error=str(error))
                frame.epoch = (index - part.start) // len(part)
                if self._pacer is not None:
                    frame.due_s = self._pacer.due_s(index, frame.pts_s)
                    self._pacer.wait(frame.due_s)
                    if self._pacer.stopped:
                        return
                yield frame
                if self._pacer is not None:
                    self._pacer.follow(frame)
        if none:
            length_s = len(files) / self.rate
            what = f"the row of pictures ({len(files)})"
            raise nothing_taken(self.uri, what, length_s, self.start, self.end, self.every)
        if broken:
            more = f"; and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
            raise SourceError("; ".join(list(broken.values())[:_NAMED]) + more)

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self.pace is not None or self.loop is True

    def stop(self) -> None:
        """End a wait for a frame's time; thread-safe."""
        pacer: Pacer | None = getattr(self, "_pacer", None)
        if pacer is not None:
            pacer.stopped = True

    def _looped(self, files: list[str], part: range) -> Iterator[tuple[int, str, float]]:
        """Yield index, file and time of the images of every repetition; index and time keep increasing."""
        turns = itertools.count() if self.loop is True else range(int(self.loop) or 1)
        for index, number in enumerate((n for _ in turns for n in part) if part else (), part.start):
            yield index, files[number], index / self.rate
