"""What a spool knows besides its records: whose it is, its name, and how far its records were acknowledged."""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import zlib
from pathlib import Path

from streamkit.emit.blocks import files, private
from streamkit.errors import OutputError
from streamkit.outputs import output_error

_ENTRY = struct.Struct("<QI")  # a record's number, and its checksum


class Ledger:
    """Three small files in the spool's folder, readable by their owner alone; one process has them at a time.

    Args:
        folder: the spool's; made where it is not there.

    Attributes:
        name: what tells this spool's records from those of any other; made once. Another one is made where numbers
            begin anew, so that no two records have the same id: where `acknowledged` cannot be read, and none is left.
        acknowledged: the number that was written last; 0 at first, and where it cannot be read any more, so that
            everything there is will be sent again rather than lost.

    Raises:
        OutputError: the folder cannot be written, or another run has it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = private(folder / "lock", os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file = private(folder / "acknowledged", os.O_RDWR)
            known = _read(os.pread(self._file, _ENTRY.size, 0))
            self.name = _name(folder, anew=known is None and not files(folder))
            self.write(known or 0)  # a full disk shows now, and not in the midst
        except BlockingIOError:
            os.close(self._lock)
            text = f"the spool {folder} is in use by another run or emitter; give each a spool.path of its own"
            raise OutputError(text) from None
        except OSError as error:
            raise output_error(folder, error) from error

    def write(self, number: int) -> None:
        """Every record up to this one has arrived, or was dropped and counted."""
        self.acknowledged = number
        data = struct.pack("<Q", number)
        os.pwrite(self._file, data + struct.pack("<I", zlib.crc32(data)), 0)

    def close(self) -> None:
        """Let another run have the spool."""
        os.close(self._file)
        os.close(self._lock)


def _name(folder: Path, anew: bool) -> str:
    path = folder / "name"
    if anew or not path.exists():
        part = folder / ".name.part"
        with open(private(part, os.O_WRONLY | os.O_TRUNC), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(6))
        os.replace(part, path)
    return path.read_text(encoding="ascii")


def _read(data: bytes) -> int | None:
    if len(data) < _ENTRY.size or zlib.crc32(data[:8]) != _ENTRY.unpack(data)[1]:
        return None
    return int(_ENTRY.unpack(data)[0])
