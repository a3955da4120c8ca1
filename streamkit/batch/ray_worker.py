"""A worker on a Ray cluster: the actor that it lives in, and how its crew has it.

this process           a node
RayChild ── order ───► RayWorker ── Mailbox ── crew.work ── Worker, its pipeline warm
         ◄─ news ─────
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import streamkit
from streamkit.batch.crew import work
from streamkit.batch.job import Settings
from streamkit.batch.ray_cluster import how_it_ended
from streamkit.errors import ConfigError
from streamkit.runtime.children import Link
from streamkit.runtime.mailbox import Mailbox, live

_SEEN_WITHIN_S = 10.0
"""A shared file system may take so long to show a new file to other machines."""


class RayWorker:
    """The actor: one worker, on the node that Ray has chosen."""

    def __init__(self, mark: Path, version: str, *args: Any) -> None:
        self._mailbox = Mailbox()
        live(self._mailbox, _life, mark, version, *args)

    def begin(self) -> str:
        """Where it is."""
        import ray

        return str(ray.util.get_node_ip_address())

    def order(self, kind: str, value: Any) -> None:
        """Take an order."""
        self._mailbox.order(kind, value)

    def news(self) -> list[tuple[str, Any]]:
        """What it has to say since it was last asked; waits for it."""
        return self._mailbox.fetch()


def _life(link: Link, mark: Path, version: str, settings: Settings, *args: Any) -> None:
    """See that the node is fit, and work."""
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
    """An actor as its crew has it: what `Child` is for a process of this machine.

    Args:
        ray: the package.
        kind: the actor's class, with what it needs of a node.
        args: of its constructor.
    """

    def __init__(self, ray: Any, kind: Any, *args: Any) -> None:
        self._ray, self._kind, self._args = ray, kind, args
        self.answered = self.over = self.lost = False
        self.node = self.how_it_died = ""
        self._place()

    def _place(self) -> None:
        """Have it placed; while Ray has no room for it, it waits."""
        self._actor = self._kind.remote(*self._args)
        self.answer = self._actor.begin.remote()

    def tell(self, kind: str, value: Any = None) -> None:
        """Give it an order. One that has ended needs none."""
        self._actor.order.remote(kind, value)

    def hear(self) -> list[tuple[str, Any]]:
        """What it has said since; see `listen`."""
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
        """End it for good. It counts as over, also where it cannot be reached and has not heard of it."""
        self._ray.kill(self._actor)
        self.over = True

    def join(self, within_s: float) -> None:
        """See that it has ended."""
        self.kill()


def listen(ray: Any, children: Sequence[RayChild], timeout_s: float) -> None:
    """Wait until an actor answers or is gone, for so many seconds at most; note which have."""
    answers = {child.answer: child for child in children if not child.over}
    if not answers:
        time.sleep(timeout_s)
        return
    if ray.wait(list(answers), num_returns=1, timeout=timeout_s)[0]:
        for answer in ray.wait(list(answers), num_returns=len(answers), timeout=0)[0]:
            answers[answer].answered = True
