# SPDX-License-Identifier: Apache-2.0
"""A text output that always contains whole lines: atomic for files, growing for cameras, or standard output."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.core.units import Bytes, OptionGroup, Seconds
from streamkit.io.outputs import (
    AtomicFile,
    growing,
    in_use_error,
    open_locked,
    output_error,
    tagged_path,
    unused_path,
    writing,
)

logger = logging.getLogger(__name__)

_BLOCK = 1 << 16
_WAIT_S = 0.25


class Rotate(OptionGroup, total=False):
    """When a growing file is closed and a new one begins.

    Keys:
        every: at each full hour for `1h`, each midnight (UTC) for `1d`, and so on.
        size: before a file would grow beyond this.
    """

    every: Seconds
    size: Bytes


class LineFile:
    """A line-oriented output file that contains only whole lines at any time.

    The first line decides: a line with a wall clock comes from a live source, whose file is appended to; otherwise
    the lines are collected in an `AtomicFile` that appears at `close`. Lines are written in blocks, at most a quarter
    of a second late while lines keep coming.

    Args:
        path: the file; `-` is standard output; a pipe or device is written to directly.
        header: first line of each new file.
        if_exists: `overwrite`, `append` or `fail`; None is `overwrite` for files and `append` for live sources.
        rotate: when to begin a new file. A live source's file is renamed to the UTC time of its first line
            (`gate-20260801T120000Z.jsonl`); other files continue in `gate-2.jsonl`, `gate-3.jsonl`, ...
        is_whole: whether the last line of a file, found without a newline, is complete. An incomplete line, as a crash
            may leave it, is removed before appending, and counted.
        counters: for lost and removed lines.
    """

    def __init__(
        self,
        path: str,
        *,
        header: bytes = b"",
        if_exists: str | None = None,
        rotate: Rotate | None = None,
        is_whole: Callable[[bytes], bool] = lambda line: False,
        counters: Counters | None = None,
    ) -> None:
        self.path = Path(path)
        self._header = header
        self._if_exists = if_exists
        self._every = (rotate or {}).get("every")
        self._size_limit = (rotate or {}).get("size")
        self._is_whole = is_whole
        self._counters = counters or Counters()
        self._whole: AtomicFile | None = None
        self._out: BinaryIO | None = None
        self._broken: OutputError | None = None
        self._started = False
        self._waiting = bytearray()
        self._size = self._part = 0
        self._since = self._flush_due = 0.0

    def open(self) -> None:
        """Check that the path can be written, before the first frame.

        Raises:
            OutputError: it cannot be written, or it exists and `if_exists` is `fail`.
        """
        if self._is_stdout:
            self._out = _standard_output()
        elif _is_device(self.path):
            self._out = self._open("wb")
        elif self._if_exists == "append":
            self._append()
        else:
            self._begin_whole(self.path)

    def write(self, line: bytes, time_s: float | None = None) -> None:
        """Add one line, newline included.

        Args:
            line: the line.
            time_s: its wall clock in seconds since 1970; None for a source that is not live.

        Raises:
            OutputError: the disk is full, the reader of a pipe is gone, ... Partially written lines are removed.
        """
        if self._broken is not None:
            raise self._broken
        if not self._started:
            self._start(time_s)
        if self._every or self._size_limit:
            try:
                self._rotate_if_due(len(line), time.time() if time_s is None else time_s)
            except OutputError as error:
                self._counters.add("lines lost")
                self._broken = self._broken or (error if self._out is None else None)
                raise
        self._waiting += line
        if len(self._waiting) >= _BLOCK or time.monotonic() >= self._flush_due:
            self.flush()

    def flush(self, *, closing: bool = False) -> None:
        """Write buffered lines; when `closing`, also the header of a whole file without lines."""
        self._flush_due = time.monotonic() + _WAIT_S
        if self._out is None or not (self._waiting or (closing and self._whole is not None)):
            return
        header = self._header if self._size == 0 else b""
        data = header + bytes(self._waiting)
        self._waiting.clear()
        done = 0
        try:
            while done < len(data):
                done += self._out.write(memoryview(data)[done:])
            self._out.flush()
            self._size += done
        except (OSError, ValueError) as error:  # ValueError: standard output is closed
            raise self._failed(error, data, done, len(header)) from error

    def close(self) -> None:
        """Write the rest; a whole file gets its name."""
        if self._out is None:
            return
        try:
            self.flush(closing=True)
        finally:
            out = self._out
            self._out = None
            if out is not None and not self._is_stdout:
                out.close()
        if self._whole is not None:
            if not self._started and self._if_exists is None and self.path.exists():
                self._whole.discard()
                logger.warning(f"no frame arrived for {self.path}; the file of the previous run is kept")
            else:
                self._whole.finish()

    def release(self) -> None:
        """Close the file without writing the rest, in a forked process."""
        if self._out is not None:
            self._out.close()

    # -------------------------------------------------------------------------------------------------- beginnings

    def _start(self, time_s: float | None) -> None:
        self._started = True
        self._since = time.time() if time_s is None else time_s
        if time_s is not None and self._whole is not None:  # live: give up the part file, grow the real one
            assert self._out is not None
            self._out.close()
            self._whole.discard()
            self._whole = None
            self._append(self._if_exists != "overwrite")

    def _begin_whole(self, path: Path) -> None:
        self._whole = AtomicFile(path, must_be_new=self._if_exists == "fail")
        self._whole.begin()
        self._out = self._open("wb", self._whole.part)
        self._size = 0

    def _append(self, keep: bool = True) -> None:
        """Grow the existing file or a new one, after its last line or from an empty file."""
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if keep and self.path.exists():
                self._since = self.path.stat().st_mtime
        self._grow(keep)

    def _grow(self, keep: bool = True) -> None:
        """Lock the file, and append to it or truncate it."""
        self._out = None
        with contextlib.ExitStack() as opened, writing(self.path):
            try:
                out = opened.enter_context(open(self.path, "ab", 0, opener=open_locked))
            except BlockingIOError:
                raise in_use_error(self.path) from None
            if keep:
                self._mend()
            else:
                os.ftruncate(out.fileno(), 0)
            self._size = os.fstat(out.fileno()).st_size  # type: ignore[assignment]
            self._out = out
            growing.add(self)
            opened.pop_all()

    def _open(self, mode: str, path: Path | None = None) -> BinaryIO:
        with writing(self.path):
            return (path or self.path).open(mode, buffering=0)  # type: ignore[return-value]

    def _mend(self) -> None:
        """Make the file end with a whole line, and check that it has this output's header."""
        with self.path.open("r+b") as file:
            first = file.readline(_BLOCK)
            if self._header and first and first.rstrip(b"\r\n") != self._header.rstrip(b"\r\n"):
                raise OutputError(f"cannot append to {self.path}: its first line is not this output's header")
            end = file.seek(0, os.SEEK_END)
            tail = b""
            start = end
            while start > 0 and b"\n" not in tail:
                step = min(_BLOCK, start)
                start -= step
                file.seek(start)
                tail = file.read(step) + tail
            last = tail[tail.rfind(b"\n") + 1 :]
            if last and self._is_whole(last):
                file.seek(end)
                file.write(b"\n")
            elif last:
                file.truncate(end - len(last))
                self._counters.add("torn lines removed")
                logger.warning(f"{self.path} ended with an incomplete line, which was removed")

    # ---------------------------------------------------------------------------------------------------- rotation

    def _rotate_if_due(self, coming: int, now: float) -> None:
        empty = not self._waiting and self._size <= len(self._header)
        size = (self._size or len(self._header)) + len(self._waiting)
        full = self._size_limit and not empty and size + coming > self._size_limit
        if not full and not (self._every and now // self._every != self._since // self._every):
            return
        began = self._since
        self._since = now
        if empty:
            return
        self.flush()
        out = self._out
        assert out is not None
        if self._whole is not None:
            out.close()
            self._whole.finish()
            self._part = max(self._part, 1) + 1
            self._begin_whole(tagged_path(self.path, str(self._part)))
        else:
            aside = unused_path(self.path, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began)))
            with writing(aside):
                os.rename(self.path, aside)
            with out:  # locked until it has its new name
                self._grow()

    @property
    def _is_stdout(self) -> bool:
        return str(self.path) == "-"

    # ---------------------------------------------------------------------------------------------------- failures

    def _failed(self, error: OSError | ValueError, data: bytes, done: int, header: int) -> OutputError:
        """Remove a partially written line, count the lost lines, and return the error."""
        where = "standard output" if self._is_stdout else self.path
        failure = output_error(where, error)
        growing = self._whole is None and not self._is_stdout and not _is_device(self.path)
        whole_bytes = data.rfind(b"\n", 0, done) + 1 if growing else 0
        self._counters.add("lines lost", data.count(b"\n", max(whole_bytes, header)))
        out = self._out
        if growing and out is not None:  # the disk may have room again later: keep the file open
            self._size += whole_bytes
            os.ftruncate(out.fileno(), self._size)
            return failure
        self._broken = failure
        self._out = None
        if self._is_stdout:
            _forget_stdout()
        elif out is not None:
            out.close()
        if self._whole is not None:
            self._whole.discard()
        return failure


def _is_device(path: Path) -> bool:
    """Whether `path` exists and is neither a file nor a folder."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


class _TextOutput(io.RawIOBase):
    """Standard output of a notebook, or one that a program has replaced, which takes text only."""

    def __init__(self, text: TextIO) -> None:
        self._text = text

    def write(self, data: Any) -> int:
        """Write whole lines of UTF-8."""
        self._text.write(bytes(data).decode())
        return len(data)

    def flush(self) -> None:
        """Show what was written."""
        self._text.flush()


def _standard_output() -> BinaryIO:
    """Standard output for bytes of UTF-8, in whole lines."""
    text: TextIO | None = sys.stdout
    if text is None:
        raise OutputError("there is no standard output; write to a file in place of -")
    buffer: BinaryIO | None = getattr(text, "buffer", None)
    return cast(BinaryIO, _TextOutput(text)) if buffer is None else buffer


def _forget_stdout() -> None:
    """Discard what is still buffered for a reader that is gone; otherwise Python reports an error at exit."""
    # standard output is not a real file: there is nothing to discard
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
