# SPDX-License-Identifier: Apache-2.0
"""The commands that need no run: `check`, `graph`, `test`, `list`, `explain`, `schema`, `doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from streamkit.cli.common import DEVICE, FILE, PLUGINS, SET, checked, count_of, echo, read, registry


@click.command()
@FILE
@SET
@DEVICE
@click.option("--strict", is_flag=True, help="treat warnings as errors: exit with 2")
def check(pipeline: Path, set_: tuple[str, ...], device: str | None, strict: bool) -> int:
    """Check a pipeline or a cluster without running it: report every problem with its line and column.

    Files among the sources are opened; cameras are not.
    """
    from streamkit.cli.cluster import check_cluster
    from streamkit.cluster.cluster_file import is_cluster_file

    if is_cluster_file(pipeline):
        return check_cluster(pipeline, strict=strict)
    from streamkit.core.stage import BatchStage
    from streamkit.runtime.multiprocess.partition import assign_sources
    from streamkit.runtime.multiprocess.process_count import gpu_reasons

    config = read(pipeline, set_, device)
    graph, warnings = checked(config, strict=strict, placement=assign_sources, open_files=True)
    # as named in the YAML: a composite such as detect is one stage
    stages = {id_.partition(".")[0] for id_ in graph.nodes}
    on_device = {id_.partition(".")[0] for id_, node in graph.nodes.items() if issubclass(node.type, BatchStage)}
    counts = (count_of(len(graph.sources), "source"), count_of(len(stages), "stage"))
    echo(f"{pipeline}: ok{warnings}, {', '.join(counts)} ({len(on_device)} on the device)")
    for reason in gpu_reasons(graph):
        echo(reason)
    return 0


@click.command()
@FILE
@SET
@DEVICE
@click.option("--format", "format_", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
def graph(pipeline: Path, set_: tuple[str, ...], device: str | None, format_: str) -> int:
    """Show a pipeline's stages, their inputs, and the copies between host and device."""
    from streamkit.config.diagram import as_mermaid, as_text
    from streamkit.config.graph import build
    from streamkit.runtime.execution.device import choose
    from streamkit.runtime.multiprocess.partition import assign_sources, stages_across_sources
    from streamkit.runtime.multiprocess.process_count import plan_here

    built = build(read(pipeline, set_, device))
    assign_sources(built)  # before a device is used
    plan = plan_here(built)
    shares = assign_sources(built, plan.counts)
    chosen = [str(choose(name)) for name, _ in shares]
    echo((as_text if format_ == "text" else as_mermaid)(built, ", ".join(dict.fromkeys(chosen))))
    for name, (_, sources) in zip(chosen, shares, strict=True) if len(shares) > 1 and format_ == "text" else ():
        echo(f"process on {name}: {', '.join(sources)}")
    across = stages_across_sources(built) if len(shares) > 1 and format_ == "text" else {}
    if across:
        echo(f"parent process, for all sources: {', '.join(dict.fromkeys(node.table for node in across.values()))}")
    for device_plan in plan.devices if format_ == "text" else ():
        if device_plan.device.kind == "cuda":
            echo(device_plan.reason)
    return 0


@click.command()
@FILE
@SET
def test(pipeline: Path, set_: tuple[str, ...]) -> int:
    """Run the tests in a pipeline's YAML, under `tests:`."""
    from streamkit.testing.yaml_tests import run_tests

    return run_tests(read(pipeline, set_, "cpu"), echo)


@click.command("list")
@PLUGINS
def list_(plugins: tuple[Path, ...]) -> int:
    """List all stages, and the network families and tracker methods of plugins."""
    from streamkit.config.describe import part_list, stage_list

    stages = registry(plugins)
    echo("\n".join(filter(None, [stage_list(stages), part_list(stages)])))
    return 0


@click.command()
@click.argument("stage")
@PLUGINS
def explain(stage: str, plugins: tuple[Path, ...]) -> int:
    """Show what a stage does and its options."""
    from streamkit.config.describe import explain as explained

    echo(explained(registry(plugins), stage))
    return 0


@click.command()
@PLUGINS
@click.option("--records", type=click.Choice(["json", "avro", "proto"]), help="print the schema of records")
@click.option("--send", type=click.Choice(["frames", "objects", "events"]), help="records of avro; default: frames")
def schema(plugins: tuple[Path, ...], records: str | None, send: str | None) -> int:
    """Print the JSON Schema of a pipeline's YAML, for editors; with --records the schema of its output."""
    from streamkit.config.describe import json_schema
    from streamkit.io.formats.schemas import form

    if send is not None and records != "avro":
        raise click.UsageError("--send selects an Avro schema; add --records avro, or omit it")
    text = form(records, send or "frames") if records else json.dumps(json_schema(registry(plugins)), indent=2)
    click.echo(text)
    return 0


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False), required=False)
def doctor(pipeline: Path | None) -> int:
    """Show what this machine supports, and how to fix problems; with a pipeline, also what that needs.

    Of a pipeline, it reports the packages of its stages that are missing, and whether the endpoints of `ask` answer.
    """
    from streamkit.doctor.machine import examine
    from streamkit.doctor.networks import gpu_figures, network_caches, network_packages

    if pipeline is None:
        return examine(echo, network_packages, network_caches, gpu_figures)
    from functools import partial

    from streamkit.config.graph import build
    from streamkit.doctor.pipeline import endpoints, stage_packages

    graph = build(read(pipeline, (), None))
    needs = partial(stage_packages, graph), partial(endpoints, graph)
    return examine(echo, network_packages, network_caches, *needs)
