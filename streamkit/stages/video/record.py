# SPDX-License-Identifier: Apache-2.0
"""Sink: the source's own video, around the clock and as clips around events, without decoding or encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from streamkit.core.data import Event, Frame
from streamkit.core.errors import OutputError
from streamkit.core.records import wall_clock
from streamkit.core.stage import Bytes, Seconds, stage
from streamkit.core.units import OptionGroup
from streamkit.io.retention import PLACEHOLDERS
from streamkit.io.segment_retention import SegmentLimits, SegmentRetention
from streamkit.media.mux import Clip, container_format
from streamkit.media.ring import TICKS_PER_S, BufferedPacket, PacketRing
from streamkit.stages.video.continuous import ContinuousRecorder
from streamkit.stages.video.event_files import EVENT_NAMES, EventFileSink, add_to_event

__all__ = ["Record"]

_END = 1 << 62
MANUAL = "manual"
RECORDED = "recorded"


class ArchiveOptions(OptionGroup):
    """A second folder for files of a recording around the clock.

    Keys:
        path: the folder, which may be on another disk.
        after: the age at which files are moved there.
    """

    path: str
    after: Seconds


@dataclass(slots=True)
class _Recording:
    """State of the recording of one source.

    Attributes:
        ring: its packet ring.
        newest: the highest number of a packet whose frame has been seen.
        end: end of the recording, in ticks; None while nothing is recorded.
        clip: the open file; None also between two files of one recording.
        cursor: number of the next packet to write.
        max_end: latest end of the file, in ticks.
        first_s: presentation time of the file's first frame.
        event: the event that the recording is named after.
        previous: the previous file, which may still contain the frame.
    """

    ring: PacketRing
    newest: int = 0
    end: int | None = None
    clip: Clip | None = None
    cursor: int = 0
    max_end: int = 0
    first_s: float = 0.0
    event: Event | None = None
    previous: Clip | None = None


@stage("record", wants_packets=True, emits=(MANUAL, RECORDED), on_demand=True)
class Record(EventFileSink):
    """Record video without re-encoding: clips around events, or around the clock.

    A recording around the clock consists of files of about a minute, which begin at keyframes and stay readable
    whenever the process dies. The page shows them on a time line. Files around events, those of
    `when` or else all, live for `keep_events`.

    A clip begins at the keyframe before. Events that occur while a clip is written extend it. Each event's data gets
    `clip` and, as `clip_s`, the event's time within it, for later stages; when a clip is complete, `recorded` is
    emitted. A clip appears under its name when it is complete.
    """

    when: Annotated[
        str | list[str] | None,
        f"the events that start clips, {EVENT_NAMES}. If not set, clips are started manually only.",
    ] = None
    before: Annotated[Seconds, "minimum time before an event in its clip; the clip begins at a keyframe."] = 10.0
    after: Annotated[Seconds, "time after an event in its clip."] = 20.0
    path: Annotated[
        str,
        "the file, .mp4 or .mkv, with {source}, {time} (UTC, or the video's own), {stage} and {kind} of the event; if "
        "the name is taken, -2 is appended.",
    ] = "clips/{source}/{time}-{kind}.mp4"
    max_length: Annotated[Seconds, "a longer recording continues in another file."] = 300.0
    hidden: Annotated[
        Literal["refuse", "allow"],
        "while a stage blurs or pixelates, the API does not show clips, which are clear; allow shows them.",
    ] = "refuse"
    buffer: Annotated[Bytes, "memory that a source's buffered packets may take."] = 128_000_000
    continuous: Annotated[bool, "record around the clock, into files of about a minute under `folder`."] = False
    folder: Annotated[str, "the folder of the recording around the clock, with a folder for each source in it."] = (
        "recordings"
    )
    segment: Annotated[Seconds, "duration of its files, which end at the next keyframe."] = 60.0
    keep: Annotated[Seconds | None, "how long its files are kept. If not set, until they exceed `size`."] = None
    keep_events: Annotated[Seconds | None, "how long its files around events are kept, if longer than `keep`."] = None
    archive: Annotated[
        ArchiveOptions | None, "a second folder, to which its files are moved, such as {path: /mnt/nas, after: 2d}."
    ] = None
    size: Annotated[
        Bytes | None, "size of its files in both folders; the oldest are removed, those around events last."
    ] = None
    orders: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    files: ClassVar[str] = "clips"
    placeholders: ClassVar[tuple[str, ...]] = PLACEHOLDERS

    def __post_init__(self) -> None:

        super().__post_init__()
        container_format(self.path)
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1s, got {self.max_length:g}s")
        if self.when is not None and not self.when:
            raise ValueError("when must name an event; leave it out to start clips manually only")
        self._check_continuous()
        self._recordings: dict[str, _Recording] = {}
        self._recorder: ContinuousRecorder | None = None

    def _check_continuous(self) -> None:
        if not self.continuous:
            for name in ("keep", "keep_events", "archive", "size"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} limits a recording around the clock: add continuous: true")
            return
        if not self.folder.strip("./"):
            raise ValueError(f"folder must name a folder of its own, got {self.folder!r}")
        if not 1 <= self.segment <= 600:
            raise ValueError(f"segment must be 1s to 600s, got {self.segment:g}s")
        if self.archive is None:
            return
        folder = Path(self.folder).absolute()
        archive = Path(self.archive["path"]).absolute()
        if archive.is_relative_to(folder) or folder.is_relative_to(archive):
            raise ValueError(f"archive.path must be outside of folder and not around it, got {self.archive['path']!r}")

    def open(self) -> None:
        """Remove incomplete clips that a crash left, and complete files of the recording around the clock."""
        super().open()
        if self.continuous:
            self._recorder = ContinuousRecorder(
                SegmentRetention(Path(self.folder), self._limits(), self.context.counters),
                segment_s=self.segment,
                before_s=self.before,
                after_s=self.after,
                counters=self.context.counters,
            )
            self._recorder.open()

    def _limits(self) -> SegmentLimits:
        archive = self.archive
        return SegmentLimits(
            self.keep,
            self.keep_events,
            self.size,
            self.min_free,
            None if archive is None else Path(archive["path"]),
            0.0 if archive is None else archive["after"],
        )

    def trigger(self, source: str, **data: Any) -> None:
        """Record from the source's next frame as if an event had occurred there; thread-safe.

        Args:
            source: the source's id.
            data: data of the event `manual`; values that JSON can represent.
        """
        self.orders[source] = data

    def write(self, frame: Frame) -> None:
        """Check the frame for events, and write the packets up to it."""
        if self.check_is_due():
            self._retention.tidy(self._checked_s)
            self._check_room()
        if self.orders and (order := self.orders.pop(frame.source, None)) is not None:
            frame.emit(MANUAL, **order)
        named = [place for place, event in enumerate(frame.events) if self._named(event)]
        if self._recorder is not None:
            self._record_on(self._recorder, frame)
        if frame._state.packet_ref is None:
            if named:
                self._count_without("no packets", len(named))
            return
        ring, number = frame._state.packet_ref
        recording = self._recordings.get(frame.source)
        if recording is None or recording.ring is not ring:
            self._end(frame.source, frame)
            recording = self._recordings[frame.source] = _Recording(ring, number)
        recording.newest = max(recording.newest, number)
        packet = self._start_or_extend(recording, frame, named) if named else None
        self._advance(recording, recording.newest, frame)
        if packet is not None:
            self._mark(recording, frame, named, packet)
        self._release(frame.source, recording)

    def _record_on(self, recorder: ContinuousRecorder, frame: Frame) -> None:
        """Continue the recording around the clock up to a frame."""
        if frame._state.packet_ref is not None:
            recorder.write(frame)
            if any(self._keeps(event) for event in frame.events):
                recorder.event(frame.source, frame.time_s)
        recorder.tidy()

    def _keeps(self, event: Event) -> bool:
        """Whether the files around an event are kept longer."""
        return self._named(event) or (self.when is None and event.stage != self.context.id)

    def end(self, source: str) -> None:
        """Complete the source's files."""
        if self._recorder is not None:
            self._recorder.end(source)
        self._end(source, None)

    def close(self) -> None:
        """Complete every file.

        Raises:
            OutputError: some clips could not be written; raised only at the end of the run.
        """
        if self._recorder is not None:
            self._recorder.close()
        for source in list(self._recordings):
            self._end(source, None)
        self.raise_failed()

    # ------------------------------------------------------------------------------------------------- recordings

    def _named(self, event: Event) -> bool:
        if event.stage == self.context.id and event.kind in self.spec.emits:
            return event.kind == MANUAL
        return event in self._when

    def _start_or_extend(self, recording: _Recording, frame: Frame, named: Sequence[int]) -> BufferedPacket | None:
        """Begin a recording at the frame, or extend the open one; return the frame's packet."""
        packet = recording.ring.get(frame._state.packet_ref.number)
        if packet is None:
            self._count_without("packets evicted", len(named))
            return None
        if recording.end is None:
            first = recording.ring.keyframe_before(packet.number, round(self.before * TICKS_PER_S))
            keyframe = None if first is None else recording.ring.get(first)
            if keyframe is None:
                self._count_without("no keyframe yet", len(named))
                return None
            recording.event = frame.events[named[0]]
            if not self._begin(recording, frame, keyframe, packet.pts):
                self._count_without("clip not started", len(named))
                return None
            recording.cursor = keyframe.number
        after = max(1, round(self.after * TICKS_PER_S))  # the event's own frame is in its clip, also with after: 0s
        recording.end = max(recording.end or 0, packet.pts + after)
        return packet

    def _mark(self, recording: _Recording, frame: Frame, named: Sequence[int], packet: BufferedPacket) -> None:
        """Add `clip` and `clip_s` to the events."""
        clip = next(
            (
                candidate
                for candidate in (recording.clip, recording.previous)
                if candidate is not None and candidate.contains(packet)
            ),
            None,
        )
        if clip is None:
            self._count_without("frame not recorded", len(named))
            return
        about = {"clip": str(clip.path), "clip_s": round(clip.offset_s(packet), 3)}
        for place in named:
            add_to_event(frame, place, about)

    def _begin(self, recording: _Recording, frame: Frame, first: BufferedPacket, now: int) -> bool:
        """Begin a file with a keyframe; `now` is the time of the frame, in ticks."""
        event = recording.event
        assert event is not None
        if not self.has_room():
            return False
        ago_s = (now - first.pts) / TICKS_PER_S
        tags = {"title": f"{event.source} {event.kind}"}
        if frame.time_s is not None:
            tags["creation_time"] = wall_clock(frame.time_s - ago_s)
        try:
            path = self._retention.path(event.source, event.stage, event.kind, frame.time_s, frame.pts_s)
            recording.clip = Clip(path, first, tags)
        except OutputError as error:
            self.failed(error)
            return False
        recording.first_s = frame.pts_s - ago_s
        recording.max_end = first.pts + round(self.max_length * TICKS_PER_S)
        return True

    def _advance(self, recording: _Recording, last: int, frame: Frame | None) -> None:
        """Write the packets up to number `last`; complete the file if it ends there."""
        if recording.end is None:
            return
        for packet in recording.ring.packets(recording.cursor, last):
            if packet.number > recording.cursor:
                self.context.counters.add("packets missing in clips: out of memory", packet.number - recording.cursor)
            recording.cursor = packet.number + 1
            over = packet.dts >= recording.end and (recording.clip is None or recording.clip.may_end_before(packet))
            full = packet.dts >= recording.max_end and packet.keyframe  # and the next file can begin with this packet
            if recording.clip is not None and (over or full or packet.stream_format != recording.clip.stream_format):
                self._finish(recording, frame)
            if over:
                recording.end = None
                return
            if recording.clip is None and not self._continue(recording, frame, packet):
                continue
            assert recording.clip is not None
            try:
                if not recording.clip.write(packet):
                    self.context.counters.add("packets not in clips: before the first keyframe")
            except OutputError as error:
                self._abandon(recording, error)
                return

    def _continue(self, recording: _Recording, frame: Frame | None, packet: BufferedPacket) -> bool:
        """Continue the recording in another file."""
        if not packet.keyframe:
            self.context.counters.add("packets not in clips: no preceding keyframe")
            return False
        if frame is None:
            return recording.clip is not None
        of_frame = recording.ring.get(frame._state.packet_ref.number)
        if self._begin(recording, frame, packet, packet.pts if of_frame is None else of_frame.pts):
            return recording.clip is not None
        recording.end = None
        return False

    def _finish(self, recording: _Recording, frame: Frame | None) -> None:
        """Complete and count the file, and emit `recorded` on the frame."""
        clip = recording.clip
        recording.clip = None
        if clip is None:
            return
        try:
            clip.finish()
        except OutputError as error:
            self._abandon(recording, error)
            return
        recording.previous = clip
        self.context.counters.add("clips recorded")
        self._retention.tidy_soon()
        if frame is not None:
            frame.events = list(frame.events)
            frame.emit(
                RECORDED,
                clip=str(clip.path),
                start_s=round(recording.first_s, 3),
                duration_s=round(clip.duration_s, 3),
                bytes=clip.bytes,
            )

    def _end(self, source: str, frame: Frame | None) -> None:
        """Complete the source's clip with the packets there are."""
        recording = self._recordings.pop(source, None)
        if recording is None:
            return
        self._advance(recording, _END, None)
        self._finish(recording, frame)
        recording.ring.remove_reader(self.context.id)

    def _release(self, source: str, recording: _Recording) -> None:
        """Release the packets that no later clip can contain."""
        needed = recording.ring.keyframe_before(recording.newest, round(self.before * TICKS_PER_S))
        if (
            needed is not None
            and self._recorder is not None
            and (unwritten := self._recorder.needed(source)) is not None
        ):
            needed = min(needed, unwritten)
        if needed is not None:
            recording.ring.release(self.context.id, needed)  # packets after the newest frame are not written yet

    # --------------------------------------------------------------------------------------------------- failures

    def _check_room(self) -> None:
        """Complete the open clips if the disk is full."""
        if any(recording.clip is not None for recording in self._recordings.values()) and not self.has_room():
            for recording in self._recordings.values():
                self._finish(recording, None)
                recording.end = None

    def _abandon(self, recording: _Recording, error: OutputError) -> None:
        recording.clip = recording.end = None
        self.context.counters.add("clips lost: write failed")
        self.failed(error)

    def _count_without(self, why: str, count: int) -> None:
        self.context.counters.add(f"events without a clip: {why}", count)
