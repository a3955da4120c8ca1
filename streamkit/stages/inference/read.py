# SPDX-License-Identifier: Apache-2.0
"""`read`: the text on objects, such as number plates, voted over the readings of each track.

The chain is that of `streamkit/core/crops.py`, with its own first and last part. `select` reads a track when it is new,
then at intervals that double; a better view starts a new series. `read` votes; once a vote is sure, `select` skips the
other readings of the series, and `read` ignores those that were under way. Which readings count therefore does not
depend on how far the parts are apart in time, nor on the size of batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from streamkit.analytics.text_patterns import TextPattern, normalized
from streamkit.analytics.text_votes import TextVotes, Vote
from streamkit.core.crops import Crops
from streamkit.core.data import Array, Batch, Detections, Frame
from streamkit.core.stage import CompositePart, Count, Pixels, Score, Seconds, stage
from streamkit.core.units import OF_FORMS, Of, Unit
from streamkit.io.still_images import CropRequest
from streamkit.models.arithmetic import Engine, Precision
from streamkit.models.card import family_of
from streamkit.models.card_option import Model
from streamkit.ops.quads import reading_order
from streamkit.stages.inference.apply_results import add_attributes
from streamkit.stages.inference.infer import Threads, check_task, network_parts
from streamkit.stages.inference.postprocess import FetchVectors
from streamkit.stages.inference.select_objects import (
    SelectObjects,
    TrackCache,
    TrackCaches,
    frame_sizes,
    members,
    track_ids,
    visible_sides,
)
from streamkit.stages.video.best_view import ObjectView, measure

IGNORED = "readings ignored: the text was sure"
OTHER_FORMAT = "readings in another format"

_LONGEST_INTERVAL = 32
"""Multiple of `every` beyond which the interval between two readings of a track no longer doubles."""
_SURE_AT_ONCE = 0.98
"""Least score of every character of a single reading that is sure without a second one."""
_OTHER_FORMAT_WEIGHT = 0.25
_MIN_POINT_SCORE = 0.3


class SureTracks(WeakValueDictionary[str, set[tuple[int, int]]]):
    """By source, the tracks whose text is sure, each with the series of readings; shared by both ends of the chain.

    A source's set is gone once both ends have dropped their state of the source. All are equal: it is no option, by
    whose value a pipeline would differ from another one.
    """

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SureTracks)


def _valid_pattern(value: Any) -> str:
    if not isinstance(value, str) or not value:
        what = "a name such as de, a mask such as AA-9999, or a regular expression"
        raise ValueError(f"must be text: {what}, got {value!r}")
    return TextPattern(value).pattern


@dataclass(slots=True)
class ReadingTimes:
    """When a track is read again.

    Attributes:
        due_s: when the next reading is due, in the source's time.
        interval_s: how long after that the one behind it.
        quality: area x score of the view that was read first, or for being better.
        seen_s: when the track was last seen.
        series: number of better views so far.
    """

    due_s: float
    interval_s: float
    quality: float
    seen_s: float
    series: int = 0


@dataclass(eq=False)
class SelectText(
    SelectObjects,
    changeable=("every", "pad", "min_size"),
    device_copy="the rectangles to cut go from host to device and their sharpness back, small copies a batch",
):
    """Choose the objects to read, with their corners and the quality of each view.

    Attributes:
        crop: `corners` straightens objects whose detector gives four corners.
        sure_tracks: the tracks that need no further reading.
    """

    crop: Literal["corners", "box"] = "corners"
    sure_tracks: SureTracks = field(default_factory=SureTracks, metadata={"wired": True})

    def new_state(self, source: str) -> TrackCache:
        """See `TrackCaches.new_state`."""
        return _SourceTracks(sure=self.sure_tracks.setdefault(source, set()))

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """See `SelectObjects.process`."""
        selected = super().process(batch, states)
        crops = selected.crops
        rows = selected.rows
        assert crops is not None
        assert rows is not None
        if len(crops):
            quality = _qualities([batch.frames[row] for row in rows.tolist()], crops)
            corners = self._corners(batch, rows, crops) if self.crop == "corners" else None
            selected.crops = Crops(crops.rects, crops.row_id, corners=corners, quality=quality)
        return selected

    def first_query(self, now_s: float, quality: float) -> ReadingTimes:
        """See `SelectObjects.first_query`."""
        return ReadingTimes(now_s + self.every, 2 * self.every, quality, now_s)

    def is_due(self, state: Any, track: int, query: Any, now_s: float, quality: float) -> bool:
        """See `SelectObjects.is_due`; the times are the same whether the text is sure or not."""
        if quality > self.requery_ratio * query.quality:
            query.due_s = now_s + self.every
            query.interval_s = 2 * self.every
            query.quality = quality
            query.series = query.series + 1
            return True
        if now_s < query.due_s:
            return False
        query.due_s = now_s + query.interval_s
        query.interval_s = min(2 * query.interval_s, _LONGEST_INTERVAL * self.every)
        return (track, query.series) not in state.sure

    def _corners(self, batch: Batch, rows: np.ndarray, crops: Crops) -> np.ndarray | None:
        """Return (m, 4, 2) the corners of each object, NaN for one without; None if the detector gives none."""
        table = batch.table(self.of.stage)
        places = {key: i for i, key in enumerate(zip(table.batch_row.tolist(), table.row_id.tolist(), strict=True))}
        selected = np.array([places[key] for key in zip(rows.tolist(), crops.row_id.tolist(), strict=True)], np.intp)
        corners = corners_of(table, selected)
        return None if corners is None else reading_order(corners).astype(np.float32)


def corners_of(table: Detections, rows: np.ndarray) -> np.ndarray | None:
    """Return (m, 4, 2) the corners of objects: their four keypoints, or those of a rotated box; None for neither.

    An object with a keypoint whose score is below 0.3 has NaN.
    """
    if "keypoints" in table.extra:
        points = np.asarray(table.extra["keypoints"][rows], np.float64)
        if points.shape[1] == 4:
            sure = points[:, :, 2].min(axis=1) >= _MIN_POINT_SCORE
            return np.where(sure[:, None, None], points[:, :, :2], np.nan)
    if "corners" in table.extra:
        return np.asarray(table.extra["corners"][rows], np.float64).reshape(-1, 4, 2)
    return None


def _qualities(frames: list[Frame], crops: Crops) -> np.ndarray:
    """Return (m,) how good each view is, from its area and sharpness; see `ObjectView.quality`."""
    views = []
    for frame, rect in zip(frames, crops.rects.tolist(), strict=True):
        assert frame.surface is not None
        part = CropRequest(frame.surface, (frame.width, frame.height), tuple(rect))
        views.append(ObjectView(frame.pts_s, frame.index, "", None, part, 0))
    measure(views)
    return np.array([view.quality for view in views])


@dataclass(eq=False)
class FetchText(FetchVectors):
    """Start the copy of the best class of each place, and its probability, to the host.

    Attributes:
        letters: besides ASCII characters, read these only; None for all.
    """

    letters: str | None = None

    def open(self) -> None:
        """Find the network's family, and the characters that may be read."""
        super().open()
        more = self.letters
        labels = enumerate(self.model.labels)
        self._allowed = (
            None if more is None else [i for i, letter in labels if letter.isascii() or letter.upper() in more]
        )

    def select(self, outputs: Mapping[str, Array]) -> Array:
        """See `FetchVectors.select`."""
        best: Array = self._family.best(outputs, len(self.model.labels), self.model.blank, self._allowed)
        return best

    def finish(self, fetched: np.ndarray) -> np.ndarray:
        """Return them unchanged."""
        return fetched


class _Reading(NamedTuple):
    """What was read of a crop: the text, the score of each character, its margin, and how good the view is."""

    text: str
    scores: Sequence[float]
    margin: float
    weight: float

    def alone(self) -> Vote:
        """Return the outcome of a vote with this reading alone."""
        return Vote(self.text, tuple(self.scores), 1, self.margin)


@dataclass(slots=True)
class _SourceTracks(TrackCache):
    """The tracks of a source, with those whose text is sure."""

    sure: set[tuple[int, int]] = field(default_factory=set)


class _SourceTexts(_SourceTracks):
    """The same for the part that votes, which keeps the set free of tracks that are gone."""

    def forget(self, track: int) -> None:
        """Begin a track that has the number of an earlier one."""
        self.sure.difference_update([pair for pair in self.sure if pair[0] == track])

    def sweep(self, now_s: float, track_ttl: float) -> None:
        """See `TrackCache.sweep`."""
        super().sweep(now_s, track_ttl)
        self.sure.difference_update([pair for pair in self.sure if pair[0] not in self.by_track])


@dataclass(slots=True)
class _TrackText:
    """What is read of a track.

    Attributes:
        quality: as in `ReadingTimes`; likewise `series`.
        seen_s: when the track was last seen.
        votes: the readings.
        vote: their outcome; after an event, the last that was sure.
        told: the text of the last event; None before the first.
    """

    quality: float
    seen_s: float
    series: int = 0
    votes: TextVotes = field(default_factory=TextVotes)
    vote: Vote = field(default_factory=lambda: Vote("", (), 0))
    emitted: str | None = None


@stage(
    "read",
    reads=("pixels", "detections"),
    writes=("attributes", "events"),
    emits=("read",),
    changeable=("min_score", "sure", "margin"),
)
class Read(TrackCaches):
    """Read the text on objects, such as number plates, and vote over the readings of each track.

    The text becomes an attribute of the object. A track is read when it is new, then after `every`, twice `every` and
    so on until the vote is sure, and for a better view. Each character is voted for, weighted by its score and by the
    area and sharpness of the view.

    `read` is emitted when a track's text is sure, and when it changes: it has `value`, `score`, `readings` (how many
    were voted over), `label`, `attribute`, and `before` if the text was another one.
    """

    model: Annotated[Model, "the model card, with task: read."]
    of: Annotated[Of, f"which objects, {OF_FORMS}."]
    attribute: Annotated[str | None, "the attribute's name; by default the stage's id."] = None
    pattern: Annotated[
        str | None,
        Unit("format", _valid_pattern, pattern=".+", schema={"type": "string"}),
        "format of the text: a name such as de, fr or uk, `any` for letters and digits, a mask such as AA-9999, or "
        "a regular expression. The text is then in capitals without spaces and hyphens; a letter where the format has "
        "a digit becomes the digit that looks like it, and the reverse.",
    ] = None
    crop: Annotated[
        Literal["corners", "box"],
        "`corners` straightens objects whose detector gives four key points or a rotated box; `box` cuts the box.",
    ] = "corners"
    min_score: Annotated[Score | None, "below this score no attribute is given; by default the card's score."] = None
    sure: Annotated[
        Score, "a text is sure from this score of its least certain character on, if two readings agree."
    ] = 0.6
    margin: Annotated[
        Score,
        "how far a sure text is ahead of the second-best one, as a mean over the readings; 0 for any.",
    ] = 0.5
    every: Annotated[Seconds, "time to the second reading of a track; each further time is twice as long."] = 0.25
    requery_ratio: Annotated[float, "read again if area x score exceeds so many times that of the best view."] = 2.0
    pad: Annotated[Score, "share of the box that is added on each side of the crop."] = 0.0
    min_size: Annotated[Pixels, "skip objects whose shorter side is below this, in source pixels."] = 8.0
    untracked: Annotated[bool, "below a tracker, also read objects without a track, on every frame."] = False
    track_ttl: Annotated[Seconds, "a track that is not seen for this long starts again."] = 10.0
    batch: Annotated[Count, "maximum number of crops in one run of the network."] = 32
    engine: Engine = "auto"
    precision: Precision = "auto"
    threads: Threads = None
    sure_tracks: SureTracks = field(default_factory=SureTracks, metadata={"wired": True})

    def __post_init__(self) -> None:
        """Check the card's task and `requery_ratio`."""
        check_task(self)
        self._format = None if self.pattern is None else TextPattern(self.pattern)
        if not self.requery_ratio >= 1:
            raise ValueError(f"requery_ratio must be 1 or more, got {self.requery_ratio:g}")

    @staticmethod
    def parts_before(options: dict[str, Any]) -> list[CompositePart]:
        """Return the parts that cut the objects out and run the network; they share the set of sure tracks."""
        shared = options["sure_tracks"] = SureTracks()
        composite = Read(**options)
        select = {name: getattr(composite, name) for name in _SELECT}
        fetch = {"model": composite.model, "letters": None if composite._format is None else composite._format.letters}
        return network_parts(
            composite,
            [CompositePart("select", SelectText, {**select, "sure_tracks": shared})],
            [CompositePart("postprocess", FetchText, fetch)],
            ("batch",),
            few_rows=True,
        )

    def open(self) -> None:
        """Find the network's family."""
        self._family: Any = family_of(self.model)
        self._name = self.attribute or self.context.id
        self.changed()

    def changed(self) -> None:
        """Apply `min_score`."""
        self._min_score = self.model.score if self.min_score is None else self.min_score

    def new_state(self, source: str) -> TrackCache:
        """See `TrackCaches.new_state`."""
        return _SourceTexts(sure=self.sure_tracks.setdefault(source, set()))

    def end(self, source: str, state: Any) -> None:
        """Forget the source's tracks."""
        state.sure.clear()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Vote, add the attribute, emit events, and take the crops off the batch."""
        table = batch.table(self.of.stage)
        readings = self._readings(batch)
        batch.crops = batch.rows = batch.geometry = None
        selected = np.flatnonzero(members(table, self.of))
        sides = np.maximum(visible_sides(table, frame_sizes(batch, table)), 0)
        views = (np.prod(sides, axis=1) * table.score).tolist()
        tracks = track_ids(table)
        frames = table.batch_row.tolist()
        ids = table.row_id.tolist()
        values: list[Any] = [None] * len(table)
        state: Any
        for at, now_s, state in self.in_order(batch, states, table.batch_row[selected], self.track_ttl):
            row = int(selected[at])
            reading = readings.get((frames[row], ids[row]))
            track = tracks[row]
            if track < 0:
                values[row] = None if reading is None else self._value(self._in_format(reading.alone()))
                continue
            track_text = state.get(track, now_s, self.track_ttl)
            if track_text is None and reading is not None:
                track_text = state.by_track[track] = _TrackText(views[row], now_s)
                state.forget(track)
            if reading is not None and self._add(reading, state.sure, track, track_text, views[row]):
                state.sure.add((track, track_text.series))
                if track_text.vote.text != track_text.emitted:
                    self._tell(batch.frames[frames[row]], table.label[row], track, track_text)
            values[row] = None if track_text is None else self._value(track_text.vote)
        batch.tables[self.of.stage] = add_attributes(table, values)
        return batch

    def _readings(self, batch: Batch) -> dict[tuple[int, int], _Reading]:
        """Return what was read of each crop, by the frame's row and the object's `row_id`."""
        crops = batch.crops
        rows = batch.rows
        assert crops is not None
        assert rows is not None
        if not len(crops):
            return {}
        weights = np.ones(len(crops)) if crops.quality is None else crops.quality
        weighted = zip(crops.wait(), weights.tolist(), strict=True)
        readings = [_Reading(*self._text(best), weight) for best, weight in weighted]
        return dict(zip(zip(rows.tolist(), crops.row_id.tolist(), strict=True), readings, strict=True))

    def _text(self, best: np.ndarray) -> tuple[str, Sequence[float], float]:
        """Return the text of a crop, the score of each character, and its margin; see `_Reading`.

        With a pattern, the text is normalized and repaired.
        """
        characters, scores, margin = self._family.decode(best, self.model.labels, self.model.blank)
        if self._format is None:
            pairs = [(letter, score) for part, score in zip(characters, scores, strict=True) for letter in part]
            return "".join(letter for letter, _ in pairs), [score for _, score in pairs], margin
        text, each = normalized(characters, scores)
        return self._format.repaired(text, each) or text, each, margin

    def _counts(self, sure: set[tuple[int, int]], track: int, track_text: _TrackText, view: float) -> bool:
        """Whether a reading counts: it is of a better view, which starts a series, or the series is not sure yet."""
        if view > self.requery_ratio * track_text.quality:
            track_text.quality = view
            track_text.series = track_text.series + 1
            return True
        if (track, track_text.series) not in sure:
            return True
        self.context.counters.add(IGNORED)
        return False

    def _add(
        self, reading: _Reading, sure: set[tuple[int, int]], track: int, track_text: _TrackText, view: float
    ) -> bool:
        """Add a reading if it counts; return whether the text is sure with it."""
        if not self._counts(sure, track, track_text, view):
            return False
        if reading.text:
            weight = reading.weight
            if self._format is not None and not self._format.matches(reading.text):
                self.context.counters.add(OTHER_FORMAT)
                weight *= _OTHER_FORMAT_WEIGHT
            track_text.votes.add(reading.text, reading.scores, weight, reading.margin)
        vote = self._in_format(track_text.votes.result())
        lowest_sure = self.sure if vote.agreeing > 1 else max(self.sure, _SURE_AT_ONCE)
        is_sure = bool(vote.text) and vote.score >= lowest_sure and vote.margin >= self.margin
        if is_sure or track_text.emitted in (None, vote.text):
            track_text.vote = vote
        return is_sure

    def _in_format(self, vote: Vote) -> Vote:
        """Return a vote in the pattern's format; one that is not has score 0."""
        if self._format is None:
            return vote
        text = self._format.repaired(vote.text, vote.scores)
        return Vote("", (), 0) if text is None else vote._replace(text=text)

    def _tell(self, frame: Frame, label: str | None, track: int, track_text: _TrackText) -> None:
        """Emit the event."""
        text = track_text.vote.text
        score = round(track_text.vote.score, 4)
        data: dict[str, Any] = {
            "value": text,
            "score": score,
            "readings": len(track_text.votes),
            "attribute": self._name,
        }
        data |= {} if label is None else {"label": label}
        data |= {} if track_text.emitted is None else {"before": track_text.emitted}
        track_text.emitted = text
        frame.emit("read", track, **data)

    def _value(self, vote: Vote) -> dict[str, Any] | None:
        """Return the attribute, as in records; None below `min_score`."""
        if not vote.text or vote.score < self._min_score:
            return None
        return {self._name: {"label": vote.text, "score": round(vote.score, 4)}}


_SELECT = ("of", "every", "track_ttl", "pad", "min_size", "requery_ratio", "untracked", "crop")
