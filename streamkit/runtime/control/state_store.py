# SPDX-License-Identifier: Apache-2.0
"""Stores live changes to sources and options in a small SQLite file, so that they survive a restart.

The file contains only differences from the YAML. Addresses are stored with their passwords, so only the owner of the
file may read it (mode 600).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamkit.config.pipeline_config import read_source, source_entry
from streamkit.config.plan import Graph, SourceConfig
from streamkit.core.errors import ConfigError, OutputError
from streamkit.io.database_error import database_error
from streamkit.media.uris import mask
from streamkit.runtime.control.settings import checked, follow_zones

logger = logging.getLogger(__name__)

_SCHEMA = "CREATE TABLE IF NOT EXISTS changes (kind TEXT, id TEXT, value TEXT, PRIMARY KEY (kind, id))"
_PUT = "INSERT OR REPLACE INTO changes VALUES (?, ?, ?)"
_RESUME = "DELETE FROM changes WHERE kind = 'paused' AND id = ?"
_REMOVED = "null"


class StateStore:
    """The state file. All methods are thread-safe.

    Args:
        path: the file; its folder is created if needed.

    Raises:
        OutputError: the file cannot be read or written; every method may raise it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            path.chmod(0o600)
        except OSError as error:
            raise OutputError(f"cannot write the state {path}: {error.strerror}; set `state` to another file") from None
        self._do(_SCHEMA)

    def _do(self, text: str, *values: Any) -> list[Any]:
        return self._do_all([(text, values)])

    def _do_all(self, statements: Iterable[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Execute all statements or none; return the rows of the last one."""
        rows: list[Any] = []
        try:
            with self._lock, contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
                for text, values in statements:
                    rows = connection.execute(text, values).fetchall()
        except sqlite3.Error as error:
            raise database_error("state", self._path, error) from None
        return rows

    def _put(self, kind: str, id_: str, value: str) -> None:
        self._do(_PUT, kind, id_, value)

    @contextlib.contextmanager
    def taken_back(self) -> Iterator[None]:
        """Restore the present content if the block, which stores a change and applies it, raises."""
        content = "SELECT kind, id, value FROM changes ORDER BY rowid"
        before = self._do(content)
        try:
            yield
        except BaseException:
            try:
                if self._do(content) != before:  # it has not failed because nothing can be written
                    self._do_all([("DELETE FROM changes", ()), *((_PUT, row) for row in before)])
            except OutputError as error:
                logger.warning(f"a change that was refused stays in the state: {error}")
            raise

    def _rows(self, kind: str) -> list[tuple[str, Any]]:
        rows = self._do("SELECT id, value FROM changes WHERE kind = ? ORDER BY rowid", kind)
        return [(id_, json.loads(value)) for id_, value in rows]

    # -------------------------------------------------------------------------------------------------- to the file

    def added(self, source: SourceConfig, paused: bool = False) -> None:
        """Store that a source was added or replaced."""
        pause = (_PUT, ("paused", source.id, "true")) if paused else (_RESUME, (source.id,))
        self._do_all([(_PUT, ("source", source.id, json.dumps(source_entry(source)))), pause])

    def removed(self, id_: str) -> None:
        """Store that a source was removed."""
        self._do_all([(_PUT, ("source", id_, _REMOVED)), (_RESUME, (id_,))])

    def paused(self, id_: str, paused: bool) -> None:
        """Store that a source was paused or resumed."""
        if paused:
            self._put("paused", id_, "true")
        else:
            self._do(_RESUME, id_)

    def changed(self, id_: str, values: Mapping[str, Any]) -> None:
        """Store new option values of a stage."""
        self._put("stage", id_, json.dumps({**dict(self._rows("stage")).get(id_, {}), **values}))

    def forget(self, id_: str) -> None:
        """Forget the changes of a source: the YAML was edited and takes precedence."""
        self._do("DELETE FROM changes WHERE kind IN ('source', 'paused') AND id = ?", id_)

    def forget_settings(self, id_: str, names: Collection[str]) -> None:
        """Forget changed options of a stage: the YAML was edited and takes precedence."""
        values = dict(self._rows("stage")).get(id_, {})
        if left := {name: value for name, value in values.items() if name not in names}:
            self._put("stage", id_, json.dumps(left))
        else:
            self._do("DELETE FROM changes WHERE kind = 'stage' AND id = ?", id_)

    # ------------------------------------------------------------------------------------------------ from the file

    def sources(self, graph: Graph, warn: Callable[[str], None] = lambda text: None) -> list[SourceConfig]:
        """The sources of a graph after the stored changes.

        Args:
            graph: the graph as in the YAML.
            warn: receives a message for each change that no longer fits the YAML; it is skipped.
        """
        sources = {source.id: source for source in graph.sources}
        for id_, value in self._rows("source"):
            try:
                read_sources = [] if value is None else read_source(graph.config, id_, value)
            except ConfigError as error:
                warn(f"source {id_} is ignored: {error}")
                continue
            if value is None:
                sources.pop(id_, None)
            sources |= {source.id: source for source in read_sources}
        return list(sources.values())

    def restore(self, graph: Graph) -> set[str]:
        """Apply the stored changes to a graph that does not run yet; return the ids of paused sources.

        A warning is logged for each change that no longer fits the YAML; it is skipped.
        """
        graph.sources = self.sources(graph, lambda text: logger.warning(mask(f"{self._path}: {text}")))
        for id_, values in self._rows("stage"):
            try:
                for node, new in checked(graph, id_, values):
                    node.options = {**node.options, **new}
            except ConfigError as error:
                logger.warning(mask(f"{self._path}: the options of {id_} are ignored: {error}"))
        follow_zones(graph)
        return {id_ for id_, _ in self._rows("paused")}
