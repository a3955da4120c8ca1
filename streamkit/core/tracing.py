# SPDX-License-Identifier: Apache-2.0
"""Records spans of a thread for the timeline of a run. Without a timeline it does nothing and costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Spans:
    """Records nothing: functions are returned unchanged, so that the hot path has no cost.

    With `--profile`, the runner replaces it by `streamkit.runtime.observe.trace.ThreadTrack`, one per thread. Its
    wrappers must be called on that thread.
    """

    def call(self, name: str, call: Callable[_P, _T], *, waiting: bool = False) -> Callable[_P, _T]:
        """Wrap `call`: each call is a span `name` on this thread; `waiting` marks waits for other threads."""
        return call

    def each(
        self, name: str, items: Iterable[_T], *, waiting: bool = False, about: dict[str, Any] | None = None
    ) -> Iterable[_T]:
        """Wrap `items`: producing each item is a span; `about` is shown with it."""
        return items

    def stage(self, name: str, run: Callable[[_T], _T], device: Any = None) -> Callable[[_T], _T]:
        """Wrap `run`, a stage's work on a batch; with a CUDA `device`, also record the time on the current stream."""
        return run

    def close(self) -> None:
        """Close the track: the work of the thread and of its CUDA stream has ended."""
