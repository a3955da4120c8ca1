"""A page for each stage, and the table of all."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from reference_pages.markdown import page_links
from streamkit.config.describe import cell, option_table, paragraphs, stage_page, stage_table
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import Registry

_GROUPS = {"sources": "Sources", "inference": "Inference", "analytics": "Analytics", "video": "Video", "sinks": "Sinks"}


def pages(registry: Registry) -> Iterator[tuple[str, str]]:
    """The pages, by name."""
    table = re.sub(r"^\| `(\w+)`", r"| [`\1`](\1.md)", stage_table(registry), flags=re.MULTILINE)
    more = "Under any source, [`fault`](fault.md) injects faults. [`alarms`](../alarms.md) has rules on the pipeline."
    yield "index", f"# Stages\n\n{table}\n\n{more}\n"
    for name in registry.names():
        yield name, page_links(stage_page(registry, name), "../../") + "".join(_more(registry, name))
    yield Fault.name, "\n".join(_fault())


def groups(registry: Registry) -> dict[str, list[str]]:
    """The names of the stages by what they are for, as the folders of `streamkit/stages/` have them."""
    stage_names: dict[str, list[str]] = {title: [] for title in _GROUPS.values()}
    for name in registry.names():
        stage_names[_GROUPS[registry[name].__module__.split(".")[2]]].append(name)
    return stage_names


def _more(registry: Registry, name: str) -> Iterator[str]:
    """What else there is to know of a stage: its events, live changes, and the examples that use it."""
    spec = registry[name].spec
    if spec.emits:
        links = (f"[`{kind}`](../events.md#{name}-{kind})" for kind in spec.emits)
        yield f"\nEvents: {', '.join(links)}.\n"
    if spec.changeable:
        changeable = ", ".join(f"`{option}`" for option in sorted(spec.changeable))
        yield f"\nOptions that may change while it runs: {changeable}.\n"
    if used := [example for example, stages in _examples().items() if name in stages]:
        links = (f"[{example}](../../project/examples/{example}.md)" for example in used)
        yield f"\nExamples: {', '.join(links)}.\n"


@functools.cache
def _examples() -> dict[str, set[str]]:
    """The types of the stages of each example, by its file's name."""
    stages_of = {}
    for path in sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml")):
        stages = yaml.safe_load(path.read_text(encoding="utf-8")).get("stages") or {}
        stages_of[path.name] = {(options or {}).get("stage", id_) for id_, options in stages.items()}
    return stages_of


def _fault() -> Iterator[str]:
    yield f"# `{Fault.name}`"
    for part in paragraphs(Fault):
        yield f"\n{cell(part)}"
    yield "\n## Options\n"
    yield from option_table(Fault)
    yield ""
