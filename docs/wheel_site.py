"""Build hook of the wheel: includes the documentation site, if it is built, for `streamkit docs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SiteHook(BuildHookInterface[Any]):
    """Puts `site/` into the package as `docs_site/`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling; an editable installation reads `site/` itself."""
        site = Path(self.root) / "site"
        if version != "editable" and (site / "index.html").is_file():
            build_data["force_include"][str(site)] = "streamkit/docs_site"
