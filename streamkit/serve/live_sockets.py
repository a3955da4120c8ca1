# SPDX-License-Identifier: Apache-2.0
"""What clients get over the WebSockets of live video and records.

A client that reads nothing for a while is left; what it is slow to read is dropped before, see `Viewer`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Protocol

import anyio
import orjson
from starlette.websockets import WebSocketDisconnect

from streamkit.core.records import as_json
from streamkit.runtime.preview.live import LiveFragment, LiveMessage, LiveOffset, LiveStart
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.event_models import EventView
from streamkit.serve.live import Watchers
from streamkit.serve.store.event_table import StoredEvent

_REQUEST_EVERY_S = 1.0
_SEND_EVERY_S = 0.1
"""What arrives meanwhile is sent together: the cost is that of a message, not of its frames."""

_MAX_EVENTS = 200
_MAX_VIDEOS = 256
_PATIENCE_S = 30.0


class TextAndBytes(Protocol):
    """A WebSocket, as far as it is sent to."""

    async def send_text(self, data: str) -> None:
        """Send a text message."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message."""


class VideoChoice:
    """The sources whose videos a client has asked for.

    Attributes:
        sources: their ids.
    """

    def __init__(self) -> None:
        self.sources: tuple[str, ...] = ()

    def read(self, message: str) -> None:
        """Take a message of the client. Raises ValueError if it is not as documented."""
        try:
            ids = orjson.loads(message)["sources"]
        except (ValueError, KeyError, TypeError, IndexError):
            ids = None
        if not isinstance(ids, list) or len(ids) > _MAX_VIDEOS or not all(isinstance(id_, str) for id_ in ids):
            raise ValueError(f'send {{"sources": ["ID", ...]}} with at most {_MAX_VIDEOS} sources')
        self.sources = tuple(dict.fromkeys(ids))


class VideoStream:
    """The video of one source for one client. It counts as a live stream until `close`.

    Args:
        engine: the pipeline.
        watchers: counts live streams.
        source: the source's id.

    Raises:
        RequestRejected: the source has no video, something is hidden, or the limit of live streams is reached.
    """

    def __init__(self, engine: ServeEngine, watchers: Watchers, source: str) -> None:
        self._engine = engine
        self._source = source
        self._hub = engine.gallery.live
        engine.check_video(source)
        self._checked_s = time.monotonic()
        self._open = ExitStack()
        watchers.admit()
        self._open.callback(watchers.release)
        self._viewer = self._open.enter_context(self._hub.view(source))

    def take(self) -> list[LiveMessage]:
        """What has come; a `LiveStart` is its first message. Raises RequestRejected if it may not be shown any more."""
        if time.monotonic() >= self._checked_s + _REQUEST_EVERY_S:
            self._checked_s = time.monotonic()
            self._engine.check_video(self._source)  # an option may hide something now
            self._hub.request(self._source)
        self._hub.gather(self._source)
        return self._viewer.take()[0]

    def close(self) -> None:
        """End it."""
        self._open.close()


class VideoStreams:
    """The videos that a client has chosen. A source that is refused is tried again once it was left out of the choice.

    Args:
        engine: the pipeline.
        watchers: counts live streams.
    """

    def __init__(self, engine: ServeEngine, watchers: Watchers) -> None:
        self._engine = engine
        self._watchers = watchers
        self._streams: dict[str, VideoStream | None] = {}  # None: refused

    def choose(self, sources: tuple[str, ...]) -> None:
        """Close the videos of all other sources."""
        for source in self._streams.keys() - sources:
            self._close(source)
            del self._streams[source]

    def take(self, source: str) -> tuple[list[dict[str, Any]], bytes]:
        """What has come of a source's video: entries of the text message, and its MP4."""
        try:
            if source not in self._streams:
                self._streams[source] = None
                self._streams[source] = VideoStream(self._engine, self._watchers, source)
            stream = self._streams[source]
            return ([], b"") if stream is None else _parts(source, stream.take())
        except RequestRejected as error:
            self._close(source)
            return [{"source": source, "error": error.text}], b""

    def close(self) -> None:
        """Close all of them."""
        for source in self._streams:
            self._close(source)

    def _close(self, source: str) -> None:
        stream = self._streams[source]
        self._streams[source] = None
        if stream is not None:
            stream.close()


async def send_videos(engine: ServeEngine, watchers: Watchers, choice: VideoChoice, socket: TextAndBytes) -> None:
    """Send the chosen videos: in each turn at most one text and one binary message for all of them."""
    streams = VideoStreams(engine, watchers)
    try:
        while not engine.running.stopping:
            streams.choose(choice.sources)
            taken = [(source, *streams.take(source)) for source in choice.sources]
            if entries := [entry for _, entries_of_source, _ in taken for entry in entries_of_source]:
                await send(socket, _text(entries))
            if sizes := [(source, len(data)) for source, _, data in taken if data]:
                header = orjson.dumps(sizes)
                parts = [len(header).to_bytes(4, "big"), header, *(data for *_, data in taken)]
                await send(socket, b"".join(parts))
            await _next_turn()
    finally:
        streams.close()


def _parts(source: str, messages: list[LiveMessage]) -> tuple[list[dict[str, Any]], bytes]:
    """Messages as they are sent: entries of the text message, and MP4, initialization segment and fragments."""
    entries: list[dict[str, Any]] = []
    data: list[bytes] = []
    for message in messages:
        if isinstance(message, LiveFragment):
            data.append(message.data)
        elif isinstance(message, LiveOffset):
            entries.append({"source": source, "offset": {"from_s": message.from_s, "offset_s": message.offset_s}})
        elif message.error:
            entries.append({"source": source, "error": message.error})
        else:
            entries.append({"source": source, "start": _start(message)})
            data.append(message.init)
    return entries, b"".join(data)


def _start(message: LiveStart) -> dict[str, Any]:
    return {
        "mime": f'video/mp4; codecs="{message.codecs}"',
        "width": message.width,
        "height": message.height,
        "offset_s": message.offset_s,
    }


async def send_records(
    engine: ServeEngine, sources: frozenset[str] | None, socket: TextAndBytes, *, batch: bool = False
) -> None:
    """Send the record of each frame of these sources, or of all, and each new event as `{"event": ...}`.

    With `batch`, the records of a moment are one message, a JSON array. For a client that may not see all sources, it
    ends when the sources change that the client may see: the client connects again.
    """
    hub = engine.gallery.live
    visible = engine.rights.visible()
    if visible is not None:
        sources = visible if sources is None else visible & sources
    gallery = engine.gallery
    requested_s = 0.0
    last_event = gallery.last_event
    with hub.listen(sources) as viewer:
        while not engine.running.stopping:
            if time.monotonic() >= requested_s + _REQUEST_EVERY_S:
                requested_s = time.monotonic()
                if engine.rights.visible() != visible:
                    return
                for id_ in list(engine.running.states):
                    if sources is None or id_ in sources:
                        hub.request_records(id_)
            hub.gather_records()
            _, records = viewer.take()
            for message in [b"[%b]" % b",".join(records)] if batch and records else records:
                await send(socket, message.decode())
            if gallery.last_event > last_event:
                for event in reversed(gallery.events(_MAX_EVENTS, after=last_event)):
                    last_event = max(last_event, event.number)
                    if sources is None or event.event.source in sources:
                        view = EventView.of(StoredEvent.unwritten(event), redacted=engine.rights.redacted)
                        await send(socket, _text({"event": view}))
            await _next_turn()


async def _next_turn() -> None:
    """Wait for the time when all clients are served: the event loop wakes once for all of them."""
    now_s = anyio.current_time()
    await anyio.sleep_until((now_s // _SEND_EVERY_S + 1) * _SEND_EVERY_S)


def _text(value: Any) -> str:
    return as_json(value, orjson.OPT_NON_STR_KEYS).decode()


async def send(socket: TextAndBytes, part: str | bytes) -> None:
    """Send one message. Raises WebSocketDisconnect if the client has left, or has not read for too long."""
    try:
        with anyio.fail_after(_PATIENCE_S):
            await (socket.send_text(part) if isinstance(part, str) else socket.send_bytes(part))
    except TimeoutError:
        raise WebSocketDisconnect(1008, f"the client has not read for {_PATIENCE_S:g} s") from None
