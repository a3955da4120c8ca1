# SPDX-License-Identifier: Apache-2.0
"""The wait for results that stages with `late_results` have not yet given, before the last frame of a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from streamkit.config.plan import Graph
from streamkit.runtime.execution.stage_runner import Runner
from streamkit.runtime.ingest.source_status import SourceState

_POLL_S = 0.02


class LateStage(Protocol):
    """A stage that declares `late_results`.

    Attributes:
        drain_timeout: how long the last frame of a file waits for its results, in seconds.
    """

    drain_timeout: float

    def settled(self, source: str) -> bool:
        """Whether it has passed the source's closing frame and all results about it are there. From any thread."""


def has_late_results(graph: Graph) -> bool:
    """Whether a stage of the graph declares `late_results`."""
    return any(node.type.spec.late_results for node in graph.nodes.values())


def wait_for_results(runners: Sequence[Runner], source: str, state: SourceState, over: Callable[[], bool]) -> None:
    """Wait until no result about a source is missing, for at most `drain_timeout` after its frames have passed.

    Args:
        runners: the runners of all stages.
        source: the source's id.
        state: its state.
        over: returns whether to end the wait.
    """
    stages: list[LateStage] = [
        stage  # type: ignore[misc]  # `late_results` promises it
        for runner in runners
        if runner.node.type.spec.late_results
        for stage in runner.instances()
    ]
    passed_s: float | None = None
    while not over():
        missing = [stage for stage in stages if not stage.settled(source)]
        if not missing:
            return
        if passed_s is None and state.out + state.dropped >= state.frames:
            passed_s = time.monotonic()
        if passed_s is not None and time.monotonic() - passed_s > max(stage.drain_timeout for stage in missing):
            return
        time.sleep(_POLL_S)
