"""Draw the pictures of docs/open-vocabulary.md and docs/query.md: `python docs/words/draw.py`.

The first is a frame of what `examples/open_vocabulary.yaml` writes; the second shows the best views that three searches
rank first, in a data set of the same video. Run it in the folder of the checkout.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np

from streamkit.query.database import Database
from streamkit.query.dataset_location import DatasetLocation
from streamkit.query.index import index_of
from streamkit.query.likeness import vector_of

FOLDER = Path(__file__).resolve().parent
STREET = "samples/street.mp4"
FRAME = 210
SEARCHES = ("red van", "white car", "person in green")
SHOWN = 5
SIDE = 120
ROOM = 8
BAND = 26
PIPELINE = """
stages:
  detect: {model: demo}
  track: {}
  look: {stage: embed, model: demo-words-crop, of: detect, record: best}
"""


def frame_of(path: Path | str, number: int) -> np.ndarray:
    """Return a frame of a video, BGR."""
    video = cv2.VideoCapture(str(path))
    video.set(cv2.CAP_PROP_POS_FRAMES, number)
    return video.read()[1]


def run(*words: object) -> None:
    """Run the command."""
    subprocess.run([sys.executable, "run.py", *map(str, words)], check=True)


def draw_prompts(folder: Path) -> None:
    """Write the frame with the objects of the prompts."""
    video = folder / "words.mp4"
    run(
        "run",
        "examples/open_vocabulary.yaml",
        "--set",
        f"stages.video.path={video}",
        "--set",
        f"stages.jsonl.path={folder}/words.jsonl",
        "--limit",
        FRAME + 2,
    )
    cv2.imwrite(str(FOLDER / "prompts.jpg"), frame_of(video, FRAME), [cv2.IMWRITE_JPEG_QUALITY, 88])


def draw_searches(folder: Path) -> None:
    """Write the best views of the first tracks of each search."""
    (folder / "search.yaml").write_text(PIPELINE)
    run("batch", folder / "search.yaml", STREET, "--out", folder / "archive")
    location = DatasetLocation(str(folder / "archive"))
    rows = []
    with Database(index_of(location), ()) as database:
        for text in SEARCHES:
            matches = list(database.like(vector_of(location, text), None, None, SHOWN))
            views = [view(database, track, frame) for _, _, track, _, frame, *_ in matches]
            label = np.full((BAND, SHOWN * (SIDE + ROOM) + ROOM, 3), 255, np.uint8)
            cv2.putText(
                label, f'--like "{text}"', (ROOM, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (60, 50, 40), 1, cv2.LINE_AA
            )
            gap = np.full((SIDE, ROOM, 3), 255, np.uint8)
            rows += [label, np.hstack([gap, *(part for picture in views for part in (picture, gap))])]
    rows.append(np.full((ROOM, rows[0].shape[1], 3), 255, np.uint8))
    cv2.imwrite(str(FOLDER / "search.jpg"), np.vstack(rows), [cv2.IMWRITE_JPEG_QUALITY, 88])


def view(database: Database, track: int, frame: int) -> np.ndarray:
    """Return a track's best view in a square of gray."""
    sql = "SELECT x1, y1, x2, y2 FROM objects WHERE track_id = ? AND frame = ?"
    x1, y1, x2, y2 = (round(pixels) for pixels in database.fetch(sql, track, frame)[0])
    crop = frame_of(STREET, frame)[max(0, y1) : y2, max(0, x1) : x2]
    scale = SIDE / max(crop.shape[:2])
    crop = cv2.resize(crop, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)[:SIDE, :SIDE]
    square = np.full((SIDE, SIDE, 3), 235, np.uint8)
    top = (SIDE - crop.shape[0]) // 2
    left = (SIDE - crop.shape[1]) // 2
    square[top : top + crop.shape[0], left : left + crop.shape[1]] = crop
    return square


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        draw_prompts(Path(name))
        draw_searches(Path(name))
