"""Recordings around the clock of any time: the packets of a clip, written as the recorder writes those of a camera."""

from pathlib import Path

import av

from streamkit.io.segment_files import complete_name, segment_path
from streamkit.media.encode import TIME_BASE
from streamkit.media.ring import BufferedPacket, StreamFormat
from streamkit.media.segment_reader import CAUSE_TAG
from streamkit.media.segment_writer import SegmentWriter


def record_clip(folder: Path, source: str, clip: Path, start_s: float, cause: str = "") -> float:
    """Write a file of a recording; return the wall clock of its end.

    Args:
        folder: the folder of the recording.
        source: id of the source.
        clip: a video of one keyframe or more.
        start_s: wall clock of its first frame, in seconds since 1970.
        cause: why nothing is recorded before it.
    """
    start_ms = round(start_s * 1000)
    writer = None
    with av.open(str(clip)) as video:
        stream = video.streams.video[0]
        stream_format = StreamFormat(stream)
        ticks = stream.time_base / TIME_BASE
        frame_ticks = round(1 / stream.average_rate / TIME_BASE)
        for number, packet in enumerate(packet for packet in video.demux(stream) if packet.size):
            buffered = BufferedPacket(
                number,
                bytes(packet),
                round(packet.pts * ticks),
                round(packet.dts * ticks),
                frame_ticks,
                packet.is_keyframe,
                stream_format,
            )
            if writer is None:
                path = segment_path(folder, source, start_ms)
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = SegmentWriter(path, buffered, {"title": source, **({CAUSE_TAG: cause} if cause else {})})
            writer.write(buffered)
    assert writer is not None
    writer.finish(complete_name(writer.path, writer.duration_ms, event=False))
    return start_s + writer.duration_ms / 1000
