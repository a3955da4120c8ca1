# SPDX-License-Identifier: Apache-2.0
"""The result files of one video: their paths, formats, checks and removal.

out/streamkit.json            the pipeline that the folder belongs to
out/objects/KEY.parquet       the format parquet: one row per object,
out/events/KEY.parquet        one row per event,
out/frames/KEY.parquet        one row per frame, of pipelines with facts of whole frames
out/jsonl/KEY.jsonl           the other formats, each in its own folder
out/files/KEY.parquet         the row of the file itself, written last: it makes the file done
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamkit.batch.job import BatchSettings
from streamkit.core.errors import ConfigError
from streamkit.core.text import did_you_mean
from streamkit.io.outputs import writing

FILES = "files"
MERGED = "coco.json"
"""The merged file of all videos."""

FORMATS: dict[str, dict[str, str]] = {
    "parquet": {"objects": ".parquet", "events": ".parquet", "frames": ".parquet"},
    "jsonl": {"jsonl": ".jsonl"},
    "csv": {"csv": ".csv"},
    "coco": {"coco": ".json"},
    "mot": {"mot": ".txt"},
    "video": {"video": ".mp4"},
}
"""The folders of each format, and the ending of the files in them."""

FOLDERS = {folder: suffix for folders in FORMATS.values() for folder, suffix in folders.items()}

_VIDEO_SUFFIXES = (".mp4", ".mkv")
_MAGIC = b"PAR1"
_FOOTER = 8  # a Parquet file ends with the length of its footer in four bytes, and the magic bytes


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats in the order of `FORMATS`, each once.

    Raises:
        ConfigError: a format does not exist, or none is named.
    """
    requested = list(formats)
    for name in requested:
        if name not in FORMATS:
            raise ConfigError(
                f"--format: there is no {name!r}; there are {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}"
            )
    if not requested:
        raise ConfigError(f"--format names none; there are {', '.join(FORMATS)}")
    return tuple(name for name in FORMATS if name in requested)


def parts(settings: BatchSettings, key: str) -> list[Path]:
    """Paths of a job's possible results, without its row in `files`. A file without content is not created."""
    return [
        settings.out / folder / f"{key}{suffix}"
        for name in settings.formats
        for folder, suffix in FORMATS[name].items()
    ]


def row_path(out: Path, key: str) -> Path:
    """Path of a file's row in the table of files."""
    return out / FILES / f"{key}.parquet"


def all_parts(out: Path) -> Iterator[tuple[str, Path]]:
    """Every existing part in the folder, with its key; a video may have several: KEY-2.mp4."""
    for folder, suffix in FOLDERS.items():
        suffixes = _VIDEO_SUFFIXES if folder == "video" else (suffix,)
        with contextlib.suppress(FileNotFoundError):
            for path in sorted((out / folder).iterdir()):
                match = re.fullmatch(r"(.+-[0-9a-f]{16})(-\d+)?", path.stem)
                if match and path.suffix in suffixes:
                    yield match[1], path


def existing_parts(settings: BatchSettings, key: str) -> list[Path]:
    """The existing parts of a job."""
    there = [path for path in parts(settings, key) if path.parent.name != "video" and path.is_file()]
    if "video" in settings.formats:  # in either container, and it may be several: KEY.mp4, KEY-2.mp4, ...
        for suffix in _VIDEO_SUFFIXES:
            path = settings.out / "video" / f"{key}{suffix}"
            number = 1
            while path.is_file():
                there.append(path)
                number += 1
                path = path.with_name(f"{key}-{number}{suffix}")
    return there


def is_complete(path: Path) -> bool:
    """Whether a part is complete, as far as its end shows: only Parquet's does. Raises OSError if it is unreadable."""
    if path.suffix != ".parquet":
        return True
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(-min(size, _FOOTER), os.SEEK_END)
        end = file.read()
    return len(end) == _FOOTER and end[4:] == _MAGIC and 0 < int.from_bytes(end[:4], "little") <= size - 12


def unlink(paths: Iterable[Path]) -> None:
    """Remove files that may be missing. Raises OutputError."""
    for path in paths:
        with writing(path):
            path.unlink(missing_ok=True)


def temporary_files(out: Path) -> Iterator[Path]:
    """The temporary part files that interrupted runs have left."""
    for folder in (*FOLDERS, FILES):
        yield from sorted((out / folder).glob(".*.part"))
