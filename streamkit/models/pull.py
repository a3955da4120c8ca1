# SPDX-License-Identifier: Apache-2.0
"""Download of a card's file into the user's cache: streamed to a temporary file, verified, then renamed.

Cards may come from untrusted sources, so `pull` writes only into the cache, to a name with the checksum, and reads http
and https only, also where a server redirects to another address.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from streamkit.core.errors import ModelError, OutputError
from streamkit.core.logs import logs_json
from streamkit.core.masking import mask
from streamkit.io.outputs import CACHE_FIX, AtomicFile, output_error, writing
from streamkit.models.card import Card, downloaded_network, wrong
from streamkit.models.dynamic_batch import with_batches
from streamkit.models.network import sha256

logger = logging.getLogger(__name__)

_CHUNK = 1 << 18
_MAX_BYTES = 1 << 31
"""Bytes of a file: more does not fit into one ONNX file, which is a Protobuf message."""
_TOO_LARGE = (
    "an ONNX file has at most 2 GiB; nothing was kept: url must be that of the network, not of an archive or page"
)
_CONNECT_S = 2.0
"""How long each address of a server may take to accept a connection: two addresses fit into 5 s."""


def pull(card: Card, *, silence_s: float = 20) -> Path:
    """Download the card's file, unless it exists with the card's checksum; see `with_batches` for what follows.

    Processes that pull the same file at once download it once: the others wait for it.

    Args:
        card: the card.
        silence_s: how long the server may be silent, in seconds.

    Returns:
        The file, which is in the user's cache unless the card's file has the checksum.

    Raises:
        ModelError: the card has no url, or the file cannot be downloaded or written, is larger than 2 GiB, or has
            another checksum. An existing file stays unchanged then.
    """
    if not card.url:
        raise wrong(
            card, f"the card has no url. {card.note or 'Get the file from the authors'} (its place: {card.file})"
        )
    if _is_complete(card):
        return card.file
    card = replace(card, file=downloaded_network(card.name, card.sha256))  # a card's own file is never written
    try:
        with _lock(card.file):
            if not _is_complete(card):  # another process may have downloaded it meanwhile
                _download(card, silence_s)
                with_batches(card.file)
    except OutputError as error:
        cause = error.__cause__
        raise wrong(card, str(error if cause is None else output_error(card.file, cause, CACHE_FIX))) from None
    return card.file


def _is_complete(card: Card) -> bool:
    return card.file.is_file() and sha256(card.file) == card.sha256


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Let one process at a time download a file. Raises OutputError if the folder cannot be written."""
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = file.with_name(f".{file.name}.lock").open("w")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info(f"another process downloads {file.name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # a file system without locks
            logger.debug(f"{file.parent} has no locks: {error}")
        yield


def _download(card: Card, silence_s: float) -> None:
    """Write the card's file. Raises ModelError, OutputError."""
    target = AtomicFile(card.file)
    try:
        with target.begin().open("wb") as part:
            digest = _fetch(card, part, silence_s)
        if digest != card.sha256:
            raise wrong(
                card,
                f"the download from {mask(card.url)} is not the file of this card: its SHA-256 is {digest}, not "
                f"{card.sha256}. It was deleted; try again, and if the error persists, the server's file has changed",
            )
        target.finish()
    finally:
        target.discard()


class _HttpRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only: urllib's own handler follows those to ftp, too."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            text = f"{msg}, a redirect to {newurl}; pull reads http and https only"
            raise urllib.error.HTTPError(req.full_url, code, text, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _HttpConnection(http.client.HTTPConnection):
    """Waits for a connection for a shorter time than for an answer."""

    def connect(self) -> None:
        silence_s = self.timeout
        self.timeout = _CONNECT_S
        super().connect()
        self.sock.settimeout(silence_s)


class _HttpsConnection(_HttpConnection, http.client.HTTPSConnection):
    """The same with TLS: `super().connect` above is that of the second base."""


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, req)


@contextlib.contextmanager
def _short_name_lookups() -> Iterator[None]:
    """Let glibc give up on a name server that is silent after 2 s, not after 10 s; it reads this once in a process."""
    before = os.environ.get("RES_OPTIONS")
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:2")
    try:
        yield
    finally:
        if before is None:
            del os.environ["RES_OPTIONS"]


def _fetch(card: Card, part: IO[bytes], silence_s: float) -> str:
    """Stream the url into an open file; return its SHA-256. Raises ModelError, OutputError."""
    digest = hashlib.sha256()
    fetched_bytes = 0
    try:
        request = urllib.request.Request(card.url, headers={"User-Agent": "streamkit"})
        opener = urllib.request.build_opener(_HttpRedirects, _HttpHandler, _HttpsHandler)
        with _short_name_lookups():
            opened = opener.open(request, timeout=silence_s)
        with contextlib.closing(opened) as response:
            size_bytes = _content_length(response.headers)
            if size_bytes is not None and size_bytes > _MAX_BYTES:
                raise wrong(card, f"its url has {size_bytes:,} bytes, and {_TOO_LARGE}")
            with _progress(card, size_bytes) as advance:
                while chunk := response.read(_CHUNK):
                    digest.update(chunk)
                    fetched_bytes += len(chunk)
                    if fetched_bytes > _MAX_BYTES:
                        raise wrong(card, f"its url has more than {_MAX_BYTES:,} bytes, and {_TOO_LARGE}")
                    _write(card, part, chunk)
                    advance(len(chunk))
    except urllib.error.HTTPError as error:
        error.close()
        raise _not_fetched(card, f"answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a malformed address
        reason = getattr(error, "reason", None) or error
        raise _not_fetched(card, f"cannot be fetched: {getattr(reason, 'strerror', None) or reason}") from None
    if size_bytes is not None and fetched_bytes != size_bytes:
        raise _not_fetched(card, f"broke off after {fetched_bytes} of {size_bytes} bytes; try again")
    return digest.hexdigest()


def _not_fetched(card: Card, cause: str) -> ModelError:
    """Return the error for a download that failed, with the way to do without."""
    by_hand = f"or download it elsewhere and put it here: {card.file}"
    return wrong(card, f"{mask(f'{card.url} {cause}')}; {by_hand}")


@contextlib.contextmanager
def _progress(card: Card, size_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Show a download: a bar on a terminal, else a line. Yields a function that takes the number of further bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    size = "" if size_bytes is None else f" ({size_bytes / 1e6:.1f} MB)"
    logger.info(f"downloading {card.name}{size} from {mask(card.url)}, once: it stays at {card.file}")
    columns = (TextColumn(card.name, markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = logs_json() or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        task = bars.add_task("", total=size_bytes)
        yield lambda chunk_bytes: bars.advance(task, chunk_bytes)


def _content_length(headers: Mapping[str, str]) -> int | None:
    """Return the size that a server states, in bytes; None if it states none."""
    length = headers.get("Content-Length")
    return int(length) if length and length.isdecimal() else None


def _write(card: Card, part: IO[bytes], chunk: bytes) -> None:
    try:
        part.write(chunk)
        part.flush()  # an error at the end of the file belongs here, too
    except OSError as error:
        raise output_error(card.file, error) from error
