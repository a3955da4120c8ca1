# SPDX-License-Identifier: Apache-2.0
"""What is measured: clips and networks of a data folder, or what ships: clips made of the sample video, and `auto`."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import islice
from pathlib import Path
from typing import Literal

import yaml

from streamkit.core.errors import ConfigError, SourceError
from streamkit.models.card import DEFAULT_CARD, find_card, load_card, sample_video

VIDEO = "videos/vtest_480x360.mp4"
"""The clip for `bench cpu`."""
CLIPS = {"h264": "videos/bench_1080p_h264.mp4", "hevc": "videos/bench_1080p_hevc.mp4"}
"""The clips of the data folder, by codec."""

CARDS = {
    "yolox-nano": """
        {task: detect, family: yolox, file: FOLDER/yolox_nano_dyn.onnx, labels: coco, score: 0.25, iou: 0.45,
        input: {size: [416, 416], resize: letterbox, anchor: top_left, pad: 114, color: bgr, scale: 1}}
    """,
    "yolov8n": """
        {task: detect, family: yolov8, file: FOLDER/yolov8n_640_deq_dyn.onnx, labels: coco, score: 0.25, iou: 0.7,
        input: {size: [640, 640], resize: letterbox, anchor: center, pad: 114, color: rgb, scale: 1/255}}
    """,
    # so small an input that 20,000 frames go through in half a minute
    "yunet-64": """
        {task: detect, family: yunet, file: FOLDER/yunet_n_dynamic.onnx, labels: face, score: 0.1, iou: 0.3,
        input: {size: [64, 64], resize: stretch, color: bgr, scale: 1}}
    """,
}
"""Cards for the networks of the data folder."""

_ROOM = 2 << 30
_NETWORK = "yolox-nano"
_ENCODERS = {"h264": "libx264", "hevc": "libx265"}
_SIZE_WH = (1920, 1080)
_CLIP_FRAMES = 100


def data_folder(folder: Path | None) -> Path | None:
    """Return the folder of models and videos: `folder`, or $STREAMKIT_TEST_DATA; None if none is named.

    Raises:
        ConfigError: it does not exist, or is incomplete.
    """
    variable = os.environ.get("STREAMKIT_TEST_DATA")
    named = folder or (Path(variable) if variable else None)
    if named is not None and not (named / VIDEO).is_file():
        raise ConfigError(
            f"bench needs {VIDEO} and models/ in a folder, and {named} does not have them; name another with --data or "
            "in $STREAMKIT_TEST_DATA, or none to measure what ships"
        )
    return named


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory if there is one with 2 GiB free, else a temporary folder."""
    memory = Path("/dev/shm")
    there = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM
    return tempfile.TemporaryDirectory(prefix="streamkit-bench-", dir=memory if there else None)


def clip_of(codec: str, data: Path | None, scratch: Path) -> Path:
    """Return the data folder's clip of a codec; without a folder, one that is made.

    Args:
        codec: `h264` or `hevc`.
        data: the folder; None for none.
        scratch: where to write what is made.

    Raises:
        ConfigError: there is none.
    """
    if codec not in CLIPS:
        raise ConfigError(f"bench gpu has clips of {' and '.join(CLIPS)}, not of {codec!r}; name a clip with --clip")
    if data is None:
        return made_clip(codec, scratch)
    path = data / CLIPS[codec]
    if not path.is_file():
        raise ConfigError(
            f"bench gpu needs {CLIPS[codec]} in {data}; name the folder with --data, or a clip with --clip"
        )
    return path


def made_clip(codec: str, folder: Path) -> Path:
    """Encode 4 s of the sample video in 1920 x 1080 into a folder, with the codec, and return the file.

    Raises:
        ConfigError: this PyAV lacks the encoder.
    """
    import av

    path = folder / f"sample-{codec}.mp4"
    with av.open(str(sample_video())) as video, av.open(str(path), "w") as output:
        try:
            stream = output.add_stream(_ENCODERS[codec], rate=video.streams.video[0].average_rate)
        except (av.FFmpegError, ValueError):
            raise ConfigError(
                f"PyAV has no encoder {_ENCODERS[codec]} here: name a clip, as in --clip {codec}=gate.mp4"
            ) from None
        stream.width, stream.height = _SIZE_WH
        stream.pix_fmt = "yuv420p"
        stream.options = {"preset": "ultrafast", "crf": "23", "g": "30", "x265-params": "log-level=none"}
        for frame in islice(video.decode(video=0), _CLIP_FRAMES):
            resized = frame.reformat(*_SIZE_WH, format="yuv420p")
            resized.pict_type = av.video.frame.PictureType.NONE
            output.mux(stream.encode(resized))
        output.mux(stream.encode())
    return path


def lengthen(clip: Path, out: Path, frames: int) -> int:
    """Write a file that repeats the clip's packets with continuing timestamps, until it has `frames` or more.

    Args:
        clip: begins with a keyframe, like any file.
        out: the file to write; its suffix determines the container.
        frames: minimum number of packets, each of which is a frame.

    Returns:
        The number of packets: whole repetitions of the clip.

    Raises:
        SourceError: the clip cannot be read, or its packets have no timestamps.
    """
    import av

    from streamkit.media.demux import Demuxer

    demuxer = Demuxer(str(clip))
    try:
        packets = [(bytes(p), p.pts, p.dts, p.duration, p.is_keyframe) for p in demuxer.packets()]
        if not packets or any(None in packet[1:3] for packet in packets):
            raise SourceError(f"{clip} cannot be made longer: it has packets without timestamps")
        base = demuxer.stream.time_base
        first = min(packet[1] for packet in packets)
        last = max(packet[1] for packet in packets)
        length = (last - first) * len(packets) // max(1, len(packets) - 1)  # one step beyond the last frame
        times = -(-frames // len(packets))
        with av.open(str(out), "w") as output:
            stream = output.add_stream_from_template(demuxer.stream)
            for number in range(times):
                for data, pts, dts, duration, keyframe in packets:
                    packet = av.Packet(data)
                    packet.pts = pts + number * length
                    packet.dts = dts + number * length
                    packet.duration = duration
                    packet.time_base = base
                    packet.is_keyframe = keyframe
                    packet.stream = stream
                    output.mux(packet)
    finally:
        demuxer.close()
    return times * len(packets)


def network(model: str | None, data: Path | None, folder: Path, dtype: Literal["f16", "f32"]) -> tuple[str, str]:
    """The name or path of a card, and its description.

    Args:
        model: a card; None for YOLOX-nano, of the data folder or downloaded.
        data: the folder with `models/`; None for none.
        folder: where to write the card.
        dtype: precision of YOLOX-nano.

    Raises:
        ConfigError: YOLOX-nano cannot be downloaded.
    """
    if model is not None:
        path = Path(model)
        return (str(path.resolve()) if path.is_file() else model), model
    options = yaml.safe_load(CARDS[_NETWORK])
    name = Path(options["file"]).name
    file = load_card(find_card(DEFAULT_CARD)).file if data is None else (data / "models" / name).resolve()
    options |= {"precision": dtype, "file": str(file)}
    card = folder / f"{_NETWORK}-{dtype}.yaml"
    card.write_text(yaml.safe_dump(options), encoding="utf-8")
    return str(card), f"{_NETWORK} in {dtype}"
