# SPDX-License-Identifier: Apache-2.0
"""What clients get over the WebSockets of live video and records.

A client that reads nothing for a while is left; what it is slow to read is dropped before, see `Viewer`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

import anyio
import orjson

from streamkit.runtime.preview.live import LiveFragment, LiveMessage, LiveOffset, LiveStart
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.event_models import EventView
from streamkit.serve.store.event_table import StoredEvent

_REQUEST_EVERY_S = 1.0
_SEND_EVERY_S = 0.1
"""What arrives meanwhile is sent together: the cost is that of a message, not of its frames."""

_MAX_EVENTS = 200
_PATIENCE_S = 30.0


class TextAndBytes(Protocol):
    """A WebSocket, as far as it is sent to."""

    async def send_text(self, data: str) -> None:
        """Send a text message."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message."""


async def send_video(engine: ServeEngine, source: str, socket: TextAndBytes) -> None:
    """Send a source's video until it is removed or may not be shown any more.

    Text messages are JSON: `start` comes before an initialization segment, `offset` whenever the mapping from media
    time to `pts_s` changes, `error` if there is no video. Binary messages are MP4.
    """
    hub, asked_s = engine.gallery.live, 0.0
    with hub.view(source) as viewer:
        while not engine.running.stopping:
            if time.monotonic() >= asked_s + _REQUEST_EVERY_S:
                asked_s = time.monotonic()
                try:
                    engine.check_video(source)  # an option may hide something now
                except RequestRejected as error:
                    await _send(socket, orjson.dumps({"error": error.text}).decode())
                    return
                hub.request(source)
            hub.gather(source)
            messages, _ = viewer.take()
            for part in _parts(messages):
                await _send(socket, part)
            await _next_turn()


def _parts(messages: list[LiveMessage]) -> Iterator[str | bytes]:
    """The messages as sent: fragments that follow each other are one."""
    fragments: list[bytes] = []
    for message in messages:
        if isinstance(message, LiveFragment):
            fragments.append(message.data)
            continue
        if fragments:
            yield b"".join(fragments)
            fragments = []
        if isinstance(message, LiveOffset):
            yield _text({"offset": {"from_s": message.from_s, "offset_s": message.offset_s}})
        elif message.error:
            yield _text({"error": message.error})
        else:
            yield _text({"start": _start(message)})
            yield message.init
    if fragments:
        yield b"".join(fragments)


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

    With `batch`, the records of a moment are one message, a JSON array.
    """
    hub, gallery, asked_s = engine.gallery.live, engine.gallery, 0.0
    last_event = gallery.last_event
    with hub.listen(sources) as viewer:
        while not engine.running.stopping:
            if time.monotonic() >= asked_s + _REQUEST_EVERY_S:
                asked_s = time.monotonic()
                for id_ in list(engine.running.states):
                    if sources is None or id_ in sources:
                        hub.request_records(id_)
            _, records = viewer.take()
            for one in [b"[%b]" % b",".join(records)] if batch and records else records:
                await _send(socket, one.decode())
            if gallery.last_event > last_event:
                for event in reversed(gallery.events(_MAX_EVENTS, after=last_event)):
                    last_event = max(last_event, event.number)
                    if sources is None or event.event.source in sources:
                        await _send(socket, _text({"event": EventView.of(StoredEvent.unwritten(event))}))
            await _next_turn()


async def _next_turn() -> None:
    """Wait for the time when all clients are served: the event loop wakes once for all of them."""
    now_s = anyio.current_time()
    await anyio.sleep_until((now_s // _SEND_EVERY_S + 1) * _SEND_EVERY_S)


def _text(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()


async def _send(socket: TextAndBytes, part: str | bytes) -> None:
    """Send one message. Raises TimeoutError if the client has not read for too long."""
    with anyio.fail_after(_PATIENCE_S):
        if isinstance(part, str):
            await socket.send_text(part)
        else:
            await socket.send_bytes(part)
