"""Draw the image of docs/collect.md: `python docs/collect/draw.py`, from the folder of the checkout.

It runs the example, exports what it collects as COCO, and draws a sheet of the images with the exported boxes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 3
ROWS = 2
WIDTH = 480
HEIGHT = 270
BAR = 26
COLORS = {"car": (200, 110, 30), "person": (60, 60, 220), "bike": (80, 160, 40)}


def collected(folder: Path) -> dict[str, Any]:
    """Run the example in a folder, and export its images; return the COCO file's content."""
    (folder / "samples").symlink_to(ROOT / "samples")
    run = [sys.executable, str(ROOT / "run.py")]
    subprocess.run([*run, str(ROOT / "examples" / "collect.yaml"), "--device", "cpu"], cwd=folder, check=True)
    subprocess.run([*run, "export", "out/collected", "--format", "coco", "--out", "coco"], cwd=folder, check=True)
    whole: dict[str, Any] = json.loads((folder / "coco" / "annotations" / "instances_default.json").read_text())
    return whole


def tile(folder: Path, coco: dict[str, Any], image: dict[str, Any]) -> np.ndarray:
    """An image with its boxes, and its reason and time above."""
    picture = cv2.imread(str(folder / "coco" / "images" / image["file_name"]))
    scale = WIDTH / picture.shape[1]
    picture = cv2.resize(picture, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    names = {category["id"]: category["name"] for category in coco["categories"]}
    for annotation in (annotation for annotation in coco["annotations"] if annotation["image_id"] == image["id"]):
        x, y, width, height = (round(pixels * scale) for pixels in annotation["bbox"])
        weak = annotation["score"] < 0.5
        color = COLORS[names[annotation["category_id"]]]
        cv2.rectangle(picture, (x, y), (x + width, y + height), color, 3 if weak else 1)
        if weak:
            cv2.putText(
                picture, f"{annotation['score']:.2f}", (x, y - 5), cv2.FONT_HERSHEY_SIMPLEX, 0.45, color, 1, cv2.LINE_AA
            )
    bar = np.full((BAR, WIDTH, 3), 255, np.uint8)
    text = f"{image['reason']}, {image['pts_s']:.1f} s"
    cv2.putText(bar, text, (6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (60, 50, 40), 1, cv2.LINE_AA)
    return np.vstack([bar, picture])


def chosen(coco: dict[str, Any]) -> list[dict[str, Any]]:
    """Images of each reason in turn."""
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for image in coco["images"]:
        by_reason.setdefault(image["reason"], []).append(image)
    images = [image for some in zip(*by_reason.values(), strict=False) for image in some] or coco["images"]
    rest = [image for image in coco["images"] if image not in images]
    return sorted([*images, *rest][: COLUMNS * ROWS], key=lambda image: image["pts_s"])


def main() -> None:
    """Write the sheet."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        coco = collected(folder)
        tiles = [tile(folder, coco, image) for image in chosen(coco)]
    rows = [np.hstack(tiles[at : at + COLUMNS]) for at in range(0, len(tiles), COLUMNS)]
    cv2.imwrite(str(Path(__file__).with_name("sheet.jpg")), np.vstack(rows), [cv2.IMWRITE_JPEG_QUALITY, 85])


if __name__ == "__main__":
    main()
