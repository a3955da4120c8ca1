"""Draw a synthetic street scene, with its exact truth.

    python samples/draw_street.py                                       # the scene that ships: seed 7
    python samples/draw_street.py --seed 8 --out my.mp4 --truth my.truth.jsonl --seconds 20 --size 1280x720
    python samples/draw_street.py --views --out samples/crossing.mp4    # crossing-north and crossing-south ship

With `--views`, two cameras that face each other across the street film the same scene. Each gets a film, a truth in
which an object has the same `id` as in the other one, and NAME.ground.txt, the homography from its picture to the
ground in meters, three rows of three numbers.

The truth has one line a frame:

    {"frame": 12, "pts_s": 0.48, "objects": [
        {"id": 3, "label": "car", "class_id": 0, "box": [x1, y1, x2, y2], "visible": 0.87}, ...]}

`id` is stable over the scene. `box` is the object's whole extent in pixels, also what is hidden, clipped to the
picture. `visible` is the share of the object's whole area that is inside the picture and not hidden by something
nearer (other objects, trees, lamp posts). Everything that reaches into the picture is listed, also when it is fully
hidden.

For scoring (see `score.py`) an object is *ignored*, neither hit nor miss, where `visible` is under 0.3 or the longer
side of the box is under 12 pixels: too little is left of it to say what it is or where it ends. All else counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from samples.paint import Painter
from samples.scene import BLOCK_S, Scene, plan, views

HERE = Path(__file__).resolve().parent
SEED = 7
# codes of H.273, as FFmpeg has them
BT709 = 1
LIMITED = 1


def truth(scene: Scene, frames: range | None = None) -> list[dict]:
    """The truth of a scene, one dict a frame, without drawing pictures."""
    painter = Painter(scene)
    return [_record(scene, i, painter.truth(i)) for i in frames or range(scene.frames)]


def draw(scene: Scene, out: str | Path, frames: range | None = None, crf: int = 28) -> list[dict]:
    """Write a scene (or a run of its frames) as an H.264 film in BT.709 limited range, and return its truth."""
    painter = Painter(scene)
    records = []

    def pictures() -> Iterator[np.ndarray]:
        for i in frames or range(scene.frames):
            picture, objects = painter.frame(i)
            records.append(_record(scene, i, objects))
            yield picture

    encode(pictures(), out, scene.fps, (scene.camera.width, scene.camera.height), crf)
    return records


def encode(pictures: Iterator[np.ndarray], out: str | Path, fps: float, size: tuple[int, int], crf: int) -> None:
    """Write RGB pictures (h, w, 3) uint8 as x264, a key frame every 50."""
    rate = Fraction(fps).limit_denominator(1001)
    with av.open(str(out), "w", options={"movflags": "+faststart"}) as film:
        stream = film.add_stream("libx264", rate=rate, options={"crf": str(crf), "preset": "medium"})
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        codec = stream.codec_context
        codec.gop_size = 50
        codec.thread_count = 1  # one thread: the same file on every machine
        codec.colorspace = codec.color_primaries = codec.color_trc = BT709
        codec.color_range = LIMITED
        for n, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame = frame.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG")
            frame.pts = n
            frame.time_base = 1 / rate
            film.mux(stream.encode(frame))
        film.mux(stream.encode())


def draw_views(scenes: dict[str, Scene], out: Path) -> None:
    """Write the film, the truth and the homography of each camera, as NAME-CAMERA beside `out`."""
    for name, scene in scenes.items():
        film = out.with_name(f"{out.stem}-{name}.mp4")
        write_truth(draw(scene, film), film.with_suffix(".truth.jsonl"))
        rows = (" ".join(f"{number:.9g}" for number in row) + "\n" for row in scene.camera.ground())
        film.with_suffix(".ground.txt").write_text("".join(rows))


def write_truth(records: list[dict], out: str | Path) -> None:
    """Write one JSON line a frame."""
    lines = (json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    Path(out).write_text("".join(lines))


def _record(scene: Scene, i: int, objects: list[dict]) -> dict:
    return {"frame": i, "pts_s": round(i / scene.fps, 6), "objects": objects}


def main() -> None:
    """Read the command line, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=HERE / "street.mp4")
    parser.add_argument("--truth", type=Path, default=None, help="default: beside --out, as NAME.truth.jsonl")
    parser.add_argument("--seconds", type=float, default=BLOCK_S)
    parser.add_argument("--fps", type=float, default=25.0)
    parser.add_argument("--size", default="640x360", help="width x height in pixels, both even")
    parser.add_argument("--views", action="store_true", help="from two cameras, at 12.5 frames a second")
    options = parser.parse_args()
    width, height = (int(n) for n in options.size.split("x"))
    if options.views:
        draw_views(views(options.seed, options.seconds, size=(width, height)), options.out)
        return
    records = draw(plan(options.seed, options.seconds, options.fps, (width, height)), options.out)
    write_truth(records, options.truth or options.out.with_suffix(".truth.jsonl"))


if __name__ == "__main__":
    main()
