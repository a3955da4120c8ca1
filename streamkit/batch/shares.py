"""How many workers this machine gets, on which devices, and how much each does at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamkit.runtime.device import choose
from streamkit.runtime.sizes import cores as all_cores
from streamkit.runtime.sizes import files_at_once

PROCESSES_A_GPU = 3
"""One process is bound by the interpreter's lock long before an H200 is busy; docs/performance.md."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What the workers of a machine are given.

    Attributes:
        devices: of each worker, as a YAML names it.
        slots: files that a worker reads at once.
        cores: CPU cores for each worker; None where its device is a GPU.
    """

    devices: list[str]
    slots: int
    cores: int | None


def share_out(device: str | list[str], workers: int | None, files: int, say: Callable[[str], None]) -> Shares:
    """Share a machine out to workers: on the CPU a core for each, a GPU to three.

    Args:
        device: what the pipeline asks for.
        workers: how many there are to be; None leaves it to the machine.
        files: how many files there are: more workers would have nothing to do.
        say: takes messages for the user.

    Raises:
        DeviceError: a device is asked for that is not there.
    """
    chosen = [choose(name, say) for name in (device if isinstance(device, list) else [device])]
    names = [str(one) for one in chosen]
    if chosen[0].kind == "cpu":
        count = max(1, min(workers or all_cores(), files))
        return Shares([names[0]] * count, 1, max(1, all_cores() // count))
    count = max(1, min(workers or PROCESSES_A_GPU * len(names), files))
    slots = -(-files_at_once(chosen[0]) * len(names) // count)
    return Shares([names[n % len(names)] for n in range(count)], slots, None)
