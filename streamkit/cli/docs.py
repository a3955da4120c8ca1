# SPDX-License-Identifier: Apache-2.0
"""The command `docs`: opens the documentation, which is part of the installation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from streamkit.cli.common import echo
from streamkit.core.errors import StreamkitError

PACKAGE = Path(__file__).resolve().parents[1]


@click.command()
def docs() -> None:
    """Open the documentation in a browser, and print its address. It needs no network."""
    import webbrowser

    address = index().as_uri()
    echo(address)
    if has_screen():
        webbrowser.open(address)


def index(package: Path = PACKAGE) -> Path:
    """Return the first page of the site: of a checkout, the one that `just docs` builds; else the wheel's.

    Args:
        package: the folder of the package.

    Raises:
        StreamkitError: there is no site; says how to build it.
    """
    checkout = package.parent
    in_checkout = (checkout / "mkdocs.yml").is_file()
    found = (checkout / "site" if in_checkout else package / "docs_site") / "index.html"
    if found.is_file():
        return found
    if in_checkout:
        raise StreamkitError(f"the documentation is not built; run in {checkout}: just docs")
    raise StreamkitError(
        f"this installation has no documentation in {found.parent}; streamkit list, and streamkit explain STAGE, "
        "describe the stages"
    )


def has_screen() -> bool:
    """Whether a browser with windows may start: without one, Python's webbrowser opens a browser in the terminal."""
    return sys.platform != "linux" or bool({"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & os.environ.keys())
