# SPDX-License-Identifier: Apache-2.0
"""What a run measures of its GPU while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamkit.core.data import Device
from streamkit.models.versions import decoding_versions
from streamkit.runtime.multiprocess.process_count import leaves_out_frames
from streamkit.runtime.observe.nvml import Nvml
from streamkit.runtime.run import Run


def gpu_lesson(run: Run, device: Device, open_sessions: Callable[[], int]) -> Callable[[float], None]:
    """What measures a GPU, to be called each second with the monotonic time in seconds.

    Args:
        run: the run, whose sources are all decoded on this GPU.
        device: the GPU.
        open_sessions: returns the number of NVDEC sessions that the run has, used and idle.
    """
    from streamkit.runtime.observe.gpu_lessons import GpuLesson

    gpu = decoding_versions(device.index)
    return GpuLesson(gpu, lambda: run.states, open_sessions, Nvml(device.index), leaves_out_frames(run.graph))


def gpu_lessons(run: Run, devices: Sequence[Device], open_sessions: Callable[[], int]) -> list[Callable[[float], None]]:
    """What measures the GPU of several processes; with several GPUs nothing, as nothing counts the frames of each."""
    if len(devices) > 1 or devices[0].kind != "cuda":
        return []
    return [gpu_lesson(run, devices[0], open_sessions)]
