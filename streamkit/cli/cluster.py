# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit cluster`: runs a pipeline on several machines, with one API and page for all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli import common
from streamkit.cli.serve import ServerOptions, checker_of, read_credentials, run_server, server_options
from streamkit.core.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI


@click.command()
@click.argument("cluster", type=click.Path(path_type=Path))
@click.option("--insecure", is_flag=True, help="use a Ray cluster that runs code of everybody who reaches it")
@server_options
@common.log_options
def cluster(cluster: Path, insecure: bool, **server: Any) -> int:
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

    chosen = ServerOptions(**server)
    display = open_display()
    exported = telemetry.open_telemetry()
    cluster_file = read_cluster(cluster)
    load_graph(cluster_file)  # mistakes in the files come before those of the cluster
    tokens = read_credentials(chosen)
    store = open_store(chosen.data, chosen.keep_events, chosen.keep_size)
    ray, started = connect(cluster_file.ray, insecure=insecure)
    if started:
        display.log("no Ray cluster runs on this machine: one is started, of this machine only (see docs/cluster.md)")
    running, gallery = prepare_cluster(
        cluster_file,
        ray,
        store,
        display.once.forget,
        allow_files=chosen.allow_files,
        keep_events=chosen.keep_events,
        keep_size=chosen.keep_size,
    )
    check = checker_of(cluster_file.pipeline, lambda text: read_pipeline(cluster_file, text=text))
    file = PipelineFile(cluster_file.pipeline, check, allow_plugins=chosen.allow_files)
    engine = engine_of(running, gallery, store, allow_files=chosen.allow_files, file=file)

    def add_routes(app: FastAPI, api: APIRouter) -> None:
        add_forwarding(app, api, engine)

    title = f"serving {cluster_file.pipeline} on a cluster"
    return run_server(engine, chosen, tokens, exported, display, title, add_routes)


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
