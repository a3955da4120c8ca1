# SPDX-License-Identifier: Apache-2.0
"""How a parent reaches a worker: a process of this machine, an actor of a Ray cluster, or a fake in tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class WorkerLink(Protocol):
    """A worker that was started: `Child` for a local process, `RayChild` for an actor."""

    @property
    def pid(self) -> int:
        """The process id; 0 on another machine."""

    def send(self, order: Any, /) -> None:
        """Send an order. Does nothing if the worker has exited."""

    def receive(self) -> Iterable[Any]:
        """The messages that have arrived since the last call."""

    @property
    def exited(self) -> bool:
        """Whether it has exited and all its messages were received."""

    @property
    def dying(self) -> bool:
        """Whether it sends no more messages and its machine still frees its memory."""

    @property
    def exit_text(self) -> str:
        """How it exited, as text for the user."""

    def kill(self) -> None:
        """Kill it at once."""

    def join(self, within_s: float, /) -> None:
        """Wait up to `within_s` seconds for it to exit, then kill it."""

    def abandon(self) -> None:
        """Give up one that is dying; its exit is not awaited."""
