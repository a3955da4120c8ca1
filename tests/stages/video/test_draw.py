import numpy as np
import pytest

from streamkit.core.data import Batch, Color, Detections, Device, Frame, Surface
from streamkit.core.stage import BatchStage, Context, RuntimeContext, options
from streamkit.ops.color import rgb
from streamkit.stages.video.draw import Draw


def drawing(**options):
    stage = Draw(**options)
    stage.open()
    return stage


def frame(height=360, width=640, value=100, source="a", **fields):
    surface = Surface(np.full((-(-height // 2) * 3, width + width % 2), value, np.uint8), Color())
    return Frame(source, 0, 0.0, width, height, surface, **fields)


def table(*rows, labels=("person", "car")):
    """Rows of (frame, class, x1, y1, x2, y2)."""
    values = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(
        np.ascontiguousarray(values[:, 2:]),
        np.full(len(values), 0.5, np.float32),
        values[:, 1].astype(np.int32),
        values[:, 0].astype(np.int32),
        labels=labels,
    )


def test_objects_are_drawn_on_a_new_surface():
    original = frame()
    old = original.surface
    batch = drawing().process(Batch([original], tables={"detect": table((0, 1, 100, 100, 200, 200))}))
    new = batch.frames[0].surface
    assert new is not old
    assert (old.data == 100).all()
    pixels = rgb(batch.frames[0])
    assert np.abs(pixels[150, 100].astype(int) - [0xFF, 0x9F, 0x1C]).max() <= 4
    assert np.array_equal(pixels[150, 150], pixels[300, 500])


def test_no_class_at_all_may_be_chosen():
    original = frame()
    surface = original.surface
    batch = Batch([original], tables={"detect": table((0, 1, 100, 100, 200, 200))})
    assert drawing(only=()).process(batch).frames[0].surface is surface


def test_a_title_is_in_the_corner_of_each_frame_without_objects_too():
    batch = drawing(title="demo").process(Batch([frame(), frame(90, 160)], tables={"detect": table()}))
    for title_frame in batch.frames:
        differs = np.abs(rgb(title_frame).astype(int) - rgb(title_frame)[-1, -1]).max(axis=2) > 30
        rows, columns = np.nonzero(differs)
        assert rows.min() == columns.min() == 0
        assert rows.max() < 20
        assert 20 < columns.max() < 80


ACTIONS = {"attributes": {"action": {"label": "falling, down", "score": 0.871}}}


def changed_places(drawn):
    """Rows and columns of the pixels that differ clearly from the last one."""
    return np.nonzero(np.abs(rgb(drawn).astype(int) - rgb(drawn)[-1, -1]).max(axis=2) > 30)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_attributes_of_whole_frames_are_in_the_corner_below_the_title(device):
    xp = Device(device).xp
    drawn = {}
    for title in ("", "demo"):
        frames = [frame(facts=dict(ACTIONS)), frame(facts={}), frame(90, 160, facts=dict(ACTIONS))]
        host = drawing(title=title).process(Batch([frame(facts=dict(ACTIONS))], tables={"detect": table()}))
        for original in frames:
            original.surface = Surface(xp.asarray(original.surface.data), original.surface.color)
        batch = drawing(title=title).process(Batch(frames, xp=xp, tables={"detect": table()}))
        for on_device in batch.frames:
            data = on_device.surface.data
            on_device.surface = Surface(np.asarray(data.get() if hasattr(data, "get") else data), Color())
        np.testing.assert_array_equal(batch.frames[0].surface.data, host.frames[0].surface.data)
        drawn[title] = batch.frames
    rows, columns = changed_places(drawn[""][0])
    assert (rows.min(), columns.min()) == (0, 0)
    assert rows.max() < 20
    assert 60 < columns.max() < 160
    assert len(changed_places(drawn[""][1])[0]) == 0
    assert len(changed_places(drawn[""][2])[0]) > 200
    titled = changed_places(drawn["demo"][0])[0]
    assert 24 < titled.max() < 40


def test_labels_and_scores_of_whole_frames_may_be_left_out():
    wide, short, none = (
        changed_places(drawing(**options).process(Batch([frame(facts=dict(ACTIONS))], tables={})).frames[0])[1]
        for options in ({}, {"scores": False}, {"labels": False})
    )
    assert wide.max() > short.max() + 20
    assert len(none) == 0


def test_drawings_are_not_visible_in_another_branch():
    batch = Batch([frame()], tables={"detect": table((0, 1, 100, 100, 200, 200))})
    other = batch.fork()
    drawing().process(batch)
    assert (other.frames[0].surface.data == 100).all()


def test_in_place_is_set_by_the_runner_only():
    assert "in_place" not in [option.name for option in options(Draw)]
    stage = drawing()
    original = frame()
    stage.context = Context(runtime=RuntimeContext(draws_in_place=True))
    batch = stage.process(Batch([original], tables={"detect": table((0, 1, 100, 100, 200, 200))}))
    assert batch.frames[0].surface is original.surface
    assert (original.surface.data != 100).any()


def test_frames_without_pixels_or_objects_and_failed_ones_pass():
    frames = [frame(error="broken"), frame(), frame(), frame()]
    frames[1].surface = None
    surfaces = [f.surface for f in frames]
    objects = table(*[(i, 0, 10, 10, 50, 50) for i in (0, 1, 3)])
    batch = drawing().process(Batch(frames, tables={"detect": objects}))
    assert [f.surface is s for f, s in zip(batch.frames, surfaces, strict=True)] == [True, True, True, False]


@pytest.mark.parametrize("tables", [{}, {"detect": Detections.empty()}])
def test_a_frame_without_objects_is_not_copied(tables):
    original = frame()
    surface = original.surface
    assert drawing().process(Batch([original], tables=tables)).frames[0].surface is surface


def test_all_detectors_are_drawn_including_pending_tables():
    tables = {
        "detect": lambda: table((0, 0, 10, 50, 60, 90)),
        "faces": table((0, 0, 300, 50, 360, 90), labels=("face",)),
    }
    batch = drawing().process(Batch([frame()], tables=tables))
    luma = batch.frames[0].surface.data[:360]
    assert (luma[70, :200] != 100).any()
    assert (luma[70, 280:] != 100).any()


@pytest.mark.parametrize(("height", "width"), [(101, 75), (1, 1), (2, 3), (35, 64)])
def test_odd_and_tiny_images_are_drawn(height, width):
    objects = table((0, 0, 0, 0, width, height), (0, 1, 1, 1, 1, 1))
    batch = drawing(fill=0.5).process(Batch([frame(height, width)], tables={"detect": objects}))
    assert (batch.frames[0].surface.data != 100).any()
    assert rgb(batch.frames[0]).shape == (height, width, 3)


def test_a_batch_is_drawn_as_single_frames():
    sizes = [(360, 480), (120, 160), (360, 640), (90, 90)]
    rows = [(i, i, 10 + i, 40, 70 + 3 * i, 80) for i in range(4)]
    together = drawing().process(Batch([frame(*s) for s in sizes], tables={"detect": table(*rows)}))
    for i, size in enumerate(sizes):
        alone = drawing().process(Batch([frame(*size)], tables={"detect": table((0, *rows[i][1:]))}))
        assert np.array_equal(alone.frames[0].surface.data, together.frames[i].surface.data)


def test_options_change_the_drawing():
    def picture(**options):
        objects = table((0, 0, 100, 100, 200, 200), (0, 1, 300, 100, 400, 200)).with_columns(track_id=np.array([5, 9]))
        return drawing(**options).process(Batch([frame()], tables={"detect": objects})).frames[0].surface.data

    shown = [
        picture(**options)
        for options in (
            {},
            {"labels": False},
            {"scores": False},
            {"tracks": False},
            {"color": "track"},
            {"thickness": 8},
            {"text_size": 30},
            {"fill": 0.5},
            {"only": ("car",)},
        )
    ]
    assert len({data.tobytes() for data in shown}) == len(shown)
    assert (shown[-1][:360, :250] == 100).all(), "the person is not drawn"


def test_every_option_has_help():
    assert all(option.help for option in options(Draw))
    assert issubclass(Draw, BatchStage)
    assert Draw.spec.reads == ("pixels",)


def test_on_a_real_frame_only_the_drawing_changes(test_data):
    av = pytest.importorskip("av")
    from streamkit.ops.color import from_rgb

    with av.open(str(test_data / "videos" / "vtest_480x360.mp4")) as container:
        decoded = next(container.decode(video=0)).to_ndarray(format="rgb24")
    surface = Surface(from_rgb(decoded, Color("bt601")), Color("bt601"))
    original = Frame("street", 0, 0.0, 480, 360, surface)
    before = rgb(original)
    drawn = drawing().process(Batch([original], tables={"detect": table((0, 0, 200, 90, 232, 170))}))
    after = rgb(drawn.frames[0])
    changed = (before != after).any(axis=2)
    ys, xs = np.nonzero(changed)
    assert ys.min() >= 73  # the label's row above, and a pixel that chroma interpolation may touch
    assert ys.max() <= 173
    assert xs.min() >= 196
    assert not changed[96:164, 206:226].any(), "the inside of the box is clear"


@pytest.mark.gpu
def test_device_and_host_draw_the_same():
    import cupy

    sizes = [(360, 480), (120, 160), (1080, 1920), (91, 75)] * 8
    objects = table(*[(i, i % 5, 10 + i, 40, 70 + 3 * i, 80) for i in range(32) if i != 7])
    objects = objects.with_columns(keypoints=np.tile(objects.xyxy[:, None, :2] + 9, (1, 5, 1)))
    host = drawing(fill=0.2).process(Batch([frame(*s) for s in sizes], tables={"detect": objects}))
    frames = [frame(*s) for s in sizes]
    for f in frames:
        f.surface = Surface(cupy.asarray(f.surface.data), f.surface.color)
    originals = [f.surface for f in frames]
    device = drawing(fill=0.2).process(Batch(frames, xp=cupy, tables={"detect": objects}))
    for on_host, on_device, was in zip(host.frames, device.frames, originals, strict=True):
        assert np.array_equal(on_device.surface.data.get(), on_host.surface.data)
        assert (was.data == 100).all()
    assert device.frames[7].surface is originals[7]


# ---------------------------------------------------------------------------------------------------------- privacy


def street(**options):
    """A frame of noise with two persons and a car on it, drawn on with these options and without lines."""
    original = frame()
    rng = np.random.default_rng(0)
    original.surface = Surface(
        rng.integers(0, 256, original.surface.data.shape, dtype=np.uint8), original.surface.color
    )
    objects = table((0, 0, 100, 100, 160, 220), (0, 0, 400, 40, 420, 90), (0, 1, 300, 200, 420, 260))
    stage = drawing(only=("nothing",), **options)
    return original.surface.data.copy(), stage.process(Batch([original], tables={"detect": objects})).frames[
        0
    ].surface.data


def clear(before, after, x1, y1, x2, y2):
    """The share of a box's pixels that are as they were."""
    return (before[y1:y2, x1:x2] == after[y1:y2, x1:x2]).mean()


@pytest.mark.parametrize("how", ["blur", "pixelate"])
def test_hidden_objects_leave_no_clear_pixel(how):
    before, after = street(**{how: ("person",)})
    assert clear(before, after, 100, 100, 160, 220) < 0.03  # a byte may be the mean by chance
    assert clear(before, after, 400, 40, 420, 90) < 0.03
    assert clear(before, after, 300, 200, 420, 260) == 1
    before, after = street(**{how: "all"})
    assert clear(before, after, 300, 200, 420, 260) < 0.03


def test_objects_are_hidden_by_zone_and_by_class():
    corner = ((0.0, 0.0), (0.4, 0.0), (0.4, 1.0), (0.0, 1.0))
    before, after = street(blur={"zone": corner, "units": "share"})
    assert clear(before, after, 0, 0, 256, 360) < 0.03
    assert clear(before, after, 300, 0, 640, 360) == 1
    before, after = street(pixelate={"labels": ("person",), "zone": corner, "units": "share"})
    assert clear(before, after, 100, 100, 160, 220) < 0.03
    assert clear(before, after, 400, 40, 420, 90) == 1


def test_fewer_cells_hide_more():
    kinds = [street(pixelate={"labels": ("person",), "cells": n, "grow": 0.0})[1][100:220, 100:160] for n in (2, 6, 12)]
    numbers = [len(np.unique(data)) for data in kinds]
    assert numbers == sorted(numbers)
    assert numbers[0] <= 2


def test_boxes_are_drawn_on_hidden_objects():
    original = frame()
    objects = table((0, 0, 100, 100, 160, 220))
    shown = drawing(blur=("person",)).process(Batch([original], tables={"detect": objects})).frames[0].surface.data
    plain = drawing().process(Batch([frame()], tables={"detect": objects})).frames[0].surface.data
    assert np.array_equal(shown, plain), "a gray picture blurred is gray"


def test_hiding_works_in_place_and_with_failed_frames():
    frames_ = [frame(error="broken"), frame(), frame()]
    rng = np.random.default_rng(0)
    for drawn_frame in frames_:
        drawn_frame.surface.data[...] = rng.integers(0, 256, drawn_frame.surface.data.shape, dtype=np.uint8)
    originals = [drawn_frame.surface for drawn_frame in frames_]
    objects = table(*[(i, 0, 100, 100, 160, 220) for i in range(3)])
    stage = drawing(blur=("person",))
    first = stage.process(Batch(frames_, tables={"detect": objects}).fork()).frames
    assert first[0].surface is originals[0]
    assert all(drawn_frame.surface is not old for drawn_frame, old in zip(first[1:], originals[1:], strict=True))
    stage.context = Context(runtime=RuntimeContext(draws_in_place=True))
    second = stage.process(Batch(frames_, tables={"detect": objects})).frames
    assert all(drawn_frame.surface is old for drawn_frame, old in zip(second, originals, strict=True))
    for a, b in zip(first[1:], second[1:], strict=True):
        assert np.array_equal(a.surface.data, b.surface.data)


def test_nothing_is_hidden_for_an_object_of_a_frame_that_failed():
    rng = np.random.default_rng(0)
    whole = frame()
    failed = frame(error="broken")
    whole.surface.data[...] = rng.integers(0, 256, whole.surface.data.shape, dtype=np.uint8)
    before = whole.surface.data.copy()
    persons = table((1, 0, 100, 100, 160, 220), (0, 0, 400, 40, 420, 90))
    stage = drawing(blur=("person",), only=("nothing",))
    after = stage.process(Batch([whole, failed], tables={"detect": persons})).frames[0].surface.data
    assert clear(before, after, 100, 100, 160, 220) == 1
    assert clear(before, after, 400, 40, 420, 90) < 0.03


PIPELINE = """
sources: {street: samples/street.mp4}
stages:
  %s
  draw: {%s}
  video: {path: out/x.mp4}
"""


@pytest.mark.parametrize(
    ("above", "options", "message"),
    [
        ("detect: {model: demo}", "blur: [persn]", "5:16: draw.blur: no detector above finds 'persn'; did you mean"),
        ("detect: {model: demo}", "pixelate: {labels: [cat]}", "draw.pixelate: no detector above finds 'cat'; it has"),
        ("first: {stage: draw}", "blur: [person]", "draw.blur hides objects, and no stage above it finds any"),
        ("first: {stage: draw}", "blur: all", "draw.blur hides objects, and no stage above it finds any"),
    ],
)
def test_check_refuses_to_hide_undetected_classes(above, options, message, root):
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.core.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        build(read_text(PIPELINE % (above, options), folder=root))
    assert len(caught.value.problems) == 1
    assert message.split(";")[0] in str(caught.value.problems[0])


def test_check_warns_of_packets_that_bypass_hiding(root):
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text

    above = "detect: {model: demo}\n  busy: {stage: count_objects}"
    record = "  record: {path: out/clips.mp4, when: busy.crowded, from: busy}\n"
    text = PIPELINE % (above, "blur: [person]") + record
    config = read_text("plugins: [plugins]\n" + text.lstrip(), folder=root)
    build(config)
    assert any("record writes the source's own packets: what draw hides is clear" in str(w) for w in config.warnings)


@pytest.mark.gpu
def test_device_and_host_hide_the_same():
    import cupy

    rng = np.random.default_rng(0)
    sizes = [(360, 480), (120, 160), (1080, 1920), (91, 75)] * 8
    objects = table(*[(i, i % 2, 10 + i, 40, 70 + 3 * i, 80) for i in range(32) if i != 7])
    options = {"blur": ("person",), "pixelate": {"zone": ((0.5, 0.5), (1.0, 0.5), (0.7, 1.0)), "units": "share"}}
    host = [frame(*s) for s in sizes]
    for frame_on_device in host:
        frame_on_device.surface.data[...] = rng.integers(0, 256, frame_on_device.surface.data.shape, dtype=np.uint8)
    device = [frame(*s) for s in sizes]
    for frame_on_device, like in zip(device, host, strict=True):
        frame_on_device.surface = Surface(cupy.asarray(like.surface.data), like.surface.color)
    on_host = drawing(**options).process(Batch(host, tables={"detect": objects})).frames
    on_device = drawing(**options).process(Batch(device, xp=cupy, tables={"detect": objects})).frames
    for a, b in zip(on_host, on_device, strict=True):
        assert np.array_equal(b.surface.data.get(), a.surface.data)
