# SPDX-License-Identifier: Apache-2.0
"""Counts of sources that go on when the pipeline is rebuilt."""

from __future__ import annotations

import json
from typing import Any

from streamkit.core.stage import StageState

SOURCE_KEY = "source/"
"""Begins the key of what belongs to a source; the rest is its id."""


class CarriedCounts:
    """What a stage passes on for each source to its instance in the pipeline that is built next.

    Args:
        store: where it is kept; None if the pipeline is not rebuilt.
    """

    def __init__(self, store: StageState | None) -> None:
        self._store = store
        self._before = {} if store is None else store.load()
        self._after: dict[str, bytes | None] = {}

    def take(self, source: str) -> Any:
        """Return what was put for a source, once; None if nothing was. A source that is added again begins at zero."""
        stored = self._before.pop(SOURCE_KEY + source, None)
        return None if stored is None else json.loads(stored)

    def put(self, source: str, counts: Any) -> None:
        """Keep the counts of a source, which JSON can represent."""
        self._after[SOURCE_KEY + source] = json.dumps(counts).encode()

    def save(self) -> None:
        """Store them; called when the stage is closed."""
        if self._store is not None and self._after:
            self._store.save(self._after, wait=True)
