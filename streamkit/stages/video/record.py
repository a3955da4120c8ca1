"""Sink: clips of the source's own video around events, without decoding or encoding."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamkit.core.data import Event, EventFilter, Frame
from streamkit.core.errors import OutputError
from streamkit.core.records import wall_clock
from streamkit.core.stage import Bytes, Seconds, Sink, stage
from streamkit.io.outputs import check_path
from streamkit.io.retention import PLACEHOLDERS, FileRetention, RetentionOptions, removable

if TYPE_CHECKING:
    from streamkit.media.clip import Clip
    from streamkit.media.ring import BufferedPacket, PacketRing

__all__ = ["Record"]

_END = 1 << 62
_LOOK_EVERY_S = 5.0
MANUAL = "manual"
RECORDED = "recorded"


@dataclass(slots=True)
class _Track:
    """State of the recording of one source.

    Attributes:
        ring: its packet ring.
        newest: the highest number of a packet whose frame has been seen.
        until: end of the recording, in ticks; None while nothing is recorded.
        clip: the open file; None also between two files of one recording.
        cursor: number of the next packet to write.
        most: latest end of the file, in ticks.
        first_s: presentation time of the file's first frame.
        event: the event that the recording is named after.
        done: the previous file, which may still contain the frame.
    """

    ring: PacketRing
    newest: int = 0
    until: int | None = None
    clip: Clip | None = None
    cursor: int = 0
    most: int = 0
    first_s: float = 0.0
    event: Event | None = None
    done: Clip | None = None


@stage("record", writes="events", target="", wants_packets=True, emits=(MANUAL, RECORDED), on_demand=True)
class Record(Sink):
    """Write clips around events: the video as it came, from the keyframe before, not encoded again.

    Events that occur while a clip is written extend it. Each event's data gets `clip` and, as `clip_s`, the event's
    time within it, for later stages; when a clip is complete, `recorded` is emitted. A clip appears under its name when
    it is complete.

    Options:
        when: the events that start clips, as STAGE.KIND, such as crossing.crossed, or STAGE for all of a stage's; one
            or a list. If not set, clips are started manually only.
        before: minimum time before an event in its clip; the clip begins at a keyframe.
        after: time after an event in its clip.
        path: the file, .mp4 or .mkv, with {source}, {time} (UTC, or the video's own), {stage} and {kind} of the event;
            if the name is taken, -2 is appended.
        max_length: a longer recording continues in another file.
        retention: what is kept of the clips, such as {age: 7d, size: 50GB}; the oldest go. If not set, all of them.
        min_free: while less than this is free on the disk, the oldest clips are removed; if that is not enough,
            recording stops. If not set, none are removed, and recording stops below 100MB.
        buffer: memory that a source's buffered packets may take.
    """

    when: str | list[str] | None = None
    before: Seconds = 10.0
    after: Seconds = 20.0
    path: str = "clips/{source}/{time}-{kind}.mp4"
    max_length: Seconds = 300.0
    retention: RetentionOptions | None = None
    min_free: Bytes | None = None
    buffer: Bytes = 128_000_000
    orders: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        from streamkit.media.mux import container_format

        check_path(self.path, PLACEHOLDERS)
        container_format(self.path)
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1s, got {self.max_length:g}s")
        if self.when is not None and not self.when:
            raise ValueError("when must name an event; leave it out where clips are made by hand only")
        if (self.retention is not None or self.min_free is not None) and not removable(self.path):
            raise ValueError(
                "retention and min_free need a path that begins with a folder and has {time} in it, so that nothing "
                f"but clips is ever removed, got {self.path!r}"
            )
        self._when = EventFilter(self.when)
        self._tracks: dict[str, _Track] = {}
        self._looked_s = 0.0

    def trigger(self, source: str, **data: Any) -> None:
        """Record from the source's next frame as if an event had occurred there; thread-safe.

        Args:
            source: the source's id.
            data: data of the event `manual`; values that JSON can represent.
        """
        self.orders[source] = data

    def open(self) -> None:
        """Remove incomplete clips that a crash left."""
        counters, say = self.context.counters, self.context.log
        self._unwritten, self._why = 0, ""  # clips, and what kept the last of them
        self._shelf = FileRetention(self.path, self.retention, self.min_free, counters, say)
        self._shelf.sweep()

    def write(self, frame: Frame) -> None:
        """Look for events on the frame, and write the packets up to it."""
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_EVERY_S:
            self._looked_s = now_s
            self._shelf.tidy(now_s)
            self._look_for_room(frame)
        if self.orders and (order := self.orders.pop(frame.source, None)) is not None:
            frame.emit(MANUAL, **order)
        named = [place for place, event in enumerate(frame.events) if self._named(event)]
        if frame._state.packet_ref is None:
            if named:
                self._without("no packets", len(named))
            return
        ring, number = frame._state.packet_ref
        track = self._tracks.get(frame.source)
        if track is None or track.ring is not ring:
            self._end(frame.source, frame)
            track = self._tracks[frame.source] = _Track(ring, number)
        track.newest = max(track.newest, number)
        asked = self._ask(track, frame, named) if named else None
        self._advance(track, track.newest, frame)
        if asked is not None:
            self._mark(track, frame, named, asked)
        self._release(track)

    def end(self, source: str) -> None:
        """Complete the source's clip."""
        self._end(source, None)

    def close(self) -> None:
        """Complete every clip.

        Raises:
            OutputError: some clips could not be written; raised only at the end of the run.
        """
        for source in list(self._tracks):
            self._end(source, None)
        if self._unwritten:
            what = f"{self._unwritten} clip{'s' * (self._unwritten > 1)} under {self._shelf.root}"
            raise OutputError(f"{self.context.id}: {what} could not be written: {self._why}")

    # ------------------------------------------------------------------------------------------------- recordings

    def _named(self, event: Event) -> bool:
        if event.stage == self.context.id and event.kind in self.spec.emits:
            return event.kind == MANUAL
        return event in self._when

    def _ask(self, track: _Track, frame: Frame, named: Sequence[int]) -> BufferedPacket | None:
        """Begin a recording at the frame, or extend the open one; return the frame's packet."""
        from streamkit.media.ring import TICKS_PER_S

        kept = track.ring.get(frame._state.packet_ref.number)
        if kept is None:
            self._without("packets evicted", len(named))
            return None
        if track.until is None:
            first = track.ring.keyframe(kept.number, round(self.before * TICKS_PER_S))
            begun = None if first is None else track.ring.get(first)
            if begun is None:
                self._without("no keyframe yet", len(named))
                return None
            track.event = frame.events[named[0]]
            if not self._begin(track, frame, begun, kept.pts):
                self._without("clip not started", len(named))
                return None
            track.cursor = begun.number
        after = max(1, round(self.after * TICKS_PER_S))  # the event's own frame is in its clip, also with after: 0s
        track.until = max(track.until or 0, kept.pts + after)
        return kept

    def _mark(self, track: _Track, frame: Frame, named: Sequence[int], kept: BufferedPacket) -> None:
        """Add `clip` and `clip_s` to the events."""
        clip = next((one for one in (track.clip, track.done) if one is not None and one.has(kept)), None)
        if clip is None:
            self._without("frame not recorded", len(named))
            return
        about = {"clip": str(clip.path), "clip_s": round(clip.at_s(kept), 3)}
        frame.events = list(frame.events)
        for place in named:  # an event's own data belongs to other branches as well
            frame.events[place] = replace(frame.events[place], data={**frame.events[place].data, **about})

    def _begin(self, track: _Track, frame: Frame, first: BufferedPacket, now: int) -> bool:
        """Begin a file with a keyframe; `now` is the time of the frame, in ticks."""
        from streamkit.media.clip import Clip
        from streamkit.media.ring import TICKS_PER_S

        event = track.event
        assert event is not None
        if not self._shelf.room():
            self.context.log(self._shelf.full())
            return False
        ago_s = (now - first.pts) / TICKS_PER_S
        tags = {"title": f"{event.source} {event.kind}"}
        if frame.time_s is not None:
            tags["creation_time"] = wall_clock(frame.time_s - ago_s)
        try:
            path = self._shelf.path(event.source, event.stage, event.kind, frame.time_s, frame.pts_s)
            track.clip = Clip(path, first, tags)
        except OutputError as error:
            self._tell(error)
            return False
        track.first_s = frame.pts_s - ago_s
        track.most = first.pts + round(self.max_length * TICKS_PER_S)
        return True

    def _advance(self, track: _Track, last: int, frame: Frame | None) -> None:
        """Write the packets up to number `last`; complete the file if it ends there."""
        if track.until is None:
            return
        for kept in track.ring.take(track.cursor, last):
            if kept.number > track.cursor:
                self.context.counters.add("packets missing in clips: out of memory", kept.number - track.cursor)
            track.cursor = kept.number + 1
            over = kept.dts >= track.until and (track.clip is None or track.clip.may_end_before(kept))
            if track.clip is not None and (over or kept.form != track.clip.form or self._full(track, kept)):
                self._finish(track, frame)
            if over:
                track.until = None
                return
            if track.clip is None and not self._go_on(track, frame, kept):
                continue
            assert track.clip is not None
            try:
                if not track.clip.write(kept):
                    self.context.counters.add("packets not in clips: before the first keyframe")
            except OutputError as error:
                self._lost(track, error)
                return

    def _full(self, track: _Track, kept: BufferedPacket) -> bool:
        """Whether the file has its maximum length, and the next can begin with this packet."""
        return kept.dts >= track.most and kept.keyframe

    def _go_on(self, track: _Track, frame: Frame | None, kept: BufferedPacket) -> bool:
        """Continue the recording in another file."""
        if not kept.keyframe:
            self.context.counters.add("packets not in clips: no preceding keyframe")
            return False
        if frame is None or self._begin(track, frame, kept, self._now(track, frame, kept)):
            return track.clip is not None
        track.until = None
        return False

    @staticmethod
    def _now(track: _Track, frame: Frame, kept: BufferedPacket) -> int:
        of_frame = track.ring.get(frame._state.packet_ref.number)
        return kept.pts if of_frame is None else of_frame.pts

    def _finish(self, track: _Track, frame: Frame | None) -> None:
        """Complete and count the file, and emit `recorded` on the frame."""
        clip, track.clip = track.clip, None
        if clip is None:
            return
        try:
            clip.finish()
        except OutputError as error:
            self._lost(track, error)
            return
        track.done = clip
        self.context.counters.add("clips recorded")
        self._shelf.tidy_soon()
        if frame is not None:
            frame.events = list(frame.events)
            frame.emit(
                RECORDED, clip=str(clip.path), start_s=round(track.first_s, 3), duration_s=round(clip.duration_s, 3),
                bytes=clip.bytes,
            )  # fmt: skip

    def _end(self, source: str, frame: Frame | None) -> None:
        """Complete the source's clip with the packets there are."""
        track = self._tracks.pop(source, None)
        if track is None:
            return
        self._advance(track, _END, None)
        self._finish(track, frame)
        track.ring.leave(self.context.id)

    def _release(self, track: _Track) -> None:
        """Release the packets that no later clip can contain."""
        from streamkit.media.ring import TICKS_PER_S

        needed = track.ring.keyframe(track.newest, round(self.before * TICKS_PER_S))
        if needed is not None:
            track.ring.release(self.context.id, needed)  # what is behind the newest picture is not written yet

    # --------------------------------------------------------------------------------------------------- trouble

    def _look_for_room(self, frame: Frame) -> None:
        """Complete the open clips if the disk is full."""
        if any(track.clip is not None for track in self._tracks.values()) and not self._shelf.room():
            self.context.log(self._shelf.full())
            for track in self._tracks.values():
                self._finish(track, None)
                track.until = None

    def _lost(self, track: _Track, error: OutputError) -> None:
        track.clip = track.until = None
        self.context.counters.add("clips lost: write failed")
        self._tell(error)

    def _tell(self, error: OutputError) -> None:
        """Report why, without the clip's name, so that the same reason is logged once."""
        self._unwritten, self._why = self._unwritten + 1, str(error).rpartition(": ")[2]
        self.context.log(f"{self.context.id}: clips under {self._shelf.root} cannot be written: {self._why}")

    def _without(self, why: str, count: int) -> None:
        self.context.counters.add(f"events without a clip: {why}", count)
