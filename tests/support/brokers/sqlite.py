"""SQLite: a file."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from support.place import Place


class SqlitePlace(Place):
    kind = "sqlite"

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

    def got(self) -> list[dict[str, Any]]:
        with sqlite3.connect(self.folder / "out.db") as connection:
            records = [json.loads(row[0]) for row in connection.execute("SELECT record FROM frames ORDER BY rowid")]
        connection.close()
        return records
