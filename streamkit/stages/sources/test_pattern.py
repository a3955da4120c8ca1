# SPDX-License-Identifier: Apache-2.0
"""A moving test pattern as a source: needs no file, and is the same in every run."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from streamkit.core.data import Color, Device, Frame
from streamkit.core.errors import SourceError
from streamkit.core.stage import stage
from streamkit.core.text import did_you_mean
from streamkit.media.frame_sampling import frame_range, sample_frames
from streamkit.media.surfaces import shared_pool, uploader
from streamkit.media.uris import mask, scheme
from streamkit.ops.planes import nv12_shape
from streamkit.stages.sources.source import PacedSource

_DEFAULTS = {"width": 640, "height": 360, "fps": 25.0, "frames": 250}
_LARGEST = 16_384  # pixels of a side; a frame of that size takes 400 MB
_ENDLESS = 10**9
_BOUNDS = {"width": (2, _LARGEST), "height": (2, _LARGEST), "fps": (0.001, _ENDLESS), "frames": (0, _ENDLESS)}
_BLACK = 16
_WHITE = 235
_STEP = 4
_COLOR = Color("bt601")


@stage("test_pattern")
class TestPattern(PacedSource):
    """Generate frames with sliding gray bars, a color gradient and a moving white box."""

    __test__ = False  # not one of pytest's

    uri: Annotated[
        str, '"test://?width=640&height=360&fps=25&frames=250", each parameter optional; frames=0 never ends.'
    ] = "test://"

    def __post_init__(self) -> None:
        """Check the address's parameters, and that `start` and `end` leave frames to take."""
        super().__post_init__()
        try:
            pattern_options(self.uri)
        except SourceError as error:
            raise ValueError(str(error)) from None

    def first_frame_size(self) -> tuple[int, int]:
        """See `Source.first_frame_size`."""
        parameters = pattern_options(self.uri)
        return int(parameters["width"]), int(parameters["height"])

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            SourceError: no frame was taken.
        """
        parameters = pattern_options(self.uri)
        count = int(parameters["frames"]) or None
        rate = parameters["fps"]
        whole = {"frames": count, "fps": rate, "duration_s": None if count is None else count / rate}
        self.expect(whole)
        yield from self.paced(self._painted(parameters, whole), 1 / rate)

    def _painted(self, parameters: dict[str, float], whole: dict[str, Any]) -> Generator[Frame]:

        context = self.context
        rate = parameters["fps"]
        width = int(parameters["width"])
        height = int(parameters["height"])
        paint = _Painter(width, height)
        host = shared_pool(Device("cpu"))
        times = ((n, None, n / rate) for n in frame_range(whole["frames"], rate, self.start, self.end))
        none = True
        with uploader(context.device) as put:
            for index, _, pts_s in sample_frames(times, self.every, self.fps):
                none = False
                surface = host.surface(width, height, _COLOR)
                paint(index, surface.data)
                frame = Frame(context.id, index, pts_s, width, height, put(surface))
                del surface
                yield frame
        if none:
            raise self.nothing("the pattern", whole["duration_s"])

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self.pace is not None or (self.end is None and not pattern_options(self.uri)["frames"])


def pattern_options(uri: str) -> dict[str, float]:
    """Parse width, height, fps and frames of a `test://` address.

    Raises:
        SourceError: an unknown parameter, anything else after test://, or a value out of range.
    """
    options: dict[str, float] = dict(_DEFAULTS)
    parts = urlsplit(uri)
    word = (parts.netloc + parts.path).strip("/")
    if scheme(uri) != "test" or word or parts.fragment:
        hint = did_you_mean(word.partition("=")[0], options)
        raise SourceError(f"{mask(uri)}: after test:// come only parameters, as in test://?width=640&height=360{hint}")
    for name, text in parse_qsl(urlsplit(uri).query, keep_blank_values=True):
        if name not in options:
            raise SourceError(f"{mask(uri)}: a test pattern has no parameter {name!r}, only {', '.join(options)}")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        low, high = _BOUNDS[name]
        if not low <= value <= high or (name != "fps" and value != int(value)):
            span = f"from {low} up" if high == _ENDLESS else f"from {low} to {high}"
            raise SourceError(f"{mask(uri)}: {name} must be a number {span}, got {text!r}")
        options[name] = value
    return options


class _Painter:
    """Paints a frame: slices of arrays that are made once, shifted by the index."""

    def __init__(self, width: int, height: int) -> None:
        import numpy as np

        rows, columns = nv12_shape(width, height)
        self._rows = rows * 2 // 3
        self._columns = columns
        bars = _BLACK + (np.arange(columns + 256) % 256) * (_WHITE - _BLACK) // 255
        self._bars = np.broadcast_to(bars.astype(np.uint8), (self._rows, columns + 256))
        chroma: Any = np.empty((self._rows // 2, columns // 2, 2), np.uint8)
        chroma[..., 0] = np.linspace(64, 192, columns // 2)
        chroma[..., 1] = np.linspace(192, 64, self._rows // 2)[:, None]
        self._chroma = chroma.reshape(self._rows // 2, columns)
        self._box = max(2, min(width, height) // 8)

    def __call__(self, index: int, out: Any) -> None:
        shift = index * _STEP % 256
        out[: self._rows] = self._bars[:, shift : shift + self._columns]
        out[self._rows :] = self._chroma
        x = index * _STEP % max(1, self._columns - self._box)
        y = index * _STEP // 2 % max(1, self._rows - self._box)
        out[y : y + self._box, x : x + self._box] = _WHITE
