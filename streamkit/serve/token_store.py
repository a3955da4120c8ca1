# SPDX-License-Identifier: Apache-2.0
"""Tokens of people beside the admin's: those of `--tokens FILE`, and those created on the page, in a private file."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import stat
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from streamkit.core.errors import ConfigError, OutputError, Problem
from streamkit.core.yaml_tree import YamlNode, load_file
from streamkit.io.private_file import write_private
from streamkit.serve.identity import checked_groups
from streamkit.serve.token import MIN_LENGTH, ROLES, Role, check_length, new_token, same

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@ -]{0,63}")
"""The name of a token's owner."""

_FIELDS = ("name", "role", "token", "hash", "groups")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_VARIABLE = re.compile(r"\$\{\w+\}")
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token without its text.

    Attributes:
        key: identifies it; a token that is created again under the same name has another key.
        name: the owner.
        role: what it may do.
        digest: SHA-256 of the text, or its HMAC if `hmac_key` is set; in hex.
        origin: where it comes from: server, file or page.
        created_s: when it was created on the page, in seconds since 1970; None for others.
        created_by: by whom.
        hmac_key: the key of the digest; empty for SHA-256.
        groups: the camera groups that it may see; None for all cameras.
    """

    key: str
    name: str
    role: Role
    digest: str
    origin: str
    created_s: float | None = None
    created_by: str = ""
    hmac_key: bytes = b""
    groups: tuple[str, ...] | None = None

    def matches(self, text: str) -> bool:
        """Whether `text` is the token; compared in constant time."""
        return same(_digest(text, self.hmac_key), self.digest)


def read_tokens(path: Path) -> list[KnownToken]:
    """Read the tokens of a YAML file: a list of `{name, role, token}`, or with `hash: sha256:HEX` for the token.

    Raises:
        ConfigError: with every problem of the file, or because others may write it, or read a token in it.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ConfigError(f"--tokens {path}: {error.strerror}") from None
    if mode & _OTHERS_WRITE:
        raise ConfigError(f"--tokens {path}: other users may write it (mode {mode:o}); run: chmod 600 {path}")
    root, problems = load_file(path)
    if problems:
        raise ConfigError(problems)
    if mode & _OTHERS_READ and _has_secrets(root):
        raise ConfigError(
            f"--tokens {path}: other users may read its tokens (mode {mode:o}); run: chmod 600 {path}, "
            "or write `hash`, or `token: ${NAME}`"
        )
    tokens_by_name: dict[str, KnownToken] = {}
    if not isinstance(root.value, list):
        raise ConfigError([root.problem("the file is a list of tokens: - {name: anna, role: viewer, token: ...}")])
    for node in root.value:
        token = _read(node, problems)
        if token is not None and token.name in tokens_by_name:
            problems.append(
                node.value["name"].problem(f"the name {token.name!r} is used twice; give each token its own")
            )
        elif token is not None:
            tokens_by_name[token.name] = token
    if problems:
        raise ConfigError(problems)
    return list(tokens_by_name.values())


def _has_secrets(root: YamlNode) -> bool:
    """Whether the text itself has a token: neither a hash, nor a variable of the environment."""
    entries = root.value if isinstance(root.value, list) else []
    tokens = [entry.value["token"] for entry in entries if isinstance(entry.value, dict) and "token" in entry.value]
    return any(not _VARIABLE.fullmatch(token.raw.strip("\"'")) for token in tokens)


def _read(node: YamlNode, problems: list[Problem]) -> KnownToken | None:
    """One entry of the file. Problems never show a token."""
    if not isinstance(node.value, dict):
        problems.append(node.problem("each token is a mapping: {name: anna, role: viewer, token: ...}"))
        return None
    fields = {key: field_node.value for key, field_node in node.value.items()}
    before = len(problems)
    for key in fields.keys() - set(_FIELDS):
        problems.append(node.problem(f"a token has the fields {', '.join(_FIELDS)}, not {key!r}", key))
    name = fields.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        problems.append(node.problem(name_rule(name)))
    role = fields.get("role")
    if role not in ROLES:
        problems.append(node.problem(f"role must be {', '.join(ROLES[:-1])} or {ROLES[-1]}, got {role!r}"))
    text = fields.get("token")
    digest = fields.get("hash")
    if (text is None) == (digest is None):
        problems.append(node.problem("a token has either `token`, its text, or `hash`"))
    elif text is not None and (not isinstance(text, str) or len(text) < MIN_LENGTH):
        problems.append(node.problem(f"token must be a text of at least {MIN_LENGTH} characters", "token"))
    elif digest is not None and (not isinstance(digest, str) or not _HASH.fullmatch(digest)):
        rule = 'hash must be "sha256:" and 64 digits of 0-9a-f; see docs/serving-access.md'
        problems.append(node.problem(rule, "hash"))
    groups = _read_groups(node, problems)
    if len(problems) > before:
        return None
    hexadecimal = _digest(str(text)) if text is not None else str(digest).removeprefix("sha256:")
    key = f"file:{name}:{hexadecimal[:12]}"
    return KnownToken(key, str(name), role, hexadecimal, "file", groups=groups)  # type: ignore[arg-type]


def _read_groups(node: YamlNode, problems: list[Problem]) -> tuple[str, ...] | None:
    """The camera groups of an entry; None for all cameras."""
    fields: dict[str, YamlNode] = node.value
    groups = fields["groups"].plain() if "groups" in fields else None
    role = fields["role"].value if "role" in fields else ""
    if groups is not None and not (isinstance(groups, list) and all(isinstance(name, str) for name in groups)):
        problems.append(node.problem("groups must be a list of camera groups, such as [entrance, yard]", "groups"))
        return None
    try:
        return checked_groups(role, groups)  # type: ignore[arg-type]
    except ValueError as error:
        problems.append(node.problem(str(error), "groups"))
        return None


def name_rule(got: object) -> str:
    """The message about a name that cannot be one."""
    return (
        "a name has 1 to 64 letters, digits, spaces, _, ., @ and -, and begins with a letter, digit or _; "
        f"got {str(got)[:80]!r}"
    )


class TokenStore:
    """The tokens that were created on the page. Only their HMACs are stored, in a file that only its owner may read.

    The file is read again when another process has changed it.

    Args:
        path: the file; created with the first token.

    Raises:
        OutputError: the file cannot be read; every method may raise it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._hmac_key = secrets.token_bytes(32)
        self._tokens = dict[str, KnownToken]()
        self.all()

    def all(self) -> list[KnownToken]:
        """The tokens, in the order in which they were created."""
        try:
            about = self._path.stat()
        except FileNotFoundError:
            self._seen = None
            self._tokens = {}
            return []
        except OSError as error:
            raise self._error(error) from None
        seen = about.st_mtime_ns, about.st_ino, about.st_size
        if seen != self._seen:
            self._load()
            self._seen = seen
        return list(self._tokens.values())

    def create(self, name: str, role: Role, by: str, groups: tuple[str, ...] | None = None) -> str:
        """Create a token, and return its text, which is not stored."""
        self.all()
        text = new_token()
        id_ = secrets.token_hex(8)
        digest = _digest(text, self._hmac_key)
        created_s = round(time.time(), 3)
        token = KnownToken(f"page:{id_}", name, role, digest, "page", created_s, by, self._hmac_key, groups)
        self._save({**self._tokens, name: token})
        return text

    def remove(self, name: str) -> None:
        """Remove a token."""
        self.all()
        self._save({other: token for other, token in self._tokens.items() if other != name})

    def _load(self) -> None:
        try:
            stored = json.loads(self._path.read_text())
            key = bytes.fromhex(stored["key"])
            tokens = [
                replace(KnownToken(**fields, origin="page", hmac_key=key), groups=_as_tuple(fields.get("groups")))
                for fields in stored["tokens"]
            ]
        except OSError as error:
            raise self._error(error) from None
        except (ValueError, TypeError, KeyError):
            raise OutputError(f"{self._path} is damaged; repair it, or remove it to revoke its tokens") from None
        self._hmac_key = key
        self._tokens = {token.name: token for token in tokens}

    def _save(self, tokens: dict[str, KnownToken]) -> None:
        """Store these tokens; they are in force once they are stored."""
        left_out = {"origin", "hmac_key"}
        rows = [
            {name: field for name, field in asdict(token).items() if name not in left_out} for token in tokens.values()
        ]
        text = json.dumps({"key": self._hmac_key.hex(), "tokens": rows}, indent=1)
        try:
            write_private(self._path, text)
        except OSError as error:
            raise self._error(error) from None
        self._tokens = tokens
        about = self._path.stat()
        self._seen = about.st_mtime_ns, about.st_ino, about.st_size

    def _error(self, error: OSError) -> OutputError:
        return OutputError(f"cannot use the tokens {self._path}: {error.strerror}; give another folder with --data")


def server_token(text: str) -> KnownToken:
    """The admin's token of `--token`. Its key is that of the text, so that sessions end with another one."""
    check_length(text)
    key = secrets.token_bytes(32)
    text_digest = _digest(text, b"the key of --token")[:16]
    return KnownToken(f"server:{text_digest}", "admin", "admin", _digest(text, key), "server", hmac_key=key)


def _as_tuple(groups: list[str] | None) -> tuple[str, ...] | None:
    return None if groups is None else tuple(groups)


def _digest(text: str, key: bytes = b"") -> str:
    data = text.encode("utf-8", "surrogateescape")
    return hmac.new(key, data, hashlib.sha256).hexdigest() if key else hashlib.sha256(data).hexdigest()
