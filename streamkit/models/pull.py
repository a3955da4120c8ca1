# SPDX-License-Identifier: Apache-2.0
"""Download of a card's file: streamed to a temporary file beside it, verified, then renamed.

Cards may come from untrusted sources, so `pull` writes only ONNX files below the card's own folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from streamkit.core.errors import ModelError
from streamkit.core.masking import mask
from streamkit.core.yaml_tree import load_file
from streamkit.models.card import Card
from streamkit.models.network import sha256, wrong

_CHUNK = 1 << 18
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_MOST = 1 << 31
"""Bytes of a file: more does not fit into one ONNX file, which is a Protobuf message."""
_TOO_LARGE = (
    "an ONNX file has at most 2 GiB; nothing was kept: url must be that of the network, not of an archive or page"
)


def pull(card: Card, *, timeout_s: float = 60) -> Path:
    """Download the card's file, unless it exists with the card's checksum.

    Args:
        card: the card.
        timeout_s: how long the server may be silent, in seconds.

    Returns:
        The file.

    Raises:
        ModelError: the card has no url, its file is not an ONNX file below the card's folder, the file cannot be
            downloaded or written, is larger than 2 GiB, or has another checksum. An existing file under the same name
            stays unchanged.
    """
    if not card.url:
        raise wrong(
            card, f"the card has no url. {card.note or 'Get the file from the authors'} (its place: {card.file})"
        )
    _check_target(card)
    if card.file.is_file() and sha256(card.file) == card.sha256:
        return card.file
    try:
        card.file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{card.file.name}.", suffix=".part", dir=card.file.parent)
    except OSError as error:
        way = ""
        if error.errno in _NOT_WRITABLE:  # the folder of an installed package, for example
            own = Path("models", card.path.name)
            way = f"; copy {card.path} to a folder of yours and pull it there: streamkit models pull {own}"
        raise wrong(card, f"cannot write to {card.file.parent}: {error.strerror}{way}") from None
    part = Path(name)
    try:
        found = _fetch(card, handle, timeout_s)
        if found != card.sha256:
            raise wrong(
                card,
                f"the download from {mask(card.url)} is not the file of this card: its SHA-256 is {found}, not "
                f"{card.sha256}. It was deleted; try again, and if the error persists, the server's file has changed",
            )
        part.chmod(0o644)
        os.replace(part, card.file)
    finally:
        part.unlink(missing_ok=True)
    return card.file


def _check_target(card: Card) -> None:
    """Check that the file is an ONNX file in the card's folder, with links resolved."""
    folder, file = card.path.parent.resolve(), card.file.resolve()
    if file.suffix.lower() == ".onnx" and file.is_relative_to(folder):
        return
    way = "write a file name such as net.onnx or weights/net.onnx in the card"
    if file.suffix.lower() == ".onnx":
        way += ", or download the file manually and remove url and sha256"
    where = load_file(card.path)[0].follow(["file"])[0]
    text = f"file names {file}, and pull writes only files *.onnx in the card's folder {folder} or below; {way}"
    raise ModelError([where.problem(text)])


def _fetch(card: Card, handle: int, timeout_s: float) -> str:
    """Stream the url into an open file; return its SHA-256."""
    digest, done = hashlib.sha256(), 0
    with os.fdopen(handle, "wb") as out:
        try:
            request = urllib.request.Request(card.url, headers={"User-Agent": "streamkit"})
            with contextlib.closing(urllib.request.urlopen(request, timeout=timeout_s)) as response:
                length = response.headers.get("Content-Length")
                total = int(length) if length and length.isdecimal() else None
                if total is not None and total > _MOST:
                    raise wrong(card, f"its url has {total:,} bytes, and {_TOO_LARGE}")
                while chunk := response.read(_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    if done > _MOST:
                        raise wrong(card, f"its url has more than {_MOST:,} bytes, and {_TOO_LARGE}")
                    _write(card, out, chunk)
        except urllib.error.HTTPError as error:
            error.close()
            raise wrong(card, mask(f"{card.url} answers {error.code} {error.reason}")) from None
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a malformed address
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
