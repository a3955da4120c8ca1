# SPDX-License-Identifier: Apache-2.0
"""The command `docs`: opens the documentation, which is part of the installation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from streamkit.cli.common import echo
from streamkit.core.errors import StreamkitError
from streamkit.core.text import install_command

PACKAGE = Path(__file__).resolve().parents[1]


@click.command()
def docs() -> None:
    """Open the documentation in a browser, and print its address. It needs no network."""
    import webbrowser

    page = first_page()
    echo(page.as_uri())
    if page.suffix != ".html":
        command = f"{install_command('docs')} && python -m mkdocs build"
        echo(f"the site is not built, so this is the first page of its text; to build the site: {command}", err=True)
    elif has_screen():
        webbrowser.open(page.as_uri())


def first_page(package: Path = PACKAGE) -> Path:
    """Return the first page: of the site in a checkout, if it is built, else of its Markdown; of a wheel's site.

    Args:
        package: the folder of the package.

    Raises:
        StreamkitError: the wheel has no site.
    """
    checkout = package.parent
    if (checkout / "mkdocs.yml").is_file():
        site = checkout / "site" / "index.html"
        return site if site.is_file() else checkout / "docs" / "index.md"
    site = package / "docs_site" / "index.html"
    if site.is_file():
        return site
    raise StreamkitError(
        f"this installation has no documentation in {site.parent}; streamkit list, and streamkit explain STAGE, "
        "describe the stages"
    )


def has_screen() -> bool:
    """Whether a browser with windows may start: without one, Python's webbrowser opens a browser in the terminal."""
    return sys.platform != "linux" or bool({"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & os.environ.keys())
