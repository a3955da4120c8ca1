"""Decoding on the GPU's decoder engines (NVDEC), fed with FFmpeg's packets.

Three things NVDEC keeps silent about are taken care of here. Its output buffers are overwritten by the next call, so
each picture is copied, on the device, into a pooled surface; decoder and copy use one CUDA stream, which keeps them in
order without waiting. It goes on in the old size when the stream changes it, so keyframes are looked at (see
`parameters`). And it has no notion of FFmpeg's discard flag, so what belongs to a packet is looked up by its time when
the picture comes out. (It must be the time: NVDEC gives pictures, in the order shown, the packets' values in rising
order, and so mixes up whatever else packets carry.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamkit.counters import Counters
from streamkit.data import Color, Device, Surface
from streamkit.errors import SourceError
from streamkit.media.av_decoder import CENTRED, UNDECODABLE, AvDecoder
from streamkit.media.demux import chroma_of, twin
from streamkit.media.frames import Picture, color_of, rotation_of
from streamkit.media.nv_caps import CODECS, nv_module, unsupported
from streamkit.media.parameters import parameters
from streamkit.media.timing import Timing
from streamkit.ops import planes

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer
    from streamkit.media.surfaces import SurfacePool

_FILTERS = {
    "h264": "h264_mp4toannexb",
    "hevc": "hevc_mp4toannexb",
    "mpeg4": "mpeg4_unpack_bframes,dump_extra",
}
_KEPT = 512  # packets whose picture may still come
_TRIES = 3


class NvUnsupported(Exception):
    """NVDEC cannot decode this stream; the text says why."""


class _Format(NamedTuple):
    width: int
    height: int
    chroma: int
    bits: int
    color: Color
    rotation: int
    interlaced: bool


class NvDecoder:
    """Packets to pictures in device memory.

    Args:
        demuxer: where the packets come from.
        device: a CUDA device.
        pool: its surfaces.
        counters: takes `packets not decodable`.
        fall_back: makes the decoder to go on with when the stream changes to what NVDEC cannot take; gets the reason.
        low_delay: hand a picture out without waiting for later packets.

    Raises:
        NvUnsupported: NVDEC cannot take this stream.
    """

    def __init__(
        self, demuxer: Demuxer, device: Device, pool: SurfacePool, counters: Counters,
        fall_back: Callable[[Demuxer, str], AvDecoder], *, low_delay: bool = False,
    ) -> None:  # fmt: skip
        module = nv_module()
        if isinstance(module, str):
            raise NvUnsupported(module)
        info = demuxer.info
        why = unsupported(device.index, info.codec, info.chroma, info.bit_depth, info.width, info.height)
        if why:
            raise NvUnsupported(why)
        self._nvc, self._cupy = module, device.xp
        self._device, self._pool, self._counters, self._fall_back = device, pool, counters, fall_back
        self._low_delay = low_delay
        with self._cupy.cuda.Device(device.index):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._session: Any = None
        self._format: _Format | None = None
        self._scratch: Any = None
        self._number = 0
        self._sent: dict[int, tuple[int | None, bool]] = {}
        self._failures = 0
        self._parameters: bytes | None = None
        self.restart(demuxer)

    def restart(self, demuxer: Demuxer) -> None:
        """Go on with another demuxer, or the same one after a seek. The session is kept: a new one costs 60 ms."""
        import av

        if self._session is not None and self._sent:
            self._flush()  # what is left of another place
        self._demuxer, self._codec = demuxer, demuxer.info.codec
        name = _FILTERS.get(self._codec)
        self._filter = av.BitStreamFilterContext(name, demuxer.stream) if name else None
        self._timing = Timing(demuxer)
        self._sent.clear()
        self._waiting = True  # for a keyframe
        self._software: AvDecoder | None = None

    def decode(self, packet: Any | None) -> list[Picture]:
        """The pictures that are whole once `packet` (an `av.Packet`) is in; None at the end gives the last ones."""
        if self._software is not None:
            return self._software.decode(packet)
        pictures: list[Picture] = []
        if packet is None:
            for part in self._filter.filter(None) if self._filter and not self._waiting else []:
                pictures += self._push(part, part.pts, bool(part.is_discard))
            return pictures + self._flush()
        # a filter takes the packet's bytes away
        keyframe = twin(packet) if packet.is_keyframe else None
        for part in self._filter.filter(packet) if self._filter else [packet]:
            if keyframe is not None:
                found = parameters(self._codec, bytes(part)) or self._parameters or b""
                if found != self._parameters:
                    self._parameters = found
                    pictures += self._enter_format(keyframe)
                    if self._software is not None:
                        return pictures + self._software.decode(keyframe)
                self._waiting = False
            if self._waiting:
                self._counters.add("packets before a keyframe")
                continue
            pictures += self._push(part, part.pts, bool(part.is_discard))
        return pictures

    def close(self) -> None:
        """End the session; surfaces that were handed out live on."""
        self._stream.synchronize()
        self._session = self._scratch = self._filter = None
        if self._software is not None:
            self._software.close()

    # ------------------------------------------------------------------------------------------------- the session

    def _push(self, packet: Any, pts: int | None, discard: bool) -> list[Picture]:
        self._number += 1
        key = self._number if pts is None else pts
        self._sent[key] = pts, discard
        if len(self._sent) > 2 * _KEPT:  # pictures that never came
            for old in list(self._sent)[:_KEPT]:
                del self._sent[old]
        data = self._nvc.PacketData()
        data.bsl_data = packet.buffer_ptr
        data.bsl = packet.size
        data.pts = key
        if self._low_delay:
            data.decode_flag = self._nvc.VideoPacketFlag.ENDOFPICTURE
        return self._run(data)

    def _flush(self) -> list[Picture]:
        if self._session is None:
            return []
        end = self._nvc.PacketData()
        end.bsl_data, end.bsl, end.pts = 0, 0, 0
        pictures = self._run(end)
        self._sent.clear()
        return pictures

    def _run(self, data: Any) -> list[Picture]:
        try:
            if self._session is None:
                self._session = self._new_session()
            frames = self._session.Decode(data)
        except Exception as error:  # PyNvVideoCodec's types differ by version, all mean a failed decoder
            self._counters.add(UNDECODABLE)
            self._session, self._waiting, self._parameters = None, True, None
            self._failures += 1
            if self._failures >= _TRIES:
                raise SourceError(f"NVDEC fails again and again: {' '.join(str(error).split())[:300]}") from error
            return []
        if not frames:
            return []
        self._failures = 0
        with self._cupy.cuda.Device(self._device.index), self._stream:
            made = [self._picture(frame) for frame in frames]
        return [picture for picture in made if picture is not None]

    def _new_session(self) -> Any:
        options: dict[str, Any] = {}
        if self._low_delay:
            options["latency"] = self._nvc.DisplayDecodeLatencyType.LOW
        with self._cupy.cuda.Device(self._device.index):
            return self._nvc.CreateDecoder(
                gpuid=self._device.index,
                codec=getattr(self._nvc.cudaVideoCodec, CODECS[self._codec]),
                cudacontext=self._cupy.cuda.driver.ctxGetCurrent(),
                cudastream=self._stream.ptr,
                usedevicememory=True,
                **options,
            )

    def _picture(self, frame: Any) -> Picture | None:
        pts, discard = self._sent.pop(frame.getPTS(), (None, False))
        if discard:
            return None
        form = self._format
        assert form is not None  # a session begins with a keyframe, which sets it
        width, height = planes.rotated_size(form.width, form.height, form.rotation)
        color = planes.rotated_color(form.color, form.width, form.height, form.rotation)
        surface = self._pool.surface(width, height, color, self._stream)
        self._copy(frame, form, surface)
        self._pool.written(surface, self._stream)
        return Picture(self._timing(pts), width, height, surface)

    def _copy(self, frame: Any, form: _Format, surface: Surface) -> None:
        """Queue the copy of a decoder's buffer, which is NV12 or P016 without gaps, on this decoder's stream."""
        cupy = self._cupy
        base, sample = int(frame.GetPtrToPlane(0)), 2 if form.bits > 8 else 1
        if int(frame.GetPtrToPlane(1)) - base != form.width * form.height * sample:
            raise SourceError(
                f"NVDEC gave a picture of shape {list(frame.shape)} where {form.width}x{form.height} of {form.bits} "
                "bits was due"
            )
        size = surface.data.nbytes * sample
        if sample == 1 and not form.rotation:
            cupy.cuda.runtime.memcpyAsync(
                surface.data.data.ptr, base, size, cupy.cuda.runtime.memcpyDeviceToDevice, self._stream.ptr
            )
            return
        shape = planes.nv12_shape(form.width, form.height)
        memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(base, size, frame, self._device.index), 0)
        data = cupy.ndarray(shape, np.uint16 if sample == 2 else np.uint8, memory)
        if sample == 2:
            narrow = surface.data
            if form.rotation:
                if self._scratch is None or self._scratch.shape != shape:
                    self._scratch = cupy.empty(shape, np.uint8)
                narrow = self._scratch
            planes.narrow_p016(data, narrow)
            data = narrow
        if form.rotation:
            planes.rotate(data, form.width, form.height, form.rotation, surface.data)

    # -------------------------------------------------------------------------------------------------- the format

    def _enter_format(self, keyframe: Any) -> list[Picture]:
        """Look at a keyframe with new parameters; where the format changed, finish the old one first."""
        form = self._look(keyframe) or self._format or self._guess()
        if form == self._format:
            return []
        pictures = [] if self._format is None else self._flush()
        why = unsupported(self._device.index, self._codec, form.chroma, form.bits, form.width, form.height)
        if why is None and form.interlaced:
            why = "NVDEC would deinterlace this video"
        if why is not None:
            self._software = self._fall_back(self._demuxer, why)
            return pictures
        if self._format is not None and self._format[:4] != form[:4]:
            self._stream.synchronize()
            self._session = None
        self._format = form
        return pictures

    def _look(self, keyframe: Any) -> _Format | None:
        """What FFmpeg makes of one keyframe."""
        import av

        context = self._demuxer.stream.codec_context
        try:
            frames = [*context.decode(twin(keyframe)), *context.decode(None)]
        except (ValueError, OSError, av.FFmpegError):
            return None
        finally:
            context.flush_buffers()
        if not frames:
            return None
        frame = frames[0]
        return _Format(
            frame.width,
            frame.height,
            chroma_of(frame.format),
            frame.format.components[0].bits,
            color_of(frame, centred=self._codec in CENTRED),
            rotation_of(frame),
            bool(frame.interlaced_frame),
        )

    def _guess(self) -> _Format:
        """What the container says, where the keyframe cannot be decoded."""
        info = self._demuxer.info
        color = Color("bt709" if info.height >= 720 else "bt601")
        return _Format(info.width, info.height, info.chroma, info.bit_depth, color, 0, False)
