"""Every command and option of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from reference_pages.markdown import table
from streamkit.cli import cli

_NAME = "streamkit"


def page() -> Iterator[str]:
    """The parts of the page."""
    yield "# Command line\n"
    yield f"`{_NAME}` is the installed command; in a checkout, `python run.py` is the same. `--help` describes each.\n"
    listed_commands = [(path, command) for path, command in commands() if path != _NAME]
    yield table(
        ("command", "what it does"),
        ((f"[`{path}`](#{_anchor(path)})", _text(command)[0]) for path, command in listed_commands),
    )
    for path, command in listed_commands:
        yield from _command(path, command)


def commands(command: click.Command = cli, path: str = _NAME) -> Iterator[tuple[str, click.Command]]:
    """Every command with its words, each group before its commands."""
    yield path, command
    for name, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
        yield from commands(subcommand, f"{path} {name}")


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _text(command: click.Command) -> list[str]:
    """The paragraphs of a command's help."""
    return [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path, help_option_names=["-h", "--help"])  # click caches the option
    yield f"## `{path}`\n"
    yield f"```text\n{command.get_usage(context)}\n```\n"
    for part in _text(command):
        yield f"{part}\n"
    shown = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if shown:
        yield table(("option", "value", "default", "meaning"), map(_row, shown))


def _row(option: click.Option) -> tuple[str, str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else _value(option)
    repeated = "; repeatable" if option.multiple and "repeatable" not in (option.help or "") else ""
    return names, value, _default(option), f"{option.help or ''}{repeated}"


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " | ".join(map(str, option.type.choices))
    if isinstance(option.type, (click.IntRange, click.FloatRange)):
        lowest = option.type.min
        highest = option.type.max
        return "number" + ("" if lowest is None else f" from {lowest}") + ("" if highest is None else f" to {highest}")
    return f"`{option.metavar or option.type.name.upper()}`"


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    value = option.default
    plain = isinstance(value, (str, int, float, Path)) and not isinstance(value, bool)
    return f"`{value}`" if plain and value != "" else ""
