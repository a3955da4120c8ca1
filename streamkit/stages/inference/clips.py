# SPDX-License-Identifier: Apache-2.0
"""Clips: the frames that a network with a time axis takes at once, of a source or of each track.

`select` chooses every `stride`-th frame, and numbers the clips and their frames. `clips` keeps the network's input rows
of these frames in rings on the device, and passes on the clips that are due. A clip begins again where the source
restarts or jumps back in time, and after a gap; `select` says so by a new number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np

from streamkit.core.batch_buckets import steps
from streamkit.core.crops import ClipSamples, Crops
from streamkit.core.data import Array, Batch, Detections, Frame
from streamkit.core.logs import LogOnce
from streamkit.core.stage import Bytes, Count, Pixels, Score, Seconds, StreamStage
from streamkit.core.surface import Color, Surface
from streamkit.core.units import Of
from streamkit.models.card_option import Model
from streamkit.models.network import check_model, inspect
from streamkit.ops.boxes import crop_rects
from streamkit.ops.clip_frames import ClipFrames
from streamkit.ops.letterbox import InputSpec
from streamkit.stages.inference.preprocess import run_sizes
from streamkit.stages.inference.select_objects import (
    TOO_SMALL,
    UNTRACKED,
    WHOLE_FRAME,
    frame_sizes,
    members,
    visible_sides,
)

logger = logging.getLogger(__name__)

INFERRED = "clips inferred"
TOO_SHORT = "clips that ended before they were complete"
NO_MEMORY = "clips without memory"
WHOLE_SOURCE = -1
"""The track of a clip of whole frames."""

Stride = Annotated[Count, "frames of the video from one frame of a clip to the next; 1 takes each."]
MaxFrameGap = Annotated[
    Seconds,
    "a clip begins again, and its label ends, where a source has no frame, or a track is not seen, for longer.",
]
MaxMemory = Annotated[
    Bytes, "maximum memory of the frames that are kept; tracks for which there is no room are skipped, and counted."
]


@dataclass(slots=True)
class SourceClock:
    """The last frame of a source."""

    pts_s: float = -np.inf
    epoch: int = 0

    def is_broken_by(self, frame: Frame, max_frame_gap: float) -> bool:
        """Note a frame; return whether the source restarted, jumped back or paused before it."""
        elapsed_s = frame.pts_s - self.pts_s
        epoch = frame._state.epoch
        broken = epoch != self.epoch or not 0 <= elapsed_s <= max_frame_gap
        self.pts_s = frame.pts_s
        self.epoch = epoch
        return broken


@dataclass(slots=True)
class _OpenClip:
    """A clip that gets frames.

    Attributes:
        number: its number within the source.
        seen_s: when its track was last seen.
        length: number of its frames so far.
        ordinal: number of the source's frame that it got last.
    """

    number: int
    seen_s: float
    length: int = 0
    ordinal: int = 0


@dataclass(slots=True)
class _SourceClips:
    """The clips of a source, by track.

    Attributes:
        count: number of clips so far.
        open_numbers: the numbers of `by_track`, as the batch carries them.
    """

    by_track: dict[int, _OpenClip] = field(default_factory=dict)
    clock: SourceClock = field(default_factory=SourceClock)
    count: int = 0
    swept_s: float = -np.inf
    open_numbers: frozenset[int] = frozenset()

    def begin_frame(self, frame: Frame, max_frame_gap: float) -> None:
        """Drop the clips that cannot go on: all after a gap of the source, else those of tracks not seen for long."""
        now_s = frame.pts_s
        if self.clock.is_broken_by(frame, max_frame_gap):
            self.by_track.clear()
        elif now_s - self.swept_s > max_frame_gap:
            self.by_track = {
                track: clip for track, clip in self.by_track.items() if now_s - clip.seen_s <= max_frame_gap
            }
        else:
            return
        self.swept_s = now_s
        self._number()

    def sampled(self, track: int, frame: Frame, stride: int, max_frame_gap: float) -> tuple[int, int] | None:
        """Return the clip of a track and the place of this frame in it; None if the frame is between two of them."""
        clip = self.by_track.get(track)
        if clip is None or frame.pts_s - clip.seen_s > max_frame_gap:
            clip = self.by_track[track] = _OpenClip(self.count, frame.pts_s)
            self.count = self.count + 1
            self._number()
        clip.seen_s = frame.pts_s
        ordinal = frame._state.ordinal
        if clip.length and ordinal - clip.ordinal < stride:
            return None
        clip.ordinal = ordinal
        clip.length = clip.length + 1
        return clip.number, clip.length - 1

    def _number(self) -> None:
        self.open_numbers = frozenset(clip.number for clip in self.by_track.values())


class _Views(NamedTuple):
    """What may become frames of clips, in the order of the batch's frames.

    Attributes:
        rows: (n,) int32, the frame of each.
        rects: (n, 4) int32, the part of the frame.
        row_id: (n,) int32, the object's row in its table; `WHOLE_FRAME` for whole frames.
        tracks: (n,) int64, their tracks; `WHOLE_SOURCE` for whole frames.
    """

    rows: np.ndarray
    rects: np.ndarray
    row_id: np.ndarray
    tracks: np.ndarray


@dataclass(eq=False)
class SelectClips(
    StreamStage,
    name="select",
    reads=("pixels",),
    reads_if={"of": "track_id"},
    writes=("crops",),
    device_copy="the rectangles to cut go from host to device, one small copy a batch",
):
    """Choose the frames of clips: whole frames, or crops of tracks; see the module.

    Attributes:
        of: which objects; None for whole frames.
        stride: frames of the video from one frame of a clip to the next.
        max_frame_gap: seconds without a frame, or without the track, after which a clip begins again.
        pad: share of the box that is added on each side of the crop.
        min_size: skip objects whose shorter side is below this, in source pixels.
    """

    of: Of | None = None
    stride: int = 4
    max_frame_gap: Seconds = 2.0
    pad: Score = 0.0
    min_size: Pixels = 0.0

    def new_state(self, source: str) -> _SourceClips:
        """Return a source's clips; none yet."""
        return _SourceClips()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Set `batch.crops` and `batch.rows`."""
        views = self._frames(batch) if self.of is None else self._objects(batch, self.of)
        ends = np.searchsorted(views.rows, np.arange(len(batch) + 1)).tolist()
        tracks = views.tracks.tolist()
        chosen: list[int] = []
        samples: list[tuple[int, int]] = []
        for row, frame in enumerate(batch.frames):
            state = states[frame.source]
            state.begin_frame(frame, self.max_frame_gap)
            for view in range(ends[row], ends[row + 1]):
                sample = state.sampled(tracks[view], frame, self.stride, self.max_frame_gap)
                if sample is not None:
                    chosen.append(view)
                    samples.append(sample)
        clip, place = np.array(samples, np.int64).reshape(-1, 2).T
        open_clips = {frame.source: states[frame.source].open_numbers for frame in batch.frames}
        index = np.array(chosen, np.intp)
        batch.crops = Crops(views.rects[index], views.row_id[index], samples=ClipSamples(clip, place, open_clips))
        batch.rows = views.rows[index]
        return batch

    def _frames(self, batch: Batch) -> _Views:
        rects = [(0, 0, frame.width, frame.height) for frame in batch.frames]
        count = len(rects)
        return _Views(
            np.arange(count, dtype=np.int32),
            np.array(rects, np.int32).reshape(-1, 4),
            np.full(count, WHOLE_FRAME, np.int32),
            np.full(count, WHOLE_SOURCE),
        )

    def _objects(self, batch: Batch, of: Of) -> _Views:
        table = batch.table(of.stage)
        table = table[members(table, of)]
        table = table[np.argsort(table.batch_row, kind="stable")]
        sizes = frame_sizes(batch, table)
        rects = crop_rects(table.xyxy, sizes, self.pad)
        large = (visible_sides(table, sizes).min(axis=1) >= self.min_size) & (rects[:, 2] > 0)
        tracks = np.full(len(table), -1) if table.track_id is None else table.track_id
        self._count(TOO_SMALL, ~large)
        self._count(UNTRACKED, large & (tracks < 0))
        usable = np.flatnonzero(large & (tracks >= 0) & ~_predicted(table))
        return _Views(table.batch_row[usable], rects[usable], table.row_id[usable], tracks[usable])

    def _count(self, what: str, rows: np.ndarray) -> None:
        if count := int(np.count_nonzero(rows)):
            self.context.counters.add(what, count)


def _predicted(table: Detections) -> np.ndarray:
    """Return (n,) bool: the objects that a tracker predicts without having seen them."""
    return np.asarray(table.extra.get("predicted", np.zeros(len(table))), bool)


@dataclass(slots=True)
class _Ring:
    """The frames of a clip.

    Attributes:
        ring: its number in `ClipFrames`.
        first: place of the oldest frame behind which none is missing.
        next_place: place of the next frame.
        judged_s: when the network last got the clip, in the source's time.
    """

    ring: int
    first: int
    next_place: int
    judged_s: float = -np.inf


@dataclass(slots=True)
class _SourceRings:
    """The rings of a source's clips, by number.

    Attributes:
        longest: number of frames of its longest clip.
        complete: whether any clip was complete.
    """

    by_clip: dict[int, _Ring] = field(default_factory=dict)
    longest: int = 0
    complete: bool = False


@dataclass(slots=True)
class _Round:
    """Frames that are written at once, and clips that are read after them.

    Attributes:
        rows: the tensor's rows of the frames, with the ring and the place of each.
        due: the crops that complete clips end with, with ring and first place.
    """

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    due: list[tuple[int, int, int]] = field(default_factory=list)
    _places: set[tuple[int, int]] = field(default_factory=set)
    _read: set[int] = field(default_factory=set)

    def takes(self, ring: int, place: int) -> bool:
        """Whether a further frame leaves what the round writes and reads as it is."""
        return (ring, place) not in self._places and ring not in self._read

    def add(self, row: int, ring: int, place: int) -> None:
        """Add a frame."""
        self.rows.append((row, ring, place))
        self._places.add((ring, place))

    def read(self, row: int, ring: int, first: int) -> None:
        """Read the ring as a clip."""
        self.due.append((row, ring, first))
        self._read.add(ring)


@dataclass(eq=False)
class CollectClips(
    StreamStage,
    name="clips",
    reads=("tensor", "crops"),
    writes=("tensor",),
    changeable=("every",),
    on_device=True,
    splits_tensor=True,
    device_copy="the places of frames in clips go from host to device, one small copy a batch; no pixels",
):
    """Keep the frames of clips on the device, and pass on the clips that are due; see the module.

    Attributes:
        model: the model card.
        window: number of frames of a clip, where the network's file leaves it open.
        stride: as in `SelectClips`, for messages.
        every: seconds after which a clip is due again; 0 is each further frame.
        batch: maximum number of clips in one run of the network.
        max_memory: maximum bytes of the frames.
    """

    model: Model
    window: int | None = None
    stride: int = 4
    every: Seconds = 1.0
    batch: int = 8
    max_memory: Bytes = 2_000_000_000

    def open(self) -> None:
        """Read the shape of the clips from the network's file."""
        card = check_model(self.model)
        self._info = inspect(card.file)
        self._size = card.input.size
        assert self._info.clip is not None
        self._window = self._info.clip.frames or self.window or 1
        spec = card.input
        xp = self.context.device.xp
        self._frames = ClipFrames(self._window, spec.shape(1)[1:], spec.numpy_dtype, xp, self.max_memory)
        self._sizes = run_sizes(self.context, self.batch, few_rows=True)
        self._warn = LogOnce(logger.warning)
        if self.context.device.kind == "cuda":
            self._compile(spec)

    def new_state(self, source: str) -> _SourceRings:
        """Return a source's rings; none yet."""
        return _SourceRings()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Replace `batch.tensor`, `crops`, `rows` and `geometry` by those of the clips that are due."""
        crops = batch.crops
        rows = batch.rows
        assert crops is not None
        assert crops.samples is not None
        assert rows is not None
        assert batch.tensor is not None
        clips: list[Array] = []
        due: list[int] = []
        open_clips = crops.samples.open_clips
        clips_of_batch = _by_source(batch, crops.samples, rows)
        for source, numbers in clips_of_batch.items():
            self._free(states[source], numbers | open_clips[source])
        for part in self._rounds(batch, crops.samples, rows, states):
            clips += self._collected(batch.tensor, part)
            due += [row for row, _, _ in part.due]
        for source in clips_of_batch:
            self._free(states[source], open_clips[source])
        index = np.array(due, np.intp)
        if due:
            self.context.counters.add(INFERRED, len(due))
        batch.tensor = self._stacked(clips, len(due), batch.xp)
        batch.geometry = None if batch.geometry is None else batch.geometry[index]
        batch.crops = crops.take(index)
        batch.rows = rows[index]
        return batch

    def end(self, source: str, state: Any) -> None:
        """Free the source's rings; say so if none of its clips was complete."""
        longest = state.longest
        self._free(state, frozenset())
        if longest and not state.complete:
            need = (self._window - 1) * self.stride + 1
            logger.warning(
                f"{self._table}: no clip of {source} was complete: {self._window} frames at stride {self.stride} take "
                f"{need} frames of video in a row, and the longest clip got {longest} of the {self._window}; take a "
                "smaller stride or, for sources of few frames a second, a longer max_frame_gap"
            )

    def close(self) -> None:
        """Release the frames."""
        self.__dict__.pop("_frames", None)

    @property
    def _table(self) -> str:
        return self.context.id.split(".", 1)[0]

    def _compile(self, spec: InputSpec) -> None:
        """Make a clip of one gray frame, so that the first frames do not wait for the compilation of kernels."""
        from streamkit.ops.preprocess import preprocess

        xp = self.context.device.xp
        side = 16
        surface = Surface(xp.full((side * 3 // 2, side), 128, np.uint8), Color())
        row, _ = preprocess([surface], [(side, side)], spec, rects=[(0, 0, side, side)])
        ring = self._frames.take()
        assert ring is not None
        self._frames.write(np.array([ring]), np.array([0]), row)
        self._stacked([self._frames.read(np.array([ring]), np.array([0]))], 1, xp)
        self._frames.give_back(ring)

    def _rounds(
        self, batch: Batch, samples: ClipSamples, rows: np.ndarray, states: Mapping[str, Any]
    ) -> Iterator[_Round]:
        """Yield the work on the rings, in order: a ring is read before its next frame is written."""
        part = _Round()
        columns = zip(rows.tolist(), samples.clip.tolist(), samples.place.tolist(), strict=True)
        for at, (row, clip, place) in enumerate(columns):
            frame = batch.frames[row]
            state = states[frame.source]
            ring = self._ring(state, clip, place)
            if ring is None:
                continue
            if not part.takes(ring.ring, place % self._window):
                yield part
                part = _Round()
            part.add(at, ring.ring, place % self._window)
            length = place + 1 - ring.first
            state.longest = max(state.longest, length)
            if length >= self._window and not 0 <= frame.pts_s - ring.judged_s < self.every:
                state.complete = True
                ring.judged_s = frame.pts_s
                part.read(at, ring.ring, (place + 1) % self._window)
        yield part

    def _ring(self, state: _SourceRings, clip: int, place: int) -> _Ring | None:
        """Return the ring for a frame of a clip; None if there is no memory for it."""
        ring = state.by_clip.get(clip)
        if ring is None:
            number = self._frames.take()
            if number is None:
                self._refuse(place)
                return None
            ring = state.by_clip[clip] = _Ring(number, place, place)
        if place != ring.next_place:  # a frame between them failed
            ring.first = place
        ring.next_place = place + 1
        return ring

    def _refuse(self, place: int) -> None:
        if place == 0:
            self.context.counters.add(NO_MEMORY)
        self._warn(
            f"{self._table}: the frames of clips take max_memory, {self.max_memory / 1e9:g} GB: tracks without room "
            "are skipped until others end, and counted; set max_memory to more, or choose fewer objects with of"
        )

    def _collected(self, tensor: Any, part: _Round) -> Sequence[Array]:
        """Write the frames of a round, and return its clips: at most one array, (k, window, ...)."""
        if part.rows:
            at, rings, places = np.array(part.rows, np.int64).T
            self._frames.write(rings, places, tensor[at])
        if not part.due:
            return []
        _, rings, first = np.array(part.due, np.int64).T
        return [self._frames.read(rings, first)]

    def _stacked(self, clips: list[Array], count: int, xp: Any) -> Array:
        """Return the network's input, padded to whole runs."""
        info = self._info
        assert info.clip is not None
        shape = info.image_shape(sum(steps(count, self._sizes)) - count, self._size, self._window)
        padding = xp.zeros(shape, info.inputs[info.image_input].dtype)
        if not clips:
            return padding
        stacked = info.clip.stacked(clips[0] if len(clips) == 1 else xp.concatenate(clips))
        return xp.concatenate([stacked, padding]) if len(padding) else stacked

    def _free(self, state: _SourceRings, open_clips: frozenset[int]) -> None:
        """Free the rings of clips that get no further frame."""
        for clip in state.by_clip.keys() - open_clips:
            ring = state.by_clip.pop(clip)
            self._frames.give_back(ring.ring)
            if ring.next_place - ring.first < self._window:
                self.context.counters.add(TOO_SHORT)


def _by_source(batch: Batch, samples: ClipSamples, rows: np.ndarray) -> dict[str, frozenset[int]]:
    """Return the clips that get frames of a batch, by source of its frames."""
    clips: dict[str, set[int]] = {frame.source: set() for frame in batch.frames}
    for row, clip in zip(rows.tolist(), samples.clip.tolist(), strict=True):
        clips[batch.frames[row].source].add(clip)
    return {source: frozenset(numbers) for source, numbers in clips.items()}
