"""The command `run.py serve`: runs a pipeline with an HTTP API, metrics and a web page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from streamkit.cli.common import exit_code, handle_signals, keep_stdout, pairs
from streamkit.core.errors import ConfigError, StreamkitError

_TOKEN = "STREAMKIT_TOKEN"


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.option("--set", "set_", multiple=True, metavar="NAME=VALUE", help="replace a value of the YAML")
@click.option("--device", help="replace the YAML's device: auto, cpu, cuda, cuda:N")
@click.option("--host", default="127.0.0.1", show_default=True, help="where to listen; 0.0.0.0 is every network")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one")
@click.option("--token", help=f"needed to change anything and to see pictures; or ${_TOKEN}; made if neither is given")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="answer for this host name as well as for IP addresses and localhost; may be repeated",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=8),
    default=256,
    show_default=True,
    help="connections at once; at most a quarter of the open files allowed (ulimit -n)",
)
@click.option("--allow-files", is_flag=True, help="let sources that are added read this machine's files and devices")
def serve(
    pipeline: Path, set_: tuple[str, ...], device: str | None, host: str, port: int, token: str | None,
    allowed_hosts: tuple[str, ...], max_connections: int, allow_files: bool,
) -> int:  # fmt: skip
    """Run a pipeline with an HTTP API, metrics and a web page."""
    from streamkit.cli.progress import Display
    from streamkit.config.checks.stages import check_networks
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read
    from streamkit.io.outputs import discard_all
    from streamkit.serve.server import address, check_packages, listen, serving

    check_packages()
    from streamkit.serve.app import create_app
    from streamkit.serve.connections import Limits, allowed_connections
    from streamkit.serve.engine import ServeEngine
    from streamkit.serve.token import Token

    display = Display()
    try:
        known = Token(token or os.environ.get(_TOKEN) or None)
    except ValueError as error:
        raise ConfigError(f"--token or ${_TOKEN}: {error}; leave it out and one is made") from None
    graph = build(read(pipeline, set_=pairs(set_), device=device, may_be_empty=True))
    check_networks(graph)
    running, gallery = prepare(graph, display.say)
    listening = listen(host, port)
    keep_stdout()
    handle_signals(running, display)
    engine = ServeEngine(running, gallery, allow_files=allow_files)
    shown = address(host, listening)
    display.say(f"serving {pipeline} at {shown}" + (f"#token={known.text}" if known.made else ""))
    code = 1
    limits = Limits(allowed_connections(max_connections))
    if limits.connections < max_connections:
        display.say(
            f"at most {limits.connections} connections at once: a quarter of the open files allowed (ulimit -n)"
        )
    app = create_app(engine, known, allowed_hosts=[host, *allowed_hosts], viewers=limits.viewers)
    with serving(app, listening, limits, refused=engine.refused, say=display.say):
        try:
            code = running.run()
        except StreamkitError as error:
            code = exit_code(error)
            display.error(str(error))
    display.summary(running.report(code))
    if running.left_behind:  # threads that hang would hold up, or crash, the end of the process
        discard_all()
        os._exit(code)
    return code


def prepare(graph: Any, say: Any) -> tuple[Any, Any]:
    """A pipeline with a preview stage, which keeps running without sources; and the preview's gallery.

    Args:
        graph: the pipeline's graph, checked.
        say: receives messages for the user.

    Raises:
        ConfigError: the pipeline has several devices.
    """
    from streamkit.config.graph import build
    from streamkit.runtime.execution.device import choose
    from streamkit.runtime.pipeline import Pipeline
    from streamkit.serve.gallery import Gallery
    from streamkit.serve.preview import follow_sinks, hidden_elsewhere, tap

    config = graph.config
    if isinstance(config.device, list) and len(config.device) > 1:
        raise ConfigError("serve runs on one device; start one for each, as in --device cuda:0 --port 8001")
    gallery = Gallery()
    if elsewhere := hidden_elsewhere(graph):
        say(f"the page shows another branch than {', '.join(elsewhere)}: what is hidden there is clear on the page")
    config.stages.append(tap(graph, gallery))
    running = Pipeline(build(config), choose(config.device, say), say=say, keep_running=True, realtime=True)
    follow_sinks(running, gallery)
    running.alarms.listen(lambda time_s, event: gallery.tell(time_s, [event], None))
    return running, gallery
