# SPDX-License-Identifier: Apache-2.0
"""Addresses of sources: their kind, and their text without secrets."""

from __future__ import annotations

import re

from streamkit.core.addresses import ESCAPES, check_characters
from streamkit.core.errors import SourceError
from streamkit.core.masking import mask as mask

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LIVE = frozenset({"rtsp", "rtsps", "rtmp", "rtmps", "rtp", "udp", "tcp", "srt", "mms", "mmsh", "v4l2"})
_DEVICE = re.compile(r"/dev/video\d+")
# files, not streams, if read over http
_RECORDED = re.compile(r"\.(mp4|m4v|mov|mkv|webm|avi|mpe?g|wmv|asf|3gp|ogv|ivf|vob|mxf|y4m|h26[45]|hevc|obu)$", re.I)
# stores of files, which `batch` fetches with fsspec
_FETCHED = frozenset(
    {
        "s3",
        "s3a",
        "gs",
        "gcs",
        "abfs",
        "abfss",
        "az",
        "adl",
        "ftp",
        "sftp",
        "ssh",
        "hdfs",
        "webhdfs",
        "smb",
        "oss",
        "hf",
    }
)
_OTHERS = frozenset(
    {
        "ftps",
        "gopher",
        "gophers",
        "nfs",
        "rtmpt",
        "rtmpte",
        "rtmpts",
        "rtmpe",
        "mmst",
        "srtp",
        "rist",
        "sctp",
        "webrtc",
        "whep",
        "ws",
        "wss",
        "dav",
        "davs",
        "magnet",
        "ipfs",
        "ipns",
        "onvif",
        "dash",
        "ndi",
        "pipe",
        "unix",
        "data",
        "r2",
        "b2",
        "oci",
        "wasb",
        "wasbs",
        "dbfs",
        "gdrive",
        "dropbox",
    }
)
_SCHEMES = ("file", "http", "https", "hls", *sorted(_LIVE), "test")


def scheme(uri: str) -> str:
    """The scheme of a URI in lower case; empty for a path."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def check_address(uri: str) -> None:
    """Reject an address with an unknown scheme, unsafe characters or a wrong port; paths pass.

    Raises:
        SourceError: the scheme is unknown or not supported, FFmpeg would send a line end or a blank of the address to
            the server, or its port is not a number.
    """
    if is_path(uri):
        return
    try:
        check_characters(uri)
    except ValueError as error:
        raise SourceError(f"{scheme(uri)}://...: the address {error}") from None
    _check_scheme(uri)
    authority = _authority(uri)
    host = authority.rpartition("@")[2]
    if host.count("[") != host.count("]"):
        raise SourceError(f"{mask(uri)}: an IPv6 address stands in brackets, as in {scheme(uri)}://[fd00::7]:554/path")
    port = re.search(r":([^:\]]+)$", host)
    if port is not None and not (port[1].isascii() and port[1].isdigit() and 0 < int(port[1]) < 1 << 16):
        hint = f"; {login_hint(uri)}" if has_late_login(uri) else ""
        raise SourceError(f"{mask(uri)}: the port must be a number from 1 to 65535{hint}")


def _authority(uri: str) -> str:
    """The login, host and port of an address, as clients read it: up to the first `/`, `?` or `#`."""
    return re.split(r"[/?#]", uri.partition("://")[2], maxsplit=1)[0]


def has_late_login(uri: str) -> bool:
    """Whether an `@` stands behind the host: a `#`, `?` or `/` in a password ends the login too early."""
    behind = uri.partition("://")[2][len(_authority(uri)) :]
    return not is_path(uri) and "@" in behind and "@" not in _authority(uri)


def login_hint(uri: str) -> str:
    """How to write an address whose password has a sign such as `#`."""
    return f"in a user name or password, as in {scheme(uri)}://user:password@host/path, write {ESCAPES}"


def _check_scheme(uri: str) -> None:
    from streamkit.core.text import did_you_mean

    word = scheme(uri)
    if word in _FETCHED:
        raise SourceError(
            f"{mask(uri)}: a run does not read {word}://; download the file and name its path, or use "
            f"`streamkit batch`, which reads {word}://"
        )
    if word in _OTHERS:
        raise SourceError(f"{mask(uri)}: {word}:// is not supported; supported: {', '.join(_SCHEMES)}")
    if word and word not in _SCHEMES:
        # rstp means rtsp, not rtp
        swapped = [scheme_name for scheme_name in _SCHEMES if sorted(scheme_name) == sorted(word)]
        hint = did_you_mean(word, swapped or _SCHEMES, all_if_few=True)
        raise SourceError(f"{mask(uri)}: there is no scheme {word}://{hint}")


def is_path(uri: str) -> bool:
    """Whether the URI names a file, a folder or a pattern of files."""
    return scheme(uri) in ("", "file") and not is_device(uri)


def is_device(uri: str) -> bool:
    """Whether the URI names a video device of this machine: `/dev/video0` or `v4l2:///dev/video0`."""
    return scheme(uri) == "v4l2" or bool(_DEVICE.fullmatch(uri))


def device_path(uri: str) -> str:
    """The path of a URI that `is_device`, without its query."""
    return uri.removeprefix("v4l2://").partition("?")[0]


def is_http(uri: str) -> bool:
    """Whether an address is fetched over HTTP, and is not declared as an HLS playlist."""
    return scheme(uri) in ("http", "https")


def is_live(uri: str) -> bool:
    """Whether the address alone shows that frames arrive in real time and cannot be read again."""
    return scheme(uri) in _LIVE or is_device(uri)


def may_be_live(uri: str) -> bool:
    """Whether the address may be a camera: a live address, or http without the suffix of a file."""
    if scheme(uri) in ("http", "https", "hls"):
        return not _RECORDED.search(re.split(r"[?#]", uri, maxsplit=1)[0])
    return is_live(uri)


def local_path(uri: str) -> str:
    """The path of a URI that `is_path`."""
    return uri[len("file://") :] if scheme(uri) == "file" else uri
