# SPDX-License-Identifier: Apache-2.0
"""Compile the `.cu` files of this folder, once per device and set of constants.

NVRTC compiles on first use; CuPy caches the result on disk, keyed by the source text. Headers from this folder
(`#include "x.cuh"`) are therefore inlined before compilation: a changed header changes the source, so no stale result
is loaded. CuPy finds system headers such as `<cuda_fp16.h>`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"[ \t]*$')


def load_compiler(device: int) -> None:
    """Create the CUDA context of a device, and load NVRTC, for which the first kernel would wait."""
    import cupy

    with cupy.cuda.Device(device):
        cupy.arange(2).sum()


def kernel(file: str, name: str, defines: tuple[str, ...] = ()) -> Any:
    """Return the kernel `name` of `streamkit/ops/cuda/<file>` for the current CUDA device.

    Args:
        file: the file's name, such as `nms.cu`.
        name: an `extern "C" __global__` function in it.
        defines: constants fixed at compile time, `NAME` or `NAME=value`. Each set is compiled and cached separately, so
            they should take few values.

    Returns:
        A `cupy.RawKernel`: call it as `k(grid, block, args)`; it is launched on the current CuPy stream. Scalars in
        `args` must be NumPy scalars of the parameter's exact type, arrays CuPy arrays.

    Raises:
        FileNotFoundError: there is no such file.
        cupy.cuda.compiler.CompileException: it does not compile; names file and line.
    """
    from cupy.cuda import runtime

    return _kernel(runtime.getDevice(), file, name, defines)


@cache
def _kernel(device: int, file: str, name: str, defines: tuple[str, ...]) -> Any:
    return _module(device, file, defines).get_function(name)


@cache
def _module(device: int, file: str, defines: tuple[str, ...]) -> Any:
    import cupy

    options = ("-std=c++17", *(f"-D{define}" for define in defines))
    return cupy.RawModule(code=source(file), options=options)


@cache
def source(file: str) -> str:
    """Return the text of a `.cu` file with this folder's own headers inlined, each once."""
    return "\n".join(_lines(file, set())) + "\n"


def _lines(file: str, seen: set[str]) -> list[str]:
    path = _FOLDER / file
    if not path.is_file():
        files = ", ".join(sorted(p.name for p in _FOLDER.glob("*.cu*")))
        raise FileNotFoundError(f"streamkit/ops/cuda has no file {file!r}; it has {files}")
    seen.add(file)
    lines = [f'#line 1 "{file}"']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        header = _INCLUDE.match(line)
        if header is None:
            lines.append("" if line.strip() == "#pragma once" else line)  # as many lines as in the file
            continue
        if header[1] not in seen:
            lines += _lines(header[1], seen)
        lines.append(f'#line {number + 1} "{file}"')
    return lines
