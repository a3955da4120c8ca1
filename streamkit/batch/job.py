"""What the parts of a batch run hand each other: plain values that travel between processes and machines."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from streamkit.errors import ConfigError
from streamkit.media.uris import is_path

Status = Literal["done", "failed"]
GONE = ""
"""The version of a file that is named and not there; it fails by itself when its turn comes."""


def printable(text: str) -> str:
    """A file's name or path as every text file and table takes it: bytes that are no UTF-8 are written as `\\xe9`."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A file to be done, as it was found.

    Attributes:
        uri: how it is opened: a path, or an address that fsspec knows, without credentials.
        name: its name in the data set, different for every file of a run: the path below the part of the pattern that
            holds no wildcard, such as `2026-08-01/gate.mp4`; `printable`, which `uri` need not be.
        size: bytes; None where a server does not tell.
        version: changes when the content does: the time of the last change in nanoseconds, or an object's ETag; `GONE`.
    """

    uri: str
    name: str
    size: int | None
    version: str

    @property
    def gone(self) -> bool:
        """Whether it is not there, or nothing tells what it is now; elsewhere a file without a version has a size."""
        return self.version == GONE and (self.size is None or is_path(self.uri))


@dataclass(frozen=True, slots=True)
class Look:
    """Which pictures of each file are looked at.

    Attributes:
        start_s: leave out what comes before.
        end_s: leave out what comes after, None for the end.
        every: take every n-th picture.
        fps: thin out to at most so many frames a second.
        keyframes: decode keyframes only.
    """

    start_s: float = 0.0
    end_s: float | None = None
    every: int = 1
    fps: float | None = None
    keyframes: bool = False

    def __post_init__(self) -> None:
        """Refuse what no file could give a picture of. Raises ConfigError."""
        if self.end_s is not None and self.end_s <= self.start_s:
            raise ConfigError(f"--end must be after --start, got start {self.start_s:g} s and end {self.end_s:g} s")
        if self.keyframes and self.every > 1:
            raise ConfigError(
                f"--every must be 1 with --keyframes, got {self.every}: keyframes are numbered among all pictures; "
                "--fps thins them out"
            )

    def misses(self, duration_s: float | None, fps: float | None) -> bool:
        """Whether a video is over before `start_s`; False where it is not known how long it is.

        Args:
            duration_s: of the video, by its header.
            fps: its frames a second: the last picture comes so long before the end.
        """
        return duration_s is not None and self.start_s > max(0.0, duration_s - 1.0 / (fps or 25.0))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a worker needs to make its pipeline: the same for all workers of a run.

    Attributes:
        pipeline: the YAML; it is read again by each worker, its `sources` and sinks are left out.
        overrides: of `--set`, name and value.
        out: the output folder.
        formats: what is written for each file: parquet, jsonl, csv, coco, mot, video.
        look: which pictures.
        strict: whether a file with damaged frames fails as a whole, and leaves no rows.
    """

    pipeline: Path
    overrides: tuple[tuple[str, str], ...]
    out: Path
    formats: tuple[str, ...]
    look: Look
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One file for a worker.

    Attributes:
        file: which.
        key: names its outputs; made from the file's identity and the pipeline's.
        attempt: 1 for the first try.
    """

    file: VideoFile
    key: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a file went, as its worker tells it. Where `status` is `done`, its parts are whole and under their names.

    Attributes:
        job: which.
        status: done, or failed with a cause.
        cause: one line, and "" where it is done.
        cause_kind: a word to count by: damaged, empty, no_video, codec, truncated, missing, permission, memory, killed,
            timeout, stage, output.
        again: whether another try may help.
        frames: that were looked at.
        objects: that were found.
        duration_s: of the video that was looked at.
        seconds: that it took.
        facts: about the file for the table of files: codec, width, height, fps, frames, duration_s, and the counts
            `concealed_errors`, `damaged_frames` and `failed_frames`.
    """

    job: Job
    status: Status
    cause: str = ""
    cause_kind: str = ""
    again: bool = False
    frames: int = 0
    objects: int = 0
    duration_s: float = 0.0
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
