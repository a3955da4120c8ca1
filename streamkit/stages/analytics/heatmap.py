# SPDX-License-Identifier: Apache-2.0
"""`heatmap`: an image of where objects were."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from streamkit.analytics.heat import Heat, Palette, painted
from streamkit.analytics.per_source_steps import anchors
from streamkit.analytics.shapes import Anchor
from streamkit.core.data import Frame
from streamkit.core.errors import OutputError
from streamkit.core.stage import FrameStage, Score, Seconds, stage
from streamkit.core.units import Unit
from streamkit.io.outputs import AtomicFile, check_path, fill_path
from streamkit.ops.color import rgb

_FORMATS = (".png", ".jpg")
_LONGEST_S = 1.0  # maximum time that one detection adds, so that a gap in a live source makes no hot spot

Share = Annotated[float, Unit("share of the frame's height", minimum=0.001, maximum=1)]


@stage(
    "heatmap",
    reads=("pixels", "detections"),
    writes="events",
    classes=("labels",),
    emits=("saved",),
    changeable=("trigger",),
)
class Heatmap(FrameStage):
    """Write an image of where objects were: the longer at a place, the hotter, over a frame of the source.

    The file is written at the end of the source, after each interval `every`, and whenever `trigger` changes, which is
    possible while the pipeline runs. Each time `saved` is emitted with its path. Heat is weighted by time, not by
    frames, so it does not depend on the frame rate. No tracker is needed. Files are complete when they appear.
    """

    path: Annotated[str, 'the image, such as "out/{source}-heat.png", one per source; png or jpg.']
    labels: Annotated[tuple[str, ...], "map objects of these classes only; all classes by default."] = ()
    anchor: Annotated[Anchor, "the point of a box that counts; foot is the middle of its lower edge."] = "foot"
    radius: Annotated[Share, "how far an object heats its surroundings, as a share of the frame's height."] = 0.03
    opacity: Annotated[Score, "opacity of the colors at the hottest place; 1 hides the frame."] = 0.7
    background: Annotated[bool, "draw the source's frame below; if false, black, and no pixels are copied."] = True
    palette: Annotated[Palette, "from cold to hot: heat (red, yellow, white) or turbo (blue, green, red)."] = "turbo"
    every: Annotated[Seconds | None, "also write the image at this interval."] = None
    decay: Annotated[Seconds | None, "age at which heat counts a third (at twice, a ninth); by default never."] = None
    trigger: Annotated[int, "any number; a change while the pipeline runs writes the image."] = 0

    def __post_init__(self) -> None:
        """Check that the path is an image whose name differs for each source."""
        check_path(self.path)
        if "{source}" not in self.path:
            raise ValueError(f'path must have "{{source}}" in it: each source has its own image, got {self.path!r}')
        if not self.path.endswith(_FORMATS):
            raise ValueError(f"path must end in {' or '.join(_FORMATS)}, got {self.path!r}")
        for name in ("every", "decay"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name} must be longer than 0s, got {value:g}s")

    def open(self) -> None:
        """Reset all state."""
        self._heat: Heat | None = None
        self._below: np.ndarray | None = None
        self._source = ""
        self._last_s = 0.0
        self._written_s = 0.0
        self._requested = False

    def changed(self) -> None:
        """Write the image with the next frame: `trigger` has changed."""
        self._requested = True

    def process(self, frame: Frame) -> None:
        """Heat the places where objects are."""
        if self._heat is None:
            self._heat = Heat(self.radius)
            self._source = frame.source
            self._written_s = frame.pts_s
            self._last_s = frame.pts_s
        step_s = frame.pts_s - self._last_s
        if step_s < 0:  # the time went back
            self._written_s += step_s
        past_s = min(max(0.0, step_s), _LONGEST_S)
        self._last_s = frame.pts_s
        if self.decay is not None:
            self._heat.cool(past_s, self.decay)
        table = frame.detections
        if self.labels:
            table = table[np.array([name in self.labels for name in table.label], bool)]
        size = np.array([[frame.width, frame.height]], np.float64)
        self._heat.warm(anchors(table.xyxy.astype(np.float64), size, self.anchor) / size, past_s)
        due = self.every is not None and frame.pts_s - self._written_s >= self.every
        if self.background and frame.surface is not None and (self._below is None or due or self._requested):
            self._below = rgb(frame)
        self._shape = frame.height, frame.width
        if due or self._requested:
            self._written_s = frame.pts_s
            self._requested = False
            frame.emit("saved", path=self._write())

    def close(self) -> None:
        """Write the image; a source without a frame has none."""
        if self._heat is not None:
            self._write()
        self._heat = self._below = None

    def _write(self) -> str:
        import cv2

        assert self._heat is not None
        below = self._below if self._below is not None else np.zeros((*self._shape, 3), np.uint8)
        image = painted(below, self._heat, self.palette, self.opacity)
        path = fill_path(self.path, self._source)
        done, data = cv2.imencode(path[path.rindex(".") :], image[..., ::-1])
        if not done:
            raise OutputError(f"cannot write {path}: the image of shape {image.shape} cannot be encoded")
        AtomicFile(path).write(data.tobytes())
        return path
