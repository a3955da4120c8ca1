# SPDX-License-Identifier: Apache-2.0
"""Execution plans of convolutions: found by measurement, kept on disk for the next start.

A plan depends on sizes, not on weights: networks share plans. Each is a file of its own, named by what it depends on,
in a folder for the GPU and the versions of driver and cuDNN; processes that build a plan at once write the same file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.child_environment import child_environment
from streamkit.core.errors import OutputError
from streamkit.engine.convolutions import BIAS, OPERAND, SOURCE, TARGET, WEIGHT, Signature, build_graph
from streamkit.engine.frontend import import_cudnn
from streamkit.io.outputs import write_cache_file
from streamkit.ops.cuda.driver import clear_last_error

logger = logging.getLogger(__name__)

FORMAT = 1
"""Of the files; a change of the graphs that `convolutions` builds needs another."""
CANDIDATES = 2
"""Plans of a convolution that are built and measured. Each takes 0.1 to 0.4 s to build. On an H200, the best of 1, 2, 3
and 4 took 8.05, 7.67, 7.58 and 7.57 ms for YOLOv8m."""
WORKSPACE = 256 << 20
"""Bytes. Plans that need more are left out."""
_MIN_PER_PROCESS = 4
"""Convolutions for which a process more is started, which takes 2 s; cuDNN compiles one plan at a time in a process."""
_RUNS = 8
_LOADS = 20
"""Attempts to load a plan."""
_PAUSE_S = 0.005


class PlanError(Exception):
    """cuDNN has no plan for a convolution."""


@dataclass(frozen=True, slots=True)
class SerializedPlan:
    """A plan on disk.

    Attributes:
        data: as cuDNN's frontend serializes it.
        microseconds: measured time of a run; None if it was not measured.
    """

    data: bytes
    microseconds: float | None = None


class PlanStore:
    """The plans of a program. It runs on one thread, on the CuPy stream that is current when it is made.

    Args:
        folder: where plans are kept; None to keep them in the process only.
        measure: whether the first plans of a convolution are measured. Otherwise the first is used: measurements beside
            running decoders would be wrong and disturb them.

    Attributes:
        index: of the GPU.
        stream: the CuPy stream.
        built, loaded: how many convolutions were built, and read from the disk.
    """

    def __init__(self, folder: Path | None, measure: bool = True) -> None:
        import cupy

        cudnn = import_cudnn()
        self.index = int(cupy.cuda.runtime.getDevice())
        self.stream = cupy.cuda.get_current_stream()
        self.built = 0
        self.loaded = 0
        self._handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._handle, stream=self.stream.ptr)
        # To load a plan, cuDNN's frontend captures a run on the handle's stream and throws it away. Whatever another
        # thread queues there meanwhile would be thrown away with it, so that plans are loaded on another stream. Work
        # of other threads, such as opening decoders, can break the capture: it is tried again.
        self._loading_stream = cupy.cuda.Stream(non_blocking=True)
        self._loading_handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._loading_handle, stream=self._loading_stream.ptr)
        self._folder = folder
        self._measure = measure
        self._graphs = dict[Signature, Any]()
        self._unsupported = dict[Signature, str]()
        self._workspace = cupy.empty(1 << 20, np.uint8)
        self._samples: dict[str, Any] = {}

    def prepare_all(self, signatures: Sequence[Signature]) -> None:
        """Load or build the plans of convolutions, as far as cuDNN has any; many at once in other processes."""
        missing = [about for about in signatures if about not in self._graphs and not self._is_on_disk(about)]
        if self._folder is not None and len(missing) >= 2 * _MIN_PER_PROCESS:
            build_in_processes(missing, self._folder, self.index)
        for about in signatures:
            with contextlib.suppress(PlanError):
                self.prepare(about)
        self._samples.clear()

    def prepare(self, about: Signature) -> None:
        """Load or build the plan of a convolution.

        Raises:
            PlanError: cuDNN has none.
        """
        if about in self._graphs:
            return
        if about in self._unsupported:
            raise PlanError(self._unsupported[about])
        graph = self._from_disk(about)
        if graph is not None:
            self.loaded += 1
        else:
            graph = self._build(about)
            self.built += 1
        self._graphs[about] = graph

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Let `run` queue on another CuPy stream in the block, for a capture."""
        import cudnn

        handle = self._handle
        self._handle = cudnn.create_handle()
        try:
            cudnn.set_stream(handle=self._handle, stream=stream.ptr)
            yield
        finally:
            cudnn.destroy_handle(self._handle)
            self._handle = handle

    def run(self, about: Signature, addresses: Mapping[int, int]) -> None:
        """Queue a convolution; `addresses` has those of its tensors by the numbers in `convolutions`."""
        self._graphs[about].execute(addresses, int(self._workspace.data.ptr), self._handle)

    def _build(self, about: Signature) -> Any:
        try:
            plans = [
                SerializedPlan(data) for data in build(about, self._loading_handle, CANDIDATES if self._measure else 1)
            ]
        except PlanError as error:
            self._unsupported[about] = str(error)
            raise
        if self._folder is not None:
            try:
                save(self._folder, about, plans)
            except OutputError as error:
                logger.warning(f"plans of convolutions are built at each start: {error}")
                self._folder = None
        return self._fastest(about, plans)

    def _is_on_disk(self, about: Signature) -> bool:
        return self._folder is not None and plan_file(self._folder, about).is_file()

    def _from_disk(self, about: Signature) -> Any:
        """Return the graph of a convolution's plan; None if there is none that can be used."""
        if self._folder is None or not self._is_on_disk(about):
            return None
        try:
            return self._fastest(about, load(self._folder, about))
        except Exception as error:  # of the file, or cuDNN's, which have no common base but Exception
            file = plan_file(self._folder, about)
            logger.warning(f"{file} is not a plan that can be used ({error}); it is built again")
            return None

    def _fastest(self, about: Signature, plans: Sequence[SerializedPlan]) -> Any:
        """Return the graph of the fastest plan, and keep only that on disk if they had to be measured."""
        graphs = [self._graph(plan.data) for plan in plans]
        if len(plans) == 1 or not self._measure:
            return graphs[0]
        times = [self._microseconds(about, graph) for graph in graphs]
        best = int(np.argmin(times))
        if self._folder is not None:
            with contextlib.suppress(OutputError):  # they are measured again at the next start
                save(self._folder, about, [dataclasses.replace(plans[best], microseconds=times[best])])
        return graphs[best]

    def _graph(self, data: bytes) -> Any:
        import cudnn
        import cupy

        for attempt in range(_LOADS):
            graph = cudnn.pygraph(handle=self._loading_handle)
            try:
                graph.deserialize(self._loading_handle, list(data))
                break
            except Exception:  # cuDNN's have no common base; it clears no error of CUDA
                clear_last_error()
                if attempt == _LOADS - 1:
                    raise
                time.sleep(_PAUSE_S)
        size = int(graph.get_workspace_size())
        if size > self._workspace.size:
            self._workspace = cupy.empty(size, np.uint8)
        return graph

    def _microseconds(self, about: Signature, graph: Any) -> float:
        """Return the time of a run on random values."""
        import cupy

        addresses = {
            SOURCE: self._sample("read", _extent(about.source)),
            WEIGHT: self._sample("weight", int(np.prod(about.weight))),
            BIAS: self._sample("weight", 2 * about.weight[0]),
            TARGET: self._sample("write", _extent(about.target)),
        }
        for function in about.then:
            if function[0] in ("Added", "Multiplied"):
                addresses[OPERAND] = self._sample("read", _extent(function[1:]))
        # The memory comes from a pool that is ordered by the other stream, which may still use it.
        self._loading_stream.wait_event(self.stream.record())
        start = cupy.cuda.Event()
        end = cupy.cuda.Event()
        for run in range(_RUNS + 2):
            if run == 2:
                start.record(self._loading_stream)
            graph.execute(addresses, int(self._workspace.data.ptr), self._loading_handle)
        end.record(self._loading_stream)
        end.synchronize()
        return 1000 * float(cupy.cuda.get_elapsed_time(start, end)) / _RUNS

    def _sample(self, use: str, count: int) -> int:
        """Return the address of so many random f16 values; each use has an array of its own."""
        import cupy

        if use not in self._samples or self._samples[use].size < count:
            self._samples[use] = cupy.random.standard_normal(count, np.float32).astype(np.float16)
        return int(self._samples[use].data.ptr)


# ------------------------------------------------------------------------------------------------ building


def build(about: Signature, handle: int, count: int) -> list[bytes]:
    """Build the first plans of a convolution that fit the GPU.

    Args:
        about: what they depend on.
        handle: of cuDNN.
        count: at most so many.

    Raises:
        PlanError: there is none.
    """
    import cudnn

    try:
        graph = build_graph(about, handle)
    except (RuntimeError, cudnn.cudnnGraphNotSupportedError) as error:
        raise PlanError(" ".join(str(error).split())[:200]) from None
    plans = list[bytes]()
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
        except (RuntimeError, cudnn.cudnnGraphNotSupportedError):
            continue  # the heuristic lists plans that do not fit the GPU
        if graph.get_workspace_size_plan_at_index(index) <= WORKSPACE:
            plans.append(bytes(graph.serialize()))
        if len(plans) == count:
            break
    if not plans:
        raise PlanError("none of its plans can be built")
    return plans


def build_in_processes(signatures: Sequence[Signature], folder: Path, device: int) -> None:
    """Build plans into a folder on all cores. What cuDNN lacks is left out, and logged where it is needed."""
    count = max(1, min(len(os.sched_getaffinity(0)), len(signatures) // _MIN_PER_PROCESS))
    command = [sys.executable, "-m", "streamkit.engine.build_plans", str(folder), str(device)]
    environment = child_environment()
    children = []
    failed = []
    try:
        for place in range(count):
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
            )
            children.append(child)
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(
                    json.dumps([dataclasses.asdict(about) for about in signatures[place::count]]).encode()
                )
                child.stdin.close()
        for child in children:
            assert child.stderr is not None
            errors = child.stderr.read()
            if child.wait():
                failed.append(errors.decode(errors="replace").strip().rpartition("\n")[2])
        if failed:
            logger.warning(
                f"{len(failed)} of {count} processes that build plans of convolutions failed, so that their plans are "
                f"built one after the other: {failed[0]}"
            )
    finally:
        for child in children:
            child.kill()
            child.wait()
            assert child.stderr is not None
            child.stderr.close()


# ------------------------------------------------------------------------------------------------ files


def plan_file(folder: Path, about: Signature) -> Path:
    """Return the file for the plans of a convolution."""
    digest = hashlib.sha256(repr((FORMAT, about)).encode()).hexdigest()
    return folder / f"{digest[:32]}.plan"


def save(folder: Path, about: Signature, plans: Iterable[SerializedPlan]) -> None:
    """Write the plans of a convolution: a line of JSON about them, then their data.

    Raises:
        OutputError: the file cannot be written.
    """
    plans = list(plans)
    facts = [
        {"size": len(plan.data), "sha256": hashlib.sha256(plan.data).hexdigest(), "microseconds": plan.microseconds}
        for plan in plans
    ]
    head = json.dumps(facts).encode() + b"\n"
    write_cache_file(plan_file(folder, about), head + b"".join(plan.data for plan in plans))


def load(folder: Path, about: Signature) -> list[SerializedPlan]:
    """Read the plans of a convolution.

    Raises:
        OSError: the file cannot be read.
        ValueError, KeyError, TypeError: it is damaged.
    """
    head, _, data = plan_file(folder, about).read_bytes().partition(b"\n")
    plans = list(_parts(json.loads(head), data))
    if not plans:
        raise ValueError("it has no plan")
    return plans


def _parts(facts: Sequence[Mapping[str, Any]], data: bytes) -> Iterator[SerializedPlan]:
    first = 0
    for plan in facts:
        part = data[first : first + plan["size"]]
        if hashlib.sha256(part).hexdigest() != plan["sha256"]:
            raise ValueError("its checksum is wrong")
        yield SerializedPlan(part, plan["microseconds"])
        first += plan["size"]


def _extent(layout: Sequence[int]) -> int:
    """Return the elements between the first and the last of a view."""
    batch, rows, columns, channels, image, row, column = layout
    return (batch - 1) * image + (rows - 1) * row + (columns - 1) * column + channels
