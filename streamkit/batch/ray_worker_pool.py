"""The worker pool of a Ray cluster, with actors in place of local processes.

Ray chooses the nodes, waits for room, and reports lost actors. Files are assigned as in the local pool.

this process               a node
RayChild ── order ───────► RayWorker ── Mailbox ── worker.work ── BatchWorker, its pipeline warm
         ◄─ messages ─────
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
from streamkit.batch.job import BatchJob, BatchSettings, Outcome
from streamkit.batch.pipeline import config_for
from streamkit.batch.ray_cluster import how_it_ended, join, nodes_of, pack, room
from streamkit.batch.worker import work
from streamkit.batch.worker_pool import PROCESSES_PER_GPU, PooledWorker, WorkerDied, WorkerPool
from streamkit.core.errors import ConfigError, DeviceError
from streamkit.runtime.execution.sizes import FILES_A_GPU
from streamkit.runtime.multiprocess.children import Mailbox, ParentConnection, error_of, live

_COUNT_S = 5.0
_NO_ROOM_S = 30.0
_VISIBLE_WITHIN_S = 10.0
"""A shared file system may take this long to show a new file to other machines."""
_LOSSES = 3
"""Lost nodes after which a file in progress counts as the cause."""
_MARK = ".ray-"
"""Prefix of the file by which workers recognise the output folder."""


class RayWorker:
    """The actor: one worker, on the node that Ray has chosen."""

    def __init__(self, mark: Path, version: str, *args: Any) -> None:
        self._mailbox = Mailbox()
        live(self._mailbox, _run, mark, version, *args)

    def begin(self) -> str:
        """The address of its node."""
        import ray

        return str(ray.util.get_node_ip_address())

    def order(self, kind: str, value: Any) -> None:
        """Pass an order to the worker."""
        self._mailbox.order(kind, value)

    def messages(self) -> list[tuple[str, Any]]:
        """Wait for the worker's messages since the last call, and return them."""
        return self._mailbox.fetch()


def _run(link: ParentConnection, mark: Path, version: str, settings: BatchSettings, *args: Any) -> None:
    """Check that the node is usable, then run the worker."""
    if version != streamkit.__version__:
        raise ConfigError(f"streamkit is {streamkit.__version__} there, and {version} where the run was started")
    until = time.monotonic() + _VISIBLE_WITHIN_S
    while not mark.exists():
        if time.monotonic() > until:
            raise ConfigError(
                f"the output folder {mark.parent} is not the one of the machine where the run was started; it must be "
                "on a file system that all nodes share, under the same path"
            )
        time.sleep(0.2)
    work(link, settings, *args)


class RayChild:
    """The pool's handle of an actor: what `Child` is for a local process.

    Args:
        ray: the package.
        kind: the actor's class, with its resource needs.
        args: its constructor's arguments.
    """

    def __init__(self, ray: Any, kind: Any, *args: Any) -> None:
        self._ray, self._kind, self._args = ray, kind, args
        self.answered = self.over = self.lost = False
        self.node = self.how_it_died = ""
        self._place()

    def _place(self) -> None:
        """Place the actor; it waits while Ray has no room for it."""
        self._actor = self._kind.remote(*self._args)
        self.answer = self._actor.begin.remote()

    def tell(self, kind: str, value: Any = None) -> None:
        """Send it an order; ignored after its end."""
        self._actor.order.remote(kind, value)

    def hear(self) -> list[tuple[str, Any]]:
        """Its messages since the last call; none before `RayWorkerPool.listen` has marked it."""
        if not self.answered or self.over:
            return []
        self.answered = False
        try:
            found = self._ray.get(self.answer)
        except self._ray.exceptions.RayError as error:
            self._end(error)
            return []
        self.answer = self._actor.messages.remote()
        if not self.node:
            self.node, found = found, []
        return list(found)

    def _end(self, error: Exception) -> None:
        how, self.lost = how_it_ended(error)
        if self.lost and not self.node:  # its node was lost before it started
            self._place()
            return
        self.how_it_died = f"on {self.node or 'a node'} {how}"
        self.over = True

    def kill(self) -> None:
        """Kill it. It counts as ended at once, even if it cannot be reached."""
        self._ray.kill(self._actor)
        self.over = True

    def join(self, within_s: float) -> None:
        """Make sure that it has ended."""
        self.kill()


class RayWorkerPool(WorkerPool):
    """Workers on the nodes of a Ray cluster, as many as there are files and the cluster has room for.

    Ray ends them with this process, so `abort` has nothing to do.

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
        self._gpus = 1 / PROCESSES_PER_GPU if named == "cuda" else 0
        each = -(-FILES_A_GPU // PROCESSES_PER_GPU) if self._gpus else 1
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
        unfinished = len(self.queue) + sum(len(worker.jobs) for worker in self.pooled)
        if len(self.pooled) < min(unfinished + 1, self._wanted):
            self.add(max((worker.number for worker in self.pooled), default=-1) + 1)
        super().give(job, alone)

    def close(self) -> None:
        """Kill the actors and leave the cluster; see `WorkerPool.close`."""
        for worker in self.pooled:
            worker.child.join(0.0)
        self.pooled = []
        with contextlib.suppress(OSError):
            self._mark.unlink(missing_ok=True)
        self._ray.shutdown()

    # ------------------------------------------------------------------------------------------------------------

    def begin(self, number: int) -> RayChild:
        """Request an actor; see `WorkerPool.begin`."""
        return RayChild(self._ray, self._kind, *self._args)

    def listen(self, children: Sequence[RayChild], timeout_s: float) -> None:
        """Wait until an actor responds or is lost, and mark the actors that have; see `WorkerPool.listen`."""
        answers = {child.answer: child for child in children if not child.over}
        if not answers:
            time.sleep(timeout_s)
        elif self._ray.wait(list(answers), num_returns=1, timeout=timeout_s)[0]:
            for answer in self._ray.wait(list(answers), num_returns=len(answers), timeout=0)[0]:
                answers[answer].answered = True

    def place(self, worker: PooledWorker) -> str:
        """The worker's node; see `WorkerPool.place`."""
        return worker.child.node or "waiting for a node"

    def take(self, worker: PooledWorker, kind: str, value: Any, found: list[Outcome | WorkerDied]) -> None:
        """Handle a message; a worker that cannot start is dismissed if others can. See `WorkerPool.take`."""
        if kind != "fatal":
            super().take(worker, kind, value, found)
            return
        child = worker.child
        if worker.ready:
            child.how_it_died = f"on {child.node} ended: {value[1]}"
            child.kill()
            return
        error = error_of(value[0], f"on {child.node}: {value[1]}")
        if not any(other.ready for other in self.pooled):
            raise error
        self._dismiss(worker, str(error))

    def gone(self, now_s: float) -> list[WorkerDied]:
        """Replace the workers that are gone; see `WorkerPool.gone`.

        A lost node does not count against its files; a worker that cannot start where others can is dismissed.
        Actors are not restarted by Ray: Ray does not report why an actor died if it restarts it.
        """
        for worker in [worker for worker in self.pooled if worker.child.over]:
            if worker.child.lost:
                self._take_back(worker)
            elif not worker.ready and any(other.ready for other in self.pooled):
                self._dismiss(worker, f"the worker {worker.child.how_it_died}")
        found = super().gone(now_s)
        self._count(now_s)
        return found

    def _take_back(self, worker: PooledWorker) -> None:
        """Queue the files of a lost node again, before all others."""
        for key, job in list(worker.jobs.items()):
            self._losses[key] += 1
            if self._losses[key] <= _LOSSES:
                self.queue.appendleft((job, worker.alone))
                del worker.jobs[key]
        worker.ready = True  # losing its node is not a failed start

    def _dismiss(self, worker: PooledWorker, why: str) -> None:
        """Continue without a worker, and with one slot less."""
        worker.child.join(0.0)
        self.pooled.remove(worker)
        self._unfit += 1
        self.say(f"{why}; the run continues without it")

    def _count(self, now_s: float) -> None:
        """Update the number of workers periodically, because nodes come and go."""
        if now_s - self._counted_s < _COUNT_S:
            return
        self._counted_s = now_s
        nodes = nodes_of(self._ray)
        if nodes.keys() != self._nodes:
            self._nodes, self._unfit = set(nodes), 0  # new nodes may be usable
        places = room(nodes, self._cpus, self._gpus) - self._unfit
        self._wanted = max(1, places if self._asked is None else self._asked)
        self.slots = self._wanted * (self.slots_each + 1)
        if not self.pooled or any(worker.child.node for worker in self.pooled):
            self._placed_s = now_s
        elif now_s - self._placed_s > _NO_ROOM_S:
            needs = f"{self._cpus} CPU core(s)" + (f" and {self._gpus:.2g} GPU" if self._gpus else "")
            self.say_once(f"the cluster has no room for a worker of {needs} yet; waiting (ray status shows its nodes)")

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
