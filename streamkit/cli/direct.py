# SPDX-License-Identifier: Apache-2.0
"""The commands without a YAML: `detect`, `track`, `count` and `blur` write one, print it and run it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli import common
from streamkit.core.errors import ConfigError, Problem, SourceError

if TYPE_CHECKING:
    from streamkit.cli.progress import Display
    from streamkit.config.plan import Graph
    from streamkit.runtime.observe.telemetry import Telemetry
    from streamkit.runtime.preview.gallery import Gallery
    from streamkit.runtime.run import Run
    from streamkit.serve.pipeline_file import PipelineFile

MIN_SCORE = 0.35
"""Of the default network: below, it mostly finds what is not there. Other networks have a threshold of their own."""
_PIPELINE = Path("pipeline.yaml")
"""What the printed YAML is called; there need not be such a file."""


@dataclass(frozen=True, slots=True)
class DirectOptions:
    """The options that these commands share.

    Attributes:
        sources: files, folders, patterns, URLs, or numbers of webcams.
        model: a card, an ONNX file, or `auto`.
        labels: the classes that are kept, separated by commas; empty for all.
        min_score: the lowest score of an object; None for the network's own.
        out: the video; None for none.
        jsonl: the records; None for none.
        show: show the pipeline on a page.
        port: of that page; 0 selects a free one.
        device: see the YAML's `device`.
        limit: frames of each source; None for all.
        report: a file for the report of the run; None for none.
        dry_run: only print the YAML.
    """

    sources: tuple[str, ...]
    model: str
    labels: str
    min_score: float | None
    out: str | None
    jsonl: str | None
    show: bool
    port: int
    device: str | None
    limit: int | None
    report: Path | None
    dry_run: bool

    @property
    def label_list(self) -> list[str]:
        """The classes that are kept."""
        return [label.strip() for label in self.labels.split(",") if label.strip()]


_OPTIONS = (
    click.argument("sources", nargs=-1, required=True, metavar="SOURCE..."),
    click.option("--model", default="auto", show_default=True, help="a model card, or an ONNX file"),
    click.option("--labels", default="", metavar="LABEL,...", help="find only these classes, such as person,car"),
    click.option(
        "--min-score",
        type=click.FloatRange(0, 1),
        help=f"lowest score of an object [default: the network's own; {MIN_SCORE} with the model auto]",
    ),
    click.option("--out", help="the video; a folder, or a path with {source}, for several sources"),
    click.option("--jsonl", help="the records, one line a frame; - is standard output"),
    click.option("--show", is_flag=True, help="show it on a web page of this machine, until Ctrl-C"),
    click.option(
        "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="of --show; 0 selects a free one"
    ),
    common.DEVICE,
    click.option("--limit", type=click.IntRange(min=1), help="stop each source after this many frames"),
    common.REPORT,
    click.option("--dry-run", is_flag=True, help="print the YAML, and do not run it"),
    common.log_options,
)


def _direct_options(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_direct_options
def detect(**values: Any) -> int:
    """Find objects in files, folders, cameras or webcams.

    SOURCE is a file, a folder, a pattern, an address such as rtsp://10.0.0.7/live, or the number of a webcam. Without
    --show, --out and --jsonl, the videos with boxes and the records go to out/. The command prints its YAML.
    """
    return _run(DirectOptions(**values), "detect", {}, {})


@click.command()
@_direct_options
def track(**values: Any) -> int:
    """Find objects, and number each from frame to frame.

    See `streamkit detect --help` for SOURCE and the outputs.
    """
    return _run(DirectOptions(**values), "track", {"track": {}}, {"color": "track"})


@click.command()
@click.option("--line", "lines", multiple=True, required=True, metavar="X1,Y1,X2,Y2", help="in pixels; repeatable")
@_direct_options
def count(lines: tuple[str, ...], **values: Any) -> int:
    """Count the objects that cross a line.

    Objects that go from left to right, seen along the line, go in. See `streamkit detect --help` for SOURCE and the
    outputs.
    """
    stages: dict[str, Any] = {"track": {}}
    for number, text in enumerate(lines, 1):
        id_ = "line" if len(lines) == 1 else f"line_{number}"
        stages[id_] = {"stage": "line_counter", "line": _line(text)}
    return _run(DirectOptions(**values), "count", stages, {"color": "track"})


@click.command()
@_direct_options
def blur(**values: Any) -> int:
    """Make people, or the objects of --labels, unrecognizable in a video.

    See `streamkit detect --help` for SOURCE and the outputs. What the network does not find is not blurred: look at the
    video before you publish it; a lower --min-score finds more.
    """
    options = DirectOptions(**{**values, "labels": values["labels"] or "person"})
    return _run(options, "blur", {}, {"blur": options.label_list, "only": []})


def _line(text: str) -> list[list[float]]:
    """Read `0,240,640,240`."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 4:
        raise click.UsageError(f"--line {text}: write x and y of both ends in pixels, such as --line 0,240,640,240")
    x1, y1, x2, y2 = (int(number) if number.is_integer() else number for number in numbers)
    return [[x1, y1], [x2, y2]]


# ---------------------------------------------------------------------------------------------------------- the YAML


def yaml_of(options: DirectOptions, command: str, stages: dict[str, Any], draw: dict[str, Any]) -> str:
    """Return the YAML of a command.

    Args:
        options: the shared options.
        command: its name.
        stages: the stages below the detector, by id.
        draw: the options of `draw`.
    """
    from streamkit.cli.pipeline_text import pipeline_text

    detector: dict[str, Any] = {"model": options.model}
    if options.min_score is not None:
        detector["min_score"] = options.min_score
    elif options.model == "auto" and command != "blur":
        detector["min_score"] = MIN_SCORE
    if options.label_list:
        detector["labels"] = options.label_list
    out = options.out
    jsonl = options.jsonl
    if out is None and jsonl is None and not options.show:
        out = f"out{os.sep}"
        jsonl = out
    all_stages = {_detector(options.model): detector, **stages}
    if out is not None:
        all_stages |= {"draw": draw, "video": {"path": _video_path(out)}}
    elif draw.get("blur"):
        all_stages["draw"] = draw
    if jsonl is not None:
        all_stages["jsonl"] = {"path": _path(jsonl, ".jsonl")}
    about = f"streamkit {command}: save this as pipeline.yaml, and run it with: streamkit run pipeline.yaml"
    return pipeline_text(about, options.sources, all_stages)


def _detector(model: str) -> str:
    """Return the stage that finds objects with a network: that of its task. Raises ConfigError."""
    from streamkit.models.card import AUTO
    from streamkit.models.derive import open_model

    task = "detect" if model == AUTO else open_model(model).task  # nothing is downloaded yet
    return task if task in ("segment", "pose") else "detect"


def _video_path(out: str) -> str:
    """Return the path of the video. Raises ConfigError if it names neither a video nor a folder."""
    from streamkit.media.mux import FORMATS

    path = _path(out, ".mp4")
    if Path(path).suffix.lower() in FORMATS:
        return path
    device = "this is a device, not a file; " if os.path.exists(out) and not os.path.isfile(out) else ""
    fix = f"name a file that ends in {' or '.join(FORMATS)}, or a folder with {os.sep} at its end, such as out{os.sep}"
    raise ConfigError(f"--out {out}: {device}{fix}")


def _path(out: str, suffix: str) -> str:
    """Return the path of an output: in a folder, a file for each source."""
    is_folder = out.endswith(os.sep) or Path(out).is_dir()
    return str(Path(out, f"{{source}}{suffix}")) if is_folder else out


# ---------------------------------------------------------------------------------------------------------- the run


def _run(options: DirectOptions, command: str, stages: dict[str, Any], draw: dict[str, Any]) -> int:
    """Print the YAML of a command, and run it or show it."""
    from streamkit.cli.progress import open_display
    from streamkit.cli.run import run_and_report
    from streamkit.io.outputs import ReportFile
    from streamkit.runtime.observe import telemetry
    from streamkit.runtime.prepare import prepare
    from streamkit.runtime.run import RunConfig

    check_sources(options.sources)
    text = yaml_of(options, command, stages, draw)
    if options.dry_run:
        click.echo(text, nl=False)
        return 0
    if options.show:
        if options.report is not None:
            raise click.UsageError("--report describes a run that ends, and --show runs until Ctrl-C; omit one of them")
        from streamkit.serve.server import check_packages

        check_packages()
    display = open_display()
    graph = _graph(text, options.device)
    click.echo(text, nl=False, err=options.jsonl == "-")
    sys.stdout.flush()
    exported = telemetry.open_telemetry()
    if options.show:
        return _show(graph, options, command, exported, display)
    common.keep_stdout()
    write_report = None if options.report is None else ReportFile(options.report)
    running = prepare(graph, _PIPELINE, {}, RunConfig(limit=options.limit))
    return run_and_report(running, display, exported, write_report=write_report)


def check_sources(addresses: Sequence[str]) -> None:
    """Check that files exist and webcams can be opened, before a network is downloaded. Raises ConfigError."""
    from streamkit.cli.pipeline_text import sources_of
    from streamkit.media.demux import Demuxer
    from streamkit.media.source_resolver import missing_reason
    from streamkit.media.uris import is_device

    problems = []
    for address in sources_of(addresses).values():
        if reason := missing_reason(address):
            problems.append(reason)
        elif is_device(address):
            try:
                Demuxer(address).close()
            except SourceError as error:
                problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))


def _graph(text: str, device: str | None) -> Graph:
    """Read and check a YAML; nothing is written.

    Raises:
        ConfigError: with every problem. They have no place, since there is no file.
    """
    from streamkit.api.arguments import checked_graph
    from streamkit.config.checks.first_frames import open_files, shapes_outside
    from streamkit.config.pipeline_config import read

    try:
        graph = checked_graph(read(_PIPELINE, text=text, device=device))
        before = len(graph.config.warnings)
        sizes = open_files(graph)
        problems = shapes_outside(graph, sizes)
        if len(graph.sources) == 1:  # of several files, those that can be read are processed
            problems += graph.config.warnings[before:]
        problems += _overwritten(graph)
        if problems:
            raise ConfigError(problems)
    except ConfigError as error:
        texts = [problem.text if problem.file == str(_PIPELINE) else str(problem) for problem in error.problems]
        raise ConfigError("\n".join(texts)) from None
    return graph


def _overwritten(graph: Graph) -> list[Problem]:
    """Return a problem for each source that an output would overwrite."""
    from streamkit.io.outputs import fill_path

    problems = []
    for source in graph.sources:
        uri = str(source.options.get("uri", ""))
        for path in graph.output_paths:
            output = fill_path(path, source.id)
            if os.path.exists(output) and os.path.exists(uri) and os.path.samefile(output, uri):
                text = f"{output} is the source {source.id} itself; name another file with --out"
                problems.append(Problem(str(_PIPELINE), 0, 0, text))
    return problems


def _show(graph: Graph, options: DirectOptions, command: str, exported: Telemetry | None, display: Display) -> int:
    """Run a pipeline with the page of `serve` on loopback, until Ctrl-C."""
    from streamkit.runtime.preview.gallery import Gallery
    from streamkit.runtime.run import RunConfig
    from streamkit.serve.prepare import with_preview

    config = RunConfig(limit=options.limit, keep_running=True, realtime=True)
    gallery = Gallery()
    running = with_preview(graph, _PIPELINE, {}, config, gallery)
    return run_page(running, gallery, options.port, exported, display, f"showing {command}, until Ctrl-C,")


def run_page(
    running: Run,
    gallery: Gallery,
    port: int,
    exported: Telemetry | None,
    display: Display,
    title: str,
    *,
    file: PipelineFile | None = None,
    view: str = "",
) -> int:
    """Run a pipeline with the page of `serve` on loopback, opened in a browser if there is one; return the exit code.

    Args:
        running: the pipeline.
        gallery: of its images.
        port: of the page; 0 selects a free one.
        exported: what `open_telemetry` has returned.
        display: shows the run.
        title: what is shown, for the first message.
        file: a YAML that the page edits.
        view: what the page shows first; empty for its overview.
    """
    from streamkit.cli.serve import ServerOptions, run_server
    from streamkit.serve.prepare import engine_of, open_store
    from streamkit.serve.token import Token
    from streamkit.serve.token_store import KnownToken

    with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
        server = ServerOptions(
            host="127.0.0.1",
            port=port,
            token=None,
            tokens=None,
            access=None,
            allowed_hosts=(),
            max_connections=256,
            data=Path(folder),
            keep_events="30d",
            keep_size="2GB",
            public=False,
            push_services=(),
            metrics_port=None,
            allow_files=False,
        )
        store = open_store(server.data, server.keep_events, server.keep_size)
        engine = engine_of(running, gallery, store, allow_files=False, file=file)
        tokens = (Token(None), list[KnownToken]())
        return run_server(engine, server, tokens, exported, display, title, on_address=common.open_browser, view=view)
