# SPDX-License-Identifier: Apache-2.0
"""The last lines of a run: what it has found, and whether its network seems to be the wrong one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

_PLURALS = {"bus": "buses", "knife": "knives", "mouse": "mice", "sheep": "sheep"}
_MAX_LABELS = 5
_MAX_EVENTS = 5
_ENOUGH_OBJECTS = 20
"""Objects of a run that say something about a network."""


def findings(report: Mapping[str, Any]) -> str:
    """What a run has found, such as `1,204 cars, 310 persons in 400 frames (...); 12 crossed door`; empty for
    nothing.

    Args:
        report: of the run, see `RunCounts.report`.
    """
    labels = sum((Counter(counts) for counts in report.get("labels", {}).values()), Counter[str]())
    shown = [f"{count:,} {_plural(label, count)}" for label, count in labels.most_common(_MAX_LABELS)]
    if others := labels.total() - sum(count for _, count in labels.most_common(_MAX_LABELS)):
        shown.append(f"{others:,} {_plural('other', others)}")
    events = [
        (count, f"{count:,} {kind} {stage}")
        for stage, kinds in report.get("events_by_stage", {}).items()
        for kind, count in kinds.items()
        if stage in report["stages"]
    ]
    texts = [f"{', '.join(shown)} in {report['frames']:,} frames (an object counts in each frame)"] if shown else []
    if events:
        texts.append(", ".join(text for _, text in sorted(events, reverse=True)[:_MAX_EVENTS]))
    return "; ".join(texts)


def _plural(label: str, count: int) -> str:
    """The plural of an English label: `1 car`, `2 cars`, `2 benches`, `2 skis`."""
    if count == 1 or label in _PLURALS:
        return label if count == 1 else _PLURALS[label]
    if label.endswith(("ch", "sh", "ss", "x")):
        return f"{label}es"
    return label if label.endswith("s") else f"{label}s"


def mostly_unsure(unsure: Mapping[str, int], detections: Mapping[str, int]) -> str:
    """The hint after a run in which most scores of a detector were just above its threshold; empty otherwise.

    Args:
        unsure: objects of each detector whose score is in the lowest quarter above its threshold.
        detections: all objects of each detector.
    """
    doubtful = [name for name, count in unsure.items() if count * 2 > detections[name] >= _ENOUGH_OBJECTS]
    if not doubtful:
        return ""
    return (
        f"most objects of {' and '.join(doubtful)} have a score just above min_score, as where a network sees what it "
        "was not trained on: look at the boxes, and try another model (streamkit models list) or a higher min_score"
    )
