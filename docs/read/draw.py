"""Draw the picture of docs/read.md: `python docs/read/draw.py`, from the folder of the checkout.

It is a frame of the output of examples/read_plates.yaml, enlarged.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import av
import cv2

ROOT = Path(__file__).resolve().parents[2]
FRAME = 40
TIMES = 2


def main() -> None:
    """Run the example, and write the frame."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "samples").symlink_to(ROOT / "samples")
        command = [sys.executable, str(ROOT / "run.py"), str(ROOT / "examples" / "read_plates.yaml"), "--device", "cpu"]
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        with av.open(str(Path(folder) / "out" / "plates-read.mp4")) as container:
            pictures = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    large = cv2.resize(pictures[FRAME], None, fx=TIMES, fy=TIMES, interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(Path(__file__).with_name("plates.jpg")), large, [cv2.IMWRITE_JPEG_QUALITY, 80])


if __name__ == "__main__":
    main()
