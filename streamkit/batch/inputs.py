# SPDX-License-Identifier: Apache-2.0
"""Resolves command-line arguments to the files of an archive: patterns, folders, lists, and addresses."""

from __future__ import annotations

import glob
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from streamkit.batch import remote
from streamkit.batch.folder import MANIFEST
from streamkit.batch.job import NO_VERSION, VideoFile, printable
from streamkit.core.errors import ConfigError
from streamkit.io.image_file import natural_key
from streamkit.media.source_resolver import VIDEOS
from streamkit.media.uris import is_path, local_path, mask

logger = logging.getLogger(__name__)


def find(patterns: Sequence[str], out: Path | None = None) -> list[VideoFile]:
    """The files that the patterns match, without duplicates, in natural order of their names.

    A pattern is a file; a folder, which is searched recursively for video files by suffix; a glob, where `**` matches
    any number of folders; an address for fsspec, with or without wildcards; or a list, `@names` or `names.txt`, with
    one of these per line; empty lines and lines that begin with # are skipped. A glob matches only video files unless
    it has a suffix. Paths are relative to the current folder, also those in a list.

    Broken links, unreadable folders and folders with a video's suffix, and missing files of a list are included: each
    fails on its own when it is processed.

    Args:
        patterns: the command-line arguments.
        out: the folder of the data set. Files in it, and links to them, are skipped: otherwise each run would find the
            videos that the previous one has written.

    Raises:
        ConfigError: a pattern matches nothing, all files are in `out`, or an address cannot be listed: no such bucket,
            no credentials.
        MissingPackage: an address needs a package that is not installed.
    """
    by_uri: dict[str, VideoFile] = {}
    for pattern in patterns:
        files = list(_listed(pattern) if _is_list(pattern) else _named(pattern))
        if not files:
            raise ConfigError(f"{mask(pattern)}: {_nothing(pattern)}")
        for file in files:
            by_uri.setdefault(file.uri, file)
    files = _outside(out, list(by_uri.values()))
    return sorted(_distinct(files), key=lambda file: natural_key(file.name))


def _outside(out: Path | None, files: list[VideoFile]) -> list[VideoFile]:
    """The files outside the data set."""
    if out is None or not (out / MANIFEST).is_file():  # anything else is refused, unless it is empty
        return files
    home = os.path.realpath(out)
    left = [file for file in files if not (is_path(file.uri) and _lies_in(home, file.uri))]
    if not left:
        raise ConfigError(f"all files found are in {out}, the output folder of this run; name other files")
    if count := len(files) - len(left):
        logger.warning(f"{count:,} file{'s' * (count > 1)} in {out} skipped: it is the output folder of this run")
    return left


def _lies_in(folder: str, path: str) -> bool:
    """Whether a path is in a folder, or a link into it; both have resolved parents."""
    paths = (path, os.path.realpath(path)) if os.path.islink(path) else (path,)
    return any(os.path.commonpath((folder, candidate)) == folder for candidate in paths)


def _is_list(pattern: str) -> bool:
    return pattern.startswith("@") or (
        is_path(pattern) and pattern.lower().endswith(".txt") and not remote.is_wild(pattern)
    )


def _listed(pattern: str) -> Iterator[VideoFile]:
    path = Path(pattern.removeprefix("@")).expanduser()
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except FileNotFoundError:
        raise ConfigError(f"there is no list {path}") from None
    except OSError as error:
        raise ConfigError(f"the list {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a list of files: it is not UTF-8 text") from None
    entries = [line for line in lines if line and not line.startswith("#")]
    if not entries:
        raise ConfigError(f"the list {path} is empty")
    missing = []
    for entry in entries:
        files = list(_named(entry))
        if not files and is_path(entry) and not remote.is_wild(entry):
            missing.append(_missing_file(entry))
        elif not files:
            raise ConfigError(f"{mask(entry)}, in the list {path}: {_nothing(entry)}")
        yield from files
    if len(missing) == len(entries):
        count = len(entries)
        raise ConfigError(f"none of the {count} files in the list {path} exists, relative to {os.getcwd()}")
    yield from missing


def _named(pattern: str) -> Iterator[VideoFile]:
    if not is_path(pattern):
        yield from remote.find(pattern)
        return
    path = os.path.expanduser(local_path(pattern))
    if os.path.isdir(path) and (Path(path).suffix.lower() not in VIDEOS or any(True for _ in _inside(path))):
        yield from (_file(video, path) for video in _inside(path))
    elif remote.is_wild(path) and not os.path.lexists(path):
        root = _root(path)
        anything = Path(path).suffix.lower() in ("", ".*")
        for match in glob.iglob(path, recursive=True):
            if _video(match) if anything or os.path.isdir(match) else True:
                yield _file(match, root)
        yield from (_file(unreadable, root) for unreadable in _barred(path) if unreadable != root)
    elif os.path.lexists(path):
        yield _file(path, os.path.dirname(path))


def _inside(folder: str) -> Iterator[str]:
    """Paths of video files below a folder, by suffix, without hidden ones; a link to a folder is followed once.

    Unreadable subfolders are included, because they may contain videos.
    """
    seen = set()
    barred = list[str]()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=lambda e: barred.append(str(e.filename))):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if name[0] != "."]
        yield from (os.path.join(place, name) for name in (*names, *folders) if _video(name))
    yield from (unreadable for unreadable in barred if unreadable != folder and not _video(unreadable))


def _barred(pattern: str) -> list[str]:
    """Folders on the path of a pattern that may not be read; `glob` skips them silently."""
    parts = Path(pattern).parts
    first = len(remote.before_wildcard(parts))
    needs = Counter[int]()
    for n, part in enumerate(parts[first:], first):
        needs[n + (part == "**")] |= os.R_OK if remote.is_wild(part) else os.X_OK
    return sorted(place for n, need in needs.items() for place in _folders(parts[:n]) if not os.access(place, need))


def _folders(parts: Sequence[str]) -> Iterator[str]:
    """The folders that the first parts of a pattern match."""
    if parts:
        yield from (folder.rstrip("/") or "/" for folder in glob.iglob(os.path.join(*parts, ""), recursive=True))


def _video(path: str) -> bool:
    name = os.path.basename(path)
    return name[:1] != "." and os.path.splitext(name)[1].lower() in VIDEOS


def _file(path: str, root: str) -> VideoFile:
    """The file at a path, named by its path relative to `root`."""
    # two paths to one folder name one file; two links in a folder are two files
    uri = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    name = printable(PurePosixPath(os.path.relpath(path, root or ".")).as_posix())
    try:
        stat = os.stat(path)
    except OSError:
        return VideoFile(uri, name, 0, NO_VERSION)
    return VideoFile(uri, name, 0 if os.path.isdir(path) else stat.st_size, str(stat.st_mtime_ns))


def _missing_file(path: str) -> VideoFile:
    absolute = os.path.abspath(os.path.expanduser(local_path(path)))
    return _file(absolute, os.path.dirname(absolute))


def _root(pattern: str) -> str:
    """The folders of a pattern before its first wildcard."""
    parts = remote.before_wildcard(Path(pattern).parts)
    return str(Path(*parts)) if parts else ""


def _distinct(files: list[VideoFile]) -> list[VideoFile]:
    """Files with unique names: those with the same name are named by their whole path."""
    counts = Counter(file.name for file in files)
    return [file if counts[file.name] == 1 else replace(file, name=printable(_whole_way(file.uri))) for file in files]


def _whole_way(uri: str) -> str:
    return uri.partition("://")[2] if "://" in uri else uri.lstrip("/\\").replace("\\", "/").replace(":", "")


def _nothing(pattern: str) -> str:
    """Why a pattern matches nothing."""
    path = os.path.expanduser(local_path(pattern))
    root = "" if not is_path(pattern) else _root(path) if remote.is_wild(path) else path
    if root and (barred := _closed(root)):
        return f"no permission to read the folder {barred}"
    if is_path(pattern) and not remote.is_wild(path):
        if os.path.isdir(path):
            return (
                "the folder has no file with a video extension such as .mp4 or .mkv, at any depth; name another "
                "folder, or the files themselves"
            )
        return "there is no such file or folder"
    if root and not os.path.isdir(root):
        return f"there is no folder {root}"
    hint = "" if not is_path(pattern) or "**" in pattern else "; ** matches any number of folders"
    return f"the pattern matches no video{hint}"


def _closed(path: str) -> str | None:
    """The lowest existing folder of a path, if it may not be read."""
    there = next((ancestor for ancestor in (Path(path), *Path(path).parents) if os.path.isdir(ancestor)), None)
    return None if there is None or os.access(there, os.R_OK | os.X_OK) else str(there)
