"""Clips with a moving box whose frames show their number as light and dark cells; a stage that detects the box."""

from pathlib import Path

import av
import numpy as np

WIDTH = 320
HEIGHT = 240
# the number is in the first row of cells, the lowest bit first
CELL = 16
BITS = 10
BOX_WIDE = 40
BOX_HIGH = 30
STEP = 3  # pixels from frame to frame: more than the tests allow

PLUGIN = '''
import numpy as np
from streamkit import Detections, FrameStage, stage

@stage("white", reads="pixels", writes=("detections", "track_id"), labels_attribute="names")
class White(FrameStage):
    """Finds the white box below the number."""

    names = ("box",)

    def process(self, frame):
        rows, columns = np.nonzero(frame.image()[20:, :, 0] > 128)
        box = [[columns.min(), rows.min() + 20, columns.max() + 1, rows.max() + 21]]
        frame.detections = Detections(
            np.array(box, np.float32), np.ones(1, np.float32), np.zeros(1, np.int32), track_id=np.array([7]),
            labels=self.names,
        )
'''


def picture(number: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Return frame `number`, (height, width, 3) uint8."""
    image = np.full((height, width, 3), 40, np.uint8)
    for bit in range(BITS):
        image[:CELL, bit * CELL : (bit + 1) * CELL] = 230 if number >> bit & 1 else 10
    left = 20 + number * STEP % (width - BOX_WIDE - 40)
    image[100 : 100 + BOX_HIGH, left : left + BOX_WIDE] = 250
    return image


def number_of(image: np.ndarray) -> int:
    """Return the number that a frame of (height, width, 3) uint8 shows."""
    middle = CELL // 2
    return sum(int(image[middle, bit * CELL + middle, 0] > 128) << bit for bit in range(BITS))


def clip(
    path: Path,
    frames: int = 250,
    *,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    gop: int = 10,
    bf: int = 0,
    codec: str = "libx264",
    rate: int = 25,
) -> Path:
    """Write a clip with `bf` B frames in a row."""
    quiet = {"x264-params": "log-level=none"} if codec == "libx264" else {"x265-params": "log-level=none"}
    options = {"g": str(gop), "bf": str(bf), "crf": "14", "preset": "ultrafast", "sc_threshold": "0", **quiet}
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=rate, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1  # or a frame has several slices, which the RTSP server of the tests sends as frames
        for number in range(frames):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture(number, *size), format="rgb24")))
        output.mux(stream.encode())
    return path
