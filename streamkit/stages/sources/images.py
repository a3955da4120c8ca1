# SPDX-License-Identifier: Apache-2.0
"""Still images as a source: a folder, a pattern or a single file."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from typing import Annotated

from streamkit.core.data import Color, Frame, Surface
from streamkit.core.errors import SourceError
from streamkit.core.stage import Count, stage
from streamkit.core.units import Unit
from streamkit.io.image_file import MAX_MEGAPIXELS, read_rgb
from streamkit.media.frame_sampling import frame_range, sample_frames
from streamkit.media.source_resolver import image_files
from streamkit.media.surfaces import uploader
from streamkit.ops.color import from_rgb
from streamkit.stages.sources.source import PacedSource, Rate, turns

_JPEG = Color("bt601", full_range=True, chroma_x=0.5, chroma_y=0.5)
_NAMED = 3
Megapixels = Annotated[float, Unit("megapixels", minimum=0.001)]
"""Millions of pixels."""


@stage("images")
class ImageSource(PacedSource):
    """Read images (JPEG, PNG, BMP, TIFF, WebP) in the natural order of their names, 2 before 10.

    Each is rotated as its EXIF data say. An image that cannot be read becomes a failed frame; the others are still
    processed, and the source fails at the end.

    A frame's `index` is the image's number, also if `start`, `every` or `fps` leave images out; on a loop, index and
    time keep increasing.
    """

    uri: Annotated[str, "a folder, a pattern such as shots/*.jpg or shots/%04d.png, or one file."]
    rate: Annotated[Rate, "frames per second, for the frames' times."] = 1.0
    loop: Annotated[bool | Count, "repeat forever, or this many times."] = False
    max_megapixels: Annotated[
        Megapixels,
        "a larger image becomes a failed frame, rejected by its header before memory is allocated; each pixel takes 5 "
        "bytes.",
    ] = MAX_MEGAPIXELS

    def first_frame_size(self) -> tuple[int, int]:
        """See `Source.first_frame_size`."""
        height, width, _ = read_rgb(image_files(self.uri)[0], self.max_megapixels).shape
        return width, height

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            SourceError: there is no image or none was taken; or, after the last one, some could not be read.
        """
        files = image_files(self.uri)
        whole = {"frames": len(files), "fps": self.rate, "duration_s": len(files) / self.rate}
        self.expect(whole, turns(self.loop))
        yield from self.paced(self._read(files), 1 / self.rate)

    def _read(self, files: list[str]) -> Generator[Frame]:

        context = self.context
        part = frame_range(len(files), self.rate, self.start, self.end)
        broken: dict[str, str] = {}
        none = True
        with uploader(context.device) as put:
            for index, name, pts_s in sample_frames(self._repeated(files, part), self.every, self.fps):
                none = False
                try:
                    rgb = read_rgb(name, self.max_megapixels)
                    surface = put(Surface(from_rgb(rgb, _JPEG), _JPEG))
                    frame = Frame(context.id, index, pts_s, rgb.shape[1], rgb.shape[0], surface)
                except SourceError as error:
                    context.counters.add("unreadable images")
                    broken[name] = str(error)
                    frame = Frame(context.id, index, pts_s, 0, 0, error=str(error))
                frame._state.epoch = (index - part.start) // len(part)
                frame._state.shape_size = frame.width, frame.height  # each image stands for itself
                yield frame
        if none:
            raise self.nothing(f"the sequence of images ({len(files)})", len(files) / self.rate)
        if broken:
            more = f"; and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
            raise SourceError("; ".join(list(broken.values())[:_NAMED]) + more)

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self.pace is not None or self.loop is True

    def _repeated(self, files: list[str], part: range) -> Iterator[tuple[int, str, float]]:
        """Yield index, file and time of the images of every repetition; index and time keep increasing."""
        repeats = itertools.count() if self.loop is True else range(int(self.loop) or 1)
        for index, number in enumerate((n for _ in repeats for n in part) if part else (), part.start):
            yield index, files[number], index / self.rate
