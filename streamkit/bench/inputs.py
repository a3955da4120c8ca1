# SPDX-License-Identifier: Apache-2.0
"""What is measured: the data folder's clips, long clips made from them without encoding, and its networks."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import yaml

from streamkit.core.errors import ConfigError, SourceError

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
_CHECKOUT = Path(__file__).resolve().parents[2]


def data_folder(folder: Path | None) -> Path:
    """The folder of models and videos: `folder`, $STREAMKIT_TEST_DATA, or shared/data beside the checkout.

    Raises:
        ConfigError: it does not exist, or is incomplete.
    """
    where = folder or _default_folder()
    if not (where / VIDEO).is_file():
        raise ConfigError(
            f"bench needs {VIDEO} and models/ in a folder, and {where} does not have them; name the folder with "
            "--data or in $STREAMKIT_TEST_DATA"
        )
    return where


def optional_data_folder(folder: Path | None) -> Path | None:
    """The folder of models and videos, as `data_folder`; None if none is named and the default does not exist.

    Raises:
        ConfigError: a folder is named, and does not exist or is incomplete.
    """
    named = folder is not None or bool(os.environ.get("STREAMKIT_TEST_DATA"))
    return data_folder(folder) if named or _default_folder().is_dir() else None


def _default_folder() -> Path:
    named = os.environ.get("STREAMKIT_TEST_DATA")
    return Path(named) if named else _CHECKOUT.parent / "shared" / "data"


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory if there is one with 2 GiB free, else a temporary folder."""
    memory = Path("/dev/shm")
    there = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM
    return tempfile.TemporaryDirectory(prefix="streamkit-bench-", dir=memory if there else None)


def clip_of(codec: str, data: Path) -> Path:
    """The data folder's clip of a codec.

    Raises:
        ConfigError: there is none.
    """
    if codec not in CLIPS:
        raise ConfigError(f"bench gpu has clips of {' and '.join(CLIPS)}, not of {codec!r}; name a clip with --clip")
    path = data / CLIPS[codec]
    if not path.is_file():
        raise ConfigError(
            f"bench gpu needs {CLIPS[codec]} in {data}; name the folder with --data, or a clip with --clip"
        )
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
        model: a card; None for the data folder's YOLOX-nano.
        data: the folder with `models/`.
        folder: where to write the card.
        dtype: precision of the data folder's network.

    Raises:
        ConfigError: there is neither a card nor a data folder.
    """
    if model is not None:
        path = Path(model)
        return (str(path.resolve()) if path.is_file() else model), model
    if data is None:
        raise ConfigError("bench gpu needs a network: name a card with --models, or the data folder with --data")
    text = CARDS[_NETWORK].replace("FOLDER", str((data / "models").resolve()))
    options = {**yaml.safe_load(text), "precision": dtype}
    card = folder / f"{_NETWORK}-{dtype}.yaml"
    card.write_text(yaml.safe_dump(options), encoding="utf-8")
    return str(card), f"{_NETWORK} in {dtype}"
