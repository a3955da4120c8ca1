# SPDX-License-Identifier: Apache-2.0
"""Reuses NVDEC sessions between videos: a new session takes 60 to 70 ms, in which a short video is decoded.

A session is reused for a video that needs an identical one, including the parameter sets: they determine how many
frames it must hold, and a session never updates that. Idle sessions are kept for up to a sixteenth of the device's
memory; beyond that, those that have been idle longest are closed. A process that waits for sources of another one makes
sessions ahead of them, from the first packets of the other's videos.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.errors import SourceError
from streamkit.media.nv_caps import CODECS

_FRAMES = 20  # frames that a session buffers; 60 to 80 MiB at 1080p
_MEMORY_DIVISOR = 16
_HIGHEST_PRIORITY = -5  # of a CUDA stream
_EXHAUSTED = re.compile(r"cuvidCreateDecoder\b.*returned error 2\b", re.DOTALL)
"""PyNvVideoCodec's text of `CUDA_ERROR_OUT_OF_MEMORY`: the GPU has no more sessions, or no more memory."""
REFUSED = "decoders refused by the driver"
_LEARNED_S = 60.0
"""How long a limit holds that the driver has shown: other programs may end meanwhile."""


class NoSession(SourceError):
    """The driver opens no further session, though there is memory for one."""


class SessionKey(NamedTuple):
    """Properties that must match for a session to be reused."""

    device: int
    codec: str
    width: int
    height: int
    chroma: int
    bits: int
    low_delay: bool
    parameters: bytes

    @property
    def size(self) -> int:
        """Approximate device memory in bytes."""
        return _FRAMES * self.width * self.height * 3 // 2 * (2 if self.bits > 8 else 1)


@dataclass(slots=True, eq=False)
class NvdecSession:
    """A decoder of PyNvVideoCodec and its CUDA stream. Compared by identity."""

    key: SessionKey
    decoder: Any
    stream: Any

    def close(self) -> None:
        """Destroy the decoder, then its stream."""
        self.decoder = None
        self.stream = None


class SessionSample(NamedTuple):
    """What is needed to make sessions ahead of the videos that use them.

    Attributes:
        key: properties of the sessions.
        packet: the first packet of a video, a keyframe as NVDEC takes it.
        number: number of sessions.
    """

    key: SessionKey
    packet: bytes
    number: int


creation_lock = threading.Lock()
"""Held while a session is made and decodes its first packet, in which the driver creates the decoder: 45 ms.

The driver creates the decoders of all processes one after the other. Many threads that wait for it slow down every
other CUDA call, such as those that load a network.
"""

_idle: deque[NvdecSession] = deque()  # in the order in which they became idle; its ends and `remove` are atomic
_used: Counter[SessionKey] = Counter()  # sessions that are not idle
_learned: dict[int, tuple[int, float]] = {}  # by device: sessions of this process when the driver refused one, and when
_first_packets: dict[SessionKey, bytes] = {}
_counting = threading.Lock()


def acquire(key: SessionKey, nvc: Any) -> tuple[NvdecSession, bool]:
    """Get a session with this key, and whether it is a reused one. Thread-safe.

    Args:
        key: required properties.
        nvc: the module PyNvVideoCodec.

    Raises:
        SourceError: the driver has refused as many sessions lately.
        Exception: of PyNvVideoCodec's own types; no session could be created.
    """
    session = _take(key)
    reused = session is not None
    if session is None:
        _check_limit(key)
        session = _create(key, nvc)
    with _counting:
        _used[key] += 1
    return session, reused


def _take(key: SessionKey) -> NvdecSession | None:
    for session in reversed(list(_idle)):
        if session.key == key:
            with suppress(ValueError):  # another thread took it
                _idle.remove(session)
                return session
    return None


def release(session: NvdecSession, end: Any | None) -> None:
    """Keep a session for another video; close the longest idle ones if they take too much memory. Thread-safe.

    Args:
        session: a session that was acquired.
        end: the empty packet, if the session holds frames that must be dropped.
    """
    _uncount(session)
    _keep(session, end)


def is_exhausted(error: Exception) -> bool:
    """Whether the driver has no decoder for a session, which it creates with the first packet."""
    return bool(_EXHAUSTED.search(str(error)))


def close_idle(device: int) -> bool:
    """Close the session of a device that has been idle longest; return False if none is idle. Thread-safe."""
    for session in _idle_on(device):
        with suppress(ValueError):  # another thread took it
            _idle.remove(session)
            session.close()
            return True
    return False


def refused(key: SessionKey) -> SourceError:
    """Learn that the driver refuses a further session, and return the error for its source. Thread-safe."""
    with _counting:
        _learned[key.device] = _open_count(key.device), time.monotonic()
    return _refusal(key)


def _check_limit(key: SessionKey) -> None:
    """Make room for a session if the driver has refused one lately. Raises SourceError if all are in use."""
    limit, learned_s = _learned.get(key.device, (0, -_LEARNED_S))
    if time.monotonic() - learned_s >= _LEARNED_S:
        return
    while True:
        with _counting:
            has_room = _open_count(key.device) < limit
        if has_room:
            return
        if not close_idle(key.device):
            raise _refusal(key)


def _open_count(device: int) -> int:
    """Number of sessions of this process on a device, used and idle; call it with `_counting` held."""
    return sum(count for key, count in _used.items() if key.device == device) + len(_idle_on(device))


def _refusal(key: SessionKey) -> SourceError:
    import cupy

    with cupy.cuda.Device(key.device):
        free_bytes = int(cupy.cuda.runtime.memGetInfo()[0])
    if free_bytes < key.size:
        text = f"the memory of GPU {key.device} is full ({free_bytes >> 20} MiB free), so that NVDEC opens no decoder"
        return SourceError(f"{text}; read fewer sources on it", cause="codec")
    count = _learned[key.device][0]
    text = f"NVDEC of GPU {key.device} opens no further decoder: {count} of this process are open"
    return NoSession(f"{text}, and a GPU has a limited number for all; read fewer sources on it", cause="codec")


def discard(session: NvdecSession) -> None:
    """Close a session that was acquired and has failed. Thread-safe."""
    _uncount(session)
    session.close()


def remember_first_packet(session: NvdecSession, packet: Any) -> None:
    """Remember the first packet of a video, a `PacketData`, as the sample of its session. Thread-safe."""
    if session.key not in _first_packets:
        data = ctypes.string_at(packet.bsl_data, packet.bsl)
        with _counting:
            _first_packets[session.key] = data


def samples() -> list[SessionSample]:
    """The sessions in use, by their properties. Thread-safe."""
    with _counting:
        for key in _first_packets.keys() - _used.keys():
            del _first_packets[key]
        return [SessionSample(key, packet, _used[key]) for key, packet in _first_packets.items()]


def make_ahead(sample: SessionSample, nvc: Any) -> bool:
    """Make one idle session for a later video, unless as many are idle as the sample wants. Thread-safe.

    Returns:
        Whether one was made: otherwise there are enough, it would exceed the memory of idle sessions, or it failed.

    Raises:
        Exception: of PyNvVideoCodec's own types; no session could be created.
    """
    import cupy

    key = sample.key
    idle = _idle_on(sample.key.device)
    if sum(idle_session.key == key for idle_session in idle) >= sample.number:
        return False
    if sum(idle_session.key.size for idle_session in idle) + key.size > _limit(key.device):
        return False
    buffer = np.frombuffer(sample.packet, np.uint8)
    first = nvc.PacketData()
    end = nvc.PacketData()
    first.bsl_data = buffer.ctypes.data
    first.bsl = len(buffer)
    first.pts = 1
    end.bsl_data = 0
    end.bsl = 0
    end.pts = 0
    with cupy.cuda.Device(key.device), creation_lock:
        session = _create(key, nvc)
        session.decoder.Decode(first)
        return _keep(session, end)


def keep_only(wanted: Sequence[SessionSample]) -> None:
    """Close the idle sessions beyond those wanted: a GPU has a limited number. Thread-safe."""
    left = Counter({sample.key: sample.number for sample in wanted})
    for session in list(_idle):
        left[session.key] -= 1
        if left[session.key] < 0:
            with suppress(ValueError):  # another thread took it
                _idle.remove(session)
                session.close()


def open_count(device: int) -> int:
    """Number of sessions of this process on a device, used and idle."""
    with _counting:
        return _open_count(device)


def idle_count() -> int:
    """Number of idle sessions."""
    return len(_idle)


def _uncount(session: NvdecSession) -> None:
    with _counting:
        _used[session.key] -= 1
        if not _used[session.key]:
            del _used[session.key]


def _keep(session: NvdecSession, end: Any | None) -> bool:
    """Make a session idle; return False if it fails, and is closed."""
    try:
        if end is not None:
            session.decoder.Decode(end)
        session.stream.synchronize()
    except Exception:  # PyNvVideoCodec's types differ by version; a session that fails is no loss
        session.close()
        return False
    _idle.append(session)
    device = session.key.device
    while sum(idle_session.key.size for idle_session in _idle_on(device)) > _limit(device):
        with suppress(IndexError, ValueError):  # another thread took it
            oldest = _idle_on(device)[0]
            _idle.remove(oldest)
            oldest.close()
    return True


def _create(key: SessionKey, nvc: Any) -> NvdecSession:
    import cupy

    options: dict[str, Any] = {"latency": nvc.DisplayDecodeLatencyType.LOW} if key.low_delay else {}
    with cupy.cuda.Device(key.device):
        # highest priority: a frame's copy is short, and NVDEC waits for it
        stream = cupy.cuda.Stream(non_blocking=True, priority=_HIGHEST_PRIORITY)
        decoder = nvc.CreateDecoder(
            gpuid=key.device,
            codec=getattr(nvc.cudaVideoCodec, CODECS[key.codec]),
            cudacontext=cupy.cuda.driver.ctxGetCurrent(),
            cudastream=stream.ptr,
            usedevicememory=True,
            **options,
        )
    return NvdecSession(key, decoder, stream)


def _idle_on(device: int) -> list[NvdecSession]:
    return [session for session in list(_idle) if session.key.device == device]


def clear() -> None:
    """Close all idle sessions."""
    with suppress(IndexError):
        while True:
            _idle.popleft().close()


@cache
def _limit(device: int) -> int:
    import cupy

    with cupy.cuda.Device(device):
        return int(cupy.cuda.runtime.memGetInfo()[1]) // _MEMORY_DIVISOR


atexit.register(clear)  # while CUDA is still loaded
