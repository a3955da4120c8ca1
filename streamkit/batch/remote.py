"""Remote files: finds them with fsspec, and reports why it cannot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any

from streamkit.batch.job import VideoFile, printable
from streamkit.core.errors import ConfigError, MissingPackage, SourceError, StreamkitError, describe
from streamkit.media.find import VIDEOS
from streamkit.media.uris import is_live, mask, scheme
from streamkit.runtime.execution.future import Stopped, side_by_side

_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3")}
_VERSIONS = (
    "ETag", "etag", "md5Hash", "content_md5", "Content-MD5", "LastModified", "last_modified", "Last-Modified",
    "updated", "mtime", "created",
)  # fmt: skip
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound")
_NO_WAY = ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError", "ClientConnectorError")
_AT_ONCE = 16
"""Files that are asked about at the same time."""


def find(pattern: str) -> Iterator[VideoFile]:
    """The files at an address: one file, all video files below a folder, or the matches of a pattern.

    Raises:
        ConfigError: it cannot be listed; the text gives the cause, without secrets.
        MissingPackage: fsspec, or its package for this kind of address, is not installed.
    """
    with told_as_config(pattern):
        system, path = open_system(pattern)
        wild = any(one in path for one in "*?[")
        root = _root(path) if wild else path
        if wild:
            found = system.glob(path, detail=True)
            if not found and not system.exists(_bucket(path)):
                raise FileNotFoundError(_bucket(path))
        else:
            info = system.info(path)
            if info["type"] == "file":
                found, root = {path: info}, path.rpartition("/")[0]
            else:
                found = system.find(path, detail=True)
        ending = PurePosixPath(path).suffix.lower() if wild else ""
        chosen = {
            name: info for name, info in found.items()
            if info["type"] == "file"
            and (PurePosixPath(name).suffix.lower() in VIDEOS or (wild and ending not in ("", ".*")) or name == path)
        }  # fmt: skip
        for name, info in _asked(system, chosen).items():
            below = name.removeprefix(root).lstrip("/") or PurePosixPath(name).name
            size = info.get("size")
            yield VideoFile(
                system.unstrip_protocol(name), printable(below), None if size is None else int(size), _version(info)
            )


def _asked(system: Any, found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add each file's own metadata if the listing has only names, as over HTTP."""
    made = dict(found)
    left = deque(name for name, info in found.items() if info.get("size") is None)

    def ask(over: Stopped) -> None:
        with suppress(IndexError):  # none is left
            while not over():
                name = left.popleft()
                with suppress(Exception):  # each file system has its own kinds; the file fails when its turn comes
                    made[name] = dict(system.info(name))

    with side_by_side(*[ask] * min(_AT_ONCE - 1, len(left) - 1)) as over:
        ask(over)
    return made


def open_system(uri: str) -> tuple[Any, str]:
    """The file system of fsspec for an address, and the path in it.

    Raises:
        ConfigError: no file system has this scheme, or the address contains a password.
        MissingPackage: a package is missing.
    """
    word = scheme(uri)
    if is_live(uri) or word in ("hls", "test"):
        raise ConfigError(f"{mask(uri)}: an archive is of files; a {word}:// address belongs under sources: of a YAML")
    if (shown := mask(uri, partitions=True)) != uri:
        raise ConfigError(
            f"{shown}: leave the password out, and whatever else is shown as ***: addresses stand in the data set. "
            "fsspec reads passwords from the environment or from its configuration"
        )
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingPackage("fsspec", "batch", f"reading {word}://") from None
    try:
        system, path = url_to_fs(uri)
    except ImportError as error:
        if word in _EXTRAS:
            raise MissingPackage(*_EXTRAS[word], f"reading {word}://") from None
        raise ConfigError(f"{word}:// needs a package: {describe(error)}") from None
    except ValueError as error:
        from fsspec import available_protocols

        if word in available_protocols():
            raise
        raise ConfigError(
            f"{mask(uri)}: there is no scheme {word}://; there are s3, gs, abfs, sftp, http and what else fsspec has"
        ) from error
    return system, str(path)


@contextmanager
def told_as_config(uri: str) -> Iterator[None]:
    """Raise errors of an address as ConfigError, before a run starts."""
    try:
        yield
    except StreamkitError:
        raise
    except Exception as error:  # each file system has its own kinds
        raise ConfigError(f"{mask(uri)}: {words(error)[0]}") from None


@contextmanager
def told_as_source(uri: str) -> Iterator[None]:
    """Raise errors of one file as SourceError."""
    try:
        yield
    except StreamkitError:
        raise
    except Exception as error:  # each file system has its own kinds
        text, cause = words(error)
        raise SourceError(f"{mask(uri)}: {text}", cause=cause) from None


def words(error: BaseException) -> tuple[str, str]:
    """What went wrong, for a user, and as a word of `SourceError.CAUSES`."""
    name = type(error).__name__
    if name in _NO_CREDENTIALS:
        return (
            "there are no credentials to ask with; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or AWS_PROFILE for those of ~/.aws",
            "permission",
        )
    if isinstance(error, PermissionError):
        return (
            f"access is refused ({_plain(error)}); are these the right credentials?",
            "permission",
        )
    if isinstance(error, FileNotFoundError):
        return f"there is no such bucket, folder or file ({_plain(error)})", "missing"
    if isinstance(error, (TimeoutError, ConnectionError)) or name in _NO_WAY:
        return f"the server cannot be reached ({_plain(error)})", "lost"
    return _plain(error), "lost"


def _plain(error: BaseException) -> str:
    return mask(describe(error))


def _version(info: dict[str, Any]) -> str:
    return next((str(info[name]).strip('"') for name in _VERSIONS if info.get(name)), "")


def _bucket(path: str) -> str:
    """The bucket or server of a path."""
    server, between, below = path.rpartition("://")
    return server + between + below.strip("/").split("/")[0]


def _root(path: str) -> str:
    parts = path.split("/")
    count = next(n for n, part in enumerate(parts) if any(one in part for one in "*?["))
    return "/".join(parts[:count])
