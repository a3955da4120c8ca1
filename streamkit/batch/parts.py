"""The files that one video's results are: where they lie, how they appear whole, and how they go away.

out/streamkit.json            what pipeline the folder is of
out/objects/KEY.parquet       the format parquet: a row an object,
out/events/KEY.parquet        a row an event,
out/frames/KEY.parquet        a row a frame, of pipelines that say something of whole frames
out/jsonl/KEY.jsonl           the other formats, each in a folder of its own
out/files/KEY.parquet         the row of the file itself, written last: it is what makes the file done
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamkit.batch.job import Settings
from streamkit.errors import ConfigError
from streamkit.messages import did_you_mean
from streamkit.outputs import output_error

FILES = "files"
TOGETHER = "coco.json"
"""What is made of all files together."""

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
_MAGIC, _FOOTER = b"PAR1", 8  # a Parquet file ends with the length of its footer in four bytes, and the magic bytes


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats in the order of `FORMATS`, each once.

    Raises:
        ConfigError: there is no such format, or none is named.
    """
    asked = list(formats)
    for name in asked:
        if name not in FORMATS:
            raise ConfigError(f"--format: there is no {name!r}{_known()}{did_you_mean(name, FORMATS)}")
    if not asked:
        raise ConfigError(f"--format names none{_known()}")
    return tuple(name for name in FORMATS if name in asked)


def _known() -> str:
    return f"; there are {', '.join(FORMATS)}"


def parts(settings: Settings, key: str) -> list[Path]:
    """The files that a job's results may be, without its row in `files`. One that has nothing to hold is not made."""
    return [
        settings.out / folder / f"{key}{suffix}"
        for name in settings.formats
        for folder, suffix in FORMATS[name].items()
    ]


def row_path(out: Path, key: str) -> Path:
    """The file's row in the table of files."""
    return out / FILES / f"{key}.parquet"


def found(out: Path) -> Iterator[tuple[str, Path]]:
    """Every part in the folder that is there, with its key; a video may be several: KEY-2.mp4."""
    for folder, suffix in FOLDERS.items():
        suffixes = _VIDEO_SUFFIXES if folder == "video" else (suffix,)
        with contextlib.suppress(FileNotFoundError):
            for path in sorted((out / folder).iterdir()):
                match = re.fullmatch(r"(.+-[0-9a-f]{16})(-\d+)?", path.stem)
                if match and path.suffix in suffixes:
                    yield match[1], path


def present(settings: Settings, key: str) -> list[Path]:
    """The parts of a job that are there."""
    there = [path for path in parts(settings, key) if path.parent.name != "video" and path.is_file()]
    if "video" in settings.formats:  # in either container, and it may be several: KEY.mp4, KEY-2.mp4, ...
        for suffix in _VIDEO_SUFFIXES:
            path, number = settings.out / "video" / f"{key}{suffix}", 1
            while path.is_file():
                there.append(path)
                number += 1
                path = path.with_name(f"{key}-{number}{suffix}")
    return there


def is_whole(path: Path) -> bool:
    """Whether a part ends as its format wants it; only Parquet's end tells. Raises OSError where it cannot be read."""
    if path.suffix != ".parquet":
        return True
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(-min(size, _FOOTER), os.SEEK_END)
        end = file.read()
    return len(end) == _FOOTER and end[4:] == _MAGIC and 0 < int.from_bytes(end[:4], "little") <= size - 12


def remove(settings: Settings, key: str) -> None:
    """Take a job's parts away, but not its row. Raises OutputError where that cannot be."""
    for path in present(settings, key):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise output_error(path, error) from error


def leftovers(out: Path) -> Iterator[Path]:
    """The part files that a run has left that came to no end."""
    for folder in (*FOLDERS, FILES):
        yield from sorted((out / folder).glob(".*.part"))
