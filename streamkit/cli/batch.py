# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit batch`: runs a pipeline over many files, into one data set."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli import common
from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.text import nothing_detected

if TYPE_CHECKING:
    from streamkit.batch.job import BatchSettings, VideoFile
    from streamkit.batch.worker_pool import WorkerPool
    from streamkit.cli.progress import Display
    from streamkit.config.plan import Graph

_STOPPING = "stopping: files in progress are finished and no new ones are started; a second signal stops at once"


def _time(value: str | float) -> float:
    """A duration as in a YAML: 5, 5s, 1min."""
    from streamkit.core.units import seconds

    try:
        return seconds(float(value) if str(value).replace(".", "", 1).isdigit() else value)
    except ValueError as error:  # click before 8.2 shows the value of a ValueError, not its text
        raise click.BadParameter(str(error)) from None


def _timeout(value: str | float) -> float:
    if not (timeout_s := _time(value)):
        raise click.BadParameter(f"must be longer than 0s, got {value}; omit it for the default")
    return timeout_s


def _rate(value: str) -> float:
    """A frame rate: a finite number above 0."""
    with contextlib.suppress(ValueError):
        if 0 < float(value) < math.inf:
            return float(value)
    raise click.BadParameter(f"must be a number above 0 such as 2 or 0.5, got {value}")


@click.command()
@common.FILE
@click.argument("patterns", metavar="FILES...", nargs=-1, required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="folder of the data set")
@click.option(
    "--format",
    "formats",
    default="parquet",
    show_default=True,
    metavar="F,F",
    help="formats to write: parquet, jsonl, csv, coco, mot, video",
)
@click.option("--video", is_flag=True, help="also write each video with its objects drawn on it")
@click.option(
    "--workers", type=click.IntRange(min=1), help="processes; by default one per CPU core, or as many as a GPU needs"
)
@common.DEVICE
@click.option("--ray", metavar="auto|ADDRESS", help="run the workers on a Ray cluster instead of this machine")
@click.option("--insecure", is_flag=True, help="use a Ray cluster that runs code of everybody who reaches it")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="retries of a file after a temporary error",
)
@click.option("--retry-failed", is_flag=True, help="also retry files that failed in an earlier run")
@click.option("--strict", is_flag=True, help="fail files with damaged frames as a whole, without any rows")
@click.option("--overwrite", is_flag=True, help="discard the results of another pipeline in the folder and start over")
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, help="process every n-th frame")
@click.option("--fps", type=_rate, metavar="FLOAT", help="process at most this many frames per second")
@click.option("--keyframes", is_flag=True, help="decode keyframes only")
@click.option("--start", type=_time, metavar="TIME", default=0.0, help="skip everything before this time in each file")
@click.option("--end", type=_time, metavar="TIME", help="skip everything after this time in each file")
@click.option(
    "--timeout",
    type=_timeout,
    metavar="TIME",
    default=600.0,
    show_default=True,
    help="fail a file that delivers no frame for this long",
)
@click.option("--dry-run", is_flag=True, help="report what a run would do, without running")
@common.SET
@common.REPORT
@common.log_options
def batch(
    pipeline: Path,
    patterns: tuple[str, ...],
    out: Path,
    formats: str,
    video: bool,
    set_: tuple[str, ...],
    dry_run: bool,
    every: int,
    fps: float | None,
    keyframes: bool,
    start: float,
    end: float | None,
    strict: bool,
    **how: Any,
) -> int:
    """Run a pipeline over many files, into one data set.

    FILES are files, folders, patterns such as 'videos/**/*.mp4', lists (@names.txt) and addresses (s3://...). The
    YAML's own sources are ignored. After an interruption, run the same command again to continue.
    """
    from streamkit.batch.dryrun import dry_run as estimate
    from streamkit.batch.fixed_arithmetic import arithmetic_overrides
    from streamkit.batch.inputs import find
    from streamkit.batch.job import BatchSettings, FrameSelection
    from streamkit.batch.parts import check_formats
    from streamkit.batch.pipeline import check_selection, config_for, ignored
    from streamkit.cli.progress import open_display
    from streamkit.media.uris import is_path, local_path
    from streamkit.runtime.execution.device import choose

    if set(str(out)) & set("{}"):
        raise ConfigError(f"--out: the folder's name must be without {{ and }}, got {out}; give it another name")
    selection = FrameSelection(start, end, every, fps, keyframes)
    named = [name.strip() for name in formats.split(",") if name.strip()] + ["video"] * video
    settings = BatchSettings(pipeline, tuple(common.pairs(set_).items()), out, check_formats(named), selection, strict)
    display = open_display()
    try:
        check_selection(selection)
        graph = common.graph_checked(config_for(settings, how["device"]))
        files = find(patterns, out)
        device = None if how["ray"] is not None else choose(_first_device(graph.config.device))
        compared = [] if dry_run else [local_path(file.uri) for file in files if is_path(file.uri)]
        fixed = tuple(arithmetic_overrides(graph, out, device, compared))
        if fixed:
            settings = dataclasses.replace(settings, overrides=(*settings.overrides, *fixed))
            graph = common.graph_checked(config_for(settings, how["device"]))
        if text := ignored(graph):
            display.log(text)
        if dry_run:
            cluster = how["ray"] is not None
            return estimate(graph, settings, files, display.log, workers=how["workers"], cluster=cluster)
        return _run(graph, settings, files, display, **how)
    except OutputError as error:
        raise ConfigError(str(error)) from error  # exit code 2: the run has not started


def _first_device(device: str | list[str]) -> str:
    return device[0] if isinstance(device, list) else device


def _run(
    graph: Graph,
    settings: BatchSettings,
    files: list[VideoFile],
    display: Display,
    *,
    device: str | None,
    report: Path | None,
    workers: int | None,
    ray: str | None,
    insecure: bool,
    retries: int,
    retry_failed: bool,
    overwrite: bool,
    timeout: float,
) -> int:
    from streamkit.batch import summary
    from streamkit.batch.manager import Manager
    from streamkit.batch.probe import probe
    from streamkit.batch.work import opened
    from streamkit.io.outputs import ReportFile
    from streamkit.runtime.observe import telemetry

    exported = telemetry.open_telemetry()  # the workers export; this process names their run
    write_report = None if report is None else ReportFile(report)
    pool = _worker_pool(settings, graph, files, display, device, workers, ray, timeout, insecure)
    common.keep_stdout()
    code = 1
    with (
        telemetry.exporting(exported),
        opened(graph, settings, files, overwrite=overwrite, retry_failed=retry_failed) as work,
        summary.watching(display) as on_progress,
    ):
        if work.broken:
            display.log(
                f"parts of {work.broken:,} {'file' if work.broken == 1 else 'files'} in {settings.out} are truncated "
                "or missing: their other parts were removed, and the files are processed again"
            )
        manager = Manager(
            pool,
            work.jobs,
            work.commit,
            retries=retries,
            skipped=work.done,
            failed_before=work.failed,
            on_progress=on_progress,
            seconds=lambda file: settings.selection.length_s(probe(file.uri).duration_s),
        )
        common.handle_signals(manager, display, _STOPPING)
        counts = manager.counts
        try:
            manager.run()
            code = 130 if manager.stopping else counts.exit_code
            if not counts.left:
                work.finish()
        except OutputError as error:
            code = 2
            display.log(f"{error}; fix this and run the same command again to continue", logging.ERROR)
    for text in summary.lines(counts):
        display.log(text)
    detectors = dict.fromkeys(node.table for node in graph.nodes.values() if "detections" in node.type.spec.writes)
    if not counts.objects and (hint := nothing_detected(list(detectors), counts.frames)):
        display.log(hint, logging.WARNING)
    if write_report is not None:
        write_report(json.dumps(summary.report(counts, code), indent=2) + "\n")
    return code


def _worker_pool(
    settings: BatchSettings,
    graph: Graph,
    files: list[VideoFile],
    display: Display,
    device: str | None,
    workers: int | None,
    ray: str | None,
    timeout_s: float,
    insecure: bool,
) -> WorkerPool:
    if ray is not None:
        from streamkit.batch.ray_worker_pool import RayWorkerPool

        return RayWorkerPool(settings, ray, workers=workers, device=device, timeout_s=timeout_s, insecure=insecure)
    from streamkit.batch.pipeline import attach
    from streamkit.batch.worker_plan import plan_workers
    from streamkit.batch.worker_pool import LocalWorkerPool

    plan = plan_workers(attach(graph, settings), files, workers, settings.selection)
    for text in plan.reasons:
        display.log(text)
    return LocalWorkerPool(settings, plan.devices, slots=plan.slots, cores=plan.cores, timeout_s=timeout_s)
