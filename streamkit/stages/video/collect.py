# SPDX-License-Identifier: Apache-2.0
"""Sink: images that are worth labeling, with the objects found so far, for the next training of a model."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from streamkit.core.data import EventFilter, Frame
from streamkit.core.detections import Detections
from streamkit.core.errors import OutputError
from streamkit.core.records import record, wall_clock
from streamkit.core.stage import Score, Seconds, stage
from streamkit.core.units import OF_FORMS, Of, Rate, Unit
from streamkit.io.collected_folder import IMAGES, LINES, CollectedFolder, NewLines
from streamkit.io.retention import FileRetention
from streamkit.io.still_images import CropRequest, JpegQuality, cut_out, jpegs, parts_of, whole
from streamkit.ops.cut import to_host
from streamkit.ops.perceptual_hash import BITS, perceptual_hash
from streamkit.stages.video.collect_reasons import (
    DisagreementOptions,
    RandomFrames,
    Subject,
    disagreeing,
    drawn,
    low_scores,
    novel,
    observed,
    of_events,
    tables_of,
    vectors_of,
)
from streamkit.stages.video.event_files import EVENT_NAMES, FilesSink
from streamkit.stages.video.image_objects import part_of
from streamkit.stages.video.known_images import FARTHEST, KnownImages, vector_text

__all__ = ["Collect"]

COLLECTED = "collected"
TAKEN = "images collected"
DUPLICATE = "duplicate images"
OVER = "images over budget"
FAILED = "images not written"
REASONS = ("when", "disagreement", "low_score", "novelty", "random")
_HASHED = 64  # pixels of the longer side of what is hashed

Distance = Annotated[float, Unit(f"0..{FARTHEST:g}", minimum=0, maximum=FARTHEST)]


class _Candidate(NamedTuple):
    """An image that may be collected.

    Attributes:
        part: its part of the frame.
        reasons: the reasons, the first of which counts, each with its objects.
    """

    part: CropRequest
    reasons: dict[str, list[Subject]]

    @property
    def reason(self) -> str:
        """The reason under which it is counted."""
        return next(iter(self.reasons))

    @property
    def subjects(self) -> list[Subject]:
        """The objects for which it is collected, each once."""
        return list(dict.fromkeys(subject for subjects in self.reasons.values() for subject in subjects))


@stage(
    "collect",
    reads="pixels",
    reads_if={
        "low_score": "detections",
        "disagreement": "detections",
        "novelty": "embedding",
        "same_vector": "embedding",
    },
    emits=(COLLECTED,),
    unhide_option="show_hidden",
    device_copy="images that are collected go from device to host, and parts scaled to 64 pixels to find duplicates",
)
class Collect(FilesSink):
    """Collect frames or objects that are worth labeling, with the objects found so far.

    Set at least one reason: `low_score`, `disagreement`, `novelty`, `when` or `random`. Images that look like a
    collected one are left out. `streamkit export` converts the folder to COCO, YOLO, CVAT or Label Studio.

    The images are taken from the output of the stage above, so `from: draw` hides what `draw` hides. The folder is
    valid at any time, also after a crash, and several processes share it and its budget.
    """

    path: Annotated[str, "the folder; a new one, or one that `collect` has written before."]
    low_score: Annotated[
        tuple[Score, Score] | None, "objects with a score in this range, such as [0.3, 0.5]; see `of`."
    ] = None
    disagreement: Annotated[
        DisagreementOptions | None,
        "objects that only one of two detectors finds, or that they label differently, as in {between: [detect, "
        "second], iou: 0.5, min_score: 0.5}. Objects below min_score only confirm those of the other detector.",
    ] = None
    novelty: Annotated[
        Distance | None,
        "objects whose vector from `embed` has a larger cosine distance to all collected ones; see `of`.",
    ] = None
    when: Annotated[str | list[str] | None, f"events, {EVENT_NAMES}."] = None
    random: Annotated[Rate | None, "frames at random: so many of each source on average, such as 6/h."] = None
    of: Annotated[Of | None, f"the objects for low_score, novelty and random, {OF_FORMS}; all if not set."] = None
    capture: Annotated[Literal["frame", "object"], "the frame, or each object for which it is collected."] = "frame"
    pad: Annotated[Score, "share of the box that is added on each side of an object."] = 0.2
    every: Annotated[
        Seconds,
        "of each source, a frame is examined for low_score, disagreement and novelty this long after the last hit.",
    ] = 5.0
    at_most: Annotated[
        Rate | None,
        "budget of the folder, over all sources, processes and restarts, such as 500/day; a day ends at 0:00 UTC.",
    ] = None
    duplicates: Annotated[
        Literal["run", "source", "keep"],
        "leave out what looks like an image of the folder, or of the same source only; or keep all.",
    ] = "run"
    hash_bits: Annotated[
        int, Unit(f"0..{BITS}", minimum=0, maximum=BITS), f"images look alike if at most so many of {BITS} bits differ."
    ] = 6
    same_vector: Annotated[
        Distance | None, "objects also look alike if their vectors are at most this cosine distance apart."
    ] = None
    quality: Annotated[JpegQuality, "of the JPEG."] = 95
    show_hidden: Annotated[bool, "allow images to show what another stage of the pipeline hides."] = False
    models: Mapping[str, str] = field(default_factory=dict, metadata={"wired": True})

    files: ClassVar[str] = "images"

    def __post_init__(self) -> None:
        if not self.path or set(self.path) & set("{}\0"):
            raise ValueError(
                f"path must be a folder for all sources, without placeholders, got {self.path!r}; its images are named "
                "after their source and time"
            )
        if all(getattr(self, reason) is None for reason in REASONS):
            raise ValueError(f"set at least one reason: {', '.join(REASONS)}, such as low_score: [0.3, 0.5]")
        if self.low_score is not None and not self.low_score[0] < self.low_score[1]:
            low, high = self.low_score
            raise ValueError(f"low_score must be [lowest, highest], got [{low:g}, {high:g}]")
        if self.when is not None and not self.when:
            raise ValueError("when must name an event, as in crossing.crossed; leave it out for none")
        if self.same_vector is not None and self.novelty is not None and self.same_vector > self.novelty:
            raise ValueError(
                f"same_vector must be at most novelty, {self.novelty:g}, or nothing novel is collected, "
                f"got {self.same_vector:g}"
            )
        self._when = EventFilter(self.when)
        self._random = None if self.random is None else RandomFrames(self.random)
        limits = [limit for limit in (self.novelty, self.same_vector) if limit is not None]
        self._vector_step = min(limits) if limits else None
        self._collected = KnownImages()
        self._hits_s: dict[tuple[str, str], float] = {}

    # -------------------------------------------------------------------------------------------------- as a sink

    def open(self) -> None:
        """Open the folder, and read what is in it.

        Raises:
            OutputError: it is another kind of folder, or cannot be written.
        """
        self._folder = CollectedFolder(Path(self.path))
        self._folder.open()
        template = f"{self.path}/{IMAGES}/{{source}}_{{time}}_{{kind}}.jpg"
        self.begin_files(FileRetention(template, None, None, self.context.counters, self.files))
        with self._folder.locked() as new:
            self._learn(new)

    def write(self, frame: Frame) -> None:
        """Collect the frame or its objects, if there is a reason."""
        chosen = self._random is not None and self._random.takes(frame)
        if frame.error is not None or frame.surface is None:  # a failed frame may not be hidden
            return
        if frame.tables and not any(tables_of(frame)):  # no detector has seen it
            return
        reasons = self._reasons(frame, chosen)
        if not reasons:
            return
        if frame.damaged:  # what the decoder conceals looks like a hard case
            self.context.counters.add("damaged frames left out")
            return
        self._hits_s |= {(frame.source, reason): frame.pts_s for reason in reasons}
        for candidate in self._candidates(frame, reasons):
            if self._is_over_budget():
                self._count(OVER, candidate)
                continue
            try:
                self._collect(frame, candidate)
            except OutputError as error:
                self._count(FAILED, candidate)
                self.failed(error)

    def end(self, source: str) -> None:
        """Forget the times of a source."""
        if self._random is not None:
            self._random.end(source)
        self._hits_s = {key: pts_s for key, pts_s in self._hits_s.items() if key[0] != source}

    def close(self) -> None:
        """Close the folder.

        Raises:
            OutputError: some images could not be written; raised only at the end of the run.
        """
        self._folder.close()
        self.raise_failed()

    # ------------------------------------------------------------------------------------------------- candidates

    def _reasons(self, frame: Frame, chosen: bool) -> dict[str, list[Subject]]:
        """The reasons to collect the frame, each with its objects."""
        reasons: dict[str, list[Subject]] = {}
        events = [event for event in frame.events if event in self._when and event.stage != self.context.id]
        if self.when is not None and events:
            reasons["when"] = of_events(frame, events)
        if self.disagreement is not None and self._is_due(frame, "disagreement"):
            reasons["disagreement"] = disagreeing(frame, self.disagreement)
        if self.low_score is not None and self._is_due(frame, "low_score"):
            reasons["low_score"] = low_scores(frame, self.of, *self.low_score)
        if self.novelty is not None and self._is_due(frame, "novelty"):
            reasons["novelty"] = novel(frame, self.of, self._collected, self.novelty)
        if chosen:
            reasons["random"] = []
        return {reason: subjects for reason, subjects in reasons.items() if subjects or reason in ("when", "random")}

    def _is_due(self, frame: Frame, reason: str) -> bool:
        last_s = self._hits_s.get((frame.source, reason))
        return last_s is None or not 0 <= frame.pts_s - last_s < self.every

    def _candidates(self, frame: Frame, reasons: Mapping[str, list[Subject]]) -> Iterator[_Candidate]:
        """The images that may be collected of a frame: the frame, or each object."""
        if self.capture == "frame":
            if (part := whole(frame)) is not None:
                yield _Candidate(part, dict(reasons))
            return
        by_subject: dict[Subject, dict[str, list[Subject]]] = {}
        for reason, subjects in reasons.items():
            if reason == "when" and not subjects:
                self.context.counters.add("events without an object")
            for subject in self._drawn_object(frame) if reason == "random" else subjects:
                by_subject.setdefault(subject, {})[reason] = [subject]
        for subject, subject_reasons in by_subject.items():
            box = frame.tables[subject.stage].xyxy[subject.row : subject.row + 1]
            if (part := parts_of(frame, box, self.pad)[0]) is not None:
                yield _Candidate(part, subject_reasons)

    def _drawn_object(self, frame: Frame) -> list[Subject]:
        """One object of the frame, at random."""
        rows = [
            Subject(name, row)
            for name, table in tables_of(frame, self.of)
            for row in np.flatnonzero(observed(table, self.of)).tolist()
        ]
        return [rows[int(drawn(frame) * 2**32) % len(rows)]] if rows else []

    # ----------------------------------------------------------------------------------------------------- images

    def _learn(self, new: NewLines) -> None:
        """Take what is in the folder, or what others have added."""
        if new.restarted:
            self._collected = KnownImages()
        if unreadable := new.unreadable + self._collected.add(new.lines):
            self.context.counters.add("unreadable lines", unreadable)
            self._warn(
                f"{self.context.id}: {self.path}/{LINES} has lines that are damaged or none of collect; they are left "
                "out"
            )

    def _is_over_budget(self) -> bool:
        return self.at_most is not None and self._collected.used(self.at_most, time.time()) >= self.at_most.count

    def _collect(self, frame: Frame, candidate: _Candidate) -> None:
        """Write an image and its line, unless it is a duplicate or the budget is used up; raise OutputError."""
        hashes = self._hashes(frame, candidate)
        with self._folder.locked() as new:
            self._learn(new)
            if self._is_over_budget():
                self._count(OVER, candidate)
                return
            if self.duplicates != "keep" and self._is_duplicate(frame, candidate, hashes):
                self._count(DUPLICATE, candidate)
                return
            if not self.has_room():
                self._count(FAILED, candidate)
                return
            path = self._write(frame, candidate, hashes)
        self._count(TAKEN, candidate)
        self._emit(frame, candidate, path)

    def _write(self, frame: Frame, candidate: _Candidate, hashes: Mapping[Subject | None, int]) -> Path:
        part = candidate.part
        reason = candidate.reason
        longest = max(part.rect[2] - part.rect[0], part.rect[3] - part.rect[1])
        (data,) = jpegs(cut_out([part], longest), longest, self.quality)
        source = re.sub(r"[^\w.-]", "_", frame.source)
        path = self._retention.path(source, self.context.id, reason, frame.time_s, frame.pts_s)
        for name, table in frame.tables.items():
            self._folder.keep_classes(name, table.labels, _skeleton(table))
        line = self._line(frame, candidate, hashes)
        self._folder.add(path, data, line)
        self._collected.add([line])
        return path

    def _hashes(self, frame: Frame, candidate: _Candidate) -> dict[Subject | None, int]:
        """The hash of each object for which the image is collected; under None that of the image.

        That is there if there is no such object, or if a reason has none: a random frame is not its weak objects.
        """
        parts: dict[Subject | None, CropRequest] = {}
        for subject in candidate.subjects:
            box = frame.tables[subject.stage].xyxy[subject.row : subject.row + 1]
            if (part := parts_of(frame, box)[0]) is not None:
                parts[subject] = part
        if not parts or not all(candidate.reasons.values()):
            parts[None] = candidate.part
        stills = cut_out(list(parts.values()), _HASHED)
        surfaces = to_host([still.surface for still in stills])
        hashes = [perceptual_hash(surface, still.size) for surface, still in zip(surfaces, stills, strict=True)]
        return dict(zip(parts, hashes, strict=True))

    def _is_duplicate(self, frame: Frame, candidate: _Candidate, hashes: Mapping[Subject | None, int]) -> bool:
        """Whether everything for which the image is collected looks like something known."""
        source = frame.source if self.duplicates == "source" else None
        return all(
            self._collected.has_hash(hash_, subject is not None, source, self.hash_bits)
            or (subject is not None and self._has_vector(frame, subject))
            for subject, hash_ in hashes.items()
        )

    def _has_vector(self, frame: Frame, subject: Subject) -> bool:
        table = frame.tables[subject.stage]
        if self.same_vector is None or "embedding" not in table.extra:
            return False
        vector = vectors_of(table)[subject.row : subject.row + 1]
        return bool((self._collected.distances(subject.stage, vector) <= self.same_vector).any())

    # ------------------------------------------------------------------------------------------------------ lines

    def _line(self, frame: Frame, candidate: _Candidate, hashes: Mapping[Subject | None, int]) -> dict[str, Any]:
        """The line of an image."""
        if self.capture == "object":
            part, rows = part_of(frame, candidate.part.rect)
        else:
            part = frame
            rows = {name: np.arange(len(table)) for name, table in frame.tables.items()}
        line: dict[str, Any] = {
            "width": part.width,
            "height": part.height,
            "source": frame.source,
            "frame": frame.index,
            "pts_s": round(frame.pts_s, 6),
            "collected": wall_clock(time.time()),
            "reason": candidate.reason,
            "reasons": list(candidate.reasons),
        }
        if frame.time_s is not None:
            line["time"] = wall_clock(frame.time_s)
        if self.capture == "object":
            line["part"] = list(candidate.part.rect)
        if None in hashes:
            line["hash"] = f"{hashes[None]:016x}"
        if self.models:
            line["models"] = {name: self.models[name] for name in part.tables if name in self.models}
        line["objects"] = self._objects(frame, part, rows, candidate, hashes)
        return line

    def _objects(
        self,
        frame: Frame,
        part: Frame,
        rows: Mapping[str, np.ndarray],
        candidate: _Candidate,
        hashes: Mapping[Subject | None, int],
    ) -> list[dict[str, Any]]:
        """The objects of an image as in records, with the stage, reasons, hash and vector of each."""
        subjects = [Subject(name, row) for name in part.tables for row in rows[name].tolist()]
        vectors = self._new_vectors(frame, subjects if self.capture == "frame" else candidate.subjects)
        objects = record(part)["objects"]
        for subject, about in zip(subjects, objects, strict=True):
            about["stage"] = subject.stage
            if reasons := [reason for reason, some in candidate.reasons.items() if subject in some]:
                about["reasons"] = reasons
            if subject in hashes:
                about["hash"] = f"{hashes[subject]:016x}"
            if subject in vectors:
                about["vector"] = vector_text(vectors[subject])
        return list(objects)

    def _new_vectors(self, frame: Frame, subjects: Sequence[Subject]) -> dict[Subject, np.ndarray]:
        """The vectors that are not close to a known one: enough to tell later what is known."""
        vectors: dict[Subject, np.ndarray] = {}
        for subject in subjects if self._vector_step is not None else ():
            table = frame.tables[subject.stage]
            if "embedding" not in table.extra:
                continue
            vector = vectors_of(table)[subject.row]
            near = [
                other
                for key, other in vectors.items()
                if key.stage == subject.stage and 1 - other @ vector <= self._vector_step
            ]
            if not near and self._collected.distances(subject.stage, vector[None])[0] > self._vector_step:
                vectors[subject] = vector
        return vectors

    def _emit(self, frame: Frame, candidate: _Candidate, path: Path) -> None:
        subjects = candidate.subjects
        about: dict[str, Any] = {"path": str(path), "reason": candidate.reason}
        track = None
        if len(subjects) == 1:
            table = frame.tables[subjects[0].stage]
            row = subjects[0].row
            about["label"] = table.label[row]
            track = None if table.track_id is None or table.track_id[row] == -1 else int(table.track_id[row])
        frame.emit(COLLECTED, track, **about)

    def _count(self, what: str, candidate: _Candidate) -> None:
        self.context.counters.add(f"{what}: {candidate.reason}")


def _skeleton(table: Detections) -> dict[str, Any] | None:
    if table.skeleton is None or "keypoints" not in table.extra:
        return None
    return {"names": list(table.skeleton.names), "edges": [list(edge) for edge in table.skeleton.edges]}
