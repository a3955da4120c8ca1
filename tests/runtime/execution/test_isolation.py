"""What a plugin's stage does wrong stays its own: tables, pictures, states, and the same records whatever the batch."""

import re
import weakref

import numpy as np
import pytest
from support.one_stage import frames

from streamkit.core.data import Batch, Detections, Frame, FrameState
from streamkit.core.errors import StreamkitError
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Registry, Sink, StreamStage, stage
from streamkit.runtime.execution.isolation import PixelGuard, StateCopies, check_batch
from streamkit.testing.kit import detections, gray

BROKEN_STAGES = Registry()

with Collecting(BROKEN_STAGES):

    @stage("boxes", writes="detections")
    class Boxes(BatchStage):
        """Two objects on each frame."""

        def process(self, batch: Batch) -> Batch:
            n = len(batch.frames)
            boxes = [(0, 0, 9, 9), (9, 9, 20, 20)] * n
            table = detections(boxes, [0.9] * len(boxes), label=["car", "person"] * n)
            batch.tables["boxes"] = table.with_columns(batch_row=np.repeat(np.arange(n, dtype=np.int32), 2))
            return batch

    @stage("clumsy_frame", reads="detections", writes="events")
    class ClumsyFrame(FrameStage):
        """Does what `does` says."""

        does: str
        at: int = -1

        def open(self) -> None:
            self.seen = 0
            if self.does == "open":
                raise RuntimeError("cannot open")

        def process(self, frame: Frame) -> None:
            self.seen += 1
            frame.emit("seen", n=self.seen)
            getattr(self, f"do_{self.does}", lambda frame: None)(frame)

        def do_raise(self, frame: Frame) -> None:
            if frame.index == self.at:
                frame.detections = frame.detections[:0]
                raise KeyError("foo")

        def do_labels(self, frame: Frame) -> None:
            names = [["car"], ["person", "bike"], ["bike"], ["car", "person"]][frame.index % 4]
            frame.detections = detections([(0, 0, 9, 9)] * len(names), label=names)

        def do_sometimes(self, frame: Frame) -> None:
            if frame.index % 2:
                frame.detections = frame.detections.with_columns(looked=np.array([True, False]))

        def do_kinds(self, frame: Frame) -> None:
            column = np.array([1, 2]) if frame.index % 2 else np.array(["a", "b"])
            frame.detections = frame.detections.with_columns(foo=column)

        def do_shapes(self, frame: Frame) -> None:
            frame.detections = frame.detections.with_columns(vec=np.ones((2, 1 + frame.index % 3)))

        def do_in_place(self, frame: Frame) -> None:
            score = np.full(2, 0.25, np.float32)
            frame.detections = frame.detections.with_columns(score=score, foo=np.array([5, 6]))

        def do_short(self, frame: Frame) -> None:
            frame.detections = frame.detections.with_columns(foo=np.array([5]))

        def do_none(self, frame: Frame) -> None:
            frame.detections = None

        def do_wrong(self, frame: Frame) -> None:
            frame.tables["boxes"] = {"a": 1}

        def do_paint(self, frame: Frame) -> None:
            frame.surface.data[:] = 0

        def do_exit(self, frame: Frame) -> None:
            raise SystemExit(3)

        def close(self) -> None:
            if self.does == "close":
                raise RuntimeError("cannot close")

    @stage("clumsy_stream", writes="events")
    class ClumsyStream(StreamStage):
        """Counts frames, and raises at one."""

        does: str = ""
        at: int = -1

        def new_state(self, source: str) -> dict[str, int]:
            return {"n": 0}

        def process(self, batch: Batch, states: dict[str, dict[str, int]]) -> Batch:
            for frame in batch.frames:
                states[frame.source]["n"] += 1
                frame.emit("counted", n=states[frame.source]["n"])
                if frame.index == self.at:
                    raise ValueError("no")
            return batch

        def end(self, source: str, state: object) -> None:
            if self.does == "end":
                raise RuntimeError("cannot end")

    @stage("clumsy_batch")
    class ClumsyBatch(BatchStage):
        """Gives back what `does` says."""

        does: str

        def process(self, batch: Batch) -> Batch:
            if self.does == "drop":
                well = [row for row, frame in enumerate(batch.frames) if frame.index % 3]
                return batch.take(well) if well else Batch([])
            if self.does == "none":
                batch.tables["boxes"] = None
            if self.does == "far":
                table = batch.table("boxes")
                batch.tables["boxes"] = table.with_columns(batch_row=table.batch_row + np.int32(99))
            return batch

    @stage("clumsy_sink")
    class ClumsySink(Sink):
        """Raises where `does` says."""

        does: str
        path: str = "{source}"

        def write(self, frame: Frame) -> None:
            """Nothing is written."""

        def flush(self) -> None:
            if self.does == "flush":
                raise KeyError("flush")

        def end(self, source: str) -> None:
            if self.does == "end":
                raise KeyError("end")

        def close(self) -> None:
            if self.does == "close":
                raise KeyError("close")


@pytest.fixture
def run(run_pipeline):
    """Run a stage behind two objects a frame, on sources of 9 and 30 frames; the records of `long` beside it all."""

    def call(text: str, size: int = 8):
        return run_pipeline(
            f"""
            batch: {{size: {size}, max_wait: 1s}}
            sources: {{short: "test://?width=64&height=48&frames=9", long: "test://?width=64&height=48&frames=30"}}
            stages: {{boxes: {{}}, bad: {text}, collect: {{}}}}
            """,
            extra=[BROKEN_STAGES.get(name) for name in BROKEN_STAGES.names()],
        )

    return call


def without_numbers(outcome):
    """The records without the classes' numbers, which are those of the labels that a batch has."""
    return {
        source: [{**record, "objects": [{**o, "class_id": 0} for o in record["objects"]]} for record in records]
        for source, records in outcome.records.items()
    }


@pytest.mark.parametrize("does", ["labels", "sometimes", "kinds", "shapes", "in_place"])
def test_records_do_not_depend_on_the_batch_size(run, does):
    text = f"{{stage: clumsy_frame, does: {does}}}"
    alone = run(text, size=1)
    together = run(text, size=8)
    assert (alone.code, together.code) == (0, 0)
    assert without_numbers(alone) == without_numbers(together)
    assert len(alone.records["long"]) == 30


def test_changes_in_place_and_missing_columns_appear_in_records(run):
    objects = run("{stage: clumsy_frame, does: in_place}").records["long"][3]["objects"]
    assert [(detection["score"], detection["foo"]) for detection in objects] == [(0.25, 5), (0.25, 6)]
    records = run("{stage: clumsy_frame, does: sometimes}").records["long"]
    assert ["looked" in record["objects"][0] for record in records[:4]] == [False, True, False, True]
    labels = [
        [detection["label"] for detection in record["objects"]]
        for record in run("{stage: clumsy_frame, does: labels}").records["short"][:4]
    ]
    assert labels == [["car"], ["person", "bike"], ["bike"], ["car", "person"]]


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize(
    "text", ["{stage: clumsy_frame, does: raise, at: 5}", "{stage: clumsy_stream, at: 5}"], ids=["frame", "stream"]
)
def test_a_failed_frame_does_not_affect_events_and_states_of_others(run, text, size):
    outcome = run(text, size)
    assert outcome.code == 1
    for source, length in (("short", 9), ("long", 30)):
        counts = [[event["data"]["n"] for event in record["events"]] for record in outcome.records[source]]
        assert counts == [[n + 1] for n in range(length)]
        assert [bool(record.get("error")) for record in outcome.records[source]] == [i == 5 for i in range(length)]
        failed = outcome.records[source][5]
        assert "stream" in text or [detection["score"] for detection in failed["objects"]] == [0.9, 0.9]


@pytest.mark.parametrize(
    ("does", "pattern"),
    [
        ("short", r"Detections.extra\['foo'\] must have 2 rows to match xyxy, got 1"),
        ("none", "frame.detections must be a Detections, got NoneType"),
        ("wrong", r"tables\['boxes'\] must be a Detections, got dict"),
        ("paint", "read-only"),
        ("exit", "SystemExit: 3"),
        ("open", "cannot open"),
    ],
)
def test_every_frame_has_a_record_although_a_frame_stage_breaks_it(run, does, pattern):
    outcome = run(f"{{stage: clumsy_frame, does: {does}}}")
    assert outcome.code == 1
    assert [len(outcome.records[source]) for source in ("short", "long")] == [9, 30]
    for record in outcome.records["long"]:
        assert len(record["objects"]) == 2
        assert record["error"].startswith("bad failed on long frame ")
        assert re.search(pattern, record["error"])
        assert "(test_isolation.py:" in record["error"] or does in ("short", "none", "wrong")


@pytest.mark.parametrize(
    ("does", "message", "lost"),
    [
        ("drop", "must return every frame of the batch, got 0 of 1", [0, 3, 6]),
        ("none", r"tables['boxes'] must be a Detections, got NoneType", range(9)),
        ("far", "batch_row must be frame indices in the batch, from 0 to 0; got 99 to 99", range(9)),
    ],
)
def test_every_frame_has_a_record_although_a_batch_stage_returns_an_invalid_batch(run, does, message, lost):
    outcome = run(f"{{stage: clumsy_batch, does: {does}}}")
    assert outcome.code == 1
    records = outcome.records["short"]
    assert [i for i, record in enumerate(records) if record.get("error")] == list(lost)
    assert all(message in records[i]["error"] for i in lost)
    assert [len(outcome.records[source]) for source in ("short", "long")] == [9, 30]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{stage: clumsy_frame, does: close}", "bad failed as the source short ended: RuntimeError: cannot close"),
        ("{stage: clumsy_stream, does: end}", "bad failed as the source short ended: RuntimeError: cannot end"),
        ("{stage: clumsy_sink, path: '{source}', does: end}", "bad failed as the source short ended: KeyError: 'end'"),
        (
            "{stage: clumsy_sink, path: '{source}', does: close}",
            "bad failed as the source short ended: KeyError: 'close'",
        ),
        ("{stage: clumsy_sink, does: flush}", "bad failed as the batch was flushed: KeyError: 'flush'"),
    ],
)
def test_an_error_outside_of_frames_is_counted_and_loses_no_frame(run, text, message):
    outcome = run(text)
    assert outcome.code == 1
    assert any(line.startswith(message) and "(test_isolation.py:" in line for line in outcome.logged), outcome.logged
    assert [len(outcome.records[source]) for source in ("short", "long")] == [9, 30]
    assert outcome.report["counts"]["errors outside of frames"] >= 2


def test_an_instance_that_cannot_be_opened_is_opened_once_and_retains_no_frame(run_pipeline):
    alive: list[weakref.ref] = []
    opened: list[str] = []
    peak_alive = 0

    with Collecting(Registry()):

        @stage("shut")
        class Shut(FrameStage):
            """Cannot be opened."""

            def open(self) -> None:
                opened.append("")
                raise RuntimeError("cannot open")

        @stage("watched", writes="detections")
        class Watched(BatchStage):
            """Watches the pictures."""

            def process(self, batch: Batch) -> Batch:
                nonlocal peak_alive
                alive.extend(weakref.ref(frame.surface) for frame in batch.frames)
                peak_alive = max(peak_alive, sum(surface_ref() is not None for surface_ref in alive))
                return batch

    text = 'sources: {a: "test://?width=64&height=48&frames=600"}\nstages: {watched: {}, shut: {}, collect: {}}'
    outcome = run_pipeline(text, extra=[Shut, Watched])
    assert len(opened) == 1
    errors = [record["error"] for record in outcome.records["a"]]
    assert len(errors) == 600
    assert all(re.search(r"RuntimeError: cannot open \(test_isolation\.py:\d+\)", error) for error in errors)
    assert len(alive) == 600
    assert peak_alive < 300, "an error that is raised again and again would keep every frame"


def test_on_error_stop_ends_the_run_after_an_error_in_close(run):
    with pytest.raises(StreamkitError, match=r"bad failed as the source (short|long) ended"):
        run("{stage: clumsy_frame, does: close, run: {on_error: stop}}")


@pytest.mark.parametrize(
    ("frames", "failed", "failed_before", "fits"),
    [
        (3, 0, 0, True), (2, 1, 0, True), (1, 2, 0, True), (1, 3, 1, True), (2, 0, 0, False), (2, 2, 0, False),
        (3, 1, 2, False),
    ],
)  # fmt: skip
def test_a_batch_must_hold_every_frame_once_processed_or_failed(frames, failed, failed_before, fits):
    listed = [Frame("a", n, n / 10, 64, 48, _state=FrameState(position=n)) for n in range(8)]
    input_batch = Batch(listed[:3], failed=listed[3 : 3 + failed_before])
    output_batch = Batch(listed[:frames], failed=[*input_batch.failed, *listed[frames:3]][:failed])
    output_batch.failed += listed[6 : 6 + failed - len(output_batch.failed)]
    if fits:
        check_batch(output_batch, input_batch, BatchStage)
    else:
        with pytest.raises(ValueError, match="must return every frame of the batch"):
            check_batch(output_batch, input_batch, BatchStage)


def test_only_the_states_of_the_copied_sources_are_restored():
    messages: list[str] = []
    states = {"a": [1], "b": [2]}
    restore = StateCopies(states, messages.append).copied({"a", "c"})
    states["a"].append(5)
    states["b"].append(6)
    states["c"] = [7]
    restore()
    assert states == {"a": [1], "b": [2, 6]}
    assert messages == []


class Here(BatchStage):
    """A stage of this file."""

    def process(self, batch):
        return batch


def checked(change, count=3, failed=0):
    """Check a batch of this many frames after a change of it."""
    frame_list = frames(" ".join(f"a{number}" for number in range(count)))
    input_batch = Batch(frame_list, outputs={"old": 7})
    input_batch.tensor = np.zeros((1, 2), np.float32)  # what a stage leaves alone is not checked
    output_batch = Batch(list(frame_list), tensor=input_batch.tensor, outputs=dict(input_batch.outputs))
    change(output_batch)
    check_batch(output_batch, input_batch, Here)


def rows(*numbers):
    n = len(numbers)
    table = Detections(
        np.zeros((n, 4), np.float32),
        np.ones(n, np.float32),
        np.zeros(n, np.int32),
        batch_row=np.array(numbers, np.int32),
        labels=("x",),
    )
    return lambda batch: batch.tables.update(mine=table)


@pytest.mark.parametrize("numbers", [(-1,), (3,), (4,), (0, 3), (-1, 2), (-1, 4)])
def test_the_rows_of_a_table_must_belong_to_frames_of_the_batch(numbers):
    message = f"tables['mine'].batch_row must be frame indices in the batch, from 0 to 2; got {min(numbers)} to "
    with pytest.raises(ValueError, match=re.escape(message + str(max(numbers))) + "$"):
        checked(rows(*numbers))


def pictures(count=3):
    frame_list = frames(" ".join(f"a{number}" for number in range(count)))
    for frame in frame_list:
        frame.surface = gray(64, 48)
    return frame_list


@pytest.mark.parametrize(("which", "back"), [(None, [0, 1, 2]), ([1], [1]), ([], []), ({0: "", 2: ""}, [0, 2])])
def test_only_the_pixels_of_the_requested_rows_are_restored(which, back):
    frame_list = pictures()
    before = [frame.surface for frame in frame_list]
    guard = PixelGuard(frame_list)
    for frame in frame_list:
        frame.surface = None
        frame.width = 1
        frame.height = 1
    guard.restore(which)
    for row, frame in enumerate(frame_list):
        assert (frame.surface, frame.width, frame.height) == ((before[row], 64, 48) if row in back else (None, 1, 1))
