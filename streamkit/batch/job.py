# SPDX-License-Identifier: Apache-2.0
"""Values that the parts of a batch run exchange, between processes and machines."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from streamkit.core.errors import ConfigError
from streamkit.media.uris import is_path

Status = Literal["done", "failed"]
NO_VERSION = ""
"""The version of a named file that does not exist; it fails alone when its turn comes."""


def printable(text: str) -> str:
    """A file's name or path as valid text: bytes that are not UTF-8 are written as `\\xe9`."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A file to process, in the state in which it was listed.

    Attributes:
        uri: how it is opened: a path, or an address for fsspec, without credentials.
        name: its unique name in the data set: the path below the part of the pattern without wildcards, such as
            `2026-08-01/gate.mp4`; `printable`, unlike `uri`.
        size: bytes; None if a server does not report it.
        version: changes with the content: the modification time in nanoseconds, or an object's ETag; or `NO_VERSION`.
    """

    uri: str
    name: str
    size: int | None
    version: str

    @property
    def missing(self) -> bool:
        """Whether it is missing or its state is unknown; a remote file without a version has a size."""
        return self.version == NO_VERSION and (self.size is None or is_path(self.uri))


@dataclass(frozen=True, slots=True)
class FrameSelection:
    """Which frames of each file are processed.

    Attributes:
        start_s: skip everything before this time, in seconds.
        end_s: skip everything after this time; None for the end.
        every: process every n-th frame.
        fps: sample at most this many frames per second.
        keyframes: decode keyframes only.
    """

    start_s: float = 0.0
    end_s: float | None = None
    every: int = 1
    fps: float | None = None
    keyframes: bool = False

    def __post_init__(self) -> None:
        """Refuse options that select no frame of any file. Raises ConfigError."""
        if self.end_s is not None and self.end_s <= self.start_s:
            raise ConfigError(f"--end must be after --start, got start {self.start_s:g} s and end {self.end_s:g} s")
        if self.keyframes and self.every > 1:
            raise ConfigError(
                f"--every must be 1 with --keyframes, got {self.every}: keyframes are numbered among all frames; "
                "use --fps to sample them"
            )

    def length_s(self, duration_s: float | None) -> float:
        """Seconds of a video of this duration that are processed; 0 if the duration is unknown."""
        if duration_s is None:
            return 0.0
        end_s = duration_s if self.end_s is None else min(self.end_s, duration_s)
        return max(0.0, end_s - self.start_s)

    def misses(self, duration_s: float | None, fps: float | None) -> bool:
        """Whether a video ends before `start_s`; False if its duration is unknown.

        Args:
            duration_s: duration by its header, in seconds.
            fps: frames per second; the last frame begins one interval before the end.
        """
        return duration_s is not None and self.start_s > max(0.0, duration_s - 1.0 / (fps or 25.0))


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What a worker needs to make its pipeline: the same for all workers of a run.

    Attributes:
        pipeline: the YAML; each worker reads it again, without its `sources` and sinks.
        overrides: names and values of `--set`.
        out: the output folder.
        formats: output formats: parquet, jsonl, csv, coco, mot, video.
        selection: which frames to process.
        strict: whether a file with damaged frames fails as a whole, without rows.
    """

    pipeline: Path
    overrides: tuple[tuple[str, str], ...]
    out: Path
    formats: tuple[str, ...]
    selection: FrameSelection
    strict: bool = False


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One file for a worker.

    Attributes:
        file: the file.
        key: names its outputs; made from the identities of the file and the pipeline.
        attempt: 1 for the first try.
    """

    file: VideoFile
    key: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a file. If `status` is `done`, its parts are complete and published.

    Attributes:
        job: the job.
        status: done, or failed with a cause.
        cause: one line; "" if it is done.
        cause_kind: a category for counts: damaged, empty, no_video, codec, truncated, missing, permission, memory,
            killed, timeout, stage, output.
        again: whether a retry may help.
        frames: number of processed frames.
        objects: number of detected objects.
        duration_s: duration of the processed part of the video, in seconds.
        seconds: how long it took.
        facts: columns for the table of files: codec, width, height, fps, frames, duration_s, and the counts
            `concealed_errors`, `damaged_frames` and `failed_frames`. And `copied`: a remote file was copied first,
            because its server sends only whole files.
    """

    job: BatchJob
    status: Status
    cause: str = ""
    cause_kind: str = ""
    again: bool = False
    frames: int = 0
    objects: int = 0
    duration_s: float = 0.0
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
