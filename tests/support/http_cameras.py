"""Cameras over HTTP on loopback: what they send is a generator of bytes, so a test decides every byte and pause."""

import contextlib
import http.server
import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

from support.clips import scene

MULTIPART = "multipart/x-mixed-replace;boundary=frame"


def jpeg(index: int = 0, width: int = 64, height: int = 48, *, exif_orientation: int | None = None) -> bytes:
    """A JPEG image of the scene, if asked with the EXIF data that cameras write."""
    buffer = io.BytesIO()
    options = {}
    if exif_orientation is not None:
        exif = Image.Exif()
        exif[0x0112] = exif_orientation
        options["exif"] = exif
    Image.fromarray(scene(index, width, height)).save(buffer, "JPEG", quality=90, **options)
    return buffer.getvalue()


def noisy_jpeg(index: int = 0, width: int = 64, height: int = 48) -> bytes:
    """A JPEG image whose bytes are spread evenly over its rows, so that half of them are half of the picture."""
    noise = np.random.default_rng(index).integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def part(image: bytes) -> bytes:
    """One image as a part of a multipart stream with the boundary `frame`."""
    return b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(image) + image + b"\r\n"


def transport_stream(path: Path, fps: float) -> Iterator[bytes]:
    """The packets of a video without B frames as MPEG-TS, each when it is due at this many frames per second."""
    buffer = io.BytesIO()
    options = {"flush_packets": "1"}
    with av.open(buffer, "w", format="mpegts", options=options) as output, av.open(str(path)) as source:
        stream = output.add_stream_from_template(source.streams.video[0])
        sent = 0
        for number, packet in enumerate(packet for packet in source.demux(video=0) if packet.size):
            packet.stream = stream
            packet.time_base = Fraction(1, 90_000)
            packet.pts = packet.dts = round(number / fps * 90_000)
            output.mux_one(packet)
            yield buffer.getvalue()[sent:]
            sent = len(buffer.getvalue())
            time.sleep(1 / fps)


class HttpCamera:
    """A server that answers each request to any path with what `body` yields; the connection ends after that.

    Args:
        body: called with the path of each request.
        content_type: of the answers; None for none.

    Attributes:
        url: address of the server.
        paths: paths of all requests so far.
    """

    def __init__(self, body: Callable[[str], Iterable[bytes]], content_type: str | None = MULTIPART) -> None:
        self.paths: list[str] = []
        camera = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                camera.paths.append(self.path)
                self.send_response(200)
                if content_type is not None:
                    self.send_header("Content-Type", content_type)
                self.send_header("Connection", "close")
                self.end_headers()
                with contextlib.suppress(OSError):
                    for chunk in body(self.path):
                        self.wfile.write(chunk)

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def http_camera(body: Callable[[str], Iterable[bytes]], content_type: str | None = MULTIPART) -> Iterator[HttpCamera]:
    """An `HttpCamera` for the duration of a block."""
    camera = HttpCamera(body, content_type)
    try:
        yield camera
    finally:
        camera.close()
