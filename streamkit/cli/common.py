# SPDX-License-Identifier: Apache-2.0
"""What subcommands share: options, readers, signals and exit codes."""

from __future__ import annotations

import logging
import os
import select
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from streamkit.core.errors import ConfigError, DeviceError, MissingPackage, Problem, StreamkitError
from streamkit.core.logs import (
    FORMAT_VARIABLE,
    LEVEL_VARIABLE,
    command_record,
    json_line,
    logs_json,
    parse_levels,
    set_levels,
    text_lines,
)
from streamkit.core.text import printable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streamkit.config.plan import Config, Graph
    from streamkit.core.stage import Registry
    from streamkit.runtime.run import Run, Stoppable

logger = logging.getLogger(__name__)


class MessageLog(Protocol):
    """Shows messages to the user, as `streamkit.cli.progress.Display` does."""

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Show a message."""


FILE = click.argument("pipeline", type=click.Path(path_type=Path))
SET = click.option("--set", "set_", multiple=True, metavar="NAME=VALUE", help="replace a value of the pipeline")
DEVICE = click.option("--device", help="replace the YAML's device: auto, cpu, cuda, cuda:N, or several: cuda:0,cuda:1")
PLUGINS = click.option("--plugins", type=click.Path(path_type=Path), multiple=True, help="a plugin: a file or folder")
REPORT = click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="write a JSON report of the run"
)


def _log_format(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value:
        os.environ[FORMAT_VARIABLE] = value
    if value == "json":
        from streamkit.runtime.execution.future import on_uncaught

        logging.captureWarnings(True)
        on_uncaught(lambda error: show_record(command_record("uncaught exception", logging.CRITICAL, error)))


def _log_level(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> None:
    try:
        set_levels(parse_levels(",".join(values)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if values:
        os.environ[LEVEL_VARIABLE] = ",".join(values)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--log-format` and `--log-level` to a command. They set variables that worker processes inherit."""
    shape = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        envvar=FORMAT_VARIABLE,
        is_eager=True,
        expose_value=False,
        callback=_log_format,
        help=f"messages as text, or as lines of JSON; or ${FORMAT_VARIABLE}",
    )
    level = click.option(
        "--log-level",
        multiple=True,
        envvar=LEVEL_VARIABLE,
        is_eager=True,
        expose_value=False,
        callback=_log_level,
        metavar="[LOGGER=]LEVEL",
        help=f"debug, info, warning, error or critical, such as warning,streamkit.emit=debug; or ${LEVEL_VARIABLE}",
    )
    return shape(level(command))


def show_record(record: logging.LogRecord) -> None:
    """Print a message on stderr, in the chosen format."""
    click.echo(json_line(record) if logs_json() else text_lines(record), err=True)


def show_error(text: str) -> None:
    """Print an error that ends a command."""
    if logs_json():
        show_record(command_record(text, logging.ERROR))
    else:
        echo(text, err=True)


def echo(text: str, *, err: bool = False) -> None:
    """Print text; control characters, which names and labels from files may contain, are shown as escapes."""
    click.echo(printable(text), err=err)


def read(pipeline: Path, set_: tuple[str, ...], device: str | None, *, may_be_empty: bool = False) -> Config:
    """The configuration of a command's arguments."""
    from streamkit.config.pipeline_config import read as read_file

    return read_file(pipeline, set_=pairs(set_), device=device, may_be_empty=may_be_empty)


def graph_checked(graph: Graph) -> Graph:
    """The graph, after its networks are checked and its warnings are logged. Raises ConfigError."""
    from streamkit.config.checks.stages import check_networks

    check_networks(graph)
    for warning in graph.config.warnings:
        logger.warning(f"{warning} (warning)")
    return graph


def checked(config: Config, *, strict: bool, **options: Any) -> tuple[Graph, str]:
    """Check a configuration for the command `check`, and print its warnings.

    Args:
        config: the configuration.
        strict: whether a warning is an error.
        options: those of `streamkit.cli.check.check`.

    Returns:
        The graph, and the number of warnings as text, such as `, 1 warning`; empty if there are none.

    Raises:
        ConfigError: with every problem; if `strict`, with every warning as well.
    """
    from streamkit.cli.check import check

    problems: list[Problem] = []
    graph = None
    try:
        graph = check(config, **options)
    except ConfigError as error:
        problems += error.problems
    warnings = sorted(set(config.warnings))
    if strict:
        problems += warnings
    else:
        for warning in warnings:
            echo(f"{warning} (warning)", err=True)
    if problems or graph is None:
        raise ConfigError(problems)
    return graph, f", {count_of(len(warnings), 'warning')}" if warnings else ""


def count_of(count: int, word: str) -> str:
    """A number with its noun: `1 source`, `2 sources`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def pairs(set_: tuple[str, ...]) -> dict[str, str]:
    """The values of `--set`, by name."""
    values: dict[str, str] = {}
    malformed: list[Problem] = []
    for option in set_:
        name, equals, value = option.partition("=")
        if equals:
            values[name] = value
        else:
            text = f"{option}: write NAME=VALUE, such as --set stages.detect.min_score=0.5"
            malformed.append(Problem("--set", 0, 0, text))
    if malformed:
        raise ConfigError(malformed)
    return values


def registry(plugins: tuple[Path, ...]) -> Registry:
    """The stages of the registry and of these files and folders; of `plugins/` here if none is named."""
    from streamkit.config.plugins import load_plugins
    from streamkit.core.stage import default_registry

    stages = default_registry()
    for path in plugins or ([Path("plugins")] if Path("plugins").is_dir() else []):
        load_plugins(path, stages)
    return stages


def keep_stdout() -> None:
    """Reserve standard output for records: what libraries print there, such as the decoder, goes to stderr."""
    sys.stdout.flush()
    out = sys.stdout
    # open for good, as the stdout that it replaces
    records = open(os.dup(1), "w", encoding=out.encoding, errors=out.errors, closefd=False)  # noqa: SIM115
    os.dup2(2, 1)
    sys.stdout = records


_STOPPING = "stopping: decoded frames are processed and every file is closed; a second signal stops at once"


def handle_signals(running: Stoppable, display: MessageLog, text: str = _STOPPING) -> None:
    """Drain and close on the first Ctrl-C, SIGTERM or SIGHUP, and show `text`; stop at once on the second.

    A SIGHUP that is ignored, as by `nohup`, stays ignored.
    """
    from streamkit.io.outputs import discard_all
    from streamkit.runtime.multiprocess.children import STOP_SIGNALS

    def on_signal(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            _leave_closed_terminal()
        if running.stopping:
            running.stop()  # ends its processes, if it has any
            discard_all()
            os._exit(130)
        running.stop()  # before the message: a signal that arrives meanwhile must count as the second
        display.log(text)

    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, on_signal)


def _leave_closed_terminal() -> None:
    """Discard what is written to a terminal that is gone, where each write would raise an error."""
    for descriptor in {1, 2, sys.stdout.fileno()}:
        hung_up = select.poll()
        hung_up.register(descriptor, 0)
        if stat.S_ISCHR(os.fstat(descriptor).st_mode) and hung_up.poll(0):
            with open(os.devnull, "wb") as discard:
                os.dup2(discard.fileno(), descriptor)


def run_to_end(running: Run, display: MessageLog) -> int:
    """Run, show the error that ends the run, and return the exit code."""
    try:
        return running.run()
    except StreamkitError as error:
        display.log(str(error), logging.ERROR)
        return exit_code(error)


def metrics_of(running: Run) -> CollectorRegistry:
    """A Prometheus registry with the metrics of a run."""
    from streamkit.runtime.observe.metrics import registry

    return registry(running)


def exit_past_threads(running: Run, code: int) -> None:
    """Exit at once if threads of a run hang: they would delay or crash the end of the process."""
    from streamkit.io.outputs import discard_all

    if running.hung_threads:
        discard_all()
        sys.stdout.flush()
        os._exit(code)


def exit_code(error: StreamkitError) -> int:
    """The exit code of a run that ends with this error."""
    return 2 if isinstance(error, (ConfigError, DeviceError, MissingPackage)) else 1


def open_browser(address: str) -> None:
    """Open a page if a browser with windows may start: else Python's webbrowser would open one in the terminal."""
    import webbrowser

    if sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & os.environ.keys():
        webbrowser.open(address)
