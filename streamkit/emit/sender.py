# SPDX-License-Identifier: Apache-2.0
"""Sends the records of a spool to a broker, in order; retries indefinitely."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import orjson

from streamkit.core.counters import Counters
from streamkit.core.errors import describe
from streamkit.core.logs import STAGE, LogOnce
from streamkit.core.records import wall_clock
from streamkit.core.text import at_now
from streamkit.core.tracing import record_operation
from streamkit.emit.client import WINDOW, Client, Message, RecordRejected, SendError
from streamkit.emit.segment_file import StoredRecord, open_private, tuples
from streamkit.emit.spool import Spool
from streamkit.io.outputs import output_error

logger = logging.getLogger(__name__)

SENT = "records sent"
REFUSED = "records given up: refused by the broker"
POISON = "records given up: connection closed by the broker"
DROPPED_BY_BROKER = (REFUSED, POISON)
LOST = "connections lost or refused"
NAME = "dead-letters.jsonl"
NOT_DEAD_LETTERED = "records not in the dead-letter file"

_STRIKES = 4
"""After so many consecutive connections that the broker ends over a record sent alone, the record is given up."""
_NARROWER = 8  # if the broker ends the connection, the window is divided by this
_FIRST_WAIT_S = 0.25
_IDLE_S = 0.2


class Sender:
    """Connects, sends, reconnects. Only records that the broker has acknowledged leave the spool.

    Args:
        spool: source of the records.
        client: sends them.
        max_wait_s: longest wait between two attempts to connect, in seconds; waits double up to it.
        counters: counts of sent and rejected records; used on the sender's thread only.

    Attributes:
        client: what sends the records.
        failing_since_s: monotonic time since when every attempt to reach the broker has failed; None if the last one
            succeeded.
        draining: whether the run is ending, so that records must be sent at once.
    """

    def __init__(self, spool: Spool, client: Client, max_wait_s: float, counters: Counters) -> None:
        self._spool = spool
        self.client = client
        self._max_wait_s = max_wait_s
        self._count = counters.add
        self._warn = LogOnce(logger.warning)
        self._wait_s = _FIRST_WAIT_S
        self._failures = 0
        self.failing_since_s: float | None = None
        self.draining = False
        self._held = 0  # the client's `held`, when last read
        self._window = WINDOW  # records sent at once; fewer if one of them may be poison
        self._suspect = ""  # id of a record
        self._strikes = 0  # its consecutive lost connections
        self._dead = DeadLetters(spool.folder / NAME, spool.limit_bytes // 10, counters)

    @property
    def delivered(self) -> int:
        """A number that rises as long as the client accepts records, including records that it holds back."""
        return self._spool.acknowledged + self._held

    @property
    def undelivered(self) -> int:
        """Number of waiting records that the client has not accepted."""
        return self._spool.waiting - self._held

    def run(self, over: Callable[[], bool]) -> None:
        """Send until `over` returns True; this is the main function of the sender's thread."""
        client = self.client
        client.over = over
        client.draining = lambda: self.draining
        while not over():
            try:
                client.connect()
                self.failing_since_s = None
                self._held = 0
                while not over():
                    if taken := self._spool.take(self._window, _IDLE_S):
                        self._gather(taken, over)
                        self._deliver(taken)
                    else:
                        client.idle()
                        if client.held < self._held:
                            self._recovered()
                        self._count_sent(0)
            except Exception as error:  # on any error of a client, records are kept and sent again
                if not over():
                    self._lost(error, over)
            finally:
                self._spool.release()
                self._close()

    def _gather(self, taken: list[StoredRecord], over: Callable[[], bool]) -> None:
        """Wait for further records to send with these; not at the end of a run, nor after a failure."""
        if self._failures or not self.client.gather_s:
            return
        room = self._window - len(taken)
        until_s = time.monotonic() + self.client.gather_s
        while room and (left_s := until_s - time.monotonic()) > 0 and not self.draining and not over():
            if self._spool.wait_for(room, min(_IDLE_S, left_s)):  # it wakes once, not with each batch
                break
        taken += self._spool.take(room)

    def _deliver(self, taken: list[StoredRecord]) -> None:
        messages = _messages(self._spool.ids([record.number for record in taken]), taken)
        started_s = time.monotonic()
        about = {"streamkit.stage": STAGE.get(), "messaging.batch.message_count": len(messages)}
        try:
            self._send(messages)
        except Exception as error:
            record_operation("deliver records", started_s, about, self.client.redact(_reason(error)))
            self._blame(messages, error)
            raise
        record_operation("deliver records", started_s, about)
        self._window = min(2 * self._window, WINDOW)

    def _send(self, messages: list[Message]) -> None:
        try:
            refused = self.client.deliver(messages) or {}
            if self.client.held < self._held + len(messages):  # a record that is held back may still be refused
                self._recovered()
            self._acknowledge(messages, refused)
        except RecordRejected as error:
            self._reset_failures()
            self._count_sent(error.done)
            if error.whole:
                rest = messages[error.done :]
                self._give_up(rest, "a record" if len(rest) == 1 else f"{len(rest)} records", str(error))
            else:
                self._deliver_singly(messages[error.done :])
        except SendError as error:
            self._count_sent(error.done)
            raise

    def _recovered(self) -> None:
        """Log that the broker accepts records after failures."""
        if self._failures:
            logger.info(f"{self.client.where} {at_now()}: accepts records again; {self._spool.waiting} are waiting")
        self._reset_failures()

    def _reset_failures(self) -> None:
        self._failures = 0
        self._wait_s = _FIRST_WAIT_S

    def _blame(self, messages: list[Message], error: Exception) -> None:
        """Find the record over which the broker ends every connection, and move it to the dead letters.

        A broker that is down, hangs, or temporarily rejects everything is no record's fault. Records are sent in
        smaller and smaller windows until one is sent alone; after `_STRIKES` consecutive failures it is the cause.
        """
        poison = error.disconnected if isinstance(error, SendError) else not isinstance(error, (OSError, MemoryError))
        if not poison or self._held:
            return
        if len(messages) > 1:
            self._window = max(1, len(messages) // _NARROWER)
            self._wait_s = _FIRST_WAIT_S
            return
        (message,) = messages
        if isinstance(error, SendError) and error.done:
            return
        if message.id != self._suspect:
            self._suspect = message.id
            self._strikes = 0
            self._wait_s = _FIRST_WAIT_S
        self._strikes += 1
        if self._strikes >= _STRIKES:
            reason = f"it was sent alone {_STRIKES} times, and each time {_reason(error)}"
            self._give_up([message], f"a record for {message.topic}" if message.topic else "a record", reason, POISON)
            self._wait_s = _FIRST_WAIT_S

    def _deliver_singly(self, messages: list[Message]) -> None:
        """Send records one by one: the rejected one is found, and the others pass."""
        for message in messages:
            try:
                self._acknowledge([message], self.client.deliver([message]) or {})
            except RecordRejected as error:
                self._give_up([message], f"a record for {message.topic}", str(error))

    def _give_up(self, messages: list[Message], what: str, why: str, count: str = REFUSED) -> None:
        """Move permanently rejected records to the dead-letter file, so that others can be sent."""
        redact = self.client.redact
        self._dead.add(messages, redact(why))
        self._spool.acknowledge(len(messages))
        self._count(count, len(messages))
        subject = "it is" if len(messages) == 1 else "they are"
        outcome = f"{subject} given up, counted, and kept in {self._dead.path}"
        self._warn(f"{self.client.where} refuses {redact(what)}: {redact(why)}; {outcome}")

    def _acknowledge(self, messages: list[Message], refused: Mapping[int, str]) -> None:
        """Acknowledge all records that were not rejected."""
        before = 0
        for index, reason in sorted(refused.items()):
            self._count_sent(index - before)
            self._give_up([messages[index]], f"a record for {messages[index].topic}", reason)
            before = index + 1
        self._count_sent(len(messages) - before)

    def _count_sent(self, count: int) -> None:
        """Count delivered records; those that the client holds back are not acknowledged."""
        count += self._held - self.client.held
        self._held = self.client.held
        if count:
            self._spool.acknowledge(count)
            self._count(SENT, count)

    def _lost(self, error: Exception, over: Callable[[], bool]) -> None:
        """Log the first failure, and wait: exponential back-off with jitter, so that emitters do not retry in step."""
        self._count(LOST)
        if self.failing_since_s is None:
            self.failing_since_s = time.monotonic()
        self._failures += 1
        if self._failures == 1:
            reason = self.client.redact(_reason(error))
            wait = "records wait in the spool; the emitter retries until it succeeds"
            logger.warning(f"{self.client.where} {at_now()}: {reason}; {wait}")
        until_s = time.monotonic() + self._wait_s * random.uniform(0.5, 1.0)
        self._wait_s = min(2 * self._wait_s, self._max_wait_s)
        while not over() and time.monotonic() < until_s:
            time.sleep(0.05)

    def _close(self) -> None:
        try:
            self.client.close()
        except Exception as error:
            self._warn(f"{self.client.where}: {self.client.redact(describe(error))} when it was closed")


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SendError) else describe(error)


def _messages(ids: Sequence[str], records: Sequence[StoredRecord]) -> list[Message]:
    """Create the messages for records, with the id as the first key of each body."""
    text = {part: part.decode() for part in {part for record in records for part in record[2:4]}}
    return tuples(
        Message,
        [
            (id_, text[topic], text[key], b'{"id":"%b",%b' % (id_.encode(), body[1:]))
            for id_, (_, _, topic, key, body) in zip(ids, records, strict=True)
        ],
    )


class DeadLetters:
    """The dead-letter file: rejected records as lines of JSON, each with the time, the reason and the topic.

    Args:
        path: the file; created with the first record, readable by its owner only.
        limit_bytes: maximum size of the file; further records are counted and not kept.
        counters: for records that cannot be kept; used on the caller's thread only.
    """

    def __init__(self, path: Path, limit_bytes: int, counters: Counters) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._counters = counters
        self._warn = LogOnce(logger.warning)

    def add(self, messages: Sequence[Message], why: str) -> None:
        """Keep records. A write error is logged and counted, and never raised, so that other records are still sent."""
        lines = [_dead_letter(message, why) for message in messages]
        written = 0
        try:
            with os.fdopen(open_private(self.path, os.O_RDWR | os.O_APPEND), "rb+", 0) as file:
                while written < len(lines) and self._append(file.fileno(), lines[written]):
                    written += 1
            if written < len(lines):
                limit = f"{self.path} has reached its limit of {self._limit_bytes / 1e6:g} MB"
                further = "further rejected records are counted, and not kept"
                self._warn(f"{limit}; {further}. Move the file away to make room")
        except OSError as error:
            self._warn(f"{output_error(self.path, error)}; rejected records are counted, and not kept")
        if written < len(lines):
            self._counters.add(NOT_DEAD_LETTERED, len(lines) - written)

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


def _dead_letter(message: Message, why: str) -> bytes:
    head = orjson.dumps({"time": wall_clock(time.time()), "why": why, "topic": message.topic, "key": message.key})
    return head[:-1] + b',"record":' + message.body + b"}\n"
