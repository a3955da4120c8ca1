"""The pixels that a plugin's stage gets and those that it leaves: buffers of the pool, checks, copies, retries."""

import itertools
import json
import re

import numpy as np
import pytest
from support.one_stage import Rig, batch, frames

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Color, Detections, Device, Event, Frame, Surface
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Registry, StreamStage, default_registry, stage
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.execution.isolation import COPIED
from streamkit.testing.kit import gray

with Collecting(Registry()):

    @stage("paints_frame", reads="pixels", writes="pixels")
    class PaintsFrame(FrameStage):
        """Does `what` to each frame."""

        what: object = None

        def process(self, frame: Frame) -> None:
            self.what(frame)

    @stage("paints_stream", reads="pixels", writes="pixels")
    class PaintsStream(StreamStage):
        """Does `what` to each frame of a batch."""

        what: object = None

        def process(self, batch: Batch, states: object) -> Batch:
            for frame in batch.frames:
                self.what(frame)
            return batch

    @stage("paints_batch", reads="pixels", writes="pixels")
    class PaintsBatch(BatchStage):
        """The same, of a batch."""

        what: object = None

        def process(self, batch: Batch) -> Batch:
            for frame in batch.frames:
                self.what(frame)
            return batch

    @stage("inverts", reads="pixels", writes="pixels")
    class Inverts(FrameStage):
        """Inverts frames."""

        def process(self, frame: Frame) -> None:
            invert(frame)

    @stage("blank", reads="pixels", writes="pixels")
    class Blank(FrameStage):
        """Gives every frame the same surface."""

        declared: bool = True

        def open(self) -> None:
            self.surface = gray(64, 48)

        def process(self, frame: Frame) -> None:
            frame.surface = self.surface

    @stage("blank_undeclared", reads="pixels", writes=())
    class BlankUndeclared(Blank):
        """The same, and does not say so."""


KINDS = [PaintsFrame, PaintsStream, PaintsBatch]
LINE_OF_PROCESS = {
    kind: f"(test_isolation_pixels.py:{kind.process.__code__.co_firstlineno})"
    for kind in (PaintsFrame, PaintsStream, PaintsBatch)
}


def invert(frame: Frame) -> None:
    frame.surface = Surface(255 - frame.surface.data, frame.surface.color)


def pooled(pool: SurfacePool, text: str) -> Batch:
    """A batch whose frames have surfaces of a pool; that of frame i holds i everywhere."""
    pool_batch = batch(text)
    for row, frame in enumerate(pool_batch.frames):
        frame.surface = pool.surface(64, 48, Color())
        frame.surface.data[:] = row
    return pool_batch


@pytest.fixture
def pool() -> SurfacePool:
    return SurfacePool(Device("cpu"))


# ------------------------------------------------------------------------------------------------- the pool's buffers


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_returned_while_a_stage_works_is_writable(pool, kind):
    """A decoder takes the buffer of the surface that was replaced at once, on a thread of its own."""
    taken = []

    def what(frame):
        invert(frame)
        taken.append(pool.surface(64, 48, Color()))
        taken[-1].data[:] = 7

    output_batch = Rig(kind, what=what)(pooled(pool, "a0 a1 a2"))
    assert [frame.error for frame in output_batch.frames] == [None] * 3
    assert [int(frame.surface.data[0, 0]) for frame in output_batch.frames] == [255, 254, 253]
    assert all(surface.data.flags.writeable and (surface.data == 7).all() for surface in taken)


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_surfaces_return_to_the_pool_writable(pool, kind):
    rig = Rig(kind, what=invert)
    for _ in range(3):
        rig(pooled(pool, "a0 a1 a2"))
    assert pool.held == {}
    assert pool.allocated == 3 * 64 * 72  # the same three buffers each time
    assert all(pool.surface(64, 48, Color()).data.flags.writeable for _ in range(3))


def test_a_run_with_a_surface_replacing_stage_delivers_its_pixels(run_pipeline):
    text = 'sources: {a: "test://?width=64&height=48&frames=400"}\nstages: {inverts: {}, draw: {}, collect: {}}'
    outcome = run_pipeline(text, extra=[Inverts])
    assert (outcome.code, len(outcome.records["a"])) == (0, 400)


@pytest.mark.parametrize("kind", KINDS)
def test_host_pixels_are_read_only_during_a_stage(pool, kind):
    input_batch = pooled(pool, "a0 a1")
    seen = []
    Rig(kind, what=lambda frame: seen.append(frame.surface.data.flags.writeable))(input_batch)
    assert seen == [False, False]
    assert all(frame.surface.data.flags.writeable for frame in input_batch.frames)


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_writable_again_after_a_stage_raises(pool, kind):
    input_batch = pooled(pool, "a0 a1")
    surfaces = [frame.surface for frame in input_batch.frames]

    def what(frame):
        frame.surface = None
        raise ValueError("no")

    output_batch = Rig(kind, what=what)(input_batch)
    assert len(output_batch.failed) == 2
    assert all(surface.data.flags.writeable for surface in surfaces)
    assert [
        frame.surface for frame in sorted(output_batch.failed, key=lambda failed_frame: failed_frame._state.position)
    ] == surfaces


# --------------------------------------------------------------------------------------------- what is the stage's own


def color_only(frame):
    frame.surface = Surface(frame.surface.data, Color("bt601"))


def upper_half(frame):
    frame.surface = Surface(frame.surface.data[:36], frame.surface.color)
    frame.height = 24


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", [color_only, upper_half])
def test_a_surface_that_shares_memory_is_copied_and_counted(pool, kind, what):
    rig = Rig(kind, what=what)
    output_batch = rig(pooled(pool, "a0 a1 a2"))
    for _ in range(3):
        pool.surface(64, 48, Color()).data[:] = 99  # the buffers of the old ones
    assert [int(frame.surface.data.max()) for frame in output_batch.frames] == [0, 1, 2]
    assert rig.runner.counters[COPIED] == 3


def test_new_memory_is_not_copied(pool):
    rig = Rig(PaintsFrame, what=invert)
    rig(pooled(pool, "a0 a1"))
    assert rig.runner.counters[COPIED] == 0


def test_surfaces_may_be_swapped(pool):
    """A stage that delays frames gives each the surface of the one before."""
    before = [None]

    def delay(frame):
        before[0], frame.surface = frame.surface, before[0] or frame.surface

    rig = Rig(PaintsFrame, what=delay)
    output_batches = [rig(pooled(pool, "a0 a1")), rig(pooled(pool, "a2 a3"))]
    values = [int(frame.surface.data[0, 0]) for output_batch in output_batches for frame in output_batch.frames]
    assert values == [0, 0, 1, 0]
    assert all(frame.surface.data.flags.writeable for output_batch in output_batches for frame in output_batch.frames)


def test_new_pixels_are_read_only_after_their_stage():
    input_batch = batch("a0")
    input_batch.frames[0].surface = gray(64, 48)
    (frame,) = Rig(PaintsFrame, what=invert)(input_batch).frames
    with pytest.raises(ValueError, match="read-only"):
        frame.surface.data[:] = 0


@pytest.mark.parametrize("kind", [Blank, BlankUndeclared])
def test_a_surface_shared_by_frames_is_not_drawn_on_twice(run_pipeline, kind):
    pictures = []

    with Collecting(Registry()):

        @stage("moves", writes="detections")
        class Moves(FrameStage):
            """A box that moves on."""

            def process(self, frame: Frame) -> None:
                from streamkit.testing.kit import detections

                left = 4 * frame.index
                frame.detections = detections([[left, 0, left + 4, 40]], [0.9], label=["car"])

        @stage("looks", reads="pixels")
        class Looks(FrameStage):
            """Keeps the pixels."""

            def process(self, frame: Frame) -> None:
                pictures.append(frame.surface.data.copy())

    text = (
        'sources: {a: "test://?width=64&height=48&frames=6"}\n'
        f"stages: {{{kind.name}: {{}}, moves: {{}}, draw: {{labels: false}}, looks: {{}}, collect: {{}}}}"
    )
    run_pipeline(text, extra=[kind, Moves, Looks])
    plain = gray(64, 48).data
    drawn = [(picture != plain).sum() for picture in pictures]
    assert len(drawn) == 6
    assert max(drawn) < 1.5 * min(drawn)


@pytest.mark.parametrize(("kind", "in_place"), [(Inverts, False), (BlankUndeclared, True)])
def test_nothing_is_drawn_in_place_after_a_pixel_writing_plugin(kind, in_place):
    """CuPy arrays cannot be made read-only, so the graph has to know."""
    registry = default_registry()
    registry.add(kind)
    text = f'sources: {{a: "test://"}}\nstages: {{{kind.name}: {{}}, draw: {{}}}}'
    graph = build(read_text(text, registry=registry))
    assert graph.nodes["draw"].in_place is in_place


def test_a_retried_batch_has_its_original_pixels():
    calls = itertools.count()

    def what(frame):
        invert(frame)
        frame.width = 64
        frame.height = 48
        if next(calls) == 1:  # the second frame, at the first try
            raise ValueError("no")

    for kind in (PaintsStream, PaintsBatch):
        calls = itertools.count()
        input_batch = pooled(SurfacePool(Device("cpu")), "a0 a1 a2")
        output_batch = Rig(kind, what=what)(input_batch)
        assert [int(frame.surface.data[0, 0]) for frame in output_batch.frames] == [255, 254, 253]


def test_the_size_is_restored_before_a_retry():
    seen = []

    def what(frame):
        seen.append((frame.width, frame.height))
        upper_half(frame)
        if len(seen) == 2:
            raise ValueError("no")

    output_batch = Rig(PaintsBatch, what=what)(pooled(SurfacePool(Device("cpu")), "a0 a1"))
    assert seen == [(64, 48)] * 4
    assert [(frame.width, frame.height) for frame in output_batch.frames] == [(64, 24)] * 2


# --------------------------------------------------------------------------------------------------- what is refused


def sets(name, value):
    return lambda frame: setattr(frame, name, value)


def resized(frame):
    frame.surface = gray(32, 24)


def fortran(frame):
    frame.surface = Surface(np.asfortranarray(frame.surface.data), frame.surface.color)


def assigned(frame):
    frame.surface.data = frame.surface.data.copy()


def table_set(value):
    return lambda frame: frame.tables.update(detect=value)


REFUSED = [
    (
        sets("surface", np.zeros((72, 64), np.uint8)),
        "TypeError: frame.surface must be a Surface or None, got "
        "numpy.ndarray; write frame.surface = Surface(array, frame.surface.color) with an NV12 array",
    ),
    (
        resized,
        "ValueError: frame.surface is 32x24, but the frame is 64x48; set frame.width and frame.height with the "
        "surface, and scale the boxes of frame.detections",
    ),
    (fortran, "ValueError: frame.surface.data must be C-contiguous; copy it: numpy.ascontiguousarray(array)"),
    (assigned, "ValueError: surface.data must not be assigned to; write frame.surface = Surface(array, color)"),
    (sets("events", None), "TypeError: frame.events must be a list, got NoneType; use frame.emit(kind, ...)"),
    (
        lambda frame: frame.events.append({"kind": "x"}),
        "TypeError: frame.events must hold Event, got dict; use frame.emit(kind, ...)",
    ),
    (lambda frame: frame.emit(7), "TypeError: an Event's kind must be a str and its data a dict, got 7 and dict"),
    (
        lambda frame: frame.events.append(Event("x", "it", "a", 0, 0.0, data=None)),
        "TypeError: an Event's kind must be a str and its data a dict, got 'x' and NoneType",
    ),
    (sets("facts", None), "TypeError: frame.facts must be a dict with str keys, got NoneType"),
    (lambda frame: frame.facts.update({7: 1}), "TypeError: frame.facts must be a dict with str keys, got dict"),
]
OF_FRAMES = [
    (table_set([1]), "TypeError: tables['detect'] must be a Detections, got list"),
    (sets("tables", None), "TypeError: frame.tables must be a dict of Detections, got NoneType"),
]


@pytest.mark.parametrize(
    ("kind", "what", "message"),
    [(kind, *case) for kind in KINDS for case in REFUSED] + [(PaintsFrame, *case) for case in OF_FRAMES],
)
def test_contract_violations_of_a_stage_are_reported_with_its_line(pool, kind, what, message):
    rig = Rig(kind, what=lambda frame: what(frame) if frame.index == 1 else None)
    input_batch = pooled(pool, "a0 a1 a2")
    for frame in input_batch.frames:
        frame.events.append(Event("before", "other", "a", frame.index, 0.0))
        frame.facts["known"] = 1
    surfaces = [frame.surface for frame in input_batch.frames]
    arrays = [surface.data for surface in surfaces]
    output_batch = rig(input_batch)
    (failed,) = output_batch.failed
    assert failed.error == f"it failed on a frame 1 (0.10 s): {message} {LINE_OF_PROCESS[kind]}"
    assert [frame.index for frame in output_batch.frames] == [0, 2]
    assert output_batch.table("detect").score.tolist() == [0, 2]
    # what had been there is there again
    assert ([event.kind for event in failed.events], failed.facts) == (["before"], {"known": 1})
    assert (failed.surface, failed.width, failed.height) == (surfaces[1], 64, 48)
    assert all(surface.data is data for surface, data in zip(surfaces, arrays, strict=True))


def test_a_missing_surface_is_accepted_and_odd_sizes_are_padded():
    input_batch = batch("a0 a1")
    for frame in input_batch.frames:
        frame.surface = gray(64, 48)

    def what(frame):
        if frame.index:
            frame.surface = gray(31, 23)
            frame.width = 31
            frame.height = 23
        else:
            frame.surface = None

    output_batch = Rig(PaintsFrame, what=what)(input_batch)
    assert [frame.surface is None for frame in output_batch.frames] == [True, False]
    assert output_batch.failed == []


def swapped(batch):
    batch.frames.reverse()


def foreign(batch):
    batch.frames[0] = frames("z9")[0]
    return batch


def no_frame(batch):
    batch.frames[0] = None


def doubled(batch):
    batch.frames[1] = batch.frames[0]


def fewer(batch):
    del batch.frames[-1]


def beyond_the_last_frame(batch):
    row = np.array([len(batch.frames)], np.int32)
    batch.tables["mine"] = Detections(
        np.zeros((1, 4), np.float32), np.ones(1, np.float32), np.zeros(1, np.int32), batch_row=row, labels=("x",)
    )


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (fewer, r"process must return every frame of the batch, got \d of \d"),
        (beyond_the_last_frame, r"tables\['mine'\].batch_row must be frame indices in the batch, from 0 to \d"),
        (swapped, "process must return the frames of the batch in their order"),
        (foreign, "process must return the frames of the batch in their order"),
        (doubled, "process must return the frames of the batch in their order"),
        (no_frame, "batch.frames must hold Frame, got NoneType"),
        (lambda batch: setattr(batch, "tables", None), "batch.tables must be a dict of Detections, got NoneType"),
        (lambda batch: setattr(batch, "tensor", [1]), "batch.tensor must be an array of numpy, got list"),
        (
            lambda batch: setattr(batch, "tensor", np.zeros((0, 3, 8, 8))),
            r"batch.tensor must have 4 axes and \d rows, one per frame, got shape \[0, 3, 8, 8\]",
        ),
        (
            lambda batch: setattr(batch, "tensor", np.zeros((3, 8, 8))),
            r"batch.tensor must have 4 axes and \d rows, one per frame, got shape \[3, 8, 8\]",
        ),
        (lambda batch: batch.outputs.update(scores=7), r"batch.outputs\['scores'\] must be an array of numpy, got int"),
    ],
)
def test_a_batch_that_breaks_the_contract_is_refused(what, message):
    rig = Rig(PaintsBatch, what=None)
    rig.runner.stage.process = lambda batch: (what(batch), batch)[1] if len(batch) > 1 else batch
    input_batch = batch("a0 b0 a1")
    output_batch = rig(input_batch)  # frame by frame it is well
    assert output_batch.failed == []
    assert [frame._state.position for frame in output_batch.frames] == [0, 1, 2]
    with pytest.raises((TypeError, ValueError), match=message):
        rig.runner.process(batch("a0 b0 a1"))


def test_frames_copied_by_a_stage_keep_their_identity():
    rig = Rig(PaintsBatch, what=None)
    rig.runner.stage.process = lambda batch: batch.fork()
    output_batch = rig(batch("a0 b0"))
    assert ([frame.source for frame in output_batch.frames], output_batch.failed) == (["a", "b"], [])


def test_an_error_has_the_line_of_the_stage_or_its_process_method(pool):
    def what(frame):
        frame.surface.data[:] = 0

    (failed,) = Rig(PaintsFrame, what=what)(pooled(pool, "a0")).failed
    assert re.search(r"read-only \(test_isolation_pixels\.py:\d+\)$", failed.error)
    assert failed.error.endswith(f"(test_isolation_pixels.py:{what.__code__.co_firstlineno + 1})")


# ---------------------------------------------------------------------------------------------------------- on a GPU


def totals(run_pipeline, device, what, *kinds):
    """The sum of each frame's pixels behind `what`, which gets each frame in a stage of each of these kinds."""
    sums = []

    with Collecting(Registry()):

        @stage("adds_up", reads="pixels")
        class AddsUp(FrameStage):
            """Notes the sum of the pixels."""

            def process(self, frame: Frame) -> None:
                sums.append((frame.index, int(frame.surface.data.astype(np.int64).sum())))

        stage_types = []
        for number, kind in enumerate(kinds):
            kind_type = type(
                kind.__name__, (kind,), {"__doc__": "Mine.", "open": lambda self: setattr(self, "what", what)}
            )
            stage_types.append(stage(f"mine_{number}", reads="pixels", writes="pixels")(kind_type))

    stages = {**{kind.name: {} for kind in stage_types}, "adds_up": {}, "collect": {}}
    text = json.dumps({"sources": {"a": "test://?width=640&height=480&frames=200"}, "stages": stages})
    outcome = run_pipeline(text, device=device, extra=[*stage_types, AddsUp])
    assert outcome.code == 0
    return sums, outcome.report["counts"].get(COPIED, 0)


def invert_color_only(frame):
    frame.surface = Surface(frame.surface.data, Color("bt601"))


@pytest.mark.parametrize("kinds", [[PaintsFrame], [PaintsBatch], [PaintsBatch, PaintsFrame], [PaintsStream]])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_replaced_pixels_arrive_complete(run_pipeline, monkeypatch, device, kinds):
    """With buffers that are filled when they come back, an early return shows as another sum."""
    monkeypatch.setenv("STREAMKIT_POISON_SURFACES", "1")
    plain, _ = totals(run_pipeline, "cpu", lambda frame: None)
    inverted, copied = totals(run_pipeline, device, invert, *kinds)
    whole = 255 * 640 * 720
    assert inverted == [(index, whole - total if len(kinds) % 2 else total) for index, total in plain]
    assert copied == 0
    again, copied = totals(run_pipeline, device, invert_color_only, *kinds)
    assert again == plain
    assert copied == 200 * len(kinds)


@pytest.mark.gpu
def test_pixels_on_the_wrong_side_are_refused(run_pipeline):
    def to_host(frame):
        frame.surface = Surface(frame.surface.data.get(), frame.surface.color)

    with Collecting(Registry()):

        @stage("to_host", reads="pixels", writes="pixels")
        class ToHost(FrameStage):
            """Brings pixels to the host."""

            def process(self, frame: Frame) -> None:
                to_host(frame)

    text = 'sources: {a: "test://?width=64&height=48&frames=3"}\nstages: {to_host: {}, collect: {}}'
    outcome = run_pipeline(text, device="cuda", extra=[ToHost])
    message = "frame.surface.data must be an array of cupy, got numpy.ndarray"
    assert [message in record["error"] for record in outcome.records["a"]] == [True] * 3


@pytest.mark.gpu
def test_host_stages_work_on_the_gpu_of_the_pipeline():
    import cupy

    from streamkit.runtime.execution.device import gpu_count, lane_device

    for index in range(gpu_count()):
        with lane_device(Device("cuda", index), False).activate():
            assert cupy.cuda.Device().id == index
