# SPDX-License-Identifier: Apache-2.0
"""Runs the tests in a pipeline's YAML: objects are inserted before one stage, and its output is compared.

For example:

    tests:
      - name: a walker crosses once
        insert_at: crossing
        given:
          - {track_id: [7], xyxy: [[10, 60, 30, 80]]}
          - {track_id: [7], xyxy: [[10, 100, 30, 120]]}
        expect:
          events: [{kind: crossed, track_id: 7, data: {direction: in}}]

`expect` may have `events`, `objects` (an entry for each frame of `given`) and `count`; what it leaves out is not
compared. `extract_from` names a later stage whose output is compared instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from streamkit.config.graph import build
from streamkit.config.plan import Config, Graph, Node
from streamkit.config.validate import OptionValidator
from streamkit.core.data import Event, Frame
from streamkit.core.errors import ConfigError, Problem, StageError
from streamkit.core.stage import Sink
from streamkit.core.text import did_you_mean
from streamkit.core.units import Count, Score, Seconds, WallClock
from streamkit.core.yaml_tree import YamlNode
from streamkit.testing.kit import detections, gray, run_nodes

_STEP_S = 0.04


def run_tests(config: Config, echo: Callable[[str], None]) -> int:
    """Run the tests of a pipeline, report each result, and return the exit code: 0 if all pass, else 1.

    Raises:
        ConfigError: with every problem of the pipeline and its tests; or if there are no tests.
    """
    tests = read_tests(build(config))
    if not tests:
        raise ConfigError(
            f"{config.file} has no tests; write some under tests:, each with name, insert_at, given and expect"
        )
    failed = 0
    for test in tests:
        wrong = run_test(test)
        failed += bool(wrong)
        where = f"{test.place.file}:{test.place.line}:{test.place.column}"
        echo(f"FAIL  {test.name} ({where})" if wrong else f"ok    {test.name}")
        for text in wrong:
            echo(f"      {text}")
    echo(f"{len(tests) - failed} of {len(tests)} tests passed")
    return 1 if failed else 0


def run_test(test: Test) -> list[str]:
    """Run one test; return the differences from what is expected, one text each."""
    try:
        frames = run_nodes(test.nodes, test.frames)
    except StageError as error:
        return [str(error)]
    return [*_events(test.expect, frames), *_objects(test.expect, frames), *_count(test.expect, frames)]


def _events(expect: Expect, frames: Sequence[Frame]) -> list[str]:
    wanted = expect.events
    frame_events = [event for frame in frames for event in frame.events]
    if wanted is None or (len(wanted) == len(frame_events) and all(map(_fits, wanted, frame_events))):
        return []
    expected, shown = (f"[{', '.join(map(_shown, events))}]" for events in (wanted, frame_events))
    return [f"events: expected {expected}", f"        got      {shown}"]


_EVENT_FIELDS = ("kind", "stage", "source", "frame", "track_id")


def _fits(wanted: ExpectedEvent, event: Event) -> bool:
    if any(getattr(wanted, name) not in (None, getattr(event, name)) for name in _EVENT_FIELDS):
        return False
    return all(name in event.data and _near(value, event.data[name]) for name, value in wanted.data.items())


def _shown(event: ExpectedEvent | Event) -> str:
    named = {name: getattr(event, name) for name in _EVENT_FIELDS}
    parts = [f"{name}: {value}" for name, value in named.items() if value is not None]
    inner = ", ".join(f"{name}: {value}" for name, value in event.data.items())
    return "{" + ", ".join([*parts, *([f"data: {{{inner}}}"] if event.data else [])]) + "}"


def _objects(expect: Expect, frames: Sequence[Frame]) -> list[str]:
    wrong = []
    for number, (wanted, frame) in enumerate(zip(expect.objects or (), frames, strict=False)):
        table = frame.detections
        for name, values in wanted.columns().items():
            column: Any = table.extra.get(name) if name in wanted.extra else getattr(table, name)
            got = column.tolist() if hasattr(column, "tolist") else column
            if got is None or not _near(values, got):
                wrong.append(f"objects of frame {number}: expected {name} {values}, got {_rounded(got)}")
    return wrong


def _count(expect: Expect, frames: Sequence[Frame]) -> list[str]:
    counts = [len(frame.detections) for frame in frames]
    got = counts if isinstance(expect.count, list) else sum(counts)
    return [] if expect.count in (None, got) else [f"count: expected {expect.count}, got {got}"]


def _near(wanted: Any, got: Any) -> bool:
    """Compare values, numbers to 1 in 10,000: arrays are float32, and a YAML has rounded numbers."""
    if isinstance(wanted, (list, tuple)):
        return isinstance(got, (list, tuple)) and len(wanted) == len(got) and all(map(_near, wanted, got))
    if isinstance(wanted, dict):
        return isinstance(got, dict) and wanted.keys() == got.keys() and all(_near(wanted[k], got[k]) for k in wanted)
    if isinstance(wanted, float) or isinstance(got, float):
        numbers = isinstance(wanted, (int, float)) and isinstance(got, (int, float))
        return numbers and abs(wanted - got) <= 1e-4 * max(1.0, abs(wanted))
    return bool(wanted == got)


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(number) for number in value]
    return round(value, 4) if isinstance(value, float) else value


# ----------------------------------------------------------------------------------------------------- tests as written


@dataclass(slots=True, kw_only=True)
class ObjectColumns:
    """The objects of one frame, a list for each column; of an expectation, the columns to compare."""

    xyxy: Annotated[
        list[tuple[float, float, float, float]] | None, "x1, y1, x2, y2 of each object, in pixels of the source"
    ] = None
    score: Annotated[list[Score] | None, "confidence of each object"] = None
    label: Annotated[list[str] | None, "class of each object"] = None
    track_id: Annotated[list[int] | None, "track of each object; -1 for an object without one"] = None
    extra: Annotated[dict[str, list[Any]], "further columns, such as speed_kmh, a value for each object"] = field(
        default_factory=dict
    )

    def columns(self) -> dict[str, list[Any]]:
        """The columns that are set, by name."""
        named = {name: getattr(self, name) for name in ("xyxy", "score", "label", "track_id")}
        return {name: column for name, column in named.items() if column is not None} | self.extra

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        lengths = {name: len(column) for name, column in self.columns().items()}
        if len(set(lengths.values())) > 1:
            lengths_text = ", ".join(f"{name} {n}" for name, n in lengths.items())
            raise ValueError(f"has columns of different lengths: {lengths_text}; give a value for each object")


@dataclass(slots=True, kw_only=True)
class GivenFrame(ObjectColumns):
    """One frame put in."""

    source: Annotated[str | None, "id of the source; if not set, the first of the pipeline"] = None
    width: Annotated[Count | None, "width of the frame in pixels; if not set, that of the previous frame, or 640"] = (
        None
    )
    height: Annotated[Count | None, "height of the frame in pixels; if not set, that of the previous frame, or 360"] = (
        None
    )
    pts_s: Annotated[Seconds | None, "presentation time; if not set, 40 ms after the previous frame"] = None
    time: Annotated[WallClock | None, "wall clock; if not set, the frame has none"] = None

    def __post_init__(self) -> None:
        """Refuse objects without boxes, and invalid boxes."""
        ObjectColumns.__post_init__(self)
        if self.xyxy is None and self.columns():
            raise ValueError("needs xyxy: [[x1, y1, x2, y2]], a box for each object")
        if any(x1 > x2 or y1 > y2 for x1, y1, x2, y2 in self.xyxy or ()):
            raise ValueError("needs boxes x1, y1, x2, y2 with x1 <= x2 and y1 <= y2")


@dataclass(slots=True, kw_only=True)
class ExpectedEvent:
    """One expected event; a field that is None or missing from `data` is not compared."""

    kind: Annotated[str | None, "kind of the event"] = None
    stage: Annotated[str | None, "id of the stage that emits it"] = None
    source: Annotated[str | None, "id of the source"] = None
    frame: Annotated[int | None, "number of the frame, from 0"] = None
    track_id: Annotated[int | None, "the track it concerns"] = None
    data: Annotated[dict[str, Any], "values of its data to compare; others may be there"] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Expect:
    """The expected output: all events in order, objects and their number per frame, or the number in all frames."""

    events: Annotated[list[ExpectedEvent] | None, "all events, in order"] = None
    objects: Annotated[list[ObjectColumns] | None, "the objects of each frame of given"] = None
    count: Annotated[int | list[int] | None, "number of objects in all frames together, or a number for each frame"] = (
        None
    )

    def __post_init__(self) -> None:
        """Refuse an empty expectation."""
        if self.events is None and self.objects is None and self.count is None:
            raise ValueError("needs at least one of events, objects, count")


@dataclass(slots=True, kw_only=True)
class WrittenTest:
    """One test as written in the YAML."""

    name: Annotated[str, "name of the test, for its report"]
    insert_at: Annotated[str, "id of the stage that reads the frames of given"]
    extract_from: Annotated[str | None, "id of the stage whose output is compared; if not set, that of insert_at"] = (
        None
    )
    given: Annotated[list[GivenFrame], "the frames, with their objects"]
    expect: Annotated[Expect, "the expected output"]


@dataclass(slots=True)
class Test:
    """One test, ready to run.

    Attributes:
        name: the test's name.
        place: its place in the YAML.
        nodes: the stages to run, each after its inputs.
        frames: the input of the first stage.
        expect: the expected output of the last stage.
    """

    __test__: ClassVar[bool] = False  # not one of pytest's

    name: str
    place: YamlNode
    nodes: list[Node]
    frames: list[Frame]
    expect: Expect


def read_tests(graph: Graph) -> list[Test]:
    """Check the tests of a pipeline, and return them.

    Of a test that runs stages whose inputs are not certain (see `Graph.uncertain`), only the form is checked.

    Raises:
        ConfigError: with every problem of every test.
    """
    problems: list[Problem] = []
    tests = []
    for place in graph.config.tests:
        written = _written(place, problems)
        reader = _Reader(graph, place, problems)
        nodes = reader.nodes()
        if written is not None:
            tests.append(reader.read(written, nodes))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return tests


def _written(place: YamlNode, problems: list[Problem]) -> WrittenTest | None:
    """Check the form of one test; None if it is wrong."""
    if not isinstance(place.value, dict):
        keys = ", ".join(f.name for f in dataclasses.fields(WrittenTest))
        problems.append(place.problem(f"a test must be a mapping with the keys {keys}, got {place.plain()!r}"))
        return None
    values = OptionValidator(Path(), problems)(WrittenTest, place, "test")
    return None if values is None else WrittenTest(**values)


@dataclass(slots=True)
class _Reader:
    """Resolves one test against the graph."""

    graph: Graph
    place: YamlNode
    problems: list[Problem]

    def nodes(self) -> list[Node]:
        """The stages to run; none if their names are wrong, or stages cannot be read. The rest may be invalid."""
        keys = self.place.value if isinstance(self.place.value, dict) else {}
        begin, end = (keys.get(key, YamlNode(None, "", 0, 0)) for key in ("insert_at", "extract_from"))
        end = begin if end.value is None else end
        if not isinstance(begin.value, str) or not isinstance(end.value, str):
            return []
        first = self._stage("insert_at", begin)
        last = self._stage("extract_from", end) if first is not None or end is not begin else None
        if first is None or last is None or last in self.graph.uncertain:
            return []
        return self._between(first, last)

    def read(self, written: WrittenTest, nodes: list[Node]) -> Test:
        """Make the test from its checked form and its stages."""
        frames = self._frames(written, self._detector(nodes[0])) if nodes else []
        if frames:
            self._check_words(nodes, frames)
        self._check_expected(written)
        return Test(written.name, self.place, nodes, frames, written.expect)

    def _refuse(self, place: YamlNode, text: str) -> None:
        self.problems.append(place.problem(text))

    def _stage(self, key: str, place: YamlNode) -> str | None:
        """The id of a stage in the graph; of a composite, its first part, or its last for `extract_from`."""
        name: str = place.value
        nodes = self.graph.nodes
        aliases = self.graph.aliases
        if name not in nodes and name not in aliases:
            if self.graph.may_have_stage(name):
                return None
            self._refuse(place, f"{key}: there is no stage {name!r}{did_you_mean(name, [*aliases, *nodes])}")
            return None
        if name in aliases:
            name = aliases[name] if key == "extract_from" else next(id_ for id_ in nodes if id_.startswith(f"{name}."))
        if issubclass(nodes[name].type, Sink):
            self._refuse(place, f"{key}: {name} writes files; name a stage that makes objects or events")
            return None
        return name

    def _between(self, first: str, last: str) -> list[Node]:
        """The stages on all paths from `first` to `last`."""
        nodes = self.graph.nodes
        below = {first}
        above = {last}
        for node in nodes.values():
            if below.intersection(node.inputs):
                below.add(node.id)
        for node in reversed(nodes.values()):
            if above.intersection(node.readers):
                above.add(node.id)
        if last not in below:
            self._refuse(self.place.value["extract_from"], f"extract_from: {last} does not come after {first}")
            return []
        return _to_run([node for node in nodes.values() if node.id in below & above])

    def _detector(self, first: Node) -> Node:
        """The detector above the first stage, whose table receives the objects; the stage itself if there is none."""
        todo = [first.id]
        for name in todo:
            node = self.graph.nodes.get(name)
            if node is not None and "detections" in node.type.spec.writes and node is not first:
                return node
            todo += [above for above in (node.inputs if node is not None else ()) if above not in todo]
        return first

    def _frames(self, written: WrittenTest, detector: Node) -> list[Frame]:
        card = detector.options.get("model")
        labels = tuple(getattr(card, "labels", ()))
        frames_by_source: dict[str, list[Frame]] = {}
        frames = []
        if not written.given:
            self._refuse(self.place.value["given"], "given has no frame")
        for i, written_frame in enumerate(written.given):
            for row, name in enumerate(written_frame.label or ()):
                if labels and name not in labels:
                    place = self.place.follow(("given", i, "label", row))[0]
                    near = did_you_mean(name, labels, all_if_few=True)
                    self._refuse(place, f"given.label: {card.name} has no class {name!r}{near}")  # type: ignore[union-attr]
            source = written_frame.source or next((source.id for source in self.graph.sources), "test")
            before = frames_by_source.setdefault(source, [])
            width = written_frame.width or (before[-1].width if before else 640)
            height = written_frame.height or (before[-1].height if before else 360)
            pts_s = before[-1].pts_s + _STEP_S if before else 0.0
            frame = Frame(
                source, len(before), pts_s if written_frame.pts_s is None else written_frame.pts_s, width, height
            )
            frame.surface = gray(width, height)
            frame.time_s = written_frame.time
            all_labels = tuple(dict.fromkeys([*labels, *(written_frame.label or ())]))
            columns = {name: column for name, column in written_frame.columns().items() if name != "label"}
            frame.tables[detector.table] = detections(**columns, label=written_frame.label, labels=all_labels)
            before.append(frame)
            frames.append(frame)
        return frames

    def _check_words(self, nodes: Sequence[Node], frames: Sequence[Frame]) -> None:
        """Check that everything the stages read is given, or written by an earlier one."""
        tables = [table for frame in frames for table in frame.tables.values()]
        there = {"pixels", "detections", *(name for table in tables for name in table.extra)}
        there.update(["track_id"] if any(table.track_id is not None for table in tables) else [])
        for node in nodes:
            for word in node.type.spec.reads:
                if word in ("tensor", "outputs") and word not in there:
                    text = f"insert_at: {node.id} reads {word}, which a test cannot give; begin at an earlier stage"
                    self._refuse(self.place.value["insert_at"], text)
                elif word not in there:
                    column = "track_id: [1]" if word == "track_id" else f"extra: {{{word}: [1]}}"
                    text = f"given: {node.id} reads {word}; write it with the boxes, as in {column}"
                    self._refuse(self.place.value["given"], text)
            there.update(node.writes)

    def _check_expected(self, written: WrittenTest) -> None:
        expect = written.expect
        n = len(written.given)
        for name in ("objects", "count"):
            expected = getattr(expect, name)
            if isinstance(expected, list) and len(expected) != n:
                place = self.place.value["expect"].value[name]
                self._refuse(
                    place, f"expect.{name} must have an entry for each of the {n} frames given, got {len(expected)}"
                )
        for i, event in enumerate(expect.events or ()):
            if event.stage is not None and not self.graph.may_have_stage(event.stage):
                place = self.place.follow(("expect", "events", i, "stage"))[0]
                near = did_you_mean(event.stage, self.graph.nodes)
                self._refuse(place, f"expect.events.stage: there is no stage {event.stage!r}{near}")


def _to_run(nodes: list[Node]) -> list[Node]:
    """The stages as a test runs them.

    An error in a stage fails the test. Sinks are removed: stages that read from a sink read from its inputs instead.
    """
    sinks = {node.id: node for node in nodes if issubclass(node.type, Sink)}

    def behind(names: Sequence[str]) -> list[str]:
        return [
            inner_name for name in names for inner_name in (behind(sinks[name].inputs) if name in sinks else [name])
        ]

    return [
        dataclasses.replace(
            node, inputs=list(dict.fromkeys(behind(node.inputs))), run=dataclasses.replace(node.run, on_error="stop")
        )
        for node in nodes
        if node.id not in sinks
    ]
