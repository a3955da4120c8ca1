# SPDX-License-Identifier: Apache-2.0
"""Checks of ONNX files against cards. No device is touched; `network_file.py` reads the files."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamkit.core.errors import ModelError
from streamkit.core.text import did_you_mean
from streamkit.models.card import Card, wrong
from streamkit.models.file_version import FileVersion, file_version
from streamkit.models.network_file import (
    ModelInfo,
    TensorInfo,
    external_files,
    inspect,
    names_a_layer,
    not_run,
    short,
)
from streamkit.models.prompts import prompt_input
from streamkit.models.text_encoder import TextEncoder

if TYPE_CHECKING:
    from streamkit.models.families import Family

__all__ = [
    "ModelInfo",
    "TensorInfo",
    "check_model",
    "inspect",
    "names_a_layer",
    "not_run",
    "sha256",
    "short",
    "verify",
    "wrong",
]

_MIN_LEVELS = 32
"""Of an input of whole numbers, the range of values below which the card's scale must be wrong."""
_HIGHEST_LEVEL = 255.5
"""Above, a value is not rounded to 255, but cut."""


def check_model(card: Card) -> Card:
    """Check that a card's file exists, has its checksum, and fits its input, family and labels.

    Returns:
        The card, with the layout and dtype of `input` as in the file.

    Raises:
        ModelError: lists everything that is wrong.
    """
    from streamkit.models.card import family_of

    if not card.file.is_file():
        raise wrong(card, f"its file {card.file} does not exist; {card.how_to_get()}")
    if card.sha256:
        verify(card)
    try:
        whole = inspect(card.file)
    except ModelError as error:
        raise wrong(card, str(error)) from None
    info = whole.without_outputs(card.ignore_outputs)
    problems = _ignored_outputs(card, whole)
    if info.size is not None and info.size != card.input.size:
        stated, takes = ("{} x {}".format(*size) for size in (card.input.size, info.size))
        problems.append(f"input.size is {stated} (width, height), but {card.file.name} takes {takes}")
    reads = family_of(card)
    if info.dtype == "u8":
        problems += _whole_numbers(card)
    problems += _time_axis(card, reads, info)
    problems += _other_inputs(card, reads, info)
    classes = _classes(card, info)
    try:
        reads.check(info.output_dims, classes)
    except ValueError as error:
        problems.append(str(error))
    else:
        problems += _points(card, reads, info)
        problems += _unread_outputs(card, reads, info, classes)
    if problems:
        raise wrong(card, *problems)
    spec = dataclasses.replace(card.input, layout=info.layout, dtype=info.dtype)
    return dataclasses.replace(card, input=spec)


def takes_single_images(card: Card) -> bool:
    """Whether a network takes one image at a time, see `Family.single_image`."""
    from streamkit.models.card import family_of

    return family_of(card).single_image(inspect(card.file).without_outputs(card.ignore_outputs).output_dims)


def _whole_numbers(card: Card) -> list[str]:
    """Return problems with scale, mean and std of an input of whole numbers from 0 to 255."""
    spec = card.input
    factor, summand, _ = spec.affine()
    black = summand + 0.0  # never -0
    white = 255 * factor + black
    if (white - black).min() < _MIN_LEVELS:
        what = f"scale {spec.scale:.4g} leaves few of them"
    elif black.min() < 0 or white.max() > _HIGHEST_LEVEL:
        what = f"scale, mean and std turn pixels into {black.min():g} to {white.max():g}, which are cut at 0 and 255"
    else:
        return []
    return [
        f"{card.file.name} takes images of whole numbers (uint8), and {what}; such networks scale by themselves: in a "
        f"card, set input.scale: 1, mean: 0 and std: 1{_card_of(card)}"
    ]


def _time_axis(card: Card, reads: Family, info: ModelInfo) -> list[str]:
    """Return a problem if only one of network and family is for clips."""
    if reads.takes_clips == (info.clip is not None):
        return []
    network, family = ("clips", "single images") if info.clip is not None else ("single images", "clips")
    shape = list(info.inputs[info.image_input].dims)
    return [
        f"{card.file.name} takes {network}, {info.image_input} {shape}, and family {card.family} is for {family}; "
        f"take a family for {network}{' and task: action' if info.clip is not None else ''}"
    ]


def _other_inputs(card: Card, reads: Family, info: ModelInfo) -> list[str]:
    """Return problems with the inputs beside the images."""
    if card.text is not None:
        try:
            if card.takes_prompts:
                prompt_input(card, info)
                return []
            TextEncoder(card)
        except ModelError as error:
            return [problem.text for problem in error.problems]
        except ValueError as error:
            return [str(error)]
    unknown = info.inputs.keys() - {info.image_input} - reads.extra_inputs(np.ones((1, 2), np.int64), np).keys()
    if not unknown:
        return []
    hint = "; if it takes texts, write a card with text: {encoder: ..., tokenizer: ...}" if card.task != "embed" else ""
    return [f"family {card.family} has no value for the input {', '.join(sorted(unknown))}{hint}"]


def _ignored_outputs(card: Card, info: ModelInfo) -> list[str]:
    """Return problems with `ignore_outputs`: names that the network does not have."""
    return [
        f"ignore_outputs names {name!r}, and {card.file.name} has no such output; its outputs are "
        f"{', '.join(info.outputs)}{did_you_mean(name, info.outputs)}"
        for name in card.ignore_outputs
        if name not in info.outputs
    ]


def _unread_outputs(card: Card, reads: Family, info: ModelInfo, classes: int) -> list[str]:
    """Return a problem if the family does not read an output: what it holds would be lost without a word."""
    from streamkit.models.families.base import listed, unclaimed

    unread = unclaimed(reads, info.output_dims, classes)
    if not unread:
        return []
    lost = listed({name: info.outputs[name].dims for name in unread})
    return [
        f"family {card.family} does not read the output{'s' * (len(unread) > 1)} {lost}; take a family that does, or "
        f"to go without, write ignore_outputs: [{', '.join(unread)}] in the card"
    ]


def _classes(card: Card, info: ModelInfo) -> int:
    """Return the number of classes that the outputs must have; with prompts, as many as the network takes."""
    if not card.takes_prompts:
        return len(card.labels)
    try:
        return prompt_input(card, info).slots or 1
    except (ModelError, ValueError):
        return 1


def _card_of(card: Card) -> str:
    return f" (write it with: streamkit models new {card.file.name})" if card.derived else ""


def _points(card: Card, reads: Family, info: ModelInfo) -> list[str]:
    """Return problems with the number of keypoints that the card names."""
    count = reads.points(info.output_dims, len(card.labels))
    named = len(card.skeleton.names) if card.skeleton is not None else 0
    if not named or count is None or count == named:
        return []
    return [f"{card.file.name} has {count} keypoints, and keypoints lists {named}; list the keypoints of this network"]


def verify(card: Card) -> None:
    """Check the file against the card's sha256.

    Raises:
        ModelError: the checksum differs.
    """
    checksum = sha256(card.file)
    if checksum != card.sha256:
        fetch = f", or fetch it again with: streamkit models pull {card.name}" if card.url else ""
        raise wrong(
            card,
            f"{card.file} is not the file of this card: its SHA-256 is {checksum}, not {card.sha256}. To use another "
            f"file, write a separate card for it without url and sha256{fetch}",
        )


def sha256(file: Path) -> str:
    """Return a file's SHA-256; cached until the file changes."""
    return _sum(file.absolute(), file_version(file))


def network_hash(file: Path) -> str:
    """Return the hash of all that a network computes with: its file, and the files with its weights.

    It names a network in every cache. The result is cached until the files change; missing files are left out.
    """
    weights = [file.parent / name for name in _external_files(file.absolute(), file_version(file))]
    sums = [sha256(part) for part in (file, *weights) if part.is_file()]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


@functools.lru_cache(maxsize=64)
def _external_files(file: Path, version: FileVersion) -> tuple[str, ...]:
    return tuple(external_files(file))


@functools.lru_cache(maxsize=64)
def _sum(file: Path, version: FileVersion) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
