"""Compiled functions: Numba, where it is installed; compiled once and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from streamkit.errors import MissingPackage

_Function = TypeVar("_Function", bound=Callable[..., Any])


def need_numba() -> None:
    """Refuse to go on without Numba, saying what to install.

    Raises:
        MissingPackage: Numba is not installed.
    """
    try:
        import numba  # noqa: F401
    except ImportError as error:
        raise MissingPackage("numba", "track", "track") from error


def compiled(function: _Function) -> _Function:
    """Compile a function, to be called from other compiled functions."""
    from numba import njit

    made: _Function = njit(nogil=True, error_model="numpy")(function)
    return made


def kept(function: _Function) -> _Function:
    """Compile a function that Python calls, and keep what was compiled on disk.

    It is kept beside its source, or in the user's cache where that cannot be written to; else compiled at each start.
    """
    from numba import njit

    try:
        made: _Function = njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # there is no place to keep it
        made = njit(nogil=True, error_model="numpy")(function)
    return made


def is_kept(function: Any) -> bool:
    """Whether a `kept` function was compiled before, so that its first call will not take long."""
    folder = function.stats.cache_path
    return folder is not None and any(Path(folder).glob(f"*.{function.__name__}-*.nbi"))


def sources_stamp() -> int:
    """A number that changes when any of this folder's sources does.

    Numba looks at the file of the kept function alone: one that has this among the values it closes over is compiled
    anew when a function that it calls has changed.
    """
    whole = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return int.from_bytes(sha256(whole).digest()[:6], "big")
