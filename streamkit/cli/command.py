# SPDX-License-Identifier: Apache-2.0
"""The group of all subcommands, and the exit codes."""

from __future__ import annotations

import faulthandler
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from streamkit.cli.batch import batch
from streamkit.cli.bench import bench, capacity
from streamkit.cli.cluster import cluster
from streamkit.cli.common import exit_code, show_error, show_record
from streamkit.cli.demo import demo
from streamkit.cli.direct import blur, count, detect, track
from streamkit.cli.docs import docs
from streamkit.cli.eval import evaluate
from streamkit.cli.export import export
from streamkit.cli.init import init
from streamkit.cli.inspect import check, doctor, explain, graph, list_, schema, test
from streamkit.cli.mcp import mcp
from streamkit.cli.models import models
from streamkit.cli.query import query
from streamkit.cli.run import run
from streamkit.cli.serve import serve
from streamkit.cli.zones import zones
from streamkit.core.errors import StreamkitError
from streamkit.core.logs import FORMAT_VARIABLE, inherited_levels, logs_json, messages_to
from streamkit.core.text import did_you_mean, renamed
from streamkit.core.version import __version__


class _CommandGroup(click.Group):
    """A group in which `X.yaml` is short for `run X.yaml`."""

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in self.commands and args[0].endswith((".yaml", ".yml")):
            args = ["run", *args]
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            text = f"{error.message.rstrip('.')}{did_you_mean(args[0], self.commands)}"
            if Path(args[0]).is_file():
                text = f"{args[0]} is not a pipeline; run a YAML that lists it under sources, such as pipeline.yaml"
            raise click.UsageError(text, context) from None

    def invoke(self, context: click.Context) -> Any:
        """Run the subcommand; after Ctrl-C, any error becomes exit code 130."""
        try:
            return super().invoke(context)
        except BaseException:
            if not _ctrl_c.came:
                raise
            raise click.exceptions.Exit(130) from None


class _CtrlC:
    """Ends a command that has no handler of its own, so that it can clean up.

    Attributes:
        came: whether it was called: an import may replace the KeyboardInterrupt by another error.
    """

    came = False

    def __call__(self, *_: object) -> None:
        self.came = True
        raise KeyboardInterrupt


_ctrl_c = _CtrlC()


@click.group(cls=_CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="streamkit")
def cli() -> None:
    """Video analytics as a YAML.

    `streamkit demo` shows what it does, `streamkit detect VIDEO` finds objects in a video of yours, `streamkit init`
    writes a pipeline to start from, and `streamkit PIPELINE.yaml` runs one.
    """


for command in (
    demo,
    detect,
    track,
    count,
    blur,
    zones,
    init,
    run,
    check,
    graph,
    test,
    serve,
    cluster,
    batch,
    query,
    export,
    evaluate,
    bench,
    capacity,
    list_,
    explain,
    schema,
    models,
    doctor,
    docs,
    mcp,
):
    cli.add_command(command)


def main() -> None:
    """Run the command and exit with its code; 130 after Ctrl-C. A crash in native code leaves the stacks on stderr."""
    if not faulthandler.is_enabled():
        faulthandler.enable(2)
    before = signal.signal(signal.SIGINT, _ctrl_c)
    try:
        code = _run()
    except KeyboardInterrupt:
        code = 130
    signal.signal(signal.SIGINT, before)
    sys.exit(130 if _ctrl_c.came else code)


def _run() -> int:
    """Run the command; return the exit code."""
    try:
        with messages_to(show_record, inherited_levels(), libraries=True):
            code = cli.main(standalone_mode=False)
    except click.NoSuchOption as error:
        option_names = [name for parameter in error.ctx.command.params for name in parameter.opts] if error.ctx else []
        hint = renamed(error.option_name, option_names)
        _show_usage(click.UsageError(f"{error.message.rstrip('.')}{hint}", error.ctx) if hint else error)
        code = 2
    except click.ClickException as error:
        _show_usage(error)
        code = 2
    except click.Abort:
        code = 130
    except StreamkitError as error:
        show_error(str(error))
        code = exit_code(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _show_usage(error: click.ClickException) -> None:
    """Show a mistake on the command line: its usage, or one line of JSON."""
    if logs_json() or _asks_for_json(sys.argv):
        os.environ[FORMAT_VARIABLE] = "json"
        show_error(error.format_message())
    else:
        error.show()


def _asks_for_json(words: list[str]) -> bool:
    """Whether a command line that cannot be parsed asks for messages as JSON."""
    return "--log-format=json" in words or ("--log-format", "json") in itertools.pairwise(words)
