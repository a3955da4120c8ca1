# SPDX-License-Identifier: Apache-2.0
"""Removes passwords or whole addresses from URIs in messages."""

from __future__ import annotations

import re

_URI = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30})?://"
    r"((?:(?!(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://)\S)*)"
)
_TAIL = re.compile(r"[:,)\]}'\"<>`]*\Z")  # punctuation of the sentence around a URI
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:]{2,}\])(?::\d+)?(?![\w.]*\d)")
_SECRET = re.compile(r"pass|pwd|token|secret|key|sig|auth|login|cred", re.IGNORECASE)
# secrets outside a URI, as in a truncated one
_NAMED = re.compile(
    r"((?:[?&;][\w.-]*(?:pass|pwd|token|secret|key|sig|auth|login|cred)[\w.-]*"
    r"|(?<![A-Za-z])(?:password|passwd|passphrase|pwd|secret))=)(?!\*\*\*)[^&#;\s'\"]+",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[\w.:,+-]{0,32}")
_HARMLESS = frozenset(
    {
        "audio",
        "buffer_size",
        "ch",
        "channel",
        "channelid",
        "codec",
        "compression",
        "endtime",
        "fifo_size",
        "fmt",
        "format",
        "fps",
        "framerate",
        "frames",
        "h",
        "height",
        "latency",
        "listen",
        "localport",
        "mode",
        "overrun_nonfatal",
        "pkt_size",
        "profile",
        "proto",
        "protocol",
        "quality",
        "resolution",
        "reuse",
        "rotation",
        "rtsp_transport",
        "size",
        "starttime",
        "stream",
        "streamtype",
        "subtype",
        "tcp",
        "timeout",
        "transport",
        "transportmode",
        "transtype",
        "ttl",
        "udp",
        "unicast",
        "video",
        "videocodec",
        "w",
        "width",
    }
)
_STORES = frozenset({"file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "oci", "sftp"})
# the login of these is the name of a user or a container
_NAMED_LOGINS = _STORES | {"ssh", "ftp", "smb", "wasb", "wasbs", "webhdfs"}
_KEYED_PATHS = frozenset({"rtmp", "rtmps", "rtmpt", "rtmpe", "rtmpte", "rtmpts"})  # as in rtmp://host/app/KEY
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_SUFFIX = re.compile(r"(\.[a-z][a-z0-9]{1,4})?\Z")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# kinds of characters that alternate in random texts; a capital letter may begin a word
_ALTERNATION = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])")
_MIN_KEY = 16
_MAX_WORD = 32
_ALTERNATION_SHARE = 0.25
"""Random letters and digits alternate after 0.4 of them, `h264Preview_01_main` after 0.2."""


def mask(text: str, *, partitions: bool = False) -> str:
    """Replace the secrets of URIs in a text by `***`. Idempotent.

    Masks passwords, logins without one (`rtsp://TOKEN@host`), values of query parameters and fragments that are not on
    a list of harmless names, and of a path: the text after `=` in a segment (some cameras use
    `/user=admin_password=...`), the stream key of RTMP, and words that look random, such as UUIDs.

    Args:
        text: a URI, or any text.
        partitions: keep segments such as `date=2026-01-01` of any URI, unless the name suggests a secret, and random
            words. Those of object stores are always kept.
    """
    masked = _URI.sub(lambda uri: _masked(uri[1] or "", uri[2], partitions), text)
    return _NAMED.sub(r"\1***", masked)


def mask_address(address: str) -> str:
    """Replace the secrets of one address by `***`, also where blanks and line ends make it invalid."""
    return mask(re.sub(r"\s", "%20", address)) if "://" in address else mask(address)


def without_addresses(text: str) -> str:
    """Shorten each URI in a text to its scheme, and IP addresses, for readers who must not see where cameras are."""
    shortened = _URI.sub(lambda uri: f"{uri[1] or ''}://..." + _TAIL.search(uri[2])[0], text)  # type: ignore[index]
    return _IP.sub("...", shortened)


def _masked(word: str, rest: str, partitions: bool) -> str:
    """Mask the URI `word://rest`."""
    tail = _TAIL.search(rest)
    assert tail is not None  # it also matches an empty text
    rest = rest[: tail.start()]
    end = next((at for at, sign in enumerate(rest) if sign in "/?#"), len(rest))
    authority, behind = _userinfo(word.lower(), rest[:end], rest[end:])
    at = next((at for at, sign in enumerate(behind) if sign in "?#"), len(behind))
    shown = partitions or word.lower() in _STORES
    path = _path(word.lower(), behind[:at].split("/"), shown)
    return f"{word}://{authority}{path}{_query(behind[at:], shown)}{tail[0]}"


def _userinfo(word: str, authority: str, behind: str) -> tuple[str, str]:
    """The host with its login masked, and the rest of the URI.

    A password may contain a slash that is not percent-encoded, so that an apparent host and port is the user and the
    beginning of the password: `user:pass/word@host/stream`.
    """
    if "@" not in authority:
        _, colon, port = authority.rpartition("]")[2].rpartition(":")
        place = behind if port and not port.isdigit() else re.split(r"[?#]", behind, maxsplit=1)[0]
        if not colon or "@" not in place:
            return authority, behind
        at = behind.index("@", place.rindex("@"))
        behind = behind[at + 1 :]
        end = next((at for at, sign in enumerate(behind) if sign in "/?#"), len(behind))
        return f"{authority.partition(':')[0]}:***@{behind[:end]}", behind[end:]
    login, _, host = authority.rpartition("@")
    user, colon, _ = login.partition(":")
    if colon:
        return f"{user}:***@{host}", behind
    return (authority if not login or word in _NAMED_LOGINS else f"***@{host}"), behind


def _path(word: str, segments: list[str], shown: bool) -> str:
    """Mask the segments of a path."""
    masked = [_segment(segment, shown) for segment in segments]
    if word in _KEYED_PATHS:
        masked[2:] = ["***" if segment else "" for segment in masked[2:]]
    return "/".join(masked)


def _segment(text: str, shown: bool) -> str:
    name, equals, content = text.partition("=")
    if equals and content and not (shown and not _SECRET.search(text)):
        return f"{name}=***"
    if shown:
        return text
    login, at, _ = text.rpartition("@")
    if at and ":" in login:  # the end of a login that has a slash
        return "***" + text[len(login) :]
    if any(_looks_random(word) for word in _WORD.findall(text)):
        return "***" + _SUFFIX.search(text)[0]  # type: ignore[index]
    return text


def _looks_random(word: str) -> bool:
    """Whether a word of a path is a key rather than a name."""
    if len(word) < _MIN_KEY:
        return False
    letters = re.sub(r"[_-]", "", word)
    alternations = len(_ALTERNATION.findall(letters))
    return bool(
        _UUID.fullmatch(word)
        or alternations > _ALTERNATION_SHARE * len(letters)
        or (len(letters) == len(word) and len(word) >= _MAX_WORD)
    )


def _query(text: str, shown: bool) -> str:
    """Mask the values of a query and fragment that are not known to be harmless."""
    parts = list[str]()
    for sign, part in re.findall(r"([?&;#])([^?&;#]*)", text):
        name, equals, content = part.partition("=")
        plain = name.lower() in _HARMLESS and _PLAIN.fullmatch(content)
        if not part or plain or (not equals and shown):
            parts.append(sign + part)
        else:
            parts.append(f"{sign}{name}=***" if equals else f"{sign}***")
    return "".join(parts)
