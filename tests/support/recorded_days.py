"""A recording of days behind the API of recordings, for tests of the page: clips of numbered frames at any times."""

import io
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import av
from fastapi import APIRouter, FastAPI, Query
from fastapi.responses import JSONResponse, Response

MOVIE = {"movflags": "delay_moov+default_base_moof+frag_keyframe"}


@dataclass
class Segment:
    """A file, and the wall time of its first frame."""

    path: Path
    from_s: float
    frames_s: list[float] = field(default_factory=list)
    keys_s: list[float] = field(default_factory=list)
    end_s: float = 0.0

    def __post_init__(self) -> None:
        with av.open(str(self.path)) as video:
            stream = video.streams.video[0]
            packets = [packet for packet in video.demux(stream) if packet.size]
            shown = sorted((packet.pts * packet.time_base, packet.is_keyframe) for packet in packets)
            self.frames_s = [float(pts) for pts, _ in shown]
            self.keys_s = [float(pts) for pts, key in shown if key]
            self.end_s = self.from_s + self.frames_s[-1] + 1 / float(stream.average_rate)
            self.width, self.height = stream.width, stream.height

    def key_before(self, time_s: float) -> float:
        return self.keys_s[max(0, bisect_right(self.keys_s, time_s - self.from_s + 1e-4) - 1)]

    def cut(self, from_s: float, to_s: float) -> tuple[bytes, float, float]:
        """The video from the keyframe at or before a time, its first time and its end."""
        key_s = self.key_before(from_s)
        memory = io.BytesIO()
        count = 0
        with av.open(str(self.path)) as video, av.open(memory, "w", format="mp4", options=MOVIE) as out:
            stream = out.add_stream_from_template(video.streams.video[0])
            for packet in video.demux(video=0):
                if not packet.size or float(packet.pts * packet.time_base) < key_s - 1e-6:
                    continue
                if self.from_s + float(packet.pts * packet.time_base) >= to_s - 1e-6 and count:
                    break
                shift = round(key_s / packet.time_base)
                packet.pts -= shift
                packet.dts -= shift
                packet.stream = stream
                out.mux(packet)
                count += 1
        first = self.frames_s.index(key_s)
        last = min(first + count, len(self.frames_s)) - 1
        end_s = self.from_s + self.frames_s[last] + (self.frames_s[1] - self.frames_s[0])
        return memory.getvalue(), self.from_s + key_s, end_s

    def encoded(self, from_s: float, to_s: float) -> bytes:
        """The frames from one time to another, encoded anew."""
        memory = io.BytesIO()
        with av.open(str(self.path)) as video, av.open(memory, "w", format="mp4") as out:
            stream = out.add_stream("libx264", rate=25, options={"crf": "14"})
            stream.width, stream.height, stream.pix_fmt = self.width, self.height, "yuv420p"
            for frame in video.decode(video=0):
                if from_s - 1e-4 <= self.from_s + float(frame.time) < to_s - 1e-4:
                    frame.pts = None
                    out.mux(stream.encode(frame))
            out.mux(stream.encode())
        return memory.getvalue()

    def image(self, time_s: float, width: int) -> tuple[bytes, float]:
        key_s = self.key_before(time_s)
        with av.open(str(self.path)) as video:
            stream = video.streams.video[0]
            video.seek(round(key_s / stream.time_base), stream=stream)
            picture = next(video.decode(stream)).to_image()
        memory = io.BytesIO()
        height = round(width * picture.height / picture.width)
        picture.resize((width, height)).save(memory, "jpeg", quality=90)
        return memory.getvalue(), self.from_s + key_s


@dataclass
class RecordedDays:
    """Segments and gaps by camera."""

    segments: dict[str, list[Segment]]
    gaps: dict[str, list[tuple[float, float, str]]] = field(default_factory=dict)
    codecs: dict[str, str] = field(default_factory=dict)
    image_delay_s: float = 0.0

    @property
    def base_s(self) -> float:
        """When the first recording begins."""
        return min(segments[0].from_s for segments in self.segments.values())

    def codec(self, source: str) -> str:
        return self.codecs.get(source, "avc1.64001f")

    def at(self, source: str, time_s: float) -> Segment | None:
        return next((each for each in self.segments[source] if each.from_s - 1e-3 <= time_s < each.end_s), None)

    def bins(self, source: str, from_s: float, to_s: float, bins: int) -> list[float]:
        times = [from_s + (place + 0.5) * (to_s - from_s) / bins for place in range(bins)]
        return [((t * 7919) % 37 + (t * 31) % 11) / 48 if self.at(source, t) else 0 for t in times]

    def add_routes(self, app: FastAPI, api: APIRouter) -> None:
        Source = Annotated[str, Query()]
        Time = Annotated[float, Query()]

        @api.get("/recordings")
        def recordings() -> Response:
            return JSONResponse(
                [
                    {"source": source, "first_s": each[0].from_s, "last_s": each[-1].end_s, "bytes": 1, "days": []}
                    for source, each in self.segments.items()
                ]
            )

        @api.get("/recordings/timeline")
        def timeline(source: Source, from_s: Time, to_s: Time, bins: int = 1) -> Response:
            segments = [
                {
                    "id": number,
                    "from_s": each.from_s,
                    "to_s": each.end_s,
                    "width": each.width,
                    "height": each.height,
                    "codec": self.codec(source),
                    "bytes": each.path.stat().st_size,
                }
                for number, each in enumerate(self.segments.get(source, []))
                if each.end_s > from_s and each.from_s < to_s
            ]
            gaps = [
                {"from_s": begin, "to_s": end, "cause": cause}
                for begin, end, cause in self.gaps.get(source, [])
                if end > from_s and begin < to_s
            ]
            return JSONResponse(
                {
                    "segments": segments,
                    "gaps": gaps,
                    "motion": self.bins(source, from_s, to_s, bins),
                    "events": [0] * bins,
                }
            )

        @api.get("/recordings/video")
        def video(source: Source, from_s: Time, to_s: Time) -> Response:
            segment = self.at(source, from_s)
            if segment is None:
                return JSONResponse({"error": f"{source} was not recorded then"}, 404)
            data, start_s, end_s = segment.cut(from_s, to_s)
            headers = {"x-start-s": f"{start_s:.6f}", "x-end-s": f"{end_s:.6f}"}
            return Response(data, media_type=f'video/mp4; codecs="{self.codec(source)}"', headers=headers)

        @api.get("/recordings/image")
        def image(source: Source, time_s: Time, width: int = 320) -> Response:
            time.sleep(self.image_delay_s)
            segment = self.at(source, time_s)
            if segment is None:
                return JSONResponse({"error": f"{source} was not recorded then"}, 404)
            jpeg, key_s = segment.image(time_s, width)
            return Response(jpeg, media_type="image/jpeg", headers={"x-time-s": f"{key_s:.6f}"})

        @api.get("/recordings/export")
        def export(source: Source, from_s: Time, to_s: Time, exact: bool = False) -> Response:
            segment = self.at(source, from_s)
            if segment is None:
                return JSONResponse({"error": f"{source} was not recorded then"}, 404)
            data = segment.encoded(from_s, to_s) if exact else segment.cut(from_s, to_s)[0]
            return Response(
                data, media_type="video/mp4", headers={"content-disposition": f'attachment; filename="{source}.mp4"'}
            )
