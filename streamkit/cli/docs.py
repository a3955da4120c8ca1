# SPDX-License-Identifier: Apache-2.0
"""The command `docs`: opens the documentation, which is part of the installation, or prints a page of it."""

from __future__ import annotations

from pathlib import Path

import click

from streamkit.cli.common import echo, open_browser
from streamkit.core.errors import StreamkitError

PACKAGE = Path(__file__).resolve().parents[1]


@click.command()
@click.argument("page", required=False)
def docs(page: str | None) -> None:
    """Open the documentation in a browser, and print its address. It needs no network.

    With PAGE, such as rules or reference/stages/track, print that page as Markdown; `docs all` lists the pages.
    """
    from streamkit.cli.docs_pages import page_text

    if page is not None:
        echo(page_text(docs_folder(), page))
        return
    address = first_page().as_uri()
    echo(address)
    open_browser(address)


def docs_folder(package: Path = PACKAGE) -> Path:
    """Return the folder of the pages as Markdown: of a checkout, or of a wheel.

    Args:
        package: the folder of the package.

    Raises:
        StreamkitError: the installation has no pages.
    """
    checkout = package.parent
    folder = checkout / "docs" if (checkout / "mkdocs.yml").is_file() else package / "docs_site"
    if not (folder / "index.md").is_file():
        raise StreamkitError(
            f"this installation has no documentation in {folder}; streamkit list, and streamkit explain STAGE, "
            "describe the stages"
        )
    return folder


def first_page(package: Path = PACKAGE) -> Path:
    """Return the first page: of the site, if the installation has it, else of the pages converted to HTML.

    Args:
        package: the folder of the package.

    Raises:
        StreamkitError: the installation has no pages, or they cannot be converted.
    """
    from streamkit.cli.docs_pages import convert

    folder = docs_folder(package)
    site = (package.parent / "site" if folder.name == "docs" else folder) / "index.html"
    return site if site.is_file() else convert(folder)
