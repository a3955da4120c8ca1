# SPDX-License-Identifier: Apache-2.0
"""A picture of the frames with the most errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from streamkit.config.graph import with_nodes
from streamkit.config.plan import DECODE, Node, RunOptions
from streamkit.core.data import Batch, Color, Detections, Frame, Surface
from streamkit.core.stage import Context
from streamkit.evaluate.boxes import FlatBoxes
from streamkit.evaluate.observe import Observations, Watching
from streamkit.evaluate.report import Evaluation
from streamkit.evaluate.stages import CollectPixels
from streamkit.io.outputs import AtomicFile
from streamkit.ops.color import from_rgb, to_rgb
from streamkit.ops.style import PALETTE
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig
from streamkit.stages.video.draw import Draw

FRAMES = 6
_COLUMNS = 3
_CELL = 640
_STRIP = 36
_TRUTH, _FALSE, _HIT, _MISSED = range(4)  # places in the palette: blue, orange, green, red
_CAPTION = 15  # purple
_LEGEND = {_TRUTH: "truth that is found", _HIT: "hit", _MISSED: "missed: truth without a hit", _FALSE: "false positive"}


def worst_frames(evaluation: Evaluation, count: int = FRAMES) -> list[int]:
    """The frames with the most misses and false positives, the worst first; no frame without any."""
    errors = np.bincount(evaluation.seen.truth.frame[evaluation.matches.missed], minlength=len(evaluation.seen.frames))
    errors = errors + np.bincount(
        evaluation.seen.detections.frame[evaluation.matches.false], minlength=len(evaluation.seen.frames)
    )
    order = np.argsort(-errors, kind="stable")[: 50 * count]
    taken: list[int] = []
    for number in order.tolist():  # neighbors show the same errors
        if errors[number] and all(abs(number - other) > 5 for other in taken):
            taken.append(number)
    return taken[:count]


def draw_worst(evaluation: Evaluation, path: Path, watching: Watching) -> int:
    """Write a grid of the worst frames as a PNG, and return how many there are; no file is written for none."""
    numbers = worst_frames(evaluation)
    frames = _read_frames(evaluation.seen, numbers, watching)
    cells = [_cell(evaluation, number, frames[number]) for number in numbers if number in frames]
    if not cells:
        return 0
    columns = min(_COLUMNS, len(cells))
    height = max(cell.shape[0] for cell in cells)
    rows = [_row(cells[k : k + columns], columns, height) for k in range(0, len(cells), columns)]
    _write(path, np.concatenate([_legend(columns * _CELL), *rows]))
    return len(cells)


def _read_frames(seen: Observations, numbers: Sequence[int], watching: Watching) -> dict[int, Frame]:
    """Read the sources again, and keep these frames."""
    place = {(seen.frames[n].source, seen.frames[n].index): n for n in numbers}
    node = next(iter(seen.graph.nodes.values()))
    frames: list[Frame] = []
    sink = Node(
        "pixels", CollectPixels, {"wanted": frozenset(place), "into": frames}, [DECODE], RunOptions(), node.place
    )
    config = replace(seen.graph.config, alarms=[], state=None)
    sources = [source for source in seen.graph.sources if any(source.id == name for name, _ in place)]
    graph = with_nodes(replace(seen.graph, config=replace(config, sources=sources)), [sink])
    last = max((seen.frames[n].index for n in numbers), default=0)
    device = config.device if isinstance(config.device, str) else config.device[0]
    running = PipelineRun(graph, choose(device), RunConfig(limit=last + 1))
    with watching(running):
        running.run()
    return {place[frame.source, frame.index]: frame for frame in frames}


def _cell(evaluation: Evaluation, number: int, frame: Frame) -> np.ndarray:
    """A frame with its boxes and a caption, (h, _CELL, 3) uint8."""
    import cv2

    seen = evaluation.seen
    matches = evaluation.matches
    real = seen.truth.rows_of(number)
    detected = seen.detections.rows_of(number)
    missed = matches.missed[real]
    false = matches.false[detected]
    hit = matches.hit[detected]
    quiet = _table(
        [(seen.truth[real][matches.of[real] >= 0], _TRUTH), (seen.detections[detected][hit], _HIT)], seen.names, ""
    )
    loud = [(seen.truth[real][missed], _MISSED), (seen.detections[detected][false], _FALSE)]
    frame = _drawn(frame, quiet, labels=False)
    image = _rgb(_drawn(frame, _table(loud, seen.names, "{kind} {label}"), labels=True))
    height = 2 * round(frame.height * _CELL / frame.width / 2)
    image = cv2.resize(image, (_CELL, height), interpolation=cv2.INTER_AREA if frame.width > _CELL else cv2.INTER_CUBIC)
    text = f"{frame.source} frame {frame.index}: {int(missed.sum())} missed, {int(false.sum())} false positives"
    return np.concatenate([_strip(_CELL, [(_CAPTION, text)], 10), image])


def _table(parts: Sequence[tuple[FlatBoxes, int]], names: Sequence[str], form: str) -> Detections:
    """A table whose class selects the color, and whose label is the kind of box and its class."""
    kinds = {_MISSED: "missed", _FALSE: "false"}
    size = len(PALETTE)
    labels = [
        form.format(kind=kinds.get(place, ""), label=names[number])
        for number in range(len(names))
        for place in range(size)
    ]
    class_id = [boxes.class_id * size + kind for boxes, kind in parts]
    xyxy = np.concatenate([boxes.xyxy for boxes, _ in parts]).astype(np.float32)
    return Detections(
        xyxy, np.ones(len(xyxy), np.float32), np.concatenate(class_id).astype(np.int32), labels=tuple(labels)
    )


def _drawn(frame: Frame, table: Detections, *, labels: bool, text_size: int | None = None) -> Frame:
    """A copy of the frame with the boxes of a table, by the stage `draw`."""
    stage = Draw(labels=labels, scores=False, tracks=False, text_size=text_size)
    stage.context = Context("worst")
    stage.open()
    batch = stage.process(Batch([replace(frame)], tables={"worst": table}))
    return batch.frames[0]


def _strip(width: int, texts: Sequence[tuple[int, str]], step: int) -> np.ndarray:
    """A dark strip with a colored label for each text."""
    gray = np.full((_STRIP, width, 3), 24, np.uint8)
    frame = Frame("strip", 0, 0.0, width, _STRIP, Surface(from_rgb(gray, Color()), Color()))
    size = len(PALETTE)
    labels = [""] * (size * len(texts))
    boxes = []
    classes = []
    x = 8
    for number, (kind, text) in enumerate(texts):
        labels[number * size + kind] = text
        boxes.append([x, 28, x + 8, 32])
        classes.append(number * size + kind)
        x += step
    table = Detections(
        np.array(boxes, np.float32), np.ones(len(boxes), np.float32), np.array(classes, np.int32), labels=tuple(labels)
    )
    return _rgb(_drawn(frame, table, labels=True, text_size=18))


def _legend(width: int) -> np.ndarray:
    return _strip(width, list(_LEGEND.items()), min(300, width // 4))


def _row(cells: Sequence[np.ndarray], columns: int, height: int) -> np.ndarray:
    padded = [np.pad(cell, ((0, height - len(cell)), (0, 0), (0, 0))) for cell in cells]
    padded += [np.zeros((height, _CELL, 3), np.uint8)] * (columns - len(cells))
    return np.concatenate(padded, axis=1)


def _rgb(frame: Frame) -> np.ndarray:
    assert frame.surface is not None
    return to_rgb(frame.surface, frame.width, frame.height)


def _write(path: Path, image: np.ndarray) -> None:
    import cv2

    done, data = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert done
    AtomicFile(path).write(data.tobytes())
