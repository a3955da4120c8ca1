# SPDX-License-Identifier: Apache-2.0
"""Decoders alone, in one process or in several that measure at the same time: the limit of whole pipelines.

Python's lock may bind one process with many readers before the decoders do, so a limit is the higher of both.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streamkit.bench.child import main, results
from streamkit.bench.limits import decode_alone
from streamkit.core.errors import StreamkitError
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import Stopped, side_by_side
from streamkit.runtime.multiprocess.mps import MpsDaemon

_WAIT_S = 60.0


@dataclass(slots=True)
class DecodersSpec:
    """The readers of one process.

    Attributes:
        clip: a video, which each reader reads again from its start.
        device: where to decode.
        sources: number of readers.
        seconds: duration of the measurement.
        number: index of this process.
        processes: number of processes that measure at the same time.
        folder: where each process writes that its readers have started.
    """

    clip: str
    device: str
    sources: int
    seconds: float
    number: int
    processes: int
    folder: str


def decoders_fps(
    clip: Path, device: str, sources: int, seconds: float, processes: int, until_s: float | None = None
) -> float:
    """Frames per second of readers of one clip without stages after them, shared out over processes.

    Processes share a GPU through MPS where it is installed, as those of a pipeline do.

    Args:
        clip: a video.
        device: `cpu`, `cuda` or `cuda:N`.
        sources: number of readers, a thread each.
        seconds: duration of the measurement.
        processes: number of processes; at most one per source is used.
        until_s: when to stop, in monotonic seconds.

    Raises:
        StreamkitError: a reader did not start.
        TimeoutError: it was stopped at `until_s`.
    """
    processes = min(processes, sources)
    with tempfile.TemporaryDirectory(prefix="streamkit-decoders-") as folder, ExitStack() as opened:
        specs = [
            DecodersSpec(str(clip), device, len(range(i, sources, processes)), seconds, i, processes, folder)
            for i in range(processes)
        ]
        if processes > 1 and device != "cpu":
            daemon = opened.enter_context(MpsDaemon())
            opened.enter_context(variables(daemon.environment))
        rates: list[float] = []

        def measure(spec: DecodersSpec, stopped: Stopped) -> None:
            *_, measurement = results(spec, until_s)
            if "error" in measurement:
                raise StreamkitError(measurement["error"])
            rates.append(measurement["fps"])

        with side_by_side(*(partial(measure, spec) for spec in specs)):
            pass
    return sum(rates)


class variables:  # noqa: N801  a context manager, named as what it sets
    """Sets environment variables, which processes inherit, while the block runs."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def __enter__(self) -> None:
        self._before = dict(os.environ)
        os.environ.update(self._settings)

    def __exit__(self, *error: object) -> None:
        os.environ.clear()
        os.environ.update(self._before)


def _work(spec: DecodersSpec) -> Iterator[dict[str, Any]]:
    def together() -> None:
        folder = Path(spec.folder)
        until = time.monotonic() + _WAIT_S
        (folder / str(spec.number)).touch()
        while len(list(folder.iterdir())) < spec.processes:
            if time.monotonic() > until:
                raise StreamkitError("the readers of another process did not start")
            time.sleep(0.002)

    yield {"fps": decode_alone(spec.clip, choose(spec.device), spec.sources, spec.seconds, together)}


if __name__ == "__main__":
    main(DecodersSpec, _work)
