# SPDX-License-Identifier: Apache-2.0
"""Texts as tokens and as embeddings: the tokenizer and the text encoder that a card names.

An encoder takes `(texts, tokens)` token ids and maybe an attention mask, and gives a vector for each text. It runs on
the CPU on every device, so that a text has the same embedding everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Device
from streamkit.core.errors import ModelError, needs
from streamkit.models.card import Card, TextSpec, wrong
from streamkit.models.file_version import FileVersion, file_version
from streamkit.models.network_file import TensorInfo, inspect_tensors, short
from streamkit.models.providers import open_session, provider_options

_EMBEDS = ("text_embeds", "text_features", "embeddings", "sentence_embedding")
_MAX_VECTORS = 4096


class TokenInputs(NamedTuple):
    """The inputs of a network for tokens.

    Attributes:
        ids: the token ids.
        mask: 1 for tokens, 0 for padding; None if it takes none.
        zeros: further inputs, which are 0 for a single sentence.
    """

    ids: TensorInfo
    mask: TensorInfo | None
    zeros: tuple[TensorInfo, ...]

    @property
    def length(self) -> int | None:
        """Tokens of a text; None for any number."""
        return self.ids.shape[1]

    def feeds(self, tokens: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Return the inputs for (texts, tokens) ids and their mask."""
        feeds = {self.ids.name: tokens.astype(self.ids.dtype)}
        if self.mask is not None:
            feeds[self.mask.name] = mask.astype(self.mask.dtype)
        return feeds | {tensor.name: np.zeros(tokens.shape, tensor.dtype) for tensor in self.zeros}


def token_inputs(inputs: Sequence[TensorInfo], what: str) -> TokenInputs:
    """Return which inputs take tokens. Raises ValueError if there are others, or none for token ids."""
    ids = None
    mask = None
    zeros = []
    for tensor in inputs:
        if len(tensor.dims) != 2 or tensor.dtype.kind not in "iub":
            raise ValueError(
                f"{what} has the input {tensor.name}{list(tensor.dims)} of {tensor.dtype}, which is not for tokens"
            )
        if "mask" in tensor.name:
            mask = tensor
        elif "type" in tensor.name or "segment" in tensor.name:
            zeros.append(tensor)
        elif ids is None:
            ids = tensor
        else:
            raise ValueError(f"{what} has two inputs for tokens, {ids.name} and {tensor.name}")
    if ids is None:
        raise ValueError(f"{what} has no input for tokens, (texts, tokens) of whole numbers")
    return TokenInputs(ids, mask, tuple(zeros))


def tokenizers() -> Any:
    """Return the module `tokenizers`. Raises MissingPackage."""
    with needs("tokenizers", "text", "a text for a network"):
        import tokenizers
    return tokenizers


def tokenize(
    texts: Sequence[str], spec: TextSpec, length: int | None, *, blank: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of texts and their mask, (texts, tokens) int64.

    Args:
        texts: prompts; the card's template is put around each.
        spec: the card's `text`.
        length: tokens of a text that the network takes; None for any number.
        blank: whether a text may have no tokens.

    Raises:
        ModelError: the tokenizer cannot be read.
        ValueError: a text has too many tokens.
        MissingPackage: the package `tokenizers` is not installed.
    """
    tokenizer = _tokenizer(spec.tokenizer)
    padding = tokenizer.padding or {}
    tokenizer.no_padding()
    tokenizer.no_truncation()
    rows = [tokenizer.encode(spec.template.format(text)).ids for text in texts]
    max_tokens = length or spec.length or max(map(len, rows))
    for text, row in zip(texts, rows, strict=True):
        if len(row) > max_tokens:
            raise ValueError(
                f"the prompt {text!r} has {len(row)} tokens, and the network takes {max_tokens}; shorten it"
            )
        if not row and not blank:
            raise ValueError(f"the prompt {text!r} has no token that the tokenizer knows")
    pad = spec.pad_id if spec.pad_id is not None else padding.get("pad_id", 0)
    ids = np.full((len(rows), max_tokens), pad, np.int64)
    mask = np.zeros(ids.shape, np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return ids, mask


def _tokenizer(file: Path) -> Any:
    if not file.is_file():
        raise ModelError(f"there is no tokenizer {file}")
    # a new object for each call: padding and truncation are set on it
    return tokenizers().Tokenizer.from_str(_text(file, file_version(file)))


@lru_cache(maxsize=8)
def _text(file: Path, version: FileVersion) -> str:
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        tokenizers().Tokenizer.from_str(text)
    except Exception as error:  # the package raises plain Exception
        raise ModelError(f"{file} is not a tokenizer.json of the package tokenizers: {short(error)}") from None
    return text


class TextEncoder:
    """The text encoder of a card.

    Attributes:
        size: length of its embeddings; None if the file leaves it open.

    Raises:
        ModelError: its files are missing, or do not fit.
    """

    def __init__(self, card: Card) -> None:
        if card.text is None or card.text.encoder is None:
            raise wrong(card, "it has no text encoder: add text: {encoder: text.onnx, tokenizer: tokenizer.json}")
        self._card = card
        self._spec = card.text
        self._file = card.text.encoder
        try:
            if not self._spec.tokenizer.is_file():
                raise ModelError(f"there is no tokenizer {self._spec.tokenizer}")
            inputs, outputs = inspect_tensors(self._file)
            self._inputs = token_inputs(list(inputs.values()), f"the text encoder {self._file.name}")
            self._output = _embeds(self._file, outputs)
        except (ModelError, ValueError) as error:
            raise wrong(card, f"text: {error}") from None
        self.size = outputs[self._output].shape[1]

    def check(self, texts: Sequence[str]) -> None:
        """Check that the encoder takes these texts; raise ValueError."""
        tokenize(texts, self._spec, self._inputs.length)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return (texts, d) float32 vectors of length 1.

        Raises:
            ValueError: a text has too many tokens.
            ModelError: the encoder fails.
        """
        key = self._file, file_version(self._file), self._spec
        vectors = {text: vector for text in texts if (vector := _vectors.get((key, text))) is not None}
        if missing := [text for text in texts if text not in vectors]:
            options = provider_options(("cpu",), Device(), 0, False, False)
            session = open_session(self._file, ("cpu",), options, 1)
            for text in missing:  # one by one: the result does not depend on the other texts
                vectors[text] = _vectors[key, text] = self._run(session, text)
            for old in list(_vectors)[:-_MAX_VECTORS]:
                _vectors.pop(old, None)
        return np.stack([vectors[text] for text in texts])

    def _run(self, session: Any, text: str) -> np.ndarray:
        ids, mask = tokenize([text], self._spec, self._inputs.length)
        texts = self._inputs.ids.shape[0] or 1
        feeds = self._inputs.feeds(np.repeat(ids, texts, 0), np.repeat(mask, texts, 0))
        try:
            output = session.run([self._output], feeds)[0]
        except Exception as error:  # ONNX Runtime's exceptions have no common base but Exception
            raise wrong(self._card, f"text: {self._file.name} cannot be run: {short(error)}") from None
        vector = np.asarray(output, np.float32)[0]
        return np.asarray(vector / max(float(np.linalg.norm(vector)), np.finfo(np.float32).tiny), np.float32)


_vectors: dict[Any, np.ndarray] = {}
"""Embeddings of texts, by encoder and text."""


def _embeds(file: Path, outputs: dict[str, TensorInfo]) -> str:
    """Return the output with a vector for each text. Raises ValueError."""
    candidates = [name for name, tensor in outputs.items() if len(tensor.dims) == 2]
    named = [name for name in candidates if name in _EMBEDS]
    chosen = named[:1] or candidates
    if len(chosen) != 1:
        listed = ", ".join(f"{name}{list(tensor.dims)}" for name, tensor in outputs.items())
        raise ValueError(
            f"the text encoder {file.name} must have one output (texts, values), or one called {_EMBEDS[0]}; it has "
            f"{listed}"
        )
    return chosen[0]
