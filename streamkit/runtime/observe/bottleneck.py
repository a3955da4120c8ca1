# SPDX-License-Identifier: Apache-2.0
"""Finds the bottleneck of a run, from the share of time that each lane worked and did not wait for another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.config.plan import Node
from streamkit.core.stage import Sink

HOST = "streamkit"  # the process of the threads; those of CUDA streams are devices
DECODE = "decode"
READERS = ("source/", "ahead/")  # threads that decode
GPU = "wait for the GPU"
PACE = ("wait for the pace", "wait for packets")  # waits of sources that do not depend on the load
BUSY = 0.7
"""Share of time from which a lane may be the limit."""
# shares of time
_MUCH = 0.2
_LITTLE = 0.05
_LIMITS = {DECODE: "decoding is the limit", "network": "the network is the limit", "output": "writing is the limit"}


@dataclass(slots=True)
class Sums:
    """Seconds of one track of the timeline since the run's first frame; spans within spans are not counted twice.

    Attributes:
        name: name of the thread.
        process: the group in which the track is shown: `HOST`, or a device.
        work_s: by span.
        wait_s: by span.
        cpu_s: CPU time at work.
    """

    name: str
    process: str = HOST
    work_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    wait_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cpu_s: float = 0.0


@dataclass(slots=True)
class LaneUsage(Sums):
    """Sums over the threads of a lane; its name is `source`, `batcher`, or the id of the lane's first stage.

    Attributes:
        threads: number of threads.
        total_s: seconds of work and waiting.
        gpu_s: seconds of the lane's CUDA streams, by stage.
    """

    threads: int = 0
    total_s: float = 0.0
    gpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def busy(self) -> float:
        """Share of time, 0 to 1, in which it worked or waited for its own work on the GPU."""
        waited = sum(self.wait_s.values()) - self.on_gpu_s
        return max(0.0, 1.0 - waited / self.total_s) if self.total_s else 0.0

    @property
    def on_gpu_s(self) -> float:
        """Seconds it waited for its own work on the GPU; 0 for host lanes, which wait for that of other lanes."""
        return self.wait_s.get(GPU, 0.0) if self.gpu_s else 0.0

    @property
    def off_core(self) -> float:
        """Share of its work, 0 to 1, in which its thread was not on a CPU core."""
        return 1.0 - self.cpu_s / max(1e-9, sum(self.work_s.values()))

    @property
    def busiest_stage(self) -> str:
        """The stage with most of the work."""
        return max(self.work_s, key=lambda name: self.work_s[name], default=self.name)

    def summary(self) -> dict[str, Any]:
        """Shares of the time of all threads, for the timeline's file."""
        total = self.total_s or 1.0
        shares: dict[str, Any] = {"threads": self.threads, "busy": round(self.busy, 3)}
        shares |= {name: round(seconds / total, 3) for name, seconds in [*self.work_s.items(), *self.wait_s.items()]}
        return {**shares, "on a CPU core": round(self.cpu_s / total, 3)}


def lane_usages(tracks: Iterable[Sums]) -> list[LaneUsage]:
    """Sum the tracks by lane, in their order."""
    usages: dict[str, LaneUsage] = {}
    for track in tracks:
        lane = "source" if track.name.startswith(READERS) else track.name.rpartition("/")[0] or track.name
        use = usages.setdefault(lane, LaneUsage(lane))
        if track.process != HOST:
            _add(use.gpu_s, track.work_s)
        elif track.work_s or track.wait_s:
            use.threads += 1
            use.total_s += sum(track.work_s.values()) + sum(track.wait_s.values())
            _add(use.work_s, track.work_s)
            _add(use.wait_s, track.wait_s)
            use.cpu_s += track.cpu_s
    return [use for use in usages.values() if use.threads]


def _add(sums: dict[str, float], more: Mapping[str, float]) -> None:
    for name, seconds in more.items():
        sums[name] += seconds


def role_of(node: Node) -> str:
    """The role of a stage for `find_bottleneck`: `output`, `network`, or empty for others."""
    if issubclass(node.type, Sink):
        return "output"
    return "network" if "outputs" in node.type.spec.writes else ""


def find_bottleneck(usages: Sequence[LaneUsage], roles: Mapping[str, str]) -> str | None:
    """Describe the bottleneck of the run; None if nothing ran.

    Args:
        usages: from `lane_usages`.
        roles: `network`, `output` or anything else, by stage id.
    """
    lanes = [use for use in usages if use.work_s]
    if not lanes:
        return None
    top = max(lanes, key=lambda use: use.busy)
    stage = top.busiest_stage
    share = top.work_s[top.busiest_stage] / top.total_s
    if top.busy < BUSY:
        return f"{stage} is busy most, {_percent(top.busy)} of the time: {_idle(usages)}"
    busy = [use for use in lanes if use.busy >= BUSY]
    if len(busy) > 1 and not any(use.gpu_s for use in lanes) and min(use.off_core for use in busy) > _MUCH:
        names = " and ".join(use.busiest_stage for use in busy)
        heaviest = max(busy, key=lambda use: use.cpu_s).busiest_stage
        return f"{names} are all busy, and wait for a core: the CPU is the limit, and {heaviest} takes most of it"
    waits = top.on_gpu_s / top.total_s
    if waits > _MUCH:
        stage = max(top.gpu_s, key=lambda name: top.gpu_s[name])
        text = f"{stage} keeps the GPU busy, its thread waits for it {_percent(waits)} of the time"
        return f"{text}: {_limit(stage, roles)}"
    text = f"{stage} is busy {_percent(share)} of the time"
    if top.busy - share > _LITTLE:
        text += f", with what else its thread does {_percent(top.busy)}"
    if top.threads > 1:
        text += f", on each of {top.threads} threads"
    text += f": {_limit(stage, roles)}"
    if top.off_core > _MUCH:
        text += f"; {_percent(top.off_core)} of its work is waiting for a core, a device, a disk or Python's lock"
    return text


def _idle(usages: Sequence[LaneUsage]) -> str:
    """The reason why no lane is busy."""
    paced = any(sum(use.wait_s.get(name, 0.0) for name in PACE) > 0.5 * use.total_s for use in usages)
    return "the sources' own pace is the limit" if paced else "no stage alone is the limit"


def _limit(stage: str, roles: Mapping[str, str]) -> str:
    return _LIMITS.get(roles.get(stage) or stage, "this stage is the limit")


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
