"""A moving test pattern as a source: needs no file, and is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from streamkit.core.data import Color, Device, Frame
from streamkit.core.errors import SourceError
from streamkit.core.stage import Count, Seconds, Source, stage
from streamkit.core.text import did_you_mean
from streamkit.media.frame_sampling import check_part, nothing_taken, numbers, sample_frames
from streamkit.media.uris import mask, scheme
from streamkit.stages.sources.source import Pace, Rate

if TYPE_CHECKING:
    from streamkit.media.pacing import Pacer

_DEFAULTS = {"width": 640, "height": 360, "fps": 25.0, "frames": 250}
_BLACK, _WHITE, _STEP = 16, 235, 4
_COLOR = Color("bt601")


@stage("test_pattern", writes="pixels", has_pace=True)
class TestPattern(Source):
    """Generate frames with sliding gray bars, a colour gradient and a moving white box."""

    __test__ = False  # not one of pytest's

    uri: Annotated[
        str, '"test://?width=640&height=360&fps=25&frames=250", each parameter optional; frames=0 never ends.'
    ] = "test://"
    start: Annotated[Seconds, "skip frames before this time, counted from the first frame."] = 0.0
    end: Annotated[Seconds | None, "skip frames after this time, counted from the first frame."] = None
    fps: Annotated[Rate | None, "reduce to at most this many frames per second, evenly."] = None
    every: Annotated[Count, "take every n-th frame only."] = 1
    pace: Annotated[
        Pace | None,
        "deliver frames as a camera would, at their own times (realtime) or at this many frames per second; unpaced "
        "delivers them as fast as the pipeline takes them. Default: unpaced; realtime under serve.",
    ] = None
    phase: Annotated[int | None, "seed of the pace's random phase; a number makes it the same in every run."] = None

    def __post_init__(self) -> None:
        """Check the address's parameters, and that `start` and `end` leave frames to take."""
        self.pace = None if self.pace == "unpaced" else self.pace
        check_part(self.start, self.end)
        try:
            pattern_options(self.uri)
        except SourceError as error:
            raise ValueError(str(error)) from None

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            SourceError: no frame was taken.
        """
        from streamkit.media.expected import expected_frames
        from streamkit.media.pacing import Pacer
        from streamkit.media.surfaces import shared_pool
        from streamkit.media.upload import place

        context, want = self.context, pattern_options(self.uri)
        width, height, rate = int(want["width"]), int(want["height"]), want["fps"]
        paint = _Painter(width, height)
        host = shared_pool(Device("cpu"))
        self._pacer = None if self.pace is None else Pacer(self.pace, 1 / rate, self.phase, context.id)
        count = int(want["frames"]) or None
        every_one = ((n, None, n / rate) for n in numbers(count, rate, self.start, self.end))
        whole = {"frames": count, "fps": rate, "duration_s": None if count is None else count / rate}
        context.facts["expected_frames"] = expected_frames(whole, self.start, self.end, self.every, self.fps, 1)
        none = True
        with place(context.device) as put:
            for index, _, pts_s in sample_frames(every_one, self.every, self.fps):
                none = False
                surface = host.surface(width, height, _COLOR)
                paint(index, surface.data)
                frame = Frame(context.id, index, pts_s, width, height, put(surface))
                del surface
                if self._pacer is not None:
                    frame.due_s = self._pacer.due_s(index, frame.pts_s)
                    self._pacer.wait(frame.due_s)
                    if self._pacer.stopped:
                        return
                yield frame
                if self._pacer is not None:
                    self._pacer.follow(frame)
        if none:
            length_s = None if count is None else count / rate
            raise nothing_taken(mask(self.uri), "the pattern", length_s, self.start, self.end, self.every)

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self.pace is not None or (self.end is None and not pattern_options(self.uri)["frames"])

    def stop(self) -> None:
        """End a wait for a frame's time; thread-safe."""
        pacer: Pacer | None = getattr(self, "_pacer", None)
        if pacer is not None:
            pacer.stopped = True


def pattern_options(uri: str) -> dict[str, float]:
    """Parse width, height, fps and frames of a `test://` address.

    Raises:
        SourceError: an unknown parameter, anything else after test://, or a value out of range.
    """
    found: dict[str, float] = dict(_DEFAULTS)
    parts = urlsplit(uri)
    word = (parts.netloc + parts.path).strip("/")
    if scheme(uri) != "test" or word or parts.fragment:
        way = did_you_mean(word.partition("=")[0], found)
        raise SourceError(f"{mask(uri)}: after test:// come only parameters, as in test://?width=640&height=360{way}")
    for name, text in parse_qsl(urlsplit(uri).query, keep_blank_values=True):
        if name not in found:
            raise SourceError(f"{mask(uri)}: a test pattern has no parameter {name!r}, only {', '.join(found)}")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        low = {"width": 2, "height": 2, "fps": 0.001, "frames": 0}[name]
        if not low <= value <= 1e9 or (name != "fps" and value != int(value)):
            raise SourceError(f"{mask(uri)}: {name} must be a number from {low} up, got {text!r}")
        found[name] = value
    return found


class _Painter:
    """Paints frame `index` by sliding over arrays made once."""

    def __init__(self, width: int, height: int) -> None:
        import numpy as np

        from streamkit.ops.planes import nv12_shape

        rows, columns = nv12_shape(width, height)
        self._rows, self._columns = rows * 2 // 3, columns
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
