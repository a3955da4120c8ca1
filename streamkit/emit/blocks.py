"""The files of a spool: blocks of records, each written in one go and recognised as whole by its checksum.

A block is a header, the lengths of all its topics, keys and bodies, and then those themselves. Numbers are
little-endian. Records are numbered throughout, and a file is named after the number of its first.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("<4sIIQd")  # mark, records, bytes that follow the checksum, first number, time
_SUM = struct.Struct("<I")  # of header and what follows
_MARK = b"SKB1"
HEADER_BYTES = _HEADER.size + _SUM.size
SUFFIX = ".spool"


class Record(NamedTuple):
    """What is to be sent, before it has a number: UTF-8 throughout."""

    topic: bytes
    key: bytes
    body: bytes


@dataclass(slots=True)
class File:
    """One file: the number of its first record and the one after its last, its bytes, when its last record came."""

    path: Path
    first: int
    end: int
    size: int
    newest_s: float

    @property
    def holds(self) -> int:
        """How many records there are in it."""
        return self.end - self.first


class Kept(NamedTuple):
    """A record in the spool.

    Attributes:
        number: its place in the order of all records of this spool, from 1.
        time_s: when it came in, in seconds since 1970.
    """

    number: int
    time_s: float
    topic: bytes
    key: bytes
    body: bytes


def pack(records: Sequence[Record], first: int, time_s: float) -> bytes:
    """A block of records, of which the first has the number `first`."""
    parts = [part for record in records for part in record]
    body = struct.pack(f"<{len(parts)}I", *map(len, parts)) + b"".join(parts)
    header = _HEADER.pack(_MARK, len(records), len(body), first, time_s)
    return header + _SUM.pack(zlib.crc32(body, zlib.crc32(header))) + body


def unpack(data: bytes, first: int) -> tuple[list[Kept], int]:
    """The records of the whole blocks at the head of `data`, and how many bytes those blocks take.

    Args:
        data: bytes from where a block begins; the last block may be cut off.
        first: the number that the first record must have.
    """
    found: list[Kept] = []
    done = 0
    for count, at, end, number, time_s in _blocks(data, first):
        lengths = struct.unpack_from(f"<{3 * count}I", data, at)
        at += 12 * count
        for i in range(count):
            a = at + lengths[3 * i]
            b = a + lengths[3 * i + 1]
            c = b + lengths[3 * i + 2]
            found.append(Kept(number + i, time_s, data[at:a], data[a:b], data[b:c]))
            at = c
        done = end
    return found, done


def block_bytes(header: bytes) -> int:
    """How many bytes the block takes whose header this is."""
    return int(HEADER_BYTES + _HEADER.unpack_from(header)[2])


def scan(path: Path, first: int) -> tuple[int, int]:
    """How many records the whole blocks of a file hold, and how many bytes those take; the rest was torn by a crash."""
    data = path.read_bytes()
    count = end = 0
    for n, _, end, _, _ in _blocks(data, first):  # noqa: B007  the last end is wanted
        count += n
    return count, end


def name_of(first: int) -> str:
    """The name of the file whose first record has this number; names sort as the numbers do."""
    return f"{first:020d}{SUFFIX}"


def files(folder: Path) -> list[tuple[int, Path]]:
    """The files of a spool, each with the number of its first record, in order."""
    return sorted((int(path.stem), path) for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit())


def found(folder: Path) -> tuple[list[File], int]:
    """What an earlier run has left, and how many torn ends were cut off. Raises OSError."""
    there, made, torn = files(folder), list[File](), 0
    for (first, path), (end, _) in zip(there, [*there[1:], (0, None)], strict=False):
        known = path.stat()
        size = known.st_size
        if not end:  # the last one, which a crash may have torn
            count, size = scan(path, first)
            end = first + count
            if size < known.st_size:
                os.truncate(path, size)
                torn += 1
        if end == first:
            path.unlink()
            continue
        made.append(File(path, first, end, size, known.st_mtime))
    return made, torn


def private(path: Path, flags: int) -> int:
    """Open a file that its owner alone may read; return its descriptor."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _blocks(data: bytes, first: int) -> Iterator[tuple[int, int, int, int, float]]:
    """Of each whole block: records, where its lengths begin, where it ends, its first number, its time."""
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
        first, at = number + count, end
