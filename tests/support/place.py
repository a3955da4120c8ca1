"""Somewhere to send to, in tests of emitters: the base of all of them, and a gate that does harm on the way there."""

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from support.broker_servers import BrokerServer
from support.poison import Poison


class Gate:
    """Passes TCP on to a port, and does harm where it is told to."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.swallow = False
        self._shut = False
        self._open = list[socket.socket]()
        self.swallowed = 0  # bytes
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        """Cut what is connected, and take nobody else."""
        self._shut = True
        self.cut()

    def open(self) -> None:
        self._shut = False

    def cut(self) -> None:
        for connection in list(self._open):
            _close(connection)
        self._open.clear()

    def close(self) -> None:
        self.shut()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._server.accept()
            except OSError:
                return
            try:
                if self._shut:
                    raise OSError
                outer = socket.create_connection(("127.0.0.1", self.target), 2)
                outer.settimeout(None)
            except OSError:
                inner.close()
                continue
            self._open += [inner, outer]
            threading.Thread(target=self._pass, args=(inner, outer, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(outer, inner, True), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if answers and self.swallow:
                    self.swallowed += len(data)
                else:
                    to.sendall(data)
        except OSError:
            pass
        _close(source)
        _close(to)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class Place:
    """Somewhere to send to: the options of its emitter, and what has arrived, in order of arrival."""

    kind = ""
    server: ClassVar[type[BrokerServer] | None] = None
    shared_server: ClassVar[str] = ""  # the fixture of a server that starts slowly; it is the second argument then
    has_gate: ClassVar[bool] = True
    freezes: ClassVar[bool] = True  # whether `freeze` stops what answers
    measured: ClassVar[bool] = True  # whether benchmarks/emitters.py measures it
    poisons: ClassVar[tuple[Poison, ...]] = ()  # records that the broker never takes
    broker: BrokerServer | None = None
    gate: Gate | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if self.server is not None:
            self.broker = self.server(folder / "broker")
            self.broker.start()
            self.gate = Gate(self.broker.port) if self.has_gate else None

    def options(self, password: str | None = None) -> dict[str, Any]:
        """Return the options of the emitter."""
        assert self.broker is not None
        port = self.broker.port if self.gate is None else self.gate.port
        return self.options_at(self.folder, port, password or self.broker.password)

    @classmethod
    def options_at(cls, folder: Path, port: int, password: str) -> dict[str, Any]:
        """Return the options of an emitter that sends to this port."""
        return {"url": f"{cls.kind}://{cls.user}:{quote(password, safe='')}@127.0.0.1:{port}{cls.path}"}

    user: ClassVar[str] = "streamkit"
    path: ClassVar[str] = ""

    def restart(self) -> None:
        """Kill the broker and start it again."""
        assert self.broker is not None
        self.broker.kill()
        time.sleep(0.2)
        self.broker.start()

    def received(self) -> list[dict[str, Any]]:
        """The records that have arrived."""
        raise NotImplementedError

    def close(self) -> None:
        if self.gate is not None:
            self.gate.close()
        if self.broker is not None:
            self.broker.kill()
