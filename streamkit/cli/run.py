# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit PIPELINE.yaml`: runs a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamkit.cli import common
from streamkit.core.errors import ConfigError

if TYPE_CHECKING:
    from streamkit.cli.progress import Display
    from streamkit.config.plan import Graph
    from streamkit.io.outputs import ReportFile
    from streamkit.runtime.observe.telemetry import Telemetry
    from streamkit.runtime.observe.trace import Trace
    from streamkit.runtime.run import Run


@click.command()
@common.FILE
@common.SET
@common.DEVICE
@click.option(
    "--limit", type=click.IntRange(min=1), help="stop each source after this many frames; dropped frames do not count"
)
@common.REPORT
@click.option("--profile", type=click.Path(path_type=Path, dir_okay=False), help="write a timeline for Perfetto")
@click.option("--verbose", is_flag=True, help="also count the boxes that each threshold removed")
@click.option("--watch", is_flag=True, help="apply edits of the YAML and its plugins; keep running without sources")
@common.log_options
def run(
    pipeline: Path,
    set_: tuple[str, ...],
    device: str | None,
    limit: int | None,
    report: Path | None,
    profile: Path | None,
    verbose: bool,
    watch: bool,
) -> int:
    """Run a pipeline."""
    from streamkit.runtime.multiprocess.prestart import prestart_workers

    prestart_workers(pipeline, common.pairs(set_), device)
    from streamkit.cli.progress import open_display
    from streamkit.config.graph import build
    from streamkit.io.outputs import ReportFile
    from streamkit.runtime.observe import telemetry
    from streamkit.runtime.observe.trace import Trace
    from streamkit.runtime.prepare import prepare
    from streamkit.runtime.reload import watching
    from streamkit.runtime.run import RunConfig

    display = open_display()
    exported = telemetry.open_telemetry()

    def load() -> Graph:
        display.once.forget()  # an edit may cause the same messages again
        return common.graph_checked(build(common.read(pipeline, set_, device, may_be_empty=watch)))

    if watch and profile:
        raise ConfigError("--profile shows one run from its beginning to its end; omit --watch")
    graph = None if watch else load()
    write_report = None if report is None else ReportFile(report)
    trace = None if profile is None else Trace(profile)
    common.keep_stdout()
    running: Run = (
        watching(pipeline, load, limit, common.pairs(set_))
        if graph is None
        else prepare(graph, pipeline, common.pairs(set_), RunConfig(limit=limit), trace=trace)
    )
    return run_and_report(running, display, exported, write_report=write_report, trace=trace, verbose=verbose)


def run_and_report(
    running: Run,
    display: Display,
    exported: Telemetry | None,
    *,
    write_report: ReportFile | None = None,
    trace: Trace | None = None,
    verbose: bool = False,
) -> int:
    """Run to the end, show and write the summary, and return the exit code.

    Args:
        running: the run.
        display: shows it.
        exported: what `open_telemetry` has returned.
        write_report: writes the report as JSON.
        trace: the run's timeline.
        verbose: see `Display.summary`.
    """
    from streamkit.io.outputs import WrittenOutputs
    from streamkit.runtime.observe import telemetry

    outputs = WrittenOutputs(running.graph.output_paths, running.states)
    common.handle_signals(running, display)
    with telemetry.exporting(exported, lambda: common.metrics_of(running)), display.watching(running):
        code = common.run_to_end(running, display)
    results = running.report(code)
    graph = running.graph
    results["outputs"] = [*outputs.paths(graph.output_paths, running.states), *graph.output_addresses]
    display.summary(results, verbose)
    for text in trace.finish() if trace is not None else []:
        display.log(text)
    if write_report is not None:
        write_report(json.dumps(results, indent=2) + "\n")
    common.exit_past_threads(running, code)
    return code
