# SPDX-License-Identifier: Apache-2.0
"""Rates and load of the stages over the last seconds, and the bottleneck now; `bottleneck.py` has that of a whole run.

Computed from the counters that every run has, so it needs no timeline. On a GPU, a stage's time is that of its thread,
without the work that the thread has only launched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.config.plan import Graph
from streamkit.runtime.execution.lane import partition
from streamkit.runtime.observe.bottleneck import BUSY, PACE, LaneUsage, find_bottleneck, role_of

_SAMPLES = 6  # over which a rate is computed, about a second apart


@dataclass(frozen=True, slots=True)
class StageLoad:
    """The load of one stage over the last seconds.

    Attributes:
        fps: frames per second.
        busy: share of the time, 0 to 1, in which its threads worked in it; the mean over them.
        us_per_frame: microseconds of work for a frame; None if there was none.
    """

    fps: float = 0.0
    busy: float = 0.0
    us_per_frame: float | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What limits the pipeline.

    Attributes:
        stage: the stage that is the limit; None if none is.
        text: the limit as a sentence; empty while nothing is known.
    """

    stage: str | None = None
    text: str = ""


class LiveLoad:
    """Samples the counters of the stages.

    Args:
        graph: the graph that runs.
    """

    def __init__(self, graph: Graph) -> None:
        self._lanes = [[node.id for node in lane.nodes] for lane in partition(graph)]
        self._roles = {node.id: role_of(node) for node in graph.nodes.values()}
        self._samples: deque[tuple[float, Mapping[str, Mapping[str, Any]]]] = deque(maxlen=_SAMPLES)
        self.stages: Mapping[str, StageLoad] = {}
        self.bottleneck = Bottleneck()

    def sample(self, now_s: float, meters: Mapping[str, Mapping[str, Any]], paced: bool) -> None:
        """Add a sample; call it about once a second.

        Args:
            now_s: the monotonic time in seconds.
            meters: counters of each stage; see `PipelineRun.meters`.
            paced: whether all sources that run have a pace of their own.
        """
        self._samples.append((now_s, meters))
        then_s, before = self._samples[0]
        seconds = now_s - then_s
        if seconds <= 0:
            return
        self.stages = {id_: _load(before.get(id_, {}), meter, seconds) for id_, meter in meters.items()}
        lanes = [self._usage(ids, meters, seconds) for ids in self._lanes]
        source = LaneUsage("source", threads=1, total_s=seconds)
        source.wait_s[PACE[0]] = seconds if paced else 0.0
        usages = [*(lane for lane in lanes if lane.threads and lane.work_s), source]
        text = find_bottleneck(usages, self._roles)
        top = max(usages, key=lambda lane: lane.busy if lane.work_s else -1.0)
        self.bottleneck = Bottleneck(top.busiest_stage if top.work_s and top.busy >= BUSY else None, text or "")

    def _usage(self, ids: list[str], meters: Mapping[str, Mapping[str, Any]], seconds: float) -> LaneUsage:
        """The lane's use of its threads in the last seconds."""
        threads = max((meters.get(id_, {}).get("instances", 0) for id_ in ids), default=0)
        usage = LaneUsage(ids[0], threads=threads, total_s=threads * seconds)
        for id_ in ids:
            if id_ in self.stages and self.stages[id_].busy > 0:
                usage.work_s[id_] = min(self.stages[id_].busy * threads, threads) * seconds
        usage.cpu_s = sum(usage.work_s.values())  # whether it was on a core is not measured
        usage.wait_s["other"] = max(0.0, usage.total_s - usage.cpu_s)
        return usage


def _load(before: Mapping[str, Any], now: Mapping[str, Any], seconds: float) -> StageLoad:
    # a process that has died takes its counts with it
    frames = max(0, now["frames"] - before.get("frames", 0))
    spent_s = max(0.0, now["seconds"] - before.get("seconds", 0.0))
    busy = min(1.0, spent_s / seconds / max(1, now.get("instances", 1)))
    return StageLoad(round(frames / seconds, 1), round(busy, 3), round(spent_s / frames * 1e6, 1) if frames else None)
