# SPDX-License-Identifier: Apache-2.0
"""Checks who may run code on a Ray cluster: without a token, Ray runs the functions of every client that reaches it."""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from streamkit.core.errors import ConfigError

logger = logging.getLogger(__name__)

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"
"""The environment variables of Ray's authentication."""

_PROBE = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1]).cluster_id"
_REFUSED = b"AuthenticationError"
_ANSWER_S = 15.0


class OpenClusterError(ConfigError):
    """A cluster runs the code of everybody who reaches its public address."""


class AccessProbe:
    """Asks a cluster for its id without a token, in a subprocess: the mode holds for a whole process.

    Args:
        head: `host:port` of the cluster's head.
    """

    def __init__(self, head: str) -> None:
        environment = {name: text for name, text in os.environ.items() if name not in (TOKEN, TOKEN_PATH)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROBE, head],
            env={**environment, MODE: "disabled"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def needs_token(self) -> bool:
        """Whether the cluster refused the question. Waits for the answer."""
        try:
            _, errors = self._process.communicate(timeout=_ANSWER_S)
        except subprocess.TimeoutExpired:
            self.close()
            return False
        return self._process.returncode != 0 and _REFUSED in errors

    def close(self) -> None:
        """End the question."""
        self._process.kill()
        self._process.communicate()


def check_access(what: str, head: str, nodes: Sequence[str], probe: AccessProbe, *, insecure: bool) -> None:
    """Refuse a cluster that runs the code of everybody on the internet; warn of one that does so in a network.

    Args:
        what: the option and the address, for messages.
        head: `host:port` of the cluster's head.
        nodes: the IP addresses of its nodes.
        probe: tells whether the cluster needs a token.
        insecure: whether it may be open nevertheless.

    Raises:
        OpenClusterError: it needs no token, and a node has a public address.
    """
    if probe.needs_token():
        return
    public = public_addresses([*nodes, *_own_addresses(head, nodes)])
    open_to = f"public address{'es' * (len(public) > 1)} {', '.join(public)}" if public else "network"
    text = (
        f"{what}: the Ray cluster needs no token, so that everybody who reaches its ports runs code on its nodes; they "
        f"are open to the {open_to}: start Ray with {MODE}=token on every node, as docs/cluster.md shows"
    )
    if public and not insecure:
        raise OpenClusterError(f"{text}, or add --insecure if a firewall closes its ports")
    logger.warning(text)


def public_addresses(addresses: Sequence[str]) -> list[str]:
    """Those of IP addresses that the internet reaches, without repeats."""
    public = []
    for address in dict.fromkeys(addresses):
        try:
            if ipaddress.ip_address(address.partition("%")[0]).is_global:
                public.append(address)
        except ValueError:  # a host name
            continue
    return public


def _own_addresses(head: str, nodes: Sequence[str]) -> list[str]:
    """The addresses of this machine, if a node of the cluster runs here: Ray listens on all of them."""
    import psutil  # Ray has it

    interfaces = psutil.net_if_addrs().values()
    addresses = [
        entry.address
        for entries in interfaces
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    ]
    host = head.rpartition(":")[0].strip("[]")
    return addresses if {host, *nodes} & {*addresses, "localhost"} else []


def choose_token() -> None:
    """Choose a token for a cluster that this process starts, unless there is one: Ray would store it in the home."""
    if not (os.environ.get(TOKEN) or os.environ.get(TOKEN_PATH) or Path("~/.ray/auth_token").expanduser().exists()):
        os.environ[TOKEN] = secrets.token_hex(32)


def login_hint(probe: AccessProbe) -> str:
    """What to do if a cluster that needs a token cannot be joined; empty if it needs none."""
    if not probe.needs_token():
        return ""
    return (
        f"; the cluster needs a token: set {MODE}=token, and {TOKEN_PATH} to the file with the token of its head, as "
        "docs/cluster.md shows"
    )
