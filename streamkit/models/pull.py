"""Fetch a card's file: streamed to a temporary file beside it, checked, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from streamkit.masking import mask
from streamkit.models.card import Card
from streamkit.models.network import sha256, wrong

_CHUNK = 1 << 18


def pull(card: Card, progress: Callable[[int, int | None], None] | None = None, *, timeout_s: float = 60) -> Path:
    """Fetch the card's file, unless it is there already and has the card's sum.

    Args:
        card: what to fetch.
        progress: called with the bytes so far and the bytes in all (None where the server does not say).
        timeout_s: how long the server may be silent, in seconds.

    Returns:
        The file.

    Raises:
        ModelError: the card has no url, the file cannot be fetched or written, or what came is another file. Nothing
            is then left under the file's name that was not there before.
    """
    if not card.url:
        raise wrong(
            card, f"the card has no url. {card.note or 'Get the file from the authors'} (its place: {card.file})"
        )
    if card.file.is_file() and sha256(card.file) == card.sha256:
        return card.file
    try:
        card.file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{card.file.name}.", suffix=".part", dir=card.file.parent)
    except OSError as error:
        raise wrong(card, f"cannot write to {card.file.parent}: {error.strerror}") from None
    part = Path(name)
    try:
        found = _fetch(card, handle, progress, timeout_s)
        if found != card.sha256:
            raise wrong(
                card,
                f"what {mask(card.url)} gave is not the file of this card: its SHA-256 is {found}, not {card.sha256}. "
                "It was thrown away; try again, and if it stays so, the file has been changed there",
            )
        part.chmod(0o644)
        os.replace(part, card.file)
    finally:
        part.unlink(missing_ok=True)
    return card.file


def _fetch(card: Card, handle: int, progress: Callable[[int, int | None], None] | None, timeout_s: float) -> str:
    """Stream the url into an open file; return its SHA-256."""
    digest, done = hashlib.sha256(), 0
    with os.fdopen(handle, "wb") as out:
        try:
            request = urllib.request.Request(card.url, headers={"User-Agent": "streamkit"})
            with contextlib.closing(urllib.request.urlopen(request, timeout=timeout_s)) as response:
                length = response.headers.get("Content-Length")
                total = int(length) if length else None
                while chunk := response.read(_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    _write(card, out, chunk)
                    if progress:
                        progress(done, total)
        except urllib.error.HTTPError as error:
            error.close()
            raise wrong(card, mask(f"{card.url} answers {error.code} {error.reason}")) from None
        except (urllib.error.URLError, OSError) as error:
            why = getattr(error, "reason", None) or error
            raise wrong(card, mask(f"{card.url} cannot be fetched: {why}")) from None
        if total is not None and done != total:
            raise wrong(card, f"{mask(card.url)} broke off after {done} of {total} bytes; try again")
    return digest.hexdigest()


def _write(card: Card, out: IO[bytes], chunk: bytes) -> None:
    try:
        out.write(chunk)
    except OSError as error:
        raise wrong(card, f"cannot write to {card.file.parent}: {error.strerror}") from None
