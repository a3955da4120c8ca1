"""Joins a Ray cluster, and computes how many workers it has room for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from streamkit.core.errors import ConfigError, MissingPackage

_KNOCK_S, _ANSWER_S = 5.0, 30.0
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
_TRY = f"import ray, sys; ray.init(sys.argv[1], **{_QUIET!r})"
_ENVIRONMENT = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray's next default, which it warns of where it is not set: who asks for no GPU keeps his view of them."""


def join(address: str, folder: Path) -> Any:
    """Join a cluster, and send it a folder, which becomes the workers' working directory.

    Args:
        address: the cluster's head, `host:port`, or `auto` for the cluster that this machine belongs to.
        folder: the folder to send.

    Returns:
        The package `ray`.

    Raises:
        MissingPackage: Ray is not installed.
        ConfigError: there is no such cluster, or it does not accept the folder.
    """
    try:
        import ray
        import ray._private.worker as private
        from ray._private import services
    except ImportError:
        raise MissingPackage("ray", "ray", "--ray") from None
    if "://" in address:
        raise ConfigError(
            f"--ray {address}: name the cluster's head as host:port, on a machine of the cluster; or say auto there"
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        head = services.canonicalize_bootstrap_address_or_die(address)
    except (ConnectionError, ValueError) as error:
        raise ConfigError(f"--ray {address}: {last_line(error)}") from None
    _knock(address, head)
    _try(address, head)
    private._worker_logs_enabled = False  # else what it says of workers that die is printed, thirty lines for each
    try:
        ray.init(head, runtime_env={"working_dir": str(folder)}, **_QUIET)
    except Exception as error:  # of all kinds, such as that the folder is too large
        raise ConfigError(f"--ray {address}: {last_line(error)}") from None
    return ray


def _knock(address: str, head: str) -> None:
    """Check that something listens at the address."""
    host, _, port = head.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
    except (OSError, ValueError, OverflowError) as error:
        where = "there" if address == head else f"at {head}"
        said = getattr(error, "strerror", None) or error
        raise ConfigError(f"--ray {address}: nothing answers {where}: {said}") from None


def _try(address: str, head: str) -> None:
    """Check in a subprocess that it is a cluster: Ray would try for two minutes, and then exit the process."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, head], env={**_ENVIRONMENT, **os.environ}, timeout=_ANSWER_S,
            capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"--ray {address}: what is at {head} does not answer as a Ray cluster within {_ANSWER_S:g} s "
            "(ray status shows a cluster's state)"
        ) from None
    if done.returncode:
        raise ConfigError(f"--ray {address}: {last_line(done.stderr)}")


def nodes_of(ray: Any) -> dict[str, dict[str, float]]:
    """The live nodes and their resources: CPU, GPU and so on."""
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def room(nodes: dict[str, dict[str, float]], cpus: float, gpus: float) -> int:
    """How many workers with these CPU cores and GPUs the nodes can hold, if they are otherwise idle."""
    needs = {name: count for name, count in (("CPU", cpus), ("GPU", gpus)) if count}
    return sum(min(int(has.get(name, 0) / count + 1e-6) for name, count in needs.items()) for has in nodes.values())


def last_line(said: object) -> str:
    """The last line of an error's text, which is the most specific."""
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason is given"


def how_it_ended(error: Exception) -> tuple[str, bool]:
    """How an actor ended, as a phrase from Ray's error; and whether it was lost with its node."""
    text = " ".join(str(error).split())
    for mark, said, lost in _ENDS:
        if mark in text:
            return said, lost
    return f"is gone: {last_line(error)}", False


_ENDS = (
    ("low on memory", "was ended by Ray: its node was out of memory", False),
    ("No module named", "cannot begin: streamkit and its packages must be installed on every node", False),
    ("worker process has died", "was killed or crashed", False),
    ("node has died", "is lost with its node", True),
    ("unavailable", "cannot be reached and is given up, as its node is", True),
)
