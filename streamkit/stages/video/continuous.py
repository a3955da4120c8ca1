# SPDX-License-Identifier: Apache-2.0
"""Records sources around the clock, from their packets, into files of about a minute that a crash cannot spoil."""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from streamkit.core.counters import Counters
from streamkit.core.data import Frame
from streamkit.core.errors import OutputError
from streamkit.core.logs import LogOnce
from streamkit.core.records import wall_clock
from streamkit.io.segment_files import complete_name, segment_path
from streamkit.io.segment_retention import SegmentRetention
from streamkit.media.ring import TICKS_PER_S, BufferedPacket, PacketRing
from streamkit.media.segment_reader import CAUSE_TAG, salvage
from streamkit.media.segment_writer import SegmentWriter

logger = logging.getLogger(__name__)

CAMERA_AWAY = "camera away"
CLOCK_CHANGED = "clock changed"
DISK_FULL = "disk full"
NOT_RECORDED = "not recorded"
RESTART = "restart"

_AWAY_S = 2.0
"""A camera that sends nothing for this long, and for several of its frames, was away."""
_AWAY_FRAMES = 4
_CLOCK_JUMP_S = 2.0
"""A difference from the recording's clock that counts as a change of the clock, once it has lasted."""
_CLOCK_LASTS_S = 3.0
_SLEW_S = 0.05
"""By how much the clock is corrected from file to file, so that a slow drift makes no gaps."""
_RETRY_S = 5.0
_TIDY_EVERY_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class _SourceRecording:
    """State of the recording of one source.

    Attributes:
        ring: its packet ring.
        cursor: number of the next packet to write.
        writer: the open file.
        cause: why the next file does not continue the last one; empty if it does.
        start_ms: wall clock of the open file's first frame, in milliseconds since 1970.
        max_end: when the file ends at the next keyframe, in ticks.
        end_ms: wall clock of the end of the last file; 0 if there was none.
        last_dts: decoding time of the last packet, in ticks; None before the first.
        step: ticks between the last two packets.
        shift_s: wall clock at tick 0, in seconds; None before the first frame.
        measured_s: the same by the latest frame.
        least_s: the lowest of them since the file began: the one that was delayed least.
        jumped_s: wall clock since which frames differ from `shift_s`; None if they do not.
        event_until_s: wall clock until which files count as files around an event.
        event: whether the open file is one around an event.
        finished: the last files that are around none, with the wall clock of their ends.
    """

    ring: PacketRing
    cause: str
    cursor: int = 0
    writer: SegmentWriter | None = None
    start_ms: int = 0
    max_end: int = 0
    end_ms: int = 0
    last_dts: int | None = None
    step: int = 0
    shift_s: float | None = None
    measured_s: float = 0.0
    least_s: float = 0.0
    jumped_s: float | None = None
    event_until_s: float = 0.0
    event: bool = False
    finished: deque[tuple[Path, float]] = field(default_factory=deque)


class ContinuousRecorder:
    """Writes the packets of every source to files. All methods are called on one thread.

    Args:
        retention: the folder, and what is kept.
        segment_s: duration of a file in seconds; it ends at the next keyframe.
        before_s: how long before an event files are kept for it.
        after_s: how long after it.
        counters: for files, gaps and losses.
        clock: seconds since 1970, for sources without a wall clock.
    """

    def __init__(
        self,
        retention: SegmentRetention,
        *,
        segment_s: float,
        before_s: float,
        after_s: float,
        counters: Counters,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._retention = retention
        self._segment_ticks = round(segment_s * TICKS_PER_S)
        self._before_s = before_s
        self._after_s = after_s
        self._counters = counters
        self._clock = clock
        self._warn = LogOnce(logger.warning)
        self._sources: dict[str, _SourceRecording] = {}
        self._ends: dict[str, tuple[int, str]] = {}  # of earlier recordings, and the next cause
        self._tidied_s = self._checked_s = time.monotonic()
        self._full = False
        self._retry_s = 0.0
        self.unwritten = 0
        self.why = ""

    def open(self) -> None:
        """Complete the files that a crash left, and tell how much of them is readable."""
        for file in self._retention.open_files():
            self._salvage(file.path, file.source)
        for source, file in self._retention.latest().items():
            self._ends[source] = file.start_ms + file.duration_ms, RESTART
        self._retention.tidy()

    def _salvage(self, part: Path, source: str) -> int:
        """Complete a file that was left unfinished; return how many milliseconds of it are readable."""
        try:
            salvaged = salvage(part)
        except OSError as error:
            self._counters.add("unfinished segments not completed")
            self._warn(f"cannot complete {part}, which a crash left: {error.strerror}")
            return 0
        if salvaged is None:
            return 0
        self._counters.add("unfinished segments completed" if salvaged.path else "unfinished segments lost")
        logger.warning(
            "%s: the recording was interrupted: %.1f s of its last file are readable, %s bytes after them were cut off",
            source,
            salvaged.duration_ms / 1000,
            f"{salvaged.lost_bytes:,}",
        )
        return salvaged.duration_ms

    def write(self, frame: Frame) -> None:
        """Write the packets up to a frame's."""
        ring, number = frame._state.packet_ref
        recording = self._sources.get(frame.source)
        if recording is None or recording.ring is not ring:
            self.end(frame.source)
            end_ms, cause = self._ends.pop(frame.source, (0, ""))
            recording = self._sources[frame.source] = _SourceRecording(ring, cause, end_ms=end_ms)
        packet = ring.get(number)
        if packet is not None:
            self._measure(recording, frame, packet)
        if recording.shift_s is None:
            return
        for buffered in ring.packets(recording.cursor, number):
            self._take(frame.source, recording, buffered)

    def needed(self, source: str) -> int | None:
        """The number of the first packet of a source that is not written yet; None if nothing was written."""
        recording = self._sources.get(source)
        return None if recording is None else recording.cursor

    def event(self, source: str, time_s: float | None) -> None:
        """Keep the files around an event.

        Args:
            source: id of the source.
            time_s: wall clock of the event; None for that of the latest packet.
        """
        recording = self._sources.get(source)
        if recording is None or recording.shift_s is None:
            return
        if time_s is None:
            time_s = recording.shift_s + (recording.last_dts or 0) / TICKS_PER_S
        recording.event_until_s = max(recording.event_until_s, time_s + self._after_s)
        recording.event = recording.event or recording.writer is not None
        for path, end_s in recording.finished:
            if end_s > time_s - self._before_s:
                self._retention.mark(path)
        recording.finished.clear()

    def tidy(self) -> None:
        """Check the free space, and remove and move old files, if that is due."""
        now_s = time.monotonic()
        if now_s - self._checked_s >= _RETRY_S:
            self._checked_s = now_s
            self._check_room()
        if now_s - self._tidied_s >= _TIDY_EVERY_S:
            self._tidied_s = now_s
            self._retention.tidy()
        self._retention.move_due()

    def end(self, source: str) -> None:
        """Complete a source's file with the packets there are."""
        recording = self._sources.pop(source, None)
        if recording is None:
            return
        if recording.shift_s is not None:
            for packet in recording.ring.packets(recording.cursor, 1 << 62):
                self._take(source, recording, packet)
        self._finish(source, recording, NOT_RECORDED)
        if recording.end_ms:
            self._ends[source] = recording.end_ms, NOT_RECORDED

    def close(self) -> None:
        """Complete every file."""
        for source in list(self._sources):
            self.end(source)

    # ---------------------------------------------------------------------------------------------------- the clock

    def _measure(self, recording: _SourceRecording, frame: Frame, packet: BufferedPacket) -> None:
        """Compare the clock of the packets with the wall clock of a frame."""
        at_s = packet.pts / TICKS_PER_S
        if frame.time_s is None:
            if recording.shift_s is None:
                recording.shift_s = recording.measured_s = recording.least_s = self._clock() - at_s
            return
        measured_s = recording.measured_s = frame.time_s - at_s
        if recording.shift_s is None:
            recording.shift_s = recording.least_s = measured_s
        recording.least_s = min(recording.least_s, measured_s)
        if abs(measured_s - recording.shift_s) <= _CLOCK_JUMP_S:
            recording.jumped_s = None
        elif recording.jumped_s is None or frame.time_s < recording.jumped_s:
            recording.jumped_s = frame.time_s

    def _clock_changed(self, recording: _SourceRecording) -> bool:
        """Whether frames have differed from the recording's clock for a while; frames that come late do so briefly."""
        if recording.jumped_s is None or recording.last_dts is None:
            return False
        now_s = recording.measured_s + recording.last_dts / TICKS_PER_S
        return now_s - recording.jumped_s >= _CLOCK_LASTS_S

    def _follow_clock(self, recording: _SourceRecording) -> None:
        """Set the clock of the next file."""
        assert recording.shift_s is not None
        if recording.cause:
            recording.shift_s = recording.measured_s
        else:
            drift_s = recording.least_s - recording.shift_s
            recording.shift_s += min(_SLEW_S, max(-_SLEW_S, drift_s))
        recording.least_s = recording.measured_s
        recording.jumped_s = None

    # ---------------------------------------------------------------------------------------------------- the files

    def _take(self, source: str, recording: _SourceRecording, packet: BufferedPacket) -> None:
        """Write a packet, to the next file if the open one ends before it."""
        missing = packet.number - recording.cursor if recording.last_dts is not None else 0
        recording.cursor = packet.number + 1
        if missing:
            self._counters.add("packets not recorded: out of memory", missing)
        writer = recording.writer
        if writer is not None and (cause := self._ends_before(recording, writer, packet, missing)) is not None:
            self._finish(source, recording, cause)
        if recording.last_dts is not None:
            recording.step = packet.dts - recording.last_dts
        recording.last_dts = packet.dts
        if recording.writer is None and not self._begin(source, recording, packet):
            return
        assert recording.writer is not None
        try:
            recording.writer.write(packet)
        except OutputError as error:
            self._failed(source, recording, error)

    def _ends_before(
        self, recording: _SourceRecording, writer: SegmentWriter, packet: BufferedPacket, missing: int
    ) -> str | None:
        """Why the open file ends before a packet: a cause, empty if the next file continues it; None if it goes on."""
        gap = packet.dts - (packet.dts if recording.last_dts is None else recording.last_dts)
        if missing:
            return NOT_RECORDED
        if gap > max(_AWAY_S * TICKS_PER_S, _AWAY_FRAMES * max(recording.step, packet.duration)):
            return CAMERA_AWAY
        if packet.stream_format != writer.stream_format:
            return ""
        if not packet.keyframe or not writer.may_end_before(packet):
            return None
        if self._clock_changed(recording):
            return CLOCK_CHANGED
        return "" if packet.dts >= recording.max_end else None

    def _begin(self, source: str, recording: _SourceRecording, packet: BufferedPacket) -> bool:
        """Begin a file with a keyframe; return whether it has begun."""
        if not packet.keyframe or self._full or time.monotonic() < self._retry_s:
            return False
        self._follow_clock(recording)
        assert recording.shift_s is not None
        start_ms = round((recording.shift_s + packet.pts / TICKS_PER_S) * 1000)
        if not recording.cause:
            start_ms = max(start_ms, recording.end_ms)
        tags = {
            "title": source,
            "creation_time": wall_clock(start_ms / 1000),
            **({CAUSE_TAG: recording.cause} if recording.cause else {}),
        }
        try:
            recording.writer = SegmentWriter(segment_path(self._retention.root, source, start_ms), packet, tags)
        except OutputError as error:
            self._failed(source, recording, error)
            return False
        self._tell_gap(source, recording, start_ms)
        recording.start_ms = start_ms
        recording.max_end = packet.dts + self._segment_ticks
        recording.event = start_ms / 1000 < recording.event_until_s
        recording.cause = ""
        return True

    def _tell_gap(self, source: str, recording: _SourceRecording, start_ms: int) -> None:
        if not recording.cause or not recording.end_ms:
            return
        gap_s = (start_ms - recording.end_ms) / 1000
        self._counters.add(f"gaps in recordings: {recording.cause}")
        logger.info("%s: recording goes on after %.1f s that are not recorded: %s", source, gap_s, recording.cause)

    def _finish(self, source: str, recording: _SourceRecording, cause: str) -> None:
        """Complete the open file; `cause` says why the next one does not continue it."""
        recording.cause = cause
        writer = recording.writer
        recording.writer = None
        if writer is None:
            return
        name = complete_name(writer.path, writer.duration_ms, event=recording.event)
        try:
            path = writer.finish(name)
        except OutputError as error:
            recording.writer = writer
            self._failed(source, recording, error)
            return
        self._counters.add("segments recorded")
        recording.end_ms = recording.start_ms + writer.duration_ms
        self._remember(recording, path)

    def _remember(self, recording: _SourceRecording, path: Path) -> None:
        """Remember a file that is not around an event, for events that are still to come."""
        if not recording.event:
            recording.finished.append((path, recording.end_ms / 1000))
        oldest_s = recording.end_ms / 1000 - self._before_s
        while recording.finished and recording.finished[0][1] < oldest_s:
            recording.finished.popleft()

    # --------------------------------------------------------------------------------------------------- failures

    def _check_room(self) -> None:
        """Pause while the disk is full."""
        full = not self._retention.room()
        if full and not self._full:
            self._counters.add("recordings paused: disk full")
            self._warn(self._retention.full())
            for source, recording in self._sources.items():
                self._finish(source, recording, DISK_FULL)
        self._full = full

    def _failed(self, source: str, recording: _SourceRecording, error: OutputError) -> None:
        """Keep what is readable of a file that cannot be written, and try again a little later."""
        writer = recording.writer
        recording.writer = None
        number = getattr(error.__cause__, "errno", None)
        recording.cause = DISK_FULL if number in _FULL else NOT_RECORDED
        self._retry_s = time.monotonic() + _RETRY_S
        self.unwritten += 1
        self.why = str(error).rpartition(": ")[2]
        self._counters.add(f"segments interrupted: {recording.cause}")
        self._warn(f"recordings under {self._retention.root} cannot be written: {self.why}")
        if writer is not None:
            part = writer.path.with_name(f".{writer.path.name}.part")
            readable_ms = self._salvage(part, source) if part.exists() else 0
            recording.end_ms = recording.start_ms + readable_ms
