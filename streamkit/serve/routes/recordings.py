# SPDX-License-Identifier: Apache-2.0
"""Recordings around the clock: what is there, its time line, pieces to play, images of keyframes, and exports."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from streamkit.core.errors import SourceError
from streamkit.media.segment_video import export_copy, export_exact
from streamkit.serve import api_models, recordings
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.recording_models import RecordingTimeline, RecordingView
from streamkit.serve.routes.common import JPEG, LOCKED_ERRORS, VIEWER, errors, reply
from streamkit.serve.routes.events import LAST_S
from streamkit.serve.store.event_table import EventQuery

MAX_VIDEO_S = 60.0
MAX_COPY_S = 6 * 3600.0
MAX_EXACT_S = 600.0
MAX_EXPORTS = 2
_CHUNK_BYTES = 1 << 20
_RESERVE_BYTES = 500_000_000  # of the disk that an export leaves free, for events and the audit log
_NO_STORE = {"cache-control": "no-store"}
_DECODES = 4

Source = Annotated[str, Query(max_length=200, description="id of the source")]
FromTime = Annotated[float, Query(ge=0, le=LAST_S, description="seconds since 1970")]
ToTime = Annotated[float, Query(ge=0, le=LAST_S, description="seconds since 1970")]


class Period:
    """The source and the times that a request asks for."""

    def __init__(self, source: Source, from_s: FromTime, to_s: ToTime) -> None:
        if from_s >= to_s:
            raise RequestRejected(422, f"from_s must be before to_s, got {from_s:g} and {to_s:g}")
        self.source = source
        self.from_s = from_s
        self.to_s = to_s

    @property
    def length_s(self) -> float:
        """The length of the period in seconds."""
        return self.to_s - self.from_s


AskedPeriod = Annotated[Period, Depends(Period)]


def add_recordings(api: APIRouter, engine: ServeEngine, data: Path) -> None:
    """Add the routes of recordings; exports are written to the data folder until they are sent."""
    _add_lists(api, engine)
    _add_video(api, engine)
    _add_exports(api, engine, data)


def _add_lists(api: APIRouter, engine: ServeEngine) -> None:
    index = engine.recordings

    @api.get(
        "/recordings",
        tags=["recordings"],
        dependencies=VIEWER,
        response_model=list[RecordingView],
        responses=errors(*LOCKED_ERRORS, 503),
    )
    def list_all() -> Response:
        """What is recorded of each source, by days in UTC; also of sources that are gone."""
        return reply(recordings.list_recordings(index))

    @api.get(
        "/recordings/timeline",
        tags=["recordings"],
        dependencies=VIEWER,
        response_model=RecordingTimeline,
        responses=errors(*LOCKED_ERRORS, 422, 503),
    )
    def timeline(
        period: AskedPeriod,
        bins: Annotated[int, Query(ge=0, le=2000, description="number of equal parts for motion and events")] = 0,
    ) -> Response:
        """What is recorded of a source in a period, its gaps with their causes, its motion and its events."""
        source = period.source
        from_s = period.from_s
        to_s = period.to_s
        segments = index.segments(source, from_s, to_s)
        until_s = min(to_s, max(time.time(), from_s))
        events: list[int] = []
        if bins:
            query = EventQuery(source=source, from_s=from_s, to_s=to_s, sources=engine.rights.visible())
            counts = engine.store.timeline(query, from_s, to_s, bins)
            events = counts.get(source, [0] * bins)
        return reply(
            RecordingTimeline(
                recordings.joined(segments),
                recordings.gaps(index, source, segments, from_s, until_s),
                recordings.bytes_per_second(segments, from_s, to_s, bins) if bins else [],
                "bytes",
                events,
            )
        )


def _add_video(api: APIRouter, engine: ServeEngine) -> None:
    index = engine.recordings
    images = recordings.KeyframeImages(index)
    decoding: list[None] = []

    @api.get(
        "/recordings/video",
        tags=["recordings"],
        dependencies=VIEWER,
        response_class=Response,
        responses={
            200: {
                "content": {"video/mp4": {}},
                "description": "Fragmented MP4; from `x-start-s` to `x-end-s`",
            },
            **errors(*LOCKED_ERRORS, 404, 422, 503),
        },
    )
    def video(period: AskedPeriod) -> Response:
        """At most 60 s of a source's video, from the keyframe at or before `from_s`, for Media Source Extensions.

        It ends early where the camera changed its video: ask for more from `x-end-s` on.
        """
        engine.check_clip()
        if period.length_s > MAX_VIDEO_S:
            raise RequestRejected(422, f"at most {MAX_VIDEO_S:g} s a request, got {period.length_s:g} s")
        piece = recordings.read_video(index, period.source, period.from_s, period.to_s)
        kind = f'video/mp4; codecs="{piece.codecs}"' if piece.codecs else "video/mp4"
        times = {"x-start-s": f"{piece.from_s:.3f}", "x-end-s": f"{piece.to_s:.3f}"}
        return Response(piece.data, media_type=kind, headers={**times, **_NO_STORE})

    @api.get(
        "/recordings/image",
        tags=["recordings"],
        dependencies=VIEWER,
        response_class=Response,
        responses={
            **JPEG,
            **errors(*LOCKED_ERRORS, 404, 422, 503),
            429: {
                "model": api_models.ErrorResponse,
                "description": "Too many images, or too many wrong tokens",
            },
        },
    )
    def image(
        source: Source,
        time_s: FromTime,
        width: Annotated[int, Query(ge=16, le=3840, description="largest width in pixels")] = 320,
    ) -> Response:
        """The keyframe at or before a time; `x-time-s` is its time."""
        engine.check_clip()
        with _limited(decoding, 4 * _DECODES, "images are decoded at once; try again"):
            jpeg, shown_s = images.image(source, time_s, width)
        return Response(jpeg, media_type="image/jpeg", headers={"x-time-s": f"{shown_s:.3f}", **_NO_STORE})


def _add_exports(api: APIRouter, engine: ServeEngine, data: Path) -> None:
    exporting: list[None] = []
    for left in data.glob("export-*"):  # by a crash
        shutil.rmtree(left, ignore_errors=True)

    @api.get(
        "/recordings/export",
        tags=["recordings"],
        dependencies=VIEWER,
        response_class=Response,
        responses={
            200: {
                "content": {"video/mp4": {}},
                "description": "An MP4 file from `x-start-s` to `x-end-s`",
            },
            **errors(*LOCKED_ERRORS, 404, 409, 422, 503),
            429: {"model": api_models.ErrorResponse, "description": "Too many exports, or too many wrong tokens"},
        },
    )
    def export(
        period: AskedPeriod,
        exact: Annotated[
            bool, Query(description="whether it is encoded again, to begin and end with exactly these frames")
        ] = False,
    ) -> Response:
        """A period of a source's video as a file, without gaps: from keyframe to keyframe as it is, or exact."""
        engine.check_clip()
        longest_s = MAX_EXACT_S if exact else MAX_COPY_S
        if period.length_s > longest_s:
            raise RequestRejected(422, f"at most {longest_s:g} s with exact={exact}, got {period.length_s:g} s".lower())
        exporting.append(None)
        try:
            if len(exporting) > MAX_EXPORTS:
                text = f"{MAX_EXPORTS} exports are made or sent already; wait until one is complete"
                raise RequestRejected(429, text, {"retry-after": "2"})
            return _exported(engine, period, data, exporting.pop, exact=exact)
        except BaseException:
            exporting.pop()
            raise


@contextlib.contextmanager
def _limited(running: list[None], limit: int, what: str) -> Iterator[None]:
    """Count what runs in the block. Raises RequestRejected if it is too much."""
    running.append(None)
    try:
        if len(running) > limit:
            raise RequestRejected(429, f"{limit} {what}", {"retry-after": "2"})
        yield
    finally:
        running.pop()


def _exported(engine: ServeEngine, period: Period, data: Path, release: Callable[[], None], *, exact: bool) -> Response:
    """Make an export; `release` is called when it has been sent, or its client has left."""
    spans = recordings.spans_in(engine.recordings, period.source, period.from_s, period.to_s)
    size_bytes = sum(span.size_bytes for span in spans)
    if size_bytes > shutil.disk_usage(data).free - _RESERVE_BYTES:
        raise RequestRejected(409, f"the export needs {size_bytes / 1e6:,.0f} MB in {data}, and the disk is too full")
    with TemporaryDirectory(prefix="export-", dir=data) as folder:
        path = Path(folder) / "export.mp4"
        try:
            if exact:
                times = export_exact(
                    spans, path, period.from_s, period.to_s, threads=max(1, (os.cpu_count() or 2) // 2)
                )
            else:
                times = export_copy(spans, path)
        except SourceError as error:
            raise RequestRejected(409, str(error)) from None
        except FileNotFoundError:
            raise recordings.removed_meanwhile(period.source) from None
        file = path.open("rb")  # it stays readable when its folder is gone
    size = os.fstat(file.fileno()).st_size
    start = datetime.fromtimestamp(times.from_s, UTC)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{period.source}-{start:%Y%m%dT%H%M%S}Z.mp4")
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-length": str(size),
        "x-start-s": f"{times.from_s:.3f}",
        "x-end-s": f"{times.to_s:.3f}",
        **_NO_STORE,
    }
    return _FileDownload(file, release, headers)


class _FileDownload(StreamingResponse):
    """A file that has no name any more; it is closed when the response ends, also before its first part is sent."""

    media_type = "video/mp4"

    def __init__(self, file: BinaryIO, release: Callable[[], None], headers: Mapping[str, str]) -> None:
        super().__init__(iter(partial(file.read, _CHUNK_BYTES), b""), headers=headers)
        self.file = file
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, then close it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.file.close()
            self._release()
