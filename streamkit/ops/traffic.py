"""Bytes that cross between host and device, counted where the copy is made: `run.py bench gpu` shows them a frame.

Once a batch, or once a picture where a picture is what crosses. Not counted: what libraries copy on their own, such as
NVDEC its packets and ONNX Runtime around a node that only the CPU can run.
"""

from __future__ import annotations

from typing import NamedTuple


class Traffic(NamedTuple):
    """Bytes since the process began."""

    to_device: int
    to_host: int


_to_device = _to_host = 0


def sent(size: int) -> None:
    """`size` bytes go from the host to a device."""
    global _to_device
    _to_device += size


def fetched(size: int) -> None:
    """`size` bytes go from a device to the host."""
    global _to_host
    _to_host += size


def so_far() -> Traffic:
    """What has crossed by now."""
    return Traffic(_to_device, _to_host)
