# SPDX-License-Identifier: Apache-2.0
"""Compilation with Numba, if it is installed; compiled code is cached on disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from streamkit.core.errors import MissingPackage
from streamkit.core.user_cache import user_cache

_FOLDERS = 16  # of compiled code, each a few MB, for different sources: of the tracker and of the rules
_Function = TypeVar("_Function", bound=Callable[..., Any])


def need_numba() -> None:
    """Check that Numba is installed.

    Raises:
        MissingPackage: Numba is not installed.
    """
    try:
        import numba  # noqa: F401
    except ImportError as error:
        raise MissingPackage("numba", "track", "track") from error


def compiled(function: _Function) -> _Function:
    """Compile a function that other compiled functions call."""
    from numba import njit

    compiled_function: _Function = njit(nogil=True, error_model="numpy")(function)
    return compiled_function


def cached(function: _Function) -> _Function:
    """Compile a function that Python calls, and cache the result on disk.

    The cache is in the user's cache folder, in a folder named after the content of the sources, so that all checkouts
    and installations with the same sources share it. If that folder is not writable, Numba's own location is used;
    otherwise the function is compiled at each start.
    """
    from numba import njit

    compiled_function = njit(nogil=True, error_model="numpy")(function)
    with contextlib.suppress(RuntimeError):  # there is no place to keep it
        compiled_function._cache = _cache(function)
    return compiled_function  # type: ignore[no-any-return]


def _cache(function: Callable[..., Any]) -> Any:
    """Return the cache that `njit(cache=True)` would give a function, with our folder before Numba's."""
    from numba.core import caching

    class ByContent(caching._CacheLocator):  # type: ignore[misc]
        """A folder for each content of the sources."""

        def __init__(self, place: Path, digest: str) -> None:
            self._place = place
            self._digest = digest

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> ByContent | None:
            digest = content_digest(Path(py_file).parent)
            locator = cls(cache_folder() / digest[:32], digest)
            try:
                locator.ensure_cache_path()
            except OSError:
                return None
            _remove_old(locator._place)
            return locator

        def get_cache_path(self) -> str:
            return str(self._place)

        def get_source_stamp(self) -> str:
            return self._digest

        def get_disambiguator(self) -> str:
            return self._digest[:8]

    class Place(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = [ByContent, *caching.CompileResultCacheImpl._locator_classes]  # noqa: RUF012  as Numba's

    class Cache(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = Place

    return Cache(function)


def cache_folder() -> Path:
    """Return the folder for compiled code of all versions: `NUMBA_CACHE_DIR`, else the user's cache."""
    from numba import config

    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "streamkit"
    return user_cache("compiled")


def content_digest(folder: Path) -> str:
    """Return a digest of the sources in `folder` and in this one, and of Numba's version, as 64 hexadecimal digits."""
    import numba

    whole = sha256(numba.__version__.encode())
    for source_folder in dict.fromkeys([Path(__file__).parent, folder]):
        for path in sorted(source_folder.glob("*.py")):
            whole.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return whole.hexdigest()


def _remove_old(place: Path) -> None:
    """Mark a folder as used now, and remove the least recently used ones beside it."""
    with contextlib.suppress(OSError):  # another process does the same
        os.utime(place)
        folders = sorted(place.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for folder in folders[_FOLDERS:]:
            shutil.rmtree(folder, ignore_errors=True)


def is_cached(function: Any) -> bool:
    """Whether a `cached` function was compiled before, so that its first call is fast."""
    folder = function.stats.cache_path
    return folder is not None and any(Path(folder).glob(f"*.{function.__name__}-*.nbi"))


def sources_stamp() -> int:
    """Return a number that changes when any source in this folder does.

    Numba checks only the file of the cached function: a function that closes over this number is recompiled when a
    function that it calls has changed.
    """
    whole = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return int.from_bytes(sha256(whole).digest()[:6], "big")
