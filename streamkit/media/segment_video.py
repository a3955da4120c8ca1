# SPDX-License-Identifier: Apache-2.0
"""Parts of recordings: fragments in a row for players, images of keyframes, and exports to a file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamkit.core.counters import Counters
from streamkit.core.data import SQUARE, Device
from streamkit.core.errors import OutputError, SourceError
from streamkit.io.outputs import AtomicFile, output_error
from streamkit.media.encode import TIME_BASE, Encoding
from streamkit.media.encoders import make_encoder
from streamkit.media.frames import OrientationReader, StreamAspect, to_surface
from streamkit.media.mux import VideoWriter
from streamkit.media.ring import TICKS_PER_S, StreamFormat
from streamkit.media.segment_reader import (
    SegmentContent,
    keyframe_at,
    read_init,
    read_pieces,
    rebased,
    sample_description,
)
from streamkit.media.surfaces import shared_pool

_SLACK_S = 0.002  # times of files are whole milliseconds


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """Some fragments of a file, from place `first` to `last`, both included.

    Attributes:
        path: the file.
        start_s: wall clock of the file's first frame, in seconds since 1970.
        content: what is in it.
        first: place of the first fragment.
        last: place of the last one.
    """

    path: Path
    start_s: float
    content: SegmentContent
    first: int
    last: int

    @property
    def size_bytes(self) -> int:
        """Size of the fragments."""
        fragments = self.content.fragments
        return fragments[self.last].end - fragments[self.first].start

    @property
    def from_s(self) -> float:
        """Wall clock of the first frame."""
        return self.start_s + self.content.fragments[self.first].time / self.content.scale

    @property
    def to_s(self) -> float:
        """Wall clock of the end."""
        last = self.content.fragments[self.last]
        return self.start_s + (last.time + last.duration) / self.content.scale

    @property
    def bytes(self) -> int:
        """Size of the fragments."""
        return self.content.fragments[self.last].end - self.content.fragments[self.first].start


def span_of(path: Path, start_s: float, content: SegmentContent, from_s: float, to_s: float) -> SegmentSpan | None:
    """The fragments of a file from the keyframe at or before a time to another time; None if there are none."""
    fragments = content.fragments
    first = keyframe_at(content, round((from_s - start_s + _SLACK_S) * content.scale))
    if first is None:
        first = next((place for place, fragment in enumerate(fragments) if fragment.keyframe), None)
    if first is None:
        return None
    end = (to_s - start_s - _SLACK_S) * content.scale
    last = max((place for place, fragment in enumerate(fragments) if fragment.time < end), default=-1)
    return SegmentSpan(path, start_s, content, first, last) if last >= first else None


@dataclass(frozen=True, slots=True)
class SpanVideo:
    """Spans as one fragmented MP4, whose time 0 is `from_s`.

    Attributes:
        data: the bytes.
        codecs: the codec by RFC 6381; empty if browsers do not play it in pieces.
        from_s: wall clock of the first frame.
        to_s: wall clock of the end; the video ends early where the camera changed it, or where it would be too large.
    """

    data: bytes
    codecs: str
    from_s: float
    to_s: float


def spans_as_video(spans: Sequence[SegmentSpan], max_bytes: int) -> SpanVideo:
    """Join spans; at least one. Raises OSError if a file is gone."""
    begin = spans[0]
    init = read_init(begin.path, begin.content)
    description = sample_description(init)
    pieces = [init]
    size = number = 0
    to_s = begin.to_s
    for span in spans:
        content = span.content
        other = span is not begin and sample_description(read_init(span.path, content)) != description
        if other or content.scale != begin.content.scale or (pieces[1:] and size + span.bytes > max_bytes):
            break
        shift = round((span.start_s - begin.from_s) * content.scale)
        for fragment, data in read_pieces(span.path, content, span.first, span.last):
            number += 1
            pieces.append(rebased(data, max(0, fragment.time + shift), content.shift, number))
        size += span.bytes
        to_s = span.to_s
    return SpanVideo(b"".join(pieces), begin.content.codecs, begin.from_s, to_s)


def keyframe_jpeg(path: Path, content: SegmentContent, place: int, width: int) -> bytes:
    """The first frame of a fragment as JPEG.

    Args:
        path: the file.
        content: what is in it.
        place: place of the fragment, which begins with a keyframe.
        width: largest width of the image in pixels.

    Raises:
        OSError: the file is gone.
        SourceError: it cannot be decoded.
    """
    import av
    import cv2

    ((_, data),) = read_pieces(path, content, place, place)
    with av.open(io.BytesIO(read_init(path, content) + data)) as container:
        stream = container.streams.video[0]
        packet = next(container.demux(stream))
        try:
            frames = [*packet.decode(), *stream.decode(None)]
        except (av.error.FFmpegError, EOFError, ValueError) as error:
            raise SourceError(f"the recorded picture cannot be decoded: {error}") from None
        if not frames:
            raise SourceError("the recorded picture cannot be decoded")
        frame = frames[0]
        aspect = float(stream.sample_aspect_ratio or 1)
        shown_width = min(width, round(frame.width * aspect))
        height = max(1, round(shown_width * frame.height / (frame.width * aspect)))
        pixels = frame.to_ndarray(format="bgr24", width=shown_width, height=height)
    encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 80])[1]
    return bytes(encoded)


# -------------------------------------------------------------------------------------------------------------- exports


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was exported, and the wall clock of its first frame and of its end."""

    from_s: float
    to_s: float


def export_copy(spans: Sequence[SegmentSpan], path: Path) -> Exported:
    """Write spans to an MP4 file as they are; gaps between them are left out.

    Raises:
        OSError: a recorded file is gone.
        SourceError: the camera changed its video within the spans.
        OutputError: the file cannot be written.
    """
    import av

    file = AtomicFile(path)
    zero = 0  # where the present span begins, in ticks of `TIME_BASE`
    last_dts = -1
    try:
        with av.open(str(file.begin()), "w", format="mp4", options={"movflags": "faststart"}) as out:
            stream: Any = None
            for span, container in _opened(spans):
                source = container.streams.video[0]
                if stream is None:
                    stream = StreamFormat(source).add_to(out)
                first = span.content.shift
                for packet in container.demux(source):
                    if packet.dts is None:
                        continue
                    ticks = Fraction(packet.time_base) / TIME_BASE
                    start = zero - (span.content.fragments[span.first].time + first) * ticks
                    last_dts = max(last_dts + 1, round(start + packet.dts * ticks) + TICKS_PER_S)
                    packet.pts = max(last_dts, round(start + packet.pts * ticks) + TICKS_PER_S)
                    packet.dts = last_dts
                    packet.time_base = TIME_BASE
                    packet.stream = stream
                    out.mux_one(packet)
                zero += round((span.to_s - span.from_s) * TICKS_PER_S)
    except (av.error.FFmpegError, OutputError, ValueError) as error:
        file.discard()
        raise error if isinstance(error, OutputError) else output_error(path, error) from error
    except BaseException:
        file.discard()
        raise
    file.finish()
    return Exported(spans[0].from_s, spans[-1].to_s)


def export_exact(spans: Sequence[SegmentSpan], path: Path, from_s: float, to_s: float, threads: int) -> Exported:
    """Encode the frames of spans that are shown from a time to before another; gaps between spans are left out.

    Args:
        spans: the spans, from a keyframe at or before `from_s`.
        path: the MP4 file.
        from_s: wall clock in seconds since 1970.
        to_s: wall clock in seconds since 1970.
        threads: maximum number of threads that encode.

    Raises:
        OSError: a recorded file is gone.
        SourceError: the camera changed its video within the spans, or no frame is within the times.
        OutputError: the file cannot be written.
    """
    writer: VideoWriter | None = None
    last_ticks = -1
    first_s = end_s = from_s
    zero_s = 0.0  # what is left out so far, from the first frame
    file = AtomicFile(path)
    pool = shared_pool(Device("cpu"))
    try:
        before: SegmentSpan | None = None
        for span, container in _opened(spans):
            if before is not None:
                zero_s += max(0.0, span.from_s - before.to_s)
            before = span
            stream = container.streams.video[0]
            aspect = StreamAspect(stream)
            orientation_of = OrientationReader()
            for time_s, frame in _shown(span, container):
                if not from_s - _SLACK_S <= time_s < to_s - _SLACK_S:
                    continue
                orientation = orientation_of(frame)
                _, _, surface = to_surface(frame, pool, orientation=orientation)
                if writer is None:
                    first_s = time_s
                    zero_s = time_s
                    rate = Fraction(stream.average_rate or 25)
                    pixel_aspect = aspect.of(orientation, stream.codec_context) or SQUARE
                    file.begin()
                    encoder = make_encoder(
                        "cpu", Encoding(quality=18), surface, rate, Device("cpu"), threads, Counters(), pixel_aspect
                    )
                    writer = VideoWriter(file, encoder)
                last_ticks = max(last_ticks + 1, round((time_s - zero_s) * TICKS_PER_S))
                writer.write(surface, last_ticks)
                end_s = time_s
        if writer is None:
            raise SourceError("no frame is recorded within these times")
        writer.finish()
    except BaseException:
        file.discard()
        raise
    return Exported(first_s, end_s)


def _opened(spans: Sequence[SegmentSpan]) -> Iterator[tuple[SegmentSpan, Any]]:
    """Each span as an open container."""
    import av

    description = b""
    for span in spans:
        init = read_init(span.path, span.content)
        description = description or sample_description(init)
        if sample_description(init) != description:
            raise SourceError("the camera changed its video within these times: export the times before and after")
        pieces = [data for _, data in read_pieces(span.path, span.content, span.first, span.last)]
        with av.open(io.BytesIO(init + b"".join(pieces))) as container:
            yield span, container


def _shown(span: SegmentSpan, container: Any) -> Iterator[tuple[float, Any]]:
    """The frames of a span, with their wall clock."""
    for frame in container.decode(video=0):
        yield span.start_s + float(frame.pts * frame.time_base) - span.content.shift / span.content.scale, frame
