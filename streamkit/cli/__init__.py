# SPDX-License-Identifier: Apache-2.0
"""The command line: `run.py`, or `streamkit` if installed. Each subcommand is a few lines over a module."""

from streamkit.cli.command import cli, main

__all__ = ["cli", "main"]
