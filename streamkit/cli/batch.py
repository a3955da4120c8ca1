"""The command `run.py batch`: runs a pipeline over many files, into one data set."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from streamkit.cli.common import handle_signals, keep_stdout, pairs
from streamkit.core.errors import ConfigError, OutputError

_STOPPING = "stopping: the files in hand are finished and no other is begun; once more stops at once"


class _Time(click.ParamType):  # type: ignore[type-arg]  # not generic in every click 8
    """A duration as in a YAML: 5, 5s, 1min.

    Args:
        positive: whether 0 is refused.
    """

    name = "TIME"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> float:
        from streamkit.core.units import seconds

        try:
            made = seconds(float(str(value)) if str(value).replace(".", "", 1).isdigit() else value)
        except ValueError as error:
            self.fail(str(error), param, context)
        if self._positive and not made:
            self.fail(f"must be longer than 0s, got {value}; leave it out for the default", param, context)
        return made


class _Rate(click.ParamType):  # type: ignore[type-arg]  # not generic in every click 8
    """A frame rate: a finite number above 0."""

    name = "FLOAT"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> float:
        try:
            made = float(str(value))
        except ValueError:
            made = math.nan
        if not 0 < made < math.inf:
            self.fail(f"must be a number above 0 such as 2 or 0.5, got {value}", param, context)
        return made


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.argument("patterns", metavar="FILES...", nargs=-1, required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="folder of the data set")
@click.option("--format", "formats", default="parquet", show_default=True, metavar="F,F",
              help="what is written: parquet, jsonl, csv, coco, mot, video")  # fmt: skip
@click.option("--video", is_flag=True, help="also write each video with what was found drawn onto it")
@click.option("--workers", type=click.IntRange(min=1), help="processes; by default one a CPU core, or three a GPU")
@click.option("--device", help="replace the YAML's device: auto, cpu, cuda, cuda:N, or several: cuda:0,cuda:1")
@click.option("--ray", metavar="auto|ADDRESS", help="workers on a Ray cluster in place of this machine's processes")
@click.option("--retries", type=click.IntRange(min=0), default=1, show_default=True,
              help="how often a file is tried again, where that may help")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="also try the files again that an earlier run put aside")
@click.option("--strict", is_flag=True, help="put a file with damaged frames aside as a whole; its good rows go, too")
@click.option("--overwrite", is_flag=True, help="discard the results of another pipeline in the folder and start over")
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, help="take every n-th picture")
@click.option("--fps", type=_Rate(), help="thin out to so many pictures a second")
@click.option("--keyframes", is_flag=True, help="decode keyframes only")
@click.option("--start", type=_Time(), default=0.0, help="leave out what comes before, in every file")
@click.option("--end", type=_Time(), help="leave out what comes after, in every file")
@click.option("--timeout", type=_Time(positive=True), default=600.0, show_default=True,
              help="a file that gives no picture for so long is put aside")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="say what would be done, and do nothing")
@click.option("--set", "set_", multiple=True, metavar="NAME=VALUE", help="replace a value of the YAML")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="write what the run did as JSON")
def batch(
    pipeline: Path, patterns: tuple[str, ...], out: Path, formats: str, video: bool, device: str | None,
    set_: tuple[str, ...], dry_run: bool, report: Path | None, every: int, fps: float | None, keyframes: bool,
    start: float, end: float | None, strict: bool, **how: Any,
) -> int:  # fmt: skip
    """Run a pipeline over many files, into one data set.

    FILES are files, folders, patterns such as 'videos/**/*.mp4', lists (@names.txt) and addresses (s3://...). The
    YAML's own sources are ignored. After an interruption, run the same command again to continue.
    """
    from streamkit.batch.inputs import find
    from streamkit.batch.job import BatchSettings, FrameSelection
    from streamkit.batch.parts import check_formats
    from streamkit.cli.progress import Display

    if set(str(out)) & set("{}"):
        raise ConfigError(f"--out: the folder's name must be without {{ and }}, got {out}; give it another name")
    look = FrameSelection(start, end, every, fps, keyframes)
    named = [name.strip() for name in formats.split(",") if name.strip()] + ["video"] * video
    settings = BatchSettings(pipeline, tuple(pairs(set_).items()), out, check_formats(named), look, strict)
    display = Display()
    if dry_run:
        from streamkit.batch.dryrun import dry_run as told

        graph = _checked(settings, device, display)
        files, cluster = find(patterns, out, display.say), how["ray"] is not None
        return told(graph, settings, files, display.say, workers=how["workers"], cluster=cluster)
    try:
        return _run(settings, device, patterns, report, display, **how)
    except OutputError as error:
        raise ConfigError(str(error)) from error  # exit 2: before the run has begun


def _run(
    settings: Any, device: str | None, patterns: tuple[str, ...], report: Path | None, display: Any, *,
    workers: int | None, ray: str | None, retries: int, retry_failed: bool, overwrite: bool, timeout: float,
) -> int:  # fmt: skip
    from streamkit.batch import progress, summary
    from streamkit.batch.dryrun import looked_at_s
    from streamkit.batch.inputs import find
    from streamkit.batch.manager import Manager
    from streamkit.batch.probe import probe
    from streamkit.batch.work import opened
    from streamkit.io.outputs import report_file

    graph = _checked(settings, device, display)
    files = find(patterns, settings.out, display.say)
    write_report = None if report is None else report_file(report)
    crew = _crew(settings, graph, device, len(files), workers, ray, timeout, display.say)
    keep_stdout()
    code = 1
    with (
        opened(graph, settings, files, overwrite=overwrite, retry_failed=retry_failed) as work,
        progress.watching(display) as look,
    ):
        if work.broken:
            display.say(
                f"parts of {work.broken:,} {'file' if work.broken == 1 else 'files'} in {settings.out} are cut off or "
                "missing: what is left of them was removed, and they count as not done"
            )
        manager = Manager(
            crew, work.jobs, work.commit, retries=retries, skipped=work.done, failed_before=work.failed, look=look,
            seconds=lambda file: looked_at_s(probe(file.uri), settings.look),
        )  # fmt: skip
        handle_signals(manager, display, _STOPPING)
        tally = manager.tally
        try:
            manager.run()
            code = 130 if manager.stopping else tally.exit_code
            if not tally.left:
                work.finish()
        except OutputError as error:
            code = 2
            display.error(f"{error}; the same command goes on when that is mended")
    for text in summary.lines(tally):
        display.say(text)
    if write_report is not None:
        write_report(json.dumps(summary.report(tally, code), indent=2) + "\n")
    return code


def _checked(settings: Any, device: str | None, display: Any) -> Any:
    """The pipeline's graph, after all checks that are possible before anything is written."""
    from streamkit.batch.dataset_sinks import replaced
    from streamkit.batch.pipeline import check_look, config_for
    from streamkit.config.checks.stages import check_networks

    check_look(settings.look)
    graph = config_for(settings, device)
    check_networks(graph)
    if told := replaced(graph):
        display.say(told)
    for warning in graph.config.warnings:
        display.say(f"{warning} (warning)")
    return graph


def _crew(
    settings: Any, graph: Any, device: str | None, files: int, workers: int | None, ray: str | None, timeout_s: float,
    say: Any,
) -> Any:  # fmt: skip
    if ray is not None:
        from streamkit.batch.ray_worker_pool import RayWorkerPool

        return RayWorkerPool(settings, ray, workers=workers, device=device, timeout_s=timeout_s, say=say)
    from streamkit.batch.local_worker_pool import LocalWorkerPool
    from streamkit.batch.worker_plan import plan_workers

    shares = plan_workers(graph.config.device, workers, files, say)
    return LocalWorkerPool(
        settings, shares.devices, slots=shares.slots, cores=shares.cores, timeout_s=timeout_s, say=say
    )
