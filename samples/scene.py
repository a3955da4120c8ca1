"""The plan of a street scene: camera, who moves where and when, and the exact boxes that follow from it.

The world is flat: X meters to the right, Z meters away from a raised camera that looks along Z. Every street line
keeps the same small angle to the picture, Z = z0 + slope * X, so that an object's size changes as it goes.
`plan(seed)` is deterministic, and keeps these promises for every seed (it draws a new plan until they hold):

- at least 8 objects, of the three classes `sprites.CLASSES`;
- at least 3 occlusions: two boxes with IoU above 0.5 for half a second or more (`occlusions`);
- longer box sides from at most 14 pixels to at least 180, none much over 200 (at 640 x 360; they scale with the width);
- cars pass both ways, and people cross the street both ways.

A plan is made in blocks of 16 seconds; a shorter scene is the beginning of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from samples.sprites import CLASSES, Look, Part, distinct_look, random_look, sprite

COLORS = {
    "red": (176, 36, 42),
    "white": (228, 228, 226),
    "black": (32, 34, 40),
    "gray": (126, 131, 132),
    "blue": (34, 72, 138),
    "yellow": (212, 182, 56),
    "green": (45, 112, 76),
    "orange": (196, 104, 46),
    "silver": (188, 200, 206),
    "purple": (110, 50, 98),
    "azure": (110, 160, 200),
}
"""Colors that words name."""

BLOCK_S = 16.0
NEAR = 1.0  # meters before the camera: nothing nearer is drawn


@dataclass(frozen=True)
class Camera:
    """A level camera `lift` meters above the street; `focal`, `horizon` and the picture's size in pixels.

    It stands above the ground point (`x`, `z`) and looks `yaw` radians to the right of Z.
    """

    width: int
    height: int
    focal: float
    lift: float
    horizon: float
    x: float = 0.0
    z: float = 0.0
    yaw: float = 0.0

    def sideways(self, x: float, z: float) -> tuple[float, float]:
        """How far a ground vector goes to the camera's right, and away from it."""
        cos = math.cos(self.yaw)
        sin = math.sin(self.yaw)
        return x * cos - z * sin, x * sin + z * cos

    def depth(self, x: float, z: float) -> float:
        """How far a ground point lies before the camera, in meters; negative behind it."""
        return self.sideways(x - self.x, z - self.z)[1]

    def project(self, x: float, z: float) -> tuple[float, float, float]:
        """The picture point (x, y) of a ground point before the camera, and the pixels a meter has there."""
        right, depth = self.sideways(x - self.x, z - self.z)
        scale = self.focal / depth
        return self.width / 2 + right * scale, self.horizon + self.lift * scale, scale

    def ground(self) -> list[list[float]]:
        """The homography from the picture to the ground: (x, y, 1) to (X, Z, 1), up to scale, as three rows."""
        cos = math.cos(self.yaw)
        sin = math.sin(self.yaw)
        # depth = focal * lift / (y - horizon), right = (x - width / 2) * lift / (y - horizon)
        right = [self.lift, 0.0, -self.lift * self.width / 2]
        depth = [0.0, 0.0, self.focal * self.lift]
        below = [0.0, 1.0, -self.horizon]
        x = [a * cos + b * sin + self.x * c for a, b, c in zip(right, depth, below, strict=True)]
        z = [b * cos - a * sin + self.z * c for a, b, c in zip(right, depth, below, strict=True)]
        return [x, z, below]

    def reach(self, z: float) -> float:
        """How many meters left and right of the middle are in the picture at depth z."""
        return z * self.width / (2 * self.focal)


@dataclass
class Actor:
    """One moving object: its looks and its ground point (X, Z) in every frame, (frames, 2) meters."""

    look: Look
    ground: np.ndarray
    id: int = 0
    traveled: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._step = np.diff(self.ground, axis=0, prepend=2 * self.ground[:1] - self.ground[1:2])
        self.traveled = np.cumsum(np.hypot(self._step[:, 0], self._step[:, 1]))
        self._poses: dict[float, tuple[np.ndarray, np.ndarray]] = {}

    def pose(self, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
        """The turn of the sprite and the side it faces, 1 or -1, in every frame as the camera sees it."""
        if camera.yaw not in self._poses:
            kernel = np.ones(9) / 9  # turning takes a third of a second
            dx, dz = (np.convolve(np.pad(s, 4, mode="edge"), kernel, "valid") for s in self._step.T)
            right, away = camera.sideways(dx, dz)
            facing = np.where(right < -1e-6, -1.0, 1.0)
            for i in np.flatnonzero(np.abs(right) <= 1e-6):  # who stands still keeps looking where it looked
                facing[i] = facing[i - 1] if i else 1.0
            self._poses[camera.yaw] = away / np.maximum(np.hypot(right, away), 1e-9), facing
        return self._poses[camera.yaw]

    def outline(self, i: int, camera: Camera) -> tuple[list[Part], np.ndarray]:
        """The parts in frame i, and all their points in picture coordinates, (n, 2), in the order of the parts."""
        turn, facing = self.pose(camera)
        parts = sprite(self.look, float(self.traveled[i]), float(turn[i]))
        x, y, scale = camera.project(*self.ground[i])
        points = np.concatenate([c for part in parts for c in part.contours])
        return parts, points * (scale * facing[i], -scale) + (x, y)


@dataclass
class Scene:
    """A planned scene; `lines` are the depths (meters at X = 0) of the street's edges, from near to far.

    `view` is the number of its camera: each has its own light and noise.
    """

    seed: int
    camera: Camera
    fps: float
    frames: int
    slope: float
    zebra: float
    lines: dict[str, float]
    actors: list[Actor]
    view: int = 0

    def objects(self, i: int) -> list[dict]:
        """The objects of frame i, without `visible`: id, label, class_id and the whole box clipped to the picture."""
        frame_objects = []
        limit = np.array([self.camera.width, self.camera.height] * 2, float)
        for actor in self.actors:
            if self.camera.depth(*actor.ground[i]) < NEAR:
                continue
            x, _, scale = self.camera.project(*actor.ground[i])
            if not -3 * scale < x < self.camera.width + 3 * scale:
                continue  # nothing is longer than 6 m
            _, points = actor.outline(i, self.camera)
            box = np.clip(np.concatenate([points.min(0), points.max(0)]), 0, limit)
            if box[2] - box[0] >= 1 and box[3] - box[1] >= 1:
                frame_objects.append(
                    {
                        "id": actor.id,
                        "label": actor.look.kind,
                        "class_id": CLASSES.index(actor.look.kind),
                        "box": [round(float(v), 2) for v in box],
                    }
                )
        return frame_objects


def plan(
    seed: int, seconds: float = BLOCK_S, fps: float = 25.0, size: tuple[int, int] = (640, 360), check: bool = True
) -> Scene:
    """Plan the scene of one seed. The promises hold from 15 seconds on; `check=False` takes the first draft."""
    for attempt in range(200):
        scene = _plan(np.random.default_rng([seed, attempt]), seed, seconds, fps, size)
        if not check or _keeps_promises(scene):
            return scene
    raise RuntimeError(f"no plan found for seed {seed}")


def views(
    seed: int, seconds: float = BLOCK_S, fps: float = 12.5, size: tuple[int, int] = (640, 360)
) -> dict[str, Scene]:
    """The scene of one seed from two cameras that face each other across the street, by the camera's name.

    Both see the zebra crossing and the pavements beside it. No two objects of a class look the same.
    """
    scene = plan(seed, seconds, fps, size)
    rng = np.random.default_rng([seed, 1 << 21])
    actors: list[Actor] = []
    for actor in scene.actors:
        others = [other.look for other in actors if other.look.kind == actor.look.kind]
        actors.append(Actor(distinct_look(actor.look, others, rng), actor.ground, actor.id))
    here = replace(scene, actors=actors)
    across = replace(
        scene.camera,
        lift=float(rng.uniform(4.8, 5.6)),
        x=scene.zebra + float(rng.uniform(-3, 3)),
        z=23.5,
        yaw=math.pi + float(rng.uniform(-0.2, 0.2)),
    )
    return {"north": here, "south": replace(here, camera=across, view=1)}


def occlusions(
    frames: Iterable[dict], fps: float, iou: float = 0.5, seconds: float = 0.5
) -> list[tuple[int, int, int, int]]:
    """Every (id, id, first frame, last frame) during which two boxes keep an IoU above `iou` for `seconds` or more."""
    running: dict[tuple[int, int], list[int]] = {}
    done = []
    for frame in frames:
        ids = [o["id"] for o in frame["objects"]]
        boxes = np.array([o["box"] for o in frame["objects"]], float).reshape(-1, 4)
        a, b = np.nonzero(np.triu(box_iou(boxes, boxes) > iou, 1))
        now = {(min(ids[p], ids[q]), max(ids[p], ids[q])) for p, q in zip(a, b, strict=True)}
        for pair in now:
            running.setdefault(pair, [frame["frame"]] * 2)[1] = frame["frame"]
        done += [(*pair, *running.pop(pair)) for pair in list(running) if pair not in now]
    done += [(*pair, *span) for pair, span in running.items()]
    return [d for d in sorted(done, key=lambda d: d[2]) if d[3] - d[2] + 1 >= seconds * fps]


def box_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of every box of a (n, 4) with every box of b (m, 4), as (n, m); boxes are x1, y1, x2, y2."""
    side = np.clip(np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2]), 0, None)
    inter = side[..., 0] * side[..., 1]
    area = [(box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) for box in (a, b)]
    return inter / np.maximum(area[0][:, None] + area[1][None] - inter, 1e-9)


def _keeps_promises(scene: Scene) -> bool:
    step = 3  # every third frame shows what half a second holds
    length = scene.frames if scene.frames >= 15 * scene.fps else len(scene.actors[0].ground)
    frames = [{"frame": i // step, "objects": scene.objects(i)} for i in range(0, length, step)]
    unit = scene.camera.width / 640
    sides = [
        max(o["box"][2] - o["box"][0], o["box"][3] - o["box"][1]) / unit
        for f in frames
        for o in f["objects"]
        if o["box"][0] > 0 and o["box"][2] < scene.camera.width and o["box"][3] < scene.camera.height
    ]
    seen = {(o["id"], o["label"]) for f in frames for o in f["objects"]}
    whole = [s for s in sides if s >= 12]
    return (
        len(seen) >= 8
        and {label for _, label in seen} == set(CLASSES)
        and min(whole) <= 14
        and 180 <= max(sides) <= 212
        and len(occlusions(frames, scene.fps / step, 0.52, 0.64)) >= 3
    )


def _plan(rng: np.random.Generator, seed: int, seconds: float, fps: float, size: tuple[int, int]) -> Scene:
    width, height = size
    unit = width / 640
    lift = float(rng.uniform(4.75, 5.35))
    horizon = float(rng.uniform(52, 72)) * height / 360
    camera = Camera(width, height, 300 * unit, lift, horizon)
    slope = float(rng.uniform(-0.07, 0.07))
    zebra = float(rng.uniform(-3.0, 3.0))
    lines = {
        "kerb": 5.9,
        "middle": 9.0,
        "far_kerb": 12.3,
        "park": 15.6,
        "path": 19.6,
        "path_end": 23.2,
        "far_road": 28.4,
        "far_road_end": 34.4,
        "houses": 42.5,
    }
    blocks = math.ceil(max(seconds, BLOCK_S) / BLOCK_S)
    clock = np.arange(round(blocks * BLOCK_S * fps)) / fps
    actors = [actor for b in range(blocks) for actor in _block(rng, clock - b * BLOCK_S, camera, slope, zebra)]
    order = rng.permutation(len(actors))
    actors = [actors[i] for i in order]
    for i, actor in enumerate(actors, 1):
        actor.id = i
    return Scene(seed, camera, fps, round(seconds * fps), slope, zebra, lines, actors)


def _block(rng: np.random.Generator, t: np.ndarray, camera: Camera, slope: float, zebra: float) -> Iterator[Actor]:
    """The traffic of 16 seconds; `t` (frames,) is the time since the block's start."""
    u = rng.uniform

    def lane(
        look: Look, z: float, way: int, speed: float, at: float, x: float, stop: tuple[float, float] | None = None
    ) -> Actor:
        """Along the street at depth z, being at X = x at time `at`; `stop`: stands there from, until."""
        if stop is None:
            distance = speed * (t - at)
        else:  # brake in 2.4 s, go again in 3 s
            g = 1 - np.clip((t - stop[0] + 2.4) / 2.4, 0, 1) + np.clip((t - stop[1]) / 3.0, 0, 1)
            distance = np.cumsum(speed * g) * (t[1] - t[0])
            distance -= np.interp(stop[0] + 0.1, t, distance)
        xs = x + way * distance
        return Actor(look, np.stack([xs, z + slope * xs], 1))

    def pair(
        kind: str, z: tuple[float, float], way: int, speed: float, slip: float, style: int | None = None
    ) -> Iterator[Actor]:
        """Two of a kind going the same way, one slowly overtaking the other, in front of or behind it."""
        at = u(3.5, 12.0)
        where = u(-0.5, 0.5)
        for depth, extra in zip(z, rng.permutation([slip, -slip]), strict=True):
            x = where * camera.reach(depth) / (1 - slope * where * camera.reach(1.0))
            real = depth + slope * x
            yield lane(random_look(kind, rng, style), depth, way, (speed + extra / 2) * real / z[0], at, x)

    def walk(points: list[tuple[float, float]], speed: float, at: float, corner: int) -> Actor:
        """Along a line of ground points, being at points[corner] at time `at`."""
        p = np.array(points)
        p[:, 1] += slope * p[:, 0]
        far = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(p, axis=0).T))])
        s = far[corner] + speed * (t - at)
        return Actor(random_look("person", rng), np.stack([np.interp(s, far, p[:, 0]), np.interp(s, far, p[:, 1])], 1))

    way = lambda: int(rng.choice([-1, 1]))  # noqa: E731
    green = u(5.0, 6.2)  # when people start to cross; cars keep out for 7 s
    car = lambda style=None: random_look("car", rng, style)  # noqa: E731
    yield lane(car(), 7.35, 1, u(6, 8), u(0.6, 1.6), zebra)
    yield lane(car(1), 7.35, 1, u(6, 8), 0, zebra - 4.6, (green, green + 6.6))
    yield lane(car(), 10.7, -1, u(6.5, 9), u(0.5, 1.5), zebra)
    if rng.random() < 0.6:
        yield lane(car(), 10.7, -1, u(6, 8), 0, zebra + 4.7, (green + 0.4, green + 6.9))
    else:
        yield lane(car(), 10.7, -1, u(6, 9), u(3.0, 3.6), zebra)
        yield lane(car(), 10.7, -1, u(6, 9), green + u(7.6, 9), zebra)
    far_way = way()
    yield from pair("car", (30.2, 32.5), far_way, u(7.5, 9), u(1.2, 1.8), int(rng.choice([0, 1, 3])))
    for shift in (-u(3.8, 5), u(4.2, 5.5)):  # one before, one behind, at their own times
        yield lane(car(), float(rng.choice([30.2, 32.5])), far_way, u(8, 9), 8 + shift * 1.7, u(-12, 12))

    side = u(2.0, 6.0)
    for n in range(3):  # across the street: two one way, one the other
        x = zebra + u(-1.1, 1.1)
        start = green + u(0.2, 0.9)
        points = [(x + way() * 30, u(12.8, 13.4)), (x, u(12.8, 13.2)), (x + u(-0.3, 0.3), 5.55), (x + way() * 12, 5.5)]
        if n == 2:
            yield walk(points[::-1], u(1.35, 1.55), start, 1)
        else:
            yield walk(points, u(1.35, 1.55), start, 1)
    front = u(13.6, 14.1)
    yield from pair("person", (front, front + u(0.65, 0.8)), way(), u(1.0, 1.3), u(0.20, 0.30))
    yield lane(random_look("person", rng), u(5.45, 5.6), way(), u(1.1, 1.5), u(3, 13), u(-3, 3))
    for z in (u(16.2, 18), u(24, 27), u(36, 38.5), 39.6):
        yield lane(random_look("person", rng), z, way(), u(0.9, 1.5), 8, u(-0.6, 0.6) * camera.reach(z))

    bike = lambda: random_look("bike", rng)  # noqa: E731
    path = u(20.3, 20.9)
    yield from pair("bike", (path, path + u(0.9, 1.1)), way(), u(3.4, 4.4), u(0.5, 0.7))
    yield lane(bike(), 6.15, 1, u(4, 5.5), u(2.6, 3.4), zebra)
    yield lane(bike(), 12.0, -1, u(4, 5.5), float(rng.choice([u(1, 3), green + u(8, 9.5)])), zebra)
    if side > 3:
        yield lane(bike(), 28.9, far_way, u(4, 6), 8 + u(-4, 4), u(-10, 10))
    yield lane(bike(), u(21.9, 22.6), way(), u(3, 5), u(2, 14), u(-6, 6))
