"""Work that a stage has done before its turn or beside its own; without the runtime it is done in turn and at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

_P = TypeVar("_P")
_T = TypeVar("_T")


class OrderedExecutor:
    """Does every part when its turn comes, with the first worker.

    The runtime gives sources `runtime/execution/ordered_executor.py`'s `ThreadedExecutor` in its place, which uses all
    workers at once. What comes out is the same.

    Attributes:
        cores: CPU cores that all sources share.
        sources: how many sources are read at once.
    """

    cores = 1
    sources = 1

    def run(
        self, parts: Iterator[_P], workers: Sequence[Callable[[_P], Iterator[_T]]], depth: int
    ) -> Iterator[_T]:  # fmt: skip
        """What the workers make of the parts, in the order of the parts.

        Args:
            parts: the work, in order; one is taken when a worker is free for it.
            workers: each makes a part's results; never two calls at once on one worker, not always on one thread.
            depth: results of a part that may wait for their turn.

        Raises:
            Exception: what `parts` or a worker raises, after the results before it.
        """
        for part in parts:
            yield from workers[0](part)


class Future(Generic[_T]):
    """A piece of work that need not be done at once; here it is. The runtime does it on a thread of its own.

    Attributes:
        at_once: whether the work is done when the constructor returns.
        ready: whether it is done.
    """

    at_once = True
    ready = True

    def __init__(self, work: Callable[[Callable[[], bool]], _T]) -> None:
        """Start `work`; its argument is a function that returns whether the result is no longer wanted."""
        self._result = work(lambda: False)

    def result(self) -> _T:
        """What the work gave, waited for.

        Raises:
            Exception: what it raised.
        """
        return self._result

    def drop(self) -> None:
        """The result is not wanted: come back when the work has ended."""
