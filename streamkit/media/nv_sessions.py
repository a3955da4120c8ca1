"""Reuses NVDEC sessions between videos: a new session takes 60 to 70 ms, in which a short video is decoded.

A session is reused for a video that needs an identical one, including the parameter sets: they determine how many
frames it must hold, and a session never updates that. Idle sessions are kept for up to a sixteenth of the device's
memory; beyond that, those that have been idle longest are closed.
"""

from __future__ import annotations

import atexit
from collections import deque
from functools import cache
from typing import Any, NamedTuple

from streamkit.media.nv_caps import CODECS

_FRAMES = 20  # frames that a session buffers; 60 to 80 MiB at 1080p
_SHARE = 16
_FIRST = -5  # CUDA's highest priority of a stream


class Kind(NamedTuple):
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


class NvdecSession:
    """A decoder of PyNvVideoCodec and its CUDA stream. Compared by identity."""

    __slots__ = ("decoder", "kind", "stream")

    def __init__(self, kind: Kind, decoder: Any, stream: Any) -> None:
        self.kind, self.decoder, self.stream = kind, decoder, stream

    def close(self) -> None:
        """Destroy the decoder, then its stream."""
        self.decoder = None
        self.stream = None


_idle: deque[NvdecSession] = deque()  # in the order in which they became idle; its ends and `remove` are atomic


def obtain(kind: Kind, nvc: Any) -> tuple[NvdecSession, bool]:
    """Get a session of this kind, and whether it is a reused one. Thread-safe.

    Args:
        kind: required properties.
        nvc: the module PyNvVideoCodec.

    Raises:
        Exception: of PyNvVideoCodec's own types; no session could be created.
    """
    session = _take(kind)
    return (_made(kind, nvc), False) if session is None else (session, True)


def leave(session: NvdecSession, end: Any | None) -> None:
    """Keep a session for another video. Thread-safe.

    Args:
        session: the session.
        end: the empty packet, if the session holds frames that must be dropped.
    """
    try:
        if end is not None:
            session.decoder.Decode(end)
        session.stream.synchronize()
    except Exception:  # PyNvVideoCodec's types differ by version; a session that fails is no loss
        session.close()
    else:
        _give(session)


def _made(kind: Kind, nvc: Any) -> NvdecSession:
    import cupy

    options: dict[str, Any] = {"latency": nvc.DisplayDecodeLatencyType.LOW} if kind.low_delay else {}
    with cupy.cuda.Device(kind.device):
        # highest priority: a frame's copy is short, and NVDEC waits for it
        stream = cupy.cuda.Stream(non_blocking=True, priority=_FIRST)
        decoder = nvc.CreateDecoder(
            gpuid=kind.device,
            codec=getattr(nvc.cudaVideoCodec, CODECS[kind.codec]),
            cudacontext=cupy.cuda.driver.ctxGetCurrent(),
            cudastream=stream.ptr,
            usedevicememory=True,
            **options,
        )
    return NvdecSession(kind, decoder, stream)


def _take(kind: Kind) -> NvdecSession | None:
    for session in reversed(list(_idle)):
        if session.kind == kind:
            try:
                _idle.remove(session)
            except ValueError:  # another thread took it
                continue
            return session
    return None


def _give(session: NvdecSession) -> None:
    """Add a session to the idle ones; close the longest idle ones if they take too much memory."""
    _idle.append(session)
    device = session.kind.device
    while sum(one.kind.size for one in list(_idle) if one.kind.device == device) > _limit(device):
        oldest = next((one for one in list(_idle) if one.kind.device == device), None)
        try:
            _idle.remove(oldest)  # type: ignore[arg-type]  # None is not in it
        except ValueError:
            continue
        assert oldest is not None
        oldest.close()


def clear() -> None:
    """Close all idle sessions."""
    while _idle:
        try:
            _idle.popleft().close()
        except IndexError:
            return


@cache
def _limit(device: int) -> int:
    import cupy

    with cupy.cuda.Device(device):
        return int(cupy.cuda.runtime.memGetInfo()[1]) // _SHARE


atexit.register(clear)  # while CUDA is still loaded
