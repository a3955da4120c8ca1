# SPDX-License-Identifier: Apache-2.0
"""Captures NVDEC's reports of damaged frames, which PyNvVideoCodec prints and does not return.

A frame with damaged data is returned with concealed errors; the only sign is a line that the library's C code prints
from within `Decode`. So the process's C `stdout` is replaced by a stream that writes to this module: that line is
recorded under the decoding thread, and everything else goes to standard error, where it does not mix with records.
"""

from __future__ import annotations

import ctypes
import os
from _thread import get_ident
from collections import deque
from typing import Any

_LINE = b"Decode Error occurred"
_BY_CALLER = 2  # FSETLOCKING_BYCALLER of <stdio_ext.h>
_UNBUFFERED = 2  # _IONBF of <stdio.h>

_Write = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Functions(ctypes.Structure):
    """`cookie_io_functions_t` of fopencookie(3)."""

    _fields_ = (("read", ctypes.c_void_p), ("write", _Write), ("seek", ctypes.c_void_p), ("close", ctypes.c_void_p))


damaged: deque[int] = deque()
"""One entry per damaged frame: the thread that called `Decode`. Usually empty, so check it before calling `take`."""

_installed: list[Any] = []  # keeps the callback alive; C has its address


def install() -> bool:
    """Start capturing; return False if the C library has no such streams."""
    if _installed:
        return True
    try:
        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, "stdout")
        libc.fopencookie.restype = ctypes.c_void_p
        libc.fopencookie.argtypes = ctypes.c_void_p, ctypes.c_char_p, _Functions
        functions = _Functions(None, _Write(_on_write), None, None)
        stream = libc.fopencookie(None, b"w", functions)
        lock = libc.__fsetlocking
        buffer = libc.setvbuf
    except (OSError, AttributeError, ValueError):
        return False
    if not stream:
        return False
    # without its own lock: a thread that holds the GIL must not wait here for a thread that waits for the GIL
    lock(ctypes.c_void_p(stream), _BY_CALLER)
    buffer(ctypes.c_void_p(stream), None, _UNBUFFERED, 0)
    libc.fflush(stdout)
    _installed.append((functions, stdout.value))
    stdout.value = stream
    return True


def take() -> int:
    """Number of damaged frames of this thread since its last call."""
    this_thread = get_ident()
    count = 0
    for _ in range(len(damaged)):
        thread = damaged.popleft()
        if thread == this_thread:
            count += 1
        else:
            damaged.append(thread)
    return count


def _on_write(_: Any, address: int, size: int) -> int:
    text = ctypes.string_at(address, size)
    if _LINE in text:
        damaged.extend([get_ident()] * text.count(_LINE))
    else:
        os.write(2, text)
    return size
