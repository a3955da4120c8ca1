"""Cameras for tests: real RTSP servers on loopback, and proxies that damage the streams.

    def test_something(rtsp):
        server = rtsp({"gate": videos / "clip.mp4"}, user="ann", password="secret")
        server.url("gate")          # rtsp://ann:secret@127.0.0.1:40123/gate
        server.stop(); server.start(); server.freeze(); server.thaw(); server.swap("gate", other)

The server is GStreamer's, run by Debian's own Python: the tool and the packages it names must be there, or the tests
that ask for it are skipped.
"""

import contextlib
import os
import random
import re
import select
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

_PYTHON = "/usr/bin/python3"
_START_S = 60.0  # on a loaded machine


def tool() -> Path:
    """The server's script: $STREAMKIT_RTSP_SERVER, or shared/tools/rtsp_server.py beside the checkout."""
    named = os.environ.get("STREAMKIT_RTSP_SERVER")
    return Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "tools" / "rtsp_server.py"


def missing() -> str | None:
    """Return why no camera can be served here, or None."""
    if not tool().is_file():
        return f"no RTSP server: {tool()} is not there; set STREAMKIT_RTSP_SERVER"
    code = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    try:
        subprocess.run([_PYTHON, "-c", code], check=True, capture_output=True, text=True, timeout=60)
        subprocess.run(["ffprobe", "-version"], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        return f"no RTSP server: its Debian packages are missing ({str(reason).strip().splitlines()[-1]})"
    return None


def free_port() -> int:
    """Return a free TCP port of loopback.

    It is none of those that the system gives to connections, and each process of tests has a range of its own: so it is
    still free a little later, when a server is to listen there.
    """
    first = 12_000 + 4_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5)
    for port in random.SystemRandom().sample(range(first, first + 4_000), 100):
        with contextlib.suppress(OSError), socket.socket() as candidate:
            candidate.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def wait_until(true: Callable[[], object], timeout_s: float = 60.0, what: str = "it") -> None:
    """Wait until a condition holds; fail if it does not."""
    until_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until_s, f"{what} did not happen within {timeout_s:g} s"
        time.sleep(0.02)


class RtspServer:
    """Clips (H.264 or HEVC in MP4) as cameras on loopback, each repeated until `seconds` are full.

    Args:
        cameras: the file behind each name.
        folder: for what it writes.
        user: with a password: both are asked for.
        password: likewise.
        seconds: how long each camera shows pictures after its first viewer has come.
        port: where to listen; a free one by default, kept over restarts.
    """

    def __init__(
        self,
        cameras: Mapping[str, Path],
        folder: Path,
        *,
        user: str | None = None,
        password: str | None = None,
        seconds: float = 120.0,
        port: int | None = None,
    ) -> None:
        self.cameras = dict(cameras)
        self.folder = folder
        self.user = user
        self.password = password
        self.seconds = seconds
        self.port = port or free_port()
        self._process: subprocess.Popen[str] | None = None

    def url(self, name: str, *, user: str | None = None, password: str | None = None, port: int | None = None) -> str:
        """The address of a camera, with the right user and password unless others are given."""
        user = user or self.user
        password = password or self.password
        who = f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""
        return f"rtsp://{who}127.0.0.1:{port or self.port}/{name}"

    def start(self) -> None:
        """Serve, and return once it listens."""
        assert self._process is None, "it runs already"
        command = [_PYTHON, str(tool()), "--port", str(self.port), "--seconds", str(self.seconds)]
        if self.user:
            command += ["--user", f"{self.user}:{self.password}"]
        command += [f"{name}={path}" for name, path in self.cameras.items()]
        env = {**os.environ, "TMPDIR": str(self.folder)}
        with (self.folder / "rtsp_server.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _START_S)[0]:
            self.stop()
            pytest.fail(f"the RTSP server was not ready within {_START_S:g} s")
        if self._process.stdout.readline().strip() != "ready":
            self.stop()
            pytest.fail(f"the RTSP server did not start: {(self.folder / 'rtsp_server.log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Kill it, as a power cut would; `start` brings it back at the same port."""
        process = self._process
        self._process = None
        if process is not None:
            process.kill()  # also ends one that is frozen
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Hang: connections stay open, and nothing is sent."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume after `freeze`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def swap(self, name: str, path: Path) -> None:
        """Put another camera at an address; the server restarts for it."""
        self.cameras[name] = path
        self.restart()

    def change_password(self, password: str) -> None:
        """Require another password from now on; the server restarts for it."""
        self.password = password
        self.restart()


class Proxy:
    """A TCP proxy on loopback in front of a port, which damages the stream.

    For RTSP over UDP it stands between the media packets as well: it writes ports of its own into the SETUP requests
    and drops the share `loss` of the RTP packets that come there. With `refuse_tcp` it answers for a camera that sends
    by UDP only; with `tls` it is spoken to in TLS.

    Attributes:
        port: where it listens.
        connections: how many it has taken.
        lost: UDP packets it has dropped.
    """

    def __init__(
        self,
        target: int,
        *,
        loss: float = 0.0,
        seed: int = 0,
        refuse_tcp: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._target = target
        self._loss = loss
        self._chance = random.Random(seed)
        self._refuse_tcp = refuse_tcp
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = self.lost = self.passed = 0
        self._cut_after: int | None = None
        self._stalled = False
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, after_bytes: int = 0) -> None:
        """Close every connection after this many more bytes from the server: within a packet."""
        self._cut_after = after_bytes

    def stall(self, stalled: bool = True) -> None:
        """Forward nothing, and keep connections open."""
        self._stalled = stalled

    def close(self) -> None:
        """Stop listening and close open connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # also wakes the thread that waits there
        self._listener.close()
        self._break()

    def _break(self) -> None:
        with self._lock:
            broken = self._open
            self._open = []
        for connection in broken:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            self.connections += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open += [near, far]
            threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, asks: bool) -> None:
        try:
            while data := source.recv(4096):
                while self._stalled:
                    time.sleep(0.02)
                if asks and self._refuse_tcp and data.startswith(b"SETUP") and b"RTP/AVP/TCP" in data:
                    number = re.search(rb"CSeq: *(\d+)", data)
                    assert number is not None
                    source.sendall(b"RTSP/1.0 461 Unsupported Transport\r\nCSeq: " + number[1] + b"\r\n\r\n")
                    continue
                if asks and b"client_port=" in data:
                    data = re.sub(rb"client_port=(\d+)-(\d+)", self._between, data)
                if not asks and self._cut_after is not None:
                    if len(data) > self._cut_after:
                        to.sendall(data[: self._cut_after])
                        self._cut_after = None
                        break
                    self._cut_after -= len(data)
                to.sendall(data)
        except OSError:
            pass
        self._break()

    def _between(self, match: re.Match[bytes]) -> bytes:
        """Open two UDP ports in front of the client's."""
        for port in range(random.randrange(20000, 50000) & ~1, 65000, 2):
            pair = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
            try:
                for n, udp_socket in enumerate(pair):
                    udp_socket.bind(("127.0.0.1", port + n))
            except OSError:
                for udp_socket in pair:
                    udp_socket.close()
                continue
            for udp_socket, to, harmed in zip(pair, (int(match[1]), int(match[2])), (True, False), strict=True):
                with self._lock:
                    self._open.append(udp_socket)
                threading.Thread(target=self._pass_datagrams, args=(udp_socket, to, harmed), daemon=True).start()
            return b"client_port=%d-%d" % (port, port + 1)
        raise AssertionError("no two UDP ports side by side are free")

    def _pass_datagrams(self, source: socket.socket, to: int, harmed: bool) -> None:
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    return  # broken off
                if harmed and self._chance.random() < self._loss:
                    self.lost += 1
                    continue
                self.passed += harmed
                source.sendto(data, ("127.0.0.1", to))
        except OSError:
            return


@pytest.fixture(scope="session")
def rtsp_there() -> None:
    """Skip where no camera can be served."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def rtsp(rtsp_there: None, tmp_path: Path) -> Iterator[Callable[..., RtspServer]]:
    """Make cameras: call it with a file for each name and `RtspServer`'s options; the server runs already."""
    servers: list[RtspServer] = []

    def serve(cameras: Mapping[str, Path], **options: object) -> RtspServer:
        folder = tmp_path / f"rtsp{len(servers)}"
        folder.mkdir()
        server = RtspServer(cameras, folder, **options)  # type: ignore[arg-type]
        servers.append(server)
        server.start()
        return server

    yield serve
    for server in servers:
        server.stop()


@pytest.fixture
def proxy() -> Iterator[Callable[..., Proxy]]:
    """Make proxies in front of a port of loopback: call it with the port and `Proxy`'s options."""
    proxies: list[Proxy] = []

    def put(target: int, **options: object) -> Proxy:
        proxies.append(Proxy(target, **options))  # type: ignore[arg-type]
        return proxies[-1]

    yield put
    for running_proxy in proxies:
        running_proxy.close()
