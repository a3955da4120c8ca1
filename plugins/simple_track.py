# SPDX-License-Identifier: Apache-2.0
"""A minimal tracker: an example of a stage that processes batches and has a state for each source."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from streamkit import Batch, Count, Score, StreamStage, stage
from streamkit.plugin_api import iou_matrix


@dataclass
class Tracks:
    """The tracks of one source: their last boxes, their ids, for how many frames they have been unseen; and
    the number of tracks so far.
    """

    xyxy: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    number: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    unseen: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    count: int = 0


@stage("simple_track", reads="detections", writes="track_id")
class SimpleTrack(StreamStage):
    """Number objects from frame to frame: each continues the track whose last box it overlaps most.

    There is no motion model and no appearance: objects that pass behind one another may swap their track ids.
    """

    min_iou: Annotated[Score, "minimum overlap of an object with a track's last box."] = 0.3
    max_age: Annotated[Count, "number of frames for which an unseen track is remembered."] = 10

    def new_state(self, source: str) -> Tracks:
        """Return a state without tracks."""
        return Tracks()

    def process(self, batch: Batch, states: dict[str, Tracks]) -> Batch:
        """Add `track_id` to the objects of every frame."""
        for name in batch.tables:
            table = batch.table(name)
            ids = np.full(len(table), -1, np.int64)
            for row, frame in enumerate(batch.frames):
                here = np.flatnonzero(table.batch_row == row)
                ids[here] = self.match(states[frame.source], table.xyxy[here])
            batch.tables[name] = table.with_columns(track_id=ids)
        return batch

    def match(self, tracks: Tracks, xyxy: np.ndarray) -> np.ndarray:
        """Return the track of each box: the best pairs first; each remaining box begins a track."""
        ids = np.full(len(xyxy), -1, np.int64)
        overlap = iou_matrix(xyxy, tracks.xyxy)
        while overlap.size and overlap.max() >= max(self.min_iou, 1e-6):
            box, track = np.unravel_index(overlap.argmax(), overlap.shape)
            ids[box] = tracks.number[track]
            overlap[box] = -1
            overlap[:, track] = -1
        new = ids < 0
        ids[new] = tracks.count + np.arange(new.sum())
        tracks.count += int(new.sum())
        remembered = ~np.isin(tracks.number, ids) & (tracks.unseen < self.max_age)
        tracks.xyxy = np.concatenate([xyxy, tracks.xyxy[remembered]])
        tracks.number = np.concatenate([ids, tracks.number[remembered]])
        tracks.unseen = np.concatenate([np.zeros(len(ids), np.int64), tracks.unseen[remembered] + 1])
        return ids
