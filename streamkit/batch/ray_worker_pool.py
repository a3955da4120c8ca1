"""A worker pool on a Ray cluster, with actors in place of local processes.

Ray chooses the nodes, waits for room, and reports lost actors. Files are distributed as in the local pool.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import streamkit
from streamkit.batch.bundle import pack
from streamkit.batch.job import BatchJob, BatchSettings, Outcome
from streamkit.batch.pipeline import config_for
from streamkit.batch.ray_cluster import join, nodes_of, room
from streamkit.batch.ray_worker import RayChild, RayWorker, listen
from streamkit.batch.worker_plan import PROCESSES_A_GPU
from streamkit.batch.worker_pool import WorkerDied
from streamkit.batch.worker_pool_base import PooledWorker, WorkerPoolBase
from streamkit.core.errors import DeviceError
from streamkit.runtime.execution.sizes import FILES_A_GPU
from streamkit.runtime.multiprocess.children import error_of

_COUNT_S = 5.0
_NOBODY_S = 30.0
_LOSSES = 3
"""Lost nodes after which a file in progress counts as the cause."""
_MARK = ".ray-"
"""How the file begins by which workers know the output folder."""


class RayWorkerPool(WorkerPoolBase[RayChild]):
    """Workers on the nodes of a Ray cluster, as many as there are files and the cluster has room for.

    New nodes are used; the workers of a lost node are placed where there is room, or wait for it.

    Args:
        settings: the workers' settings. The pipeline's files are sent; videos and the output folder must have the same
            path on every node.
        address: the cluster's head, `host:port`, or `auto` for the cluster that this machine belongs to.
        device: `cpu`, `cuda` or `auto`, which uses GPUs if the cluster has any; None for the YAML's.
        workers: maximum number of workers; None for as many as the nodes can hold.
        cores: CPU cores per worker.
        timeout_s: how long a file may deliver no frame before its worker is stopped.
        say: receives messages for the user.

    Raises:
        MissingPackage: Ray is not installed.
        ConfigError: there is no such cluster, or the pipeline is too large to send.
        DeviceError: a GPU is requested, but the cluster has none.
    """

    def __init__(
        self, settings: BatchSettings, address: str, *, device: str | None = None, workers: int | None = None,
        cores: int = 1, timeout_s: float = 600.0, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
            pipeline = pack(settings, Path(folder))
            self._ray = join(address, Path(folder))
        sent = replace(settings, pipeline=pipeline, out=settings.out.absolute())
        self._asked, self._unfit = workers, 0
        self._mark = sent.out / f"{_MARK}{uuid4().hex}.part"
        named = self._device(device or config_for(settings).config.device)
        self._gpus = 1 / PROCESSES_A_GPU if named == "cuda" else 0
        each = -(-FILES_A_GPU // PROCESSES_A_GPU) if self._gpus else 1
        super().__init__(each, timeout_s, say)
        self._cpus = cores
        args = sent, named, each, None if self._gpus else cores, (0, 1)
        self._args = self._mark, streamkit.__version__, *args
        self._kind = self._ray.remote(
            num_cpus=cores, num_gpus=self._gpus, max_concurrency=4, scheduling_strategy="SPREAD"
        )(RayWorker)
        self._nodes, self._losses = set[str](), Counter[str]()
        self._counted_s, self._placed_s = float("-inf"), time.monotonic()
        self._count(time.monotonic())

    def start(self) -> None:
        """Mark the output folder; see `WorkerPool.start`. Workers are requested as files arrive."""
        for left in self._mark.parent.glob(f"{_MARK}*.part"):
            left.unlink(missing_ok=True)
        self._mark.touch()
        self._placed_s = time.monotonic()

    def give(self, job: BatchJob, alone: bool = False) -> None:
        """Queue a job, and request another worker if there is room; see `WorkerPool.give`."""
        in_hand = len(self.waiting) + sum(len(hand.jobs) for hand in self.hands)
        if len(self.hands) < min(in_hand + 1, self._wanted):
            number = max((hand.number for hand in self.hands), default=-1) + 1
            self.hands.append(PooledWorker(number, self.begin(number)))
        super().give(job, alone)

    def close(self) -> None:
        """Kill the actors and leave the cluster; see `WorkerPool.close`."""
        for hand in self.hands:
            hand.child.join(0.0)
        self.hands = []
        with contextlib.suppress(OSError):
            self._mark.unlink(missing_ok=True)
        self._ray.shutdown()

    def abort(self) -> None:
        """Do nothing: Ray ends the workers of a process that exits; see `WorkerPool.abort`."""

    # ------------------------------------------------------------------------------------------------------------

    def begin(self, number: int) -> RayChild:
        """Request an actor; see `WorkerPoolBase.begin`."""
        return RayChild(self._ray, self._kind, *self._args)

    def listen(self, children: Sequence[RayChild], timeout_s: float) -> None:
        """Wait for messages; see `WorkerPoolBase.listen`."""
        listen(self._ray, children, timeout_s)

    def place(self, hand: PooledWorker[RayChild]) -> str:
        """The worker's node; see `WorkerPoolBase.place`."""
        return hand.child.node or "waits for a place"

    def take(self, hand: PooledWorker[RayChild], kind: str, value: Any, found: list[Outcome | WorkerDied]) -> None:
        """Handle a message; a worker that cannot start is dismissed if others can. See `WorkerPoolBase.take`."""
        if kind != "fatal":
            super().take(hand, kind, value, found)
            return
        child = hand.child
        if hand.ready:
            child.how_it_died = f"on {child.node} ended: {value[1]}"
            child.kill()
            return
        error = error_of(value[0], f"on {child.node}: {value[1]}")
        if not any(other.ready for other in self.hands):
            raise error
        self._dismiss(hand, str(error))

    def gone(self, now_s: float) -> list[WorkerDied]:
        """Replace the workers that are gone; see `WorkerPoolBase.gone`.

        A lost node does not count against its files; a worker that cannot start where others can is dismissed.
        Actors are not restarted by Ray: Ray does not report why an actor died if it restarts it.
        """
        for hand in [hand for hand in self.hands if hand.child.over]:
            if hand.child.lost:
                self._take_back(hand)
            elif not hand.ready and any(other.ready for other in self.hands):
                self._dismiss(hand, f"the worker {hand.child.how_it_died}")
        found = super().gone(now_s)
        self._count(now_s)
        return found

    def _take_back(self, hand: PooledWorker[RayChild]) -> None:
        """Queue the files of a lost node again, before all others."""
        for key, job in list(hand.jobs.items()):
            self._losses[key] += 1
            if self._losses[key] <= _LOSSES:
                self.waiting.appendleft((job, hand.alone))
                del hand.jobs[key]
        hand.ready = True  # that it had not begun tells nothing of the pipeline

    def _dismiss(self, hand: PooledWorker[RayChild], why: str) -> None:
        """Continue without a worker, and with one slot less."""
        hand.child.join(0.0)
        self.hands.remove(hand)
        self._unfit += 1
        self.say(f"{why}; the others go on without it")

    def _count(self, now_s: float) -> None:
        """Update the number of workers periodically, because nodes come and go."""
        if now_s - self._counted_s < _COUNT_S:
            return
        self._counted_s = now_s
        nodes = nodes_of(self._ray)
        if nodes.keys() != self._nodes:
            self._nodes, self._unfit = set(nodes), 0  # other nodes, another chance
        places = room(nodes, self._cpus, self._gpus) - self._unfit
        self._wanted = max(1, places if self._asked is None else self._asked)
        self.slots = self._wanted * (self.each + 1)
        if not self.hands or any(hand.child.node for hand in self.hands):
            self._placed_s = now_s
        elif now_s - self._placed_s > _NOBODY_S:
            needs = f"{self._cpus} CPU core(s)" + (f" and {self._gpus:.2g} GPU" if self._gpus else "")
            self.say_once(
                f"the cluster has no room for a worker of {needs} yet; waiting (ray status shows who is there)"
            )

    def _device(self, asked: str | list[str]) -> str:
        """The device of all workers; Ray chooses the GPU."""
        names = asked if isinstance(asked, list) else [asked]
        has_gpu = self._ray.cluster_resources().get("GPU", 0) > 0
        if names[0] == "cpu" or (names[0] == "auto" and not has_gpu):
            return "cpu"
        if not has_gpu and self._asked is None:
            self._ray.shutdown()
            raise DeviceError("no node of the Ray cluster has a GPU; use --device cpu")
        return "cuda"
