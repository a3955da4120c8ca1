"""Where a thread says what it is at, for a run's timeline. Without a timeline nothing is kept, and nothing costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Spans:
    """Keeps nothing: a function comes back as it is, so that the hot path is the same as without.

    With `--profile` the runner gives `streamkit.runtime.observe.trace.ThreadTrack` in its place, one for each thread.
    What it returns belongs to that thread.
    """

    def call(self, name: str, call: Callable[_P, _T], *, waiting: bool = False) -> Callable[_P, _T]:
        """`call`, whose every call is a span `name` on this thread; `waiting` where it waits for others' work."""
        return call

    def each(
        self, name: str, items: Iterable[_T], *, waiting: bool = False, about: dict[str, Any] | None = None
    ) -> Iterable[_T]:
        """`items`, where bringing about each one is a span; `about` is shown with it."""
        return items

    def stage(self, name: str, run: Callable[[_T], _T], device: Any = None) -> Callable[[_T], _T]:
        """`run`, a stage's work on a batch; with a CUDA `device`, also a span of the current stream's time."""
        return run

    def close(self) -> None:
        """The thread's work is over, and so is that of its stream."""
