"""The dead-letter file: records that a broker rejects are kept next to the spool, so that no record is lost."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from streamkit.core.counters import Counters
from streamkit.core.records import wall_clock
from streamkit.emit.client import Message
from streamkit.emit.segment_file import private
from streamkit.io.outputs import output_error

NAME = "dead-letters.jsonl"
UNKEPT = "records not in the dead-letter file"


class DeadLetters:
    """Appends rejected records as lines of JSON, each with the time, the reason and the topic.

    Args:
        path: the file; created with the first record, readable by its owner only.
        limit_bytes: maximum size of the file; further records are counted and not kept.
        counters: for records that cannot be kept; used on the caller's thread only.
        say: receives messages for the user.
    """

    def __init__(self, path: Path, limit_bytes: int, counters: Counters, say: Callable[[str], None]) -> None:
        self.path, self._limit_bytes, self._counters, self._say = path, limit_bytes, counters, say

    def add(self, messages: Sequence[Message], why: str) -> None:
        """Keep records. A write error is logged and counted, and never raised, so that other records are still sent."""
        lines = [_line(one, why) for one in messages]
        kept = 0
        try:
            handle = private(self.path, os.O_RDWR | os.O_APPEND)
            try:
                for line in lines:
                    if not self._append(handle, line):
                        self._say(
                            f"{self.path} has reached its limit of {self._limit_bytes / 1e6:g} MB; further records "
                            "that are given up are counted, and not kept. Move the file away to make room"
                        )
                        break
                    kept += 1
            finally:
                os.close(handle)
        except OSError as error:
            self._say(f"{output_error(self.path, error)}; records that are given up are counted, and not kept")
        if kept < len(lines):
            self._counters.add(UNKEPT, len(lines) - kept)

    def _append(self, handle: int, line: bytes) -> bool:
        """Append a whole line or nothing; return False if the file has no room for it."""
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # a crash left half a line
            line = b"\n" + line
        if size + len(line) > self._limit_bytes:
            return False
        done = 0
        try:
            while done < len(line):
                done += os.write(handle, line[done:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
            raise
        return True


def _line(message: Message, why: str) -> bytes:
    head = orjson.dumps({"time": wall_clock(time.time()), "why": why, "topic": message.topic, "key": message.key})
    return head[:-1] + b',"record":' + message.body + b"}\n"
