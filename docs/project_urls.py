"""Metadata hook of the build: the addresses of the project; as a script, the check of a release's tag."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VERSION_FILE = Path("streamkit", "core", "version.py")


class UrlsHook(MetadataHookInterface):
    """Derives the addresses that the package index shows from `REPOSITORY`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See hatchling."""
        metadata["urls"] = project_urls(constant("REPOSITORY", Path(self.root)))


def constant(name: str, root: Path) -> str:
    """A text that streamkit/core/version.py defines."""
    text = (root / VERSION_FILE).read_text(encoding="utf-8")
    assignment = re.search(rf'^{name} = "(.*)"', text, re.MULTILINE)
    assert assignment is not None, f"{VERSION_FILE} defines no {name}"
    return assignment[1]


def is_placeholder(repository: str) -> bool:
    """Whether an address stands for one that is not known yet: no host can have such a name."""
    return ".invalid/" in repository


def project_urls(repository: str) -> dict[str, str]:
    """The addresses of a project, by their title; none for the placeholder, which leads nowhere."""
    if is_placeholder(repository):
        return {}
    return {
        "Repository": repository,
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Issues": f"{repository}/issues",
    }


def release_problems(tag: str, version: str, repository: str) -> list[str]:
    """Why a tag must not be released; empty if it may."""
    problems = []
    if tag != f"v{version}":
        problems.append(f"the tag {tag} is not v{version}, the version in {VERSION_FILE}")
    if is_placeholder(repository):
        problems.append(f"REPOSITORY in {VERSION_FILE} is the placeholder {repository}; write the repository's address")
    return problems


if __name__ == "__main__":
    checkout = Path(__file__).resolve().parents[1]
    version, repository = (constant(name, checkout) for name in ("__version__", "REPOSITORY"))
    sys.exit("\n".join(release_problems(sys.argv[1], version, repository)))
