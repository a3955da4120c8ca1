"""A worker on a Ray cluster: its actor, and the handle of its pool.

this process           a node
RayChild ── order ───► RayWorker ── Mailbox ── worker_pool.work ── Worker, its pipeline warm
         ◄─ news ─────
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import streamkit
from streamkit.batch.job import BatchSettings
from streamkit.batch.ray_cluster import how_it_ended
from streamkit.batch.worker_pool import work
from streamkit.core.errors import ConfigError
from streamkit.runtime.multiprocess.children import Mailbox, ParentConnection, live

_SEEN_WITHIN_S = 10.0
"""A shared file system may take so long to show a new file to other machines."""


class RayWorker:
    """The actor: one worker, on the node that Ray has chosen."""

    def __init__(self, mark: Path, version: str, *args: Any) -> None:
        self._mailbox = Mailbox()
        live(self._mailbox, _life, mark, version, *args)

    def begin(self) -> str:
        """The address of its node."""
        import ray

        return str(ray.util.get_node_ip_address())

    def order(self, kind: str, value: Any) -> None:
        """Pass an order to the worker."""
        self._mailbox.order(kind, value)

    def news(self) -> list[tuple[str, Any]]:
        """Wait for the worker's messages since the last call, and return them."""
        return self._mailbox.fetch()


def _life(link: ParentConnection, mark: Path, version: str, settings: BatchSettings, *args: Any) -> None:
    """Check that the node is usable, then run the worker."""
    if version != streamkit.__version__:
        raise ConfigError(f"streamkit is {streamkit.__version__} there, and {version} where the run was started")
    until = time.monotonic() + _SEEN_WITHIN_S
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
        """Its messages since the last call; see `listen`."""
        if not self.answered or self.over:
            return []
        self.answered = False
        try:
            found = self._ray.get(self.answer)
        except self._ray.exceptions.RayError as error:
            self._end(error)
            return []
        self.answer = self._actor.news.remote()
        if not self.node:
            self.node, found = found, []
        return cast(list[tuple[str, Any]], found)

    def _end(self, error: Exception) -> None:
        how, self.lost = how_it_ended(error)
        if self.lost and not self.node:  # on its way to a node that is gone
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


def listen(ray: Any, children: Sequence[RayChild], timeout_s: float) -> None:
    """Wait until an actor responds or is lost, for at most `timeout_s` seconds; mark the actors that have."""
    answers = {child.answer: child for child in children if not child.over}
    if not answers:
        time.sleep(timeout_s)
        return
    if ray.wait(list(answers), num_returns=1, timeout=timeout_s)[0]:
        for answer in ray.wait(list(answers), num_returns=len(answers), timeout=0)[0]:
            answers[answer].answered = True
