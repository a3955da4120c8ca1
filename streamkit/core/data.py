# SPDX-License-Identifier: Apache-2.0
"""The data of a pipeline: frames, batches and events.

Arrays are NumPy arrays on the host or CuPy arrays on a GPU; `array_module` tells which. Nothing here copies between
host and device, does I/O, or depends on a model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.crops import Crops, LazyOutputs, picked_rows
from streamkit.core.delegation import functions
from streamkit.core.detections import (
    Array,
    Detections,
    Skeleton,
    array_module,
    label_counts,
    merge,
    shape_text,
)
from streamkit.core.dlpack import DLPackArray, Nv12Planes
from streamkit.core.frame_map import FrameMap
from streamkit.core.surface import Color, Surface
from streamkit.core.tracing import SampledBatch

__all__ = [
    "Array",
    "Batch",
    "Color",
    "Detections",
    "Device",
    "Event",
    "EventFilter",
    "Frame",
    "FrameMap",
    "Shown",
    "Skeleton",
    "Surface",
    "array_module",
    "merge",
]

# ------------------------------------------------------------------------------------------------ events and frames

SQUARE = Fraction(1)
"""The pixel aspect ratio of most videos."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event at one frame.

    Attributes:
        kind: what happened, a past participle: `crossed`, `entered`.
        stage: the id of the stage that emits it.
        source: the frame's source.
        frame: the frame's index in its source.
        pts_s: the frame's presentation time in seconds.
        track_id: the object's track, or None.
        data: further values, JSON types.
        key: identifies the event where branches merge, even if one branch has added to its data.
    """

    kind: str
    stage: str
    source: str
    frame: int
    pts_s: float
    track_id: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    key: object = field(default_factory=object, compare=False, repr=False)


class EventFilter:
    """The events that an option such as `when` names: STAGE.KIND, or STAGE for all events of a stage.

    Of one of several rules in a stage: STAGE.RULE.KIND, or STAGE.RULE for all events of the rule.

    Args:
        when: one name, several names, or None for no event.
    """

    def __init__(self, when: str | Collection[str] | None) -> None:
        self._names = frozenset([when] if isinstance(when, str) else when or ())

    def __contains__(self, event: Event) -> bool:
        if event.stage in self._names or f"{event.stage}.{event.kind}" in self._names:
            return True
        if "rule" not in event.data:
            return False
        rule = f"{event.stage}.{event.data['rule']}"
        return rule in self._names or f"{rule}.{event.kind}" in self._names


@dataclass(frozen=True, slots=True)
class Shown:
    """A line, a zone or a trail on one frame, for `draw`.

    Attributes:
        points: the corners (x, y), in `units`.
        units: `pixels` of the source, or `share` of the frame's width and height.
        closed: the last point is joined to the first.
        text: the label; empty for none.
        class_id: the class of the object that leaves the trail; None for lines and zones.
        track_id: that object's track.
        label: the name of that class.
    """

    points: tuple[tuple[float, float], ...]
    units: str = "pixels"
    closed: bool = False
    text: str = ""
    class_id: int | None = None
    track_id: int = -1
    label: str = ""


@dataclass(slots=True, eq=False)
class FrameState:
    """What the runner and built-in stages record about a frame; not for plugins.

    Attributes:
        position: the frame's position in its batch when the batch was formed.
        stage: the id of the stage that is processing the frame.
        counters: that stage's counters.
        source_state: the runner's `SourceState` of the frame's source; None until the runner has read the frame.
        packet_ref: the `media.ring.PacketRef` of the packet it was decoded from, if packets are kept.
        ordinal: the number of frames of its source that entered the graph before it; dropped frames do not count.
        epoch: how often its source restarted before it, as a looped file does.
        skipped_detectors: ids of detectors that did not process the frame: their empty tables mean nothing.
        decoded_ns: when its decoding began and ended, in ns since 1970; None unless batches are traced.
        closing: whether its source has at most one more frame, which waits for late results; see `SourceReader`.
        shape_size: width and height of its source's first frame, whose pixels the YAML's shapes are in; None if shapes
            are in this frame's own pixels.
    """

    position: int = 0
    stage: str = ""
    counters: Counters | None = None
    source_state: Any = None
    packet_ref: Any = None
    ordinal: int = 0
    epoch: int = 0
    skipped_detectors: frozenset[str] = frozenset()
    decoded_ns: tuple[int, int] | None = None
    closing: bool = False
    shape_size: tuple[int, int] | None = None

    def copy(self) -> FrameState:
        """A copy; positional, because every fork makes one."""
        return FrameState(
            self.position,
            self.stage,
            self.counters,
            self.source_state,
            self.packet_ref,
            self.ordinal,
            self.epoch,
            self.skipped_detectors,
            self.decoded_ns,
            self.closing,
            self.shape_size,
        )


_NEW = FrameState()


@dataclass(slots=True, repr=False)
class Frame:
    """One frame of one source, with the results of the stages.

    Attributes:
        source: the source's id.
        index: the frame's number in its source, from 0.
        pts_s: presentation time in seconds, as given by the source.
        width: width in pixels (a surface may be padded by one column).
        height: height in pixels.
        surface: the image, or None.
        time_s: wall-clock time of arrival, in seconds since 1970; live sources only.
        due_s: when the frame was due, on the monotonic clock in seconds; paced and live sources only.
        tables: the frame's detections by the id of the detector; filled for host stages.
        events: the events so far.
        facts: values about the whole frame, by their key in the record; JSON types.
        shown: lines, zones and trails for `draw`; keys begin with the stage's id.
        error: why the frame failed, or None. Later stages skip a failed frame; sinks receive it.
        damaged: whether its data was damaged or incomplete, and the decoder concealed it.
        pixel_aspect: width of a pixel divided by its height, as stored in the video; boxes and shapes are in pixels.
        maps: depth and anomaly maps by the id of their stage, on the device; not in records.
    """

    source: str
    index: int
    pts_s: float
    width: int
    height: int
    surface: Surface | None = None
    time_s: float | None = None
    due_s: float | None = None
    tables: dict[str, Detections] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Shown] = field(default_factory=dict)
    error: str | None = None
    damaged: bool = False
    pixel_aspect: Fraction = SQUARE
    maps: dict[str, FrameMap] = field(default_factory=dict)
    _state: FrameState = field(default=_NEW, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        state = self._state  # a frame made by `dataclasses.replace` has that of the other
        self._state = FrameState() if state is _NEW else state.copy()

    @property
    def shape_scale(self) -> tuple[float, float]:
        """Factors, for x and y, from coordinates in the YAML, such as a zone in pixels, to pixels of this frame.

        Shapes belong to the first frame of the source. If a camera switches from 320x240 to 640x480, the factors are 2
        from then on; they are 1 as long as the size stays the same.
        """
        size = self._state.shape_size
        return (1.0, 1.0) if size is None else (self.width / size[0], self.height / size[1])

    @property
    def detections(self) -> Detections:
        """The frame's objects; those of all detectors if there are several.

        Assign to it to change or remove rows; with several detectors, assign to `tables[name]`.
        """
        if len(self.tables) == 1:
            return next(iter(self.tables.values()))
        return Detections.concat(list(self.tables.values())) if self.tables else Detections.empty()

    @detections.setter
    def detections(self, table: Detections) -> None:
        if len(self.tables) > 1:
            raise ValueError(
                f"this frame has the tables {', '.join(self.tables)}: assign to frame.tables[name], not detections"
            )
        if not isinstance(table, Detections):
            raise TypeError(f"frame.detections must be a Detections, got {type(table).__name__}")
        self.tables = {next(iter(self.tables), self._state.stage or "detect"): table}

    def emit(self, kind: str, track_id: int | None = None, **data: Any) -> None:
        """Add an event to the frame; it is in the frame's record and reaches every sink."""
        track_id = None if track_id is None else int(track_id)
        self.events.append(Event(kind, self._state.stage, self.source, self.index, self.pts_s, track_id, data))

    def image(self, order: Literal["rgb", "bgr"] = "rgb") -> np.ndarray:
        """The image as a new (height, width, 3) uint8 NumPy array on the host.

        It is a copy: painting on it does not change the frame. From a GPU, the summary counts it as `pixels to host`.

        Args:
            order: the order of the channels; `bgr` for OpenCV.

        Raises:
            ValueError: the frame has no pixels, or `order` is unknown.
        """
        return functions().image(self, order)

    def rgb(self) -> DLPackArray:
        """The image as (height, width, 3) uint8 RGB on the frame's device, for `torch.from_dlpack` and others.

        Returns:
            A new `streamkit.ops.tensors.PixelTensor`; on a GPU a kernel makes it, and no pixel is copied to the host.

        Raises:
            ValueError: the frame has no pixels.
        """
        tensor: DLPackArray = functions().rgb_tensor(self)
        return tensor

    def nv12(self) -> Nv12Planes:
        """The planes as the decoder wrote them, on the frame's device, without a copy. Do not write to them.

        Returns:
            `y` (height, width) uint8; `uv` (ceil(height / 2), ceil(width / 2), 2)
            uint8, Cb and Cr; and `color`. The surface returns to its pool when the last array made from them is gone.

        Raises:
            ValueError: the frame has no pixels.
        """
        planes: Nv12Planes = functions().nv12_planes(self)
        return planes

    def record(self) -> dict[str, Any]:
        """The frame as the dict that the sink `jsonl` writes, schema `streamkit/1`."""
        return functions().record(self)

    def _fork(self) -> Frame:
        """A copy for another branch: changes there do not affect this one. They share the image."""
        return Frame(  # positional and without `dataclasses.replace`, because every frame of a branch makes one
            self.source,
            self.index,
            self.pts_s,
            self.width,
            self.height,
            self.surface,
            self.time_s,
            self.due_s,
            dict(self.tables),
            list(self.events),
            dict(self.facts),
            dict(self.shown),
            self.error,
            self.damaged,
            self.pixel_aspect,
            self.maps.copy(),
            _state=self._state,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Frame:
        """Copy all but the image, the packet and the state of the source."""
        events = [replace(event, data=copy.deepcopy(event.data, memo)) for event in self.events]
        tables, facts = copy.deepcopy((self.tables, self.facts), memo)
        copied = memo[id(self)] = replace(
            self, tables=tables, events=events, facts=facts, shown=dict(self.shown), maps=dict(self.maps)
        )
        return copied

    def __repr__(self) -> str:
        objects = ", ".join(label_counts(list(self.tables.values()))) or "no objects"
        return (
            f"Frame({self.source!r}, index={self.index}, pts_s={self.pts_s:.3f}, {self.width}x{self.height}, "
            f"{objects}, {len(self.events)} event{'s' * (len(self.events) != 1)}"
            + ("" if self.surface is not None else ", no pixels")
            + (f", error={self.error!r})" if self.error else ")")
        )

    def _repr_html_(self) -> str:
        """What notebooks show: a small image with the objects drawn, and a table of them."""
        return functions().html(self)


@dataclass(slots=True, repr=False)
class Batch:
    """Frames of any sources that go through the graph together.

    Attributes:
        frames: the frames without an error, in order of arrival; row i of arrays and tables is `frames[i]`.
        xp: `numpy`, or `cupy` on a GPU.
        tensor: (B, 3, H, W) or (B, H, W, 3), between preprocess and infer; B may be larger than `frames` (padding).
            With more crops than fit in one run, and on a GPU, `infer` gets a `crops.LazyRows`, which creates rows on
            demand; other stages get an array.
        geometry: (n, 4) float32 on the host, each frame's scale_x, scale_y, offset_x, offset_y:
            network pixel = source pixel x scale + offset.
        outputs: the network's outputs by name, between infer and postprocess, on the batch's device. With more crops
            than fit in one run, they are `crops.LazyOutputs`, which makes those of one run at a time.
        rows: (r,) int32 on the host, ascending: the frame of each row of tensor, geometry and outputs, if rows are
            parts of frames (tiles, objects) and a frame may have any number of them; None if row i is frame i.
        crops: within a composite with `of:`, the rectangles that the rows show; see `streamkit/core/crops.py`.
        prompts: the prompt of each class of the outputs, empty text for a class without; () for a network without.
        tables: detections by the id of the detector. A value may be a function that returns a table which is still
            being copied from the device; `table(name)` waits for it.
        sequence: the batch's number, from 0.
        failed: frames on which a stage failed; they have no rows.
        ended: sources that end with this batch.
        ready: a CUDA event that signals that the arrays are written, or None if they are.
        lines: `core/records.py:batch_lines` of the frames, if a sink has made them and no stage has run since.
        trace: its trace, if it was chosen to be traced.
    """

    frames: list[Frame]
    xp: Any = np
    tensor: Array | None = None
    geometry: np.ndarray | None = None
    outputs: dict[str, Array] = field(default_factory=dict)
    tables: dict[str, Detections | Callable[[], Detections]] = field(default_factory=dict)
    sequence: int = 0
    failed: list[Frame] = field(default_factory=list)
    ended: tuple[str, ...] = ()
    ready: Any = None
    rows: np.ndarray | None = None
    crops: Crops | None = None
    lines: list[bytes] | None = None
    trace: SampledBatch | None = None
    prompts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frames)

    def table(self, name: str) -> Detections:
        """The table of detector `name`; waits if it is still being copied from the device."""
        table = self.tables[name]
        if not isinstance(table, Detections):
            table = self.tables[name] = table()
        return table

    def fork(self) -> Batch:
        """A copy for another branch: changes there do not affect this one."""
        return replace(
            self,
            frames=[frame._fork() for frame in self.frames],
            failed=[frame._fork() for frame in self.failed],
            outputs=dict(self.outputs),
            tables=dict(self.tables),
        )

    def take(self, rows: Sequence[int]) -> Batch:
        """A batch of the frames in `rows` with their rows of arrays and tables, without `failed` and `ended`."""
        index = np.asarray(rows, dtype=np.intp)
        tables: dict[str, Detections | Callable[[], Detections]] = {}
        new_row = np.full(len(self.frames), -1, np.int32)
        new_row[index] = np.arange(len(index), dtype=np.int32)
        for name in self.tables:
            table = self.table(name)
            rows_of_table = table[new_row[table.batch_row] >= 0]
            tables[name] = rows_of_table.with_columns(batch_row=new_row[rows_of_table.batch_row])
        tensor_rows = index if self.rows is None else np.concatenate([np.flatnonzero(self.rows == row) for row in rows])
        return Batch(
            [self.frames[row] for row in rows],
            self.xp,
            None if self.tensor is None else picked_rows(self.tensor, tensor_rows),
            None if self.geometry is None else self.geometry[tensor_rows],
            self.outputs.take(tensor_rows)
            if isinstance(self.outputs, LazyOutputs)
            else {name: output[tensor_rows] for name, output in self.outputs.items()},
            tables,
            self.sequence,
            rows=None if self.rows is None else new_row[self.rows[tensor_rows]],
            crops=None if self.crops is None else self.crops.take(tensor_rows),
            prompts=self.prompts,
        )

    @staticmethod
    def join(parts: Sequence[Batch], like: Batch) -> Batch:
        """Join batches of single frames that `take` split from `like`."""
        first = parts[0]
        xp = like.xp
        used = [1 if part.rows is None else len(part.rows) for part in parts]  # the rows after them are padding
        tensors = [part.tensor[:n] for part, n in zip(parts, used, strict=True) if part.tensor is not None]
        return Batch(
            [frame for part in parts for frame in part.frames],
            xp,
            xp.concatenate(tensors) if tensors else None,
            None if first.geometry is None else np.concatenate([p.geometry for p in parts]),  # type: ignore[misc]
            {
                name: xp.concatenate([p.outputs[name][:n] for p, n in zip(parts, used, strict=True) if p.outputs])
                for name in next((part.outputs for part in parts if part.outputs), {})
            },
            {
                name: Detections.concat([part.table(name) for part in parts], rows=range(len(parts)), exact=True)
                for name in first.tables
            },
            like.sequence,
            like.failed,
            like.ended,
            rows=None if first.rows is None else np.repeat(np.arange(len(parts), dtype=np.int32), used),
            crops=Crops.join([part.crops for part in parts]),
            prompts=first.prompts,
        )

    def __repr__(self) -> str:
        return (
            f"Batch({len(self.frames)} frames, tensor={shape_text(self.tensor)}, tables={list(self.tables)}, "
            f"sequence={self.sequence})"
        )


# ---------------------------------------------------------------------------------------------------------- devices


@dataclass(frozen=True, slots=True)
class Device:
    """The device of a pipeline's arrays: host memory or one CUDA GPU."""

    kind: Literal["cpu", "cuda"] = "cpu"
    index: int = 0

    @property
    def xp(self) -> Any:
        """The array module: `numpy`, or `cupy` on a GPU."""
        if self.kind == "cpu":
            return np
        import cupy

        return cupy

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"
