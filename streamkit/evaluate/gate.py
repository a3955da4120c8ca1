# SPDX-License-Identifier: Apache-2.0
"""Minimum values of metrics, for continuous integration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamkit.core.errors import ConfigError
from streamkit.core.text import did_you_mean
from streamkit.evaluate.report import METRICS, PER_CLASS, TRACKS, metric, shown


def read_minimums(texts: Sequence[str]) -> dict[str, float]:
    """The minimums of `--min ap=.4,idf1=.7`. Raises ConfigError with the known names."""
    minimums = {}
    for item in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        name, equals, value = item.partition("=")
        base, dot, _ = name.partition(".")
        if base not in (PER_CLASS if dot else METRICS):
            more = f"; of a class, as in ap.car: {', '.join(PER_CLASS)}"
            near = did_you_mean(base, METRICS) or "."
            raise ConfigError(f"--min {item}: there is no metric {name!r}{near} Metrics: {', '.join(METRICS)}{more}")
        try:
            minimums[name] = float(value) if equals else float("nan")
        except ValueError:
            minimums[name] = float("nan")
        if not abs(minimums[name]) < float("inf"):
            raise ConfigError(f"--min {item}: write NAME=NUMBER, such as ap=0.4")
    return minimums


def check_classes(minimums: Mapping[str, float], classes: Sequence[str]) -> None:
    """Check that metrics of classes name evaluated ones. Raises ConfigError."""
    for name in minimums:
        label = name.partition(".")[2]
        if label and label not in classes:
            near = did_you_mean(label, classes, True)
            raise ConfigError(f"--min {name}: no class {label!r} is evaluated{near}")


def failures(report: Mapping[str, Any], minimums: Mapping[str, float]) -> Iterator[str]:
    """The metrics below their minimum, a text each; a metric that is not measured fails."""
    for name, minimum in minimums.items():
        value = metric(report, name)
        if value is None:
            base = name.partition(".")[0]
            missing = {"counts": report["counts_missing"], **dict.fromkeys(TRACKS, report["tracking_missing"])}
            reason = missing.get(base) or "there is nothing to measure it on"
            yield f"{name} is not measured ({reason}), minimum {minimum:g}"
        elif value < minimum:
            yield f"{name} is {shown(value)}, below the minimum {minimum:g}"
