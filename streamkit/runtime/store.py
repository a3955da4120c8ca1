"""What was added, removed, paused or changed while a pipeline ran, in a small SQLite file: it is there after a restart.

Only what differs from the YAML is in it. Addresses are kept with their passwords, so the file is its owner's alone to
read (mode 600).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from streamkit.config import read_source, source_entry
from streamkit.errors import ConfigError, OutputError
from streamkit.media.uris import mask
from streamkit.plan import Graph, SourceConfig
from streamkit.runtime.settings import checked

_SCHEMA = "CREATE TABLE IF NOT EXISTS changes (kind TEXT, id TEXT, value TEXT, PRIMARY KEY (kind, id))"
_REMOVED = "null"


class Store:
    """The file. Any thread may call any method.

    Args:
        path: where it is, or is to be; its folder is made.

    Raises:
        OutputError: it cannot be read or written; every method raises it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            path.chmod(0o600)
        except OSError as error:
            raise OutputError(f"cannot write the state {path}: {error.strerror}; name another file") from None
        self._do(_SCHEMA)

    def _do(self, text: str, *values: Any) -> list[Any]:
        try:
            with self._lock:
                connection = sqlite3.connect(self._path)
                try:
                    with connection:
                        return connection.execute(text, values).fetchall()
                finally:
                    connection.close()
        except sqlite3.Error as error:
            raise OutputError(f"cannot use the state {self._path}: {error}; mend or remove the file") from None

    def _put(self, kind: str, id_: str, value: str) -> None:
        self._do("INSERT OR REPLACE INTO changes VALUES (?, ?, ?)", kind, id_, value)

    def _rows(self, kind: str) -> list[tuple[str, Any]]:
        found = self._do("SELECT id, value FROM changes WHERE kind = ? ORDER BY rowid", kind)
        return [(id_, json.loads(value)) for id_, value in found]

    # -------------------------------------------------------------------------------------------------- to the file

    def added(self, source: SourceConfig) -> None:
        """A source was added, or put in the place of another."""
        self._put("source", source.id, json.dumps(source_entry(source)))
        self.paused(source.id, False)

    def removed(self, id_: str) -> None:
        """A source was removed."""
        self._put("source", id_, _REMOVED)
        self.paused(id_, False)

    def paused(self, id_: str, paused: bool) -> None:
        """A source was paused, or goes on."""
        if paused:
            self._put("paused", id_, "true")
        else:
            self._do("DELETE FROM changes WHERE kind = 'paused' AND id = ?", id_)

    def changed(self, id_: str, values: Mapping[str, Any]) -> None:
        """Options of a stage have new values."""
        self._put("stage", id_, json.dumps({**dict(self._rows("stage")).get(id_, {}), **values}))

    def forget(self, id_: str) -> None:
        """The YAML was edited: what it says of this source holds."""
        self._do("DELETE FROM changes WHERE kind IN ('source', 'paused') AND id = ?", id_)

    def forget_settings(self, id_: str, names: Collection[str]) -> None:
        """The YAML was edited: what it says of these options of a stage holds."""
        values = dict(self._rows("stage")).get(id_, {})
        if left := {name: value for name, value in values.items() if name not in names}:
            self._put("stage", id_, json.dumps(left))
        else:
            self._do("DELETE FROM changes WHERE kind = 'stage' AND id = ?", id_)

    # ------------------------------------------------------------------------------------------------ from the file

    def restore(self, graph: Graph, say: Callable[[str], None]) -> set[str]:
        """Change a graph that is not running yet as it was changed before; return the ids of paused sources.

        What does not fit the YAML any more is left out, and said.
        """
        for id_, value in self._rows("source"):
            try:
                found = [] if value is None else read_source(graph.config, id_, value)
            except ConfigError as error:
                say(mask(f"{self._path}: source {id_} is left out: {error}"))
                continue
            known = {source.id: source for source in graph.sources if value is not None or source.id != id_}
            graph.sources = list({**known, **{source.id: source for source in found}}.values())
        for id_, values in self._rows("stage"):
            try:
                for node, new in checked(graph, id_, values):
                    node.options = {**node.options, **new}
            except ConfigError as error:
                say(mask(f"{self._path}: the settings of {id_} are left out: {error}"))
        return {id_ for id_, _ in self._rows("paused")}
