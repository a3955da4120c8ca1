"""The checks and copies of isolation, one at a time: what is accepted, what is refused, and where the bounds are."""

import array
import copy
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from support.one_stage import frames

from streamkit.core.data import Batch, Color, Detections, Frame, FrameState, Surface
from streamkit.core.stage import BatchStage
from streamkit.runtime.execution import isolation
from streamkit.runtime.execution.isolation import (
    BatchSnapshot,
    PixelGuard,
    StateCopies,
    check_batch,
    check_surface,
    line_of,
    type_text,
)
from streamkit.testing.kit import gray

# ----------------------------------------------------------------------------------------------------------- states


@pytest.fixture
def copying(monkeypatch):
    """Make copies that take these seconds each, on a clock that does not begin at 0; why the last one was lost."""

    def call(*seconds: float) -> list[str]:
        messages: list[str] = []
        times = iter([time_s for taken_s in seconds for time_s in (taken_s and 64.0, taken_s and 64.0 + taken_s)])
        monkeypatch.setattr(isolation, "time", SimpleNamespace(thread_time=lambda: next(times, 0.0)))
        copies = StateCopies({"a": [1]}, messages.append)
        for _ in seconds:
            copies.copied({"a"})
        copies.copied({"a"})()
        return messages

    return call


SLOW_S = 1 / 16  # exact on the clock


@pytest.mark.parametrize(
    ("seconds", "stopped"),
    [
        ([SLOW_S] * 18, False),  # with the one that is tried afterwards, 19 copies
        ([SLOW_S] * 20, True),
        ([0.0] * 30, False),
        ([0.0] * 24 + [SLOW_S], True),
        ([0.0] * 19 + [1 / 128], False),  # 0.0078 of 0.01 s
        ([0.0] * 19 + [1 / 64], True),  # 0.0156 of 0.01 s
    ],
)
def test_states_are_copied_until_it_takes_half_a_millisecond_a_batch_over_twenty(copying, seconds, stopped):
    assert bool(copying(*seconds)) is stopped


def test_the_twentieth_copy_is_the_first_whose_time_counts(copying):
    assert copying(*[SLOW_S] * 19, 0.0) == [
        "its states take 59 ms per batch to copy, so they include the frames of this batch twice"
    ]


def test_copies_that_take_just_half_a_millisecond_go_on(monkeypatch):
    monkeypatch.setattr(isolation, "_MAX_COPY_S", 1 / 2048)
    ticks = iter([0.0, 20 / 2048])
    monkeypatch.setattr(isolation, "time", SimpleNamespace(thread_time=lambda: next(ticks, 0.0)))
    messages: list[str] = []
    copies = StateCopies({"a": [1]}, messages.append)
    for _ in range(21):
        restore = copies.copied({"a"})
    restore()
    assert messages == []


@pytest.mark.parametrize(("taken_s", "shown_ms"), [(0.00254900, "2.5"), (0.00255100, "2.6"), (0.0200, "20")])
def test_the_time_of_a_copy_is_told_in_milliseconds(copying, taken_s, shown_ms):
    (text,) = copying(*[taken_s] * 20)
    assert text == f"its states take {shown_ms} ms per batch to copy, so they include the frames of this batch twice"


def test_states_are_restored_source_by_source():
    messages: list[str] = []
    states = {"a": [1], "b": [2]}
    restore = StateCopies(states, messages.append).copied({"a", "c"})
    states["a"].append(5)
    states["b"].append(6)
    states["c"] = [7]
    restore()
    assert states == {"a": [1], "b": [2, 6]}
    assert messages == []


def test_a_state_that_cannot_be_copied_is_told_with_the_reason():
    messages: list[str] = []
    states = {"a": (n for n in ())}
    copies = StateCopies(states, messages.append)
    copies.copied({"z"})()
    assert messages == []  # a source without a state has lost none
    copies.copied({"a"})()
    (text,) = messages
    assert text.startswith("its states cannot be copied (TypeError: cannot pickle 'generator' object")
    assert text.endswith("), so they include the frames of this batch twice")
    states["a"] = [1]
    copies.copied({"a"})()
    assert messages == [text] * 2  # copying has stopped for good


def test_a_snapshot_restores_what_a_stage_has_changed_on_its_frames():
    (frame,) = frames("a0")
    frame.facts["known"] = 1
    frame._state.skipped_detectors = frozenset({"one"})
    surface = frame.surface = gray(64, 48)
    snapshot = BatchSnapshot([frame])
    frame.emit("x")
    frame.facts["more"], frame.shown["line"], frame.tables["t"] = 2, object(), Detections.empty()
    frame._state.skipped_detectors = frozenset()
    frame.surface, frame.width, frame.height = None, 1, 2
    snapshot.restore()
    assert (frame.events, frame.facts, frame.shown, frame.tables) == ([], {"known": 1}, {}, {})
    assert (frame.surface, frame.width, frame.height) == (surface, 64, 48)
    assert frame._state.skipped_detectors == {"one"}


@pytest.mark.parametrize("kind", ["Event", "Stream"])
def test_copies_share_the_events_and_streams_of_cuda(monkeypatch, kind):
    class Event:
        """A handle."""

    class Stream:
        """Another."""

    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(Event=Event, Stream=Stream)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    handle = getattr(cupy.cuda, kind)()
    StateCopies({}, print)
    assert copy.deepcopy([handle])[0] is handle


# -------------------------------------------------------------------------------------------------- lines and types


class Here(BatchStage):
    """A stage of this file."""

    def process(self, batch):
        return batch


def foreign(name):
    """A function of another file that calls the one that it is given, or raises."""
    space = {}
    text = "\n" * 4321 + "def call(function=None):\n    if function: function()\n    raise ValueError('no')"
    exec(compile(text, name, "exec"), space)
    return space["call"]


def raised(call):
    with pytest.raises(ValueError, match="no") as caught:
        call()
    return caught.value


@pytest.mark.parametrize("name", ["", "/a/a.py", "~/z.py"])
def test_the_line_of_an_error_is_the_deepest_in_the_stages_file(name):
    other = foreign(name)

    def outer():
        middle()

    def middle():
        inner()

    def inner():
        other()

    line = inner.__code__.co_firstlineno + 1
    assert line_of(raised(outer), Here) == f"test_isolation_exactly.py:{line}"
    assert line_of(raised(middle), Here) == f"test_isolation_exactly.py:{line}"


def test_an_error_of_other_files_has_the_line_of_process():
    error = ValueError("no")
    assert line_of(error, Here) == f"test_isolation_exactly.py:{Here.process.__code__.co_firstlineno}"
    try:
        exec(compile("raise ValueError('no')", "other.py", "exec"))
    except ValueError as caught:
        error = caught.with_traceback(caught.__traceback__.tb_next)
    assert line_of(error, Here) == f"test_isolation_exactly.py:{Here.process.__code__.co_firstlineno}"


def test_without_a_file_and_without_a_process_the_line_is_unknown():
    assert line_of(ValueError("no"), type("Bare", (), {"__module__": "no.such.module"})) == ""
    stage_type = type("Made", (), {"__module__": "no.such.module", "process": Here.process})
    assert re.fullmatch(r"test_isolation_exactly\.py:\d+", line_of(raised(foreign("other.py")), stage_type))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NoneType"),
        ({}, "dict"),
        (np.zeros(1), "numpy.ndarray"),
        (array.array("b"), "array.array"),
        (Color(), "streamkit.core.surface.Color"),
    ],
)
def test_the_text_of_a_type_names_its_module_unless_it_is_built_in(value, text):
    assert type_text(value) == text


# ---------------------------------------------------------------------------------------------------------- batches


def checked(change, count=3, failed=0):
    """Check a batch of this many frames after a change of it."""
    listed = frames(" ".join(f"a{number}" for number in range(count)))
    input_batch = Batch(listed, outputs={"old": 7})
    input_batch.tensor = np.zeros((1, 2), np.float32)  # what a stage leaves alone is not checked
    output_batch = Batch(list(listed), tensor=input_batch.tensor, outputs=dict(input_batch.outputs))
    change(output_batch)
    check_batch(output_batch, input_batch, Here)


def rows(*numbers):
    n = len(numbers)
    table = Detections(
        np.zeros((n, 4), np.float32), np.ones(n, np.float32), np.zeros(n, np.int32),
        batch_row=np.array(numbers, np.int32), labels=("x",),
    )  # fmt: skip
    return lambda batch: batch.tables.update(mine=table)


@pytest.mark.parametrize("numbers", [(), (0,), (1,), (2,), (1, 1), (0, 2), (1, 2), (2, 0, 1)])
def test_rows_of_a_table_may_be_of_any_frame(numbers):
    checked(rows(*numbers))


@pytest.mark.parametrize("numbers", [(-1,), (3,), (4,), (0, 3), (-1, 2), (-1, 4)])
def test_rows_of_a_table_must_be_of_a_frame(numbers):
    message = f"tables['mine'].batch_row must be frame indices in the batch, from 0 to 2; got {min(numbers)} to "
    with pytest.raises(ValueError, match=re.escape(message + str(max(numbers))) + "$"):
        checked(rows(*numbers))


def test_a_table_that_is_still_to_come_needs_no_rows_even_if_every_frame_has_failed():
    def fail_all(batch):
        batch.tables["late"] = Detections.empty
        batch.failed, batch.frames = batch.frames, []

    checked(fail_all)


@pytest.mark.parametrize("before", [0, 2])
def test_half_of_the_frames_of_a_batch_may_fail(before):
    listed = frames("a0 a1 a2 a3 a4 a5")
    input_batch = Batch(listed[:4], failed=listed[4 : 4 + before])
    check_batch(Batch(listed[:2], failed=[*input_batch.failed, *listed[2:4]]), input_batch, Here)


def replaced(row):
    def change(batch):
        batch.frames[row] = Frame("z", 9, 0.9, 64, 48, _state=FrameState(position=9))

    return change


def ordered(*places):
    def change(batch):
        batch.frames = [batch.frames[place] for place in places]

    return change


@pytest.mark.parametrize(
    "change", [replaced(0), replaced(1), replaced(2), ordered(1, 0, 2), ordered(0, 2, 1), ordered(0, 0, 2)]
)
def test_frames_of_others_and_frames_out_of_order_are_refused(change):
    with pytest.raises(ValueError, match=r"^Here.process must return the frames of the batch in their order$"):
        checked(change)


def tensor(*shape, rows=None):
    def change(batch):
        batch.tensor = np.zeros(shape, np.float32)
        batch.rows = rows

    return change


@pytest.mark.parametrize(
    "change",
    [
        tensor(3, 3, 8, 8),
        tensor(5, 3, 8, 8),  # padded
        tensor(3, 1, 1, 1),
        tensor(5, 3, 8, 8, rows=np.array([0, 0, 0, 1, 2])),
        lambda batch: setattr(batch, "tensor", None),
        lambda batch: batch.outputs.update(new=np.zeros(0)),
        lambda batch: batch.outputs.clear(),
    ],
)
def test_a_tensor_with_a_row_for_each_frame_or_part_and_any_output_array_are_accepted(change):
    checked(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (tensor(2, 3, 8, 8), "batch.tensor must have 4 axes and 3 rows, one per frame, got shape [2, 3, 8, 8]"),
        (tensor(3, 8, 8), "batch.tensor must have 4 axes and 3 rows, one per frame, got shape [3, 8, 8]"),
        (tensor(3, 1, 3, 8, 8), "batch.tensor must have 4 axes and 3 rows, one per frame, got shape [3, 1, 3, 8, 8]"),
        (
            tensor(3, 3, 8, 8, rows=np.array([0, 0, 1, 2])),
            "batch.tensor must have 4 axes and 4 rows, one per frame, got shape [3, 3, 8, 8]",
        ),
        (
            lambda batch: setattr(batch, "tensor", SimpleNamespace(shape=(3, 1, 1, 1))),
            "batch.tensor must be an array of numpy, got types.SimpleNamespace",
        ),
        (
            lambda batch: batch.outputs.update(new=SimpleNamespace(dtype=np.uint8)),
            "batch.outputs['new'] must be an array of numpy, got types.SimpleNamespace",
        ),
        (lambda batch: batch.outputs.update(old=8), "batch.outputs['old'] must be an array of numpy, got int"),
    ],
)
def test_a_tensor_or_an_output_of_another_shape_or_kind_is_refused(change, message):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}$"):
        checked(change)


# ----------------------------------------------------------------------------------------------------------- pixels


@pytest.mark.parametrize(
    ("size", "surface_size"), [((64, 48), (64, 48)), ((63, 47), (64, 48)), ((65, 48), (66, 48)), ((64, 49), (64, 50))]
)
def test_a_surface_has_the_frames_size_padded_to_an_even_one(size, surface_size):
    check_surface(Frame("a", 0, 0.0, *size, gray(*surface_size)), np)


@pytest.mark.parametrize("surface_size", [(66, 48), (62, 48), (64, 50), (64, 46), (32, 96), (96, 32)])
def test_a_surface_of_another_size_is_refused(surface_size):
    with pytest.raises(
        ValueError, match=rf"^frame.surface is {surface_size[0]}x{surface_size[1]}, but the frame is 64x48; "
    ):
        check_surface(Frame("a", 0, 0.0, 64, 48, gray(*surface_size)), np)


def test_a_surface_of_another_device_is_refused():
    with pytest.raises(TypeError, match=r"^frame.surface.data must be an array of cupy, got numpy.ndarray$"):
        check_surface(Frame("a", 0, 0.0, 64, 48, gray(64, 48)), ModuleType("cupy"))


def pictures(count=3):
    listed = frames(" ".join(f"a{number}" for number in range(count)))
    for frame in listed:
        frame.surface = gray(64, 48)
    return listed


@pytest.mark.parametrize("frozen", [None, True, False])
def test_host_pixels_are_read_only_unless_a_stage_may_draw_on_them(frozen):
    listed = pictures(2)
    listed[1].surface.data.flags.writeable = False  # they were before
    guard = PixelGuard(listed) if frozen is None else PixelGuard(listed, freeze=frozen)
    with guard:
        assert [frame.surface.data.flags.writeable for frame in listed] == [frozen is False, False]
    assert [frame.surface.data.flags.writeable for frame in listed] == [True, False]


@pytest.mark.parametrize(("which", "back"), [(None, [0, 1, 2]), ([1], [1]), ([], []), ({0: "", 2: ""}, [0, 2])])
def test_pixels_are_restored_in_the_rows_asked_for(which, back):
    listed = pictures()
    before = [frame.surface for frame in listed]
    guard = PixelGuard(listed)
    for frame in listed:
        frame.surface, frame.width, frame.height = None, 1, 1
    guard.restore(which)
    for row, frame in enumerate(listed):
        assert (frame.surface, frame.width, frame.height) == ((before[row], 64, 48) if row in back else (None, 1, 1))


def test_each_surface_that_shares_memory_with_a_given_one_is_copied_and_counted():
    listed = pictures(5)
    guard = PixelGuard(listed)
    surfaces = [frame.surface for frame in listed]
    assert guard.take(listed, np) == 0
    listed[0].surface = None
    listed[2].surface = Surface(surfaces[0].data, Color("bt601"))
    listed[3].surface = gray(64, 48)
    listed[4].surface = Surface(surfaces[4].data, Color("bt2020"))
    assert guard.take(listed, np) == 2
    assert listed[1].surface is surfaces[1]
    assert [listed[row].surface.color.matrix for row in (2, 4)] == ["bt601", "bt2020"]
    for frame in listed[2:]:
        assert not any(np.may_share_memory(frame.surface.data, surface.data) for surface in surfaces)
        assert not frame.surface.data.flags.writeable
    assert all(surface.data.flags.writeable for surface in surfaces)


def test_a_frame_that_had_no_surface_may_get_one():
    listed = frames("a0 a1")
    listed[1].surface = gray(64, 48)
    guard = PixelGuard(listed)
    listed[0].surface = gray(64, 48)
    assert guard.take(listed, np) == 0


def test_a_surface_of_a_pool_stays_writeable():
    listed = pictures(1)
    guard = PixelGuard(listed)
    listed[0].surface = Surface(gray(64, 48).data, Color(), give_back=lambda data, ready: None)
    assert guard.take(listed, np) == 0
    assert listed[0].surface.data.flags.writeable


class Device:
    """Stands for CuPy: one stream that notes what it is asked."""

    def __init__(self, monkeypatch):
        self.log, self.cuda = [], self
        from streamkit.ops.cuda import driver

        monkeypatch.setattr(isolation, "array_module", lambda array: self)
        monkeypatch.setattr(driver, "wait_for", lambda stream, surfaces: self.log.append((stream, surfaces)))

    def get_current_stream(self):
        return self

    def synchronize(self):
        self.log.append("synchronize")

    def may_share_memory(self, first, other):
        return False


@pytest.mark.parametrize(("on_host", "waits"), [({}, True), ({"on_host": True}, True), ({"on_host": False}, False)])
def test_a_host_stage_waits_for_pixels_on_the_device_before_and_after(monkeypatch, on_host, waits):
    device, listed = Device(monkeypatch), pictures(2)
    surfaces = [frame.surface for frame in listed]
    with PixelGuard(listed, **on_host):
        assert device.log == ([(device, surfaces)] if waits else [])
        assert all(surface.data.flags.writeable for surface in surfaces)
        device.log.clear()
    assert device.log == (["synchronize"] if waits else [])


def test_new_pixels_on_the_device_are_no_host_memory_to_be_made_read_only(monkeypatch):
    device, listed = Device(monkeypatch), pictures(1)
    guard = PixelGuard(listed)
    listed[0].surface = gray(64, 48)
    assert guard.take(listed, device) == 0
    assert listed[0].surface.data.flags.writeable


def test_a_batch_without_pixels_has_nothing_to_guard(monkeypatch):
    device = Device(monkeypatch)
    with PixelGuard(frames("a0")) as guard:
        assert guard.take(frames("a0"), np) == 0
    assert device.log == []
