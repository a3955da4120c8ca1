# SPDX-License-Identifier: Apache-2.0
"""The base stage of all emitters: selects records and puts them into a spool, which a sender empties."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from streamkit.core.data import Batch, Frame
from streamkit.core.errors import ConfigError
from streamkit.core.records import batch_records, record
from streamkit.core.stage import Sink
from streamkit.core.units import Bytes, OptionGroup, Seconds
from streamkit.emit.broker import Broker
from streamkit.emit.client import Client
from streamkit.emit.crops import Cropper, Crops
from streamkit.emit.record_selection import VARIABLES, RecordSelection
from streamkit.emit.segment_file import SpoolRecord, tuples
from streamkit.emit.sender import Sender
from streamkit.emit.spool import Spool
from streamkit.emit.topics import Topics

logger = logging.getLogger(__name__)

LEFT = "records left in the spool"
SPOOL_BYTES = 1_000_000_000
_MIN_SPOOL_BYTES = 1_000_000
_LONGEST_TIMEOUT_S = 86_400.0
TIMEOUT = "maximum time for an answer of the broker before the emitter reconnects."
MAX_BACKOFF = "longest wait between two attempts to connect."


class SpoolOptions(OptionGroup, total=False):
    """Where records wait until the broker has acknowledged them.

    Keys:
        path: a separate folder for each emitter; spool/ and the stage's id if not set.
        size: maximum size in bytes; 1GB if not set.
        age: records older than this are dropped and counted; no limit if not set.
        when_full: drop_oldest, block (the pipeline waits) or stop (the run ends).
    """

    path: str
    size: Bytes
    age: Seconds
    when_full: Literal["drop_oldest", "block", "stop"]


@dataclass(eq=False, kw_only=True)
class Emitter(
    Sink,
    target="",
    reads_if={"crops": "pixels"},
    device_copy="the crops that are sent go from device to host, one copy a batch",
):
    """Sends records somewhere, at least once and in order for each source."""

    broker: ClassVar[Broker | None] = None  # what documentation and tests derive from
    more_variables: ClassVar[tuple[str, ...]] = ()  # variables of templates besides those of every record
    template_options: ClassVar[tuple[str, ...]] = ()  # the options that are templates of topic and key; at most two
    unsafe: ClassVar[str] = r"(?!)"  # what a variable's value must not contain in a topic; it becomes underscores

    send: Annotated[
        Literal["frames", "objects", "events"], "the records to send: one per frame, per object, or per event."
    ] = "frames"
    labels: Annotated[list[str] | None, "only objects with these labels, as in [person, car]."] = None
    every: Annotated[
        Seconds | None, "minimum interval between records of a source (frames) or of a track (objects)."
    ] = None
    on_change: Annotated[
        bool,
        "only frames in which the number of objects of a label has changed; with every, also after that time.",
    ] = False
    when: Annotated[
        str | list[str] | None,
        "only events with these names, as STAGE.KIND, such as crossing.crossed, or STAGE; one or a list.",
    ] = None
    crops: Annotated[
        Crops,
        "add an image crop to each object, or event of one: `crop`, a JPEG as base64; true, or options as in "
        "{pad: 0.1, max_size: 256, quality: 80, show_hidden: false}.",
    ] = False
    spool: Annotated[
        SpoolOptions | None,
        "where records wait for the broker, as in {path: spool/mqtt, size: 1GB, age: 1d, when_full: drop_oldest}.",
    ] = None
    required: Annotated[
        bool,
        "end the run with exit code 2 if the broker is not there at the start; if not set, records wait for it.",
    ] = False
    timeout: Annotated[Seconds, TIMEOUT] = 10.0
    max_backoff: Annotated[Seconds, MAX_BACKOFF] = 10.0
    drain_timeout: Annotated[
        Seconds,
        "at its end a run keeps sending until the broker has accepted nothing for this long; the next run sends the "
        "rest.",
    ] = 5.0

    def __post_init__(self) -> None:
        self._topics = Topics(self.templates(), (*VARIABLES[self.send], *self.more_variables), self.clean)
        named = self._topics.needed > 1
        if self.crops and self.send == "frames":
            raise ValueError("crops are of objects; write send: objects or send: events, or remove crops")
        self._cropper = Cropper(self.crops) if self.crops else None
        self._selection = RecordSelection(
            self.send, self.labels, self.every, self.on_change, self.when, named, self._cropper is not None
        )
        self._spool_options = self.spool or {}
        self._size = self._spool_options.get("size", SPOOL_BYTES)
        if self._size < _MIN_SPOOL_BYTES:
            raise ValueError(f"spool.size must be at least 1MB, got {self._size / 1e6:g}MB")
        if self.timeout <= 0 or self.max_backoff <= 0:
            raise ValueError("timeout and max_backoff must be longer than 0s")
        if self.timeout > _LONGEST_TIMEOUT_S:
            days = f"{self.timeout / 86_400:g}d"
            raise ValueError(f"timeout must be at most 1d, got {days}: some clients count milliseconds in 32 bits")
        self._waiting: list[SpoolRecord] = []
        self.check()

    # ---------------------------------------------------------------------------------------- for subclasses

    def check(self) -> None:
        """Reject options that cannot work, before anything is opened. Raises ValueError."""

    def templates(self) -> dict[str, str]:
        """Templates of topic and key, by the names of their options."""
        return {name: getattr(self, name) for name in self.template_options}

    def values(self, frame: Frame) -> tuple[str, ...]:
        """Values of the `more_variables` template variables for the records of a frame."""
        return ()

    @classmethod
    def clean(cls, text: str) -> str:
        """Make a variable's value safe for a topic."""
        return re.sub(cls.unsafe, "_", text)

    def client(self) -> Client:
        """Create the client. Raises MissingPackage."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------- as a sink

    def probe(self) -> None:
        """Check that the client's package is installed."""
        self.client()

    def open(self) -> None:
        """Open the spool, and check for the broker if it is `required`.

        Raises:
            MissingPackage: the client's package is not installed.
            OutputError: the spool cannot be written, or another run uses it.
            ConfigError: the broker is required and cannot be used.
        """
        context = self.context
        client = self.client()
        client.timeout_s = self.timeout
        if self.required:
            _require(client, context.id)
        age = self._spool_options.get("age")
        when_full = self._spool_options.get("when_full", "drop_oldest")
        self.queue = Spool(self.folder, self._size, age, when_full, counters=context.counters)
        if self.queue.waiting:
            logger.info(f"{self.queue.waiting} records of an earlier run are in {self.folder}; they are sent first")
        self.sender = Sender(self.queue, client, self.max_backoff, context.counters)

    @property
    def folder(self) -> Path:
        """The spool's folder."""
        return Path(self._spool_options.get("path", f"spool/{self.context.id or self.name}"))

    @property
    def sends_lines(self) -> bool:
        """Whether each frame is one record, the line of `jsonl`; `write_lines` then writes a batch at once."""
        return self._selection.all_frames

    @staticmethod
    def encode(batch: Batch) -> list[Callable[[], dict[str, Any]]]:
        """See `Sink.encode`: the records of the frames, all created on first access."""
        records = cache(lambda: batch_records(batch))
        return [lambda row=row: records()[row] for row in range(len(batch.frames))]  # type: ignore[misc]

    def write(self, frame: Frame) -> None:
        """Select the records of the frame."""
        self.write_encoded(frame, lambda: record(frame))

    def write_encoded(self, frame: Frame, encoded: Callable[[], dict[str, Any]]) -> None:
        """Select the records of the frame, from the encoded records of its batch."""
        for spool_record, box in self._chosen(frame, encoded):
            if self._cropper is not None:
                self._cropper.add(len(self._waiting), frame, box)
            self._waiting.append(spool_record)

    def write_lines(self, frames: Sequence[Frame], lines: Sequence[bytes]) -> None:
        """Write the frames of a batch from their lines; if this raises, nothing is written. See `sends_lines`."""
        values: list[tuple[str, ...]] = [(frame.source,) for frame in frames]
        if self.more_variables:
            values = [(*variables, *self.values(frame)) for variables, frame in zip(values, frames, strict=True)]
        address = {variables: self._address(variables) for variables in set(values)}
        self._waiting += tuples(
            SpoolRecord, [(*address[variables], text[:-1]) for variables, text in zip(values, lines, strict=True)]
        )

    def _address(self, values: tuple[str, ...]) -> tuple[bytes, bytes]:
        """Topic and key of a record with these values."""
        topic, key = (*self._topics.fill(values), b"", b"")[:2]
        return topic, key

    def enqueue(self, frame: Frame) -> None:
        """Put selected records of a frame directly into the spool, from any thread, without waiting for room.

        Used for events outside of the frames in the graph, such as alarms.

        Raises:
            OutputError: see `flush`.
        """
        self.queue.append([spool_record for spool_record, _ in self._chosen(frame, lambda: record(frame))], wait=False)

    def _chosen(
        self, frame: Frame, encoded: Callable[[], dict[str, Any]]
    ) -> Iterator[tuple[SpoolRecord, Sequence[float] | None]]:
        more = self.values(frame)
        for values, body, box in self._selection.of(frame, encoded):
            yield SpoolRecord(*self._address((*values, *more)), body), box

    def flush(self) -> None:
        """Put the selected records of a batch into the spool, in one write.

        Raises:
            OutputError: the spool is full and `when_full` is `stop`, or the disk cannot be written.
        """
        waiting = self._waiting
        self._waiting = []
        if self._cropper is not None:
            self._cropper.fill(waiting, self.context.counters)
        self.queue.append(waiting)

    def begin_drain(self) -> None:
        """Prepare for the end of the run, from any thread: wait for room in the spool for `drain_timeout` at most."""
        self.queue.block_timeout_s = self.drain_timeout

    def end(self, source: str) -> None:
        """Forget the state of a source that has ended."""
        self._selection.end(source)

    def close(self) -> None:
        """Put the remaining records into the spool and close it; log what the next run has to send."""
        try:
            self.flush()
        finally:
            left = self.queue.waiting
            self.queue.close()
        if left:
            self.context.counters.add(LEFT, left)
            logger.warning(f"{left} records are left in {self.folder}; the next run with this spool sends them")


def _require(client: Client, id_: str) -> None:
    try:
        client.connect()
        client.close()
    except Exception as error:
        raise ConfigError(
            f"{id_}: {client.where} is required and cannot be used: {client.redact(str(error))}; start it, or remove "
            "required: true, so that records wait in the spool until it is available"
        ) from error
