"""Small videos for tests of file handling."""

from pathlib import Path

import av
import numpy as np

from streamkit.batch.job import BatchJob, VideoFile


def clip(path: Path, frames: int = 8) -> Path:
    """A video of 64 x 48 pixels, ten frames a second, a keyframe every five."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=10, options={"g": "5", "x264-params": "log-level=none"})
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuv420p"
        for index in range(frames):
            image = np.full((48, 64, 3), index * 20 % 256, np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        output.mux(stream.encode())
    return path


def with_a_gap(path: Path) -> Path:
    """A transport stream of 20 frames of noise, of which one lacks a packet: a keyframe, the last but five."""
    chance = np.random.default_rng(1)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=10, options={"g": "5", "bf": "0", "x264-params": "log-level=none"})
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuv420p"
        for _ in range(20):
            image = chance.integers(0, 256, (48, 64, 3), np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        output.mux(stream.encode())
    data = path.read_bytes()
    parts = [data[at : at + 188] for at in range(0, len(data), 188)]
    video = [place for place, part in enumerate(parts) if part[1] & 0x1F == 1 and part[2] == 0]
    begins = [place for place in video if parts[place][1] & 0x40]
    del parts[video[video.index(begins[14]) + 2]]
    path.write_bytes(b"".join(parts))
    return path


def job(path: Path, number: int = 0, attempt: int = 1) -> BatchJob:
    """A job for a file."""
    size = path.stat().st_size if path.exists() else 0
    return BatchJob(VideoFile(str(path), path.name, size, "1"), f"{path.stem}-{number:016x}", attempt)
