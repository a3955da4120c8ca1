"""Plans the workers of this machine: their number, their devices, and how many files each reads at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.sizes import cores as all_cores
from streamkit.runtime.execution.sizes import files_at_once

PROCESSES_A_GPU = 3
"""One process is bound by the interpreter's lock long before an H200 is busy; docs/performance.md."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The plan for the workers of a machine.

    Attributes:
        devices: the device of each worker, as in a YAML.
        slots: number of files that a worker reads at once.
        cores: CPU cores per worker; None on a GPU.
    """

    devices: list[str]
    slots: int
    cores: int | None


def plan_workers(device: str | list[str], workers: int | None, files: int, say: Callable[[str], None]) -> WorkerPlan:
    """Plan the workers of a machine: one per CPU core, or three per GPU.

    Args:
        device: the pipeline's device.
        workers: number of workers; None lets the machine decide.
        files: number of files, which limits the number of workers.
        say: receives messages for the user.

    Raises:
        DeviceError: a requested device does not exist.
    """
    chosen = [choose(name, say) for name in (device if isinstance(device, list) else [device])]
    names = [str(one) for one in chosen]
    if chosen[0].kind == "cpu":
        count = max(1, min(workers or all_cores(), files))
        return WorkerPlan([names[0]] * count, 1, max(1, all_cores() // count))
    count = max(1, min(workers or PROCESSES_A_GPU * len(names), files))
    slots = -(-files_at_once(chosen[0]) * len(names) // count)
    return WorkerPlan([names[n % len(names)] for n in range(count)], slots, None)
