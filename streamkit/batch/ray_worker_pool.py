# SPDX-License-Identifier: Apache-2.0
"""The worker pool of a Ray cluster, with actors in place of local processes.

Ray chooses the nodes, waits for room, and reports lost actors. Files are assigned as in the local pool.

this process               a node
RayChild ── order ───────► RayWorker ── Mailbox ── worker.work ── BatchWorker, its pipeline warm
         ◄─ messages ─────
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import streamkit
from streamkit.batch.job import BatchJob, BatchSettings, Outcome
from streamkit.batch.pipeline import config_for
from streamkit.batch.ray_cluster import capacity, end_reason, join, nodes_of, pack
from streamkit.batch.worker import work
from streamkit.batch.worker_pool import PooledWorker, WorkerDied, WorkerPool
from streamkit.core.errors import ConfigError, DeviceError
from streamkit.core.logs import LogOnce
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.sizes import FILES_PER_GPU
from streamkit.runtime.multiprocess.children import Mailbox, ParentConnection, error_of
from streamkit.runtime.multiprocess.messages import Exited, Fatal

logger = logging.getLogger(__name__)

_COUNT_S = 5.0
_NO_ROOM_S = 30.0
_VISIBLE_WITHIN_S = 10.0
"""A shared file system may take this long to show a new file to other machines."""
_LOSSES = 3
"""Lost nodes after which a file in progress counts as the cause."""
_MARK = ".ray-"
"""Prefix of the file by which workers recognize the output folder."""
PROCESSES_PER_GPU = 3
"""What HEVC files need of an H200; the nodes' GPUs are not known in advance. See docs/performance-tuning.md."""


class RayWorker:
    """The actor: one worker, on the node that Ray has chosen."""

    def __init__(self, mark: Path, version: str, *args: Any) -> None:
        self._mailbox = Mailbox()
        start("worker", lambda: self._mailbox.run(_run, mark, version, *args))

    def begin(self) -> str:
        """The address of its node."""
        import ray

        return str(ray.util.get_node_ip_address())

    def order(self, order: Any) -> None:
        """Pass an order to the worker."""
        self._mailbox.order(order)

    def messages(self) -> list[Any]:
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
    """The pool's handle of an actor: a `WorkerLink`, as `Child` is for a local process.

    Args:
        ray: the package.
        kind: the actor's class, with its resource needs.
        args: its constructor's arguments.
    """

    pid = 0  # it is on another machine
    dying = False  # Ray says when it is gone

    def __init__(self, ray: Any, kind: Any, *args: Any) -> None:
        self._ray = ray
        self._kind = kind
        self._args = args
        self.answered = self.exited = self.lost = False
        self.node = self.exit_text = ""
        self._place()

    def _place(self) -> None:
        """Place the actor; it waits while Ray has no room for it."""
        self._actor = self._kind.remote(*self._args)
        self.answer = self._actor.begin.remote()

    def send(self, order: Any) -> None:
        """Send it an order; ignored after its end."""
        self._actor.order.remote(order)

    def receive(self) -> list[Any]:
        """Its messages since the last call; none before `RayWorkerPool.wait_messages` has marked it."""
        if not self.answered or self.exited:
            return []
        self.answered = False
        try:
            reply = self._ray.get(self.answer)
        except self._ray.exceptions.RayError as error:
            self._end(error)
            return []
        self.answer = self._actor.messages.remote()
        if not self.node:
            self.node = reply
            return []
        return list(reply)

    def _end(self, error: Exception) -> None:
        how, self.lost = end_reason(error)
        if self.lost and not self.node:  # its node was lost before it started
            self._place()
            return
        self.exit_text = f"on {self.node or 'a node'} {how}"
        self.exited = True

    def kill(self) -> None:
        """Kill it. It counts as ended at once, even if it cannot be reached."""
        self._ray.kill(self._actor)
        self.exited = True

    def join(self, within_s: float) -> None:
        """Make sure that it has ended."""
        self.kill()

    def abandon(self) -> None:
        """Kill it; see `WorkerLink`."""
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
        insecure: whether the cluster may run the code of everybody who reaches its public address.

    Raises:
        MissingPackage: Ray is not installed.
        ConfigError: there is no such cluster, it is open to the internet, or the pipeline is too large to send.
        DeviceError: a GPU is requested, but the cluster has none.
    """

    def __init__(
        self,
        settings: BatchSettings,
        address: str,
        *,
        device: str | None = None,
        workers: int | None = None,
        cores: int = 1,
        timeout_s: float = 600.0,
        insecure: bool = False,
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
            pipeline = pack(settings, Path(folder))
            self._ray = join(address, Path(folder), insecure=insecure)
        sent = replace(settings, pipeline=pipeline, out=settings.out.absolute())
        self._requested_workers = workers
        self._unfit = 0
        self._mark = sent.out / f"{_MARK}{uuid4().hex}.part"
        named = self._device(device or config_for(settings).config.device)
        self._gpus = 1 / PROCESSES_PER_GPU if named == "cuda" else 0
        each = -(-FILES_PER_GPU // PROCESSES_PER_GPU) if self._gpus else 1
        super().__init__(each, timeout_s)
        self._cpus = cores
        args = sent, named, each, None if self._gpus else cores, (0, 1)
        self._args = self._mark, streamkit.__version__, *args
        self._kind = self._ray.remote(
            num_cpus=cores, num_gpus=self._gpus, max_concurrency=4, scheduling_strategy="SPREAD"
        )(RayWorker)
        self._nodes = set[str]()
        self._losses = Counter[str]()
        self._warn = LogOnce(logger.warning)
        self._counted_s = float("-inf")
        self._placed_s = time.monotonic()
        self._count(time.monotonic())

    def start(self) -> None:
        """Mark the output folder; see `WorkerPool.start`. Workers are requested as files arrive."""
        for left in self._mark.parent.glob(f"{_MARK}*.part"):
            left.unlink(missing_ok=True)
        self._mark.touch()
        self._placed_s = time.monotonic()

    def submit(self, *jobs: BatchJob, alone: bool = False) -> None:
        """Queue jobs, and request workers for them; see `WorkerPool.submit`."""
        super().submit(*jobs, alone=alone)
        self._grow()

    def close(self) -> None:
        """Kill the actors and leave the cluster; see `WorkerPool.close`."""
        self.supervisor.close(0.0)
        self.pooled.clear()
        with contextlib.suppress(OSError):
            self._mark.unlink(missing_ok=True)
        self._ray.shutdown()

    # ------------------------------------------------------------------------------------------------------------

    def start_worker(self, number: int) -> RayChild:
        """Request an actor; see `WorkerPool.start_worker`."""
        return RayChild(self._ray, self._kind, *self._args)

    def wait_messages(self, children: Sequence[RayChild], timeout_s: float) -> None:
        """Wait until an actor responds or is lost, and mark the actors that have; see `WorkerPool.wait_messages`."""
        self._count(time.monotonic())
        answers = {child.answer: child for child in children if not child.exited}
        if not answers:
            time.sleep(timeout_s)
        elif self._ray.wait(list(answers), num_returns=1, timeout=timeout_s)[0]:
            for answer in self._ray.wait(list(answers), num_returns=len(answers), timeout=0)[0]:
                answers[answer].answered = True

    def location(self, worker: PooledWorker) -> str:
        """The worker's node; see `WorkerPool.location`."""
        return _actor(worker).node or "waiting for a node"

    def handle(self, worker: PooledWorker, message: Any, outcomes: list[Outcome | WorkerDied]) -> None:
        """Handle a message; see `WorkerPool.handle`.

        A lost node does not count against its files; a worker that cannot start where others can is dismissed.
        Actors are not restarted by Ray: Ray does not report why an actor died if it restarts it.
        """
        child = _actor(worker)
        others_work = any(other.ready for other in self.pooled)
        match message:
            case Fatal(_, text) if worker.ready:
                child.exit_text = f"on {child.node} ended: {text}"
                child.kill()
            case Fatal(_, text) if others_work:
                worker.killed = f"on {child.node}: {text}"
                child.kill()
            case Fatal(kind, text):
                raise error_of(kind, f"on {child.node}: {text}")
            case Exited(how) if not child.lost and not worker.ready and others_work:  # one slot less
                self._unfit += 1
                logger.error(f"{worker.killed or f'the worker {how}'}; the run continues without it")
            case _:
                if isinstance(message, Exited) and child.lost:
                    self._take_back(worker)
                super().handle(worker, message, outcomes)

    def _take_back(self, worker: PooledWorker) -> None:
        """Queue the files of a lost node again, before all others."""
        for key, job in list(worker.jobs.items()):
            self._losses[key] += 1
            if self._losses[key] <= _LOSSES:
                self.queue.appendleft((job, worker.alone))
                del worker.jobs[key]
        worker.ready = True  # losing its node is not a failed start

    def _grow(self) -> None:
        """Request workers, as many as there are files for and room."""
        unfinished = len(self.queue) + sum(len(worker.jobs) for worker in self.pooled)
        while len(self.pooled) < min(unfinished, self._wanted):
            self.add(max((worker.number for worker in self.pooled), default=-1) + 1)

    def _count(self, now_s: float) -> None:
        """Update the number of workers periodically, because nodes come and go."""
        if now_s - self._counted_s < _COUNT_S:
            return
        self._counted_s = now_s
        nodes = nodes_of(self._ray)
        if nodes.keys() != self._nodes:
            self._nodes = set(nodes)
            self._unfit = 0  # new nodes may be usable
        places = capacity(nodes, self._cpus, self._gpus) if self._requested_workers is None else self._requested_workers
        self._wanted = max(1, places - self._unfit)
        self._grow()
        if not self.pooled or any(_actor(worker).node for worker in self.pooled):
            self._placed_s = now_s
        elif now_s - self._placed_s > _NO_ROOM_S:
            needs = f"{self._cpus} CPU core(s)" + (f" and {self._gpus:.2g} GPU" if self._gpus else "")
            self._warn(f"the cluster has no room for a worker of {needs} yet; waiting (ray status shows its nodes)")

    def _device(self, requested: str | list[str]) -> str:
        """The device of all workers; Ray chooses the GPU."""
        names = requested if isinstance(requested, list) else [requested]
        has_gpu = self._ray.cluster_resources().get("GPU", 0) > 0
        if names[0] == "cpu" or (names[0] == "auto" and not has_gpu):
            return "cpu"
        if not has_gpu and self._requested_workers is None:
            self._ray.shutdown()
            raise DeviceError("no node of the Ray cluster has a GPU; use --device cpu")
        return "cuda"


def _actor(worker: PooledWorker) -> RayChild:
    link = worker.link
    assert isinstance(link, RayChild)
    return link
