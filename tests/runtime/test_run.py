"""Whole runs on made-up sources: what reaches the sinks, what stays apart, and how a run ends."""

import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from streamkit.config import read_text
from streamkit.data import Batch, Color, Device, Frame, Surface
from streamkit.errors import ModelError, OutputError, SourceError, StreamkitError
from streamkit.graph import build
from streamkit.runtime.run import Pipeline
from streamkit.stage import BatchStage, Collecting, FrameStage, Registry, Sink, Source, StreamStage, stage
from streamkit.testing import detections

LOG: list[Any] = []  # what the stages below note; emptied before each test
WAIT_S = 20.0


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    """Every run, however it ends, leaves no thread."""
    LOG.clear()
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert left == []


def test_uri(**options: Any) -> str:
    wanted = {"width": 64, "height": 48, "frames": 5, **options}
    return "'test://?" + "&".join(f"{k}={v}" for k, v in wanted.items()) + "'"


test_uri.__test__ = False  # type: ignore[attr-defined]
OWN = Registry()

with Collecting(OWN):

    @stage("gray", writes="pixels")
    class Gray(Source):
        """Frames of one gray; slowly, without an end, or with an error, as asked."""

        level: int = 128
        frames_: int = 5
        width: int = 64
        height: int = 48
        pause_s: float = 0.0
        fails_at: int | None = None
        trouble: str = ""

        def open(self) -> None:
            LOG.append(("open", self.context.id))
            if self.trouble == "open":
                raise SourceError("there is no such camera")

        def close(self) -> None:
            LOG.append(("close", self.context.id))

        def frames(self) -> Iterator[Frame]:
            for index in range(self.frames_):
                if index == self.fails_at:
                    raise {"error": ValueError, "": SourceError}[self.trouble]("it broke")
                time.sleep(self.pause_s)
                surface = Surface(np.full((self.height * 3 // 2, self.width), self.level, np.uint8), Color())
                yield Frame(self.context.id, index, index / 25, self.width, self.height, surface)

    @stage("find", reads="pixels", writes="detections")
    class Find(BatchStage):
        """As many objects as the frame's index modulo 3 says; notes the batch; raises as asked."""

        bad: int | None = None
        pause_s: float = 0.0

        def process(self, batch: Batch) -> Batch:
            LOG.append([(frame.source, frame.width) for frame in batch.frames])
            time.sleep(self.pause_s)
            if any(frame.index == self.bad for frame in batch.frames):
                raise ValueError("a bad one")
            boxes, rows = [], []
            for row, frame in enumerate(batch.frames):
                for n in range(frame.index % 3):
                    boxes.append([n, frame.index, n + 5, frame.index + 5])
                    rows.append(row)
            table = detections(boxes)
            batch.tables[self.context.id] = table.with_columns(batch_row=np.array(rows, np.int32))
            return batch

    @stage("paint", reads="pixels", writes="pixels")
    class Paint(BatchStage):
        """Make the picture black, in place where the runner says that it may."""

        level: int = 0

        def process(self, batch: Batch) -> Batch:
            for frame in batch.frames:
                assert frame.surface is not None
                if getattr(self, "in_place", False):
                    frame.surface.data[:] = self.level
                else:
                    frame.surface = Surface(np.full_like(frame.surface.data, self.level), frame.surface.color)
            return batch

    @stage("tell", writes="events")
    class Tell(FrameStage):
        """An event a frame."""

        kind: str = "seen"
        bad: int | None = None

        def process(self, frame: Frame) -> None:
            if frame.index == self.bad:
                raise ValueError("cannot tell")
            frame.emit(self.kind)

    @stage("in_order")
    class InOrder(StreamStage):
        """Notes a source's frames out of order."""

        def new_state(self, source: str) -> list[int]:
            return []

        def process(self, batch: Batch, states: Any) -> Batch:
            for frame in batch.frames:
                states[frame.source].append(frame.index)
                if states[frame.source] != list(range(len(states[frame.source]))):
                    LOG.append(("out of order", frame.source, frame.index))
            return batch

    @stage("keep")
    class Keep(Sink):
        """Keeps what is written in LOG: (id, source, index, middle pixel, objects, error)."""

        pause_s: float = 0.0

        def write(self, frame: Frame) -> None:
            time.sleep(self.pause_s)
            middle = None if frame.surface is None else int(frame.surface.data[3, 3])
            LOG.append((self.context.id, frame.source, frame.index, middle, len(frame.detections), frame.error))

    @stage("trouble", reads="pixels")
    class Trouble(BatchStage):
        """Raises where it is told to."""

        where: str = "open"
        error: Any = RuntimeError

        def open(self) -> None:
            LOG.append("trouble opened")
            self._perhaps("open")

        def process(self, batch: Batch) -> Batch:
            if self.where == "process":
                raise StreamkitError("no more of this")
            return batch

        def close(self) -> None:
            LOG.append("trouble closed")
            self._perhaps("close")

        def _perhaps(self, where: str) -> None:
            if self.where == where:
                raise self.error("it does not work")

    @stage("model_trouble", reads="pixels")
    class ModelTrouble(BatchStage):
        """A model that cannot be used."""

        def open(self) -> None:
            raise ModelError("no such model")

        def process(self, batch: Batch) -> Batch:
            return batch

    @stage("noted", reads="pixels")
    class Noted(BatchStage):
        """Notes that it was opened and closed, and on which thread."""

        def open(self) -> None:
            LOG.append(("opened", self.context.id, threading.get_ident()))

        def process(self, batch: Batch) -> Batch:
            return batch

        def close(self) -> None:
            LOG.append(("closed", self.context.id, threading.get_ident()))

    @stage("unwritable")
    class Unwritable(Sink):
        """A file that cannot be written, at the moment asked for."""

        path: str = "x"
        where: str = "open"

        def open(self) -> None:
            if self.where == "open":
                raise OutputError("the disk is full")

        def write(self, frame: Frame) -> None:
            if self.where == "write":
                raise OutputError("the disk is full")

        def end(self, source: str) -> None:
            if self.where == "end":
                raise OutputError("the disk is full")


EXTRA = [OWN.get(name) for name in OWN.names()]


@pytest.fixture
def run(run_pipeline):
    def call(sources: dict[str, str], *stages: str, limit: int | None = None, head: str = ""):
        listed = "".join(f"  {name}: {text}\n" for name, text in sources.items())
        text = f"{head}\nsources:\n{listed}stages:\n" + "".join(f"  {line}\n" for line in stages)
        return run_pipeline(text, extra=EXTRA, limit=limit)

    return call


def pipeline(sources: dict[str, str], *stages: str, say=None, **options: Any) -> Pipeline:
    from streamkit.stage import default_registry

    registry = default_registry()
    for kind in EXTRA:
        registry.add(kind)
    listed = "".join(f"  {name}: {text}\n" for name, text in sources.items())
    text = f"sources:\n{listed}stages:\n" + "".join(f"  {line}\n" for line in stages)
    return Pipeline(build(read_text(text, registry=registry)), Device("cpu"), say=say or (lambda text: None), **options)


def kept(id_: str = "keep", source: str | None = None) -> list[tuple[Any, ...]]:
    return [e[1:] for e in LOG if isinstance(e, tuple) and e[0] == id_ and (source is None or e[1] == source)]


# ------------------------------------------------------------------------------------------------ what reaches sinks


def test_every_frame_of_every_source_in_order(run):
    sizes = {"a": (64, 48, 7), "b": (128, 96, 3), "c": (34, 18, 11)}
    result = run(
        {n: test_uri(width=w, height=h, frames=f) for n, (w, h, f) in sizes.items()},
        "find: {run: {instances: 2}}", "in_order: {}", "collect: {}", head="batch: 4",
    )  # fmt: skip
    assert result.code == 0
    assert kept("out of order") == []
    for name, (width, height, frames) in sizes.items():
        records = result.records[name]
        assert [one["frame"] for one in records] == list(range(frames))
        assert [len(one["objects"]) for one in records] == [i % 3 for i in range(frames)]
        assert all([one["width"], one["height"]] == [width, height] for one in records if "width" in one)
    batches = [entry for entry in LOG if isinstance(entry, list)]
    assert any(len({size for _, size in batch}) > 1 for batch in batches)  # sizes share a batch
    assert max(map(len, batches)) <= 4


def test_many_sources_at_once(run):
    sources = dict.fromkeys([f"s{i}" for i in range(300)], test_uri(width=32, height=16, frames=3))
    result = run(sources, "find: {}", "tell: {}", "collect: {}")
    assert result.code == 0
    assert {name: [one["frame"] for one in records] for name, records in result.records.items()} == {
        name: [0, 1, 2] for name in sources
    }
    assert result.report["frames"] == 900
    assert result.report["events"] == {"seen": 900}
    assert result.report["detections"] == {"find": 900}


@pytest.mark.parametrize("limit", [0, 1, 4, 100])
def test_the_limit_is_of_each_source(run, limit):
    result = run({"a": test_uri(frames=10), "b": test_uri(frames=6)}, "collect: {}", limit=limit)
    assert result.code == 0
    assert {name: len(result.records.get(name, [])) for name in "ab"} == {"a": min(10, limit), "b": min(6, limit)}
    assert {n: s["frames"] for n, s in result.report["sources"].items()} == {"a": min(10, limit), "b": min(6, limit)}


def test_instances_change_nothing(run):
    sources = {"a": test_uri(frames=40), "b": test_uri(frames=25)}
    one = run(sources, "find: {run: {instances: 1}, pause_s: 0.001}", "collect: {}")
    two = run(sources, "find: {run: {instances: 3}, pause_s: 0.001}", "collect: {}")
    assert one.records == two.records
    assert (one.report["stages"]["find"]["instances"], two.report["stages"]["find"]["instances"]) == (1, 3)
    assert one.report["stages"]["find"]["frames"] == two.report["stages"]["find"]["frames"] == 65


def test_branches_see_the_same_frames_and_no_drawing_of_each_other(run):
    result = run(
        {"a": "{stage: gray, level: 128, frames_: 9}"},
        "black: {stage: paint, level: 1, from: decode}",
        "k1: {stage: keep}",
        "white: {stage: paint, level: 250, from: decode}",
        "k2: {stage: keep}",
        "k3: {stage: keep, from: decode}",
        "k4: {stage: keep, from: black}",
    )
    assert result.code == 0
    for id_, level in (("k1", 1), ("k2", 250), ("k3", 128), ("k4", 1)):
        assert kept(id_) == [("a", i, level, 0, None) for i in range(9)], id_


def test_draw_shows_in_its_own_branch_alone(run):
    pictures: dict[str, list[np.ndarray]] = {}
    with Collecting(Registry()):

        @stage("look", reads="pixels")
        class Look(Sink):
            """Keep the pixels."""

            def write(self, frame: Frame) -> None:
                assert frame.surface is not None
                pictures.setdefault(self.context.id, []).append(frame.surface.data.copy())

    EXTRA.append(Look)
    try:
        source = {"a": "{stage: gray, frames_: 6}"}
        run(source, "find: {}", "draw: {from: find}", "drawn: {stage: look}", "plain: {stage: look, from: find}",
            "first: {stage: look, from: decode}")  # fmt: skip
        in_place = dict(pictures)
        pictures.clear()
        run(source, "find: {}", "draw: {}", "alone: {stage: look}")
    finally:
        EXTRA.remove(Look)
    assert all((one == 128).all() for one in in_place["plain"] + in_place["first"])
    assert [(one != 128).any() for one in in_place["drawn"]] == [i % 3 > 0 for i in range(6)]
    np.testing.assert_array_equal(pictures["alone"], in_place["drawn"])  # in place or on a copy: the same


def test_branches_meet_with_what_each_has_found(run):
    result = run(
        {"a": test_uri(frames=6)},
        "find: {}", "more: {stage: find, from: decode}",
        "t1: {stage: tell, kind: one, from: find}", "t2: {stage: tell, kind: two, from: find}",
        "collect: {from: [t1, t2, more]}",
    )  # fmt: skip
    records = result.records["a"]
    assert [len(one["objects"]) for one in records] == [2 * (i % 3) for i in range(6)]
    assert [sorted(e["kind"] for e in one["events"]) for one in records] == [["one", "two"]] * 6
    assert result.report["detections"] == {"find": 6, "more": 6}
    assert result.report["events"] == {"one": 6, "two": 6}


# ------------------------------------------------------------------------------------------------------- the report


def test_objects_and_events_are_counted_once_however_many_ends_there_are(run):
    for stages in (
        ["tell: {}", "k1: {stage: keep}", "k2: {stage: keep}"],  # no detector above
        ["find: {}", "k1: {stage: keep, from: find}", "tell: {from: find}", "k2: {stage: keep}"],
        ["find: {}", "tell: {}", "k1: {stage: keep}", "k2: {stage: keep, from: find}"],
        ["find: {}", "k1: {stage: keep}", "more: {stage: find, from: decode}", "tell: {from: [find, more]}",
         "k2: {stage: keep}"],
    ):  # fmt: skip
        report = run({"a": test_uri(frames=6)}, *stages).report
        assert report["events"] == {"seen": 6}, stages
        assert all(n == 6 for n in report["detections"].values()), stages
        assert set(report["detections"]) == {s.split(":")[0] for s in stages if "find" in s.split("from")[0]}, stages
        assert report["frames"] == 6


def test_the_report(run):
    result = run(
        {"a": test_uri(frames=6, fps=200), "b": test_uri(frames=4)}, "find: {bad: 3}", "tell: {}", "keep: {}",
        head="batch: 2",
    )  # fmt: skip
    report = result.report
    assert json.loads(json.dumps(report)) == report
    assert (report["schema"], report["device"], report["exit_code"]) == ("streamkit-report/1", "cpu", 1)
    assert report["frames"] == 10  # failed ones came to the end too
    assert report["seconds"] > 0
    assert report["frames_per_s"] == pytest.approx(10 / report["seconds"], rel=0.5)
    assert report["counts"] == {"frames failed": 2}
    assert report["stages"]["find"]["frames"] == 10
    assert report["stages"]["find"]["failed"] == 2
    assert report["stages"]["tell"]["frames"] == 8
    assert report["sources"] == {"a": {"frames": 6}, "b": {"frames": 4}}
    assert report["latency"] == {}  # nothing had a due time
    assert report["detections"] == {"find": sum(i % 3 for i in (0, 1, 2, 4, 5)) + 3}
    errors = [one for one in kept() if one[4]]
    assert sorted(one[:2] for one in errors) == [("a", 3), ("b", 3)]
    assert [one[1] for one in kept(source="a")] == list(range(6))  # failed frames in their place
    assert sum("find failed on" in text for text in result.said) <= 2


def test_latency_is_measured_from_the_due_time(run):
    uri = test_uri(frames=10, fps=100)
    result = run({"a": f"{{stage: test_pattern, uri: {uri}, pace: realtime, phase: 1}}"}, "keep: {pause_s: 0.002}")
    assert result.code == 0
    found = result.report["latency"]["keep"]
    assert 1.5 < found["p50_ms"] < 5000
    assert found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert result.report["seconds"] >= 0.08


# ---------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("options", "frames", "error"),
    [
        ("fails_at: 3", 3, "it broke"),
        ("fails_at: 0, trouble: error", 0, "ValueError: it broke"),
        ("trouble: open", 0, "there is no such camera"),
    ],
)
def test_a_source_that_fails_leaves_the_others(run, options, frames, error):
    result = run({"bad": f"{{stage: gray, {options}}}", "good": "{stage: gray, frames_: 8}"}, "find: {}", "keep: {}")
    assert result.code == 1
    assert [one[1] for one in kept(source="good")] == list(range(8))
    assert [one[1] for one in kept(source="bad")] == list(range(frames))
    assert result.report["sources"]["bad"] == {"frames": frames, "error": error}
    assert result.said == [f"source bad failed: {error}"]
    closed = [entry[1] for entry in LOG if isinstance(entry, tuple) and entry[0] == "close"]
    assert sorted(closed) == (["good"] if "open" in options else ["bad", "good"])


def test_a_frame_that_fails_is_counted_and_the_run_goes_on(run):
    result = run({"a": test_uri(frames=6)}, "tell: {bad: 2}", "collect: {}")
    assert result.code == 1
    assert [one["frame"] for one in result.records["a"]] == list(range(6))
    assert [bool(one.get("error")) for one in result.records["a"]] == [i == 2 for i in range(6)]
    assert result.report["counts"]["frames failed"] == 1


def test_on_error_stop_ends_the_run(run):
    with pytest.raises(StreamkitError, match=r"find failed on a frame 3 \(0\.12 s\): ValueError: a bad one"):
        run({"a": "{stage: gray, frames_: 5000}"}, "find: {bad: 3, run: {on_error: stop}}", "keep: {}")
    assert ("close", "a") in LOG
    assert 4 <= len(kept()) < 1000  # what was decoded goes to the outputs, and no more is


@pytest.mark.parametrize("error", [StreamkitError, RuntimeError])
def test_an_error_of_the_run_itself_ends_it(run, error):
    where = "process" if error is StreamkitError else "close"
    with pytest.raises(StreamkitError, match="no more of this" if where == "process" else "it does not work"):
        run({"a": "{stage: gray, frames_: 200}"}, f"trouble: {{where: {where}}}", "keep: {}")
    assert LOG.count("trouble opened") == LOG.count("trouble closed") >= 1


@pytest.mark.parametrize(
    ("stage_", "kind", "text"),
    [("trouble", StreamkitError, "it does not work"), ("model_trouble", ModelError, "no such model")],
)
def test_a_stage_that_cannot_be_opened_ends_the_run_before_its_first_frame(run, stage_, kind, text):
    with pytest.raises(StreamkitError, match=text) as caught:
        run(
            {f"s{i}": "{stage: gray}" for i in range(40)},
            "n1: {stage: noted, run: {instances: 2}}", "k1: {stage: keep, from: n1}", f"{stage_}: {{from: n1}}",
            "k2: {stage: keep}",
        )  # fmt: skip
    assert type(caught.value) is kind
    opened = [e[1:] for e in LOG if isinstance(e, tuple) and e[0] == "opened"]
    closed = [e[1:] for e in LOG if isinstance(e, tuple) and e[0] == "closed"]
    assert len(opened) == 2
    assert sorted(opened) == sorted(closed)  # each on its own thread
    assert [e for e in LOG if isinstance(e, tuple) and e[0] == "open"] == []  # no source was begun


@pytest.mark.parametrize("where", ["open", "write", "end"])
def test_an_output_that_cannot_be_written_ends_the_run_and_hangs_nobody(run, where):
    """With more sources than batches may wait between lanes."""
    with pytest.raises(OutputError, match="the disk is full"):
        run(
            {f"s{i}": "{stage: gray, frames_: 3}" for i in range(60)},
            f"unwritable: {{where: {where}, path: 'x', from: decode}}", "find: {from: decode}", "keep: {}",
        )  # fmt: skip
    if where == "open":
        assert kept() == []
    else:
        for source in {one[0] for one in kept()}:  # what was decoded has gone to the other output, without a gap
            indices = [one[1] for one in kept(source=source)]
            assert indices == list(range(len(indices)))


# -------------------------------------------------------------------------------------------------------- ends early


def test_stop_lets_through_what_is_decoded():
    running = pipeline(dict.fromkeys("abc", "{stage: gray, frames_: 1000000, pause_s: 0.001}"), "find: {}", "keep: {}")
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()))
    thread.start()
    until = time.monotonic() + WAIT_S
    while len(kept()) < 30 and time.monotonic() < until:
        time.sleep(0.005)
    running.stop()
    thread.join(WAIT_S)
    assert codes == [130]
    for name in "abc":
        indices = [one[1] for one in kept(source=name)]
        assert indices == list(range(running.states[name].frames))  # all that was handed over, in order
        assert ("close", name) in LOG
    assert sum(state.frames for state in running.states.values()) >= 30


def test_stop_ends_the_wait_for_a_paced_frame():
    uri = test_uri(frames=0, fps=0.01)
    running = pipeline({"a": f"{{stage: test_pattern, uri: {uri}, pace: realtime, phase: 0}}"}, "keep: {}")
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()))
    thread.start()
    time.sleep(0.2)
    begun = time.monotonic()
    running.stop()
    thread.join(WAIT_S)
    assert codes == [130]
    assert time.monotonic() - begun < 5


def test_a_message_is_said_once():
    said: list[str] = []
    running = pipeline({"a": test_uri()}, "keep: {}", say=said.append)
    for text in ("one", "two", "one"):
        running.say(text)
    assert said == ["one", "two"]


# ------------------------------------------------------------------------------------------------------------ memory


def test_memory_is_flat_over_many_frames():
    noted: list[int] = []
    with Collecting(Registry()):

        @stage("memory")
        class Memory(Sink):
            """Note what Python holds."""

            def open(self) -> None:
                self.count = 0

            def write(self, frame: Frame) -> None:
                self.count += 1
                if self.count % 200 == 0:
                    LOG.clear()
                    noted.append(tracemalloc.get_traced_memory()[0])

    EXTRA.append(Memory)
    try:
        running = pipeline(
            {n: test_uri(width=64, height=32, frames=3000) for n in "ab"}, "find: {}", "tell: {}", "memory: {}"
        )
        tracemalloc.start()
        try:
            assert running.run() == 0
        finally:
            tracemalloc.stop()
    finally:
        EXTRA.remove(Memory)
    assert len(noted) == 30
    early, late = sorted(noted[3:15])[6], sorted(noted[18:])[6]
    assert late - early < 250_000  # bytes, over 3,000 frames of 3,072 each: only how many are under way differs
