"""Draw what the examples put out: `python docs/analytics/examples.py`, from the checkout; a minute or two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import yaml

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
# blue, green and red of each
SHAPE = (40, 200, 255)
BOX = (255, 255, 255)
INK = (30, 30, 30)
FRAMES = {"count_people": 270, "cars": 110, "queue": 130, "loitering": 150}


def run(name: str, limit: int) -> Path:
    """Run an example in a folder of its own; return the folder of its outputs."""
    folder = Path(tempfile.mkdtemp())
    (folder / "samples").symlink_to(ROOT / "samples")
    command = [sys.executable, ROOT / "run.py", ROOT / "examples" / f"{name}.yaml", "--device", "cpu"]
    subprocess.run([*map(str, command), "--limit", str(limit)], cwd=folder, check=True, env=os.environ)
    return folder / "out"


def picture(film: Path, index: int) -> np.ndarray:
    """One picture of a video, (height, width, 3) uint8 blue, green, red."""
    with av.open(str(film)) as file:
        for i, frame in enumerate(file.decode(video=0)):
            if i == index:
                return np.asarray(frame.to_ndarray(format="bgr24"))
    raise ValueError(f"{film} has no picture {index}")


def shapes(name: str) -> dict[str, tuple[list[list[float]], bool]]:
    """The lines and zones of an example, in pixels, by what events call them; and whether each is closed."""
    points_of: dict[str, tuple[list[list[float]], bool]] = {}
    for options in yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())["stages"].values():
        for key in ("line", "polygon"):
            drawn_shapes: Any = (options or {}).get(key)
            scale = np.array([640, 360]) if (options or {}).get("units") == "share" else 1
            if not isinstance(drawn_shapes, dict):
                drawn_shapes = {"": drawn_shapes} if drawn_shapes else {}
            for title, points in drawn_shapes.items():
                points_of[title] = ((np.array(points) * scale).tolist(), key == "polygon")
    return points_of


def counted(name: str) -> np.ndarray:
    """The last picture of an example's run, with its shapes, what is there, and what was counted so far."""
    out = run(name, FRAMES[name])
    records = [json.loads(line) for line in next(out.glob("*.jsonl")).read_text().splitlines()]
    large = cv2.resize(picture(ROOT / "samples" / "street.mp4", FRAMES[name] - 1), None, fx=2, fy=2)
    for points, closed in shapes(name).values():
        cv2.polylines(large, [np.rint(np.array(points) * 2).astype(np.int32)], closed, SHAPE, 4, cv2.LINE_AA)
    for target in records[-1]["objects"]:
        x1, y1, x2, y2 = (round(2 * pixel) for pixel in target["box"])
        cv2.rectangle(large, (x1, y1), (x2, y2), BOX, 2)
        number = f"#{target['track_id']}" if "track_id" in target else ""
        cv2.putText(large, number, (x1, y1 - 4), cv2.FONT_HERSHEY_SIMPLEX, 0.7, BOX, 2, cv2.LINE_AA)
    kinds = Counter()
    for event in (event for record in records for event in record["events"]):
        data = event["data"]
        words = [data.get("line") or data.get("zone"), event["kind"], data.get("direction")]
        looks = data.get("attributes", {}).get("color")
        kinds[" ".join(word for word in (*words, looks) if word)] += event["kind"] not in ("counted", "occupancy")
    lines = [f"{n} {text}" for text, n in sorted(kinds.items()) if n]
    for i, text in enumerate(lines):
        at = (16, 40 + 32 * i)
        cv2.putText(large, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.9, INK, 6, cv2.LINE_AA)
        cv2.putText(large, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.9, BOX, 2, cv2.LINE_AA)
    if name == "loitering":
        save("heat", cv2.imread(str(out / "street-heat.png")))
    return np.asarray(cv2.resize(large, None, fx=0.75, fy=0.75, interpolation=cv2.INTER_AREA))


def answers_picture() -> np.ndarray:
    """A picture of the pipeline of docs/ask.md with its answers drawn; an endpoint of the tests gives them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.vlm_endpoint import Endpoint

    server = Endpoint()
    server.answers = lambda call, number: {"bag": number % 3 == 1, "goes": ("left", "right")[number % 2]}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = Path(tempfile.mkdtemp())
    (folder / "samples").symlink_to(ROOT / "samples")
    (folder / "asked.yaml").write_text(ANSWERS_PIPELINE.format(url=server.url), encoding="utf-8")
    command = [sys.executable, ROOT / "run.py", "asked.yaml", "--device", "cpu", "--limit", "120"]
    subprocess.run([*map(str, command)], cwd=folder, check=True, env=os.environ)
    server.shutdown()
    film = cv2.resize(picture(folder / "out" / "street.mp4", 118), None, fx=1.5, fy=1.5, interpolation=cv2.INTER_CUBIC)
    strip = np.full((film.shape[0], 150, 3), 255, np.uint8)
    for place, call in enumerate(server.calls[:4]):
        sent = cv2.cvtColor(call.images[0], cv2.COLOR_RGB2BGR)
        size = round(120 * sent.shape[1] / sent.shape[0]), 120
        left = (150 - size[0]) // 2
        strip[10 + 132 * place : 130 + 132 * place, left : left + size[0]] = cv2.resize(sent, size)
    return np.hstack([film, strip])


ANSWERS_PIPELINE = """
sources: {{street: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  track: {{}}
  ask: {{url: "{url}", model: eye, of: person, prompt: "?", answer: {{bag: bool, goes: [left, right]}}, after: 500ms,
        min_size: 12}}
  draw: {{only: [person], thickness: 2}}
  video: {{path: "out/{{source}}.mp4", quality: 12}}
"""


def save(name: str, picture: np.ndarray) -> None:
    """Write one picture of the page."""
    cv2.imwrite(str(FOLDER / f"{name}.jpg"), picture, [cv2.IMWRITE_JPEG_QUALITY, 82])


def main() -> None:
    """Draw all."""
    for name in FRAMES:
        save(name, counted(name))
    save("ask", answers_picture())
    save("shown", picture(run("shown", 130) / "street-shown.mp4", 129))
    out = run("identify", 100)
    save("identify", np.hstack([picture(out / f"{side}-identities.mp4", 99) for side in ("north", "south")]))
    save("blurred", picture(run("blurred", 60) / "street-blurred.mp4", 50))


if __name__ == "__main__":
    main()
