"""Synthetic tracks, and plain reference counts by loops over tracks and frames."""

import itertools
import math
from fractions import Fraction

from streamkit.testing.kit import detections, frames, run_stage


def walk(tracks, *, source="test", times=None, step_s=0.04, width=640, height=360, label="person"):
    """Return frames of a source with each track's foot point at the given places; None means not seen.

    `tracks` maps a track's number to its places, one a frame; `times` are the frames' times in seconds.
    """
    n = max(map(len, tracks.values()), default=0)
    walk_frames = frames(n, source, step_s=step_s, width=width, height=height)
    for i, frame in enumerate(walk_frames):
        if times is not None:
            frame.pts_s = times[i]
        here = {t: places[i] for t, places in tracks.items() if i < len(places) and places[i] is not None}
        boxes = [[x - 4, y - 20, x + 4, y] for x, y in here.values()]
        names = [label if isinstance(label, str) else label[t] for t in here]
        every = (label,) if isinstance(label, str) else tuple(dict.fromkeys(label.values()))
        frame.detections = detections(boxes, track_id=list(here), label=names, labels=every)
    return walk_frames


def stage_events(stage, input_frames, batch=4):
    """Return the events of a stage in frame order: (frame, kind, track, data)."""
    processed = run_stage(stage, input_frames, batch=batch)
    return [(e.frame, e.kind, e.track_id, e.data) for frame in processed for e in frame.events]


def changing(stage, at, **options):
    """Return a stage whose options change before frame number `at`, as in a running pipeline."""
    update, seen = stage.update, itertools.count()

    def changed_first(step):
        if next(seen) == at:
            for name, value in options.items():
                setattr(stage, name, value)
            stage.changed()
        return update(step)

    stage.update = changed_first
    return stage


_LITTLE = Fraction(1, 2**300)


def moved(p):
    """Move a place slightly, so that it lies on no line or corner."""
    return Fraction(p[0]) + _LITTLE, Fraction(p[1]) + _LITTLE**2


def right_of(a, b, p):
    """Return whether p is right of the line from a to b, exactly."""
    (ax, ay), (bx, by), (px, py) = ([Fraction(v) for v in point] for point in (a, b, p))
    return (bx - ax) * (py - ay) > (by - ay) * (px - ax)


def gap(p, a, b):
    """Return the distance of p from the segment ab."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    share = min(1, max(0, ((p[0] - a[0]) * dx + (p[1] - a[1]) * dy) / (dx * dx + dy * dy)))
    return math.hypot(p[0] - a[0] - share * dx, p[1] - a[1] - share * dy)


def passes(line, p, q):
    """Return the passes of the step from p to q over a line's segments: 1 from left to right, -1 from right to left."""
    directions = []
    p, q = moved(p), moved(q)
    for a, b in itertools.pairwise(line):
        before, after = right_of(a, b, p), right_of(a, b, q)
        if before != after and right_of(p, q, a) != right_of(p, q, b):
            directions.append(1 if after else -1)
    return directions


def crossings(line, places, times, *, margin, debounce=0.0, track_ttl=10.0):
    """Return (frame, direction) of a track's crossings, as defined in docs/analytics.md."""
    crossed = []
    last = None
    seen = None
    net = 0
    armed = False
    far = None
    for i, (p, t) in enumerate(zip(places, times, strict=True)):
        if p is None:
            continue
        if last is None or t - seen > track_ttl:
            net = 0
            armed = False
            far = None
        else:
            step = passes(line, last, p)
            net += sum(step)
            far = None if step else far
        last, seen = p, t
        if min(gap(p, a, b) for a, b in itertools.pairwise(line)) < margin:
            far = None
        elif not armed:
            armed, net = True, 0
        elif net:
            far = t if far is None else far
            if t - far >= debounce:
                crossed.append((i, 1 if net > 0 else -1))
                net = 0
    return crossed


def inside(area, p):
    """Return whether p is in a polygon: a ray from the left passes its edges an odd number of times."""
    x, y = moved(p)
    odd = False
    for (ax, ay), (bx, by) in zip(area, [*area[1:], area[0]], strict=True):
        ax, ay, bx, by = map(Fraction, (ax, ay, bx, by))
        if (ay < y) != (by < y) and x > ax + (y - ay) * (bx - ax) / (by - ay):
            odd = not odd
    return odd


def stays(area, places, times, *, margin, debounce=0.0, track_ttl=2.0):
    """Return (entered, left, lost) in seconds of a track's stays; the last may have no end (None)."""
    intervals = []
    is_in = False
    since = None
    seen = None
    for p, t in zip(places, times, strict=True):
        if seen is not None and t - seen > track_ttl:
            if is_in:
                intervals[-1] = (intervals[-1][0], seen, True)
            is_in = False
            since = None
            seen = None
        if p is None:
            continue
        seen, now = t, inside(area, p)
        if is_in and not now:
            now = min(gap(p, a, b) for a, b in zip(area, [*area[1:], area[0]], strict=True)) < margin
        if now == is_in:
            since = None
            continue
        since = t if since is None else since
        if t - since >= debounce:
            if now:
                intervals.append((since, None, False))
            else:
                intervals[-1] = (intervals[-1][0], since, False)
            is_in, since = now, None
    return intervals


def scene(seed, step=1):
    """Return the true objects of a drawn street as frames, boxes of each track by frame, and labels by track."""
    from samples.scene import plan

    plan_ = plan(seed, seconds=16, check=False)
    tracks = {}
    labels = {}
    scene_frames = frames(plan_.frames // step, f"street {seed}", step_s=step / plan_.fps)
    for i, frame in enumerate(scene_frames):
        objects = plan_.objects(i * step)
        names = [entry["label"] for entry in objects]
        every = ("car", "person", "bike")
        frame.detections = detections(
            [entry["box"] for entry in objects], track_id=[entry["id"] for entry in objects], label=names, labels=every
        )
        for entry, box in zip(objects, frame.detections.xyxy.tolist(), strict=True):
            tracks.setdefault(entry["id"], [None] * len(scene_frames))[i] = box
            labels[entry["id"]] = entry["label"]
    return scene_frames, tracks, labels


def feet(boxes, width=640, height=360):
    """Return the foot points of boxes by frame."""
    return [
        None if box is None else (
            min(max((min(max(box[0], 0), width) + min(max(box[2], 0), width)) / 2, 0.5), width - 0.5),
            min(max(min(max(box[3], 0), height), 0.5), height - 0.5),
        )
        for box in boxes
    ]  # fmt: skip
