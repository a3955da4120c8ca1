# SPDX-License-Identifier: Apache-2.0
"""Where a run is measured: spans of a thread, and operations such as connections. By default nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Spans:
    """Records nothing: functions are returned unchanged, so that the hot path has no cost.

    With `--profile`, the runner replaces it by `streamkit.runtime.observe.trace.ThreadTrack`, one per thread, and with
    OpenTelemetry by `streamkit.runtime.observe.batch_traces.BatchSpans`. Their wrappers must be called on that thread.
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


class SampledBatch(Protocol):
    """The trace of a batch that was chosen to be traced; see `Batch.trace`."""

    @property
    def traceparent(self) -> str:
        """The W3C trace context, for another process."""


CURRENT_BATCH: ContextVar[SampledBatch | None] = ContextVar("batch", default=None)
"""The trace of the batch that a stage processes on this thread, if it is traced."""

RecordOperation = Callable[[str, float, Mapping[str, Any], str], None]


class _Operations:
    """Operations that are rare compared with frames: connections of sources, deliveries of emitters."""

    record: RecordOperation | None = None


_operations = _Operations()


def record_operation(name: str, start_s: float, about: Mapping[str, Any], error: str = "") -> None:
    """Record an operation that ends now, if operations are recorded.

    Args:
        name: its name; few different ones.
        start_s: when it began, in seconds on the monotonic clock.
        about: attributes: texts and numbers.
        error: why it failed; empty if it succeeded.
    """
    if _operations.record is not None:
        _operations.record(name, start_s, about, error)


def record_operations(record: RecordOperation | None) -> None:
    """Pass operations to `record` from now on; None records none."""
    _operations.record = record
