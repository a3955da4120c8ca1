# SPDX-License-Identifier: Apache-2.0
"""Finds the sources for which a GPU has no NVDEC session, before the run starts, so that the others run undisturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streamkit.config.plan import SourceConfig
from streamkit.core.data import Device
from streamkit.media.gpu_figures import session_limit
from streamkit.models.versions import decoding_versions
from streamkit.runtime.execution.sizes import FILES_PER_GPU
from streamkit.runtime.ingest.sources import in_realtime, is_unbounded
from streamkit.stages.sources.source import VideoSource


class SessionLimit(NamedTuple):
    """How many NVDEC sessions a GPU opens at once.

    Attributes:
        gpu: name of the GPU.
        sessions: number of sessions of all processes.
    """

    gpu: str
    sessions: int


def session_limits(devices: Iterable[Device]) -> dict[str, SessionLimit]:
    """The limits of the GPUs for which they are known, by device as in `str(Device)`; creates no CUDA context."""
    limits: dict[str, SessionLimit] = {}
    for device in devices:
        if device.kind == "cpu":
            continue
        gpu = decoding_versions(device.index)
        sessions = session_limit(gpu)
        if sessions is not None:
            limits[str(device)] = SessionLimit(gpu.partition(",")[0], sessions)
    return limits


def sources_beyond(
    sources: Iterable[SourceConfig],
    shares: Sequence[tuple[str, Sequence[str]]],
    limits: Mapping[str, SessionLimit],
    *,
    realtime: bool = False,
) -> dict[str, str]:
    """The sources that are refused, by id, with the reason: the last ones in the order of the YAML.

    A camera and a recording with a pace have a session for as long as they are read. Other recordings take turns, so
    they are never refused.

    Args:
        sources: the sources in the order of the YAML.
        shares: the device of each process, with the ids of its sources.
        limits: from `session_limits`.
        realtime: files without a `pace` are played at their own rate.
    """
    device_of = {id_: device for device, ids in shares for id_ in ids}
    process_of = {id_: number for number, (_, ids) in enumerate(shares) for id_ in ids}
    files: Counter[int] = Counter()  # by process
    held: dict[str, list[str]] = {device: [] for device, _ in shares}
    for source in sources:
        if source.id not in device_of or not issubclass(source.type, VideoSource):
            continue
        if is_unbounded(in_realtime(source) if realtime else source):
            held[device_of[source.id]].append(source.id)
        else:
            files[process_of[source.id]] += 1
    refused: dict[str, str] = {}
    for device, limit in limits.items():
        processes = [number for number, (name, _) in enumerate(shares) if name == device]
        for_files = sum(min(files[number], FILES_PER_GPU) for number in processes)
        ids = held.get(device, [])
        needed = len(ids) + for_files
        reason = (
            f"{device} ({limit.gpu}) opens {limit.sessions} NVDEC sessions at once, and its sources need {needed}; "
            "read fewer sources on it, or add a GPU"
        )
        refused |= dict.fromkeys(ids[max(0, limit.sessions - for_files) :], reason)
    return refused
