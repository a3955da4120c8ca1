# SPDX-License-Identifier: Apache-2.0
"""Video as a source: a file, a device or any address that FFmpeg can read."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from streamkit.core.counters import Counters
from streamkit.core.data import Device, Frame
from streamkit.core.errors import SourceError
from streamkit.core.retry import Reconnect, Retry
from streamkit.core.stage import Count, Seconds, Source, stage
from streamkit.core.units import Unit
from streamkit.media.frame_sampling import FrameSampler, check_time_range, expected_frames, no_frame_error
from streamkit.media.frames import DecodedFrame
from streamkit.media.link import ConnectionOptions, Interrupt
from streamkit.media.live_clock import ClockMode, LiveClock
from streamkit.media.pacing import Pacer
from streamkit.media.reader import VideoReader
from streamkit.media.source_errors import check_file
from streamkit.media.source_resolver import resolve
from streamkit.media.surfaces import shared_pool
from streamkit.media.uris import check_address, is_http, is_live, is_path, local_path, mask, may_be_live

__all__ = ["Pace", "Rate", "VideoSource", "resolve"]

Rate = Annotated[float, Unit("frames a second", minimum=0.001)]
"""Frames per second."""

StreamNumber = Annotated[int, Unit("the number of a video stream, from 0", minimum=0)]
"""The number of a video stream in its container, from 0."""

Pace = Literal["realtime", "unpaced"] | Rate
"""When recorded frames are delivered: at their own times, as fast as possible, or at a fixed rate."""


@dataclass(eq=False, kw_only=True)
class PacedSource(Source, writes=("pixels",), has_pace=True):
    """Base of the sources: which part is read, which of its frames are taken, and when they are delivered."""

    uri: str
    start: Annotated[Seconds, "skip frames before this time, counted from the first frame."] = 0.0
    end: Annotated[Seconds | None, "skip frames after this time, counted from the first frame."] = None
    fps: Annotated[Rate | None, "reduce to at most this many frames per second, evenly."] = None
    every: Annotated[Count, "take every n-th frame only."] = 1
    pace: Annotated[
        Pace | None,
        "deliver recorded frames as a camera would, at their own times (realtime) or at this many frames per second; a "
        "frame's latency is measured from its due time. unpaced delivers them as fast as the pipeline takes them. "
        "Default: unpaced; realtime under serve.",
    ] = None
    pace_seed: Annotated[int | None, "seed of the pace's random phase; a number makes it the same in every run."] = None

    def __post_init__(self) -> None:
        """Check that `start` and `end` leave frames to take."""
        self.pace = None if self.pace == "unpaced" else self.pace
        self._pacer: Pacer | None = None
        check_time_range(self.start, self.end)

    def paced(self, frames: Generator[Frame], step_s: float) -> Iterator[Frame]:
        """Yield the frames, each when it is due; live frames are not delayed.

        Args:
            frames: the frames in order.
            step_s: the time between two of them in seconds.
        """
        if self.pace is None:
            yield from frames
            return
        pacer = self._pacer = Pacer(self.pace, step_s, self.pace_seed, self.context.id)
        wait = self.context.runtime.spans.call("wait for the pace", pacer.wait, waiting=True)
        with closing(frames):
            for frame in frames:
                if frame.time_s is None:
                    frame.due_s = pacer.due_s(frame.index, frame.pts_s)
                    wait(frame.due_s)
                    if pacer.stopped:
                        return
                yield frame
                pacer.absorb_delay(frame)

    def stop(self) -> None:
        """End a wait for a frame's time; thread-safe."""
        if self._pacer is not None:
            self._pacer.stopped = True

    def expect(self, facts: dict[str, Any], turns: float = 1) -> None:
        """Put the number of frames to expect into the context's facts, from the `facts` of the whole source."""
        self.context.runtime.facts["expected_frames"] = expected_frames(
            facts, self.start, self.end, self.every, self.fps, turns
        )

    def nothing(self, what: str, length_s: float | None, *, keyframes: bool = False) -> SourceError:
        """Return the error for a source that ends without a frame; `what` has the length `length_s`."""
        return no_frame_error(mask(self.uri), what, length_s, self.start, self.end, self.every, keyframes=keyframes)


@stage("source", reads_packets=True)
class VideoSource(PacedSource):
    """Decode a video.

    A frame's `index` is its number in the video, also if `start`, `every` or `fps` leave frames out; on a loop, index
    and time keep increasing.
    """

    uri: Annotated[
        str,
        "a path; an address such as https://host/clip.mp4, an HLS playlist, rtsp://host/stream, rtmp://host/app/key; "
        "a V4L2 device, /dev/video0 or v4l2:///dev/video0?size=1280x720&fps=30&format=mjpeg.",
    ]
    stream: Annotated[
        StreamNumber | None,
        "which of several video streams, from 0; cover images do not count. By default the best one, as the ffmpeg "
        "command ranks them: the default stream, then the largest.",
    ] = None
    loop: Annotated[bool | Count, "repeat forever, or this many times."] = False
    keyframes: Annotated[bool, "take only frames that are decoded without others; numbers and times are kept."] = False
    timeout: Annotated[Seconds, "how long a network peer may be silent, or send nothing that can be decoded."] = 15.0
    transport: Annotated[Literal["auto", "tcp", "udp"], "for RTSP; auto tries TCP, and UDP if it is rejected."] = "auto"
    jitter_buffer: Annotated[Seconds | None, "how long to wait for reordered UDP packets; FFmpeg's by default."] = None
    low_latency: Annotated[bool, "disable buffering, and probe the stream from its first packets; for cameras."] = False
    clock: Annotated[
        ClockMode,
        "where a live frame's times come from. auto: from its timestamps, and from its arrival where they are "
        "implausible (they jump, stand still, or do not run at the rate of real time). sender: from its timestamps, at "
        "their own rate; the frame is dated by the sender's clock if it is sent (RTSP, by RTCP). arrival: from its "
        "arrival alone.",
    ] = "auto"
    poll: Annotated[
        Seconds | None,
        "how often to fetch the still image of an http:// or https:// address, such as http://host/snapshot.jpg; every "
        "second by default.",
    ] = None
    reconnect: Annotated[
        bool | Reconnect | None,
        "reconnect when a live source fails or ends; false never does. max_backoff is the longest wait between two "
        "attempts, 3s if not set; after this many attempts, or this long without a frame (give_up), the source has "
        "failed. On by default for what may be a camera; true or a mapping also reopens files.",
    ] = None
    freeze_timeout: Annotated[
        Seconds,
        "reconnect when the frames of a live source have not changed for this long; a scene that is still static "
        "after that is not reconnected again. 0 disables it.",
    ] = 60.0
    decoders: Annotated[
        Literal["auto"] | Count,
        "split a file at its keyframes and decode this many parts at once; auto uses what the device has for each "
        "source, and fewer for a short file. Frames and their order stay the same.",
    ] = 1

    def __post_init__(self) -> None:
        """Check the part of the video, the kind of address, and that several decoders are possible."""
        self._interrupt = Interrupt()
        self._live_clock: LiveClock | None = None
        super().__post_init__()
        try:
            check_address(self.uri)
        except SourceError as error:
            raise ValueError(str(error)) from None
        if self.poll is not None and not is_http(self.uri):
            raise ValueError(f"poll needs an http:// or https:// address of a still image, got {mask(self.uri)}")
        if self.poll == 0:
            raise ValueError("poll must be longer than 0 s, such as 1s")
        if self.keyframes and self.every > 1:
            raise ValueError(
                f"every must be 1 with keyframes, got {self.every}: keyframes are numbered among all frames; use "
                "fps to reduce them"
            )
        if self.decoders not in (1, "auto"):
            if self.keyframes:
                raise ValueError(f"decoders must be 1 or auto with keyframes, got {self.decoders}")
            if not is_path(self.uri):
                raise ValueError(f"decoders must be 1 or auto: only a file can be split, got {mask(self.uri)}")
            if self.pace is not None:
                raise ValueError(f"decoders must be 1 or auto for a source with a pace, got {self.decoders}")

    def first_frame_size(self) -> tuple[int, int] | None:
        """See `Source.first_frame_size`; opens files only."""
        if not is_path(self.uri):
            return None
        check_file(local_path(self.uri))
        device = Device("cpu")
        reader = VideoReader(self.uri, device, shared_pool(device), Counters(), low_delay=True, stream=self.stream)
        with closing(reader):
            first = next(reader.frames(), None)
        return None if first is None else (first[1].width, first[1].height)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            SourceError: the video cannot be opened or read further, is damaged or ends early (raised after the last
                good frame); or no frame was taken.
        """
        interrupt = self._interrupt
        link = ConnectionOptions(
            self.timeout, self.transport, self.jitter_buffer, self.low_latency, self.poll, interrupt
        )
        try:
            with nullcontext() if is_path(self.uri) else interrupt:  # a file needs no interrupt
                yield from self._frames(link)
        except SourceError:
            if not interrupt.stopped:
                raise

    def _frames(self, link: ConnectionOptions) -> Iterator[Frame]:
        context = self.context
        runtime = context.runtime
        if self._live_clock is None:  # it stays over reconnections: a rate takes seconds to measure
            self._live_clock = LiveClock(self.clock, context.counters, mask(self.uri), real_time=is_live(self.uri))
        reader = VideoReader(
            self.uri,
            context.device,
            shared_pool(context.device),
            context.counters,
            threads=context.threads,
            low_delay=self.pace is not None,
            link=link,
            spans=runtime.spans,
            on_packet=runtime.on_packet,
            decoders=self.decoders if self._may_be_split() else 1,
            executor=runtime.executor,
            ring=runtime.packet_buffer,
            stream=self.stream,
            file=runtime.file,
            clock=self._live_clock,
        )
        with closing(reader):
            context.runtime.facts.update(reader.info.facts())
            if not reader.info.live and not self.keyframes:
                self.expect(context.runtime.facts, turns(self.loop))
            yield from self.paced(self._decoded(reader), reader.step_s)

    def _decoded(self, reader: VideoReader) -> Generator[Frame]:
        context = self.context
        live = reader.info.live
        none = True
        for index, decoded, pts_s in self._sampled(reader):
            if none:  # a container may have them before a rotation
                context.runtime.facts.update(width=decoded.width, height=decoded.height)
                none = False
            frame = Frame(context.id, index, pts_s, decoded.width, decoded.height, decoded.surface)
            frame._state.epoch = self._epoch
            frame.damaged = decoded.damaged
            frame.pixel_aspect = decoded.pixel_aspect
            frame._state.packet_ref = reader.packet_ref(decoded.pts_s)
            if live:
                frame.due_s = reader.arrival_s(decoded.pts_s)
                frame.time_s = self._time_s(reader, decoded, frame.due_s)
            yield frame
        if none and live:
            raise SourceError(f"{mask(self.uri)}: the stream ended before its first frame", cause="lost")
        if none:
            raise self.nothing("the video", reader.info.duration_s, keyframes=self.keyframes)

    def _may_be_split(self) -> bool:
        """Whether several decoders are of use."""
        return is_path(self.uri) and self.pace is None and not self.keyframes

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self.pace is not None or self.loop is True or may_be_live(self.uri)

    @property
    def retry(self) -> Retry | None:
        """See `Source.retry`."""
        reconnect = self.reconnect
        if reconnect is False or (reconnect is None and is_path(self.uri)):
            return None
        options: Reconnect = reconnect if isinstance(reconnect, dict) else {}
        return Retry(
            max_wait_s=options.get("max_backoff", 3.0),
            attempts=options.get("attempts"),
            give_up_s=options.get("give_up"),
            frozen_s=self.freeze_timeout or None,
            first=reconnect is not None or may_be_live(self.uri),
            files=reconnect is not None,
        )

    def stop(self) -> None:
        """End a wait for a frame's time or for the network; thread-safe."""
        self._interrupt.stop()
        super().stop()

    def _time_s(self, reader: VideoReader, decoded: DecodedFrame, arrived_s: float) -> float:
        """Return a live frame's time, in seconds since 1970; `arrived_s` is on the monotonic clock."""
        if self.clock == "sender":
            time_s = reader.sender_time_s(decoded.pts_s)
            if time_s is not None:
                return time_s
            self.context.counters.add("frames timed by arrival")
        return time.time() - (time.monotonic() - arrived_s)

    def _sampled(self, reader: VideoReader) -> Iterator[tuple[int, DecodedFrame, float]]:
        """Yield the frames that are taken, with index and time."""
        sampler = FrameSampler(self.every, self.fps)
        for index, decoded, pts_s in self._repeated(reader):
            if sampler.accepts(index, pts_s):
                yield index, decoded, pts_s

    def _repeated(self, reader: VideoReader) -> Iterator[tuple[int, DecodedFrame, float]]:
        """Yield the frames of every repetition, with index and time that keep increasing."""
        last = turns(self.loop)
        index = -1
        pts_s = 0.0
        turn = 0
        while turn < last:
            shift: tuple[int, float] | None = None if turn else (0, 0.0)
            # On a loop, frames are numbered on from turn to turn, so each turn takes other frames; and a live source is
            # monitored by its decoder's output, so no frame is left out before decoding.
            ahead = last == 1 and not reader.info.live and (self.every > 1 or self.fps)
            sampler = FrameSampler(self.every, self.fps) if ahead else None
            for number, decoded in reader.frames(self.start, self.end, sampler=sampler, keyframes=self.keyframes):
                if shift is None:
                    first = reader.first_frame or (number, decoded.pts_s)
                    shift = index + 1 - first[0], pts_s + reader.step_s - first[1]
                index = number + shift[0]
                pts_s = decoded.pts_s + shift[1]
                self._epoch = turn
                yield index, decoded, pts_s
            if shift is None or index < 0:  # no frame at all: the loop would never end
                return
            if reader.last_frame is not None:
                index = reader.last_frame[0] + shift[0]
                pts_s = reader.last_frame[1] + shift[1]
            turn += 1


def turns(loop: bool | int) -> float:
    """Return how often a file is read for this `loop`; infinite for true."""
    return 1 if loop is False else math.inf if loop is True else loop
