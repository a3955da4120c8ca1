"""What moves in the street, as flat colored polygons in meters.

A sprite is a list of `Part`s, back to front. Coordinates are (right, up) in meters with the origin on the ground
under the object's middle; everything faces right and is mirrored by the caller. A part with two contours has a hole
(even-odd rule). Colors are RGB, 0 to 255.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

Color = tuple[float, float, float]
CLASSES = ("car", "person", "bike")

_TURN = np.linspace(0, 2 * np.pi, 20, endpoint=False)
_CIRCLE = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1)
_HALF = np.stack([np.cos(np.linspace(0, np.pi, 7)), np.sin(np.linspace(0, np.pi, 7))], axis=1)

SKIN = [(236, 188, 150), (198, 140, 100), (141, 92, 62), (224, 172, 130), (92, 60, 44)]
HAIR = [(36, 28, 24), (92, 60, 36), (150, 110, 60), (120, 120, 122), (60, 34, 30)]
CLOTH = [
    (178, 44, 48),
    (38, 70, 140),
    (230, 196, 70),
    (46, 120, 78),
    (236, 236, 232),
    (34, 36, 44),
    (128, 64, 130),
    (222, 120, 50),
    (110, 160, 200),
    (120, 124, 118),
]
TROUSERS = [(40, 50, 84), (36, 36, 40), (108, 96, 78), (84, 88, 96), (150, 140, 120)]
PAINT = [
    (176, 28, 36),
    (226, 226, 224),
    (32, 34, 38),
    (130, 136, 142),
    (30, 72, 136),
    (196, 166, 40),
    (44, 104, 74),
    (150, 84, 40),
    (188, 200, 206),
    (88, 30, 60),
]
TYRE = (26, 26, 28)
GLASS = (58, 76, 92)
CHROME = (176, 180, 184)


class Part(NamedTuple):
    """One filled shape: contours of (n, 2) meters and an RGB color."""

    contours: tuple[np.ndarray, ...]
    color: Color


@dataclass(frozen=True)
class Look:
    """What tells one object from the next of its class. `size`: a person's height or a car's length in meters."""

    kind: str
    size: float
    colors: tuple[Color, ...]
    style: int = 0
    phase: float = field(default=0.0)


def random_look(kind: str, rng: np.random.Generator, style: int | None = None) -> Look:
    """Choose the looks of one object of class `kind`; `style` is a car's body: 0 hatchback, 1 saloon, 2 van, 3 SUV."""

    def pick(table: list[tuple[int, int, int]]) -> Color:
        color = np.array(table[rng.integers(len(table))]) + rng.normal(0, 9, 3)
        return tuple(float(c) for c in np.clip(color, 4, 250))  # type: ignore[return-value]

    phase = float(rng.uniform(0, 6.28))
    if kind == "car":
        style = int(rng.integers(4)) if style is None else style
        size = (3.9, 4.5, 4.75, 4.4)[style] * rng.uniform(0.98, 1.02)
        return Look(kind, float(size), (pick(PAINT),), style, phase)
    size = float(rng.uniform(1.62, 1.88))
    colors = (pick(CLOTH), pick(TROUSERS), pick(SKIN), pick(HAIR), pick(CLOTH))
    return Look(kind, size, colors, int(rng.integers(4)), phase)


def distinct_look(look: Look, others: list[Look], rng: np.random.Generator, tries: int = 60) -> Look:
    """The look with other colors where most of it is shown, as different as possible from others of its class."""
    shown = 1 if look.kind == "car" else 2
    taken = np.array([other.colors[:shown] for other in others]).reshape(-1, 1, shown, 3)
    candidates = rng.uniform(15, 245, (tries, shown, 3))
    nearest = np.linalg.norm(taken - candidates, axis=(2, 3)).min(axis=0, initial=np.inf)
    colors = tuple(tuple(float(c) for c in color) for color in candidates[nearest.argmax()])
    return replace(look, colors=(*colors, *look.colors[shown:]))  # type: ignore[arg-type]


def sprite(look: Look, traveled: float, turn: float = 0.0) -> list[Part]:
    """The parts of an object after `traveled` meters; `turn` 0 is seen from the side, 1 walks away, -1 to us."""
    if look.kind == "car":
        return _car(look, traveled)
    return _person(look, traveled, turn) if look.kind == "person" else _bike(look, traveled)


def shade(color: Color, by: float) -> Color:
    """The color made lighter (by > 1) or darker."""
    return tuple(float(min(c * by, 255.0)) for c in color)  # type: ignore[return-value]


def disc(x: float, y: float, rx: float, ry: float | None = None) -> np.ndarray:
    """An ellipse's outline, (20, 2)."""
    return _CIRCLE * (rx, rx if ry is None else ry) + (x, y)


def limb(a: tuple[float, float], b: tuple[float, float], ra: float, rb: float | None = None) -> np.ndarray:
    """A round-ended bar from a to b, of radius `ra` at a and `rb` at b, (14, 2)."""
    rb = ra if rb is None else rb
    dx = b[0] - a[0]
    dy = b[1] - a[1]
    n = max(float(np.hypot(dx, dy)), 1e-6)
    # the half circle starts at right angles to the bar
    c = dy / n
    s = -dx / n
    turn = np.array([[c, s], [-s, c]])
    return np.concatenate([_HALF @ turn * rb + b, -_HALF @ turn * ra + a])


def rounded(points: list[tuple[float, float]], times: int = 2) -> np.ndarray:
    """A polygon with its corners cut off (Chaikin), (n * 2**times, 2)."""
    p = np.array(points, float)
    for _ in range(times):
        q = np.roll(p, -1, axis=0)
        p = np.stack([0.78 * p + 0.22 * q, 0.22 * p + 0.78 * q], axis=1).reshape(-1, 2)
    return p


def _knee(hip: tuple[float, float], foot: tuple[float, float], bone: float) -> tuple[float, float]:
    """The joint of two bones of equal length between two points, bent forwards (to the right)."""
    dx = foot[0] - hip[0]
    dy = foot[1] - hip[1]
    d = max(float(np.hypot(dx, dy)), 1e-6)
    bend = max(bone * bone - d * d / 4, 0.0) ** 0.5
    return (hip[0] + foot[0]) / 2 - dy / d * bend, (hip[1] + foot[1]) / 2 + dx / d * bend


def _person(look: Look, traveled: float, turn: float) -> list[Part]:
    h = look.size
    top, legs, skin, hair, bag = look.colors
    away = turn > 0.5
    turn = abs(turn)
    step = traveled / (0.8 * h) * 2 * np.pi + look.phase
    side = 1 - 0.8 * turn
    parts = []
    hip = (0.0, 0.50 * h)
    neck = (0.03 * h * side, 0.80 * h)
    wide = (0.085 + 0.035 * turn) * h

    def leg(angle: float, tone: float, apart: float) -> None:
        foot = (0.20 * h * np.sin(angle) * side + apart, max(0.06 * h * np.cos(angle), 0) + 0.03 * h)
        start = (hip[0] + apart * 0.6, hip[1])
        knee = _knee(start, foot, 0.248 * h) if turn < 0.5 else ((start[0] + foot[0]) / 2, (start[1] + foot[1]) / 2)
        parts.append(Part((limb(start, knee, 0.055 * h, 0.042 * h),), shade(legs, tone)))
        parts.append(Part((limb(knee, foot, 0.042 * h, 0.03 * h),), shade(legs, tone * 0.95)))
        parts.append(
            Part(
                (
                    limb(
                        (foot[0] - 0.02 * h, foot[1] - 0.008 * h),
                        (foot[0] + 0.065 * h * side, foot[1] - 0.010 * h),
                        0.02 * h,
                    ),
                ),
                (36, 30, 28),
            )
        )

    def arm(angle: float, tone: float, apart: float) -> None:
        start = (neck[0] + apart, 0.775 * h)
        elbow = (start[0] + 0.09 * h * np.sin(angle) * side + apart * 0.3, start[1] - 0.15 * h)
        hand = (elbow[0] + (0.11 * np.sin(angle) + 0.03) * h * side, elbow[1] - 0.13 * h)
        parts.append(Part((limb(start, elbow, 0.036 * h, 0.03 * h),), shade(top, tone)))
        parts.append(Part((limb(elbow, hand, 0.03 * h, 0.02 * h),), shade(top if look.style % 2 else skin, tone)))

    apart = 0.05 * h * turn
    arm(step, 0.66, 0.10 * h * turn)
    leg(step + np.pi, 0.72, -apart)
    if look.style == 1:
        sack = [(-0.17 * h, 0.56 * h), (-0.16 * h, 0.79 * h), (0, 0.80 * h), (0, 0.55 * h)]
        parts.append(Part((rounded(sack),), bag))
    leg(step, 1.0, apart)
    if look.style == 2:  # a coat down to the knee
        coat = [(-wide * 1.25, 0.34 * h), (-wide, 0.60 * h), (wide, 0.60 * h), (wide * 1.3, 0.34 * h)]
        parts.append(Part((rounded(coat, 1),), shade(top, 0.86)))
    parts.append(Part((limb(neck, (neck[0] + 0.012 * h, 0.86 * h), 0.035 * h),), shade(skin, 0.8)))
    parts.append(Part((limb(hip, neck, wide, wide * 0.95),), top))
    lit = limb((hip[0] + wide * 0.35, hip[1]), (neck[0] + wide * 0.4, neck[1]), wide * 0.45)
    parts.append(Part((lit,), shade(top, 1.16)))
    head = (neck[0] + 0.02 * h * side, 0.925 * h)
    parts.append(Part((disc(head[0] - 0.012 * h * side, head[1] + 0.012 * h, 0.062 * h, 0.063 * h),), hair))
    if not away:
        parts.append(Part((disc(head[0] + 0.012 * h * side, head[1] - 0.008 * h, 0.05 * h, 0.058 * h),), skin))
    arm(step + np.pi, 1.0, -0.10 * h * turn)
    return parts


def _bike(look: Look, traveled: float) -> list[Part]:
    h = look.size
    top, legs, skin, hair, paint = look.colors
    k = h / 1.75
    r = 0.34
    parts = []
    spin = traveled / r

    def wheel(x: float) -> None:
        parts.append(Part((disc(x, r, r), disc(x, r, r * 0.80)), TYRE))
        for i in range(3):
            a = -spin + i * np.pi / 3
            c = 0.8 * r * np.cos(a)
            s = 0.8 * r * np.sin(a)
            parts.append(Part((limb((x - c, r - s), (x + c, r + s), 0.011),), CHROME))

    def tube(a: tuple[float, float], b: tuple[float, float], radius: float = 0.028) -> None:
        parts.append(Part((limb(a, b, radius),), paint))

    rear = (-0.53, r)
    front = (0.53, r)
    crank = (-0.06, 0.30)
    seat = (-0.22, 0.86)
    bar = (0.36, 0.98)
    hip = (-0.21, 0.94 * k)
    shoulder = (0.10, 1.40 * k)

    def leg(angle: float, tone: float) -> None:
        pedal = (crank[0] + 0.17 * np.cos(angle), crank[1] + 0.17 * np.sin(angle))
        knee = _knee(hip, pedal, 0.44 * k)
        parts.append(Part((limb(hip, knee, 0.092, 0.072),), shade(legs, tone)))
        parts.append(Part((limb(knee, pedal, 0.068, 0.048),), shade(legs, tone * 0.95)))
        shoe = limb((pedal[0] - 0.05, pedal[1]), (pedal[0] + 0.12, pedal[1] + 0.01), 0.036)
        parts.append(Part((shoe,), (40, 34, 32)))

    turn = -traveled / 1.1 + look.phase
    leg(turn + np.pi, 0.66)
    wheel(rear[0])
    wheel(front[0])
    for a, b in (
        (rear, crank),
        (rear, (-0.19, 0.76)),
        (crank, seat),
        (crank, (0.32, 0.74)),
        ((-0.19, 0.74), (0.31, 0.80)),
        (front, bar),
    ):
        tube(a, b)
    parts.append(Part((limb((-0.32, 0.88), (-0.14, 0.88), 0.035),), TYRE))
    leg(turn, 1.0)
    parts.append(Part((limb(hip, shoulder, 0.125, 0.135),), top))
    lit = limb((hip[0] + 0.03, hip[1] + 0.09), (shoulder[0] - 0.01, shoulder[1] + 0.05), 0.06)
    parts.append(Part((lit,), shade(top, 1.16)))
    head = (shoulder[0] + 0.10, shoulder[1] + 0.23)
    parts.append(Part((limb(shoulder, head, 0.055),), shade(skin, 0.8)))
    parts.append(Part((disc(head[0], head[1], 0.10, 0.115),), skin))
    cap = paint if look.style % 2 else hair
    parts.append(Part((_HALF * 0.125 + (head[0] - 0.01, head[1] + 0.02),), cap))
    elbow = (shoulder[0] + 0.12, shoulder[1] - 0.26)
    parts.append(Part((limb((shoulder[0] + 0.02, shoulder[1] - 0.02), elbow, 0.062, 0.05),), shade(top, 0.9)))
    parts.append(Part((limb(elbow, bar, 0.05, 0.036),), skin))
    return parts


# Outlines at length 1 and height in meters: body, and the glass in it.
_BODIES = (
    (
        [
            (-0.50, 0.28),
            (-0.50, 0.78),
            (-0.485, 0.95),
            (-0.40, 1.38),
            (-0.30, 1.47),
            (0.05, 1.47),
            (0.22, 1.02),
            (0.42, 0.90),
            (0.49, 0.74),
            (0.50, 0.30),
        ],
        [
            [(-0.41, 0.97), (-0.355, 1.34), (-0.16, 1.37), (-0.16, 0.97)],
            [(-0.13, 0.97), (-0.13, 1.37), (0.04, 1.37), (0.175, 0.97)],
        ],
    ),
    (
        [
            (-0.50, 0.30),
            (-0.50, 0.80),
            (-0.48, 0.96),
            (-0.34, 1.00),
            (-0.20, 1.42),
            (0.04, 1.44),
            (0.21, 0.98),
            (0.43, 0.87),
            (0.495, 0.70),
            (0.50, 0.30),
        ],
        [
            [(-0.30, 0.99), (-0.185, 1.34), (-0.07, 1.36), (-0.07, 0.98)],
            [(-0.045, 0.98), (-0.045, 1.36), (0.03, 1.35), (0.165, 0.97)],
        ],
    ),
    (
        [
            (-0.50, 0.30),
            (-0.50, 1.20),
            (-0.485, 1.90),
            (-0.44, 1.98),
            (0.18, 1.98),
            (0.34, 1.18),
            (0.47, 0.98),
            (0.50, 0.74),
            (0.50, 0.30),
        ],
        [[(0.075, 1.14), (0.075, 1.78), (0.17, 1.78), (0.295, 1.14)]],
    ),
    (
        [
            (-0.50, 0.36),
            (-0.50, 0.95),
            (-0.48, 1.20),
            (-0.44, 1.66),
            (-0.36, 1.72),
            (0.06, 1.72),
            (0.20, 1.18),
            (0.43, 1.08),
            (0.49, 0.90),
            (0.50, 0.38),
        ],
        [
            [(-0.43, 1.16), (-0.40, 1.56), (-0.18, 1.60), (-0.18, 1.15)],
            [(-0.15, 1.15), (-0.15, 1.60), (0.03, 1.60), (0.155, 1.15)],
        ],
    ),
)


def _car(look: Look, traveled: float) -> list[Part]:
    size = look.size
    paint = look.colors[0]
    outline, windows = _BODIES[look.style]
    stretch = lambda points: rounded([(x * size, y) for x, y in points])  # noqa: E731
    body = stretch(outline)
    r = 0.35 if look.style == 3 else 0.32
    roof = max(y for _, y in outline)
    under = rounded([(-0.47 * size, 0.16), (-0.47 * size, 0.5), (0.47 * size, 0.5), (0.47 * size, 0.16)], 1)
    parts = [Part((under,), (24, 24, 26)), Part((body,), paint)]
    parts.append(Part((body[body[:, 1] > roof - 0.12],), shade(paint, 1.28)))
    parts.append(Part((np.stack([body[:, 0], np.clip(body[:, 1], 0, 0.50)], 1),), shade(paint, 0.62)))
    belt = 0.74
    parts.append(Part((limb((-0.485 * size, belt), (0.475 * size, belt - 0.03), 0.022),), shade(paint, 1.3)))
    for window in windows:
        glass = stretch(window)
        parts.append(Part((glass,), GLASS))
        parts.append(Part((glass[glass[:, 1] > glass[:, 1].mean() + 0.12],), (116, 140, 158)))
    for x in (-0.02, -0.20) if look.style != 2 else (0.05, -0.22):
        parts.append(Part((limb((x * size, 0.42), (x * size, 0.93), 0.012),), shade(paint, 0.55)))
        parts.append(Part((limb((x * size - 0.22, 0.86), (x * size - 0.10, 0.86), 0.02),), shade(paint, 0.5)))
    parts.append(Part((limb((0.455 * size, 0.70), (0.482 * size, 0.66), 0.065),), (250, 244, 214)))
    parts.append(Part((limb((-0.487 * size, 0.80), (-0.487 * size, 0.70), 0.05),), (206, 30, 34)))
    for x in (-0.31 * size, 0.32 * size):
        parts.append(Part((disc(x, r + 0.03, r + 0.07),), (20, 20, 22)))
        parts.append(Part((disc(x, r, r),), TYRE))
        parts.append(Part((disc(x, r, r * 0.64),), CHROME))
        for i in range(5):
            a = -traveled / r + i * 2 * np.pi / 5
            spoke = limb((x, r), (x + 0.58 * r * np.cos(a), r + 0.58 * r * np.sin(a)), 0.028)
            parts.append(Part((spoke,), (96, 98, 102)))
        parts.append(Part((disc(x, r, r * 0.16),), (60, 60, 64)))
    return parts
