# SPDX-License-Identifier: Apache-2.0
"""The report of an evaluation: all scores, why objects are missed, and where tracks and counts go wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from streamkit.evaluate.alignment import check_alignment
from streamkit.evaluate.boxes import FlatBoxes
from streamkit.evaluate.causes import CAUSES, Miss, attribute, suggestions
from streamkit.evaluate.counting import CountError, as_text, count_errors, count_table
from streamkit.evaluate.detection import Matches, average_precision, match, rates
from streamkit.evaluate.observe import Observations
from streamkit.evaluate.tracking import TrackError, track_errors, tracking_scores
from streamkit.evaluate.truth import Truth

_AP = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
_RATES = ("precision", "recall")
TRACKS = ("hota", "deta", "assa", "mota", "idf1")
"""The metrics of tracking."""
METRICS = (*_AP, *_RATES, *TRACKS, "counts", "fps")
"""The metrics that `--min` knows; those of detection and tracking also for a class, as in `ap.car`."""
PER_CLASS = ("ap", "ap50", *_RATES, *TRACKS)
"""The metrics that exist for each class."""

_TITLES = {
    "ap": "AP",
    "ap50": "AP50",
    "ap75": "AP75",
    "ap_small": "AP small",
    "ap_medium": "AP medium",
    "ap_large": "AP large",
    "hota": "HOTA",
    "deta": "DetA",
    "assa": "AssA",
    "mota": "MOTA",
    "idf1": "IDF1",
    "counts": "counts",
    "fps": "frames/s",
}
_SHOWN = 8  # rows of a list in the text; the JSON has all


@dataclass(slots=True, eq=False)
class Evaluation:
    """The measurements of one pipeline.

    Attributes:
        report: the report, as JSON types.
        seen: what was observed.
        matches: the hits, misses and false positives.
    """

    report: dict[str, Any]
    seen: Observations
    matches: Matches


def evaluate(
    seen: Observations, truth: Truth, pipeline: str, set_: Mapping[str, str], latency: Mapping[str, Any] | None = None
) -> Evaluation:
    """Measure all that the truth allows.

    Args:
        seen: what was observed.
        truth: the truth.
        pipeline: the name of the pipeline, for the report.
        set_: its `--set`, likewise.
        latency: the result of `measure_latency`.

    Raises:
        ConfigError: the frames or sizes of the truth are not those of the video.
    """
    fit = check_alignment(seen, truth)
    classes = seen.names[: seen.classes]
    detections = seen.detections[seen.detections.class_id < seen.classes]
    evaluated = replace(seen, detections=detections)
    matches = match(seen.truth, detections, seen.frames, classes)
    tracker = bool((detections.track_id >= 0).any())
    reason = "" if truth.tracked and tracker else _no_tracks(seen, truth)
    misses = attribute(evaluated, matches, tracked=not reason)
    wrong = [] if reason else track_errors(seen.truth, detections, seen.frames, classes)
    counts, count_why = _counts(evaluated, truth, classes, misses, wrong)
    report = {
        "schema": "streamkit-eval/1",
        "pipeline": pipeline,
        "set": dict(set_),
        "truth": truth.options.path,
        "frames": len(seen.frames),
        "classes": list(classes),
        "detection": _detection(evaluated, matches, classes),
        "tracking": None if reason else tracking_scores(seen.truth, detections, seen.frames, classes),
        "tracking_missing": reason or None,
        "counts": counts,
        "counts_missing": count_why or None,
        "misses": {
            "causes": _cause_table(seen, misses),
            "objects": [_miss(seen, miss) for miss in misses],
            "suggestions": suggestions(evaluated, misses),
        },
        "track_errors": [_track_error(seen, error) for error in wrong],
        "speed": _speed(seen.report, latency),
        "notes": [*seen.notes, *fit, *([f"{seen.failed:,} frames failed and are left out"] if seen.failed else [])],
    }
    return Evaluation(report, evaluated, matches)


def _no_tracks(seen: Observations, truth: Truth) -> str:
    if not truth.tracked:
        return "the truth has no ids"
    tracker = any("track_id" in node.writes for node in seen.graph.nodes.values())
    return "no object has a track" if tracker else "the pipeline has no tracks; add the stage track"


def _detection(seen: Observations, matches: Matches, classes: Sequence[str]) -> dict[str, Any]:
    low = seen.low if seen.has_low else seen.detections
    ran = np.zeros(len(seen.frames), bool)
    ran[seen.inferred] = True
    number = np.cumsum(ran) - 1

    def only(boxes: FlatBoxes) -> FlatBoxes:
        selected = boxes[ran[boxes.frame] & (boxes.class_id < seen.classes)]
        selected.frame = number[selected.frame]
        return selected

    frames = [frame for frame, here in zip(seen.frames, ran, strict=True) if here]
    precise = average_precision(only(seen.truth), only(low), frames, classes)
    chosen = rates(seen.truth, seen.detections, matches, classes)
    each = {name: {**precise["per_class"][name], **chosen["per_class"][name]} for name in classes}
    return {**precise, **chosen, "per_class": each}


def _counts(
    seen: Observations, truth: Truth, classes: Sequence[str], misses: Sequence[Miss], wrong: Sequence[TrackError]
) -> tuple[dict[str, Any] | None, str]:
    rows = count_table(seen.events, seen.truth_events, classes)
    if not truth.tracked:
        return None, "the truth has no ids"
    if not rows:
        return None, "the pipeline has no line_counter and no zone, or nothing crosses them"
    partly = any("not in the truth" in note for note in seen.notes)
    if partly:
        return None, "the truth has not every frame"
    errors = count_errors(seen.events, seen.truth_events, classes)
    there = sum(row["truth"] for row in rows)
    off = sum(abs(row["error"]) for row in rows)
    explained = [asdict(replace(error, why=_why(seen, error, misses, wrong))) for error in errors]
    return {"rows": rows, "errors": explained, "accuracy": max(0.0, 1 - off / there) if there else None}, ""


def _why(seen: Observations, error: CountError, misses: Sequence[Miss], wrong: Sequence[TrackError]) -> str:
    """What happened to the object of a count that is missing, around its event."""
    if error.kind == "extra" or error.track_id is None:
        return "no such event in the truth within a second"
    places = [number for number, frame in enumerate(seen.frames) if frame.source == error.source]
    at = next((number for number in places if seen.frames[number].index == error.frame), -1_000)
    around = {number for number in places if abs(number - at) <= 25}  # objects of other sources have the same ids
    lost = Counter(
        miss.cause
        for miss in misses
        if seen.truth.track_id[miss.row] == error.track_id and int(seen.truth.frame[miss.row]) in around
    )
    switched = [switch for switch in wrong if switch.object_id == error.track_id and switch.frame in around]
    if switched:
        frame = seen.frames[switched[0].frame].index
        return f"{switched[0].kind} at frame {frame}: track {switched[0].before} to {switched[0].after}"
    if lost:
        cause, times = lost.most_common(1)[0]
        return f"missed in {times} of the 51 frames around it: {cause}"
    return "tracked, but its box is on the other side, or too short on this one"


def _cause_table(seen: Observations, misses: Sequence[Miss]) -> dict[str, dict[str, int]]:
    counts_by_cause: dict[str, dict[str, int]] = {}
    for cause in CAUSES:
        same_cause = [miss for miss in misses if miss.cause == cause]
        each = Counter(seen.names[seen.truth.class_id[miss.row]] for miss in same_cause)
        if same_cause:
            counts_by_cause[cause] = {"all": len(same_cause), **each}
    return dict(sorted(counts_by_cause.items(), key=lambda item: -item[1]["all"]))


def _miss(seen: Observations, miss: Miss) -> dict[str, Any]:
    frame = seen.frames[seen.truth.frame[miss.row]]
    track = int(seen.truth.track_id[miss.row])
    return {
        "source": frame.source,
        "frame": frame.index,
        "label": seen.names[seen.truth.class_id[miss.row]],
        "box": [round(value, 2) for value in seen.truth.xyxy[miss.row].tolist()],
        "id": None if track < 0 else track,
        "cause": miss.cause,
        "score": None if miss.score is None else round(miss.score, 4),
    }


def _track_error(seen: Observations, error: TrackError) -> dict[str, Any]:
    frame = seen.frames[error.frame]
    return {
        "kind": error.kind,
        "source": frame.source,
        "frame": frame.index,
        "label": seen.names[error.class_id],
        "id": error.object_id,
        "before": error.before,
        "after": error.after,
        "lost": error.lost,
    }


def _speed(report: Mapping[str, Any], latency: Mapping[str, Any] | None) -> dict[str, Any]:
    """Speed of the run, and latency; the stages that evaluation adds are apart."""
    stages = {name: stage for name, stage in report["stages"].items() if stage["frames"]}
    evaluation_stages = {name for name in stages if "evaluate." in name}
    ms = {name: round(1000 * stage["seconds"] / stage["frames"], 3) for name, stage in stages.items()}
    return {
        "device": report["device"],
        "fps": report["frames_per_s"],
        "seconds": report["seconds"],
        "latency": None if latency is None else dict(latency),
        "ms_per_frame": {name: value for name, value in ms.items() if name not in evaluation_stages},
        "evaluation_ms_per_frame": round(sum(ms[name] for name in evaluation_stages), 3),
    }


# -------------------------------------------------------------------------------------------------------- metrics


def metric(report: Mapping[str, Any], name: str) -> float | None:
    """The value of a metric of `METRICS`, or of one of a class as in `ap.car`; None if it is not measured."""
    base, _, label = name.partition(".")
    if base == "fps":
        return _number(report["speed"]["fps"])
    if base == "counts":
        return None if report["counts"] is None else _number(report["counts"]["accuracy"])
    part = report["tracking"] if base in TRACKS else report["detection"]
    if part is None:
        return None
    return _number(part["per_class"][label][base] if label else part[base])


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


# ----------------------------------------------------------------------------------------------------------- text


def as_table(rows: Sequence[Sequence[Any]], headers: Sequence[str]) -> str:
    """A plain table: the first column and `meaning` on the left, the others on the right."""
    from tabulate import tabulate

    align = ["left" if name in (headers[0], "meaning") else "right" for name in headers]
    return str(tabulate(rows, headers, tablefmt="plain", colalign=align, disable_numparse=True))


def shown(value: float | int | None) -> str:
    """A score or a count as text."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def as_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report as text."""
    classes = report["classes"]
    detection = report["detection"]
    many = len(classes) > 1
    columns = [*(["all"] if many else []), *classes][:_SHOWN]

    def value(part: Mapping[str, Any], column: str, name: str) -> str:
        return shown(part[name] if column == "all" and many else part["per_class"][column].get(name))

    yield f"{report['pipeline']} against {report['truth']}: {report['frames']:,} frames, {detection['truth']:,} objects"
    yield ""
    names = ["ap", "ap50", "precision", "recall", "truth", "hits", "missed", "false"]
    rows = [[_TITLES.get(n, n), *(value(detection, c, n) for c in columns)] for n in names]
    yield as_table(rows, ["detection", *columns])
    yield ""
    if report["tracking"] is None:
        yield f"tracking is not measured: {report['tracking_missing']}"
    else:
        names = [*TRACKS, "switches", "fragments"]
        rows = [[_TITLES.get(n, n), *(value(report["tracking"], c, n) for c in columns)] for n in names]
        yield as_table(rows, ["tracking", *columns])
    yield ""
    yield from _count_lines(report)
    yield from _miss_lines(report, columns)
    yield from _track_lines(report)
    yield from _speed_lines(report["speed"])
    for note in report["notes"]:
        yield f"note: {note}"


def _count_lines(report: Mapping[str, Any]) -> Iterator[str]:
    counts = report["counts"]
    if counts is None:
        yield f"counts are not measured: {report['counts_missing']}"
        yield ""
        return
    rows = [[as_text(row), row["label"], row["found"], row["truth"], f"{row['error']:+d}"] for row in counts["rows"]]
    yield as_table(rows, ["counts", "class", "found", "truth", "error"])
    for error in counts["errors"][:_SHOWN]:
        whom = f"object {error['track_id']}" if error["kind"] == "missed" else f"track {error['track_id']}"
        where = f"{error['source']} frame {error['frame']}"
        yield f"  {error['kind']}: {error['what']}, {error['label']}, {where}, {whom}: {error['why']}"
    yield from _more(counts["errors"])
    yield ""


def _miss_lines(report: Mapping[str, Any], columns: Sequence[str]) -> Iterator[str]:
    causes = report["misses"]["causes"]
    if not causes:
        yield "no object is missed"
    else:
        rows = [[name, *(counts.get(c, 0) for c in columns), CAUSES[name]] for name, counts in causes.items()]
        yield as_table(rows, ["why objects are missed, or not tracked", *columns, "meaning"])
    for text in report["misses"]["suggestions"]:
        yield f"  {text}"
    yield ""


def _track_lines(report: Mapping[str, Any]) -> Iterator[str]:
    errors = report["track_errors"]
    if not errors:
        return
    yield "tracks that go wrong"
    worst = [error for error in errors if error["kind"] == "switch"] or errors
    for error in worst[:_SHOWN]:
        frames = f"{error['lost']} frame{'s' * (error['lost'] != 1)}"
        lost = f", after {frames} without a track" if error["lost"] else ""
        what = (
            f"track {error['before']} to {error['after']}" if error["kind"] == "switch" else f"track {error['after']}"
        )
        where = f"{error['source']} frame {error['frame']}, {error['label']} {error['id']}"
        yield f"  {error['kind']}: {where}: {what}{lost}"
    yield from _more(worst)
    yield ""


def _more(rows: Sequence[Any]) -> Iterator[str]:
    if len(rows) > _SHOWN:
        yield f"  and {len(rows) - _SHOWN:,} more, in --json"


def _speed_lines(speed: Mapping[str, Any]) -> Iterator[str]:
    rate = f"{speed['fps']:.1f} frames/s" if speed["fps"] else "no rate"
    yield f"speed: {rate} on {speed['device']}, without the outputs, and with the evaluation itself"
    stages = ", ".join(f"{name} {ms:.2f}" for name, ms in speed["ms_per_frame"].items())
    yield f"milliseconds per frame: {stages}; evaluation {speed['evaluation_ms_per_frame']:.2f}"
    latency = speed["latency"]
    if latency is None:
        yield "latency is not measured: the first source cannot be played as a camera"
        return
    late = (
        f"; {latency['dropped']:,} dropped, since the pipeline is slower than the source" if latency["dropped"] else ""
    )
    times = ", ".join(f"p{q} {latency[f'p{q}_ms']:.0f} ms" for q in (50, 95, 99))
    yield f"latency: {times}, over {latency['frames']:,} frames of {latency['source']} at the speed of a camera{late}"


def compared(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Two reports side by side, with differences."""
    for letter, report in zip("AB", reports, strict=True):
        options = "".join(f" --set {name}={value}" for name, value in report["set"].items())
        yield f"{letter}: {report['pipeline']}{options}"
    yield ""
    rows = [
        [title, shown(a), shown(b), _difference(a, b)]
        for title, (a, b) in _pairs(reports)
        if (a or 0, b or 0) != (0, 0)
    ]
    yield as_table(rows, ["", "A", "B", "B - A"])
    for note in dict.fromkeys(note for report in reports for note in report["notes"]):
        yield f"note: {note}"


def _pairs(reports: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """The name and both values of everything that is compared."""
    labels = list(dict.fromkeys(label for report in reports for label in report["classes"]))
    each = [f"{name}.{label}" for name in ("ap", "precision", "recall", "idf1") for label in labels if len(labels) > 1]
    for name in [*METRICS, *each]:
        base, _, label = name.partition(".")
        title = " ".join(filter(None, (_TITLES.get(base, base), label)))
        yield title, [metric(report, name) if label in ("", *report["classes"]) else None for report in reports]
    for q in (50, 95, 99):
        yield f"latency p{q} ms", [(report["speed"]["latency"] or {}).get(f"p{q}_ms") for report in reports]
    for name in ("switches", "fragments"):
        yield name, [None if report["tracking"] is None else report["tracking"][name] for report in reports]
    for cause in CAUSES:
        yield f"missed: {cause}", [report["misses"]["causes"].get(cause, {}).get("all", 0) for report in reports]


def _difference(a: Any, b: Any) -> str:
    if a is None or b is None:
        return ""
    return f"{b - a:+d}" if isinstance(b, int) else f"{b - a:+.3f}"
