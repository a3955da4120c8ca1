# SPDX-License-Identifier: Apache-2.0
"""The user's folder for files that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(*parts: str) -> Path:
    """Return a folder below `$XDG_CACHE_HOME/streamkit`, by default `~/.cache/streamkit`; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "streamkit", *parts)
