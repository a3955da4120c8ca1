"""The worker pool of one machine: one process per worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streamkit.batch.job import BatchSettings
from streamkit.batch.worker_pool import work
from streamkit.batch.worker_pool_base import PooledWorker, WorkerPoolBase
from streamkit.runtime.multiprocess.children import SPAWN, Child, wait

_CLOSE_S, _AT_ONCE_S = 10.0, 0.5


class LocalWorkerPool(WorkerPoolBase[Child]):
    """Workers in processes of this machine.

    Args:
        settings: the workers' settings.
        devices: a device for each worker, as in a YAML.
        slots: number of files that a worker reads at once.
        cores: CPU cores per worker; None for all.
        timeout_s: how long a file may deliver no frame before its worker is stopped.
        say: receives messages for the user.
    """

    def __init__(
        self, settings: BatchSettings, devices: list[str], *, slots: int = 1, cores: int | None = None,
        timeout_s: float = 600.0, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        super().__init__(slots, timeout_s, say)
        self._settings, self._devices, self._cores = settings, devices, cores
        self.slots = len(devices) * (slots + 1)

    def start(self) -> None:
        """Start a process for each device; see `WorkerPool.start`."""
        self.hands = [PooledWorker(number, self.begin(number)) for number in range(len(self._devices))]

    def close(self) -> None:
        """Stop the processes; see `WorkerPool.close`."""
        for hand in self.hands:
            if hand.ready:
                hand.child.tell("now" if hand.jobs else "end")
            else:
                hand.child.kill()  # it hears nothing until its pipeline is open, and has nothing in hand
        self._join(_CLOSE_S)

    def abort(self) -> None:
        """Kill all processes; see `WorkerPool.abort`."""
        for hand in self.hands:
            hand.child.tell("now")
        self._join(_AT_ONCE_S)
        for process in SPAWN.active_children():  # one that had just been started is not in a hand yet
            process.kill()

    def _join(self, within_s: float) -> None:
        until = time.monotonic() + within_s
        for hand in self.hands:
            hand.child.join(max(0.0, until - time.monotonic()))
        self.hands = []

    def begin(self, number: int) -> Child:
        """Start a process; see `WorkerPoolBase.begin`."""
        part = number, len(self._devices)
        return Child(f"worker/{number}", work, self._settings, self._devices[number], self.each, self._cores, part)

    def listen(self, children: Sequence[Child], timeout_s: float) -> None:
        """Wait for messages; see `WorkerPoolBase.listen`."""
        wait(children, timeout_s)

    def place(self, hand: PooledWorker[Child]) -> str:
        """The worker's device; see `WorkerPoolBase.place`."""
        return self._devices[hand.number]
