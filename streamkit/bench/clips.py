"""Clips for measurements, and long clips made from them without encoding."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from streamkit.core.errors import ConfigError, SourceError

CLIPS = {"h264": "videos/bench_1080p_h264.mp4", "hevc": "videos/bench_1080p_hevc.mp4"}
"""The clips of the data folder, by codec."""

_ROOM = 2 << 30


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory if there is one with 2 GiB free, else among the temporary files."""
    memory = Path("/dev/shm")
    there = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM
    return tempfile.TemporaryDirectory(prefix="streamkit-bench-", dir=memory if there else None)


def clip_of(codec: str, data: Path) -> Path:
    """The data folder's clip of a codec.

    Raises:
        ConfigError: there is none.
    """
    if codec not in CLIPS:
        raise ConfigError(f"bench gpu has clips of {' and '.join(CLIPS)}, not of {codec!r}; give one with --clip")
    path = data / CLIPS[codec]
    if not path.is_file():
        raise ConfigError(
            f"bench gpu needs {CLIPS[codec]} in {data}; name the folder with --data, or a clip with --clip"
        )
    return path


def lengthen(clip: Path, out: Path, frames: int) -> int:
    """Write a file that repeats the clip's packets with continuing timestamps, until it has `frames` or more.

    Args:
        clip: begins with a keyframe, like any file.
        out: the file to write; its suffix determines the container.
        frames: minimum number of packets, each of which is a frame.

    Returns:
        The number of packets: whole repetitions of the clip.

    Raises:
        SourceError: the clip cannot be read, or its packets have no timestamps.
    """
    import av

    from streamkit.media.demux import Demuxer

    demuxer = Demuxer(str(clip))
    try:
        packets = [(bytes(p), p.pts, p.dts, p.duration, p.is_keyframe) for p in demuxer.packets()]
        if not packets or any(None in packet[1:3] for packet in packets):
            raise SourceError(f"{clip} cannot be made longer: it has packets without times")
        base = demuxer.stream.time_base
        first, last = min(packet[1] for packet in packets), max(packet[1] for packet in packets)
        turn = (last - first) * len(packets) // max(1, len(packets) - 1)  # one step beyond the last picture
        turns = -(-frames // len(packets))
        with av.open(str(out), "w") as output:
            stream = output.add_stream_from_template(demuxer.stream)
            for number in range(turns):
                for data, pts, dts, duration, keyframe in packets:
                    packet = av.Packet(data)
                    packet.pts, packet.dts, packet.duration = pts + number * turn, dts + number * turn, duration
                    packet.time_base, packet.is_keyframe, packet.stream = base, keyframe, stream
                    output.mux(packet)
    finally:
        demuxer.close()
    return turns * len(packets)
