# SPDX-License-Identifier: Apache-2.0
"""Sink: Parquet files that roll."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Annotated, ClassVar

from streamkit.core.data import Frame
from streamkit.core.stage import stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import Client
from streamkit.emit.emitter import Emitter
from streamkit.emit.parquet import ParquetClient, Roll
from streamkit.io.outputs import shortened

EVERY_S = 300.0
SIZE_BYTES = 100_000_000
_NAME_BYTES = 100  # of a value: the name of a folder has 255 bytes at most, and may hold two values and more


@stage("parquet")
class ParquetSink(Emitter):
    """Write records as rows of Parquet files, each exactly once, in a new file at intervals.

    A file appears under its name when it is complete; until then its records are in the spool. docs/schema.md
    describes the columns.
    """

    broker: ClassVar[Broker] = Broker(
        product="Parquet files",
        acknowledged_by="the complete file on disk",
        page="schema.md#rows-of-parquet-files",
        modules=("pyarrow",),
        id_in="column `id`",
        repeats="each record is stored exactly once",
    )

    more_variables: ClassVar[tuple[str, ...]] = ("date",)
    template_options: ClassVar[tuple[str, ...]] = ("path",)

    path: Annotated[
        str,
        'the folder, such as "out/{source}/{date}", a template with {source}, {date} (UTC, of the camera\'s clock; for '
        "videos, of the time of writing) or other variables of the records. Files are named after the spool and the "
        "numbers of their records.",
    ]
    roll: Annotated[
        Roll | None,
        "when a file is complete, as in {every: 5min, size: 100MB}, which are the defaults; and at the latest when "
        "its records fill half of the spool.",
    ] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        roll = self.roll or {}
        self._every_s = roll.get("every", EVERY_S)
        self._roll_bytes = roll.get("size", SIZE_BYTES)
        if self._every_s <= 0:
            raise ValueError(f"roll.every must be longer than 0s, got {self._every_s:g}s")
        age_s = self._spool_options.get("age")
        if age_s is not None and age_s <= self._every_s:
            raise ValueError(
                f"spool.age must be longer than roll.every, {self._every_s:g}s, or records grow too old before their "
                f"file is complete, got {age_s:g}s"
            )
        if self.path.endswith(".parquet"):
            raise ValueError(f"path must name a folder, in which files are made; leave .parquet out of {self.path!r}")
        if "\0" in self.path:
            raise ValueError("path cannot hold a zero character")

    def values(self, frame: Frame) -> tuple[str, ...]:
        """See `Emitter.values`: the date."""
        at_s = time.time() if frame.time_s is None else frame.time_s
        return (datetime.fromtimestamp(at_s, UTC).date().isoformat(),)

    @classmethod
    def clean(cls, text: str) -> str:
        """See `Emitter.clean`: characters that would change or hide the folder become underscores.

        A value too long for a folder's name is cut, with a checksum of all of it appended.
        """
        text = re.sub(r"[/\0]|^\.", "_", text) or "_"
        return shortened(text, _NAME_BYTES)

    def client(self) -> Client:
        """See `Emitter.client`."""
        from streamkit.io.parquet_file import arrow

        arrow("stage: parquet", "parquet")
        return ParquetClient(self.path, self.send, self._every_s, self._roll_bytes, self._size // 2)
