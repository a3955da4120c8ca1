# SPDX-License-Identifier: Apache-2.0
"""The file of `--access`: who signs people in beside this server, and what their groups there may do here."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from annotated_types import Len

from streamkit.core.errors import ConfigError, Problem
from streamkit.core.yaml_tree import YamlNode, load_file
from streamkit.serve.api_models import RequestBody
from streamkit.serve.identity import checked_groups
from streamkit.serve.token import ROLES, Role

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_Text = Annotated[str, Len(1, 500)]


@dataclass
class Grant(RequestBody):
    """What the members of a group may do: their role, and the camera groups that they may see; None for all."""

    role: Role
    cameras: list[str] | None = None

    def __post_init__(self) -> None:
        """Check the camera groups."""
        self.cameras = _listed(checked_groups(self.role, self.cameras))


@dataclass
class ProviderOptions(RequestBody):
    """A provider of OpenID Connect.

    Attributes:
        issuer: its address, as in its tokens.
        client_id: the name of this server there.
        address: the address at which browsers reach this server.
        label: what the page calls the provider.
        name_claim: the claim that has the person's name.
        groups_claim: the claim that has the person's groups; dots lead into claims, as in `realm_access.roles`.
    """

    issuer: _Text
    client_id: _Text
    address: _Text
    label: Annotated[str, Len(1, 40)] = "OpenID Connect"
    name_claim: _Text = "preferred_username"
    groups_claim: _Text = "groups"

    def __post_init__(self) -> None:
        """Check the addresses."""
        self.address = self.address.rstrip("/")
        for key in ("issuer", "address"):
            check_https(key, getattr(self, key))


@dataclass
class ProxyOptions(RequestBody):
    """A proxy that signs people in and names them in headers.

    Attributes:
        addresses: the proxy's own addresses or networks.
        name_header: the header that has the person's name.
        groups_header: the header that has the person's groups, separated by commas.
    """

    addresses: Annotated[list[str], Len(1, 50)]
    name_header: _Text = "Remote-User"
    groups_header: _Text = "Remote-Groups"

    def __post_init__(self) -> None:
        """Check the addresses."""
        for address in self.addresses:
            ipaddress.ip_network(address)

    def trusts(self, peer: str) -> bool:
        """Whether a connection from an address is the proxy's."""
        try:
            ip: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in ipaddress.ip_network(address) for address in self.addresses)


@dataclass
class AccessFile(RequestBody):
    """The content of the file.

    Attributes:
        grants: the rights of groups, by the group's name at the provider or proxy.
        oidc: the provider of OpenID Connect; None for none.
        proxy: the proxy that signs people in; None for none.
    """

    grants: dict[str, Grant] = field(default_factory=dict)
    oidc: ProviderOptions | None = None
    proxy: ProxyOptions | None = None

    def granted(self, groups: Collection[str]) -> tuple[Role, tuple[str, ...] | None] | None:
        """The highest role that one of the groups gives, and the cameras of those that give it; None for no rights."""
        grants = [grant for name, grant in self.grants.items() if name in groups]
        if not grants:
            return None
        role = max((grant.role for grant in grants), key=ROLES.index)
        cameras = [grant.cameras for grant in grants if grant.role == role]
        limits = [names for names in cameras if names is not None]
        if len(limits) < len(cameras):
            return role, None
        return role, tuple(sorted({name for names in limits for name in names}))


def check_https(key: str, address: str) -> None:
    """Check an address: https, or http on this machine, without a query. Raises ValueError."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    local = host == "localhost" or host.startswith("127.") or host == "::1"
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise ValueError(f"{key} must begin with https://, got {address!r}")
    if not host or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{key} must be an address such as https://login.example.com, got {address!r}")


def read_access(path: Path) -> AccessFile:
    """Read the file of `--access`.

    Raises:
        ConfigError: with every problem of the file, or because others may write it.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ConfigError(f"--access {path}: {error.strerror}") from None
    if mode & _OTHERS_WRITE:
        raise ConfigError(f"--access {path}: other users may write it (mode {mode:o}); run: chmod 644 {path}")
    root, problems = load_file(path)
    if problems:
        raise ConfigError(problems)
    try:
        access = TypeAdapter(AccessFile).validate_python(root.plain())
    except ValidationError as error:
        raise ConfigError([_problem(root, about) for about in error.errors()]) from None
    if (access.oidc is None) == (access.proxy is None):
        raise ConfigError([root.problem("write either oidc or proxy: who signs people in beside this server")])
    if not access.grants:
        raise ConfigError([root.problem("grants is missing: it says what the groups may do; see docs/people.md")])
    return access


def _problem(root: YamlNode, about: Mapping[str, Any]) -> Problem:
    path = [step for step in about["loc"] if isinstance(step, (str, int))]
    node, _ = root.follow(path)
    name = ".".join(map(str, path)) or "the file"
    return node.problem(f"{name}: {about['msg'].removeprefix('Value error, ')}")


def _listed(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
