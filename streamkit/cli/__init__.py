"""The command: `run.py`, or `streamkit` where it is installed. Each subcommand is a few lines over a module."""

from streamkit.cli.command import cli, main

__all__ = ["cli", "main"]
