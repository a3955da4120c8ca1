"""Every Prometheus metric of `streamkit serve`, from the collectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference_pages.idle_server import idle_server
from reference_pages.markdown import table
from streamkit.runtime.ingest.source_counts import NUMBERS, SourceNumber

_EXAMPLE = """```yaml
scrape_configs:
  - job_name: streamkit
    static_configs:
      - targets: ["10.0.0.5:8000"]
```
"""
_GROUPS = (("streamkit_", "Pipeline"), ("process_", "Process of the server"))
_LABELS = {
    "source": "id of the source; `pipeline` for events of the pipeline itself",
    "line": "name of the line; empty if it has none",
    "zone": "name of the zone; empty if it has none",
    "direction": "`in` or `out`",
    "class": "class of the object",
    "stage": "id of the stage",
    "cause": "why, in one word such as `timeout`",
    "state": "one of the states of a source",
    "kind": "kind of the [event](events.md)",
    "name": "what is counted",
    "alarm": "name of the [alarm](alarms.md)",
    "device": "name of the device, such as `cuda:0`",
}


def page() -> Iterator[str]:
    """The parts of the page."""
    yield "# Metrics\n"
    yield (
        "`streamkit serve` offers these metrics at `/metrics`, in Prometheus' text format and without a token. They "
        "are computed at each scrape from the pipeline's own counters.\n"
    )
    yield _EXAMPLE
    metrics = idle_server().metrics
    for prefix, title in _GROUPS:
        yield f"## {title}\n"
        rows = (
            (
                f"`{_name(metric)}`",
                metric.type,
                ", ".join(f"`{label}`" for label in labels_of(metric)),
                metric.documentation,
            )
            for metric in metrics
            if metric.name.startswith(prefix)
        )
        yield table(("metric", "type", "labels", "meaning"), rows)
    yield "## Labels\n"
    yield table(("label", "value"), ((f"`{name}`", text) for name, text in _LABELS.items()))
    yield "Sums of histograms are estimates within 1 %.\n"
    yield "## Numbers of a source\n"
    yield "Where each number is; those with a name are shown by it if they are not zero.\n"
    yield table(("number", "metric", "in report, API, page and `Pipeline.stats`"), map(_number, NUMBERS))


def _number(number: SourceNumber) -> tuple[str, ...]:
    metric = f"`streamkit_{number.metric}_total`" if number.metric else ""
    return number.text, metric, f"`{number.name}`" if number.shown else ""


def labels_of(family: Any) -> tuple[str, ...]:
    """The names of a family's labels."""
    return tuple(getattr(family, "_labelnames", ()))


def _name(family: Any) -> str:
    return f"{family.name}_total" if family.type == "counter" else str(family.name)
