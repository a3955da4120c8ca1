# SPDX-License-Identifier: Apache-2.0
"""Reads cluster.yaml: which pipeline runs, where its Ray cluster is, and where its nodes keep their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamkit.config.entries import Entries
from streamkit.config.pipeline_config import read
from streamkit.config.plan import Config
from streamkit.core.environment import variable
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import YamlNode, load, load_file, read_file, variables

KEYS = ("pipeline", "sources", "ray", "folder")
DEFAULT_RAY = "auto"
DEFAULT_FOLDER = Path("~/streamkit-cluster")


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A cluster.yaml.

    Attributes:
        path: the file.
        pipeline: the pipeline's YAML.
        ray: address of the Ray cluster, `host:port`; or `auto`: the one of this machine, which is started if needed.
        folder: folder on each node for the pipeline's files, its outputs and its events; `~` is the node's home.
        sources: its own sources, in the form of a pipeline's YAML; None if it has none.
    """

    path: Path
    pipeline: Path
    ray: str
    folder: Path
    sources: YamlNode | None


def is_cluster_file(path: Path) -> bool:
    """Whether a YAML is a cluster.yaml: it names a pipeline and has no stages. False if it cannot be read."""
    try:
        root, _ = load_file(path)
    except ConfigError:
        return False
    return isinstance(root.value, dict) and "pipeline" in root.value and "stages" not in root.value


def read_cluster(path: Path) -> ClusterFile:
    """Read a cluster.yaml. Raises ConfigError with every problem of it; its sources are checked by `read_pipeline`."""
    cluster, problems = parse_cluster(path)
    if problems:
        raise ConfigError(problems)
    return cluster


def parse_cluster(path: Path) -> tuple[ClusterFile, list[Problem]]:
    """Read a cluster.yaml as `read_cluster` does, and return its problems.

    Raises:
        ConfigError: it is not a mapping, or cannot be read.
    """
    root, problems = load_file(path)
    if not isinstance(root.value, dict):
        raise ConfigError([root.problem(f"a cluster is a mapping with the keys {', '.join(KEYS)}")])
    for key in root.value.keys() - set(KEYS):
        hint = did_you_mean(key, KEYS, all_if_few=True)
        if key in ("stages", "alarms", "device"):
            hint = "; it belongs into the pipeline's YAML, which the key pipeline names"
        problems.append(root.problem(f"unknown key {key!r}{hint}", key))
    if "pipeline" not in root.value and not problems:
        problems.append(root.problem("a cluster needs pipeline: the path of a pipeline's YAML, such as pipeline.yaml"))
    named = _text(root, "pipeline", "", problems)
    pipeline = path.parent / named
    if named and not pipeline.is_file():
        problems.append(root.value["pipeline"].problem(f"pipeline: there is no file {pipeline}"))
    ray = _text(root, "ray", DEFAULT_RAY, problems)
    if ray != DEFAULT_RAY and (":" not in ray or "://" in ray):
        text = f"ray must be auto or the address of the cluster's head as host:port, such as 10.0.0.5:6379, got {ray!r}"
        problems.append(root.value["ray"].problem(text))
    folder = Path(_text(root, "folder", str(DEFAULT_FOLDER), problems))
    if not folder.is_absolute() and folder.parts[:1] != ("~",):
        text = f"folder must be an absolute path, or begin with ~, as each node has its own, got {str(folder)!r}"
        problems.append(root.value["folder"].problem(text))
    return ClusterFile(path, pipeline, ray, folder, root.value.get("sources")), problems


def _text(root: YamlNode, key: str, default: str, problems: list[Problem]) -> str:
    """A text option; a problem if it is something else."""
    node = root.value.get(key)
    if node is None:
        return default
    if isinstance(node.value, str) and node.value:
        return node.value
    example = default or f"{key}.yaml"
    problems.append(node.problem(f"{key} must be a text, such as {key}: {example}, got {node.plain()!r}"))
    return default


def read_pipeline(cluster: ClusterFile, *, text: str | None = None) -> Config:
    """The pipeline with the sources of both files. Problems are collected in the result, not raised.

    Args:
        cluster: the cluster.
        text: a text in place of the pipeline's YAML.

    Raises:
        ConfigError: a file cannot be read or is not YAML.
    """
    without: dict[str, Any] = {} if _has_sources(cluster.pipeline, text) else {"sources": {}}
    config = read(cluster.pipeline, set_=without, may_be_empty=True, text=text)
    if cluster.sources is not None and cluster.sources.value:
        of_cluster = replace(config, folder=cluster.path.parent, sources=[])
        root = YamlNode({"sources": cluster.sources}, str(cluster.path), 1, 1)
        Entries(of_cluster, root, KEYS).sources()
        ids = {source.id for source in config.sources}
        for source in of_cluster.sources:
            if source.id in ids:
                twice = (
                    f"there is a source {source.id!r} in {cluster.pipeline.name} already; give one of them another id"
                )
                config.problems.append(cluster.sources.problem(twice, source.id))
        config.sources += of_cluster.sources
        config.sources_complete &= of_cluster.sources_complete
    return config


def _has_sources(pipeline: Path, text: str | None) -> bool:
    root, _ = load(read_file(pipeline) if text is None else text, str(pipeline))
    return isinstance(root.value, dict) and "sources" in root.value


def environment(text: str) -> Mapping[str, str]:
    """The variables that a YAML's text names, as far as they are set here."""
    values = {name: variable(name) for name in variables(text)}
    return {name: value for name, value in values.items() if value is not None}
