# SPDX-License-Identifier: Apache-2.0
"""The head: the pipeline of a cluster, which follows its files and applies their edits node by node."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamkit.batch.job import BatchSettings, FrameSelection
from streamkit.batch.ray_cluster import pack
from streamkit.cluster.cluster_file import ClusterFile, environment, read_cluster, read_pipeline
from streamkit.cluster.cluster_run import ClusterRun
from streamkit.cluster.exchange import NodeJob
from streamkit.cluster.node import NO_SOURCES
from streamkit.config.plan import Graph
from streamkit.core.errors import ConfigError
from streamkit.core.yaml_tree import read_file
from streamkit.runtime.control.graph_changes import alike, changed_settings, copied, edited_sources
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.reload import ReloadingPipeline
from streamkit.serve.engine import ServeEngine

logger = logging.getLogger(__name__)


class ClusterPipeline(ReloadingPipeline[ClusterRun]):
    """Runs a pipeline on a cluster and follows its files.

    Args:
        cluster: its cluster.yaml.
        load: reads and checks the pipeline.
        make: creates the run.
    """

    def __init__(self, cluster: ClusterFile, load: Callable[[], Graph], make: Callable[[Graph], ClusterRun]) -> None:
        self._cluster_path = cluster.path
        super().__init__(cluster.pipeline, load, make)

    def _signature(self) -> tuple[Any, ...] | None:
        signature = super()._signature()
        try:
            about = self._cluster_path.stat()
        except OSError:
            return None
        return None if signature is None else (*signature, (about.st_mtime_ns, about.st_size, about.st_ino))

    def _follow(self, new: Graph) -> None:
        """Apply an edit; raise ConfigError if a node rejects it. Changes by calls are kept where the edit has none."""
        edited = edited_sources(self._graph, new)
        settings = changed_settings(self._graph, new)
        changes: list[str] = []
        with self._running.forgetting(edited, settings):
            if settings or not alike(self._graph, new):
                self._running.roll(copied(new), settings)
                changes.append("all nodes run the edited pipeline")
        self._graph = new
        self._follow_sources(edited, new, changes)


def cluster_run(engine: ServeEngine) -> ClusterRun:
    """The run of the head's engine."""
    pipeline = engine.running
    assert isinstance(pipeline, ClusterPipeline)
    return pipeline.current


def prepare_cluster(
    cluster: ClusterFile,
    ray: Any,
    store: Any,
    checked: Callable[[], None],
    *,
    allow_files: bool,
    keep_events: str,
    keep_size: str,
) -> tuple[ClusterPipeline, Gallery]:
    """The pipeline of a cluster, and the gallery of its events.

    Args:
        cluster: its cluster.yaml.
        ray: the package `ray`, which has joined the cluster.
        store: the store of the events of all nodes.
        checked: called before the files are read again.
        allow_files: whether added sources may read files of the nodes.
        keep_events: how long each node keeps its own events.
        keep_size: their maximum size there.

    Raises:
        ConfigError: the pipeline is invalid.
    """
    gallery = Gallery()

    def load() -> Graph:
        checked()
        now = read_cluster(cluster.path)
        if (now.pipeline, now.ray, now.folder) != (cluster.pipeline, cluster.ray, cluster.folder):
            raise ConfigError(f"{cluster.path}: pipeline, ray and folder are read at the start only: start it again")
        return load_graph(now)

    def packed() -> dict[str, bytes]:
        return pack_files(cluster.pipeline)

    def make(graph: Graph) -> ClusterRun:
        files = packed()
        text = read_file(cluster.pipeline)
        job = NodeJob(
            "",
            cluster.folder,
            files,
            next(reversed(files)),
            environment(text),
            "",
            "",
            allow_files,
            keep_events,
            keep_size,
        )
        return ClusterRun(graph, ray, job, packed, gallery, store.last_of_node)

    return ClusterPipeline(cluster, load, make), gallery


def load_graph(cluster: ClusterFile) -> Graph:
    """The graph of a cluster's pipeline, with all sources. Raises ConfigError with every problem."""
    from streamkit.config.checks.stages import check_networks
    from streamkit.config.graph import build

    graph = build(read_pipeline(cluster))
    check_networks(graph)
    for warning in graph.config.warnings:
        logger.warning(f"{warning} (warning)")
    return graph


def pack_files(pipeline: Path) -> dict[str, bytes]:
    """The content of a pipeline's files by relative path: plugins, cards and networks, and its YAML at the end."""
    settings = BatchSettings(pipeline, tuple(NO_SOURCES.items()), Path(), (), FrameSelection())
    with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
        yaml = pack(settings, Path(folder)).as_posix()
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {**{name: content for name, content in files.items() if name != yaml}, yaml: files[yaml]}
