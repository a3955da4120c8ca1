# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit cluster`: runs a pipeline on several machines, with one API and page for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamkit.cli import common
from streamkit.cli.serve import ServerOptions, checker_of, read_credentials, run_server, server_options


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

    given, display = ServerOptions(**server), open_display()
    exported = telemetry.open_telemetry()
    known = read_cluster(cluster)
    load_graph(known)  # mistakes in the files come before those of the cluster
    tokens = read_credentials(given)
    store = open_store(given.data, given.keep_events, given.keep_size)
    ray, started = connect(known.ray, insecure=insecure)
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


def check_cluster(path: Path) -> int:
    """Check a cluster.yaml and its pipeline without joining a cluster, as `streamkit check` does."""
    from streamkit.cli.check import check
    from streamkit.cluster.cluster_file import read_cluster, read_pipeline

    known = read_cluster(path)
    config = read_pipeline(known)
    graph = check(config)
    for warning in config.warnings:
        common.echo(f"{warning} (warning)", err=True)
    count = len(graph.sources)
    common.echo(f"{path}: ok, {known.pipeline} with {count} source{'s' * (count != 1)} on the Ray cluster {known.ray}")
    return 0
