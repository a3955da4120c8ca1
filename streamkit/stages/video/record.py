"""Sink: clips of the source's own video around events, without decoding or encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from streamkit.core.data import Event, Frame
from streamkit.core.errors import OutputError
from streamkit.core.records import wall_clock
from streamkit.core.stage import Bytes, Seconds, stage
from streamkit.io.retention import PLACEHOLDERS
from streamkit.stages.video.event_files import EventFileSink, add_to_event

if TYPE_CHECKING:
    from streamkit.media.mux import Clip
    from streamkit.media.ring import BufferedPacket, PacketRing

__all__ = ["Record"]

_END = 1 << 62
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


@stage("record", wants_packets=True, emits=(MANUAL, RECORDED), on_demand=True)
class Record(EventFileSink):
    """Write clips around events: the video as it came, from the keyframe before, not encoded again.

    Events that occur while a clip is written extend it. Each event's data gets `clip` and, as `clip_s`, the event's
    time within it, for later stages; when a clip is complete, `recorded` is emitted. A clip appears under its name when
    it is complete.
    """

    when: Annotated[
        str | list[str] | None,
        "the events that start clips, as STAGE.KIND, such as crossing.crossed, or STAGE for all of a stage's; one or "
        "a list. If not set, clips are started manually only.",
    ] = None
    before: Annotated[Seconds, "minimum time before an event in its clip; the clip begins at a keyframe."] = 10.0
    after: Annotated[Seconds, "time after an event in its clip."] = 20.0
    path: Annotated[
        str,
        "the file, .mp4 or .mkv, with {source}, {time} (UTC, or the video's own), {stage} and {kind} of the event; if "
        "the name is taken, -2 is appended.",
    ] = "clips/{source}/{time}-{kind}.mp4"
    max_length: Annotated[Seconds, "a longer recording continues in another file."] = 300.0
    buffer: Annotated[Bytes, "memory that a source's buffered packets may take."] = 128_000_000
    orders: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    files: ClassVar[str] = "clips"
    placeholders: ClassVar[tuple[str, ...]] = PLACEHOLDERS

    def __post_init__(self) -> None:
        from streamkit.media.mux import container_format

        super().__post_init__()
        container_format(self.path)
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1s, got {self.max_length:g}s")
        if self.when is not None and not self.when:
            raise ValueError("when must name an event; leave it out to start clips manually only")
        self._tracks: dict[str, _Track] = {}

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
            self._kept.tidy(self._checked_s)
            self._check_room()
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
        kept = self._extend(track, frame, named) if named else None
        self._advance(track, track.newest, frame)
        if kept is not None:
            self._mark(track, frame, named, kept)
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
        self.raise_failed()

    # ------------------------------------------------------------------------------------------------- recordings

    def _named(self, event: Event) -> bool:
        if event.stage == self.context.id and event.kind in self.spec.emits:
            return event.kind == MANUAL
        return event in self._when

    def _extend(self, track: _Track, frame: Frame, named: Sequence[int]) -> BufferedPacket | None:
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
        for place in named:
            add_to_event(frame, place, about)

    def _begin(self, track: _Track, frame: Frame, first: BufferedPacket, now: int) -> bool:
        """Begin a file with a keyframe; `now` is the time of the frame, in ticks."""
        from streamkit.media.mux import Clip
        from streamkit.media.ring import TICKS_PER_S

        event = track.event
        assert event is not None
        if not self.room():
            return False
        ago_s = (now - first.pts) / TICKS_PER_S
        tags = {"title": f"{event.source} {event.kind}"}
        if frame.time_s is not None:
            tags["creation_time"] = wall_clock(frame.time_s - ago_s)
        try:
            path = self._kept.path(event.source, event.stage, event.kind, frame.time_s, frame.pts_s)
            track.clip = Clip(path, first, tags)
        except OutputError as error:
            self.failed(error)
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
            full = kept.dts >= track.most and kept.keyframe  # and the next file can begin with this packet
            if track.clip is not None and (over or full or kept.form != track.clip.form):
                self._finish(track, frame)
            if over:
                track.until = None
                return
            if track.clip is None and not self._continue(track, frame, kept):
                continue
            assert track.clip is not None
            try:
                if not track.clip.write(kept):
                    self.context.counters.add("packets not in clips: before the first keyframe")
            except OutputError as error:
                self._lost(track, error)
                return

    def _continue(self, track: _Track, frame: Frame | None, kept: BufferedPacket) -> bool:
        """Continue the recording in another file."""
        if not kept.keyframe:
            self.context.counters.add("packets not in clips: no preceding keyframe")
            return False
        if frame is None:
            return track.clip is not None
        of_frame = track.ring.get(frame._state.packet_ref.number)
        if self._begin(track, frame, kept, kept.pts if of_frame is None else of_frame.pts):
            return track.clip is not None
        track.until = None
        return False

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
        self._kept.tidy_soon()
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
            track.ring.release(self.context.id, needed)  # packets after the newest frame are not written yet

    # --------------------------------------------------------------------------------------------------- failures

    def _check_room(self) -> None:
        """Complete the open clips if the disk is full."""
        if any(track.clip is not None for track in self._tracks.values()) and not self.room():
            for track in self._tracks.values():
                self._finish(track, None)
                track.until = None

    def _lost(self, track: _Track, error: OutputError) -> None:
        track.clip = track.until = None
        self.context.counters.add("clips lost: write failed")
        self.failed(error)

    def _without(self, why: str, count: int) -> None:
        self.context.counters.add(f"events without a clip: {why}", count)
