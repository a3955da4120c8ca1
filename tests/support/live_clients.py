"""Clients of the WebSockets of live video and records."""

import io
import json
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import av
import numpy as np
from websockets.sync.client import connect

from support.coded import number_of
from support.servers import TOKEN

SIGNED_IN = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def socket(server, path, headers=None):
    url = server.url.replace("http", "ws", 1) + f"api/v1/{path}"
    headers = SIGNED_IN if headers is None else headers
    # whoever has not read everything hears nothing of the server's answer to the closing
    with connect(url, additional_headers=headers, max_size=None, close_timeout=0.5) as opened:
        yield opened


@dataclass(repr=False)
class Watched:
    """What came of a video: from its last start on."""

    starts: list[dict] = field(default_factory=list)
    offsets: list[tuple[float, float]] = field(default_factory=list)
    data: bytes = b""
    fragments: int = 0
    errors: list[str] = field(default_factory=list)

    def __repr__(self):
        return f"{self.starts}, {self.fragments} fragments, {self.errors}"

    def take(self, data):
        self.data += data
        self.fragments += data.count(b"moof")

    def tell(self, message):
        if "start" in message:
            self.starts.append(message["start"])
            offset = message["start"]["offset_s"]
            self.data = b""
            self.fragments = 0
            self.offsets = [] if offset is None else [(-1.0, offset)]
        elif "offset" in message:
            self.offsets.append((message["offset"]["from_s"], message["offset"]["offset_s"]))
        else:
            self.errors.append(message["error"])

    def pts_s(self, media_s):
        offsets = [offset for begin, offset in self.offsets if begin <= media_s + 0.002]
        return media_s + offsets[-1] if offsets else None

    def pictures(self):
        """Each frame: its time in records, its media time, and its picture as (height, width, 3) uint8."""
        with av.open(io.BytesIO(self.data)) as video:
            return [
                (self.pts_s(frame.time), frame.time, frame.to_ndarray(format="rgb24"))
                for frame in video.decode(video=0)
            ]

    def numbers(self):
        return [number_of(image) for *_, image in self.pictures()]


class Videos:
    """The videos of sources over one WebSocket.

    Attributes:
        of: what came of each source that was ever chosen.
        messages: number of messages that came.
    """

    def __init__(self, opened, *sources):
        self.opened = opened
        self.of = {}
        self.messages = 0
        self.choose(*sources)

    def choose(self, *sources):
        self.of |= {source: Watched() for source in sources if source not in self.of}
        self.opened.send(json.dumps({"sources": sources}))

    def take(self, message):
        self.messages += 1
        if isinstance(message, str):
            for entry in json.loads(message):
                self.of[entry.pop("source")].tell(entry)
            return
        begin = 4 + int.from_bytes(message[:4], "big")
        for source, size in json.loads(message[4:begin]):
            self.of[source].take(message[begin : begin + size])
            begin += size
        assert begin == len(message)

    def watch(self, source, until, seconds=60.0):
        """Read until the video of `source` is as `until(watched)` says; return it."""
        watched = self.of[source]
        end = time.monotonic() + seconds
        while not until(watched):
            assert time.monotonic() < end, f"not within {seconds} s: {source}: {watched}"
            with suppress(TimeoutError):
                self.take(self.opened.recv(timeout=1))
        return watched


@contextmanager
def videos(server, *sources, headers=None):
    """The videos of sources of a server."""
    with socket(server, "videos", headers) as opened:
        yield Videos(opened, *sources)


def received(opened, seconds=0.3):
    """The JSON messages that have come."""
    messages = []
    try:
        while True:
            messages.append(json.loads(opened.recv(timeout=seconds)))
            seconds = 0.01
    except TimeoutError:
        return messages


def left_of_box(image):
    """Where the white box of `coded` begins, in pixels."""
    return int(np.nonzero(image[20:, :, 0].max(axis=0) > 128)[0].min())
