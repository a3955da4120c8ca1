"""Speed of rules: many rules on many sources, in batches with one frame of each source.

    python benchmarks/rules.py [--rules 1000] [--sources 64] [--objects 20] [--batches 200]

One stage `rule` has all rules; a stage `zone` with eight areas precedes it. Three kinds are measured: rules that count
(a class, or a class in an area, with different thresholds, some with `for`, `clear` and `cooldown`), rules that each
count something else, and rules about objects. The output is the CPU time of a batch on one core in milliseconds, events
included: median and 95th percentile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamkit.analytics.per_source_steps import PositionOptions
from streamkit.core.data import Batch, Detections, Frame
from streamkit.rules.engine import RuleEngine
from streamkit.rules.rule import make_rule
from streamkit.rules.scope import Facts, Scope, ZoneScope

LABELS = ("person", "car", "truck", "bicycle")
AREAS = 8
_WIDTH = 1920
_HEIGHT = 1080

COUNTING = (
    "count({label}) > {n}",
    "count({label} in zone.a{area}) > {n} for 10s",
    "present({label}) and count({other} in zone.a{area}) >= {n}",
    "absent({label} in zone.a{area}) for {n}s",
    "occupancy(zone.a{area}) > {n} or count({label}) + count({other}) > {n} * 3",
)
DISTINCT = ("count({label} and score > 0.{i:04}) > {n} for 10s",)
OBJECTS = ("{label} and age_s > {n} and in_zone(zone.a{area})", '(class == "{label}" or score > 0.9{i}) and x1 < {n}0')
KINDS = {"counting": COUNTING, "distinct": DISTINCT, "objects": OBJECTS}


def above() -> Scope:
    """A stage `zone` with areas side by side, below a detector and a tracker."""
    step = _WIDTH / AREAS
    areas = {
        f"a{i}": ((i * step, 0.0), ((i + 1) * step, 0.0), ((i + 1) * step, 1080.0), (i * step, 1080.0))
        for i in range(AREAS)
    }
    return Scope(
        labels=LABELS, zones={"zone": ZoneScope(areas, view=PositionOptions())}, stages=("detect", "track", "zone")
    )


def engine(kind: str, n: int) -> RuleEngine:
    """An engine with `n` rules of a kind."""
    facts = Facts()
    seen = above()
    forms = KINDS[kind]
    rules = []
    for i in range(n):
        label = LABELS[i % 4]
        other = LABELS[(i + 1) % 4]
        values: dict[str, Any] = {"label": label, "other": other, "area": i % AREAS, "n": 1 + i % 23, "i": i}
        options: dict[str, Any] = {"when": forms[i % len(forms)].format(**values)}
        if kind == "counting" and i % 2:
            options |= {"clear": f"count({label}) < {i % 7}", "clear_for": 5.0, "cooldown": 60.0}
        rules.append(make_rule(f"r{i}", options, seen, facts))
    return RuleEngine(rules, seen, facts)


def batches(sources: int, objects: int, n: int) -> Iterator[Batch]:
    """Batches of one frame of each source, 25 per second, with moving objects."""
    rng = np.random.default_rng(1)
    place = rng.uniform((0, 0), (_WIDTH, _HEIGHT), (sources * objects, 2))
    speed = rng.normal(0, 2, place.shape)
    class_id = rng.integers(0, len(LABELS), len(place)).astype(np.int32)
    score = rng.uniform(0.3, 1, len(place)).astype(np.float32)
    row = np.repeat(np.arange(sources, dtype=np.int32), objects)
    track = np.tile(np.arange(objects), sources).astype(np.int64)
    for index in range(n):
        place = (place + speed) % (_WIDTH, _HEIGHT)
        boxes = np.concatenate([place, place + np.array([40, 90])], axis=1).astype(np.float32)
        frames = [Frame(f"s{i}", index, index * 0.04, _WIDTH, _HEIGHT) for i in range(sources)]
        table = Detections(boxes, score, class_id, row, track, LABELS)
        yield Batch(frames, tables={"detect": table})


def measure(kind: str, rules: int, sources: int, objects: int, n: int) -> tuple[list[float], int]:
    """Seconds that each batch took, without the first tenth, and the number of events."""
    rule_engine = engine(kind, rules)
    slots = {f"s{i}": i for i in range(sources)}
    for slot in slots.values():
        rule_engine.begin(slot)
    times_s = []
    events = 0
    for batch in batches(sources, objects, n):
        start_s = time.thread_time()
        events += sum(1 for _ in rule_engine.step(batch, slots))
        times_s.append(time.thread_time() - start_s)
    return times_s[n // 10 :], events


def main() -> None:
    """Measure and print every kind."""
    parser = argparse.ArgumentParser(description="Speed of rules.")
    for name, default in (("rules", 1000), ("sources", 64), ("objects", 20), ("batches", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    print(f"{args.rules} rules, {args.sources} sources, {args.objects} objects on each frame")
    for kind in KINDS:
        times_s, events = measure(kind, args.rules, args.sources, args.objects, args.batches)
        median_ms, p95_ms = np.percentile(times_s, [50, 95]) * 1e3
        print(f"{kind:<10} {median_ms:6.2f} ms per batch, 95th percentile {p95_ms:.2f} ms; {events} events")


if __name__ == "__main__":
    main()
