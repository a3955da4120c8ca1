# SPDX-License-Identifier: Apache-2.0
"""Removes passwords or whole addresses from URIs in messages."""

from __future__ import annotations

import re

_URI = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30})?://"
    r"((?:(?!(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://)\S)*)"
)
_TAIL = re.compile(r"[:,)\]}'\"<>`]*\Z")  # punctuation of the sentence around a URI
_SECRET = re.compile(r"pass|pwd|token|secret|key|sig|auth|login|cred", re.IGNORECASE)
# secrets outside a URI, as in a truncated one
_NAMED = re.compile(
    r"((?:[?&;][\w.-]*(?:pass|pwd|token|secret|key|sig|auth|login|cred)[\w.-]*"
    r"|(?<![A-Za-z])(?:password|passwd|passphrase|pwd|secret))=)(?!\*\*\*)[^&#;\s'\"]+",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[\w.:,+-]{0,32}")
_HARMLESS = frozenset({
    "audio", "buffer_size", "ch", "channel", "channelid", "codec", "compression", "endtime", "fifo_size", "fmt",
    "format", "fps", "framerate", "frames", "h", "height", "latency", "listen", "localport", "mode",
    "overrun_nonfatal", "pkt_size", "profile", "proto", "protocol", "quality", "resolution", "reuse",
    "rotation", "rtsp_transport", "size", "starttime", "stream", "streamtype", "subtype", "tcp", "timeout",
    "transport", "transportmode", "transtype", "ttl", "udp", "unicast", "video", "videocodec", "w", "width",
})  # fmt: skip
_STORES = frozenset({"file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "oci", "sftp"})


def mask(text: str, *, partitions: bool = False) -> str:
    """Replace the secrets of URIs in a text by `***`. Idempotent.

    Masks passwords, values of query parameters that are not on a list of harmless names, and the text after `=` in a
    path segment: some cameras use `/user=admin_password=...`.

    Args:
        text: a URI, or any text.
        partitions: keep segments such as `date=2026-01-01` of any URI, unless the name suggests a secret. Those of
            object stores are always kept.
    """
    masked = _URI.sub(lambda found: _masked(found[1] or "", found[2], partitions), text)
    return _NAMED.sub(r"\1***", masked)


def without_addresses(text: str) -> str:
    """Shorten each URI in a text to its scheme, for readers who must not see the addresses of cameras."""
    return _URI.sub(lambda found: f"{found[1] or ''}://..." + _TAIL.search(found[2])[0], text)  # type: ignore[index]


def _masked(word: str, rest: str, partitions: bool) -> str:
    """Mask the URI `word://rest`."""
    tail = _TAIL.search(rest)
    assert tail is not None  # it also matches an empty text
    rest = rest[: tail.start()]
    end = next((at for at, sign in enumerate(rest) if sign in "/?#"), len(rest))
    authority, behind = _userinfo(rest[:end], rest[end:])
    at = next((at for at, sign in enumerate(behind) if sign in "?#"), len(behind))
    shown = partitions or word.lower() in _STORES
    path = "/".join(_segment(one, shown) for one in behind[:at].split("/"))
    return f"{word}://{authority}{path}{_query(behind[at:], shown)}{tail[0]}"


def _userinfo(authority: str, behind: str) -> tuple[str, str]:
    """The host with its password masked, and the rest of the URI.

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
    known, _, host = authority.rpartition("@")
    user, colon, _ = known.partition(":")
    return f"{user}:***@{host}" if colon else authority, behind


def _segment(text: str, shown: bool) -> str:
    name, equals, value = text.partition("=")
    return f"{name}=***" if equals and value and not (shown and not _SECRET.search(text)) else text


def _query(text: str, shown: bool) -> str:
    """Mask the values of a query and fragment that are not known to be harmless."""
    made, hidden = [], False
    for sign, part in re.findall(r"([?&;#])([^?&;#]*)", text):
        name, equals, value = part.partition("=")
        plain = name.lower() in _HARMLESS and _PLAIN.fullmatch(value)
        if not part or plain or (not equals and (shown or (sign == "#" and not hidden))):
            made.append(sign + part)
            continue
        hidden = True  # the text after a # may be the rest of the secret
        made.append(f"{sign}{name}=***" if equals else f"{sign}***")
    return "".join(made)
