"""Pictures as a source: a folder, a pattern or a single file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from streamkit.data import Color, Frame, Surface
from streamkit.errors import SourceError
from streamkit.image_file import MAX_MEGAPIXELS, read_rgb
from streamkit.media.thinning import check_part, nothing_taken, numbers, thinned
from streamkit.stage import Count, Seconds, Source, stage
from streamkit.stages.source import Rate
from streamkit.units import Unit

if TYPE_CHECKING:
    from streamkit.media.pacing import Pacer

_JPEG = Color("bt601", full_range=True, chroma_x=0.5, chroma_y=0.5)
_NAMED = 3
Megapixels = Annotated[float, Unit("megapixels", minimum=0.001)]
"""Millions of pixels."""


@stage("pictures", writes="pixels")
class Pictures(Source):
    """Take pictures (JPEG, PNG, BMP, TIFF, WebP) in the natural order of their names, 2 before 10.

    Each is turned upright as its EXIF data say. One that cannot be read becomes a frame that has failed; the others go
    on, and the source fails at the end.

    A frame's `index` is the picture's number, also where `start`, `every` or `fps` leave pictures out; on a loop index
    and time go on rising.

    Options:
        uri: a folder, a pattern such as shots/*.jpg or shots/%04d.png, or one file.
        rate: frames a second, for the frames' times.
        loop: take them again and again, or so many times.
        start: leave out what comes before, counted from the first picture.
        end: leave out what comes after, counted from the first picture.
        fps: thin out to at most so many frames a second, evenly.
        every: take every n-th picture only.
        pace: hand them out as a camera would, at their own times (realtime) or at so many frames a second.
        phase: the pace's phase is random; a number makes it the same in every run.
        max_megapixels: a larger picture is a frame that has failed, refused by its header before memory is taken for
            it; one pixel takes 5 bytes here.
    """

    uri: str
    rate: Rate = 1.0
    loop: bool | Count = False
    start: Seconds = 0.0
    end: Seconds | None = None
    fps: Rate | None = None
    every: Count = 1
    pace: Literal["realtime"] | Rate | None = None
    phase: int | None = None
    max_megapixels: Megapixels = MAX_MEGAPIXELS

    def __post_init__(self) -> None:
        """Refuse a part of the pictures that holds nothing."""
        check_part(self.start, self.end)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            SourceError: there is no picture or none was taken, or, after the last one, some could not be read.
        """
        from streamkit.media.find import picture_files
        from streamkit.media.pacing import Pacer
        from streamkit.media.upload import place
        from streamkit.ops.color import from_rgb

        context = self.context
        files = picture_files(self.uri)
        part = numbers(len(files), self.rate, self.start, self.end)
        self._pacer = None if self.pace is None else Pacer(self.pace, 1 / self.rate, self.phase, context.id)
        broken: dict[str, str] = {}
        none = True
        with place(context.device) as put:
            for index, name, pts_s in thinned(self._looped(files, part), self.every, self.fps):
                none = False
                try:
                    rgb = read_rgb(name, self.max_megapixels)
                    surface = put(Surface(from_rgb(rgb, _JPEG), _JPEG))
                    frame = Frame(context.id, index, pts_s, rgb.shape[1], rgb.shape[0], surface)
                except SourceError as error:
                    context.counters.add("pictures that cannot be read")
                    broken[name] = str(error)
                    frame = Frame(context.id, index, pts_s, 0, 0, error=str(error))
                frame.turn = (index - part.start) // len(part)
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
        """End a wait for a frame's time; any thread may call it."""
        pacer: Pacer | None = getattr(self, "_pacer", None)
        if pacer is not None:
            pacer.stopped = True

    def _looped(self, files: list[str], part: range) -> Iterator[tuple[int, str, float]]:
        """The index, file and time of the pictures of every turn; index and time go on rising."""
        turns = itertools.count() if self.loop is True else range(int(self.loop) or 1)
        for index, number in enumerate((n for _ in turns for n in part) if part else (), part.start):
            yield index, files[number], index / self.rate
