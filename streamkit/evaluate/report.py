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
    "ap": "AP", "ap50": "AP50", "ap75": "AP75", "ap_small": "AP small", "ap_medium": "AP medium",
    "ap_large": "AP large", "hota": "HOTA", "deta": "DetA", "assa": "AssA", "mota": "MOTA", "idf1": "IDF1",
    "counts": "counts", "fps": "frames/s",
}  # fmt: skip
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
    mine = seen.found[seen.found.class_id < seen.classes]
    own = replace(seen, found=mine)
    matches = match(seen.truth, mine, seen.frames, classes)
    tracker = bool((mine.track_id >= 0).any())
    why = "" if truth.tracked and tracker else _no_tracks(seen, truth)
    misses = attribute(own, matches, tracked=not why)
    wrong = [] if why else track_errors(seen.truth, mine, seen.frames, classes)
    counts, count_why = _counts(own, truth, classes, misses, wrong)
    report = {
        "schema": "streamkit-eval/1",
        "pipeline": pipeline,
        "set": dict(set_),
        "truth": truth.options.path,
        "frames": len(seen.frames),
        "classes": list(classes),
        "detection": _detection(own, matches, classes),
        "tracking": None if why else tracking_scores(seen.truth, mine, seen.frames, classes),
        "tracking_missing": why or None,
        "counts": counts,
        "counts_missing": count_why or None,
        "misses": {
            "causes": _cause_table(seen, misses), "objects": [_miss(seen, one) for one in misses],
            "suggestions": suggestions(own, misses),
        },
        "track_errors": [_track_error(seen, one) for one in wrong],
        "speed": _speed(seen.report, latency),
        "notes": [*seen.notes, *fit, *([f"{seen.failed:,} frames failed and are left out"] if seen.failed else [])],
    }  # fmt: skip
    return Evaluation(report, own, matches)


def _no_tracks(seen: Observations, truth: Truth) -> str:
    if not truth.tracked:
        return "the truth has no ids"
    tracker = any("track_id" in node.writes for node in seen.graph.nodes.values())
    return "no object has a track" if tracker else "the pipeline has no tracks; add the stage track"


def _detection(seen: Observations, matches: Matches, classes: Sequence[str]) -> dict[str, Any]:
    low = seen.low if seen.has_low else seen.found
    ran = np.zeros(len(seen.frames), bool)
    ran[seen.inferred] = True
    number = np.cumsum(ran) - 1

    def only(boxes: FlatBoxes) -> FlatBoxes:
        kept = boxes[ran[boxes.frame] & (boxes.class_id < seen.classes)]
        kept.frame = number[kept.frame]
        return kept

    frames = [one for one, here in zip(seen.frames, ran, strict=True) if here]
    precise = average_precision(only(seen.truth), only(low), frames, classes)
    chosen = rates(seen.truth, seen.found, matches, classes)
    each = {name: {**precise["per_class"][name], **chosen["per_class"][name]} for name in classes}
    return {**precise, **chosen, "per_class": each}


def _counts(
    seen: Observations, truth: Truth, classes: Sequence[str], misses: Sequence[Miss], wrong: Sequence[TrackError]
) -> tuple[dict[str, Any] | None, str]:  # fmt: skip
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
    explained = [asdict(replace(one, why=_why(seen, one, misses, wrong))) for one in errors]
    return {"rows": rows, "errors": explained, "accuracy": max(0.0, 1 - off / there) if there else None}, ""


def _why(seen: Observations, error: CountError, misses: Sequence[Miss], wrong: Sequence[TrackError]) -> str:
    """What happened to the object of a count that is missing, around its event."""
    if error.kind == "extra" or error.track_id is None:
        return "no such event in the truth within a second"
    places = [number for number, frame in enumerate(seen.frames) if frame.source == error.source]
    at = next((number for number in places if seen.frames[number].index == error.frame), -1_000)
    around = {number for number in places if abs(number - at) <= 25}  # objects of other sources have the same ids
    lost = Counter(
        one.cause for one in misses
        if seen.truth.track_id[one.row] == error.track_id and int(seen.truth.frame[one.row]) in around
    )  # fmt: skip
    switched = [one for one in wrong if one.object_id == error.track_id and one.frame in around]
    if switched:
        frame = seen.frames[switched[0].frame].index
        return f"{switched[0].kind} at frame {frame}: track {switched[0].before} to {switched[0].after}"
    if lost:
        cause, times = lost.most_common(1)[0]
        return f"missed in {times} of the 51 frames around it: {cause}"
    return "tracked, but its box is on the other side, or too short on this one"


def _cause_table(seen: Observations, misses: Sequence[Miss]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for cause in CAUSES:
        mine = [one for one in misses if one.cause == cause]
        each = Counter(seen.names[seen.truth.class_id[one.row]] for one in mine)
        if mine:
            found[cause] = {"all": len(mine), **each}
    return dict(sorted(found.items(), key=lambda item: -item[1]["all"]))


def _miss(seen: Observations, one: Miss) -> dict[str, Any]:
    frame = seen.frames[seen.truth.frame[one.row]]
    track = int(seen.truth.track_id[one.row])
    return {
        "source": frame.source, "frame": frame.index, "label": seen.names[seen.truth.class_id[one.row]],
        "box": [round(value, 2) for value in seen.truth.xyxy[one.row].tolist()], "id": None if track < 0 else track,
        "cause": one.cause, "score": None if one.score is None else round(one.score, 4),
    }  # fmt: skip


def _track_error(seen: Observations, one: TrackError) -> dict[str, Any]:
    frame = seen.frames[one.frame]
    return {
        "kind": one.kind, "source": frame.source, "frame": frame.index, "label": seen.names[one.class_id],
        "id": one.object_id, "before": one.before, "after": one.after, "lost": one.lost,
    }  # fmt: skip


def _speed(report: Mapping[str, Any], latency: Mapping[str, Any] | None) -> dict[str, Any]:
    """Speed of the run, and latency; the stages that evaluation adds are apart."""
    stages = {name: one for name, one in report["stages"].items() if one["frames"]}
    own = {name for name in stages if "evaluate." in name}
    ms = {name: round(1000 * one["seconds"] / one["frames"], 3) for name, one in stages.items()}
    return {
        "device": report["device"], "fps": report["frames_per_s"], "seconds": report["seconds"],
        "latency": None if latency is None else dict(latency),
        "ms_per_frame": {name: value for name, value in ms.items() if name not in own},
        "evaluation_ms_per_frame": round(sum(ms[name] for name in own), 3),
    }  # fmt: skip


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
    classes, found = report["classes"], report["detection"]
    many = len(classes) > 1
    columns = [*(["all"] if many else []), *classes][:_SHOWN]

    def value(part: Mapping[str, Any], column: str, name: str) -> str:
        return shown(part[name] if column == "all" and many else part["per_class"][column].get(name))

    yield f"{report['pipeline']} against {report['truth']}: {report['frames']:,} frames, {found['truth']:,} objects"
    yield ""
    names = ["ap", "ap50", "precision", "recall", "truth", "hits", "missed", "false"]
    rows = [[_TITLES.get(n, n), *(value(found, c, n) for c in columns)] for n in names]
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
    for one in counts["errors"][:_SHOWN]:
        whom = f"object {one['track_id']}" if one["kind"] == "missed" else f"track {one['track_id']}"
        where = f"{one['source']} frame {one['frame']}"
        yield f"  {one['kind']}: {one['what']}, {one['label']}, {where}, {whom}: {one['why']}"
    yield from _more(counts["errors"])
    yield ""


def _miss_lines(report: Mapping[str, Any], columns: Sequence[str]) -> Iterator[str]:
    causes = report["misses"]["causes"]
    if not causes:
        yield "no object is missed"
    else:
        rows = [[name, *(one.get(c, 0) for c in columns), CAUSES[name]] for name, one in causes.items()]
        yield as_table(rows, ["why objects are missed, or not tracked", *columns, "meaning"])
    for text in report["misses"]["suggestions"]:
        yield f"  {text}"
    yield ""


def _track_lines(report: Mapping[str, Any]) -> Iterator[str]:
    errors = report["track_errors"]
    if not errors:
        return
    yield "tracks that go wrong"
    worst = [one for one in errors if one["kind"] == "switch"] or errors
    for one in worst[:_SHOWN]:
        frames = f"{one['lost']} frame{'s' * (one['lost'] != 1)}"
        lost = f", after {frames} without a track" if one["lost"] else ""
        what = f"track {one['before']} to {one['after']}" if one["kind"] == "switch" else f"track {one['after']}"
        yield f"  {one['kind']}: {one['source']} frame {one['frame']}, {one['label']} {one['id']}: {what}{lost}"
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
    one = speed["latency"]
    if one is None:
        yield "latency is not measured: the first source cannot be played as a camera"
        return
    late = f"; {one['dropped']:,} dropped, since the pipeline is slower than the source" if one["dropped"] else ""
    times = ", ".join(f"p{q} {one[f'p{q}_ms']:.0f} ms" for q in (50, 95, 99))
    yield f"latency: {times}, over {one['frames']:,} frames of {one['source']} at the speed of a camera{late}"


def compared(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Two reports side by side, with differences."""
    for letter, one in zip("AB", reports, strict=True):
        options = "".join(f" --set {name}={value}" for name, value in one["set"].items())
        yield f"{letter}: {one['pipeline']}{options}"
    yield ""
    rows = [
        [title, shown(a), shown(b), _difference(a, b)]
        for title, (a, b) in _pairs(reports)
        if (a or 0, b or 0) != (0, 0)
    ]
    yield as_table(rows, ["", "A", "B", "B - A"])
    for note in dict.fromkeys(note for one in reports for note in one["notes"]):
        yield f"note: {note}"


def _pairs(reports: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """The name and both values of everything that is compared."""
    labels = list(dict.fromkeys(label for one in reports for label in one["classes"]))
    each = [f"{name}.{label}" for name in ("ap", "precision", "recall", "idf1") for label in labels if len(labels) > 1]
    for name in [*METRICS, *each]:
        base, _, label = name.partition(".")
        title = " ".join(filter(None, (_TITLES.get(base, base), label)))
        yield title, [metric(one, name) if label in ("", *one["classes"]) else None for one in reports]
    for q in (50, 95, 99):
        yield f"latency p{q} ms", [(one["speed"]["latency"] or {}).get(f"p{q}_ms") for one in reports]
    for name in ("switches", "fragments"):
        yield name, [None if one["tracking"] is None else one["tracking"][name] for one in reports]
    for cause in CAUSES:
        yield f"missed: {cause}", [one["misses"]["causes"].get(cause, {}).get("all", 0) for one in reports]


def _difference(a: Any, b: Any) -> str:
    if a is None or b is None:
        return ""
    return f"{b - a:+d}" if isinstance(b, int) else f"{b - a:+.3f}"
