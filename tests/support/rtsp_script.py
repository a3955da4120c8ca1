"""An RTSP camera in Python with a scripted clock: each frame has an RTP timestamp and a sending time.

    with scripted_camera(frames(100, stamp=lambda n: 0)) as url:  # its timestamps stand still
        ...

It sends H.264 over the RTSP connection (RTP interleaved in TCP), and RTCP sender reports if asked.
"""

import contextlib
import re
import socket
import struct
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import av

from support.clips import picture

RTP_RATE = 90_000
_NTP_EPOCH_S = 2_208_988_800  # from 1900 to 1970
_SSRC = 0x5EED
_LARGEST = 1200  # bytes of a NAL unit in one RTP packet
_PARAMETER_SETS = (7, 8)


@dataclass(frozen=True)
class SentFrame:
    """A frame in decode order.

    Attributes:
        units: its NAL units without start codes.
        stamp: RTP timestamp in ticks of 1/90000 s.
        at_s: when it is sent, in seconds after the first one.
        ntp_s: if set, a sender report comes before it that maps its timestamp to this time, in seconds since 1970.
    """

    units: tuple[bytes, ...]
    stamp: int
    at_s: float
    ntp_s: float | None = None


@cache
def _encoded(count: int, gop: int, b_frames: int) -> tuple[tuple[tuple[bytes, ...], int], ...]:
    """NAL units and number in presentation order of each frame, in decode order."""
    context = av.CodecContext.create("libx264", "w")
    context.width = 64
    context.height = 48
    context.pix_fmt = "yuv420p"
    context.time_base = Fraction(1, 25)
    params = f"keyint={gop}:scenecut=0:b-adapt=0:repeat-headers=1:annexb=1:log-level=none"
    context.options = {"preset": "veryfast", "bf": str(b_frames), "x264-params": params, "tune": "fastdecode"}
    packets = []
    for number in range(count):
        frame = picture(number)
        frame.pts = number
        frame.time_base = Fraction(1, 25)
        packets += context.encode(frame)
    packets += context.encode(None)
    return tuple(
        (tuple(unit.rstrip(b"\0") for unit in re.split(b"\0\0\1", bytes(packet))[1:]), packet.pts) for packet in packets
    )


def frames(
    count: int,
    *,
    rate: float = 25.0,
    gop: int = 25,
    b_frames: int = 0,
    stamp: Callable[[int], float] = lambda number: number / 25.0,
    ntp: Callable[[int], float | None] = lambda number: None,
) -> list[SentFrame]:
    """Frames of the scene.

    Args:
        count: number of frames.
        rate: frames sent per second.
        gop: frames from keyframe to keyframe.
        b_frames: B frames between two other frames.
        stamp: timestamp in seconds of a frame by its number in presentation order.
        ntp: time in seconds since 1970 that a sender report gives a frame; None for no report.
    """
    return [
        SentFrame(units, round(stamp(number) * RTP_RATE) + 12_345, place / rate, ntp(number))
        for place, (units, number) in enumerate(_encoded(count, gop, b_frames))
    ]


class _Session:
    """A connection of a client."""

    def __init__(self, connection: socket.socket, sent: Sequence[SentFrame], stays: bool) -> None:
        self._connection = connection
        self._sent = sent
        self._stays = stays
        self._sending = threading.Lock()
        self._sequence = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError), self._connection:
            while chunk := self._connection.recv(4096):
                buffer += chunk
                while buffer:
                    if buffer[:1] == b"$":  # a receiver report
                        size = 4 + int.from_bytes(buffer[2:4], "big")
                        if len(buffer) < size:
                            break
                        buffer = buffer[size:]
                        continue
                    request, end, rest = buffer.partition(b"\r\n\r\n")
                    if not end:
                        break
                    buffer = rest
                    self._answer(request.decode())
        self._stopped.set()

    def _answer(self, request: str) -> None:
        method = request.split(" ", 1)[0]
        number = re.search(r"CSeq: *(\d+)", request)
        head = f"RTSP/1.0 200 OK\r\nCSeq: {number[1] if number else 0}\r\nSession: 1;timeout=60\r\n"
        body = ""
        if method == "OPTIONS":
            head += "Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n"
        elif method == "DESCRIBE":
            body = self._description()
            head += f"Content-Type: application/sdp\r\nContent-Length: {len(body)}\r\n"
        elif method == "SETUP":
            head += "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"
        self._send(f"{head}\r\n{body}".encode())
        if method == "PLAY":
            threading.Thread(target=self._play, daemon=True).start()

    def _description(self) -> str:
        sets = [unit for unit in self._sent[0].units if unit[0] & 31 in _PARAMETER_SETS]
        sprop = ",".join(b64encode(unit).decode() for unit in sets)
        return (
            "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n"
            f"m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/{RTP_RATE}\r\n"
            f"a=fmtp:96 packetization-mode=1;sprop-parameter-sets={sprop}\r\na=control:track1\r\n"
        )

    def _play(self) -> None:
        first_s = time.monotonic()
        with contextlib.suppress(OSError):
            for frame in self._sent:
                if self._stopped.wait(max(0.0, first_s + frame.at_s - time.monotonic())):
                    return
                if frame.ntp_s is not None:
                    self._report(frame.stamp, frame.ntp_s)
                for place, unit in enumerate(frame.units):
                    self._send_unit(unit, frame.stamp, last=place == len(frame.units) - 1)
            if not self._stays:
                self._connection.shutdown(socket.SHUT_RDWR)

    def _send_unit(self, unit: bytes, stamp: int, *, last: bool) -> None:
        if len(unit) <= _LARGEST:
            self._send_rtp(unit, stamp, marker=last)
            return
        body = unit[1:]
        parts = [body[at : at + _LARGEST] for at in range(0, len(body), _LARGEST)]
        for place, part in enumerate(parts):
            is_end = place == len(parts) - 1
            header = bytes([unit[0] & 0xE0 | 28, (place == 0) << 7 | is_end << 6 | unit[0] & 31])
            self._send_rtp(header + part, stamp, marker=last and is_end)

    def _send_rtp(self, payload: bytes, stamp: int, *, marker: bool) -> None:
        header = struct.pack(">BBHII", 0x80, marker << 7 | 96, self._sequence & 0xFFFF, stamp & 0xFFFFFFFF, _SSRC)
        self._sequence += 1
        self._send(b"$\0" + struct.pack(">H", len(header) + len(payload)) + header + payload)

    def _report(self, stamp: int, ntp_s: float) -> None:
        whole = int(ntp_s)
        fraction = int((ntp_s - whole) * 2**32)
        seconds = whole + _NTP_EPOCH_S & 0xFFFFFFFF
        report = struct.pack(">BBHIIIIII", 0x80, 200, 6, _SSRC, seconds, fraction, stamp & 0xFFFFFFFF, 0, 0)
        self._send(b"$\1" + struct.pack(">H", len(report)) + report)

    def _send(self, message: bytes) -> None:
        with self._sending:
            self._connection.sendall(message)


@contextlib.contextmanager
def scripted_camera(sent: Sequence[SentFrame], *, stays: bool = False) -> Iterator[str]:
    """Serve frames to each client that connects, from the first one on; yields the address.

    Args:
        sent: the frames in decode order.
        stays: whether the connection stays open after the last frame.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=_Session(connection, sent, stays).run, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"rtsp://127.0.0.1:{listener.getsockname()[1]}/camera"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
