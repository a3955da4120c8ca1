"""Compile the `.cu` files of this folder, once a device and set of constants.

NVRTC compiles at the first use; CuPy keeps the result on disk, keyed by the source text. So a file's own headers
(`#include "x.cuh"`, from this folder) are put into the text before it is compiled: a changed header is then a changed
source, and nothing stale is ever loaded. System headers such as `<cuda_fp16.h>` are found by CuPy.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"[ \t]*$')


def kernel(file: str, name: str, defines: tuple[str, ...] = ()) -> Any:
    """Return the kernel `name` of `streamkit/ops/cuda/<file>` for the current CUDA device.

    Args:
        file: the file's name, such as `nms.cu`.
        name: an `extern "C" __global__` function in it.
        defines: constants fixed at compile time, `NAME` or `NAME=value`. Each set is compiled and kept separately, so
            they should take few values.

    Returns:
        A `cupy.RawKernel`: call it as `k(grid, block, args)`; it is launched on the current CuPy stream. Scalars in
        `args` must be NumPy scalars of the parameter's exact type, arrays CuPy arrays.

    Raises:
        FileNotFoundError: there is no such file.
        cupy.cuda.compiler.CompileException: it does not compile; the text names file and line.
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
    """The text of a `.cu` file with this folder's own headers put in, each once."""
    return "\n".join(_lines(file, set())) + "\n"


def _lines(file: str, seen: set[str]) -> list[str]:
    path = _FOLDER / file
    if not path.is_file():
        known = ", ".join(sorted(p.name for p in _FOLDER.glob("*.cu*")))
        raise FileNotFoundError(f"streamkit/ops/cuda has no file {file!r}; it has {known}")
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
