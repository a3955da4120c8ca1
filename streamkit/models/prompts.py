# SPDX-License-Identifier: Apache-2.0
"""Prompts of an open-vocabulary network: which input takes them, and what is fed to it.

| form | input of the network | card |
| --- | --- | --- |
| embeddings | (1, P, D), (N, P, D) or (P, D) float | `text` has an `encoder` |
| tokens | (P, L) or (N x P, L) token ids, maybe with a mask | `text` has no `encoder`; it is in the network |

N is the number of images, P of prompts, D of values of an embedding. P may be fixed: the rest is filled with zeros, or
with tokens of a blank text. Scores for these are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from streamkit.core.data import Device
from streamkit.core.errors import MissingPackage, ModelError
from streamkit.models.card import Card, family_of
from streamkit.models.network_file import ModelInfo, TensorInfo, inspect
from streamkit.models.shared_inputs import SharedInputs
from streamkit.models.text_encoder import TextEncoder, TokenInputs, token_inputs, tokenize


@dataclass(frozen=True)
class PromptInput:
    """How a network takes prompts.

    Attributes:
        embeddings: its input for embeddings; None if it takes tokens.
        tokens: its inputs for tokens; None if it takes embeddings.
        slots: the number of prompts that it takes; None for any.
        per_image: whether it wants the prompts once for each image.
    """

    embeddings: TensorInfo | None = None
    tokens: TokenInputs | None = None
    slots: int | None = None
    per_image: bool = False


@dataclass(frozen=True)
class Prompts:
    """Prompts, ready to be fed.

    Attributes:
        texts: the prompt of each of the network's classes; empty for the classes after them.
        shared: the network's inputs, on its device.
    """

    texts: tuple[str, ...]
    shared: SharedInputs


def prompt_input(card: Card, info: ModelInfo) -> PromptInput:
    """Return how a network takes prompts.

    Raises:
        ValueError: it takes none, or not in a form that is supported.
        ModelError: the text encoder cannot be used.
    """
    assert card.text is not None
    of_family = family_of(card).extra_inputs(np.ones((1, 2), np.int64), np)
    others = [
        info_of_input
        for name, info_of_input in info.inputs.items()
        if name != info.image_input and name not in of_family
    ]
    name = card.file.name
    if not others:
        raise ValueError(
            f"{name} has no input for texts; its classes are fixed: leave text out of the card, and give it labels"
        )
    if card.text.encoder is None:
        tokens = token_inputs(others, name)
        texts = tokens.ids.shape[0]
        return PromptInput(None, tokens, None if texts is None else texts // (info.batch or 1), texts is None)
    embeddings = others[0]
    if len(others) > 1 or embeddings.dtype.kind != "f" or len(embeddings.dims) not in (2, 3):
        listed = ", ".join(
            f"{info_of_input.name}{list(info_of_input.dims)} of {info_of_input.dtype}" for info_of_input in others
        )
        raise ValueError(
            f"{name} must have one input beside the images, embeddings of texts as (1, P, D) or (P, D) of floats; it "
            f"has {listed}"
        )
    encoder = TextEncoder(card)
    size = embeddings.shape[-1]
    if None not in (size, encoder.size) and size != encoder.size:
        raise ValueError(
            f"the input {embeddings.name}{list(embeddings.dims)} of {name} takes embeddings of {size} values, and "
            f"{card.text.encoder.name} makes {encoder.size}; take the text encoder that the network was trained with"
        )
    return PromptInput(embeddings, None, embeddings.shape[-2], len(embeddings.dims) == 3 and embeddings.shape[0] != 1)


def check_prompts(card: Card, prompts: Sequence[str] | None) -> None:
    """Check the prompts of a stage; raise ValueError.

    What needs the network's file is checked only if there is one, and ONNX Runtime.
    """
    if not card.takes_prompts:
        if prompts is not None:
            classes = f" ({', '.join(card.labels[:5])}{', ...' if len(card.labels) > 5 else ''})" if card.labels else ""
            raise ValueError(
                f"{card.name} finds the classes that it was trained on{classes}, and takes no prompts; leave prompts "
                "out, or take the card of an open-vocabulary network, which has text"
            )
        return
    if not prompts:
        raise ValueError(f"{card.name} finds what prompts name; add prompts, such as [forklift, person]")
    folded: dict[str, str] = {}
    for prompt in prompts:
        if not prompt.strip():
            raise ValueError(f"prompts has an empty text, {prompt!r}; remove it")
        other = folded.setdefault(" ".join(prompt.lower().split()), prompt)
        if other is not prompt:
            raise ValueError(f"prompts has {other!r} and {prompt!r}, which are the same; remove one")
    with suppress(ModelError, MissingPackage):  # `check_model` and `probe` report these
        _check_size(card, prompts)


def _check_size(card: Card, prompts: Sequence[str]) -> None:
    assert card.text is not None
    how = prompt_input(card, inspect(card.file))
    if how.slots is not None and len(prompts) > how.slots:
        raise ValueError(
            f"prompts has {len(prompts)} texts, and {card.file.name} takes at most {how.slots}; remove some, or export "
            "it for more"
        )
    if how.tokens is not None:
        tokenize(prompts, card.text, how.tokens.length)
    else:
        TextEncoder(card).check(prompts)


def prepare(card: Card, prompts: Sequence[str], device: Device) -> Prompts:
    """Tokenize and embed prompts. On a GPU, the device and its stream must be current.

    Raises:
        ValueError: they do not fit the network.
        ModelError: the text encoder cannot be used.
    """
    check_prompts(card, prompts)
    assert card.text is not None
    how = prompt_input(card, inspect(card.file))
    texts = tuple(prompts)
    slots = how.slots or len(texts)
    if how.tokens is not None:
        ids, mask = tokenize(texts, card.text, how.tokens.length)
        blank = tokenize([" "], replace(card.text, template="{}"), ids.shape[1], blank=True)
        ids, mask = (
            np.concatenate([rows, *[row] * (slots - len(rows))]) for rows, row in zip((ids, mask), blank, strict=True)
        )
        feeds = how.tokens.feeds(ids, mask)
    else:
        assert how.embeddings is not None
        vectors = TextEncoder(card).embed(texts)
        vectors = np.concatenate([vectors, np.zeros((slots - len(texts), vectors.shape[1]), np.float32)])
        shape = vectors.shape if len(how.embeddings.dims) == 2 else (1, *vectors.shape)
        feeds = {how.embeddings.name: vectors.reshape(shape).astype(how.embeddings.dtype)}
    xp = device.xp
    shared = SharedInputs({name: xp.asarray(feed) for name, feed in feeds.items()}, how.per_image)
    return Prompts((*texts, *[""] * (slots - len(texts))), shared)
