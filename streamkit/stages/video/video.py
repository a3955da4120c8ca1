# SPDX-License-Identifier: Apache-2.0
"""Sink: video files, encoded or copied."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from streamkit.core.data import Color, Frame, Surface
from streamkit.core.errors import OutputError
from streamkit.core.stage import Count, Seconds, Sink, stage
from streamkit.io.outputs import AtomicFile, check_path, names_of, sweep, tagged_path, unused_path
from streamkit.media.encode import TIME_BASE, Encoder, Encoding
from streamkit.media.encoders import BitRate, Quality, check_encoding, choose_encoder, make_encoder
from streamkit.media.mux import LONGEST_GAP, LONGEST_REORDERING, REORDERED, VideoWriter, container_format, copy_packets

logger = logging.getLogger(__name__)

_SEGMENT_S = 600.0
_SPARSE_S = 10.0
"""Where the first two frames are further apart, the encoder makes no B frames."""


@stage("video", reads="pixels", one_source=True)
class Video(Sink):
    """Write the frames, as drawn, as mp4 or mkv.

    Each frame keeps its own time, so a variable frame rate and a late start are preserved. Time begins at 0 in a
    camera's files, and where the first frame's time is negative, which no file can represent. A file appears under its
    name when it is complete. When the frame's size, color or pixel aspect ratio changes, or time jumps by more than
    90 s, a new file begins: NAME-2.mp4. A frame of odd size is one pixel larger in the file, its edge repeated. Failed
    frames are left out and counted.
    """

    path: Annotated[
        str,
        'the file, such as "out/{source}.mp4"; its suffix, .mp4 or .mkv, selects the format. mkv stores times in '
        "milliseconds.",
    ]
    encoder: Annotated[
        Literal["auto", "nvenc", "cpu", "copy", "none"],
        "nvenc is the GPU's; cpu is x264 or x265; auto uses nvenc if frames are on a GPU that has it, else cpu; copy "
        "copies the source's video as it is, with nothing drawn; none writes nothing.",
    ] = "auto"
    codec: Annotated[Literal["h264", "hevc"], "h264 or hevc."] = "h264"
    quality: Annotated[Quality | None, "constant rate factor, 0 (best) to 51; by default the encoder's own."] = None
    bitrate: Annotated[BitRate | None, "bits per second, such as 4M, instead of quality."] = None
    preset: Annotated[str | None, "speed against size, as named by the encoder; veryfast or p4 by default."] = None
    gop: Annotated[Count | None, "frames from keyframe to keyframe."] = None
    segment: Annotated[
        Seconds | None,
        "begin a new file after this time. A camera's files are cut every 10min by default and named after the UTC "
        "time of their first frame; a video's are numbered.",
    ] = None
    if_exists: Annotated[Literal["overwrite", "fail"], "a camera's files never replace existing ones."] = "overwrite"

    def __post_init__(self) -> None:
        check_path(self.path)
        container_format(self.path)
        check_encoding(self.encoder, self.preset, self.quality, self.bitrate)
        if self.segment is not None and self.segment < 1:
            raise ValueError(f"segment must be at least 1s, got {self.segment:g}s")
        self._video: VideoWriter | None = None
        self._file: AtomicFile | None = None
        self._held: Frame | None = None
        self._broken: OutputError | None = None
        self._source = ""
        self._span = (0.0, 0.0)
        self._parts = 0
        self._ticks = 0
        self._zero = 0.0
        self._began = 0.0
        self._limit = 0.0
        self._shift: float | None = None
        self._sparse = False
        self._recent: deque[int] = deque(maxlen=REORDERED)  # ticks of the file's last frames

    # ------------------------------------------------------------------------------------------------------- calls

    def probe(self) -> None:
        """Check that the encoder is available."""
        self._choose()

    def open(self) -> None:
        """Choose the encoder, and check that the file can be written.

        Raises:
            DeviceError: `nvenc` is requested and the GPU or the driver has none.
            MissingPackage: `nvenc` without PyNvVideoCodec.
            OutputError: the path cannot be written.
        """
        self._chosen = self._choose()
        if self._chosen == "none":
            return
        self._sweep_parts()
        self._file = AtomicFile(self.path, must_be_new=self.if_exists == "fail")
        self._file.begin()

    def write(self, frame: Frame) -> None:
        """Encode one frame. The first waits for the second, which determines the frame rate."""
        if self._chosen == "none":
            return
        if self._broken is not None:
            raise self._broken
        if frame.error is not None or frame.surface is None:
            self.context.counters.add("frames not in the video: no pixels")
            return
        try:
            self._write(frame)
        except OutputError as error:
            self._broken = error
            self._video = None
            self._file = None
            self._held = None
            raise

    def close(self) -> None:
        """Complete the file; without a frame, none is made."""
        try:
            if self._held is not None:
                self._encode_held(Fraction(25))
            if self._video is not None:
                self._video.finish()
            elif self._file is not None and self._chosen == "copy" and self._source:
                stream = self.context.runtime.streams.get(self._source)
                copy_packets(self._address(), self._file, *self._span, stream=stream)
            elif self._file is not None:
                self._file.discard()
        finally:
            self._video = self._file = self._held = None

    def _sweep_parts(self) -> None:
        """Remove part files that a killed run left; those that any process is writing stay."""
        path = Path(self.path)
        tags = re.compile(rf"(-[0-9]{{8}}T[0-9]{{6}}Z)?(-[0-9]+)?{re.escape(path.suffix)}\.part")
        names = names_of(path.parent)
        stem = f".{path.stem}"
        for name in sorted(name for name in names if name.startswith(stem) and tags.fullmatch(name, len(stem))):
            try:
                if sweep(path.with_name(name)):
                    self.context.counters.add("unfinished videos removed")
            except OSError as error:
                logger.warning(f"cannot remove {path.with_name(name)}, which an earlier run left: {error.strerror}")

    # ------------------------------------------------------------------------------------------------------ choice

    def _choose(self) -> str:
        if self.encoder == "copy" and not self.context.runtime.addresses:
            raise OutputError("encoder: copy needs the addresses of the sources, which this runner does not provide")
        return choose_encoder(self.encoder, self.codec, self.preset, self.context.device)

    def _address(self) -> str:
        address = self.context.runtime.addresses.get(self._source)
        if address is None or not Path(address).is_file():
            raise OutputError(f"encoder: copy works for files only, and {self._source} is not a file; set encoder: cpu")
        return address

    # ----------------------------------------------------------------------------------------------------- writing

    def _write(self, frame: Frame) -> None:
        if self._chosen == "copy":
            first = self._span[0] if self._source else frame.pts_s
            self._source = frame.source
            self._span = (first, frame.pts_s)
            return
        if self._held is not None:
            step = frame.pts_s - self._held.pts_s
            self._sparse = step > _SPARSE_S
            rate = Fraction(1 / step).limit_denominator(1001) if 1 / 240 <= step <= _SPARSE_S else Fraction(25)
            self._encode_held(rate)
        if self._video is None:
            self._held = frame
            return
        ticks = round((frame.pts_s - self._zero) / TIME_BASE)
        if ticks <= self._ticks:
            self.context.counters.add("frames not in the video: timestamp not increasing")
            return
        assert frame.surface is not None
        format_ = _format_of(frame, frame.surface)
        if format_ != self._format or self._too_far(ticks) or frame.pts_s - self._began >= self._limit:
            if format_[:2] != self._format[:2]:
                logger.info(
                    f"{frame.source} is {format_[0]}x{format_[1]} from {frame.pts_s:.2f} s on; a new file begins"
                )
            self._video.finish()
            self._video = self._file = None
            self._held = frame
            return
        self._ticks = ticks
        self._recent.append(ticks)
        self._video.write(frame.surface, ticks)

    def _too_far(self, ticks: int) -> bool:
        """Whether no container can hold a frame of this time in the same file."""
        return ticks - self._ticks > LONGEST_GAP or (not self._sparse and ticks - self._recent[0] > LONGEST_REORDERING)

    def _encode_held(self, rate: Fraction) -> None:
        """Begin a file with the held frame."""
        frame = self._held
        self._held = None
        assert frame is not None
        assert frame.surface is not None
        live = frame.time_s is not None
        surface = frame.surface
        self._place(frame)
        assert self._file is not None
        if self._shift is None and frame.pts_s < 0:
            logger.info(f"{frame.source} begins at {frame.pts_s:.3f} s: in its video file, this is 0 s")
        self._shift = min(0.0, frame.pts_s) if self._shift is None else self._shift
        self._began = frame.pts_s
        self._zero = frame.pts_s if live else self._shift
        self._limit = self.segment if self.segment is not None else _SEGMENT_S if live else float("inf")
        self._format = _format_of(frame, surface)
        self._ticks = round((frame.pts_s - self._zero) / TIME_BASE)
        stamp = {"creation_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(frame.time_s))} if live else {}
        self._video = VideoWriter(self._file, self._encoder(frame, surface, rate), stamp)
        self._recent = deque([self._ticks], maxlen=REORDERED)
        self._video.write(surface, self._ticks)

    def _place(self, frame: Frame) -> None:
        """Begin the file whose first frame this is: a camera's is named after its time, others are numbered."""
        self._parts += 1
        if frame.time_s is not None:
            if self._file is not None:
                self._file.discard()
            tag = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(frame.time_s))
            self._file = AtomicFile(unused_path(Path(self.path), tag))
            self._file.begin()
        elif self._file is None:
            self._file = AtomicFile(
                tagged_path(Path(self.path), str(self._parts)), must_be_new=self.if_exists == "fail"
            )
            self._file.begin()

    def _encoder(self, frame: Frame, surface: Surface, rate: Fraction) -> Encoder:
        encoding = Encoding(self.codec, self.quality, self.bitrate, self.preset, self.gop, sparse=self._sparse)
        context = self.context
        return make_encoder(
            self._chosen,
            encoding,
            surface,
            rate,
            context.device,
            context.threads,
            context.counters,
            frame.pixel_aspect,
        )


def _format_of(frame: Frame, surface: Surface) -> tuple[int, int, Color, Fraction]:
    """What all frames of a file have in common: width, height, color, pixel aspect ratio."""
    return surface.width, surface.height, surface.color, frame.pixel_aspect
