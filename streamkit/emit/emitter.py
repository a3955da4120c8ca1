"""The stage under all emitters: chooses records, puts them into the spool, and has a sender that empties it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.data import Batch, Frame
from streamkit.emit.blocks import Record
from streamkit.emit.choice import VARIABLES, Choice
from streamkit.emit.client import Client
from streamkit.emit.crops import Cropper, Crops
from streamkit.emit.sender import Sender
from streamkit.emit.spool import Spool
from streamkit.emit.topics import Topics
from streamkit.errors import ConfigError
from streamkit.records import batch_records, record
from streamkit.stage import Sink
from streamkit.units import Bytes, Seconds

LEFT = "records left in the spool"
SPOOL_BYTES = 1_000_000_000
_LEAST_BYTES = 1_000_000
_LONGEST_TIMEOUT_S = 86_400.0


class Kept(TypedDict, total=False):
    """Where records wait until the broker has acknowledged them.

    Keys:
        path: a folder of its own for each emitter; spool/ and the stage's id if not set.
        size: bytes that they may take; 1GB if not set.
        age: records older than this are dropped and counted; none are if not set.
        when_full: drop_oldest, block (the pipeline waits) or stop (the run ends).
    """

    path: str
    size: Bytes
    age: Seconds
    when_full: Literal["drop_oldest", "block", "stop"]


Kept.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]


@dataclass(eq=False, kw_only=True)
class Emitter(Sink):
    """Sends records somewhere, at least once and in order for each source.

    Options:
        send: a record for each of the frames, of the objects, or of the events.
        labels: objects of these labels only, as in [person, car].
        every: frames of a source, or objects of a track, at most once in so long.
        on_change: frames only where the number of objects of some label has changed; with every also after so long.
        when: events of these names only, as STAGE.KIND, such as crossing.crossed, or STAGE; one or a list.
        crops: with each object, or event of one, its picture: `crop`, a JPEG as base64; true, or more exactly as in
            {pad: 0.1, max_size: 256, quality: 80, clear: false}.
        spool: where records wait for the broker, as in {path: spool/mqtt, size: 1GB, age: 1d, when_full: drop_oldest}.
        required: end the run with exit code 2 if the broker is not there at the start; if not set, records wait for it.
        timeout: how long the broker may take to answer before it is connected to anew.
        max_wait: the longest wait between two tries to connect.
        drain: at its end a run goes on sending until the broker has taken nothing for so long; the next sends the rest.
    """

    target: ClassVar[str] = ""  # one instance has all sources, and one connection
    reads_if: ClassVar[Mapping[str, str]] = {"crops": "pixels"}
    crossing: ClassVar[str] = "the crops that are sent go from device to host, one copy a batch"
    further: ClassVar[tuple[str, ...]] = ()  # names that templates know besides those of every record

    send: Literal["frames", "objects", "events"] = "frames"
    labels: list[str] | None = None
    every: Seconds | None = None
    on_change: bool = False
    when: str | list[str] | None = None
    crops: Crops = False
    spool: Kept | None = None
    required: bool = False
    timeout: Seconds = 10.0
    max_wait: Seconds = 10.0
    drain: Seconds = 5.0

    def __post_init__(self) -> None:
        self._topics = Topics(self.templates(), (*VARIABLES[self.send], *self.further), self.clean)
        named = self._topics.needed > 1
        if self.crops and self.send == "frames":
            raise ValueError("crops are of objects; write send: objects or send: events, or leave them out")
        self._cropper = Cropper(self.crops) if self.crops else None
        boxed = self._cropper is not None
        self._choice = Choice(self.send, self.labels, self.every, self.on_change, self.when, named, boxed)
        self._kept = self.spool or {}
        self._size = self._kept.get("size", SPOOL_BYTES)
        if self._size < _LEAST_BYTES:
            raise ValueError(f"spool.size must be at least 1MB, got {self._size / 1e6:g}MB")
        if self.timeout <= 0 or self.max_wait <= 0:
            raise ValueError("timeout and max_wait must be longer than 0s")
        if self.timeout > _LONGEST_TIMEOUT_S:
            days = f"{self.timeout / 86_400:g}d"
            raise ValueError(f"timeout must be at most 1d, got {days}: some clients count milliseconds in 32 bits")
        self._waiting: list[Record] = []
        self.check()

    # ---------------------------------------------------------------------------------------- what each one has

    def check(self) -> None:
        """Refuse options that cannot work, before anything is opened. Raises ValueError."""

    def templates(self) -> dict[str, str]:
        """The templates of topic and key, by the names of their options; one or two."""
        return {}

    def values(self, frame: Frame) -> tuple[str, ...]:
        """What the variables `further` stand for in templates, for what is sent of a frame."""
        return ()

    @staticmethod
    def clean(text: str) -> str:
        """A variable's value as it may stand in a topic."""
        return text

    def client(self) -> Client:
        """What sends. Raises MissingPackage."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------- as a sink

    def probe(self) -> None:
        """Refuse to begin without the client's package."""
        self.client()

    def open(self) -> None:
        """Open the spool, and look for the broker where it is `required`.

        Raises:
            MissingPackage: the client's package is not installed.
            OutputError: the spool cannot be written, or another run has it.
            ConfigError: the broker is required and not there.
        """
        context, client = self.context, self.client()
        client.timeout_s = self.timeout
        if self.required:
            _require(client, context.id)
        folder = self.folder
        self.queue = Spool(
            folder, self._size, self._kept.get("age"), self._kept.get("when_full", "drop_oldest"),
            counters=context.counters, say=context.say,
        )  # fmt: skip
        if self.queue.waiting:
            context.say(f"{self.queue.waiting} records of an earlier run wait in {folder}; they are sent first")
        self.sender = Sender(self.queue, client, self.max_wait, context.counters, context.say)

    @property
    def folder(self) -> Path:
        """The spool's."""
        return Path(self._kept.get("path", f"spool/{self.context.id or self.name}"))

    @staticmethod
    def encode(batch: Batch) -> list[Callable[[], dict[str, Any]]]:
        """See `Sink.encode`: the frames' records, all of them made when the first is asked for."""
        made: list[dict[str, Any]] = []

        def of(row: int) -> dict[str, Any]:
            if not made:
                made.extend(batch_records(batch))
            return made[row]

        return [lambda row=row: of(row) for row in range(len(batch.frames))]  # type: ignore[misc]

    def write(self, frame: Frame) -> None:
        """Choose what is sent of the frame."""
        self.write_encoded(frame, lambda: record(frame))

    def write_encoded(self, frame: Frame, encoded: Callable[[], dict[str, Any]]) -> None:
        """Choose what is sent of the frame, from what was made with the records of its batch."""
        for made, box in self._chosen(frame, encoded):
            if self._cropper is not None:
                self._cropper.add(len(self._waiting), frame, box)
            self._waiting.append(made)

    def tell(self, frame: Frame) -> None:
        """Put what is chosen of a frame straight into the spool, from any thread, and never wait for room.

        It is for events that belong to no picture that flows, such as alarms, where events are sent.

        Raises:
            OutputError: see `flush`.
        """
        self.queue.append([made for made, _ in self._chosen(frame, lambda: record(frame))], wait=False)

    def _chosen(
        self, frame: Frame, encoded: Callable[[], dict[str, Any]]
    ) -> Iterator[tuple[Record, Sequence[float] | None]]:
        fill, more = self._topics.fill, self.values(frame)
        for values, body, box in self._choice.of(frame, encoded):
            topic, key = (*fill((*values, *more)), b"", b"")[:2]
            yield Record(topic, key, body), box

    def flush(self) -> None:
        """Put what was chosen from a batch into the spool, in one go.

        Raises:
            OutputError: the spool is full, and `when_full` is `stop`; or the disk cannot be written.
        """
        waiting, self._waiting = self._waiting, []
        if self._cropper is not None:
            self._cropper.fill(waiting, self.context.counters)
        self.queue.append(waiting)

    def hurry(self) -> None:
        """The run is to end: wait for room in the spool no longer than `drain` without any. From any thread."""
        self.queue.patience_s = self.drain

    def end(self, source: str) -> None:
        """Forget what was sent of the source last."""
        self._choice.end(source)

    def close(self) -> None:
        """Put what is left into the spool and close it; say what the next run has to send. The sender has ended."""
        try:
            self.flush()
        finally:
            left = self.queue.waiting
            self.queue.close()
        if left:
            self.context.counters.add(LEFT, left)
            self.context.say(f"{left} records are left in {self.folder}; the next run with this spool sends them")


def _require(client: Client, id_: str) -> None:
    try:
        client.connect()
        client.close()
    except Exception as error:  # whatever it is, the broker cannot be used
        raise ConfigError(
            f"{id_}: {client.where} is required and cannot be used: {client.hide(str(error))}; start it, or leave out "
            "required: true, and records wait in the spool until it is there"
        ) from error
