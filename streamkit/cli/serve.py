# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit serve`: runs a pipeline with an HTTP API, metrics and a web page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli import common
from streamkit.core.environment import variable
from streamkit.core.errors import ConfigError
from streamkit.serve.prepare import engine_of, open_store, prepare

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from streamkit.cli.progress import Display
    from streamkit.config.plan import Config, Graph
    from streamkit.runtime.observe.telemetry import Telemetry
    from streamkit.serve.access_file import AccessFile
    from streamkit.serve.engine import ServeEngine
    from streamkit.serve.pipeline_file import Check
    from streamkit.serve.token import Token
    from streamkit.serve.token_store import KnownToken

_TOKEN = "STREAMKIT_TOKEN"


_OPTIONS = (
    click.option(
        "--host", default="127.0.0.1", show_default=True, help="address to listen on; 0.0.0.0 for all networks"
    ),
    click.option(
        "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 selects a free port"
    ),
    click.option("--token", help=f"the admin's token; or ${_TOKEN}; generated if neither is set"),
    click.option(
        "--tokens",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="YAML with further tokens and their roles: viewer, operator or admin",
    ),
    click.option(
        "--access",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="YAML that names a provider of OpenID Connect or a proxy that signs people in, and the rights of groups",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="also answer for this host name; IP addresses and localhost are allowed; repeatable",
    ),
    click.option(
        "--max-connections",
        type=click.IntRange(min=8),
        default=256,
        show_default=True,
        help="simultaneous connections; at most a quarter of the open files allowed (ulimit -n)",
    ),
    click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("out/serve"),
        show_default=True,
        help="folder for events, their images and charts; kept over restarts; one for each server",
    ),
    click.option("--keep-events", default="30d", show_default=True, help="how long events are kept"),
    click.option(
        "--keep-size",
        default="2GB",
        show_default=True,
        help="maximum size of the events; the oldest images are removed first",
    ),
    click.option(
        "--public",
        is_flag=True,
        help="let everybody who reaches the address read states, events and metrics without a token",
    ),
    click.option(
        "--push-service",
        "push_services",
        multiple=True,
        metavar="HOST",
        help="a push service for alerts beyond those of Chrome, Edge, Firefox and Safari; repeatable",
    ),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        help="serve /metrics on this port, too, without a token; 0 selects a free one",
    ),
    click.option(
        "--allow-files", is_flag=True, help="let added sources read this machine's files, and edits change plugins"
    ),
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that serves the API: the fields of `ServerOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of `server_options`."""

    host: str
    port: int
    token: str | None
    tokens: Path | None
    access: Path | None
    allowed_hosts: tuple[str, ...]
    max_connections: int
    data: Path
    keep_events: str
    keep_size: str
    public: bool
    push_services: tuple[str, ...]
    metrics_port: int | None
    allow_files: bool


@click.command()
@common.FILE
@common.SET
@common.DEVICE
@server_options
@common.log_options
def serve(pipeline: Path, set_: tuple[str, ...], device: str | None, **server: Any) -> int:
    """Run a pipeline with an HTTP API, metrics and a web page."""
    from streamkit.runtime.multiprocess.prestart import prestart_workers

    prestart_workers(pipeline, common.pairs(set_), device, realtime=True)
    from streamkit.cli.progress import open_display
    from streamkit.config.graph import build
    from streamkit.serve.server import check_packages

    check_packages()
    from streamkit.runtime.observe import telemetry
    from streamkit.serve.pipeline_file import PipelineFile

    chosen = ServerOptions(**server)
    display = open_display()
    exported = telemetry.open_telemetry()

    def load() -> Graph:
        display.once.forget()  # an edit may cause the same messages again
        return common.graph_checked(build(common.read(pipeline, set_, device, may_be_empty=True)))

    tokens = read_credentials(chosen)
    store = open_store(chosen.data, chosen.keep_events, chosen.keep_size)
    running, gallery = prepare(load, pipeline, common.pairs(set_))
    file = PipelineFile(
        pipeline, checker(pipeline, set_, device), overridden=common.pairs(set_), allow_plugins=chosen.allow_files
    )
    engine = engine_of(running, gallery, store, allow_files=chosen.allow_files, file=file)
    return run_server(engine, chosen, tokens, exported, display, f"serving {pipeline}")


def read_credentials(options: ServerOptions) -> tuple[Token, list[KnownToken]]:
    """The admin's token, and those of `--tokens`. Raises ConfigError."""
    from streamkit.serve.token import Token
    from streamkit.serve.token_store import read_tokens

    try:
        admin_token = Token(options.token or variable(_TOKEN) or None)
    except ValueError as error:
        raise ConfigError(f"--token or ${_TOKEN}: {error}; omit it to generate one") from None
    return admin_token, read_tokens(options.tokens) if options.tokens is not None else []


def read_external(options: ServerOptions) -> tuple[AccessFile | None, str]:
    """The file of `--access`, and the secret of this server at a provider. Raises ConfigError."""
    from streamkit.serve.access_file import read_access
    from streamkit.serve.oidc import SECRET

    try:
        secret = variable(SECRET) or ""
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return None if options.access is None else read_access(options.access), secret


_READABLE_BY = {
    "SIGNED_IN": "others reach this address: reading needs a token; --public opens it to everybody",
    "EVERYBODY": "--public: everybody who reaches this address reads states, events and metrics",
}
"""Startup messages about who may read without a sign-in, by the name of `Readers`."""


def run_server(
    engine: ServeEngine,
    options: ServerOptions,
    tokens: tuple[Token, list[KnownToken]],
    exported: Telemetry | None,
    display: Display,
    title: str,
    add_routes: Callable[[FastAPI, APIRouter], None] | None = None,
    on_address: Callable[[str], None] = lambda address: None,
    view: str = "",
) -> int:
    """Run the engine's pipeline and serve its API until it ends; return the exit code.

    Args:
        engine: the pipeline behind the API.
        options: the options of the server.
        tokens: the admin's token, and others.
        exported: what `open_telemetry` has returned.
        display: shows the run.
        title: what is served, for the first message.
        add_routes: see `create_app`.
        on_address: receives the address of the page once it is served.
        view: what the page shows first; empty for its overview.
    """
    from streamkit.runtime.observe import telemetry
    from streamkit.serve.app import create_app
    from streamkit.serve.connections import Limits, allowed_connections
    from streamkit.serve.guard import MetricsOnly, readers_of
    from streamkit.serve.metrics import registry
    from streamkit.serve.sampler import PipelineSampler
    from streamkit.serve.server import address, listen, serving

    running = engine.running
    store = engine.store
    admin, others = tokens
    external, oidc_secret = read_external(options)
    listening = listen(options.host, options.port)
    metrics = None if options.metrics_port is None else listen(options.host, options.metrics_port)
    readers = readers_of(listening, public=options.public)
    common.keep_stdout()
    common.handle_signals(running, display)
    shown = address(options.host, listening)
    if admin.generated:
        shown += f"#token={admin.text}" + (f"&view={view}" if view else "")
    display.log(f"{title} at {shown}")
    if (readable := _READABLE_BY.get(readers.name)) is not None:
        display.log(readable)
    if external is None and not view and not (options.data / "people.json").exists():
        display.log("the admin's token signs you in; create people in the view Access of the page")
    if metrics is not None:
        display.log(f"metrics at {address(options.host, metrics)}metrics, without a token")
    limits = Limits(allowed_connections(options.max_connections))
    if limits.connections < options.max_connections:
        display.log(f"at most {limits.connections} connections: a quarter of the open files allowed (ulimit -n)")
    app = create_app(
        engine,
        admin,
        data=options.data,
        tokens=others,
        allowed_hosts=[options.host, *options.allowed_hosts],
        viewers=limits.viewers,
        add_routes=add_routes,
        readers=readers,
        external=external,
        oidc_secret=oidc_secret,
        push_services=options.push_services,
    )
    servers = contextlib.ExitStack()
    if metrics is not None:
        servers.enter_context(serving(MetricsOnly(app), metrics, limits, refused=engine.refused))
    with (
        telemetry.exporting(exported, lambda: registry(engine)),
        engine.observing(),
        store.writing(PipelineSampler(engine)),
        servers,
        serving(app, listening, limits, refused=engine.refused),
    ):
        on_address(shown)
        code = common.run_to_end(running, display)
    display.summary(running.report(code))
    common.exit_past_threads(running, code)
    return code


def checker(path: Path, set_: tuple[str, ...], device: str | None) -> Check:
    """A function that checks a text in place of the YAML as `streamkit check` does; see `pipeline_file.Check`.

    Args:
        path: the YAML.
        set_: values that override the YAML.
        device: the device that overrides the YAML's.
    """
    from streamkit.config.pipeline_config import read
    from streamkit.runtime.execution.device import choose
    from streamkit.runtime.multiprocess.partition import assign_sources

    def check_devices(graph: Graph) -> None:
        for name, _ in assign_sources(graph, keep_running=True):
            choose(name)

    return checker_of(
        path,
        lambda text: read(path, text=text, set_=common.pairs(set_), device=device, may_be_empty=True),
        check_devices,
    )


def checker_of(path: Path, read: Callable[[str], Config], placement: Callable[[Graph], None] | None = None) -> Check:
    """A function that checks a text as `streamkit check` does; see `pipeline_file.Check`.

    Args:
        path: the file, for messages.
        read: reads the text as a pipeline.
        placement: see `check`.
    """
    from streamkit.cli.check import check
    from streamkit.core.errors import Problem, StreamkitError

    def checked(text: str) -> tuple[list[Problem], list[Problem], Graph | None]:
        try:
            config = read(text)
            graph = check(config, placement=placement)
        except ConfigError as error:
            return error.problems, [], None
        except StreamkitError as error:
            return [Problem(str(path), 0, 0, str(error))], [], None
        return [], config.warnings, graph

    return checked
