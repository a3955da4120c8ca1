# SPDX-License-Identifier: Apache-2.0
"""What people call a source and how they sort it: nothing that the pipeline itself reads."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated

from streamkit.core.units import Unit

MAX_CHARS = 80
MAX_TAGS = 20


@dataclass
class SourceDetails:
    """Name, group, site, tags and order of a source, for the page, the API and the rights of people."""

    name: Annotated[str, Unit("text"), "what people call it; its id if not set."] = ""
    group: Annotated[str, Unit("text"), "its group, such as entrance; rights are given by group."] = ""
    site: Annotated[str, Unit("text"), "the site where it is."] = ""
    tags: Annotated[list[str], "words to find it by."] = field(default_factory=list)
    order: Annotated[int, "its position among the sources, lowest first; equal ones keep the order of the file."] = 0

    def __post_init__(self) -> None:
        """Check the length of the texts."""
        for key in ("name", "group", "site"):
            _check_text(key, getattr(self, key))
        if len(self.tags) > MAX_TAGS:
            raise ValueError(f"tags must be at most {MAX_TAGS}, got {len(self.tags)}")
        for tag in self.tags:
            _check_text("a tag", tag)
            if not tag.strip():
                raise ValueError("a tag must not be empty; leave it out")


DETAIL_KEYS = tuple(declared.name for declared in fields(SourceDetails))
"""The keys of a source's entry that are details, in their order."""


def _check_text(key: str, text: str) -> None:
    if len(text) > MAX_CHARS:
        raise ValueError(f"{key} must have at most {MAX_CHARS} characters, got {len(text)}")
    if not text.isprintable():
        raise ValueError(f"{key} must be one line of printable characters, got {text!r}")
