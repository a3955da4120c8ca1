# SPDX-License-Identifier: Apache-2.0
"""Bytes copied between host and device, counted where the copy is made: `streamkit bench gpu` shows them per frame.

Counted once per batch, or once per frame where frames are copied. Not counted: copies within libraries, such as
NVDEC's packets and ONNX Runtime's copies around a node that only the CPU can run.
"""

from __future__ import annotations

from typing import NamedTuple


class Traffic(NamedTuple):
    """Bytes since the process began."""

    to_device: int
    to_host: int


_to_device = _to_host = 0


def sent(size: int) -> None:
    """Count `size` bytes copied from the host to a device."""
    global _to_device
    _to_device += size


def fetched(size: int) -> None:
    """Count `size` bytes copied from a device to the host."""
    global _to_host
    _to_host += size


def so_far() -> Traffic:
    """Return the bytes copied so far."""
    return Traffic(_to_device, _to_host)
