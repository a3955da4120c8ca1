# SPDX-License-Identifier: Apache-2.0
"""The vector of a text or an image, by the card that embedded a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.batch.identity import network_sum
from streamkit.core.data import Color, Device, Surface
from streamkit.core.errors import ConfigError, ModelError
from streamkit.io.image_file import IMAGE_SUFFIXES, read_rgb
from streamkit.models.card import Card, family_of
from streamkit.models.derive import open_model
from streamkit.models.network import check_model
from streamkit.models.session import Session
from streamkit.models.text_encoder import TextEncoder
from streamkit.ops.color import from_rgb
from streamkit.ops.preprocess import preprocess
from streamkit.query.dataset_location import DatasetLocation

LIKE_ROWS = 50
"""Tracks that are shown unless another number is given."""


def vector_of(dataset: DatasetLocation, like: str, model: str | None = None) -> np.ndarray:
    """Return the vector of a text, or of an image file, (d,) float32 of length 1.

    Args:
        dataset: the data set.
        like: the text, or the path of an image.
        model: the card; by default the one of that name that embedded the data set.

    Raises:
        ConfigError: the data set has no embeddings, or another network made them; the text is unusable.
        SourceError: the image cannot be read.
        MissingPackage: a text needs the package `tokenizers`.
    """
    if not like.strip():
        raise ConfigError("--like needs a text or an image, got nothing")
    card = _card_of(dataset, model)
    if Path(like).suffix.lower() in IMAGE_SUFFIXES:
        return _of_image(card, Path(like))
    try:
        return np.asarray(TextEncoder(card).embed([like])[0])
    except ValueError as error:
        raise ConfigError(f"--like: {error}") from None


def _card_of(dataset: DatasetLocation, model: str | None) -> Card:
    """The card that embedded a data set; raise ConfigError."""
    stages: Mapping[str, Any] = dataset.identity.get("stages", {})
    models: Mapping[str, Any] = dataset.identity.get("models", {})
    recorded = [settings for settings in stages.values() if settings.get("stage") == "embed" and settings.get("record")]
    # objects have the vectors of the last stage
    of = {settings["of"]["stage"]: settings["model"] for settings in recorded}
    names = list(dict.fromkeys(of.values()))
    if len(names) > 1:
        raise ConfigError(
            f"{dataset.address} has vectors of several networks: {', '.join(f'{of[id_]} of {id_}' for id_ in of)}; a "
            "search needs those of one: leave out the other `record`, and run batch again"
        )
    if not names:
        raise ConfigError(
            f"{dataset.address} has no embeddings: put `embed: {{model: CARD, of: detect, record: best}}` below the "
            "tracker of the pipeline, and run batch again"
        )
    name = names[0]
    try:
        card = open_model(model or name)
    except ModelError as error:
        if model is not None:
            raise
        raise ConfigError(
            f"{dataset.address} was embedded with the card {name}; give it with --model: {error}"
        ) from None
    if card.task != "embed":
        raise ConfigError(f"--like needs a card with task: embed; {card.name} has task: {card.task}")
    card = check_model(card)
    actual_sha256 = network_sum(card.file)
    expected_sha256 = str(models.get(name, {}).get("sha256", ""))
    if actual_sha256 != expected_sha256:
        raise ConfigError(
            f"{dataset.address} was embedded by another network: the file of the card {name} had the SHA-256 "
            f"{expected_sha256[:12]}..., and {card.file} has {actual_sha256[:12]}...; give the card of that network "
            "with --model, or run batch again"
        )
    return card


def _of_image(card: Card, path: Path) -> np.ndarray:
    if not path.is_file():
        raise ConfigError(f"--like: there is no image {path}; for a text, leave out {path.suffix}")
    rgb = read_rgb(str(path))
    color = Color("bt601", full_range=True, chroma_x=0.5)
    surface = Surface(from_rgb(rgb, color), color)
    size = (rgb.shape[1], rgb.shape[0])
    tensor, _ = preprocess([surface], [size], card.input)
    session = Session(card.file, Device(), ignore_outputs=card.ignore_outputs)
    family = family_of(card)
    outputs = session.run({session.image_input: tensor})
    return np.asarray(family.finish(family.vectors(outputs)[:1])[0])  # type: ignore[attr-defined]
