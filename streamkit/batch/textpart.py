"""Base of the text formats: one file for each video, which appears when the video has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from streamkit.core.errors import OutputError
from streamkit.core.stage import Sink
from streamkit.io.outputs import PartFile, output_error

_BLOCK = 1 << 16


@dataclass(eq=False)
class TextPart(Sink):
    """Writes the file of one video.

    Options:
        path: the file, such as "out/jsonl/{source}.jsonl".
        names: the name of each file, by its key.
    """

    path: str
    names: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Create the temporary file and write its beginning."""
        self._key = Path(self.path).stem
        self._source = self.names.get(self._key, self._key)
        self._file = PartFile(Path(self.path))
        self._out: BinaryIO | None = None
        self._broken: OutputError | None = None
        self._waiting = bytearray()
        part = self._file.begin()
        try:
            self._out = part.open("wb", buffering=0)  # type: ignore[assignment]  # it writes bytes
        except OSError as error:
            raise self._failed(error) from error
        self.begin()

    def begin(self) -> None:
        """Write the beginning of the file."""

    def finish(self) -> None:
        """Write the end of the file."""

    def put(self, text: bytes) -> None:
        """Append to the file. Raises OutputError."""
        if self._broken is not None:
            raise self._broken
        self._waiting += text
        if len(self._waiting) >= _BLOCK:
            self._flush()

    def end(self, source: str) -> None:
        """Publish the file; the video has ended."""
        self.finish()
        self._flush()
        if self._out is not None:
            self._out.close()
            self._out = None
            self._file.finish()

    def close(self) -> None:
        """Discard an incomplete file."""
        if self._out is not None:
            self._out.close()
            self._out = None
            self._file.discard()

    def _flush(self) -> None:
        if self._broken is not None:
            raise self._broken
        data, done = bytes(self._waiting), 0
        self._waiting.clear()
        assert self._out is not None
        try:
            while done < len(data):
                done += self._out.write(data[done:])
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OutputError:
        self._broken = output_error(self.path, error)
        self.close()
        return self._broken
