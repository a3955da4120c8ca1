"""SQLite: a file."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from streamkit.emit.sender import REFUSED
from support.place import Place
from support.poison import Poison


def _strict(place: Place) -> None:
    """Create the table with a constraint."""
    connection = sqlite3.connect(place.folder / "out.db")
    columns = "id TEXT PRIMARY KEY, source TEXT, frame INTEGER, pts_s REAL, time TEXT, error TEXT, record TEXT"
    connection.execute(f"CREATE TABLE frames ({columns}, CHECK (error IS NULL))")
    connection.close()


class SqlitePlace(Place):
    kind = "sqlite"
    poisons = (Poison(REFUSED, "CHECK constraint failed", {"error": "no"}, prepare=_strict),)

    def options(self, password: str | None = None) -> dict[str, Any]:
        return self.options_at(self.folder, 0, "")

    @classmethod
    def options_at(cls, folder: Path, port: int, password: str) -> dict[str, Any]:
        return {"path": str(folder / "out.db")}

    def restart(self) -> None:
        """Another program holds the file for a while."""
        connection = sqlite3.connect(self.folder / "out.db", timeout=10, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(0.3)
        connection.execute("ROLLBACK")
        connection.close()

    def received(self) -> list[dict[str, Any]]:
        with sqlite3.connect(self.folder / "out.db") as connection:
            records = [json.loads(row[0]) for row in connection.execute("SELECT record FROM frames ORDER BY rowid")]
        connection.close()
        return records
