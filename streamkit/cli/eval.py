# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit eval`: measures a pipeline on labeled video."""

from __future__ import annotations

import json
import logging
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli import common
from streamkit.core.errors import ConfigError

if TYPE_CHECKING:
    from streamkit.cli.progress import Display
    from streamkit.config.plan import Graph
    from streamkit.evaluate.report import Evaluation
    from streamkit.evaluate.truth import Truth
    from streamkit.runtime.run import Run

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("eval")
@click.argument("pipelines", nargs=-1, required=True, metavar="PIPELINE [PIPELINE]", type=click.Path(path_type=Path))
@click.option("--truth", required=True, help="labeled boxes: a file, or a YOLO folder; {source} is the source's id")
@click.option("--format", "form", type=click.Choice(["mot", "jsonl", "coco", "yolo"]), help="default: by the suffix")
@click.option("--labels", help="class names of the truth, for mot and yolo: person,car")
@click.option("--map", "map_", multiple=True, metavar="THEIRS=OURS", help="rename a class of the truth")
@click.option("--first-frame", type=click.IntRange(0, 1), help="number of the first frame in the names of YOLO files")
@click.option("--min-visible", type=click.FloatRange(0, 1), default=0.0, help="ignore objects that are visible less")
@click.option(
    "--only-labeled",
    "--only-labelled",
    "only_labeled",
    is_flag=True,
    help="leave out frames without a box in the truth",
)
@click.option(
    "--set",
    "set_",
    multiple=True,
    metavar="NAME=VALUE",
    help="replace a value of the pipeline; the same name twice compares both",
)
@common.DEVICE
@click.option("--limit", type=click.IntRange(min=1), help="maximum number of frames per source")
@click.option(
    "--min", "min_", multiple=True, metavar="NAME=VALUE,...", help="exit with 1 if a metric is lower: ap=.4,idf1=.7"
)
@click.option("--json", "json_", type=_FILE, help="write the report, with every miss")
@click.option("--worst", type=_FILE, help="write a picture of the worst frames, a PNG")
@common.log_options
def evaluate(
    pipelines: tuple[Path, ...],
    set_: tuple[str, ...],
    device: str | None,
    limit: int | None,
    min_: tuple[str, ...],
    json_: Path | None,
    worst: Path | None,
    **truth_options: Any,
) -> int:
    """Measure the accuracy of a pipeline on labeled video, or compare two."""
    from streamkit.cli.progress import open_display
    from streamkit.evaluate.gate import check_classes, failures, read_minimums
    from streamkit.evaluate.report import as_lines, compared
    from streamkit.evaluate.tracking import check_packages
    from streamkit.io.outputs import ReportFile

    display = open_display()
    check_packages()
    minimums = read_minimums(min_)
    if worst is not None and worst.suffix.lower() != ".png":
        raise ConfigError(f"--worst {worst}: the picture is a PNG; give it the suffix .png")
    jobs = variants(pipelines, set_)
    loaded = [_load(pipeline, sets, device, truth_options) for pipeline, sets in jobs]
    for _, truth in loaded:
        check_classes(minimums, truth.classes)
    write = None if json_ is None else ReportFile(json_)
    common.keep_stdout()
    done = [_measure(loaded_job, job, limit, display) for loaded_job, job in zip(loaded, jobs, strict=True)]
    reports = [measurement.report for measurement in done]
    for line in as_lines(reports[0]) if len(reports) == 1 else compared(reports):
        common.echo(line)
    if write is not None:
        write(json.dumps(reports[0] if len(reports) == 1 else {"a": reports[0], "b": reports[1]}, indent=2) + "\n")
    if worst is not None:
        _draw(done[-1], worst, display)
    failed = [
        f"{letter}{text}"
        for letter, report in zip(["A: ", "B: "] if len(reports) > 1 else [""], reports, strict=True)
        for text in failures(report, minimums)
    ]
    for text in failed:
        display.log(f"failed: {text}", logging.ERROR)
    return 1 if failed else 0


def variants(pipelines: tuple[Path, ...], set_: tuple[str, ...]) -> list[tuple[Path, dict[str, str]]]:
    """The one or two pipelines to measure, with their `--set`. Raises ConfigError if they are more."""
    if len(pipelines) > 2:
        raise ConfigError(f"eval compares two pipelines, got {len(pipelines)}")
    values = [next(iter(common.pairs((item,)).items())) for item in set_]
    counts = Counter(name for name, _ in values)
    twice = [name for name, count in counts.items() if count > 1]
    if any(counts[name] > 2 for name in twice):
        raise ConfigError(f"--set {twice[0]} is given {counts[twice[0]]} times; eval compares two values")
    if not twice:
        return [(pipeline, dict(values)) for pipeline in pipelines]
    if len(pipelines) == 2:
        raise ConfigError(f"--set {twice[0]} is given twice, and so is the pipeline; compare one or the other")
    return [(pipelines[0], dict(reversed(values))), (pipelines[0], dict(values))]


def _load(
    pipeline: Path, sets: dict[str, str], device: str | None, truth_options: dict[str, Any]
) -> tuple[Graph, Truth]:
    """The checked graph, and its truth."""
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read
    from streamkit.evaluate.observe import check_sources, detectors_of, images_of, known_classes
    from streamkit.evaluate.truth import Truth, TruthOptions

    graph = common.graph_checked(build(read(pipeline, set_=sets, device=device)))
    check_sources(graph)
    mapping = dict(item.partition("=")[::2] for item in truth_options["map_"])
    if wrong := [name for name, ours in mapping.items() if not ours]:
        raise ConfigError(f"--map {wrong[0]}: write THEIRS=OURS, such as --map pedestrian=person")
    labels = tuple(name.strip() for name in (truth_options["labels"] or "").split(",") if name.strip())
    options = TruthOptions(
        truth_options["truth"],
        truth_options["form"],
        labels,
        mapping,
        truth_options["first_frame"],
        truth_options["min_visible"],
        truth_options["only_labeled"],
    )
    classes = known_classes(detectors_of(graph))
    return graph, Truth(options, [source.id for source in graph.sources], *classes, images_of(graph))


def _measure(
    loaded: tuple[Graph, Truth], job: tuple[Path, dict[str, str]], limit: int | None, display: Display
) -> Evaluation:
    from streamkit.evaluate.latency import measure_latency
    from streamkit.evaluate.observe import observe
    from streamkit.evaluate.report import evaluate as measured

    graph, truth = loaded

    def watching(running: Run) -> AbstractContextManager[None]:
        return _watching(running, display)

    seen = observe(graph, truth, watching, limit=limit)
    return measured(seen, truth, str(job[0]), job[1], measure_latency(graph, watching, limit=limit))


def _watching(running: Run, display: Display) -> AbstractContextManager[None]:
    common.handle_signals(running, display)
    return display.watching(running)


def _draw(done: Evaluation, path: Path, display: Display) -> None:
    from streamkit.evaluate.worst import draw_worst

    count = draw_worst(done, path, lambda running: _watching(running, display))
    text = f"{path}: the {count} worst frames" if count else f"no frame has an error: {path} is not written"
    display.log(text)
