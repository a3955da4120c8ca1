# SPDX-License-Identifier: Apache-2.0
"""The plain loop without streamkit, as the other side of `bench cpu` and of `benchmarks/performance.py`.

OpenCV decodes and resizes, ONNX Runtime runs one frame at a time with its default options, OpenCV runs NMS, and
`json.dumps` writes one line per frame. It is efficient of its kind: no unnecessary copies, vectorized postprocessing.

    python -m streamkit.bench.plain_loop VIDEO CARD OUT.jsonl LIMIT [STREAMS [PROVIDER]]

prints a JSON object: frames, seconds of the loop, seconds before it, CPU seconds of the loop. With several streams, a
thread for each runs the loop; PROVIDER is `CPUExecutionProvider` (the default) or `CUDAExecutionProvider`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import StreamkitError
from streamkit.runtime.execution.future import Stopped, side_by_side

STRIDES = (8, 16, 32)
_CPU = "CPUExecutionProvider"


def letterbox(image: np.ndarray, size: tuple[int, int], anchor: str) -> tuple[np.ndarray, float, int, int]:
    """Fit a BGR image (h, w, 3) into `size`, padded with gray; also returns the scale and the left and top offsets."""
    import cv2

    height, width = image.shape[:2]
    scale = min(size[0] / width, size[1] / height)
    inner = round(width * scale), round(height * scale)
    left, top = ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2) if anchor == "center" else (0, 0)
    resized = cv2.resize(image, inner, interpolation=cv2.INTER_LINEAR)
    right = size[0] - inner[0] - left
    bottom = size[1] - inner[1] - top
    gray = (114, 114, 114)
    return cv2.copyMakeBorder(resized, top, bottom, left, right, cv2.BORDER_CONSTANT, value=gray), scale, left, top


def read_yolox(output: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes (a, 4) as center and size in network pixels, and scores (a, c), from a (1, a, 5 + c) output."""
    cells = []
    strides = []
    for stride in STRIDES:
        x, y = np.meshgrid(np.arange(size[0] // stride), np.arange(size[1] // stride))
        cells.append(np.stack((x, y), 2).reshape(-1, 2))
        strides.append(np.full((x.size, 1), stride))
    grid = np.concatenate(cells)
    step = np.concatenate(strides)
    rows = output[0]
    boxes = np.concatenate([(rows[:, :2] + grid) * step, np.exp(rows[:, 2:4]) * step], axis=1)
    return boxes, rows[:, 4:5] * rows[:, 5:]


def read_yolov8(output: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes and scores as from `read_yolox`, from a (1, 4 + c, a) output."""
    rows = output[0].T
    return rows[:, :4], rows[:, 4:]


READERS = {"yolox": read_yolox, "yolov8": read_yolov8}


def run(
    video: Path, card: Any, out: Path, limit: int, provider: str = _CPU, ready: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Run the loop.

    Args:
        video: what to read.
        card: a `streamkit.models.card.Card` of one of `READERS`.
        out: the file to write.
        limit: maximum number of frames.
        provider: ONNX Runtime's.
        ready: called when the network is loaded; may wait for other loops.

    Raises:
        StreamkitError: ONNX Runtime does not load the provider.
    """
    import cv2
    import onnxruntime

    suppress: Any = cv2.dnn.NMSBoxesBatched  # its type stub asks for lists; it takes arrays, and faster
    start_s = time.perf_counter()
    if provider != _CPU:
        onnxruntime.preload_dlls()
    session = onnxruntime.InferenceSession(card.file, providers=[provider])
    if session.get_providers()[0] != provider:
        raise StreamkitError(f"ONNX Runtime does not load {provider}")
    name = session.get_inputs()[0].name
    size = card.input.size
    read = READERS[card.family]
    if provider != _CPU:  # it searches for the fastest convolutions, which takes seconds
        session.run(None, {name: np.zeros((1, 3, size[1], size[0]), np.float32)})
    capture = cv2.VideoCapture(str(video))
    ready()
    looped = time.perf_counter()
    used = time.process_time()
    frames = 0
    with out.open("w", encoding="utf-8") as file:
        while frames < limit:
            ok, image = capture.read()
            if not ok:
                break
            boxed, scale, left, top = letterbox(image, size, card.input.anchor)
            if card.input.color == "rgb":
                boxed = cv2.cvtColor(boxed, cv2.COLOR_BGR2RGB)
            tensor = boxed.transpose(2, 0, 1)[None].astype(np.float32)
            if card.input.scale != 1:
                tensor *= np.float32(card.input.scale)
            (output,) = session.run(None, {name: tensor})
            boxes, scores = read(output, size)
            class_id = scores.argmax(axis=1)
            score = scores[np.arange(len(scores)), class_id]
            candidates = np.flatnonzero(score >= card.score)
            boxes = boxes[candidates]
            score = score[candidates]
            class_id = class_id[candidates]
            boxes[:, :2] -= boxes[:, 2:] / 2
            boxes[:, :2] -= (left, top)
            boxes /= scale
            chosen = suppress(boxes, score, class_id, card.score, card.iou) if len(candidates) else ()
            objects = []
            height, width = image.shape[:2]
            for i in chosen:
                x, y, w, h = boxes[i].tolist()
                box = [max(x, 0.0), max(y, 0.0), min(x + w, width), min(y + h, height)]
                detection = {"box": [round(v, 2) for v in box], "score": round(float(score[i]), 4)}
                objects.append({**detection, "class_id": int(class_id[i]), "label": card.labels[class_id[i]]})
            file.write(json.dumps({"frame": frames, "width": width, "height": height, "objects": objects}) + "\n")
            frames += 1
    seconds = time.perf_counter() - looped
    cpu_s = time.process_time() - used
    return {"frames": frames, "seconds": seconds, "start_s": looped - start_s, "cpu_s": cpu_s}


def run_streams(video: Path, card: Any, out: Path, limit: int, streams: int, provider: str) -> dict[str, float]:
    """Run the loop for several streams of a video at the same time, a thread each.

    Args:
        video: what each reads.
        card: as in `run`.
        out: the file to write, with the stream's number in its name.
        limit: maximum number of frames of each.
        streams: number of streams.
        provider: ONNX Runtime's.

    Returns:
        Frames of all, and seconds until the last loop has ended.
    """
    loaded: list[int] = []
    runs: list[dict[str, float]] = []

    def loop(number: int, stopped: Stopped) -> None:
        def ready() -> None:
            loaded.append(number)
            while len(loaded) < streams and not stopped():
                time.sleep(0.001)

        runs.append(run(video, card, out.with_stem(f"{out.stem}-{number}"), limit, provider, ready))

    with side_by_side(*(partial(loop, number) for number in range(streams))) as stopped:
        while len(runs) < streams and not stopped():
            time.sleep(0.01)
    frames = sum(run_figures["frames"] for run_figures in runs)
    longest = {name: max(run_figures[name] for run_figures in runs) for name in ("seconds", "start_s", "cpu_s")}
    return {**longest, "frames": frames}


def main(arguments: list[str]) -> None:
    """Run the loop with the command line's arguments."""
    from streamkit.models.card import load_card

    video, card, out, limit, *rest = arguments
    streams = int(rest[0]) if rest else 1
    provider = rest[1] if len(rest) > 1 else _CPU
    run_arguments = Path(video), load_card(Path(card)), Path(out), int(limit)
    figures = run(*run_arguments, provider) if streams == 1 else run_streams(*run_arguments, streams, provider)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
