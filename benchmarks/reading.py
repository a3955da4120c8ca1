"""Accuracy of `read` on drawn number plates, by height: whole tracks and single readings.

    python benchmarks/reading.py --model plates --tracks 50

Each track is a plate that moves for 2 s at 25 frames/s, with its own blur and noise on each frame. A track counts as
right if the last text is exactly the plate's. Prints the rows of a table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samples.plates import PlateTrack, random_text
from streamkit.core.data import Frame
from streamkit.core.units import Of
from streamkit.models.derive import open_model
from streamkit.stages.inference import read
from streamkit.testing.kit import detections, frames, run_stage

PATTERN = "A{1,3} A{1,2} 9{1,4}"
SECONDS = 2.0


@dataclass
class Score:
    """Results of the tracks of one height.

    Attributes:
        exact: share of tracks whose last text is right.
        reported: share of tracks with an event.
        wrong: number of events with a wrong text.
        single: share of single readings that are right, after normalization and repair.
        calls: runs of the network per track and second.
    """

    exact: float
    reported: float
    wrong: int
    single: float
    calls: float


def film(text: str, height: float, rng: np.random.Generator, fps: float = 25.0, corners: bool = True) -> list[Frame]:
    """Draw a track of 2 s, with its box and, if wanted, its corners as a rotated box."""
    high = int(2.6 * height) // 2 * 2 + 20
    track = PlateTrack(text, height, rng, (int(7 * height) // 2 * 2 + 40, high))
    film_frames = []
    for n in range(int(SECONDS * fps)):
        picture = track.frame(n / (SECONDS * fps - 1))
        (frame,) = frames(1, pixels=np.repeat(picture[:, :, None], 3, 2), start=n, step_s=1 / fps)
        box = np.concatenate([track.corners.min(0), track.corners.max(0)])
        extra = {"corners": track.corners[None].astype(np.float32)} if corners else {}
        frame.detections = detections([box], track_id=[1], label=["plate"], **extra)
        film_frames.append(frame)
    return film_frames


def score(
    card: Any,
    height: float,
    tracks: int,
    seed: int,
    *,
    fps: float = 25.0,
    corners: bool = True,
    batch: int = 1,
    **options: Any,
) -> Score:
    """Read that many tracks of plates of one height."""
    rng = np.random.default_rng(seed)
    readings = list[str]()
    single = 0
    exact = 0
    reported = 0
    wrong = 0

    class Read(read.Read):
        def _text(self, best: np.ndarray) -> tuple[str, Sequence[float], float]:
            text, scores, margin = super()._text(best)
            readings.append(text)
            return text, scores, margin

    for _ in range(tracks):
        text = random_text(rng)
        plain = text.replace("-", "").replace(" ", "")
        first = len(readings)
        stage = Read(model=card, of=Of("detect"), **{"pattern": PATTERN, **options})
        done = run_stage(stage, film(text, height, rng, fps, corners), batch=batch, stage_id="plate")
        attributes = done[-1].detections.extra["attributes"][0]
        exact += attributes is not None and attributes["plate"]["label"] == plain
        events = [event for frame in done for event in frame.events]
        reported += bool(events)
        wrong += sum(event.data["value"] != plain for event in events)
        single += sum(reading == plain for reading in readings[first:])
    calls = len(readings)
    return Score(exact / tracks, reported / tracks, wrong, single / max(1, calls), calls / tracks / SECONDS)


def main() -> None:
    """Print a row for each height."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="plates")
    parser.add_argument("--tracks", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heights", default="12,14,16,20,28,40")
    parser.add_argument("--box", action="store_true", help="cut boxes, not corners")
    options = parser.parse_args()
    card = open_model(options.model)
    print(
        "| height | single readings | tracks | network runs per track and second | wrong events |\n"
        + "| --- " * 5
        + "|"
    )
    for height in map(float, options.heights.split(",")):
        scores = score(card, height, options.tracks, options.seed, corners=not options.box)
        cells = (
            f"{height:g} px",
            f"{scores.single:.3f}",
            f"{scores.exact:.3f}",
            f"{scores.calls:.2f}",
            str(scores.wrong),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
