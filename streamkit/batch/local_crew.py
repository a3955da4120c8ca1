"""The crew of one machine: a process for each worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streamkit.batch.crew import work
from streamkit.batch.hands import Hand, Hands
from streamkit.batch.job import Settings
from streamkit.runtime.children import SPAWN, Child, wait

_CLOSE_S, _AT_ONCE_S = 10.0, 0.5


class LocalCrew(Hands[Child]):
    """Workers in processes of this machine.

    Args:
        settings: what each worker is to make.
        devices: a device for each worker, as a YAML names it.
        slots: files that a worker reads at once.
        cores: CPU cores for each worker; None for all.
        timeout_s: how long a file may give no frame until its worker is ended.
        say: takes messages for the user.
    """

    def __init__(
        self, settings: Settings, devices: list[str], *, slots: int = 1, cores: int | None = None,
        timeout_s: float = 600.0, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        super().__init__(slots, timeout_s, say)
        self._settings, self._devices, self._cores = settings, devices, cores
        self.slots = len(devices) * (slots + 1)

    def start(self) -> None:
        """See `Crew.start`."""
        self.hands = [Hand(number, self.begin(number)) for number in range(len(self._devices))]

    def close(self) -> None:
        """See `Crew.close`."""
        for hand in self.hands:
            if hand.ready:
                hand.child.tell("now" if hand.jobs else "end")
            else:
                hand.child.kill()  # it hears nothing until its pipeline is open, and has nothing in hand
        self._join(_CLOSE_S)

    def abort(self) -> None:
        """See `Crew.abort`."""
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
        """See `Hands.begin`."""
        part = number, len(self._devices)
        return Child(f"worker/{number}", work, self._settings, self._devices[number], self.each, self._cores, part)

    def listen(self, children: Sequence[Child], timeout_s: float) -> None:
        """See `Hands.listen`."""
        wait(children, timeout_s)

    def place(self, hand: Hand[Child]) -> str:
        """See `Hands.place`."""
        return self._devices[hand.number]
