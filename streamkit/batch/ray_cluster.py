# SPDX-License-Identifier: Apache-2.0
"""Joins a Ray cluster, packs the files that its workers need, and computes how many workers it has room for."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamkit.batch.job import BatchSettings
from streamkit.batch.pipeline import config_for
from streamkit.batch.ray_access import AccessProbe, check_access, choose_token, login_hint
from streamkit.config.pipeline_config import replace_value
from streamkit.core.errors import ConfigError, MissingPackage
from streamkit.core.yaml_tree import load_file

_CONNECT_S = 5.0
_ANSWER_S = 30.0
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
_TRY = (
    f"import json, ray, sys; ray.init(sys.argv[1], **{_QUIET!r}); "
    "print(json.dumps([node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']]))"
)
_ENVIRONMENT = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray's next default, set to avoid its warning: a worker that requests no GPU still sees the GPUs."""


def join(address: str, folder: Path | None, *, option: str = "--ray", insecure: bool = False) -> Any:
    """Join a cluster, and send it a folder, which becomes the workers' working directory.

    Args:
        address: the cluster's head, `host:port`, or `auto` for the cluster that this machine belongs to.
        folder: the folder to send; None for none.
        option: what names the address, for messages.
        insecure: whether the cluster may run the code of everybody who reaches its public address.

    Returns:
        The package `ray`.

    Raises:
        MissingPackage: Ray is not installed.
        ConfigError: there is no such cluster, it is open to the internet, or it does not accept the folder.
    """
    try:
        import ray
        import ray._private.worker as private
        from ray._private import services
    except ImportError:
        raise MissingPackage("ray", "ray", option) from None
    if "://" in address:
        raise ConfigError(
            f"{option} {address}: give the cluster's head as host:port, on a machine of the cluster, or auto"
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        head = services.canonicalize_bootstrap_address_or_die(address)
    except (ConnectionError, ValueError) as error:
        raise ConfigError(f"{option} {address}: {last_line(error)}") from None
    _check_port(f"{option} {address}", address, head)
    _check_cluster(f"{option} {address}", head, insecure)
    private._worker_logs_enabled = False  # else Ray prints thirty lines for each worker that dies
    try:
        ray.init(head, runtime_env=None if folder is None else {"working_dir": str(folder)}, **_QUIET)
    except Exception as error:  # of any type, for example if the folder is too large
        raise ConfigError(f"{option} {address}: {last_line(error)}") from None
    return ray


def _check_port(what: str, address: str, head: str) -> None:
    """Check that something listens at the address."""
    host, _, port = head.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        where = "there" if address == head else f"at {head}"
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{what}: no server answers {where}: {reason}") from None


def _check_cluster(what: str, head: str, insecure: bool) -> None:
    """Check in a subprocess that it is a cluster: Ray would try for two minutes, and then exit the process.

    Meanwhile another one checks that it is not open to everybody.
    """
    probe = AccessProbe(head)
    try:
        nodes = _nodes_of_cluster(what, head, probe)
        check_access(what, head, nodes, probe, insecure=insecure)
    finally:
        probe.close()


def _nodes_of_cluster(what: str, head: str, probe: AccessProbe) -> list[str]:
    """The IP addresses of a cluster's nodes. Raises ConfigError if it is none, or does not accept this client."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, head],
            env={**_ENVIRONMENT, **os.environ},
            timeout=_ANSWER_S,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{what}: the server at {head} does not answer as a Ray cluster within {_ANSWER_S:g} s "
            "(ray status shows a cluster's state)"
        ) from None
    if done.returncode:
        raise ConfigError(f"{what}: {last_line(done.stderr)}{login_hint(probe)}")
    return [str(address) for address in json.loads(done.stdout.splitlines()[-1])]


def start_local() -> Any:
    """Start a cluster of this machine only, which ends with this process; return the package `ray`."""
    import ray
    import ray._private.worker as private

    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    choose_token()
    private._worker_logs_enabled = False
    ray.init("local", include_dashboard=False, **_QUIET)
    return ray


def nodes_of(ray: Any) -> dict[str, dict[str, float]]:
    """The live nodes and their resources: CPU, GPU and so on."""
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def capacity(nodes: dict[str, dict[str, float]], cpus: float, gpus: float) -> int:
    """How many workers with these CPU cores and GPUs the nodes can hold, if they are otherwise idle."""
    needs = {name: count for name, count in (("CPU", cpus), ("GPU", gpus)) if count}
    return sum(min(int(has.get(name, 0) / count + 1e-6) for name, count in needs.items()) for has in nodes.values())


def last_line(text: object) -> str:
    """The last line of an error's text, which is the most specific."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason is given"


def end_reason(error: Exception) -> tuple[str, bool]:
    """How an actor ended, as a phrase from Ray's error; and whether it was lost with its node."""
    text = " ".join(str(error).split())
    for mark, phrase, lost in _ENDS:
        if mark in text:
            return phrase, lost
    return f"is gone: {last_line(error)}", False


_ENDS = (
    ("low on memory", "was stopped by Ray: its node was out of memory", False),
    ("No module named", "cannot start: streamkit and its packages must be installed on every node", False),
    ("worker process has died", "was killed or crashed", False),
    ("node has died", "is lost with its node", True),
    ("unavailable", "cannot be reached and counts as lost, like its node", True),
)


# ----------------------------------------------------------------------------------------------- the pipeline's files


def pack(settings: BatchSettings, folder: Path) -> Path:
    """Copy a pipeline's files into `folder` with their relative layout, so that relative paths stay valid.

    These are the YAML, its plugins, its cards, and the files that those name. Links are copied as files.

    Args:
        settings: the pipeline and its overrides.
        folder: an empty folder.

    Returns:
        The YAML's path relative to `folder`.

    Raises:
        ConfigError: the YAML cannot be read.
    """
    yaml = _plain(settings.pipeline)
    files = {yaml, *_plugins(yaml, settings), *_of_cards(settings)}
    root = Path(os.path.commonpath([file.parent for file in files]))
    for file in sorted(files):
        if file.is_file():  # the worker reports missing files
            copy = folder / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    return yaml.relative_to(root)


def _plugins(yaml: Path, settings: BatchSettings) -> Iterator[Path]:
    """Yield the plugins' files."""
    root, problems = load_file(yaml)
    for name, text in settings.overrides:
        replace_value(root, name, text, problems)
    node = root.value.get("plugins")
    for item in [] if node is None else node.value if isinstance(node.value, list) else [node]:
        path = _plain(yaml.parent / str(item.value))
        yield from path.glob("*.py") if path.is_dir() else [path]


def _of_cards(settings: BatchSettings) -> Iterator[Path]:
    """The cards that the pipeline names, with their networks, external weights and label files."""
    from streamkit.models.beside_facts import companions
    from streamkit.models.card import Card

    for node in config_for(settings).nodes.values():
        for card in node.options.values():
            if isinstance(card, Card):
                yield _plain(card.path)
                if card.derived:
                    yield from [*card.path.parent.glob(f"{card.path.name}*"), *companions(card.path)]
                    continue
                root, _ = load_file(card.path)
                network, labels = (_named(card.path, root.value.get(key)) for key in ("file", "labels"))
                if network is not None:
                    yield from network.parent.glob(f"{network.name}*")
                if labels is not None:
                    yield labels


def _named(card: Path, node: Any) -> Path | None:
    """The file at a card's path option; None for the name of a known list."""
    path = _plain(card.parent / node.value) if node is not None and isinstance(node.value, str) else None
    return path if path is not None and path.is_file() else None


def _plain(path: Path) -> Path:
    """The absolute path without `..`; links are kept, because a file is sent to where the link is."""
    return Path(os.path.abspath(path))
