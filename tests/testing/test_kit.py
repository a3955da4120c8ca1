from dataclasses import field

import numpy as np
import pytest

from streamkit import Batch, BatchStage, Count, FrameStage, Sink, Source, StreamStage
from streamkit.core.data import Color
from streamkit.core.errors import StageError
from streamkit.core.stage import Collecting, Composite, CompositePart, Registry, stage
from streamkit.ops.color import to_rgb
from streamkit.testing.kit import detections, frames, run_stage

REGISTRY = Registry()
LOG: list[str] = []


@pytest.fixture(autouse=True)
def _clear_log():
    LOG.clear()


with Collecting(REGISTRY):

    @stage("mark", reads="detections", writes="events")
    class Mark(FrameStage):
        """Say how many frames this instance has seen."""

        start: int = 0
        seen: int = field(default=0, init=False)

        def open(self):
            LOG.append(f"open {self.context.id}")

        def close(self):
            LOG.append("close")

        def process(self, frame):
            self.seen += 1
            frame.emit("seen", n=self.start + self.seen)

    @stage("halve", reads="detections")
    class Halve(FrameStage):
        """Keep every second object."""

        def process(self, frame):
            frame.detections = frame.detections[::2]

    @stage("fragile")
    class Fragile(FrameStage):
        """Fail on one frame."""

        bad: int = 1

        def process(self, frame):
            if frame.index == self.bad:
                raise KeyError("color")

    @stage("sizes", writes="detections")
    class Sizes(BatchStage):
        """Write the batch's size into a column."""

        limit: Count = 9

        def process(self, batch: Batch) -> Batch:
            LOG.append(f"{len(batch)} of {self.context.batch_sizes}")
            self.context.counters.add("batches")
            table = detections([[0, 0, 1, 1]] * len(batch), size=[float(len(batch))] * len(batch))
            batch.tables["sizes"] = table.with_columns(batch_row=np.arange(len(batch), dtype=np.int32))
            return batch

    @stage("count_up")
    class CountUp(StreamStage):
        """Number each source's frames."""

        def new_state(self, source):
            LOG.append(f"begin {source}")
            return [0]

        def process(self, batch, states):
            for frame in batch.frames:
                states[frame.source][0] += 1
                frame.emit("numbered", n=states[frame.source][0])
            return batch

    @stage("collect")
    class Collect(Sink):
        """Keep what is written."""

        path: str | None = None
        written: list = field(default_factory=list, init=False)

        def write(self, frame):
            self.written.append((frame.source, frame.index, frame.error))

        def end(self, source):
            self.written.append((source, "end", None))

        def close(self):
            self.written.append("closed")

    @stage("three")
    class Three(Source):
        """Make three frames."""

        def open(self):
            LOG.append("open")

        def close(self):
            LOG.append("close")

        def frames(self):
            yield from frames(3, self.context.id)

    @stage("pair")
    class Pair(Composite):
        """Two stages in one."""

        def parts(self):
            return [CompositePart("count", CountUp, {}), CompositePart("mark", Mark, {"start": 10})]


def test_frames_are_in_order_and_of_the_requested_size():
    footage = frames(3, "gate", width=64, height=36, step_s=0.5, start=4)
    assert [(f.source, f.index, f.pts_s, f.width, f.height) for f in footage] == [
        ("gate", 4, 2.0, 64, 36),
        ("gate", 5, 2.5, 64, 36),
        ("gate", 6, 3.0, 64, 36),
    ]
    assert footage[0].surface is None
    assert len(footage[0].detections) == 0


def test_frames_can_have_pixels():
    (plain,) = frames(1, width=63, height=35, pixels=True)
    assert (plain.surface.width, plain.surface.height) == (64, 36)
    image = np.zeros((20, 30, 3), np.uint8)
    image[:, 10:20] = (200, 30, 90)
    (frame,) = frames(1, pixels=image)
    assert (frame.width, frame.height, frame.surface.color) == (30, 20, Color())
    shown = to_rgb(frame.surface, 30, 20)
    assert np.abs(shown[5, 15].astype(int) - (200, 30, 90)).max() <= 3
    assert shown[5, 2].max() <= 3


def test_frames_refuse_images_of_another_shape():
    with pytest.raises(ValueError, match=r"pixels must be uint8 of shape \(height, width, 3\), got float64\[4, 4\]"):
        frames(1, pixels=np.zeros((4, 4)))


def test_detections_can_be_made_from_lists():
    table = detections([[1, 2, 3, 4], [5, 6, 7, 8]], label=["car", "bike"], track_id=[7, -1], speed=[1.5, 2.5])
    assert table.xyxy.dtype == np.float32
    assert table.score.tolist() == [1, 1]
    assert table.labels == ("car", "bike")
    assert table.label == ["car", "bike"]
    assert table.track_id.tolist() == [7, -1]
    assert table.extra["speed"].tolist() == [1.5, 2.5]
    table_with_labels = detections([[1, 2, 3, 4]], label=["car"], labels=("person", "car"))
    assert table_with_labels.class_id.tolist() == [1]
    assert len(detections()) == 0
    assert detections().track_id is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"score": [0.5, 0.5]}, r"Detections.score must have shape \(1,\)"),
        ({"label": ["car"], "class_id": [0]}, "label or class_id, not both"),
        ({"label": ["lorry"], "labels": ("car",)}, "label 'lorry' is not among labels: car"),
    ],
)
def test_detections_refuse_mismatching_columns(options, text):
    with pytest.raises(ValueError, match=text):
        detections([[1, 2, 3, 4]], **options)


def test_a_frame_stage_runs_from_open_to_close_without_changing_the_input():
    mark = Mark(start=5)
    footage = frames(3)
    processed = run_stage(mark, footage)
    assert [frame.events[0].data["n"] for frame in processed] == [6, 7, 8]
    assert [(e.kind, e.stage, e.source, e.frame) for e in processed[2].events] == [("seen", "mark", "test", 2)]
    assert mark.seen == 3
    assert LOG == ["open mark", "close"]
    assert footage[0].events == []


def test_each_source_has_an_instance_with_the_same_options():
    mark = Mark(start=5)
    mixed = [f for pair in zip(frames(2, "a"), frames(2, "b"), strict=True) for f in pair]
    processed = run_stage(mark, mixed, batch=3, stage_id="m")
    assert [(f.source, f.events[0].data["n"]) for f in processed] == [("a", 6), ("b", 6), ("a", 7), ("b", 7)]
    assert processed[0].events[0].stage == "m"
    assert mark.seen == 2
    assert LOG.count("open m") == LOG.count("close") == 2


@pytest.mark.parametrize("batch", [1, 2, 5, (1, 3)])
def test_tables_are_returned_for_each_frame_at_any_batch_size(batch):
    footage = frames(4)
    for i, frame in enumerate(footage):
        frame.detections = detections([[j, 0, j + 1, 1] for j in range(i)], label=["car", "bike", "bus"][:i])
    processed = run_stage(Halve(), footage, batch=batch)
    assert [f.detections.xyxy[:, 0].tolist() for f in processed] == [[], [0], [0], [0, 2]]
    assert [f.detections.label for f in processed] == [[], ["car"], ["car"], ["car", "bus"]]
    assert [len(f.detections) for f in footage] == [0, 1, 2, 3]


@pytest.mark.parametrize("batch", [0, -1, (2, 0), ()])
def test_a_batch_of_no_frames_is_refused(batch):
    with pytest.raises(ValueError, match="batch must be a whole number from 1, or a list of such numbers, got "):
        run_stage(Halve(), frames(2), batch=batch)
    assert LOG == []


def test_class_names_may_differ_between_frames_of_a_batch():
    footage = frames(2)
    footage[0].detections = detections([[0, 0, 1, 1]], label=["car"])
    footage[1].detections = detections([[0, 0, 1, 1], [0, 0, 2, 2]], label=["person", "car"])
    processed = run_stage(Halve(), footage)
    assert [f.detections.label for f in processed] == [["car"], ["person"]]
    assert processed[0].detections.labels == processed[1].detections.labels == ("car", "person")


def test_a_batch_stage_gets_the_requested_batches():
    sizes = Sizes()
    processed = run_stage(sizes, frames(6), batch=(1, 3))
    assert LOG == ["1 of (1, 2, 3)", "3 of (1, 2, 3)", "1 of (1, 2, 3)", "1 of (1, 2, 3)"]
    assert [f.tables["sizes"].extra["size"].tolist() for f in processed] == [[1], [3], [3], [3], [1], [1]]
    assert sizes.context.counters["batches"] == 4


def test_a_stream_stage_has_a_state_for_each_source():
    processed = run_stage(CountUp(), [*frames(2, "a"), *frames(2, "b")], batch=3)
    assert [f.events[0].data["n"] for f in processed] == [1, 2, 1, 2]
    assert LOG == ["begin a", "begin b"]


def test_a_sink_gets_every_end_and_is_closed():
    sink = Collect()
    processed = run_stage(sink, [*frames(2, "a"), *frames(1, "b")], batch=2)
    assert sink.written == [
        ("a", 0, None),
        ("a", 1, None),
        ("a", "end", None),
        ("b", 0, None),
        ("b", "end", None),
        "closed",
    ]
    assert [f.index for f in processed] == [0, 1, 0]


def test_a_sink_with_a_source_in_its_path_has_an_instance_per_path():
    sink = Collect(path="{source}.x")
    run_stage(sink, [*frames(1, "a"), *frames(1, "b")])
    assert sink.written == []


def test_a_source_returns_its_frames():
    assert [(f.source, f.index) for f in run_stage(Three())] == [("three", 0), ("three", 1), ("three", 2)]
    assert LOG == ["open", "close"]


def test_a_composite_runs_its_parts_in_order():
    processed = run_stage(Pair(), frames(2), batch=1)
    assert [[(e.stage, e.data["n"]) for e in f.events] for f in processed] == [
        [("pair.count", 1), ("pair.mark", 11)],
        [("pair.count", 2), ("pair.mark", 12)],
    ]


def test_an_error_of_a_stage_is_raised_with_its_line():
    with pytest.raises(StageError, match=r"fragile failed on test frame 1 \(0\.04 s\): KeyError: 'color'") as caught:
        run_stage(Fragile(), frames(3))
    assert isinstance(caught.value.__cause__, KeyError)


def test_with_skip_a_failed_frame_is_marked_and_the_others_continue():
    processed = run_stage(Fragile(), frames(3), on_error="skip")
    first, failed, last = (f.error for f in processed)
    assert (first, last) == (None, None)
    assert failed.startswith("fragile failed on test frame 1 (0.04 s): KeyError: 'color' (test_kit.py:")
    assert [f.index for f in processed] == [0, 1, 2]


def test_the_shipped_detector_runs_as_a_stage():
    from streamkit.models.card import find_card, load_card
    from streamkit.stages.inference.detectors import Detect

    processed = run_stage(Detect(model=load_card(find_card("demo"))), frames(2, pixels=True), batch=2)
    assert [list(f.tables) for f in processed] == [["detect"], ["detect"]]
    assert [f.detections.labels for f in processed] == [("car", "person", "bike")] * 2
