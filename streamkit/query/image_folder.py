# SPDX-License-Identifier: Apache-2.0
"""Writes the images of selected frames into a folder that appears when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.data import Batch, Frame
from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.stage import Context
from streamkit.io.outputs import fsync_folders, writing
from streamkit.io.still_images import jpeg
from streamkit.ops.color import rgb
from streamkit.stages.video.draw import Draw

IMAGE_FORMATS = ("jpg", "png")
_QUALITY = 95


def check_new(folder: Path) -> None:
    """Refuse a folder that exists and is not empty, or a file. Raises ConfigError."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; give another folder")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes its name when the block ends; an error removes it.

    Raises:
        ConfigError: there is a folder of that name with something in it, or a file.
        OutputError: it cannot be written.
    """
    check_new(folder)
    with writing(folder):
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        part = folder.absolute().with_name(f".{folder.name}.{os.urandom(4).hex()}.part")
        part.mkdir()
    try:
        with writing(folder):
            yield part
            fsync_folders(path for path in (part, *part.rglob("*")) if path.is_dir())
            os.replace(part, folder)  # replaces an empty folder
        fsync_folders([folder.absolute().parent])
    finally:
        shutil.rmtree(part, ignore_errors=True)


def encode(frame: Frame, form: str) -> bytes:
    """A frame's image as a file of one of `IMAGE_FORMATS`. Raises OutputError if it is too large for the format."""
    pixels = rgb(frame)
    try:
        return jpeg(pixels, _QUALITY) if form == "jpg" else _png(pixels)
    except ValueError as error:
        raise OutputError(f"{frame.source}, frame {frame.index}: {error}; choose the other image format") from error


def _png(pixels: np.ndarray) -> bytes:
    import cv2

    done, data = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    if not done:
        raise ValueError("it cannot be encoded as PNG")
    return bytes(data)


class Drawer:
    """Draws the objects of frames, as the stage `draw` does by default."""

    def __init__(self) -> None:
        self._draw: Any = Draw(untracked=True)
        self._draw.context = Context(id="draw")
        self._draw.open()

    def __call__(self, frame: Frame) -> None:
        """Replace the frame's pixels."""
        self._draw.process(Batch([frame], tables=dict(frame.tables)))
