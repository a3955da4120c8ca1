# SPDX-License-Identifier: Apache-2.0
"""Decoding on the GPU's decoder engines (NVDEC), with packets from FFmpeg.

NVDEC has three pitfalls, which this module handles. Its output buffers are overwritten by the next call, so each frame
is copied on the device to a pooled surface; decoder and copy use one CUDA stream, which orders them without waiting. It
keeps the old size when the stream changes it, so keyframes are inspected (see `sequence_header`). And it does not know
FFmpeg's discard flag, so the properties of a packet are looked up by its time when the frame is returned. Only the time
identifies a packet: NVDEC assigns the packets' values to frames in rising order, and so mixes up any other value.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import SQUARE, Color, Device, Surface
from streamkit.core.errors import SourceError
from streamkit.media import nv_report, nv_sessions
from streamkit.media.av_decoder import CENTERD, CONCEALED, UNDECODABLE, AvDecoder
from streamkit.media.bitstream import annexb_headers, rewriter, sequence_header
from streamkit.media.demux import chroma_of, clone_packet
from streamkit.media.frames import DecodedFrame, Orientation, StreamAspect, color_of, orientation_of
from streamkit.media.nv_caps import nv_module, unsupported
from streamkit.media.received_packet import ReceivedPacket
from streamkit.media.timing import Timing
from streamkit.ops import planes
from streamkit.ops.cuda import driver

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer
    from streamkit.media.surfaces import SurfacePool

_FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb", "mpeg4": "mpeg4_unpack_bframes,dump_extra"}
_MAX_PENDING = 512  # packets whose frame may still come
_MAX_FAILURES = 3


class NvUnsupported(Exception):
    """NVDEC cannot decode this stream; the text gives the reason."""


class _Format(NamedTuple):
    width: int
    height: int
    chroma: int
    bits: int
    color: Color
    orientation: Orientation
    pixel_aspect: Fraction
    interlaced: bool


class NvDecoder:
    """Decodes packets to frames in device memory.

    Args:
        demuxer: source of the packets.
        device: a CUDA device.
        pool: its surface pool.
        counters: counts `packets not decodable` and `decode errors concealed`.
        fallback: creates the decoder to continue with if the stream changes to an unsupported format; receives the
            reason.
        low_delay: return frames without waiting for later packets.

    Raises:
        NvUnsupported: NVDEC cannot decode this stream.
    """

    takes_received = True

    def __init__(
        self,
        demuxer: Demuxer,
        device: Device,
        pool: SurfacePool,
        counters: Counters,
        fallback: Callable[[Demuxer, str], AvDecoder],
        *,
        low_delay: bool = False,
    ) -> None:
        module = nv_module()
        if isinstance(module, str):
            raise NvUnsupported(module)
        info = demuxer.info
        reason = unsupported(device.index, info.codec, info.chroma, info.bit_depth, info.width, info.height)
        if reason:
            raise NvUnsupported(reason)
        nv_report.install()
        self._nvc = module
        self._cupy = device.xp
        self._device = device
        self._pool = pool
        self._counters = counters
        self._fallback = fallback
        self._low_delay = low_delay
        self._lease: nv_sessions.NvdecSession | None = None
        self._session: Any = None  # its decoder
        self._stream: Any = None
        self._format: _Format | None = None
        self._scratch: Any = None
        self._copy = driver.Copy()
        self._packet = module.PacketData()
        if low_delay:
            self._packet.decode_flag = module.VideoPacketFlag.ENDOFPICTURE
        self._thread = 0
        self._number = 0
        self._sent: dict[int, tuple[int | None, bool, bool]] = {}  # time, whether left out, whether damaged
        self._concealed = False  # whether NVDEC has reported damage to a frame that has not come out yet
        self._failures = 0
        self._parameters: bytes | None = None
        self.restart(demuxer)

    def restart(self, demuxer: Demuxer) -> None:
        """Continue with another demuxer, or after a seek. The session is kept: a new one costs 60 ms."""
        import av

        if self._session is not None and self._sent:
            self._flush()  # frames from before the seek
        self._demuxer = demuxer
        self._codec = demuxer.info.codec
        name = _FILTERS.get(self._codec)
        self._filter = av.BitStreamFilterContext(name, demuxer.stream) if name else None
        extradata = demuxer.stream.codec_context.extradata
        self._rewriter = rewriter(self._codec, extradata)
        self._headers = annexb_headers(self._codec, bytes(extradata or b""))
        self._timing = Timing(demuxer)
        self._aspect = StreamAspect(demuxer.stream)
        self._sent.clear()
        self._waiting = True  # for a keyframe
        self._software: AvDecoder | None = None

    def decode(self, packet: Any | None, *, hidden: bool = False, unwanted: bool = False) -> list[DecodedFrame]:
        """Decode an `av.Packet` or a `ReceivedPacket` and return the frames that are complete; None flushes the end.

        The frame of a hidden or unwanted packet is dropped.
        """
        if isinstance(packet, ReceivedPacket):
            simple = not (packet.is_keyframe or self._waiting or self._software or self._rewriter is None)
            if simple and packet.rewrite():
                self._timing.sent(packet)
                discard = hidden or unwanted or packet.is_discard
                return self._push(packet.address, packet.size, packet.pts, discard, packet.is_corrupt)
            hidden = hidden or packet.is_discard
            packet = packet.av_packet()
        if self._software is not None:
            return self._software.decode(packet, hidden=hidden, unwanted=unwanted)
        hidden = hidden or unwanted
        frames: list[DecodedFrame] = []
        if packet is not None and (packet.is_keyframe or not self._waiting):
            self._timing.sent(packet)
        if packet is None:
            for part in self._filter.filter(None) if self._filter and not self._waiting else []:
                frames += self._push(part.buffer_ptr, part.size, part.pts, part.is_discard, part.is_corrupt)
            return frames + self._flush()
        if self._rewriter is not None and not (packet.is_keyframe or self._waiting) and self._rewriter.rewrite(packet):
            discard = hidden or packet.is_discard
            return self._push(self._rewriter.address, packet.size, packet.pts, discard, packet.is_corrupt)
        # a filter empties the packet
        keyframe = clone_packet(packet) if packet.is_keyframe else None
        for part in self._filter.filter(packet) if self._filter else [packet]:
            discard = hidden or part.is_discard
            if keyframe is not None:
                named = sequence_header(self._codec, bytes(part))
                if self._waiting and not named and self._headers:  # a session may have other parameters, or none
                    part = clone_packet(part, self._headers)
                    named = sequence_header(self._codec, self._headers)
                parameters = named or self._parameters or b""
                if parameters != self._parameters:
                    self._parameters = parameters
                    frames += self._enter_format(keyframe)
                    if self._software is not None:
                        return frames + self._software.decode(keyframe, hidden=hidden)
                self._waiting = False
            if self._waiting:
                self._counters.add("packets before a keyframe")
                continue
            frames += self._push(part.buffer_ptr, part.size, part.pts, discard, part.is_corrupt)
        return frames

    def close(self) -> None:
        """Keep the session for another video; surfaces that were returned stay valid."""
        self._release_session()
        self._scratch = self._filter = None
        if self._software is not None:
            self._software.close()

    # ------------------------------------------------------------------------------------------------- the session

    def _push(self, address: int, size: int, pts: int | None, discard: bool, corrupt: bool) -> list[DecodedFrame]:
        self._number += 1
        key = self._number if pts is None else pts
        self._sent[key] = pts, discard, corrupt
        if len(self._sent) > 2 * _MAX_PENDING:  # frames that never came
            for old in list(self._sent)[:_MAX_PENDING]:
                del self._sent[old]
        data = self._packet
        data.bsl_data = address
        data.bsl = size
        data.pts = key
        return self._run(data)

    def _flush(self) -> list[DecodedFrame]:
        if self._session is None:
            return []
        frames = self._run(self._end())
        self._sent.clear()
        return frames

    def _end(self) -> Any:
        """The empty packet, which makes a session return its last frames."""
        end = self._nvc.PacketData()
        end.bsl_data = 0
        end.bsl = 0
        end.pts = 0
        return end

    def _run(self, packet: Any) -> list[DecodedFrame]:
        try:
            frames = self._begin_session(packet) if self._session is None else self._session.Decode(packet)
            if nv_report.damaged and (damaged := nv_report.take()):
                self._counters.add(CONCEALED, damaged)
                self._concealed = True
        except SourceError:
            raise
        except Exception as error:  # PyNvVideoCodec's types differ by version, all mean a failed decoder
            self._counters.add(UNDECODABLE)
            self._session = None
            self._waiting = True
            self._parameters = None
            self._timing.lost()
            self._failures += 1
            if self._failures >= _MAX_FAILURES:
                text = f"NVDEC fails repeatedly: {' '.join(str(error).split())[:300]}"
                raise SourceError(text, cause="codec") from error
            return []
        if not frames:
            return []
        self._failures = 0
        if get_ident() != self._thread:
            self._cupy.cuda.Device(self._device.index).use()
            self._thread = get_ident()
        # NVDEC does not report which frame is damaged: most packets yield one frame, the end of a stream the last few
        concealed = self._concealed
        self._concealed = False
        converted = [self._converted(frame, concealed) for frame in frames]
        return [frame for frame in converted if frame is not None]

    def _begin_session(self, packet: Any) -> list[Any]:
        """Decode the first packet of a session, in which the driver creates the decoder of a new one.

        Raises:
            SourceError: the GPU has no further session.
        """
        with nv_sessions.creation_lock:
            while True:
                self._session = self._new_session()
                assert self._lease is not None
                try:
                    frames = list(self._session.Decode(packet))
                    break
                except Exception as error:  # PyNvVideoCodec's types differ by version
                    if not nv_sessions.is_exhausted(error):
                        raise
                    self._give_back(self._lease, error)
        nv_sessions.remember_first_packet(self._lease, packet)
        return frames

    def _give_back(self, lease: nv_sessions.NvdecSession, error: Exception) -> None:
        """Close a session that the driver refuses, and an idle one in its place. Raises SourceError if none is idle."""
        self._lease = self._session = None
        nv_sessions.discard(lease)
        if not nv_sessions.close_idle(self._device.index):
            refusal = nv_sessions.refused(lease.key)
            if isinstance(refusal, nv_sessions.NoSession):
                self._counters.add(nv_sessions.REFUSED)
            raise refusal from error

    def _new_session(self) -> Any:
        """Get the decoder of an idle or a new session."""
        if self._lease is not None:  # it has failed
            nv_sessions.discard(self._lease)
            self._lease = None
        form = self._format
        assert form is not None  # a session begins with a keyframe, which sets it
        key = nv_sessions.SessionKey(
            self._device.index, self._codec, *form[:4], low_delay=self._low_delay, parameters=self._parameters or b""
        )
        self._lease, reused = nv_sessions.acquire(key, self._nvc)
        self._counters.add("decoders reused" if reused else "decoders made")
        self._stream = self._lease.stream
        return self._lease.decoder

    def _release_session(self) -> None:
        """Flush the session and keep it for another video, unless it failed."""
        session = self._lease
        failed = self._session is None
        self._lease = self._session = None
        if session is not None and failed:
            nv_sessions.discard(session)
        elif session is not None:
            nv_sessions.release(session, self._end() if self._sent else None)
            nv_report.take()  # reports about discarded frames
            self._sent.clear()

    def _converted(self, frame: Any, concealed: bool) -> DecodedFrame | None:
        pts, discard, corrupt = self._sent.pop(frame.getPTS(), (None, False, False))
        if discard:
            return None
        if corrupt and not concealed:  # NVDEC does not report frames whose data is missing completely
            self._counters.add(CONCEALED)
        form = self._format
        assert form is not None  # a session begins with a keyframe, which sets it
        width, height, color = self._shown
        surface = self._pool.surface(width, height, color, self._stream)
        base = frame.GetPtrToPlane(0)
        if frame.GetPtrToPlane(1) - base != form.width * form.height * (2 if form.bits > 8 else 1):
            raise SourceError(
                f"NVDEC returned a frame of shape {list(frame.shape)}, expected {form.width}x{form.height} with "
                f"{form.bits} bits",
                cause="codec",
            )
        if form.bits == 8 and form.orientation == Orientation():
            self._copy(surface.data.data.ptr, base, surface.data.nbytes, self._stream)
        else:
            with self._stream:
                self._convert(frame, base, form, surface)
        self._pool.written(surface, self._stream)
        return DecodedFrame(self._timing(pts), width, height, surface, concealed or corrupt, form.pixel_aspect)

    def _convert(self, frame: Any, base: int, form: _Format, surface: Surface) -> None:
        """Queue the conversion to 8 bits and the rotation of a decoder's buffer, NV12 or P016 without gaps."""
        cupy = self._cupy
        sample = 2 if form.bits > 8 else 1
        shape = planes.nv12_shape(form.width, form.height)
        memory = cupy.cuda.UnownedMemory(base, shape[0] * shape[1] * sample, frame, self._device.index)
        data = cupy.ndarray(shape, np.uint16 if sample == 2 else np.uint8, cupy.cuda.MemoryPointer(memory, 0))
        if sample == 2:
            narrow = surface.data
            if form.orientation != Orientation():
                if self._scratch is None or self._scratch.shape != shape:
                    self._scratch = cupy.empty(shape, np.uint8)
                narrow = self._scratch
            planes.narrow_p016(data, narrow)
            data = narrow
        if form.orientation != Orientation():
            rotation, mirrored = form.orientation
            planes.rotate(data, form.width, form.height, rotation, surface.data, mirrored=mirrored)

    # -------------------------------------------------------------------------------------------------- the format

    def _enter_format(self, keyframe: Any) -> list[DecodedFrame]:
        """Inspect a keyframe with new parameters; if the format changed, flush the old one first."""
        form = self._inspect_keyframe(keyframe) or self._format or self._format_of_container()
        if form == self._format:
            return []
        frames = [] if self._format is None else self._flush()
        reason = unsupported(self._device.index, self._codec, form.chroma, form.bits, form.width, form.height)
        if reason is None and form.interlaced:
            reason = "NVDEC would deinterlace it"
        if reason is not None:
            self._software = self._fallback(self._demuxer, reason)
            return frames
        if self._format is not None and self._format[:4] != form[:4]:
            self._release_session()
        self._format = form
        rotation, mirrored = form.orientation
        color = planes.rotated_color(form.color, form.width, form.height, rotation, mirrored=mirrored)
        self._shown = *planes.rotated_size(form.width, form.height, rotation), color
        return frames

    def _inspect_keyframe(self, keyframe: Any) -> _Format | None:
        """The format of one keyframe, as decoded by FFmpeg."""
        import av

        try:
            with self._demuxer.single_frame_decoder() as context:
                frames = [*context.decode(clone_packet(keyframe)), *context.decode(None)]
        except (ValueError, OSError, av.FFmpegError):
            return None
        if not frames:
            return None
        frame = frames[0]
        orientation = orientation_of(frame)
        return _Format(
            frame.width,
            frame.height,
            chroma_of(frame.format),
            frame.format.components[0].bits,
            color_of(frame, centerd=self._codec in CENTERD),
            orientation,
            self._aspect.of(orientation, context),
            bool(frame.interlaced_frame),
        )

    def _format_of_container(self) -> _Format:
        """The format according to the container, if the keyframe cannot be decoded."""
        info = self._demuxer.info
        color = Color("bt709" if info.height >= 720 else "bt601")
        return _Format(info.width, info.height, info.chroma, info.bit_depth, color, Orientation(), SQUARE, False)
