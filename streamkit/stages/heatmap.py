"""`heatmap`: where objects are, as a picture."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np

from streamkit.analytics.heat import Heat, Palette, painted
from streamkit.analytics.rounds import anchors
from streamkit.analytics.shapes import Anchor
from streamkit.data import Frame
from streamkit.errors import OutputError
from streamkit.outputs import WholeFile, check_path, fill_path, output_error
from streamkit.stage import FrameStage, Score, Seconds, stage
from streamkit.units import Unit

_FORMATS = (".png", ".jpg")
_LONGEST_S = 1.0  # what one sight of an object counts at most, so that a gap in a live source is no hot spot

Share = Annotated[float, Unit("share of the picture's height", minimum=0.001, maximum=1)]


@stage("heatmap", reads=("pixels", "detections"), writes="events")
class Heatmap(FrameStage):
    """Write a picture of where objects were: the longer at a place, the hotter, on the source's own.

    The file appears whole at the source's end, after every `every`, and whenever `now` gets another number, which can
    be done while the pipeline runs; `mapped` then says its path. Time counts, not frames: a change of frame rate
    changes nothing, and nothing has to be tracked.

    Options:
        path: the picture, such as "out/{source}-heat.png", one for each source; png or jpg.
        labels: map objects of these classes only; all if left out.
        anchor: the point of a box that counts: foot (middle of the lower edge), center, top, left, right.
        radius: how far an object warms its surroundings, as a share of the picture's height.
        opacity: how strong the colours lie on the picture at the hottest place; 1 hides it.
        background: the source's picture below the colours; without it they are on black, and no pixels are fetched.
        palette: from cold to hot: heat (dark red over yellow to white), or turbo (blue over green to red).
        every: write the picture after every so many seconds too.
        forget: what is this old counts a third, what is twice as old a ninth; if left out nothing is forgotten.
        now: any number; when it changes while the pipeline runs, the picture is written.
    """

    classes: ClassVar[tuple[str, ...]] = ("labels",)
    emits = ("mapped",)
    changeable = ("now",)

    path: str
    labels: tuple[str, ...] = ()
    anchor: Anchor = "foot"
    radius: Share = 0.03
    opacity: Score = 0.7
    background: bool = True
    palette: Palette = "turbo"
    every: Seconds | None = None
    forget: Seconds | None = None
    now: int = 0

    def __post_init__(self) -> None:
        """Refuse a path that is no picture's, or that sources would share."""
        check_path(self.path)
        if "{source}" not in self.path:
            raise ValueError(f'path must have "{{source}}" in it, since each source has a picture, got {self.path!r}')
        if not self.path.endswith(_FORMATS):
            raise ValueError(f"path must end in {' or '.join(_FORMATS)}, got {self.path!r}")
        for name in ("every", "forget"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name} must be longer than 0s, got {value:g}s")

    def open(self) -> None:
        """Begin with nothing."""
        self._heat: Heat | None = None
        self._below: np.ndarray | None = None
        self._source, self._last_s, self._written_s, self._asked = "", 0.0, 0.0, False

    def changed(self) -> None:
        """`now` has changed: write the picture with the next frame."""
        self._asked = True

    def process(self, frame: Frame) -> None:
        """Warm the places where objects are."""
        if self._heat is None:
            self._heat, self._source, self._written_s = Heat(self.radius), frame.source, frame.pts_s
            self._last_s = frame.pts_s
        step_s = frame.pts_s - self._last_s
        if step_s < 0:  # time went back, which itself takes none
            self._written_s += step_s
        past_s = min(max(0.0, step_s), _LONGEST_S)
        self._last_s = frame.pts_s
        if self.forget is not None:
            self._heat.cool(past_s, self.forget)
        table = frame.detections
        if self.labels:
            table = table[np.array([name in self.labels for name in table.label], bool)]
        size = np.array([[frame.width, frame.height]], np.float64)
        self._heat.warm(anchors(table.xyxy.astype(np.float64), size, self.anchor) / size, past_s)
        due = self.every is not None and frame.pts_s - self._written_s >= self.every
        if self.background and frame.surface is not None and (self._below is None or due or self._asked):
            self._below = frame.rgb()
        self._shape = frame.height, frame.width
        if due or self._asked:
            self._written_s, self._asked = frame.pts_s, False
            frame.emit("mapped", path=self._write())

    def close(self) -> None:
        """Write the picture; a source without a frame has none."""
        if self._heat is not None:
            self._write()
        self._heat = self._below = None

    def _write(self) -> str:
        import cv2

        assert self._heat is not None
        below = self._below if self._below is not None else np.zeros((*self._shape, 3), np.uint8)
        picture = painted(below, self._heat, self.palette, self.opacity)
        path = fill_path(self.path, self._source)
        file = WholeFile(path)
        part = file.begin()
        done, data = cv2.imencode(path[path.rindex(".") :], picture[..., ::-1])
        try:
            if not done:
                raise OutputError(f"cannot write {path}: the picture of {picture.shape} cannot be encoded")
            part.write_bytes(data.tobytes())
        except OSError as error:
            file.discard()
            raise output_error(path, error) from error
        file.finish()
        return path
