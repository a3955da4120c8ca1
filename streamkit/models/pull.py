# SPDX-License-Identifier: Apache-2.0
"""Download of a card's file: streamed to a temporary file beside it, verified, then renamed.

Cards may come from untrusted sources, so `pull` writes only ONNX files below the card's own folder, and reads http and
https only, also where a server redirects to another address.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from streamkit.core.errors import ModelError, OutputError
from streamkit.core.masking import mask
from streamkit.core.yaml_tree import load_file
from streamkit.io.outputs import AtomicFile, output_error, sweep
from streamkit.models.card import Card
from streamkit.models.network import sha256, wrong

_CHUNK = 1 << 18
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_MAX_BYTES = 1 << 31
"""Bytes of a file: more does not fit into one ONNX file, which is a Protobuf message."""
_TOO_LARGE = (
    "an ONNX file has at most 2 GiB; nothing was kept: url must be that of the network, not of an archive or page"
)


def pull(card: Card, *, timeout_s: float = 60) -> Path:
    """Download the card's file, unless it exists with the card's checksum.

    Part files of pulls that were killed are removed.

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
    _remove_abandoned_parts(card.file)
    if card.file.is_file() and sha256(card.file) == card.sha256:
        return card.file
    target = AtomicFile(card.file)
    try:
        with target.begin().open("wb") as part:
            digest = _fetch(card, part, timeout_s)
        if digest != card.sha256:
            raise wrong(
                card,
                f"the download from {mask(card.url)} is not the file of this card: its SHA-256 is {digest}, not "
                f"{card.sha256}. It was deleted; try again, and if the error persists, the server's file has changed",
            )
        target.finish()
    except OutputError as error:
        raise wrong(card, f"{error}{_writable_copy(card, error)}") from None
    finally:
        target.discard()
    return card.file


def _remove_abandoned_parts(file: Path) -> None:
    """Remove the part files of pulls that were killed; those of running ones are locked."""
    for part in file.parent.glob(f".{glob.escape(file.name)}*.part"):
        with contextlib.suppress(OSError):  # a folder that cannot be written
            sweep(part)


def _writable_copy(card: Card, error: OutputError) -> str:
    """Return the way out of a folder that cannot be written, such as that of an installed package."""
    if getattr(error.__cause__, "errno", None) not in _NOT_WRITABLE:
        return ""
    copy = Path("models", card.path.name)
    return f"; copy {card.path} to a folder of yours and pull it there: streamkit models pull {copy}"


def _check_target(card: Card) -> None:
    """Check that the file is an ONNX file in the card's folder, with links resolved."""
    folder = card.path.parent.resolve()
    file = card.file.resolve()
    if file.suffix.lower() == ".onnx" and file.is_relative_to(folder):
        return
    hint = "write a file name such as net.onnx or weights/net.onnx in the card"
    if file.suffix.lower() == ".onnx":
        hint += ", or download the file manually and remove url and sha256"
    where = load_file(card.path)[0].follow(["file"])[0]
    text = f"file names {file}, and pull writes only files *.onnx in the card's folder {folder} or below; {hint}"
    raise ModelError([where.problem(text)])


class _HttpRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only: urllib's own handler follows those to ftp, too."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            text = f"{msg}, a redirect to {newurl}; pull reads http and https only"
            raise urllib.error.HTTPError(req.full_url, code, text, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(card: Card, part: IO[bytes], timeout_s: float) -> str:
    """Stream the url into an open file; return its SHA-256. Raises ModelError, OutputError."""
    digest = hashlib.sha256()
    fetched_bytes = 0
    try:
        request = urllib.request.Request(card.url, headers={"User-Agent": "streamkit"})
        opener = urllib.request.build_opener(_HttpRedirects)
        with contextlib.closing(opener.open(request, timeout=timeout_s)) as response:
            size_bytes = _content_length(response.headers)
            if size_bytes is not None and size_bytes > _MAX_BYTES:
                raise wrong(card, f"its url has {size_bytes:,} bytes, and {_TOO_LARGE}")
            while chunk := response.read(_CHUNK):
                digest.update(chunk)
                fetched_bytes += len(chunk)
                if fetched_bytes > _MAX_BYTES:
                    raise wrong(card, f"its url has more than {_MAX_BYTES:,} bytes, and {_TOO_LARGE}")
                _write(card, part, chunk)
    except urllib.error.HTTPError as error:
        error.close()
        raise wrong(card, mask(f"{card.url} answers {error.code} {error.reason}")) from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a malformed address
        reason = getattr(error, "reason", None) or error
        raise wrong(card, mask(f"{card.url} cannot be fetched: {reason}")) from None
    if size_bytes is not None and fetched_bytes != size_bytes:
        raise wrong(card, f"{mask(card.url)} broke off after {fetched_bytes} of {size_bytes} bytes; try again")
    return digest.hexdigest()


def _content_length(headers: Mapping[str, str]) -> int | None:
    """Return the size that a server states, in bytes; None if it states none."""
    length = headers.get("Content-Length")
    return int(length) if length and length.isdecimal() else None


def _write(card: Card, part: IO[bytes], chunk: bytes) -> None:
    try:
        part.write(chunk)
    except OSError as error:
        raise output_error(card.file, error) from error
