"""Small videos for tests of what happens around files rather than in them."""

from pathlib import Path

import av
import numpy as np

from streamkit.batch.job import Job, VideoFile


def clip(path: Path, frames: int = 8) -> Path:
    """A video of 64 x 48 pixels, ten frames a second, a keyframe every five."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=10, options={"g": "5", "x264-params": "log-level=none"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(frames):
            picture = np.full((48, 64, 3), index * 20 % 256, np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        output.mux(stream.encode())
    return path


def job(path: Path, number: int = 0, attempt: int = 1) -> Job:
    """A job for a file."""
    size = path.stat().st_size if path.exists() else 0
    return Job(VideoFile(str(path), path.name, size, "1"), f"{path.stem}-{number:016x}", attempt)
