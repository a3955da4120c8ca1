"""The command `run.py serve`: runs a pipeline with an HTTP API, metrics and a web page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from streamkit.cli import common
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
@click.option("--data", type=click.Path(path_type=Path), default=Path("out/serve"), show_default=True,
              metavar="FOLDER", help="the server's own files: tokens of the page, audit log")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="also answer for this host name; IP addresses and localhost are allowed; repeatable")  # fmt: skip
@click.option("--max-connections", type=click.IntRange(min=8), default=256, show_default=True,
              help="simultaneous connections; at most a quarter of the open files allowed (ulimit -n)")  # fmt: skip
@click.option("--allow-files", is_flag=True, help="let added sources read this machine's files and devices")
def serve(
    pipeline: Path, set_: tuple[str, ...], device: str | None, host: str, port: int, token: str | None,
    tokens: Path | None, data: Path, allowed_hosts: tuple[str, ...], max_connections: int, allow_files: bool,
) -> int:  # fmt: skip
    """Run a pipeline with an HTTP API, metrics and a web page."""
    from streamkit.cli.progress import open_display
    from streamkit.config.checks.stages import check_networks
    from streamkit.config.graph import build
    from streamkit.serve.server import address, check_packages, listen, serving

    check_packages()
    from streamkit.serve.app import create_app
    from streamkit.serve.connections import Limits, allowed_connections
    from streamkit.serve.engine import ServeEngine
    from streamkit.serve.token import Token
    from streamkit.serve.token_store import read_tokens

    display = open_display()
    try:
        known = Token(token or os.environ.get(_TOKEN) or None)
    except ValueError as error:
        raise ConfigError(f"--token or ${_TOKEN}: {error}; omit it to generate one") from None
    others = read_tokens(tokens) if tokens is not None else []
    graph = build(common.read(pipeline, set_, device, may_be_empty=True))
    check_networks(graph)
    running, gallery = prepare(graph, pipeline, common.pairs(set_))
    listening = listen(host, port)
    common.keep_stdout()
    common.handle_signals(running, display)
    engine = ServeEngine(running, gallery, allow_files=allow_files)
    shown = address(host, listening)
    display.log(f"serving {pipeline} at {shown}" + (f"#token={known.text}" if known.generated else ""))
    limits = Limits(allowed_connections(max_connections))
    if limits.connections < max_connections:
        display.log(f"at most {limits.connections} connections: a quarter of the open files allowed (ulimit -n)")
    app = create_app(
        engine, known, data=data, tokens=others, allowed_hosts=[host, *allowed_hosts], viewers=limits.viewers
    )
    with engine.observing(), serving(app, listening, limits, refused=engine.refused):
        code = common.run_to_end(running, display)
    display.summary(running.report(code))
    common.exit_past_threads(running, code)
    return code


def prepare(graph: Any, path: Path, set_: dict[str, str]) -> tuple[Any, Any]:
    """A pipeline that keeps running without sources and makes images for the page; and their gallery.

    Args:
        graph: the pipeline's graph, checked.
        path: its YAML.
        set_: values that override the YAML.

    Raises:
        ConfigError: a stage cannot run on several devices.
    """
    from streamkit.runtime.multiprocess.fleet import prepare as prepare_run
    from streamkit.runtime.preview.gallery import Gallery
    from streamkit.runtime.preview.stage import follow_sinks

    gallery = Gallery()
    running = prepare_run(graph, path, set_, keep_running=True, realtime=True, gallery=gallery)
    follow_sinks(running, gallery)
    running.alarms.listen(lambda time_s, event: gallery.add_events(time_s, [event], None))
    return running, gallery
