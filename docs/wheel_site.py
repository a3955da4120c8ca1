"""Build hook of the wheel: includes what `streamkit docs` shows: the site, if it is built, else its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGES = ("*.md", "*.png", "*.svg")


class SiteHook(BuildHookInterface[Any]):
    """Puts `site/`, or the Markdown pages of `docs/`, into the package as `docs_site/`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling; an editable installation reads the checkout itself."""
        if version == "editable":
            return
        site = Path(self.root) / "site"
        pages = Path(self.root) / "docs"
        files = [site] if (site / "index.html").is_file() else sorted(p for kind in _PAGES for p in pages.rglob(kind))
        for path in files:
            place = path.relative_to(site if path == site else pages).as_posix()
            build_data["force_include"][str(path)] = "streamkit/docs_site" + (f"/{place}" if place != "." else "")
