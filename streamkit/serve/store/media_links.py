# SPDX-License-Identifier: Apache-2.0
"""Finds the clip and the snapshot of each event.

A clip is complete only some time after its events, and the page's events come on another way than those of sinks: an
event may be written before or after the event `recorded` or `saved` that names its file. Only the stages that write
such files are believed.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from streamkit.core.data import Event
from streamkit.runtime.preview.gallery import GalleryEvent
from streamkit.stages.video.record import RECORDED
from streamkit.stages.video.snapshot import SAVED

_BACK_S = 5.0  # a source whose times go back by more has restarted; sinks are late by less
_MAX_FILES = 16  # latest files of a source, for events that come after them
_SLACK_S = 1e-3  # times of clips are rounded


class _ClipSpan(NamedTuple):
    path: str
    start_s: float
    end_s: float


class _SnapshotOf(NamedTuple):
    path: str
    stage: str
    kind: str
    frame: int
    track_id: int | None


@dataclass(slots=True)
class _SourceFiles:
    """The files of one source since its times last began: number of the first event, latest time, and files."""

    first: int
    pts_s: float
    clips: deque[_ClipSpan] = field(default_factory=lambda: deque(maxlen=_MAX_FILES))
    snapshots: deque[_SnapshotOf] = field(default_factory=lambda: deque(maxlen=_MAX_FILES))


class MediaLinks:
    """Adds the paths of clips and snapshots to the events in the file.

    Args:
        recorders: ids of the stages that write clips.
        snapshooters: ids of the stages that write snapshots.
    """

    def __init__(self, recorders: Collection[str] = (), snapshooters: Collection[str] = ()) -> None:
        self.recorders = frozenset(recorders)
        self.snapshooters = frozenset(snapshooters)
        self._sources: dict[str, _SourceFiles] = {}

    def link(self, connection: sqlite3.Connection, gallery_event: GalleryEvent) -> None:
        """Link an event that was just inserted with its files, or a file with the events before it."""
        event = gallery_event.event
        files = self._sources.get(event.source)
        if files is None or event.pts_s < files.pts_s - _BACK_S:
            files = self._sources[event.source] = _SourceFiles(gallery_event.number, event.pts_s)
        files.pts_s = max(files.pts_s, event.pts_s)
        if event.kind == RECORDED and event.stage in self.recorders and (clip := _clip_of(event)) is not None:
            files.clips.append(clip)
            connection.execute(
                "UPDATE events SET clip = ?, clip_s = MAX(0, ROUND(pts_s - ?, 3)) WHERE source = ? AND number >= ? "
                "AND number < ? AND clip IS NULL AND pts_s BETWEEN ? AND ?",
                (
                    clip.path,
                    clip.start_s,
                    event.source,
                    files.first,
                    gallery_event.number,
                    clip.start_s - _SLACK_S,
                    clip.end_s,
                ),
            )
            self._set(connection, gallery_event.number, "clip = ?, clip_s = 0", clip.path)
            return
        if event.kind == SAVED and event.stage in self.snapshooters and (shot := _snapshot_of(event)) is not None:
            files.snapshots.append(shot)
            connection.execute(
                "UPDATE events SET snapshot = ? WHERE source = ? AND number >= ? AND stage = ? AND kind = ? "
                "AND frame = ? AND track_id IS ?",
                (shot.path, event.source, files.first, *shot[1:]),
            )
            self._set(connection, gallery_event.number, "snapshot = ?", shot.path)
        self._from_memory(connection, gallery_event, files)

    def _from_memory(self, connection: sqlite3.Connection, gallery_event: GalleryEvent, files: _SourceFiles) -> None:
        """Link an event that is written after the files that show it."""
        event = gallery_event.event
        for clip in files.clips:
            if clip.start_s - _SLACK_S <= event.pts_s <= clip.end_s:
                at_s = max(0.0, round(event.pts_s - clip.start_s, 3))
                self._set(connection, gallery_event.number, "clip = ?, clip_s = ?", clip.path, at_s)
                break
        for shot in files.snapshots:
            if shot[1:] == (event.stage, event.kind, event.frame, event.track_id):
                self._set(connection, gallery_event.number, "snapshot = ?", shot.path)

    @staticmethod
    def _set(connection: sqlite3.Connection, number: int, what: str, *values: Any) -> None:
        connection.execute(f"UPDATE events SET {what} WHERE number = ?", (*values, number))


def _clip_of(event: Event) -> _ClipSpan | None:
    try:
        path = str(event.data["clip"])
        start_s = float(event.data["start_s"])
        return _ClipSpan(str(Path(path).absolute()), start_s, start_s + float(event.data["duration_s"]))
    except (KeyError, TypeError, ValueError):
        return None


def _snapshot_of(event: Event) -> _SnapshotOf | None:
    try:
        of = event.data["of"]
        path = str(Path(str(event.data["path"])).absolute())
        return _SnapshotOf(path, str(of["stage"]), str(of["kind"]), int(of["frame"]), event.track_id)
    except (KeyError, TypeError, ValueError):
        return None
