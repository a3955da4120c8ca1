"""A page for each stage, and the table of all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamkit.config.describe import cell, option_table, paragraphs, stage_page, stage_table
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import Registry


def pages(registry: Registry) -> Iterator[tuple[str, str]]:
    """The pages, by name."""
    table = re.sub(r"^\| `(\w+)`", r"| [`\1`](\1.md)", stage_table(registry), flags=re.MULTILINE)
    more = "Under any source, [`fault`](fault.md) injects faults. [`alarms`](../alarms.md) has rules on the pipeline."
    yield "index", f"# Stages\n\n{table}\n\n{more}\n"
    for name in registry.names():
        yield name, stage_page(registry, name)
    yield Fault.name, "\n".join(_fault())


def _fault() -> Iterator[str]:
    yield f"# `{Fault.name}`"
    for part in paragraphs(Fault):
        yield f"\n{cell(part)}"
    yield "\n## Options\n"
    yield from option_table(Fault)
    yield ""
