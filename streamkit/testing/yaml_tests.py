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

from collections.abc import Callable, Sequence
from typing import Any

from streamkit.config.graph import build
from streamkit.config.plan import Config
from streamkit.core.data import Event, Frame
from streamkit.core.errors import ConfigError, StageError
from streamkit.testing.kit import run_nodes
from streamkit.testing.yaml_cases import Expect, Happened, Test, read_tests


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
        echo(f"FAIL  {test.name} ({_where(test)})" if wrong else f"ok    {test.name}")
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


def _where(test: Test) -> str:
    return f"{test.place.file}:{test.place.line}:{test.place.column}"


def _events(expect: Expect, frames: Sequence[Frame]) -> list[str]:
    wanted, found = expect.events, [event for frame in frames for event in frame.events]
    if wanted is None or (len(wanted) == len(found) and all(map(_fits, wanted, found))):
        return []
    return [f"events: expected {_list(map(_wanted, wanted))}", f"        got      {_list(map(_shown, found))}"]


def _fits(wanted: Happened, event: Event) -> bool:
    names = ("kind", "stage", "source", "frame", "track_id")
    if any(getattr(wanted, name) not in (None, getattr(event, name)) for name in names):
        return False
    return all(name in event.data and _near(value, event.data[name]) for name, value in wanted.data.items())


def _wanted(event: Happened) -> str:
    named = {name: getattr(event, name) for name in ("kind", "stage", "source", "frame", "track_id")}
    return _mapping({name: value for name, value in named.items() if value is not None}, event.data)


def _shown(event: Event) -> str:
    named = {"kind": event.kind, "stage": event.stage, "source": event.source, "frame": event.frame}
    return _mapping({**named, **({"track_id": event.track_id} if event.track_id is not None else {})}, event.data)


def _mapping(named: dict[str, Any], data: dict[str, Any]) -> str:
    parts = [f"{name}: {value}" for name, value in named.items()]
    inner = ", ".join(f"{name}: {value}" for name, value in data.items())
    return "{" + ", ".join([*parts, *([f"data: {{{inner}}}"] if data else [])]) + "}"


def _list(texts: Any) -> str:
    return "[" + ", ".join(texts) + "]"


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
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value
