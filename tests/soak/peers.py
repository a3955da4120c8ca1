"""Peers that misbehave, and a real RTSP server whose leavings are cleared away."""

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.rtsp import RtspServer


class Cameras(RtspServer):
    """An RTSP server; killed again and again, it leaves no copies of its clips behind."""

    def stop(self) -> None:
        super().stop()
        for left in self.folder.glob("tmp*"):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def serving(folder: Path, cameras: Mapping[str, Path], seconds: float) -> Iterator[Cameras]:
    """A server that runs."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Cameras(cameras, folder, seconds=seconds)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Garbler:
    """Stands before an RTSP server: lets the words through, and turns what comes after them into garbage.

    Args:
        target: the server's port, on loopback.
        after: bytes from the server that go through unharmed on each connection.

    Attributes:
        port: where it listens.
        garbled: bytes of garbage sent.
    """

    def __init__(self, target: int, after: int = 4000) -> None:
        self._target = target
        self._after = after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.garbled = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and break what is open."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._open = [*(connection for connection in self._open if connection.fileno() >= 0), near, far]
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, harm: bool) -> None:
        passed = 0
        try:
            while data := source.recv(4096):
                if harm and passed > self._after:
                    data = os.urandom(len(data))
                    self.garbled += len(data)
                passed += len(data)
                to.sendall(data)
        except OSError:
            pass
        self._end(source)
        self._end(to)
