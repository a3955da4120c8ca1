"""Workers on a Ray cluster: the crew of one machine, with actors in place of its processes.

Ray chooses the nodes, waits where there is no room, and knows who is gone. Which worker gets which file is decided as
it is at home.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import streamkit
from streamkit.batch.bundle import pack
from streamkit.batch.crew import Died, LocalCrew, WorkerState, _Hand
from streamkit.batch.job import Job, Outcome, Settings
from streamkit.batch.pipeline import config_for
from streamkit.batch.ray_cluster import join, nodes_of, room
from streamkit.batch.ray_worker import RayChild, RayWorker, listen
from streamkit.errors import DeviceError
from streamkit.runtime.children import Child, error_of

_LOOK_S, _COUNT_S = 1.0, 5.0
_NOBODY_S = 30.0
_A_GPU, _FILES_A_GPU = 3, 32
"""Workers that share a GPU, and files that they read at once, all together; as on one machine."""
_LOSSES = 3
"""So often a file may be in hand on a node that is lost; then it may be the file."""
_MARK = ".ray-"
"""How the file begins by which workers know the output folder."""


class RayCrew(LocalCrew):
    """Workers on the nodes of a Ray cluster, as many as there are files for and the cluster has room for.

    A node that joins is used; the workers of one that is lost are placed where there is room, or wait for it.

    Args:
        settings: what each worker is to make. The pipeline's files are sent; videos and output folder must be found
            under the same path on every node.
        address: of the cluster's head, `host:port`, or `auto` for the one that this machine belongs to.
        device: `cpu`, `cuda` or `auto`, which is a GPU where the cluster has one; None for what the YAML says.
        workers: at most so many; None for as many as the nodes can hold.
        cores: CPU cores for each.
        timeout_s: how long a file may give no frame until its worker is ended.
        say: takes messages for the user, each text once.

    Raises:
        MissingPackage: Ray is not installed.
        ConfigError: there is no such cluster, or the pipeline is too large to be sent.
        DeviceError: it has no GPU, and one is asked for.
    """

    def __init__(
        self, settings: Settings, address: str, *, device: str | None = None, workers: int | None = None,
        cores: int = 1, timeout_s: float = 600.0, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
            pipeline = pack(settings, Path(folder))
            self._ray = join(address, Path(folder))
        sent = replace(settings, pipeline=pipeline, out=settings.out.absolute())
        self._asked, self._unfit = workers, 0
        self._mark = sent.out / f"{_MARK}{uuid4().hex}.part"
        named = self._device(device or config_for(settings).config.device)
        self._gpus = 1 / _A_GPU if named == "cuda" else 0
        each = -(-_FILES_A_GPU // _A_GPU) if self._gpus else 1
        super().__init__(sent, [named], slots=each, cores=None if self._gpus else cores, timeout_s=timeout_s, say=say)
        self._cpus = cores
        self._kind = self._ray.remote(
            num_cpus=cores, num_gpus=self._gpus, max_concurrency=4, scheduling_strategy="SPREAD"
        )(RayWorker)
        self._nodes, self._losses = set[str](), Counter[str]()
        self._counted_s, self._placed_s = float("-inf"), time.monotonic()
        self._count(time.monotonic())

    def start(self) -> None:
        """See `Crew.start`. Workers are asked for as files are given."""
        for left in self._mark.parent.glob(f"{_MARK}*.part"):
            left.unlink(missing_ok=True)
        self._mark.touch()
        self._placed_s = time.monotonic()

    def give(self, job: Job, alone: bool = False) -> None:
        """See `Crew.give`."""
        in_hand = len(self._waiting) + sum(len(hand.jobs) for hand in self._hands)
        if len(self._hands) < min(in_hand + 1, self._wanted):
            self._hands.append(self._begin(max((hand.number for hand in self._hands), default=-1) + 1))
        super().give(job, alone)

    def wait(self, timeout_s: float) -> list[Outcome | Died]:
        """See `Crew.wait`."""
        found: list[Outcome | Died] = []
        until = time.monotonic() + timeout_s
        while not found and (left_s := until - time.monotonic()) > 0:
            listen(self._ray, [_child(hand) for hand in self._hands], min(left_s, _LOOK_S))
            for hand in list(self._hands):
                for kind, value in hand.child.hear():
                    self._take(hand, kind, value, found)
            self._hand_out()
            found.extend(self._gone(time.monotonic()))
            self._count(time.monotonic())
        return found

    def workers(self) -> list[WorkerState]:
        """See `Crew.workers`."""
        places = [_child(hand).node or "waits for a place" for hand in self._hands]
        return [
            WorkerState(f"{place} worker {hand.number + 1}", hand.done, hand.doing, hand.ready)
            for place, hand in zip(places, self._hands, strict=True)
        ]

    def close(self) -> None:
        """See `Crew.close`."""
        for hand in self._hands:
            hand.child.join(0.0)
        self._hands = []
        with contextlib.suppress(OSError):
            self._mark.unlink(missing_ok=True)
        self._ray.shutdown()

    # ------------------------------------------------------------------------------------------------------------

    def _begin(self, number: int) -> _Hand:
        args = self._settings, self._devices[0], self._each, self._cores, (0, 1)
        child = RayChild(self._ray, self._kind, self._mark, streamkit.__version__, *args)
        return _Hand(number, cast(Child, child), self._devices[0])

    def _take(self, hand: _Hand, kind: str, value: Any, found: list[Outcome | Died]) -> None:
        if kind != "fatal":
            super()._take(hand, kind, value, found)
            return
        child = _child(hand)
        if hand.ready:
            child.how_it_died = f"on {child.node} ended: {value[1]}"
            child.kill()
            return
        error = error_of(value[0], f"on {child.node}: {value[1]}")
        if not any(other.ready for other in self._hands):
            raise error
        self._dismiss(hand, str(error))

    def _gone(self, now_s: float) -> list[Died]:
        """See `LocalCrew`. A lost node is no file's fault; nor a worker that cannot begin, where others can, the run's.

        Ray is not asked to restart actors by itself: of one that it will restart it does not say what it died of.
        """
        for hand in [hand for hand in self._hands if hand.child.over]:
            if _child(hand).lost:
                self._take_back(hand)
            elif not hand.ready and any(other.ready for other in self._hands):
                self._dismiss(hand, f"the worker {hand.child.how_it_died}")
        return super()._gone(now_s)

    def _take_back(self, hand: _Hand) -> None:
        """Give the files of a lost node to others, before all that waits."""
        for key, job in list(hand.jobs.items()):
            self._losses[key] += 1
            if self._losses[key] <= _LOSSES:
                self._waiting.appendleft((job, hand.alone))
                del hand.jobs[key]
        hand.ready = True  # that it had not begun tells nothing of the pipeline

    def _dismiss(self, hand: _Hand, why: str) -> None:
        """Go on without a worker, and with one place less."""
        hand.child.join(0.0)
        self._hands.remove(hand)
        self._unfit += 1
        self._say(f"{why}; the others go on without it")

    def _count(self, now_s: float) -> None:
        """See now and then how many workers there may be: nodes come and go."""
        if now_s - self._counted_s < _COUNT_S:
            return
        self._counted_s = now_s
        nodes = nodes_of(self._ray)
        if nodes.keys() != self._nodes:
            self._nodes, self._unfit = set(nodes), 0  # other nodes, another chance
        places = room(nodes, self._cpus, self._gpus) - self._unfit
        self._wanted = max(1, places if self._asked is None else self._asked)
        self.slots = self._wanted * (self._each + 1)
        if not self._hands or any(_child(hand).node for hand in self._hands):
            self._placed_s = now_s
        elif now_s - self._placed_s > _NOBODY_S and "nobody" not in self._said:
            self._said.add("nobody")
            needs = f"{self._cpus} CPU core(s)" + (f" and {self._gpus:.2g} GPU" if self._gpus else "")
            self._say(f"the cluster has no room for a worker of {needs} yet; waiting (ray status shows who is there)")

    def _device(self, asked: str | list[str]) -> str:
        """The device of all workers; a GPU's number is Ray's choice."""
        names = asked if isinstance(asked, list) else [asked]
        has_gpu = self._ray.cluster_resources().get("GPU", 0) > 0
        if names[0] == "cpu" or (names[0] == "auto" and not has_gpu):
            return "cpu"
        if not has_gpu and self._asked is None:
            self._ray.shutdown()
            raise DeviceError("no node of the Ray cluster has a GPU; use --device cpu")
        return "cuda"


def _child(hand: _Hand) -> RayChild:
    return cast(RayChild, hand.child)
