"""Receivers of pushed video on loopback: a recording RTSP server, RTMP, and an HTTP server that accepts PUT.

    def test_something(rtsp_receiver):
        receiver = rtsp_receiver("gate", folder / "gate.mkv")
        receiver.url; receiver.stop(); receiver.start(); receiver.freeze()

The RTSP server is GStreamer's, run by Debian's own Python, as in `rtsp.py`.
"""

import http.server
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.rtsp import free_port
from support.rtsp import missing as missing_server

_PYTHON = "/usr/bin/python3"

_RTSP = """
import sys
import gi
gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer
port, name, target, user = sys.argv[1:]
Gst.init(None)
server = GstRtspServer.RTSPServer(service=port, address="127.0.0.1")
factory = GstRtspServer.RTSPMediaFactory()
factory.set_transport_mode(GstRtspServer.RTSPTransportMode.RECORD)
factory.set_launch(f'( rtph264depay name=depay0 ! h264parse ! matroskamux streamable=true ! filesink sync=false location="{target}" )')
factory.set_eos_shutdown(True)
if user:
    auth, token = GstRtspServer.RTSPAuth(), GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "writer")
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(*user.split(":", 1)), token)
    server.set_auth(auth)
    factory.add_role_from_structure(Gst.Structure.new_from_string(
        "writer,media.factory.access=true,media.factory.construct=true"))
server.get_mount_points().add_factory(f"/{name}", factory)
server.attach(None)
loop = GLib.MainLoop()
GLib.unix_signal_add(GLib.PRIORITY_HIGH, 15, loop.quit)
print("ready", flush=True)
loop.run()
"""  # noqa: E501

_RTMP = """
import sys, av
url, target, enough = sys.argv[1:]
print("ready", flush=True)
options = {"listen": "1", "analyzeduration": "200000", "fpsprobesize": "0"}
with av.open(url, options=options, timeout=60) as source, av.open(target, "w", format="matroska") as sink:
    stream = source.streams.video[0]
    out = sink.add_stream_from_template(stream, opaque=True)
    seen = 0
    try:
        for packet in source.demux(stream):
            if packet.size:
                packet.stream = out
                sink.mux_one(packet)
                seen += 1
                if seen == int(enough):
                    break
    except av.FFmpegError:
        pass
"""


class Receiver:
    """A process that waits for a stream and writes it into a file.

    Args:
        command: what to run; prints `ready` when it listens.
        url: where to push to.
        target: the file that the video goes to.
    """

    def __init__(self, command: list[str], url: str, target: Path) -> None:
        self._command = command
        self.url = url
        self.target = target
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Listen."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], 60)[0], "the receiver was not ready within 60 s"
        assert self._process.stdout.readline().strip() == "ready"

    def stop(self, *, gently: bool = False) -> None:
        """Kill it, as a power cut would, or let it finish its file."""
        process = self._process
        self._process = None
        if process is not None:
            process.send_signal(signal.SIGTERM if gently else signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    @property
    def done(self) -> bool:
        """Return whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def freeze(self) -> None:
        """Hang: the connection stays open, and nothing is read."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)


@pytest.fixture
def rtsp_receiver() -> Iterator[Callable[..., Receiver]]:
    """Make RTSP servers that record: call it with a name and a file, and `user` as "name:password"."""
    reason = missing_server()
    if reason is not None:
        pytest.skip(reason)
    receivers: list[Receiver] = []

    def receive(name: str, target: Path, *, user: str = "") -> Receiver:
        port = free_port()
        url = f"rtsp://{user + '@' if user else ''}127.0.0.1:{port}/{name}"
        receivers.append(Receiver([_PYTHON, "-c", _RTSP, str(port), name, str(target), user], url, target))
        receivers[-1].start()
        return receivers[-1]

    yield receive
    for receiver in receivers:
        receiver.stop()


@pytest.fixture
def rtmp_receiver() -> Iterator[Callable[..., Receiver]]:
    """Make RTMP receivers, by FFmpeg's own: call it with a file and how many packets are enough."""
    receivers: list[Receiver] = []

    def receive(target: Path, enough: int) -> Receiver:
        url = f"rtmp://127.0.0.1:{free_port()}/live/gate"
        receivers.append(Receiver([sys.executable, "-c", _RTMP, url, str(target), str(enough)], url, target))
        receivers[-1].start()
        return receivers[-1]

    yield receive
    for receiver in receivers:
        receiver.stop()


class Uploads(http.server.ThreadingHTTPServer):
    """An HTTP server that stores PUT bodies in `files` by path."""

    daemon_threads = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        super().__init__(("127.0.0.1", 0), _Put)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Put(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Uploads

    def do_PUT(self) -> None:
        data = b""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.files[self.path] = data
        self._done()

    def do_DELETE(self) -> None:
        self.server.files.pop(self.path, None)
        self._done()

    def _done(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def uploads() -> Iterator[Uploads]:
    """Start an HTTP server that accepts PUT."""
    server = Uploads()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
