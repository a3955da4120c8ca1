"""The options of alarms, and the facts that their rules name."""

from __future__ import annotations

from collections.abc import Iterator

from reference_pages.markdown import table
from streamkit.config.alarms import FACTS, Alarm
from streamkit.config.describe import option_table, paragraphs

_EXAMPLE = """```yaml
alarms:
  camera_down: down_s > 30
  slow: {when: "latency_p95_s > 2 for 30s", clear: 1min, cooldown: 10min}
```
"""
_SCOPES = (
    ("source", "Facts of each source", "A rule that names one of these is evaluated for each source."),
    ("pipeline", "Facts of the pipeline", "With several processes, they cover all of them."),
)


def page() -> Iterator[str]:
    """The parts of the page."""
    yield "# Alarm options and facts\n"
    for part in paragraphs(Alarm):
        yield f"{part}\n"
    yield _EXAMPLE
    yield "`NAME: RULE` is short for `NAME: {when: RULE}`. [Alarms](../alarms.md) shows how to write and send them.\n"
    yield "## Options\n"
    yield "\n".join(option_table(Alarm)) + "\n"
    for scope, title, text in _SCOPES:
        yield f"## {title}\n"
        yield f"{text}\n"
        rows = (
            (f"`{name}`", "text" if fact.values else "number", fact.help)
            for name, fact in FACTS.items()
            if fact.of == scope
        )
        yield table(("fact", "type", "meaning"), rows)
    yield (
        "An unknown value, such as the latency while no frame arrives, never satisfies a rule. "
        "[Rule language](../rule-language.md) has the operators.\n"
    )
