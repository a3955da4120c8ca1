"""The group of all subcommands, and the way out of it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from streamkit.cli.batch import batch
from streamkit.cli.bench import bench, capacity
from streamkit.cli.common import echo, exit_code
from streamkit.cli.look import check, doctor, explain, graph, list_, schema, test
from streamkit.cli.models import models
from streamkit.cli.run import run
from streamkit.cli.serve import serve
from streamkit.errors import StreamkitError
from streamkit.messages import did_you_mean


class _Group(click.Group):
    """A group in which `X.yaml` is short for `run X.yaml`."""

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in self.commands and args[0].endswith((".yaml", ".yml")):
            args = ["run", *args]
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            told = f"{error.message.rstrip('.')}{did_you_mean(args[0], self.commands)}"
            if Path(args[0]).is_file():
                told = f"{args[0]} is no pipeline; name a YAML in which it stands under sources, such as pipeline.yaml"
            raise click.UsageError(told, context) from None

    def invoke(self, context: click.Context) -> Any:
        """Run the subcommand; whatever Ctrl-C makes of it is an exit code and no more."""
        try:
            return super().invoke(context)
        except BaseException:
            if not _ctrl_c.came:
                raise
            raise click.exceptions.Exit(130) from None


class _CtrlC:
    """Ends a command that has no handler of its own, so that it tidies up.

    Attributes:
        came: whether it did: a library that is just being imported may make another error of it.
    """

    came = False

    def __call__(self, *_: object) -> None:
        self.came = True
        raise KeyboardInterrupt


_ctrl_c = _CtrlC()


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="streamkit")
def cli() -> None:
    """Video analytics as a YAML. `run.py PIPELINE.yaml` runs it."""


for one in (run, check, graph, test, serve, batch, bench, capacity, list_, explain, schema, models, doctor):
    cli.add_command(one)


def main() -> None:
    """Run the command and exit with its code; 130 after Ctrl-C."""
    before = signal.signal(signal.SIGINT, _ctrl_c)
    try:
        code = _run()
    except KeyboardInterrupt:
        code = 130
    signal.signal(signal.SIGINT, before)
    sys.exit(130 if _ctrl_c.came else code)


def _run() -> int:
    """Run the command; the exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = 2
    except click.Abort:
        code = 130
    except StreamkitError as error:
        echo(str(error), err=True)
        code = exit_code(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.stdout.flush()
    return code if isinstance(code, int) else 0
