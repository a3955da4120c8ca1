# SPDX-License-Identifier: Apache-2.0
"""Frames spread evenly over clips and images, decoded as a pipeline on the CPU decodes them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.core.errors import SourceError
from streamkit.io.image_file import IMAGE_SUFFIXES, MAX_MEGAPIXELS, natural_key, read_rgb
from streamkit.media.frame_sampling import FrameSampler
from streamkit.media.reader import VideoReader
from streamkit.media.source_resolver import VIDEOS, image_files, no_media_reason
from streamkit.media.surfaces import SurfacePool
from streamkit.ops.color import from_rgb

JPEG = Color("bt601", full_range=True, chroma_x=0.5, chroma_y=0.5)
"""Color format of images."""


def images_and_videos(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the images and the videos that files and folders stand for, in natural order within a folder.

    Raises:
        SourceError: a path does not exist, or a folder has neither images nor videos.
    """
    images = list[Path]()
    videos = list[Path]()
    for path in paths:
        if not path.exists():
            raise SourceError(f"there is no file or folder {path}")
        folder = path.is_dir()
        if folder and (reason := no_media_reason(str(path))):
            raise SourceError(f"{path}: {reason}")
        files = sorted((file for file in path.iterdir() if file.is_file()), key=natural_key) if folder else [path]
        stills = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
        clips = [file for file in files if file.suffix.lower() in VIDEOS or not (folder or stills)]
        if folder and stills:
            stills = [Path(image) for image in image_files(str(path))]
        images += stills
        videos += clips
    return images, videos


def spread_frames(
    images: Sequence[Path], videos: Sequence[Path], count: int, *, max_megapixels: float = MAX_MEGAPIXELS
) -> list[Frame]:
    """Read about `count` frames on the host: an equal share of each video, and one share of all images together.

    Args:
        images: image files.
        videos: video files.
        count: number of frames; fewer are returned if the files have fewer.
        max_megapixels: larger images are rejected.

    Returns:
        The frames, in the order of the files; `source` is the file's name.

    Raises:
        SourceError: a file cannot be read.
    """
    share = -(-count // (len(videos) + bool(images))) if images or videos else 0
    step = max(1, len(images) // share) if images else 1
    frames = list(still_frames(images[::step][:share], max_megapixels=max_megapixels))
    for video in videos:
        frames += _of_video(video, share)
    return frames


def still_frames(images: Sequence[Path], *, max_megapixels: float = MAX_MEGAPIXELS) -> Iterator[Frame]:
    """Yield each image as a frame on the host; `source` is the file's name.

    Raises:
        SourceError: an image cannot be read.
    """
    for index, path in enumerate(images):
        rgb = read_rgb(os.fspath(path), max_megapixels, "--max-megapixels")
        yield Frame(path.name, index, 0.0, rgb.shape[1], rgb.shape[0], Surface(from_rgb(rgb, JPEG), JPEG))


def first_frames(files: Sequence[str], every: int) -> Iterator[Frame]:
    """Yield every n-th frame of files from their beginning, on the host: one of each file, then the next of each.

    Args:
        files: paths of videos and images, folders and patterns of images; one that cannot be read is left out.
        every: 1 for all frames.
    """
    readers = [_from_beginning(Path(file), every) for file in files]
    while readers:
        for reader in list(readers):
            try:
                yield next(reader)
            except (StopIteration, SourceError):
                readers.remove(reader)


def _from_beginning(path: Path, every: int) -> Iterator[Frame]:
    if path.is_dir() or glob.has_magic(str(path)) or path.suffix.lower() in IMAGE_SUFFIXES:
        yield from still_frames([Path(image) for image in image_files(str(path))])
        return
    device = Device()
    counters = Counters()
    reader = VideoReader(str(path), device, SurfacePool(device), counters)
    try:
        for index, decoded in reader.frames(sampler=FrameSampler(every, None)):
            if index % every == 0:
                yield Frame(path.name, index, decoded.pts_s, decoded.width, decoded.height, decoded.surface)
    finally:
        reader.close()


def _of_video(path: Path, count: int) -> list[Frame]:
    device = Device()
    counters = Counters()
    reader = VideoReader(str(path), device, SurfacePool(device), counters)
    try:
        info = reader.info
        length = info.frames or int((info.duration_s or 0.0) * (info.average_rate or 25.0))
        every = max(1, length // count)
        frames = []
        for index, decoded in reader.frames(sampler=FrameSampler(every, None)):
            if index % every == 0:
                frames.append(Frame(path.name, index, decoded.pts_s, decoded.width, decoded.height, decoded.surface))
            if len(frames) == count:
                break
    finally:
        reader.close()
    return frames
