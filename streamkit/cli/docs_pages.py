# SPDX-License-Identifier: Apache-2.0
"""The pages of the documentation where the site is not built: as Markdown, and converted to plain HTML."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.core.errors import ConfigError
from streamkit.core.text import did_you_mean
from streamkit.core.user_cache import user_cache

if TYPE_CHECKING:
    from markdown_it.token import Token

_TITLE = re.compile(r"^# +(.+?) *$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_STAGES = "reference/stages/"
_HTML = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title} - streamkit</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.55 system-ui, sans-serif; margin: 1rem auto; max-width: 52rem; padding: 0 1rem }}
pre {{ overflow-x: auto; padding: .75rem; border: 1px solid #8886; border-radius: .3rem }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
th, td {{ border: 1px solid #8886; padding: .25rem .5rem; text-align: left; vertical-align: top }}
img {{ max-width: 100% }}
</style>
<nav><a href="{root}index.html">streamkit</a> · <a href="{root}all.html">All pages</a> ·
<a href="{root}reference/stages/index.html">Stages</a></nav>
<main>{body}</main>
</html>
"""


def read_pages(folder: Path) -> dict[str, str]:
    """Return the Markdown of every page by its place, such as `rules.md`; those of stages are made from the code."""
    from streamkit.config.describe import stage_page, stage_table
    from streamkit.core.stage import default_registry

    registry = default_registry()
    pages = {f"{_STAGES}{name}.md": stage_page(registry, name) for name in registry.names()}
    table = re.sub(r"^\| `(\w+)`", r"| [`\1`](\1.md)", stage_table(registry), flags=re.MULTILINE)
    pages[f"{_STAGES}index.md"] = f"# Stages\n\n{table}\n"
    for path in sorted(folder.rglob("*.md")):
        pages[path.relative_to(folder).as_posix()] = path.read_text(encoding="utf-8")
    rows = "\n".join(f"- [{title_of(text, place)}]({place})" for place, text in sorted(pages.items()))
    return pages | {"all.md": f"# All pages\n\n{rows}\n"}


def page_text(folder: Path, name: str) -> str:
    """Return the Markdown of a page, named with or without its suffix. Raises ConfigError if there is none."""
    pages = read_pages(folder)
    for place in (f"{name.removesuffix('.md')}.md", f"{_STAGES}{name}.md"):
        if place in pages:
            return pages[place]
    names = [place.removesuffix(".md") for place in pages]
    raise ConfigError(f"there is no page {name!r}{did_you_mean(name, names)}; streamkit docs all lists the pages")


def title_of(text: str, place: str) -> str:
    """Return the heading of a page, without marks of code; its place if it has none."""
    heading = _TITLE.search(text)
    return place if heading is None else heading[1].replace("`", "")


def convert(folder: Path) -> Path:
    """Convert the pages of a folder to HTML in the user's cache, and return the first.

    Raises:
        OutputError: the cache cannot be written.
    """
    from streamkit.io.outputs import AtomicFile

    pages = read_pages(folder)
    out = user_cache("docs", sha256(str(folder).encode()).hexdigest()[:12])
    for place, text in pages.items():
        page = out / f"{place.removesuffix('.md')}.html"
        html = page_html(place, text, pages, folder).encode()
        if not page.is_file() or page.read_bytes() != html:
            AtomicFile(page).write(html)
    return out / "index.html"


def page_html(place: str, text: str, pages: Mapping[str, str], folder: Path) -> str:
    """Return a page as HTML.

    Args:
        place: its place among the pages.
        text: its Markdown.
        pages: all pages, for links.
        folder: the folder of the pages, for images and links to files.
    """
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(_FRONT_MATTER.sub("", text))
    anchors: set[str] = set()
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _anchor(tokens[index + 1].content, anchors))
        for child in token.children or ():
            _redirect(child, place, pages, folder)
    body = markdown.renderer.render(tokens, markdown.options, {})
    return _HTML.format(title=escape(title_of(text, place)), root="../" * place.count("/"), body=body)


def _anchor(heading: str, taken: set[str]) -> str:
    """Return the anchor of a heading, as GitHub names it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    base = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
    number = 0
    anchor = base
    while anchor in taken:
        number += 1
        anchor = f"{base}-{number}"
    taken.add(anchor)
    return anchor


def _redirect(token: Token, place: str, pages: Mapping[str, str], folder: Path) -> None:
    """Lead a link or an image to a converted page, or to a file; a link to what is not there becomes plain text."""
    attribute = {"link_open": "href", "image": "src"}.get(token.type)
    address: Any = token.attrGet(attribute) if attribute is not None else None
    if attribute is None or not isinstance(address, str) or ":" in address or address.startswith("#"):
        return
    path, hash_sign, anchor = address.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    file = folder / target
    if target in pages:
        page = posixpath.relpath(f"{target.removesuffix('.md')}.html", posixpath.dirname(place) or ".")
        token.attrSet(attribute, page + hash_sign + anchor)
    elif file.exists():
        token.attrSet(attribute, file.resolve().as_uri())
    else:
        del token.attrs[attribute]
