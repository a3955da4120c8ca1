"""Real brokers for measuring and testing: each is a separate process on a free port, with its files in a folder.

Faults are real as well: a broker can be killed, frozen and started again on its port.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar


def free_port() -> int:
    """A TCP port that nothing listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether something accepts connections on this TCP port."""
    with socket.socket() as client:
        client.settimeout(0.2)
        return client.connect_ex(("127.0.0.1", port)) == 0


class BrokerServer:
    """A broker. Acknowledged records survive a kill, as far as the broker supports it.

    Args:
        folder: for its files.

    Attributes:
        port: where it listens, on 127.0.0.1; the same after every start.
        password: what it asks for, of the user `streamkit`.
    """

    name: ClassVar[str]
    binary: ClassVar[str]
    debian_packages: ClassVar[str] = ""  # what .ci/run installs
    start_s: ClassVar[float] = 20.0
    password = "p4ss/w:rd"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[str] | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Return why it cannot run here, or None."""
        return None if cls.path() else f"no {cls.binary} on this machine"

    @classmethod
    def path(cls) -> str | None:
        """Return its binary; servers are often in a folder that is only in root's PATH."""
        return shutil.which(cls.binary, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

    def command(self) -> list[str]:
        """Return the command that starts it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
                **self._as(),
            )
        until_s = time.monotonic() + self.start_s
        while not self._listens():
            if time.monotonic() > until_s or self.process.poll() is not None:
                raise RuntimeError(f"{self.name} does not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def make_room(self) -> None:
        """Create the queue or stream that stores the records of `streamkit`, if the broker needs one."""

    def kill(self) -> None:
        """Kill it, with no time to write anything."""
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.process.kill()
            self.process.wait()

    def freeze(self) -> None:
        """Freeze it: it accepts connections and answers nothing."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it after `freeze`."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def _listens(self) -> bool:
        return listens(self.port)

    def _as(self) -> dict[str, Any]:
        """Return how its process starts: the user if it must not be root, or its environment."""
        return {}
