"""Draw the video of number plates that ships, with its truth and a picture for the documentation.

    python samples/draw_plates.py

Three plates of 14, 20 and 28 pixels height move over a ground; each is blurred and noisy in its own way on each frame.
`plates.truth.jsonl` has a record per frame with the box and the text of each plate.
"""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np

from samples.plates import PlateTrack

SIZE = 480, 270
FRAMES = 100
RATE = 25
PLATES = (("B-AB 1234", 28.0), ("HH-ZZ 99", 20.0), ("M-UC 508", 14.0))


def pictures() -> tuple[list[np.ndarray], list[dict]]:
    """The pictures, (h, w) uint8, and their records."""
    rng = np.random.default_rng(4)
    tracks = [PlateTrack(text, height, rng, SIZE) for text, height in PLATES]
    images = []
    records = []
    for n in range(FRAMES):
        picture = np.zeros((SIZE[1], SIZE[0]), np.uint8)
        objects = []
        band = SIZE[1] // len(tracks)
        for number, track in enumerate(tracks):
            y = (number + 0.5) * band
            track.ends[:] = [[90 + 60 * number, y - 8], [SIZE[0] - 90 - 40 * number, y + 8]]
            rows = slice(number * band, (number + 1) * band)
            picture[rows] = track.frame(n / (FRAMES - 1))[rows]
            box = np.concatenate([track.corners.min(0), track.corners.max(0)]).round(2).tolist()
            objects.append({"box": box, "score": 1.0, "class_id": 0, "label": "plate", "text": track.text})
        images.append(picture)
        records.append({"frame": n, "objects": objects})
    return images, records


def draw(folder: Path) -> None:
    """Write `plates.mp4` and `plates.truth.jsonl`."""
    images, records = pictures()
    with av.open(str(folder / "plates.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"crf": "26", "preset": "slow"})
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for picture in images:
            frame = av.VideoFrame.from_ndarray(np.repeat(picture[:, :, None], 3, 2), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "plates.truth.jsonl").write_text(lines)


if __name__ == "__main__":
    draw(Path(__file__).parent)
