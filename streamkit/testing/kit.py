# SPDX-License-Identifier: Apache-2.0
"""Test kit for stage authors: makes frames and detections, and runs a stage on them without a pipeline.

A test of a stage is an ordinary pytest test:

    from streamkit.testing.kit import detections, frames, plugin_stages, run_stage

    Tripwire = plugin_stages("plugins/tripwire.py")["tripwire"]

    def test_it_counts():
        given = frames(2)
        given[0].detections = detections([[10, 20, 30, 40]], label=["car"], track_id=[7])
        first, second = run_stage(Tripwire(line=((0, 0), (0, 90))), given)
        assert first.events == []
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamkit.core.data import Batch, Color, Detections, Frame, Surface
from streamkit.core.stage import Composite, Context, Registry, Source, Stage

if TYPE_CHECKING:
    from streamkit.config.plan import Node
    from streamkit.tracking.tracker import TrackerMethod

__all__ = ["detections", "frames", "plugin_stages", "plugin_trackers", "run_stage"]

_GRAY = 128


def frames(
    n: int,
    source: str = "test",
    *,
    width: int = 640,
    height: int = 360,
    step_s: float = 0.04,
    pixels: bool | np.ndarray = False,
    start: int = 0,
) -> list[Frame]:
    """Make `n` frames of one source, without detections.

    Args:
        n: number of frames.
        source: the source's id.
        width: in pixels.
        height: in pixels.
        step_s: seconds between frames; frame i is at i x `step_s`.
        pixels: False for none, True for gray frames, or the pixels of every frame: (height, width, 3) uint8 RGB, which
            also determines the size.
        start: the first frame's index.
    """
    surface: Surface | None = None
    if isinstance(pixels, np.ndarray):
        from streamkit.ops.color import from_rgb

        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
            shape = f"{pixels.dtype}{list(pixels.shape)}"
            raise ValueError(f"pixels must be uint8 of shape (height, width, 3), got {shape}")
        height, width = pixels.shape[:2]
        surface = Surface(from_rgb(pixels, Color()), Color())
    elif pixels:
        surface = gray(width, height)
    return [Frame(source, i, i * step_s, width, height, surface) for i in range(start, start + n)]


def gray(width: int, height: int) -> Surface:
    """A gray surface; odd sizes are padded to even ones."""
    return Surface(np.full(((height + height % 2) * 3 // 2, width + width % 2), _GRAY, np.uint8), Color())


def detections(
    xyxy: Any = (),
    score: Any = None,
    class_id: Any = None,
    track_id: Any = None,
    *,
    label: Sequence[str] | None = None,
    labels: Sequence[str] = (),
    **extra: Any,
) -> Detections:
    """Make a table of n objects from plain lists.

    Args:
        xyxy: n boxes [x1, y1, x2, y2] in source pixels.
        score: n scores; 1 by default.
        class_id: n classes, indices into `labels`; 0 by default.
        track_id: n tracks, -1 for none; no such column by default.
        label: n class names, instead of `class_id`.
        labels: the names of all classes; by default those in `label`, in order of appearance.
        extra: further columns of n rows.

    Raises:
        ValueError: a column has another length, both `label` and `class_id` are given, or a name is not in `labels`.
    """
    boxes = np.asarray(xyxy, np.float32).reshape(-1, 4)
    if label is not None:
        if class_id is not None:
            raise ValueError("detections takes label or class_id, not both")
        labels = tuple(labels) or tuple(dict.fromkeys(label))
        unknown = [name for name in label if name not in labels]
        if unknown:
            raise ValueError(f"label {unknown[0]!r} is not among labels: {', '.join(labels)}")
        class_id = [labels.index(name) for name in label]
    n = len(boxes)
    return Detections(
        boxes,
        np.ones(n, np.float32) if score is None else np.asarray(score, np.float32),
        np.zeros(n, np.int32) if class_id is None else np.asarray(class_id, np.int32),
        track_id=None if track_id is None else np.asarray(track_id, np.int64),
        labels=tuple(labels),
        extra={name: np.asarray(column) for name, column in extra.items()},
    )


def plugin_stages(path: str | Path) -> dict[str, type[Stage]]:
    """Load the stages of a plugin file, or of a folder of them, by name.

    Raises:
        ConfigError: the path does not exist, or a file cannot be loaded.
    """
    return dict(_loaded(path))


def plugin_trackers(path: str | Path) -> dict[str, TrackerMethod]:
    """Load the tracker methods of a plugin file, or of a folder of them, by name, for `Track(method=...)`.

    Raises:
        ConfigError: the path does not exist, or a file cannot be loaded.
    """
    return dict(_loaded(path).trackers)


def _loaded(path: str | Path) -> Registry:
    from streamkit.config.plugins import load_plugins

    registry = Registry()
    load_plugins(Path(path), registry)
    return registry


def run_stage(
    stage: Stage,
    frames: Iterable[Frame] = (),
    *,
    batch: int | Sequence[int] = 4,
    stage_id: str = "",
    on_error: Literal["skip", "stop"] = "stop",
) -> list[Frame]:
    """Run a stage of any kind on frames from `open` to `close`, as a pipeline on the CPU does.

    Args:
        stage: the stage, which is itself run. If the runner makes further instances, such as one per source of a frame
            stage, they have the same options.
        frames: the frames, of one source or of several in any order; none for a source. They are not changed.
        batch: frames per batch, at least 1, or the sizes of the batches in turn.
        stage_id: the stage's id; its name by default.
        on_error: `stop` raises the stage's errors; `skip` marks the frame as failed, as a pipeline does by default.

    Returns:
        The frames after the stage, in the given order; for a source, its frames.

    Raises:
        StageError: the stage raised; names the frame. The stage's own error is its cause.
        ValueError: `batch` is not a number of frames.
    """
    from streamkit.config.checks.parts import parts_before
    from streamkit.config.plan import Node, RunOptions
    from streamkit.core.yaml_tree import YamlNode

    name = stage_id or stage.name
    if isinstance(stage, Source):
        return _run_source(stage, name)
    options = {f.name: getattr(stage, f.name) for f in dataclasses.fields(stage) if f.init}  # type: ignore[arg-type]
    run = RunOptions(on_error=on_error)
    place = YamlNode({}, "test", 0, 0)
    parts = stage.parts() if isinstance(stage, Composite) else parts_before(type(stage), options)
    nodes = [Node(f"{name}.{part.name}", part.type, part.options, [], run, place) for part in parts]
    if not isinstance(stage, Composite):
        nodes.append(Node(name, type(stage), options, [], run, place))
    for above, node in itertools.pairwise(nodes):
        node.inputs = [above.id]
    return run_nodes(nodes, frames, batch=batch, first=None if parts else stage)


def run_nodes(
    nodes: Sequence[Node], frames: Iterable[Frame], *, batch: int | Sequence[int] = 4, first: Stage | None = None
) -> list[Frame]:
    """Run stages of a graph on frames, one after the other on this thread, as `run_stage` does.

    Args:
        nodes: the stages, each after its inputs. Inputs outside `nodes` are ignored, and a stage without inputs in
            `nodes` gets the frames.
        frames: the frames.
        batch: frames per batch, or the sizes of the batches in turn.
        first: an instance to use as the first instance of the first stage.

    Returns:
        The frames after the last of `nodes`.
    """
    from streamkit.runtime.execution.runners import runner
    from streamkit.runtime.execution.tables import merge_batches, split

    frame_list = list(frames)
    sources = list(dict.fromkeys(frame.source for frame in frame_list))
    sizes = (batch,) if isinstance(batch, int) else tuple(batch)
    if not sizes or min(sizes) < 1:
        raise ValueError(f"batch must be a whole number from 1, or a list of such numbers, got {batch!r}")
    runners = [runner(node, lambda name: _context(name, max(sizes)), _raise, sources) for node in nodes]
    if first is not None:
        _use(runners[0], first)
    done: list[Frame] = []
    opened = []
    try:
        for node_runner in runners:
            node_runner.open()
            opened.append(node_runner)
        for whole in _batches(frame_list, sizes):
            results_by_node: dict[str, Batch] = {}
            for node_runner in runners:
                inputs = [results_by_node[name].fork() for name in node_runner.node.inputs if name in results_by_node]
                results_by_node[node_runner.node.id] = node_runner.run(
                    merge_batches(inputs) if inputs else whole.fork()
                )
            last = results_by_node[nodes[-1].id] if nodes else whole
            split(last)
            done += sorted([*last.frames, *last.failed], key=lambda frame: frame._state.position)
    finally:
        for node_runner in reversed(opened):
            node_runner.close()
    return done


def _run_source(stage: Source, name: str) -> list[Frame]:
    stage.context = _context(name, 1)
    stage.open()
    try:
        return list(stage.frames())
    finally:
        stage.close()


def _context(name: str, size: int) -> Context:
    return Context(name, batch_sizes=tuple(range(1, size + 1)))


def _raise(error: BaseException) -> None:
    raise error


def _use(runner: Any, first: Stage) -> None:
    """Use `first` as the runner's first instance, unless the runner asks for other options than it has."""
    make: Callable[..., Stage] = runner.make
    left = [first]

    def instead(**replaced: Any) -> Stage:
        stage = make(**replaced)
        if left and all(getattr(first, name) == value for name, value in replaced.items()):
            context = stage.context
            stage = left.pop()
            stage.context = context
        return stage

    runner.make = instead


def _batches(frames: Sequence[Frame], sizes: Sequence[int]) -> Iterator[Batch]:
    """Split the frames into batches of these sizes in turn; a source ends with the batch of its last frame."""
    labels = _all_labels(frames)
    ordinals: Counter[str] = Counter()
    last = {frame.source: i for i, frame in enumerate(frames)}
    begin = sequence = 0
    while begin < len(frames):
        end = min(begin + sizes[sequence % len(sizes)], len(frames))
        ended = tuple(source for source, i in last.items() if begin <= i < end)
        whole = Batch(list(frames[begin:end]), sequence=sequence, ended=ended).fork()
        for position, frame in enumerate(whole.frames):
            frame._state.position = position
            frame._state.ordinal = ordinals[frame.source]
            ordinals[frame.source] += 1
        for name in dict.fromkeys(name for frame in whole.frames for name in frame.tables):
            tables = [frame.tables.get(name, Detections.empty()) for frame in whole.frames]
            first = Detections.empty(tuple(labels[name]))  # numbers the classes of all tables
            whole.tables[name] = Detections.concat([first, *tables], rows=[0, *range(len(tables))])
        yield whole
        begin = end
        sequence = sequence + 1


def _all_labels(frames: Sequence[Frame]) -> dict[str, dict[str, None]]:
    """The class names of each detector over all frames: in a pipeline, a detector has the same on every frame."""
    labels_by_detector: dict[str, dict[str, None]] = {}
    for frame in frames:
        for name, table in frame.tables.items():
            labels_by_detector.setdefault(name, {}).update(dict.fromkeys(table.labels))
    return labels_by_detector
