# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit serve`: runs a pipeline with an HTTP API, metrics and a web page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streamkit.cli import common
from streamkit.core.environment import variable
from streamkit.core.errors import ConfigError

_TOKEN = "STREAMKIT_TOKEN"


@click.command()
@common.FILE
@common.SET
@common.DEVICE
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on; 0.0.0.0 for all networks")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 selects a free port")
@click.option("--token", help=f"the admin's token; or ${_TOKEN}; generated if neither is set")
@click.option("--tokens", type=click.Path(path_type=Path), metavar="FILE",
              help="YAML with further tokens and their roles: viewer, operator or admin")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="also answer for this host name; IP addresses and localhost are allowed; repeatable")  # fmt: skip
@click.option("--max-connections", type=click.IntRange(min=8), default=256, show_default=True,
              help="simultaneous connections; at most a quarter of the open files allowed (ulimit -n)")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=Path("out/serve"), show_default=True,
              help="folder for events, their images and charts; kept over restarts; one for each server")  # fmt: skip
@click.option("--keep-events", default="30d", show_default=True, help="how long events are kept")
@click.option("--keep-size", default="2GB", show_default=True,
              help="maximum size of the events; the oldest images are removed first")  # fmt: skip
@click.option(
    "--allow-files", is_flag=True, help="let added sources read this machine's files, and edits change plugins"
)
@common.log_options
def serve(
    pipeline: Path, set_: tuple[str, ...], device: str | None, host: str, port: int, token: str | None,
    tokens: Path | None, data: Path, keep_events: str, keep_size: str, allowed_hosts: tuple[str, ...],
    max_connections: int, allow_files: bool,
) -> int:  # fmt: skip
    """Run a pipeline with an HTTP API, metrics and a web page."""
    from streamkit.cli.progress import open_display
    from streamkit.config.checks.stages import check_networks
    from streamkit.config.graph import build
    from streamkit.serve.server import address, check_packages, listen, serving

    check_packages()
    from streamkit.runtime.observe import telemetry
    from streamkit.serve.app import create_app
    from streamkit.serve.connections import Limits, allowed_connections
    from streamkit.serve.metrics import registry
    from streamkit.serve.pipeline_file import PipelineFile
    from streamkit.serve.sampler import PipelineSampler
    from streamkit.serve.token import Token
    from streamkit.serve.token_store import read_tokens

    display = open_display()
    exported = telemetry.open_telemetry()
    try:
        known = Token(token or variable(_TOKEN) or None)
    except ValueError as error:
        raise ConfigError(f"--token or ${_TOKEN}: {error}; omit it to generate one") from None
    others = read_tokens(tokens) if tokens is not None else []

    def load() -> Any:
        display.once.forget()  # an edit may cause the same messages again
        graph = build(common.read(pipeline, set_, device, may_be_empty=True))
        check_networks(graph)
        return graph

    store = open_store(data, keep_events, keep_size)
    running, gallery = prepare(load, pipeline, common.pairs(set_))
    listening = listen(host, port)
    common.keep_stdout()
    common.handle_signals(running, display)
    file = PipelineFile(
        pipeline, checker(pipeline, set_, device), overridden=common.pairs(set_), allow_plugins=allow_files
    )
    engine = engine_of(running, gallery, store, allow_files=allow_files, file=file)
    shown = address(host, listening)
    display.log(f"serving {pipeline} at {shown}" + (f"#token={known.text}" if known.generated else ""))
    limits = Limits(allowed_connections(max_connections))
    if limits.connections < max_connections:
        display.log(f"at most {limits.connections} connections: a quarter of the open files allowed (ulimit -n)")
    app = create_app(
        engine, known, data=data, tokens=others, allowed_hosts=[host, *allowed_hosts], viewers=limits.viewers
    )
    with (
        telemetry.exporting(exported, lambda: registry(engine)),
        engine.observing(),
        store.writing(PipelineSampler(engine)),
        serving(app, listening, limits, refused=engine.refused),
    ):
        code = common.run_to_end(running, display)
    display.summary(running.report(code))
    common.exit_past_threads(running, code)
    return code


def prepare(load: Callable[[], Any], path: Path, set_: dict[str, str]) -> tuple[Any, Any]:
    """A pipeline that follows its YAML, keeps running without sources and makes images for the page; and their gallery.

    Args:
        load: reads and checks the pipeline, and returns its graph.
        path: its YAML.
        set_: values that override the YAML.

    Raises:
        ConfigError: the YAML is invalid, or a stage cannot run on several devices.
    """
    from streamkit.runtime.multiprocess.fleet import prepare as prepare_run
    from streamkit.runtime.preview.gallery import Gallery
    from streamkit.runtime.preview.stage import follow_sinks
    from streamkit.runtime.reload import watching

    gallery = Gallery()

    def make(graph: Any) -> Any:
        running = prepare_run(graph, path, set_, keep_running=True, realtime=True, gallery=gallery)
        follow_sinks(running, gallery)
        running.alarms.listen(lambda time_s, event: gallery.add_events(time_s, [event], None))
        return running

    return watching(path, load, None, set_, make), gallery


def open_store(folder: Path, keep_events: str, keep_size: str) -> Any:
    """The store of events in a data folder.

    Args:
        folder: the data folder.
        keep_events: how long events are kept, such as `30d`.
        keep_size: maximum size, such as `2GB`.

    Raises:
        ConfigError: a value has another form.
        OutputError: the folder cannot be written, or another server uses it.
    """
    from streamkit.core.units import seconds, size_bytes
    from streamkit.serve.store.serve_store import ServeStore

    limits = []
    for option, read, text in (("--keep-events", seconds, keep_events), ("--keep-size", size_bytes, keep_size)):
        try:
            limits.append(read(text))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}") from None
    return ServeStore(folder, limits[0], int(limits[1]))


def engine_of(running: Any, gallery: Any, store: Any, *, allow_files: bool, file: Any = None) -> Any:
    """The pipeline behind the API; the store takes the gallery's events, and knows the stages that write files."""
    from streamkit.serve.engine import ServeEngine

    store.follow(gallery)
    return ServeEngine(running, gallery, store, allow_files=allow_files, file=file)


def checker(path: Path, set_: tuple[str, ...], device: str | None) -> Callable[[str], tuple[list[Any], list[Any]]]:
    """A function that checks a text in place of the YAML as `streamkit check` does; returns problems and warnings.

    Args:
        path: the YAML.
        set_: values that override the YAML.
        device: the device that overrides the YAML's.
    """
    from streamkit.cli.check import check
    from streamkit.config.pipeline_config import read
    from streamkit.core.errors import Problem, StreamkitError
    from streamkit.runtime.execution.device import choose
    from streamkit.runtime.multiprocess.partition import assign_sources

    def checked(text: str) -> tuple[list[Any], list[Any]]:
        try:
            config = read(path, text=text, set_=common.pairs(set_), device=device, may_be_empty=True)
            graph = check(config)
            for name, _ in assign_sources(graph, keep_running=True):
                choose(name)
        except ConfigError as error:
            return error.problems, []
        except StreamkitError as error:
            return [Problem(str(path), 0, 0, str(error))], []
        return [], config.warnings

    return checked
