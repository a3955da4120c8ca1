"""The command: `run.py`, or `streamkit` where it is installed. Each subcommand is a few lines over a module."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from streamkit.cli_batch import batch
from streamkit.cli_bench import bench, capacity
from streamkit.cli_serve import serve
from streamkit.errors import ConfigError, DeviceError, MissingPackage, StreamkitError

_FILE = click.argument("pipeline", type=click.Path(path_type=Path))
_SET = click.option("--set", "set_", multiple=True, metavar="NAME=VALUE", help="replace a value of the YAML")
_DEVICE = click.option("--device", help="replace the YAML's device: auto, cpu, cuda, cuda:N, or several: cuda:0,cuda:1")


class _Group(click.Group):
    """A group in which `X.yaml` is short for `run X.yaml`."""

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in self.commands and args[0].endswith((".yaml", ".yml")):
            args = ["run", *args]
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            from streamkit.yamlfile import did_you_mean

            told = f"{error.message.rstrip('.')}{did_you_mean(args[0], self.commands)}"
            if Path(args[0]).is_file():
                told = f"{args[0]} is no pipeline; name a YAML in which it stands under sources, such as pipeline.yaml"
            raise click.UsageError(told, context) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="streamkit")
def cli() -> None:
    """Video analytics as a YAML. `run.py PIPELINE.yaml` runs it."""


@cli.command()
@_FILE
@_SET
@_DEVICE
@click.option("--limit", type=click.IntRange(min=1), help="frames per source at most")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="write what the run did as JSON")
@click.option("--profile", type=click.Path(path_type=Path, dir_okay=False), help="write a timeline; Perfetto opens it")
@click.option("--watch", is_flag=True, help="follow edits of the YAML, and go on when no source is left")
def run(
    pipeline: Path, set_: tuple[str, ...], device: str | None, limit: int | None, report: Path | None,
    profile: Path | None, watch: bool,
) -> int:  # fmt: skip
    """Run a pipeline."""
    from streamkit.check import check_networks
    from streamkit.graph import build
    from streamkit.outputs import discard_all, report_file
    from streamkit.progress import Display
    from streamkit.runtime.fleet import prepare
    from streamkit.runtime.reload import watching
    from streamkit.runtime.trace import Trace

    display = Display()

    def load() -> Any:
        graph = build(_read(pipeline, set_, device, may_be_empty=watch))
        check_networks(graph)
        for warning in graph.config.warnings:
            display.say(f"{warning} (warning)")
        return graph

    if watch and profile:
        raise ConfigError("--profile shows one run from its beginning to its end; leave --watch out")
    graph = None if watch else load()
    write_report = None if report is None else report_file(report)
    trace = None if profile is None else Trace(profile)
    keep_stdout()
    running: Any = (
        watching(pipeline, load, limit, display.say)
        if graph is None
        else prepare(graph, pipeline, pairs(set_), limit=limit, say=display.say, trace=trace)
    )
    handle_signals(running, display)
    code = 1
    with display.watching(running):
        try:
            code = running.run()
        except StreamkitError as error:
            code = exit_code(error)
            display.error(str(error))
    found = running.report(code)
    display.summary(found)
    for text in trace.finish() if trace is not None else []:
        display.say(text)
    if write_report is not None:
        write_report(json.dumps(found, indent=2) + "\n")
    if getattr(running, "left_behind", None):  # threads that hang would hold up, or crash, the end of the process
        discard_all()
        sys.stdout.flush()
        os._exit(code)
    return code


@cli.command()
@_FILE
@_SET
@_DEVICE
def check(pipeline: Path, set_: tuple[str, ...], device: str | None) -> int:
    """Check a pipeline without running it: every problem with its line and column."""
    from streamkit.check import check as checked
    from streamkit.runtime.sharing import share_out
    from streamkit.stage import BatchStage

    config = _read(pipeline, set_, device)
    graph = checked(config)
    share_out(graph)
    for warning in config.warnings:
        click.echo(f"{warning} (warning)", err=True)
    on_device = sum(issubclass(node.type, BatchStage) for node in graph.nodes.values())
    sources = f"{len(graph.sources)} source{'s' * (len(graph.sources) != 1)}"
    click.echo(f"{pipeline}: ok, {sources}, {len(graph.nodes)} stages ({on_device} on the device)")
    return 0


@cli.command()
@_FILE
@_SET
@_DEVICE
@click.option("--format", "format_", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
def graph(pipeline: Path, set_: tuple[str, ...], device: str | None, format_: str) -> int:
    """Show a pipeline's stages, what reads from what, and where host and device meet."""
    from streamkit.graph import as_mermaid, as_text, build
    from streamkit.runtime.device import choose
    from streamkit.runtime.sharing import share_out

    built = build(_read(pipeline, set_, device))
    shares = share_out(built)
    chosen = [str(choose(name, lambda text: click.echo(text, err=True))) for name, _ in shares]
    click.echo((as_text if format_ == "text" else as_mermaid)(built, ", ".join(dict.fromkeys(chosen))))
    for name, (_, sources) in zip(chosen, shares, strict=True) if len(shares) > 1 and format_ == "text" else ():
        click.echo(f"process on {name}: {', '.join(sources)}")
    return 0


@cli.command()
@_FILE
@_SET
def test(pipeline: Path, set_: tuple[str, ...]) -> int:
    """Run the tests that stand in a pipeline's YAML under `tests:`."""
    from streamkit.yamltests import run_tests

    return run_tests(_read(pipeline, set_, "cpu"), click.echo)


@cli.command("list")
@click.option("--plugins", type=click.Path(path_type=Path), multiple=True, help="a file or folder of stages")
def list_(plugins: tuple[Path, ...]) -> int:
    """List the stages there are."""
    from streamkit.describe import stage_list

    click.echo(stage_list(_registry(plugins)))
    return 0


@cli.command()
@click.argument("stage")
@click.option("--plugins", type=click.Path(path_type=Path), multiple=True, help="a file or folder of stages")
def explain(stage: str, plugins: tuple[Path, ...]) -> int:
    """Show what a stage does and its options."""
    from streamkit.describe import explain as told

    click.echo(told(_registry(plugins), stage))
    return 0


@cli.command()
@click.option("--plugins", type=click.Path(path_type=Path), multiple=True, help="a file or folder of stages")
@click.option("--records", type=click.Choice(["json", "avro", "proto"]), help="print the records' schema in this form")
@click.option(
    "--send", type=click.Choice(["frames", "objects", "events"]), help="with avro: of which records; frames if not set"
)
def schema(plugins: tuple[Path, ...], records: str | None, send: str | None) -> int:
    """Print the JSON Schema of a pipeline's YAML, for editors; with --records the schema of what it writes."""
    from streamkit.describe import json_schema
    from streamkit.formats.forms import form

    if send is not None and records != "avro":
        raise click.UsageError("--send chooses among the schemas of Avro; add --records avro, or leave it out")
    found = form(records, send or "frames") if records else json.dumps(json_schema(_registry(plugins)), indent=2)
    click.echo(found)
    return 0


@cli.command()
def doctor() -> int:
    """Say what this machine can do, and how to mend what it cannot."""
    from streamkit.doctor import examine

    return examine(click.echo)


@cli.group()
def models() -> None:
    """List, fetch and check model cards."""


@models.command("list")
def models_list() -> int:
    """List the cards that ship, and whether their files are there."""
    from streamkit.models.card import list_cards, load_card

    for path in list_cards():
        card = load_card(path)
        there = "ready" if card.file.is_file() else ("run.py models pull " + card.name if card.url else "file missing")
        size = "x".join(map(str, card.input.size))
        click.echo(f"{card.name:14} {card.task:8} {card.family:10} {size:9} {card.license:12} {there}")
    return 0


@models.command("pull")
@click.argument("names", nargs=-1, required=True)
def models_pull(names: tuple[str, ...]) -> int:
    """Fetch the networks of these cards."""
    from streamkit.models.card import find_card, load_card
    from streamkit.models.pull import pull

    for name in names:
        click.echo(f"{name}: {pull(load_card(find_card(name, Path())))}")
    return 0


@models.command("check")
@click.argument("name")
@click.argument("frames", nargs=-1, type=click.Path(path_type=Path))
@_DEVICE
def models_check(name: str, frames: tuple[Path, ...], device: str | None) -> int:
    """Compare a card's tensor and boxes with a plain CPU reference on real frames."""
    from streamkit.models.card import find_card, load_card, shipped_models
    from streamkit.models.check import check as compare
    from streamkit.models.check import frames_of
    from streamkit.runtime.device import choose

    shown = frames_of(frames or [shipped_models().parent / "samples" / "street.mp4"])
    report = compare(load_card(find_card(name, Path())), shown, choose(device or "cpu", click.echo))
    click.echo(str(report))
    return 0 if report.passed else 1


cli.add_command(batch)
cli.add_command(bench)
cli.add_command(capacity)
cli.add_command(serve)


# ------------------------------------------------------------------------------------------------------------ helpers


def _read(pipeline: Path, set_: tuple[str, ...], device: str | None, *, may_be_empty: bool = False) -> Any:
    from streamkit.config import read

    return read(pipeline, set_=pairs(set_), device=device, may_be_empty=may_be_empty)


def pairs(set_: tuple[str, ...]) -> dict[str, str]:
    """What `--set` says, by name."""
    found: dict[str, str] = {}
    for item in set_:
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"--set {item}: write NAME=VALUE, such as --set stages.detect.min_score=0.5")
        found[name] = value
    return found


def _registry(plugins: tuple[Path, ...]) -> Any:
    from streamkit.plugins import load_plugins
    from streamkit.stage import default_registry

    registry = default_registry()
    for path in plugins or ([Path("plugins")] if Path("plugins").is_dir() else []):
        load_plugins(path, registry)
    return registry


def keep_stdout() -> None:
    """Leave standard output to records: the decoder's library prints there on its own, which goes to stderr instead."""
    sys.stdout.flush()
    mine = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(2, 1)
    sys.stdout = mine


_STOPPING = "stopping: what is decoded is finished and every file closed; once more stops at once"


def handle_signals(running: Any, display: Any, told: str = _STOPPING) -> None:
    """The first Ctrl-C or SIGTERM drains and closes, and `told` is said; a second one stops at once."""
    from streamkit.outputs import discard_all

    def on_signal(number: int, _: object) -> None:
        if running.stopping:
            running.stop()  # which ends its processes, where it has some
            discard_all()
            os._exit(130)
        running.stop()  # first, or a signal that comes with the words would pass for the first one
        display.say(told)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def exit_code(error: StreamkitError) -> int:
    """The exit code of a run that ends with this error."""
    return 2 if isinstance(error, (ConfigError, DeviceError, MissingPackage)) else 1


def main() -> None:
    """Run the command and exit with its code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = 2
    except click.Abort:
        code = 130
    except StreamkitError as error:
        click.echo(str(error), err=True)
        code = exit_code(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.stdout.flush()
    sys.exit(code if isinstance(code, int) else 0)
