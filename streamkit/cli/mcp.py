# SPDX-License-Identifier: Apache-2.0
"""The command `mcp`: lets coding agents write, check and try pipelines over the Model Context Protocol."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import click

from streamkit.cli.agent_tools import AgentTools
from streamkit.cli.common import echo
from streamkit.core.environment import variable
from streamkit.core.errors import ConfigError, StreamkitError, needs
from streamkit.core.version import __version__

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from streamkit.serve.token import Token

HOST = "127.0.0.1"
_TOKEN = "STREAMKIT_TOKEN"

_INSTRUCTIONS = (
    "streamkit runs video-analytics pipelines, each a YAML with `sources` and `stages`. To write one: list_stages; "
    "explain_stage for each stage you need, list_models for the value of `model`; check_pipeline until `ok` is true; "
    "run_pipeline for some frames; read_records and draw_frame to see whether the results are right."
)


@click.command()
@click.option(
    "--http",
    is_flag=True,
    help=f"serve HTTP on this machine's loopback address, with the token of ${_TOKEN} or a new one; by default, stdio",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8808, show_default=True, help="of --http; 0 selects a free port"
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    show_default="the current folder",
    help="the working folder: agents read no file outside of it",
)
@click.option(
    "--allow-write", is_flag=True, help="let runs write into the working folder and send data to other machines"
)
def mcp(http: bool, port: int, folder: Path, allow_write: bool) -> int:
    """Offer tools to coding agents over the Model Context Protocol (MCP).

    Agents list and explain stages, check a YAML, run it for some frames, read its records and look at its frames.
    Without --allow-write, results go to a temporary folder that is removed at the end.
    """
    os.chdir(folder)
    with tempfile.TemporaryDirectory(prefix="streamkit-mcp-", ignore_cleanup_errors=True) as scratch:
        tools = AgentTools(Path(), Path(scratch), allow_write=allow_write)
        with needs("mcp", "mcp", "streamkit mcp"):
            server = make_server(tools)
        signal.signal(signal.SIGTERM, lambda *_: _end(tools))
        if http:
            _serve_http(server, port)
        else:
            server.run("stdio")
    return 0


def _end(tools: AgentTools) -> None:
    """End the server on SIGTERM, although a thread waits for standard input: with its runs and its temporary folder."""
    tools.kill_runs()
    shutil.rmtree(tools.scratch, ignore_errors=True)
    os._exit(0)


def make_server(tools: AgentTools) -> MCPServer[Any]:
    """Return a server of the tools. Raises ImportError without the package `mcp`."""
    from mcp.server import MCPServer
    from mcp_types import ToolAnnotations

    server: MCPServer[Any] = MCPServer(
        "streamkit",
        instructions=_INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
    )
    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    running = ToolAnnotations(read_only_hint=not tools.allow_write, open_world_hint=tools.allow_write)
    texts: tuple[Callable[..., str], ...] = (tools.list_stages, tools.explain_stage, tools.list_models)
    tables: tuple[Callable[..., dict[str, Any]], ...] = (tools.check_pipeline, tools.read_records)
    for tool in (*texts, *tables):
        server.add_tool(_answering(tool, tools), annotations=reading, structured_output=tool in tables)
    server.add_tool(_answering(tools.run_pipeline, tools), annotations=running)
    server.add_tool(_answering(tools.draw_frame, tools), annotations=running, structured_output=False)
    return server


def _answering(tool: Callable[..., Any], tools: AgentTools) -> Callable[..., Any]:
    """A tool that answers an error with what to do, and bytes as a PNG; no answer has a secret."""
    from mcp.server.mcpserver import Image
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def answer(*args: Any, **arguments: Any) -> Any:
        try:
            content = tool(*args, **arguments)
        except StreamkitError as error:
            raise ToolError(tools.without_secrets(str(error))) from None
        return Image(data=content, format="png") if isinstance(content, bytes) else tools.without_secrets(content)

    answer.__signature__ = _described(inspect.signature(tool, eval_str=True))  # type: ignore[attr-defined]
    return answer


def _described(signature: inspect.Signature) -> inspect.Signature:
    """A signature whose help texts are in the schema of the tool."""
    from pydantic import Field

    parameters = []
    for parameter in signature.parameters.values():
        kind, text = get_args(parameter.annotation)
        described: Any = Annotated[kind, Field(description=text)]
        parameters.append(parameter.replace(annotation=described))
    return signature.replace(parameters=parameters)


def _serve_http(server: MCPServer[Any], port: int) -> None:
    """Serve HTTP until a signal, with a token: every user of the machine reaches its loopback address.

    Requests that name another host are refused, so no web page reaches the server.
    """
    import uvicorn

    from streamkit.serve.server import address, listen

    token = _token()
    app = _WithToken(server.streamable_http_app(host=HOST), token)
    listening = listen(HOST, port)
    shown = token.text if token.generated else f"${_TOKEN}"
    echo(f"serving MCP at {address(HOST, listening)}mcp with the header Authorization: Bearer {shown}", err=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def _token() -> Token:
    from streamkit.serve.token import Token

    try:
        return Token(variable(_TOKEN) or None)
    except ValueError as error:
        raise ConfigError(f"${_TOKEN}: {error}; unset it to generate one") from None


class _WithToken:
    """An ASGI application that refuses requests without the token."""

    def __init__(self, app: Any, token: Token) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        from streamkit.serve.token import bearer

        if scope["type"] == "http" and not self._token.matches(bearer(Headers(scope=scope))[1]):
            text = "send the token that the server prints, as the header Authorization: Bearer TOKEN\n"
            await PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        await self._app(scope, receive, send)
