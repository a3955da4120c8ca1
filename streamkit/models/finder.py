# SPDX-License-Identifier: Apache-2.0
"""Single frames through a card's network, from the tensor to the objects: for the commands that examine cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.data import Array, Detections, Device, Frame, Surface
from streamkit.core.errors import ModelError
from streamkit.io.outputs import AtomicFile
from streamkit.models import families
from streamkit.models.card import Card, family_of
from streamkit.models.network import check_model, inspect
from streamkit.models.session import Session
from streamkit.ops import preprocess


def frame_tensor(card: Card, frame: Frame, device: Device) -> tuple[Array, np.ndarray, np.ndarray]:
    """Return the input for one frame; for a network that takes clips, a clip that stands still. See `clip_tensor`."""
    return clip_tensor(card, [frame], device)


def clip_tensor(card: Card, frames: Sequence[Frame], device: Device) -> tuple[Array, np.ndarray, np.ndarray]:
    """Return a network's input for one frame, or for a clip of frames, the last of which is repeated to its length.

    Returns:
        The tensor on the device, which must be current; the geometry of the last frame; and its (1, 2) width and
        height.
    """
    surfaces = [frame.surface for frame in frames if frame.surface is not None]
    sizes = [(frame.width, frame.height) for frame in frames]
    if device.kind != "cpu":
        surfaces = [Surface(device.xp.asarray(surface.data), surface.color) for surface in surfaces]
    tensor, geometry = preprocess.preprocess(surfaces, sizes, card.input)
    clip = inspect(card.file).clip
    if clip is not None:
        places = np.minimum(np.arange(clip.count()), len(frames) - 1)
        tensor = clip.stacked(tensor[device.xp.asarray(places)][None])
    return tensor, geometry[-1:], np.array(sizes[-1:], np.int64)


def decode(
    card: Card,
    outputs: Mapping[str, Array],
    geometry: np.ndarray,
    size: tuple[int, int],
    min_score: float | None = None,
) -> Detections:
    """Decode the outputs for one frame as the pipeline does; the table is on the host.

    Args:
        card: the network.
        outputs: the network's, on its device, which must be current.
        geometry: (1, 4), as from `preprocess`.
        size: width, height of the frame.
        min_score: objects below are discarded; by default the card's `score`.
    """
    reads = family_of(card)
    sizes = np.array([size], np.int64)
    threshold = card.score if min_score is None else min_score
    options = families.ReadOptions(np.full(max(1, len(card.labels)), threshold, np.float32), iou=card.iou)
    table, _ = families.begin_table(reads, outputs, geometry, sizes, card.input.size, options, card.labels)
    return table()[0]


def finds_objects(card: Card) -> bool:
    """Whether the card's results are objects with boxes."""
    return card.task in ("detect", "segment", "pose") and not family_of(card).regions


def run(card: Card, frame: Frame) -> tuple[Mapping[str, Any], np.ndarray]:
    """Return the network's outputs for one frame on the host, and the geometry (1, 4)."""
    session = Session(card.file, Device(), ignore_outputs=card.ignore_outputs)
    tensor, geometry, sizes = frame_tensor(card, frame, Device())
    return session.run({session.image_input: tensor, **family_of(card).extra_inputs(sizes, np)}), geometry


def find(card: Card, frame: Frame, min_score: float | None = None) -> Detections:
    """Return the objects of one frame on the host; `min_score` as in `decode`."""
    outputs, geometry = run(card, frame)
    return decode(card, outputs, geometry, (frame.width, frame.height), min_score)


# ----------------------------------------------------------------------------------------------------------- drawing


def draw_best(card: Card, frames: Sequence[Frame], path: Path) -> str:
    """Draw the frame with the most sure objects into a PNG file; return what was drawn.

    Raises:
        ModelError: the card finds no objects with boxes, or the file is no `.png`.
        OutputError: the file cannot be written.
    """
    check_drawable(card, path)
    card = check_model(card)
    tables = [find(card, frame) for frame in frames]
    best = max(range(len(frames)), key=lambda i: float(tables[i].score.sum()))
    table = tables[best]
    AtomicFile(path).write(_png(frames[best], table))
    if not len(table):
        return f"{path}: frame 1 of {len(frames)}; no frame has an object with a score of {card.score:g} or more"
    names = [card.labels[i] for i in table.class_id.tolist()]
    listed = ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names), key=names.index))
    lowest = table.score.min()
    highest = table.score.max()
    return f"{path}: frame {best + 1} of {len(frames)}, {listed}; scores {lowest:.2f} to {highest:.2f}"


def check_drawable(card: Card, path: Path) -> None:
    """Raise ModelError unless `draw_best` can draw the card's objects into that file."""
    if not finds_objects(card):
        raise ModelError(f"--draw is for objects with boxes, and {card.name} has task {card.task}; leave --draw out")
    if path.suffix.lower() != ".png":
        raise ModelError(f"--draw {path} must end in .png")


def _png(frame: Frame, table: Detections) -> bytes:
    import cv2

    from streamkit.ops.annotate import annotate
    from streamkit.ops.color import to_rgb
    from streamkit.ops.glyphs import Atlas
    from streamkit.ops.overlay import draw
    from streamkit.ops.style import Style

    assert frame.surface is not None
    surface = Surface(frame.surface.data.copy(), frame.surface.color)
    atlas = Atlas()
    atlas.begin()
    marks, ends = annotate([surface], [table], Style(), atlas)
    rgb = to_rgb(draw([surface], marks, ends, atlas, in_place=True)[0], frame.width, frame.height)
    return bytes(cv2.imencode(".png", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))[1].tobytes())
