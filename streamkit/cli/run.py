"""The command `run.py PIPELINE.yaml`: runs a pipeline."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from streamkit.cli.common import DEVICE, FILE, SET, exit_code, handle_signals, keep_stdout, pairs, read
from streamkit.core.errors import ConfigError, StreamkitError


@click.command()
@FILE
@SET
@DEVICE
@click.option("--limit", type=click.IntRange(min=1), help="frames per source at most")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="write what the run did as JSON")
@click.option("--profile", type=click.Path(path_type=Path, dir_okay=False), help="write a timeline; Perfetto opens it")
@click.option("--verbose", is_flag=True, help="also count the boxes that each threshold removed")
@click.option("--watch", is_flag=True, help="follow edits of the YAML and its plugins; go on without sources")
def run(
    pipeline: Path, set_: tuple[str, ...], device: str | None, limit: int | None, report: Path | None,
    profile: Path | None, verbose: bool, watch: bool,
) -> int:  # fmt: skip
    """Run a pipeline."""
    from streamkit.cli.progress import Display
    from streamkit.config.checks.stages import check_networks
    from streamkit.config.graph import build
    from streamkit.io.outputs import discard_all, report_file, written
    from streamkit.runtime.multiprocess.fleet import prepare
    from streamkit.runtime.observe.trace import Trace
    from streamkit.runtime.reload import watching

    display = Display()

    def load() -> Any:
        graph = build(read(pipeline, set_, device, may_be_empty=watch))
        check_networks(graph)
        for warning in graph.config.warnings:
            display.say(f"{warning} (warning)")
        return graph

    if watch and profile:
        raise ConfigError("--profile shows one run from its beginning to its end; leave --watch out")
    graph = None if watch else load()
    write_report = None if report is None else report_file(report)
    trace = None if profile is None else Trace(profile)
    keep_stdout()
    running: Any = (
        watching(pipeline, load, limit, display.say)
        if graph is None
        else prepare(graph, pipeline, pairs(set_), limit=limit, say=display.say, trace=trace)
    )
    handle_signals(running, display)
    code = 1
    with display.watching(running):
        try:
            code = running.run()
        except StreamkitError as error:
            code = exit_code(error)
            display.error(str(error))
    found = running.report(code)
    found["outputs"] = written(running.graph.output_paths, running.states)
    display.summary(found, verbose)
    for text in trace.finish() if trace is not None else []:
        display.say(text)
    if write_report is not None:
        write_report(json.dumps(found, indent=2) + "\n")
    if getattr(running, "left_behind", None):  # threads that hang would hold up, or crash, the end of the process
        discard_all()
        sys.stdout.flush()
        os._exit(code)
    return code
