"""Paints a planned scene: background once, then every frame's objects, light, shadows and sensor noise.

Each object is filled at several times the picture's resolution and averaged down, which gives its exact share of every
pixel. From these shares comes both the anti-aliased picture and the `visible` of the truth.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np

from samples.scene import NEAR, Actor, Camera, Scene
from samples.sprites import Part, disc, limb, shade

SHIFT = 6  # fractional bits of the coordinates given to OpenCV
HAZE = np.array([198, 206, 214], np.float32)


class Patch(NamedTuple):
    """A drawn object: corner in the picture, color times cover (h, w, 3) f32, cover (h, w) f32 in 0..1."""

    x: int
    y: int
    rgb: np.ndarray
    cover: np.ndarray


def fill(parts: list[Part], points: np.ndarray, distance: float) -> Patch:
    """Fill the parts of one object. `points`: all their points in the picture; `distance` in meters makes them hazy."""
    low = np.floor(points.min(0)).astype(int) - 1
    w, h = np.ceil(points.max(0)).astype(int) + 1 - low
    over = 6 if max(w, h) < 40 else 4 if max(w, h) < 100 else 2
    canvas = np.zeros((h * over, w * over, 3), np.uint8)
    fixed = np.rint(((points - low) * over - 0.5) * (1 << SHIFT)).astype(np.int32)
    at = 0
    for contours, color in parts:
        shapes = []
        for contour in contours:
            shapes.append(fixed[at : at + len(contour)])
            at += len(contour)
        cv2.fillPoly(canvas, shapes, [max(c, 2.0) for c in color], cv2.LINE_8, SHIFT)
    cover = cv2.resize((canvas[..., 0] > 0).astype(np.float32), (w, h), interpolation=cv2.INTER_AREA)
    rgb = cv2.resize(canvas, (w, h), interpolation=cv2.INTER_AREA).astype(np.float32)
    rgb *= np.linspace(1.10, 0.86, h, dtype=np.float32)[:, None, None]  # the sky lights from above
    haze = 1 - np.exp(-distance / 140)
    rgb += haze * (HAZE * cover[..., None] - rgb)
    return Patch(int(low[0]), int(low[1]), rgb, cover)


class Painter:
    """Draws the frames of one scene, in any order; the same frame is always the same picture."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.camera = scene.camera
        rng = np.random.default_rng([scene.seed, 1 << 20])
        self.ground = _background(scene, rng)
        self.still = _trees_and_lamps(scene, rng)
        h = scene.camera.height
        w = scene.camera.width
        self.noise = rng.normal(0, 1, (h + 64, w + 64, 1)) + 0.6 * rng.normal(0, 1, (h + 64, w + 64, 3))
        self.noise = (self.noise * rng.uniform(1.8, 4.2)).astype(np.float32)
        clouds = cv2.resize(rng.uniform(-1, 1, (4, 14)).astype(np.float32), (4 * w, h), interpolation=cv2.INTER_CUBIC)
        if scene.view:
            rng = np.random.default_rng([scene.seed, 1 << 20, scene.view])
        self.clouds = 1 + rng.uniform(0.08, 0.20) * clouds
        self.drift = float(rng.uniform(0.5, 2.5) * w / 640)
        self.beat = rng.uniform(7, 15)
        self.phase = rng.uniform(0, 6.28)
        self.swing = rng.uniform(0.05, 0.14)
        self.level = rng.uniform(0.72, 1.12)
        self.tint = rng.normal(0, 0.035, 3)
        self.sun = float(rng.uniform(-0.8, 0.8))
        self.dark = float(rng.uniform(0.25, 0.5))

    def frame(self, i: int) -> tuple[np.ndarray, list[dict]]:
        """Frame i as RGB (h, w, 3) uint8, and its objects with `visible`."""
        patches, objects = self._patches(i)
        picture = self.ground * (1 - self._shadows(i))[..., None]
        for patch in patches[::-1]:  # far to near
            y, x, part = self._inside(patch)
            if part is not None:
                region = picture[y, x]
                region *= 1 - patch.cover[part][..., None]
                region += patch.rgb[part]
        return self._expose(picture, i), objects

    def truth(self, i: int) -> list[dict]:
        """The objects of frame i with `visible`, without painting the picture."""
        return self._patches(i)[1]

    def _patches(self, i: int) -> tuple[list[Patch], list[dict]]:
        """Everything drawn in frame i, near to far, and the truth: what of each object the nearer things leave."""
        objects = {o["id"]: o for o in self.scene.objects(i)}
        actors = [a for a in self.scene.actors if a.id in objects]
        things: list[tuple[float, Actor | Patch]] = [(float(self.camera.depth(*a.ground[i])), a) for a in actors]
        left = np.ones((self.camera.height, self.camera.width), np.float32)
        patches = []
        for distance, thing in sorted(things + self.still, key=lambda item: item[0]):
            patch = thing if isinstance(thing, Patch) else fill(*thing.outline(i, self.camera), distance)
            y, x, part = self._inside(patch)
            seen = 0.0
            if part is not None:
                seen = float((left[y, x] * patch.cover[part]).sum())
                left[y, x] *= 1 - patch.cover[part]
            if isinstance(thing, Actor):
                objects[thing.id]["visible"] = round(seen / max(float(patch.cover.sum()), 1e-6), 3)
            patches.append(patch)
        return patches, list(objects.values())

    def _inside(self, patch: Patch) -> tuple[slice, slice, tuple[slice, slice] | None]:
        """The rows and columns of the picture that a patch covers, and the same area in the patch; None outside."""
        h, w = patch.cover.shape
        y0 = max(patch.y, 0)
        y1 = min(patch.y + h, self.camera.height)
        x0 = max(patch.x, 0)
        x1 = min(patch.x + w, self.camera.width)
        part = (slice(y0 - patch.y, y1 - patch.y), slice(x0 - patch.x, x1 - patch.x)) if y0 < y1 and x0 < x1 else None
        return slice(y0, y1), slice(x0, x1), part

    def _shadows(self, i: int) -> np.ndarray:
        """How dark the objects make the ground, (h, w) f32 in 0..1."""
        mask = np.zeros((self.camera.height, self.camera.width), np.uint8)
        for actor in self.scene.actors:
            depth = self.camera.depth(*actor.ground[i])
            if depth < NEAR:
                continue
            x, y, scale = self.camera.project(*actor.ground[i])
            if not -200 < x < self.camera.width + 200:
                continue
            car = actor.look.kind == "car"
            long = 0.53 * actor.look.size if car else 0.7 if actor.look.kind == "bike" else 0.26
            shift = self.sun * (0.5 if car else 0.7)
            flat = 0.85 * scale * self.camera.lift / max(depth, 1) * (0.8 if car else 0.25)
            spot = disc(x + shift * scale, y - 0.02 * scale, (long + abs(shift) * 0.6) * scale, max(flat, 0.6))
            cv2.fillPoly(mask, [np.rint(spot * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
        return cv2.GaussianBlur(mask, (5, 5), 1.2).astype(np.float32) * (self.dark / 255)

    def _expose(self, picture: np.ndarray, i: int) -> np.ndarray:
        """Apply the light of the moment and the sensor's noise."""
        h, w = picture.shape[:2]
        t = i / self.scene.fps
        wave = np.sin(2 * np.pi * t / self.beat + self.phase)
        gain = self.level * (1 + self.swing * wave) * (1 + self.tint + 0.02 * wave * np.array([1, 0, -1]))
        shift = int(t * 25 * self.drift) % (3 * w)
        picture *= self.clouds[:, shift : shift + w, None]
        picture *= gain.astype(np.float32)
        dy, dx = np.random.default_rng([self.scene.seed, i]).integers(0, 64, 2)
        picture += self.noise[dy : dy + h, dx : dx + w]
        return np.clip(picture + 0.5, 0, 255).astype(np.uint8)


def _background(scene: Scene, rng: np.random.Generator) -> np.ndarray:
    """The empty street, (h, w, 3) f32, painted at twice the size."""
    cam = scene.camera
    big = replace(cam, width=cam.width * 2, height=cam.height * 2, focal=cam.focal * 2, horizon=cam.horizon * 2)
    w = big.width
    h = big.height
    line = scene.lines
    sky = np.linspace(0, 1, h)[:, None, None] ** 0.5
    picture = np.ascontiguousarray(
        np.broadcast_to((np.array([126, 164, 206]) * (1 - sky) + np.array([224, 228, 230]) * sky), (h, w, 3)).astype(
            np.uint8
        )
    )

    def tone(color: tuple[int, int, int]) -> tuple[float, ...]:
        return tuple(float(c) for c in np.array(color) + rng.normal(0, 6) + rng.normal(0, 3, 3))

    def quad(points: list[tuple[float, float]], color: tuple[float, ...]) -> None:
        cv2.fillPoly(picture, [np.rint(np.array(points) * 64).astype(np.int32)], color, cv2.LINE_AA, SHIFT)

    cos = math.cos(big.yaw)
    sin = math.sin(big.yaw)

    def level(z: float, x: float) -> tuple[float, float]:  # the street line of depth z at picture column x
        column = (x - w / 2) / big.focal
        over = z - big.z + scene.slope * big.x  # of the camera: a line behind it, or below it, is moved before it
        over = max(over, NEAR) if cos > 0 else min(over, -NEAR)
        lean = cos - column * sin - scene.slope * (column * cos + sin)
        return x, big.horizon + big.lift * big.focal * lean / over

    def strip(near: float, far: float, color: tuple[float, ...]) -> None:
        quad([level(near, 0), level(near, w), level(far, w), level(far, 0)], color)

    def mark(x0: float, x1: float, z0: float, z1: float, color: tuple[float, ...]) -> None:
        corners = [(x, z + scene.slope * x) for x, z in ((x0, z0), (x1, z0), (x1, z1), (x0, z1))]  # z is that at X = 0
        if min(big.depth(*corner) for corner in corners) >= NEAR:
            quad([big.project(*corner)[:2] for corner in corners], color)

    paving = tone((164, 158, 150))
    road = tone((86, 87, 92))
    grass = tone((92, 124, 66))
    strip(1.5 if cos > 0 else -60.0, line["houses"] + 1, paving)
    strip(line["kerb"], line["far_kerb"], road)
    strip(line["park"], line["far_road"] - 1.2, grass)
    strip(line["path"], line["path_end"], tone((186, 168, 138)))
    strip(line["far_road"], line["far_road_end"], shade(road, 1.06))
    for z in (4.4, 5.0, 13.3, 14.2, 15.0):
        strip(z, z * 1.004, shade(paving, 0.88))
    for x in np.arange(-24, 24, 1.2):
        for near, far in ((3.6, line["kerb"]), (line["far_kerb"], line["park"])):
            mark(x, x + 0.03, near, far, shade(paving, 0.88))
    for z in (line["kerb"], line["far_kerb"], line["park"], line["far_road"], line["far_road_end"]):
        strip(z - 0.09, z + 0.09, shade(paving, 1.18))
        strip(z + 0.09, z + 0.13, shade(paving, 0.6))
    white = (214.0, 214.0, 208.0)
    for x in np.arange(-40, 40, 3.0):
        if abs(x - scene.zebra) > 3.6:
            mark(x, x + 1.5, line["middle"] - 0.06, line["middle"] + 0.06, white)
        mark(x * 2, x * 2 + 2, 31.35, 31.55, white)
    for z in np.arange(line["kerb"] + 0.4, line["far_kerb"] - 0.5, 0.95):
        mark(scene.zebra - 1.7, scene.zebra + 1.7, z, z + 0.5, white)
    for x in (scene.zebra - 2.3, scene.zebra + 2.2):
        mark(
            x,
            x + 0.22,
            *(
                (line["kerb"] + 0.2, line["middle"] - 0.1)
                if x < scene.zebra
                else (line["middle"] + 0.1, line["far_kerb"] - 0.2)
            ),
            white,
        )
    mark(scene.zebra + rng.uniform(4, 7), scene.zebra + 8, 7.0, 7.7, shade(road, 0.82))  # a mended patch
    _houses(quad, big, scene, rng)
    size = (cam.width, cam.height)
    picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    grain = rng.normal(0, 1, (cam.height, cam.width, 1)).astype(np.float32)
    blotch = cv2.resize(rng.normal(0, 1, (24, 40)).astype(np.float32), size, interpolation=cv2.INTER_CUBIC)
    rows = np.arange(cam.height, dtype=np.float32)[:, None, None] > cam.horizon * 1.45
    shadow = np.zeros((cam.height, cam.width), np.uint8)  # of a house behind the camera
    edge = rng.uniform(0.1, 0.9) * cam.width
    corners = [
        (edge, 400 * cam.height // 360),
        (edge + rng.uniform(-160, 160), cam.height * 0.45),
        (cam.width * 2, cam.height * 0.45),
        (cam.width * 2, cam.height * 2),
    ]
    cv2.fillPoly(shadow, [np.array(corners, np.int32)], 255)
    shade_map = 1 - rng.uniform(0.1, 0.35) * cv2.GaussianBlur(shadow, (0, 0), 5).astype(np.float32)[..., None] / 255
    return picture * np.where(rows, shade_map * (1 + 0.035 * grain + 0.03 * blotch[..., None]), 1)


def _houses(quad, big: Camera, scene: Scene, rng: np.random.Generator) -> None:
    """A row of house fronts along the far side, each with windows, a door and a shop's awning."""
    walls = [
        (172, 112, 88),
        (206, 190, 160),
        (150, 132, 120),
        (188, 172, 168),
        (120, 112, 112),
        (214, 204, 188),
        (164, 142, 104),
    ]
    z = scene.lines["houses"]
    x = -52.0

    def face(x0: float, x1: float, up0: float, up1: float, color: tuple[float, ...]) -> None:
        if min(big.depth(gx, z + scene.slope * gx) for gx in (x0, x1)) < NEAR:
            return
        points = []
        for gx, up in ((x0, up0), (x1, up0), (x1, up1), (x0, up1)):
            px, py, scale = big.project(gx, z + scene.slope * gx)
            points.append((px, py - up * scale))
        quad(points, color)

    while x < 52:
        wide = rng.uniform(7, 12)
        floors = int(rng.integers(2, 5))
        wall = tuple(float(c) for c in np.array(walls[rng.integers(len(walls))]) + rng.normal(0, 8, 3))
        top = 3.4 + 2.9 * floors
        face(x, x + wide, 0, top, wall)
        face(x, x + wide, top - 0.5, top, shade(wall, 0.78))
        face(x, x + 0.25, 0, top, shade(wall, 0.84))
        panes = max(int(wide / 2.4), 2)
        for floor in range(floors):
            for n in range(panes):
                at = x + (n + 0.5) * wide / panes
                up = 3.9 + 2.9 * floor
                face(at - 0.62, at + 0.62, up - 0.08, up + 1.85, shade(wall, 1.2))
                face(at - 0.5, at + 0.5, up, up + 1.75, (66, 78, 92) if rng.random() < 0.8 else (214, 190, 120))
        face(x + 0.8, x + wide - 0.8, 0.5, 2.6, (72, 84, 94))
        face(x + wide * 0.45, x + wide * 0.45 + 1.2, 0, 2.5, (70, 48, 38))
        face(x + 0.6, x + wide - 0.6, 2.5, 3.2, tuple(float(c) for c in rng.uniform(70, 190, 3)))
        x += wide


def _trees_and_lamps(scene: Scene, rng: np.random.Generator) -> list[tuple[float, Patch]]:
    """What stands in the way: (distance, patch) of every tree and lamp post."""
    still: list[tuple[float, Patch]] = []

    def put(parts: list[Part], x: float, z: float) -> None:
        at = x, z + scene.slope * x
        if (distance := scene.camera.depth(*at)) < NEAR:
            return
        px, py, scale = scene.camera.project(*at)
        points = np.concatenate([c for part in parts for c in part.contours]) * (scale, -scale) + (px, py)
        still.append((distance, fill(parts, points, distance)))

    def tree(tall: float) -> list[Part]:
        green = tuple(float(c) for c in np.array([70, 104, 50]) + rng.normal(0, 10, 3))
        parts = [Part((limb((0, 0), (0, tall * 0.6), 0.17, 0.10),), (88, 66, 48))]
        for n in range(46):
            a = rng.uniform(0, 6.28)
            d = rng.uniform(0, 1) ** 0.6
            x = tall * 0.26 * d * np.cos(a)
            y = tall * (0.70 + 0.26 * d * np.sin(a))
            leaves = disc(x, y, rng.uniform(0.25, 0.6))
            light = 0.62 + 0.012 * n + 0.25 * d * np.sin(a)
            parts.append(Part((leaves,), shade(green, light)))
        return parts

    lamp = [
        Part((limb((0, 0), (0, 4.6), 0.07, 0.045),), (52, 56, 60)),
        Part((limb((0, 4.6), (0.9, 4.75), 0.05),), (52, 56, 60)),
        Part((limb((0.6, 4.70), (1.05, 4.74), 0.09),), (206, 206, 196)),
    ]
    for x in np.array([-9.0, 6.0]) + rng.uniform(-1.5, 1.5, 2):
        put(lamp, x, 12.75)
    for x in rng.permutation([-19.0, -11.0, -3.0, 6.0, 14.0])[:3] + rng.uniform(-2, 2, 3):
        put(tree(rng.uniform(4.6, 6.2)), x, rng.uniform(24.2, 26.8))
    small = tree(rng.uniform(4, 5))
    beside = float(rng.choice([-1, 1]) * rng.uniform(9, 14))
    put(small, beside, rng.uniform(16.2, 18.6))
    return still
