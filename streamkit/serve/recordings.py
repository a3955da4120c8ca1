# SPDX-License-Identifier: Apache-2.0
"""Time lines, pieces, images and exports of recordings around the clock, from the index of their files."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence

from streamkit.core.errors import SourceError
from streamkit.media.segment_reader import keyframe_at
from streamkit.media.segment_video import SegmentSpan, SpanVideo, keyframe_jpeg, span_of, spans_as_video
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.recording_models import GapView, RecordedDayView, RecordingView, SegmentView
from streamkit.serve.store.recording_index import RecordingIndex
from streamkit.serve.store.segment_table import RecordedSegment
from streamkit.stages.video.continuous import NOT_RECORDED

_JOINED_S = 0.5
"""A shorter time between two files is no gap: clocks are corrected by less from file to file."""
_MAX_VIDEO_BYTES = 128_000_000
_CACHE_BYTES = 32_000_000
_BEFORE_S = 3600.0


def list_recordings(index: RecordingIndex) -> list[RecordingView]:
    """What is recorded of each source."""
    views = []
    for source, rows in itertools.groupby(index.days(), key=lambda day: day.source):
        days = list(rows)
        views.append(
            RecordingView(
                source,
                min(day.first_ms for day in days) / 1000,
                max(day.last_ms for day in days) / 1000,
                sum(day.bytes for day in days),
                [RecordedDayView(day.day, round(day.recorded_s, 3)) for day in days],
            )
        )
    return views


def joined(segments: Sequence[RecordedSegment]) -> list[SegmentView]:
    """The times without gaps in which the video was the same."""
    views: list[SegmentView] = []
    for segment in segments:
        content = segment.content
        shape = (content.width, content.height, content.codec)
        last = views[-1] if views else None
        if (
            last is not None
            and abs(segment.start_s - last.to_s) < _JOINED_S
            and (last.width, last.height, last.codec) == shape
            and last.event == segment.event
        ):
            last.to_s = segment.end_s
            last.bytes += segment.bytes
        else:
            views.append(SegmentView(segment.id, segment.start_s, segment.end_s, *shape, segment.bytes, segment.event))
    return views


def gaps(
    index: RecordingIndex, source: str, segments: Sequence[RecordedSegment], from_s: float, to_s: float
) -> list[GapView]:
    """The times of a period that no file has, each with its cause."""
    views: list[GapView] = []
    covered_s = from_s
    for segment in segments:
        if segment.start_s - covered_s >= _JOINED_S:
            views.append(GapView(covered_s, segment.start_s, segment.content.cause or NOT_RECORDED))
        covered_s = max(covered_s, segment.end_s)
    if to_s - covered_s >= _JOINED_S:
        following = index.after(source, covered_s)
        views.append(GapView(covered_s, to_s, (following and following.content.cause) or NOT_RECORDED))
    if views and views[0].from_s == from_s and index.before(source, from_s) is None:
        views[0].cause = NOT_RECORDED
    return views


def bytes_per_second(segments: Sequence[RecordedSegment], from_s: float, to_s: float, bins: int) -> list[float]:
    """The bytes of video per second in equal parts of a period; 0 where nothing is recorded."""
    step_s = (to_s - from_s) / bins
    totals = [0.0] * bins
    for segment in segments:
        scale = segment.content.scale
        for fragment in segment.content.fragments:
            start_s = segment.start_s + fragment.time / scale
            end_s = start_s + max(fragment.duration, 1) / scale
            density = (fragment.end - fragment.start) / (end_s - start_s)
            first = max(0, int((start_s - from_s) / step_s))
            last = min(bins - 1, int((end_s - from_s) / step_s))
            for place in range(first, last + 1):
                edge_s = from_s + place * step_s
                shared_s = min(end_s, edge_s + step_s) - max(start_s, edge_s)
                totals[place] += density * max(0.0, shared_s)
    return [round(total / step_s, 1) for total in totals]


def spans_in(index: RecordingIndex, source: str, from_s: float, to_s: float) -> list[SegmentSpan]:
    """The fragments of a period, from the keyframe at or before its start.

    Raises:
        RequestRejected: nothing is recorded then.
    """
    spans = [
        span
        for segment in index.segments(source, from_s, to_s)
        if (span := span_of(segment.path, segment.start_s, segment.content, from_s, to_s)) is not None
    ]
    if not spans:
        raise RequestRejected(404, _nothing(index, source, from_s))
    return spans


def _nothing(index: RecordingIndex, source: str, time_s: float) -> str:
    following = index.after(source, time_s)
    if following is None and index.before(source, time_s) is None:
        return f"nothing is recorded of {source}"
    cause = following.content.cause if following is not None else ""
    return f"{source} is not recorded at that time" + (f": {cause}" if cause else "")


def removed_meanwhile(source: str) -> RequestRejected:
    """The rejection of a request whose file retention has removed since it was listed."""
    return RequestRejected(404, f"the recording of {source} at that time was removed meanwhile")


def read_video(index: RecordingIndex, source: str, from_s: float, to_s: float) -> SpanVideo:
    """A period as fragmented MP4. Raises RequestRejected."""
    for attempt in (1, 2):
        try:
            return spans_as_video(spans_in(index, source, from_s, to_s), _MAX_VIDEO_BYTES)
        except OSError:
            if attempt == 2:
                raise removed_meanwhile(source) from None
            index.refresh(now=True)  # it was marked or moved
    raise AssertionError


class KeyframeImages:
    """Images of keyframes, of which the latest are kept.

    Args:
        index: the index of the files.
    """

    def __init__(self, index: RecordingIndex) -> None:
        self._index = index
        self._images: OrderedDict[tuple[str, int, int, int], bytes] = OrderedDict()
        self._bytes = 0

    def image(self, source: str, time_s: float, width: int) -> tuple[bytes, float]:
        """The keyframe at or before a time as JPEG, and its wall clock in seconds since 1970.

        Raises:
            RequestRejected: there is none.
        """
        segment = self._index.before(source, time_s)
        if segment is None:
            raise RequestRejected(404, _nothing(self._index, source, time_s))
        place = keyframe_at(segment.content, round((time_s - segment.start_s + 0.002) * segment.content.scale))
        if place is None:
            raise RequestRejected(404, _nothing(self._index, source, time_s))
        key = (source, segment.start_ms, place, width)
        jpeg = self._images.get(key)
        if jpeg is None:
            jpeg = self._decoded(segment, place, width)
            self._keep(key, jpeg)
        return jpeg, segment.fragment_s(place)

    def _decoded(self, segment: RecordedSegment, place: int, width: int) -> bytes:
        try:
            return keyframe_jpeg(segment.path, segment.content, place, width)
        except OSError:
            self._index.refresh(now=True)
        except SourceError as error:
            raise RequestRejected(404, str(error)) from None
        again = self._index.before(segment.source, segment.start_s)
        if again is None or again.start_ms != segment.start_ms:
            raise removed_meanwhile(segment.source)
        try:
            return keyframe_jpeg(again.path, again.content, place, width)
        except (OSError, SourceError):
            raise removed_meanwhile(segment.source) from None

    def _keep(self, key: tuple[str, int, int, int], jpeg: bytes) -> None:
        self._images[key] = jpeg
        self._bytes += len(jpeg)
        while self._bytes > _CACHE_BYTES:
            try:
                _, oldest = self._images.popitem(last=False)
            except KeyError:
                break
            self._bytes -= len(oldest)
