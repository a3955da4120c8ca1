# SPDX-License-Identifier: Apache-2.0
"""Resolves an entry of `sources:` to the sources that it stands for."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

from streamkit.core.errors import SourceError
from streamkit.io.image_file import IMAGE_SUFFIXES, natural_key
from streamkit.media.uris import check_address, is_path, local_path, mask, scheme

BARRED = "no permission to look into this folder; change its rights, or name another folder"
VIDEOS = frozenset(
    {
        ".mp4",
        ".m4v",
        ".mov",
        ".mkv",
        ".webm",
        ".avi",
        ".ts",
        ".m2ts",
        ".mts",
        ".mpg",
        ".mpeg",
        ".flv",
        ".wmv",
        ".asf",
        ".3gp",
        ".ogv",
        ".h264",
        ".264",
        ".h265",
        ".265",
        ".hevc",
        ".ivf",
        ".vob",
        ".mxf",
        ".y4m",
        ".mjpeg",
        ".mjpg",
        ".obu",
    }
)


def resolve(source: str, uri: str) -> list[tuple[str, str, str]]:
    """Resolve one entry of `sources:` to sources, each as id, stage name and URI.

    `test://` is the test pattern. A folder or a pattern of videos is one source per file, with the id `<id>/<stem>`;
    one of images is a single source. Anything else is one video. A missing file, or a folder or pattern without videos
    and images, is one source that fails when it is opened.

    Raises:
        SourceError: a folder or pattern contains both videos and images, or the scheme is unknown.
    """
    check_address(uri)
    if scheme(uri) == "test":
        return [(source, "test_pattern", uri)]
    if not is_path(uri):
        return [(source, "source", uri)]
    path = local_path(uri)
    single = [(source, "images" if os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES else "source", uri)]
    files = _files_in(path)
    if files is None:
        return single
    images = [f for f in files if Path(f).suffix.lower() in IMAGE_SUFFIXES]
    videos = [f for f in files if Path(f).suffix.lower() in VIDEOS]
    if images and videos:
        raise SourceError(
            f"{path} contains {len(videos)} videos and {len(images)} images; select one kind, such as *.mp4"
        )
    if images:
        return [(source, "images", uri)]
    if not videos:
        return single
    return [(f"{source}/{stem}", "source", file) for stem, file in zip(_unique(videos), videos, strict=True)]


def resolve_path(uri: str, folder: Path) -> str:
    """The URI, or for a relative path the path next to the YAML in `folder`, if it exists."""
    path = os.path.join(folder, uri)
    if not is_path(uri) or scheme(uri) or os.path.abspath(path) == os.path.abspath(uri):
        return uri
    return path if os.path.exists(path) or (is_pattern(path) and matches(path)) else uri


def missing_reason(uri: str) -> str | None:
    """Message if a run will not find a file, or any video in a folder or pattern; None otherwise."""
    if not is_path(uri):
        return None
    path = local_path(uri)
    nothing = no_media_reason(path)
    if nothing is not None:
        return f"{path}: {nothing}"
    return None if os.path.exists(path) or is_pattern(path) else f"there is no file {path}"


def no_media_reason(path: str) -> str | None:
    """Message if a folder or pattern holds nothing to read; None otherwise, and for any other path."""
    files = _files_in(path)
    if files is None or any(Path(f).suffix.lower() in VIDEOS | IMAGE_SUFFIXES for f in files):
        return None
    if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
        return BARRED
    among = f", among {len(files)} files" if files else ""
    if not os.path.isdir(path):
        return f"the pattern contains no videos or images{among}; check its folder and its suffix"
    fix = "put some there, or name another folder"
    if any(os.path.isdir(os.path.join(path, name)) for name in os.listdir(path)):
        fix = f"its subfolders are not read; for all of them name {os.path.join(path, '**', '*.mp4')}"
    return f"the folder contains no videos or images{among}; {fix}"


def _files_in(path: str) -> list[str] | None:
    """The files of a folder or pattern, in natural order; none of a barred folder; None if the path is neither."""
    if os.path.isdir(path):  # a Path for each of 100,000 sources takes seconds
        with suppress(PermissionError):
            return [str(p) for p in sorted(Path(path).iterdir(), key=natural_key) if p.is_file()]
        return []
    return matches(path) if is_pattern(path) else None


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern: `*`, `?`, `[...]` or `%04d`, unless a file has exactly that name."""
    return bool(re.search(r"[*?[]|%0?\d*d", path)) and not os.path.exists(path)


def matches(path: str) -> list[str]:
    """The files that match a pattern, in natural order: 2 before 10."""
    paths = glob.glob(re.sub(r"%0?\d*d", "[0-9]*", path), recursive=True)
    return sorted((f for f in paths if Path(f).is_file()), key=natural_key)


def image_files(uri: str) -> list[str]:
    """The images of a folder, a pattern or a single file, in natural order.

    Raises:
        SourceError: there are none.
    """
    path = local_path(uri)
    files = _files_in(path)
    images = [path] if files is None else [f for f in files if Path(f).suffix.lower() in IMAGE_SUFFIXES]
    if not images:
        raise SourceError(f"{mask(uri)} contains no image ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return images


def _unique(files: list[str]) -> list[str]:
    """Unique names for files: the stem, with the suffix if stems are equal, and a number if that is not enough."""
    stems = [re.sub(r"[^\w.-]", "_", Path(f).stem) for f in files]
    count = Counter(stems)
    names = dict[str, None]()
    last = Counter[str]()
    for file, stem in zip(files, stems, strict=True):
        base = name = stem if count[stem] == 1 else f"{stem}.{Path(file).suffix[1:]}"
        while name in names:
            last[base] += 1
            name = f"{base}-{last[base] + 1}"
        names[name] = None
    return list(names)
