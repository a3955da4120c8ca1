# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit cluster`: runs a pipeline on several machines, with one API and page for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamkit.cli import common
from streamkit.cli.serve import ServerOptions, checker_of, read_credentials, run_server, server_options
from streamkit.core.errors import ConfigError


@click.command()
@click.argument("cluster", type=click.Path(path_type=Path))
@server_options
@common.log_options
def cluster(cluster: Path, **server: Any) -> int:
    """Run a pipeline on the machines of a Ray cluster, with one API and page for all."""
    from streamkit.cli.progress import open_display
    from streamkit.cluster.cluster_file import read_cluster, read_pipeline
    from streamkit.cluster.head import load_graph, prepare_cluster
    from streamkit.cluster.ray_nodes import connect
    from streamkit.serve.prepare import engine_of, open_store
    from streamkit.serve.server import check_packages

    check_packages()
    from streamkit.cluster.forward import add_forwarding
    from streamkit.runtime.observe import telemetry
    from streamkit.serve.pipeline_file import PipelineFile

    given, display = ServerOptions(**server), open_display()
    exported = telemetry.open_telemetry()
    known = read_cluster(cluster)
    load_graph(known)  # mistakes in the files come before those of the cluster
    tokens = read_credentials(given)
    store = open_store(given.data, given.keep_events, given.keep_size)
    ray, started = connect(known.ray)
    if started:
        display.log("no Ray cluster runs on this machine: one is started, of this machine only (see docs/cluster.md)")
    running, gallery = prepare_cluster(
        known, ray, store, display.once.forget, allow_files=given.allow_files, keep_events=given.keep_events,
        keep_size=given.keep_size,
    )  # fmt: skip
    check = checker_of(known.pipeline, lambda text: read_pipeline(known, text=text))
    file = PipelineFile(known.pipeline, check, allow_plugins=given.allow_files)
    engine = engine_of(running, gallery, store, allow_files=given.allow_files, file=file)

    def add_routes(app: Any, api: Any) -> None:
        add_forwarding(app, api, engine)

    return run_server(engine, given, tokens, exported, display, f"serving {known.pipeline} on a cluster", add_routes)


def check_cluster(path: Path, *, strict: bool = False) -> int:
    """Check a cluster.yaml and its pipeline without joining a cluster, as `streamkit check` does.

    Files are not opened: they are on the nodes.
    """
    from streamkit.cluster.cluster_file import parse_cluster, read_pipeline

    cluster_file, problems = parse_cluster(path)
    if not cluster_file.pipeline.is_file():
        raise ConfigError(problems)
    config = read_pipeline(cluster_file)
    config.problems += problems
    graph, warnings = common.checked(config, strict=strict)
    sources = common.count_of(len(graph.sources), "source")
    where = f"{cluster_file.pipeline} with {sources} on the Ray cluster {cluster_file.ray}"
    common.echo(f"{path}: ok{warnings}, {where}")
    return 0
