# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit zones`: the page's editor of areas and lines, over a source, for a YAML that does not run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli import common
from streamkit.core.errors import ConfigError

if TYPE_CHECKING:
    from streamkit.config.plan import Config, Graph, SourceConfig, StageConfig

_STAGES: dict[str, dict[str, Any]] = {
    "detect": {"model": "auto"},
    "track": {},
    "area": {"stage": "zone", "polygon": {"area": [[0.3, 0.3], [0.7, 0.3], [0.7, 0.7], [0.3, 0.7]]}, "units": "share"},
    "crossing": {"stage": "line_counter", "line": {"line": [[0.5, 0.2], [0.5, 0.8]]}, "units": "share"},
    "jsonl": {"path": "out/{source}.jsonl"},
}
"""Of a new pipeline: an area and a line in the middle of the picture, to be moved."""


@click.command()
@click.argument("source")
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False), default=Path("pipeline.yaml"))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="of the page; 0 selects a free one"
)
@common.DEVICE
@common.log_options
def zones(source: str, pipeline: Path, port: int, device: str | None) -> int:
    """Draw areas and lines over the picture of a file or camera, and write them into a YAML.

    SOURCE is the id of a source in PIPELINE, or a file, an address or the number of a webcam. PIPELINE, by default
    pipeline.yaml, is written if it does not exist. The editor is a web page of this machine, until Ctrl-C. The pipeline
    does not run, except for stages that hide something in the picture.
    """
    from streamkit.cli.direct import check_sources, run_page
    from streamkit.cli.progress import open_display
    from streamkit.cli.serve import checker
    from streamkit.io.outputs import AtomicFile, writing
    from streamkit.runtime.observe import telemetry
    from streamkit.serve.pipeline_file import PipelineFile
    from streamkit.serve.prepare import prepare
    from streamkit.serve.server import check_packages

    check_packages()
    display = open_display()
    if not pipeline.exists():
        check_sources([source])
        text = starter_text(pipeline, source)
        graph_of_source(pipeline, source, device, text)  # its network is there before anything is written
        with writing(pipeline):
            AtomicFile(pipeline).write(text.encode())
        display.log(f"{pipeline} is new: it counts in an area and at a line, which the editor shows")

    def load() -> Graph:
        return graph_of_source(pipeline, source, device)

    running, gallery = prepare(load, pipeline, {})
    file = PipelineFile(pipeline, checker(pipeline, (), device))
    if not file.shapes(running.graph.config.registry)[1]:
        raise ConfigError(f"{pipeline} has no stage with areas or lines; add one, such as: area: {{stage: zone, ...}}")
    title = f"editing {pipeline}; run it with: streamkit run {shlex.quote(str(pipeline))}; the editor, until Ctrl-C,"
    return run_page(running, gallery, port, telemetry.open_telemetry(), display, title, file=file, view="zones")


def starter_text(pipeline: Path, source: str) -> str:
    """Return the YAML of a new pipeline."""
    from streamkit.cli.pipeline_text import pipeline_text

    about = f"Count who is in the area and who crosses the line. Run it with: streamkit run {pipeline}"
    return pipeline_text(about, [source], _STAGES)


def graph_of_source(pipeline: Path, source: str, device: str | None, text: str | None = None) -> Graph:
    """Return a graph that shows one source: without stages, except for those that hide, and what they need.

    Args:
        pipeline: a YAML.
        source: the id of one of its sources, or an address.
        device: replaces the YAML's.
        text: the YAML, if it is not written yet.

    Raises:
        ConfigError: the YAML is invalid, or there is no such source.
    """
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    config = read(pipeline, device=device, may_be_empty=True, text=text)
    common.graph_checked(build(config))
    return build(
        replace(
            config,
            sources=[_source_of(config, source)],
            stages=list(_hiding(config.stages)),
            alarms=[],
            tests=[],
            state=None,
            problems=[],
            warnings=[],
        )
    )


def _source_of(config: Config, source: str) -> SourceConfig:
    """Return the source of this id or address, or a new one."""
    from streamkit.cli.direct import check_sources
    from streamkit.cli.pipeline_text import pipeline_text, sources_of
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    ((_, address),) = sources_of([source]).items()
    for known_source in config.sources:
        if source == known_source.id or address == str(known_source.options.get("uri", "")):
            return known_source
    check_sources([source])
    text = pipeline_text("A source alone", [source], {"draw": {}})
    return build(read(Path(config.file), text=text, registry=config.registry)).config.sources[0]


def _hiding(stages: Iterable[StageConfig]) -> Iterable[StageConfig]:
    """Yield the stages that blur or pixelate, and those above them, in their order."""
    by_id = {stage.id: stage for stage in stages}
    wanted = [id_ for id_, stage in by_id.items() if stage.options.get("blur") or stage.options.get("pixelate")]
    shown = set[str]()
    while wanted:
        id_ = wanted.pop()
        if id_ in by_id and id_ not in shown:
            shown.add(id_)
            wanted.extend(by_id[id_].inputs)
    return (stage for id_, stage in by_id.items() if id_ in shown)
