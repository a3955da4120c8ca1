# SPDX-License-Identifier: Apache-2.0
"""The files of a spool: blocks of records, each written at once and verified by its checksum.

A block is a header, the lengths of all topics, keys and bodies, and then the topics, keys and bodies themselves.
Numbers are little-endian. Records are numbered consecutively, and a file is named after its first record's number.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

_HEADER = struct.Struct("<4sIIQd")  # mark, records, bytes that follow the checksum, first number, time
_SUM = struct.Struct("<I")  # of header and what follows
_MARK = b"SKB1"
HEADER_BYTES = _HEADER.size + _SUM.size
SUFFIX = ".spool"
_Tuple = TypeVar("_Tuple", bound=tuple[Any, ...])


class SpoolRecord(NamedTuple):
    """A record to send, before it has a number, in UTF-8."""

    topic: bytes
    key: bytes
    body: bytes


@dataclass(slots=True)
class SegmentFile:
    """One file: first record number, number after the last record, size in bytes, time of the newest record."""

    path: Path
    first: int
    end: int
    size: int
    newest_s: float

    @property
    def holds(self) -> int:
        """Number of records in the file."""
        return self.end - self.first


class StoredRecord(NamedTuple):
    """A record in the spool.

    Attributes:
        number: position among all records of this spool, from 1.
        time_s: when it was added, in seconds since 1970.
    """

    number: int
    time_s: float
    topic: bytes
    key: bytes
    body: bytes


def tuples(kind: type[_Tuple], values: Iterable[tuple[Any, ...]]) -> list[_Tuple]:
    """Named tuples of these values, without a Python call for each."""
    return list(map(tuple.__new__, itertools.repeat(kind), values))


def pack(records: Sequence[SpoolRecord], first: int, time_s: float) -> bytes:
    """Encode a block of records; `first` is the number of the first one."""
    parts = list(itertools.chain.from_iterable(records))
    body = struct.pack(f"<{len(parts)}I", *map(len, parts)) + b"".join(parts)
    header = _HEADER.pack(_MARK, len(records), len(body), first, time_s)
    return header + _SUM.pack(zlib.crc32(body, zlib.crc32(header))) + body


def unpack(data: bytes, first: int) -> tuple[list[StoredRecord], int]:
    """Decode the complete blocks at the start of `data`; return their records and size in bytes.

    Args:
        data: bytes from the start of a block; the last block may be incomplete.
        first: the number that the first record must have.
    """
    records: list[tuple[int, float, bytes, bytes, bytes]] = []
    done = 0
    for count, at, end, number, time_s in _blocks(data, first):
        lengths = struct.unpack_from(f"<{3 * count}I", data, at)
        at += 12 * count
        for i in range(count):
            a = at + lengths[3 * i]
            b = a + lengths[3 * i + 1]
            c = b + lengths[3 * i + 2]
            records.append((number + i, time_s, data[at:a], data[a:b], data[b:c]))
            at = c
        done = end
    return tuples(StoredRecord, records), done


def block_bytes(header: bytes) -> int:
    """Size in bytes of the block with this header."""
    return int(HEADER_BYTES + _HEADER.unpack_from(header)[2])


def name_of(first: int) -> str:
    """The file name for this first record number; names sort like numbers."""
    return f"{first:020d}{SUFFIX}"


def files(folder: Path) -> list[tuple[int, Path]]:
    """The files of a spool in order, each with the number of its first record."""
    return sorted((int(path.stem), path) for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit())


def recover(folder: Path) -> tuple[list[SegmentFile], int]:
    """Files of an earlier run, and the number of torn ends that were cut off. Raises OSError."""
    there = files(folder)
    recovered = list[SegmentFile]()
    torn = 0
    for (first, path), (end, _) in zip(there, [*there[1:], (0, None)], strict=False):
        stat = path.stat()
        size = stat.st_size
        if not end:  # the last file, which a crash may have torn
            blocks = list(_blocks(path.read_bytes(), first))
            end = first + sum(block[0] for block in blocks)
            size = blocks[-1][2] if blocks else 0
            if size < stat.st_size:
                os.truncate(path, size)
                torn += 1
        if end == first:
            path.unlink()
            continue
        recovered.append(SegmentFile(path, first, end, size, stat.st_mtime))
    return recovered, torn


def open_private(path: Path, flags: int) -> int:
    """Open a file that only its owner may read; return its descriptor."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _blocks(data: bytes, first: int) -> Iterator[tuple[int, int, int, int, float]]:
    """Yield for each complete block: record count, start of its lengths, its end, first number, time."""
    at = 0
    while at + HEADER_BYTES <= len(data):
        mark, count, size, number, time_s = _HEADER.unpack_from(data, at)
        begin = at + HEADER_BYTES
        end = begin + size
        if mark != _MARK or number != first or end > len(data):
            return
        whole = zlib.crc32(data[begin:end], zlib.crc32(data[at : at + _HEADER.size]))
        if whole != _SUM.unpack_from(data, at + _HEADER.size)[0]:
            return
        yield count, begin, end, number, time_s
        first = number + count
        at = end
