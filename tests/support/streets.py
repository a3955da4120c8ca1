"""People who walk on synthetic streets, and simulated detections of them."""

import numpy as np


def street(kind, seed, people=8, seconds=8, fps=25):
    """Return ids and boxes of people on a street of 960x540, by frame.

    They walk across each other; `stopping`, they stand and walk on, or back; `turning`, they change their way all of a
    sudden; `hidden`, three pillars, each wider than a person, stand before them.
    """
    rng = np.random.default_rng(seed)
    height = rng.uniform(60, 140, people)
    size = np.stack([height * rng.uniform(0.35, 0.5, people), height], axis=1)
    foot = np.stack([rng.uniform(0, 960, people), rng.uniform(200, 480, people)], axis=1)
    speed = rng.uniform(0.4, 1.4, people) * height * rng.choice([-1, 1], people)
    velocity = np.stack([speed, rng.uniform(-0.2, 0.2, people) * height], axis=1)
    rest = np.zeros(people)  # seconds for which each stands
    truth = []
    for _ in range(seconds * fps):
        if kind == "stopping":
            stops = (rest <= 0) & (rng.random(people) < 1 / (1.5 * fps))
            rest = np.where(stops, rng.uniform(0.3, 2, people), rest - 1 / fps)
            velocity[stops, 0] *= rng.choice([-1, 1], stops.sum())
        elif kind == "turning":
            turns = rng.random(people) < 1 / (1.2 * fps)
            velocity[turns] = rng.uniform(-1.6, 1.6, (turns.sum(), 2)) * height[turns, None] * [1, 0.4]
        foot = foot + np.where(rest[:, None] > 0, 0, velocity) / fps
        beyond = (foot < [0, 150]) | (foot > [960, 530])
        velocity = np.where(beyond, -velocity, velocity)
        foot = np.clip(foot, [0, 150], [960, 530])
        boxes = np.concatenate([foot - size * [0.5, 1], foot + size * [0.5, 0]], axis=1)
        truth.append((np.arange(people), np.clip(boxes, 0, [960, 540, 960, 540])))
    return truth


def behind_pillars(rows):
    """Drop detections that are mostly hidden by one of three pillars."""
    center = rows[:, 2] + rows[:, 4] / 2
    hidden = (np.abs(center[:, None] - [200, 480, 760]) < 45).any(axis=1)
    return rows[~hidden]


def seen_by_a_detector(truth, seed):
    """Rows of a MOTChallenge file, as a detector would give them of true ones: 3 % are missed, the others lie beside by
    2.5 % of their size, more where something is in front, and their score is about the share that is not hidden."""
    rng = np.random.default_rng(seed)
    rows = []
    for frame, (_, boxes) in enumerate(truth, 1):
        size = boxes[:, 2:] - boxes[:, :2]
        grid = boxes[:, None, :2] + size[:, None] * (np.stack(np.mgrid[:20, :20], -1).reshape(1, -1, 2) + 0.5) / 20
        inside = ((grid[:, :, None] > boxes[:, :2]) & (grid[:, :, None] < boxes[:, 2:])).all(-1)  # (n, 400, n)
        visible = 1 - (inside & (boxes[:, 3] > boxes[:, 3:])[:, None]).any(-1).mean(-1)
        score = np.clip(visible * rng.uniform(0.85, 1.05, len(boxes)), 0, 0.99)
        shaken = boxes + rng.normal(0, 1, boxes.shape) * np.tile(size, 2) * 0.025 * (3 - 2 * visible[:, None])
        for box, sure in zip(shaken, score, strict=True):
            if sure > 0.12 and rng.random() > 0.03:
                rows.append((frame, -1, *box[:2], *(box[2:] - box[:2]), sure))
    return np.array(rows)
