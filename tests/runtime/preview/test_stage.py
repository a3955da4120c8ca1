"""The tap at the graph's ends: what it shows, where it sits, and that it costs nothing while nobody looks."""

import threading
import time

import cv2
import numpy as np
import pytest
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Event
from streamkit.core.stage import Collecting, Context, RuntimeContext, Sink, default_registry, stage
from streamkit.ops import thumbnail
from streamkit.ops.thumbnail import small_spec
from streamkit.runtime.execution.background import ThreadedBackground
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.preview import stage as module
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.preview.stage import HEIGHT, WIDTH, Preview, hidden_elsewhere, tap
from streamkit.runtime.run import RunConfig
from streamkit.serve.prepare import prepare
from streamkit.testing.kit import detections, frames

TRACKED = """
plugins: [plugins]
sources: {street: samples/street.mp4}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  line: {stage: line_counter, line: [[320, 60], [320, 360]]}
"""


def graph_of(text, root):
    return build(read_text(text, folder=root))


def run(text, root, gallery, limit=40, device="cpu"):
    graph = graph_of(text, root)
    config = graph.config
    config.stages.append(tap(graph, gallery))
    running = PipelineRun(build(config), choose(device), RunConfig(limit=limit))
    assert running.run() == 0
    return running.report(0)


def looked_at(jpeg):
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)


def batch_of(*batch_frames):
    table = detections([[10, 10, 60, 60]], labels=("car",))
    return Batch(list(batch_frames), tables={"detect": table})


def preview(gallery, *draw):
    preview_stage = Preview(gallery, draw)
    preview_stage.context = Context("preview")
    preview_stage.open()
    return preview_stage


# ------------------------------------------------------------------------------------------------------ where it sits


@pytest.mark.parametrize(
    ("stages", "inputs", "draws"),
    [
        ("jsonl: {path: out/x.jsonl}", ["decode"], ()),
        ("detect: {model: demo}\n  jsonl: {path: out/x.jsonl}", ["detect.postprocess"], ("detect",)),
        ("detect: {model: demo}\n  draw: {}\n  video: {path: out/x.mp4}", ["draw"], ()),
        ("detect: {model: demo}\n  draw: {}\n  video: {path: out/x.mp4}\n  jsonl: {path: out/x.jsonl}", ["draw"], ()),
        (
            "detect: {model: demo}\n  other: {stage: detect, model: demo, from: decode}\n  draw: {from: detect}",
            ["draw", "other.postprocess"],
            ("other",),
        ),
    ],
)
def test_the_preview_reads_the_last_stages_before_sinks(stages, inputs, draws, root):
    graph = graph_of(f"sources: {{street: samples/street.mp4}}\nstages:\n  {stages}", root)
    stage = tap(graph, Gallery())
    assert stage.inputs == inputs
    assert stage.options["draw"] == draws
    graph.config.stages.append(stage)
    assert build(graph.config).nodes[stage.id].inputs == inputs


ZONE = "pixelate: {zone: [[0, 0], [320, 0], [320, 360], [0, 360]]}"


@pytest.mark.parametrize(
    ("stages", "inputs", "clear"),
    [
        (f"detect: {{model: demo}}\n  draw: {{from: decode, {ZONE}}}", ["draw", "detect.postprocess"], []),
        (
            "detect: {model: demo}\n  plain: {stage: draw}\n  draw: {from: detect, pixelate: all}",
            ["draw", "plain"],
            [],
        ),
        (f"one: {{stage: draw, {ZONE}}}\n  two: {{stage: draw, from: decode, {ZONE}}}", ["one", "two"], ["two"]),
        (
            f"one: {{stage: draw, {ZONE}}}\n  two: {{stage: draw, from: decode, {ZONE}}}\n"
            f"  three: {{stage: draw, {ZONE}}}",
            ["three", "one"],
            ["one"],
        ),
        ("draw: {}\n  other: {stage: draw, from: decode}", ["draw", "other"], []),
    ],
)
def test_regions_hidden_by_the_pipeline_are_hidden_on_the_page(stages, inputs, clear, root):
    graph = graph_of(f"sources: {{street: samples/street.mp4}}\nstages:\n  {stages}", root)
    assert tap(graph, Gallery()).inputs == inputs
    assert hidden_elsewhere(graph) == clear


def test_a_zone_hidden_on_a_branch_is_hidden_on_the_page(root):
    gallery = Gallery()
    plain = Gallery()
    for shown_gallery, zone in ((gallery, ZONE), (plain, "")):
        shown_gallery.request("street")
        stages = f"detect: {{model: demo}}\n  draw: {{from: decode, {zone}}}"
        run(f"sources: {{street: samples/street.mp4}}\nstages:\n  {stages}", root, shown_gallery, limit=1)
    shown, clear = (looked_at(page_gallery.newest("street").jpeg).astype(int) for page_gallery in (gallery, plain))
    detail = [np.abs(np.diff(image[:, :300], axis=1)).mean() for image in (shown, clear)]
    assert detail[0] < 0.5 * detail[1]


def test_stages_shown_unhidden_on_the_page_are_reported(root):
    logged = collect()
    text = f"one: {{stage: draw, {ZONE}}}\n  two: {{stage: draw, from: decode, {ZONE}}}"
    graph = graph_of(f"sources: {{street: samples/street.mp4}}\nstages:\n  {text}", root)
    prepare(lambda: graph, root / "p.yaml", {})
    assert any("the page shows another branch than two: objects hidden there are visible" in line for line in logged)


def test_the_preview_has_a_unique_id(root):
    graph = graph_of("sources: {s: samples/street.mp4}\nstages: {preview: {stage: jsonl, path: out/x.jsonl}}", root)
    assert tap(graph, Gallery()).id == "preview-2"


def test_drawing_in_place_is_still_allowed(root):
    text = "sources: {s: samples/street.mp4}\nstages: {detect: {model: demo}, draw: {}, video: {path: out/x.mp4}}"
    graph = graph_of(text, root)
    assert graph.nodes["draw"].in_place
    graph.config.stages.append(tap(graph, Gallery()))
    assert build(graph.config).nodes["draw"].in_place


# ------------------------------------------------------------------------------------------------------ what it shows


def test_nothing_is_drawn_without_a_viewer(root, monkeypatch):
    gallery = Gallery()
    text = TRACKED.replace("  line:", "  unused:").split("  unused:")[0]
    drawn_frames = []
    monkeypatch.setattr(
        Preview, "_images", lambda self, batch, rows: drawn_frames.extend(batch.frames[row] for row in rows)
    )
    report = run(text, root, gallery)
    assert gallery.newest("street") is None
    assert [frame.source for frame in drawn_frames] == ["warm-up"]
    assert "previews to host" not in report["counts"]


def test_the_first_image_is_drawn_before_the_first_frame(monkeypatch):
    """A viewer who comes while cameras run makes none of their frames wait for kernels and letters."""
    drawn = []
    draw_small = thumbnail.draw_small
    monkeypatch.setattr(
        thumbnail, "draw_small", lambda image, tables, *rest: drawn.append(tables) or draw_small(image, tables, *rest)
    )
    preview_stage = preview(Gallery(), "detect", "other")
    assert [[table.labels for table in tables] for tables in drawn] == [[("object",), ("object",)]]
    assert not preview_stage.context.counters.values


def test_the_preview_opens_although_no_image_can_be_encoded(monkeypatch):
    monkeypatch.setattr("streamkit.ops.preprocess.preprocess", lambda *_: 1 / 0)
    assert not preview(Gallery()).context.counters.values


def test_viewers_see_the_detections(root):
    plain = Gallery()
    drawn = Gallery()
    for gallery, text in ((plain, "jsonl: {path: '{out}'}"), (drawn, "detect: {model: demo}")):
        gallery.request("street")
        stages = text.replace("'{out}'", "/dev/null")
        run(f"sources: {{street: samples/street.mp4}}\nstages:\n  {stages}", root, gallery, limit=1)
    undrawn_image, other = (looked_at(gallery.newest("street").jpeg) for gallery in (plain, drawn))
    assert undrawn_image.shape == other.shape == (360, 640, 3)
    changed = np.abs(undrawn_image.astype(int) - other).max(2) > 60
    assert 0.001 < changed.mean() < 0.3  # boxes and labels, and the street beneath them is the same


def test_a_drawn_box_is_at_its_object():
    gallery = Gallery()
    gallery.request("cam")
    frame = frames(1, source="cam", width=1280, height=960, pixels=True)[0]
    table = detections([[320, 240, 960, 720]], labels=("car",))
    preview(gallery, "detect").process(Batch([frame], tables={"detect": table}))
    shown = looked_at(gallery.newest("cam").jpeg).astype(int)
    assert shown.shape == (480, 640, 3)
    bare = Gallery()
    bare.request("cam")
    preview(bare).process(Batch([frame]))
    changed = np.argwhere(np.abs(shown - looked_at(bare.newest("cam").jpeg)).max(2) > 50)
    top, left = changed.min(0)
    bottom, right = changed.max(0)
    assert abs(left - 160) <= 4
    assert abs(right - 480) <= 4
    assert abs(bottom - 360) <= 4
    assert 120 - 24 <= top <= 124  # the label stands on the box


def test_the_newest_frame_of_each_source_is_shown():
    gallery = Gallery()
    gallery.request("a")
    gallery.request("b")
    batch_frames = [
        *frames(3, source="a", pixels=True),
        *frames(2, source="b", pixels=True),
        *frames(2, source="c", pixels=True),
    ]
    preview(gallery).process(Batch(batch_frames))
    assert (gallery.newest("a").frame, gallery.newest("b").frame, gallery.newest("c")) == (2, 1, None)


def test_events_have_the_image_of_their_frame(root):
    gallery = Gallery()
    report = run(TRACKED, root, gallery, limit=150)
    entries = gallery.events(500)
    assert len(entries) == sum(report["events"].values()) > 0
    assert {entry.event.stage for entry in entries} == {"line"}
    pictured = [entry for entry in entries if entry.jpeg]
    assert pictured
    assert looked_at(pictured[0].jpeg).shape == (360, 640, 3)
    left_out = report["counts"].get("event images left out", 0)
    frames_with = {(entry.event.source, entry.event.frame) for entry in entries}
    assert len({(o.event.source, o.event.frame) for o in pictured}) + left_out == len(frames_with)


def test_events_of_sinks_are_reported(root):
    registry = default_registry()
    with Collecting(registry):

        @stage("saver", writes="events")
        class Saver(Sink):
            """Say of every tenth frame that it is saved."""

            def write(self, frame):
                if frame.index % 10 == 0:
                    frame.emit("saved")

    text = "sources: {street: {uri: samples/street.mp4, pace: unpaced}}\nstages: {saver: {}}"  # drops nothing
    running, gallery = prepare(lambda: build(read_text(text, folder=root, registry=registry)), root / "p.yaml", {})
    beside = threading.Thread(target=running.run)
    beside.start()
    while not running.states["street"].done:
        time.sleep(0.05)
    running.stop()
    beside.join(30)
    assert [entry.event.frame for entry in gallery.events(500)][::-1] == list(range(0, running.frames, 10))
    assert running.frames > 100


def test_a_small_image_saved_by_a_sink_is_reused(tmp_path):
    def saved(name, size=10, kind="saved", **data):
        (tmp_path / name).write_bytes(bytes(size))
        return module._saved(Event(kind, "snapshot", "cam", 0, 0.0, -1, {"path": str(tmp_path / name), **data}))

    assert saved("a.jpg", 200_000) == bytes(200_000)
    assert saved("a.jpg", 200_001) is None
    assert saved("a.jpeg") == bytes(10)
    assert saved("a.mp4") is None
    assert saved("a.jpg", kind="crossed") is None
    assert saved("a.jpg", path=3) is None
    assert saved("a.jpg", path=str(tmp_path / "gone.jpg")) is None


@pytest.fixture
def slow(monkeypatch):
    """A preview with a thread for its images, which waits until `go` is set."""
    go = threading.Event()
    draw_small = thumbnail.draw_small
    gallery = Gallery()
    gallery.request("cam")
    preview_stage = Preview(gallery)
    preview_stage.context = Context("preview", runtime=RuntimeContext(background=ThreadedBackground))
    preview_stage.open()
    monkeypatch.setattr(thumbnail, "draw_small", lambda *arguments: go.wait(20) and draw_small(*arguments))
    yield preview_stage, gallery, go
    go.set()
    preview_stage.close()


def with_event(index):
    frame = frames(1, source=f"s{index}", pixels=True)[0]
    frame.emit(f"event {index}")
    return Batch([frame, *frames(1, source="cam", pixels=True)])


def kinds(gallery):
    return [entry.event.kind for entry in gallery.events(50)][::-1]


def test_slow_images_delay_no_frame_and_lose_no_event(slow):
    preview_stage, gallery, go = slow
    for index in range(20):
        preview_stage.process(with_event(index))
    assert not gallery.events(5)  # their order is kept
    assert preview_stage.context.counters["event images left out"] == 18
    go.set()
    preview_stage.close()
    assert kinds(gallery) == [f"event {index}" for index in range(20)]
    assert [entry.jpeg is not None for entry in gallery.events(50)][::-1] == [True] * 2 + [False] * 18
    assert gallery.newest("cam") is not None


def test_events_are_sent_without_a_late_image(slow):
    preview_stage, gallery, go = slow
    for index in range(3):
        preview_stage.process(with_event(index))
    time.sleep(1.05)
    preview_stage.process(Batch(frames(1, source="other", pixels=True)))
    assert [(entry.event.kind, entry.jpeg) for entry in gallery.events(5)][::-1] == [
        (f"event {n}", None) for n in range(3)
    ]
    go.set()
    preview_stage.close()
    assert len(gallery.events(50)) == 3


def test_pending_events_are_sent_without_an_image_at_the_end(slow, monkeypatch):
    preview_stage, gallery, _ = slow
    monkeypatch.setattr(module, "_CLOSE_S", 0.1)
    for index in range(3):
        preview_stage.process(with_event(index))
    preview_stage.close()
    assert [(entry.event.kind, entry.jpeg) for entry in gallery.events(5)][::-1] == [
        (f"event {n}", None) for n in range(3)
    ]


def test_a_batch_has_images_of_at_most_16_events(slow):
    preview_stage, gallery, go = slow
    go.set()
    batch_frames = [frames(1, source=f"s{index}", pixels=True)[0] for index in range(20)]
    for frame in batch_frames:
        frame.emit("crossed")
    preview_stage.process(Batch(batch_frames))
    preview_stage.close()
    assert sum(entry.jpeg is not None for entry in gallery.events(50)) == 16
    assert preview_stage.context.counters["event images left out"] == 4


def test_a_watched_source_has_a_single_image_in_progress(slow, monkeypatch):
    preview_stage, _, go = slow
    started = []
    images = Preview._images
    monkeypatch.setattr(Preview, "_images", lambda self, *arguments: started.append(1) or images(self, *arguments))
    for _ in range(5):
        preview_stage.process(Batch(frames(1, source="cam", pixels=True)))
    assert len(started) == 1
    go.set()
    until = time.monotonic() + 10
    while len(started) < 2 and time.monotonic() < until:
        preview_stage.process(Batch(frames(1, source="cam", pixels=True)))
        time.sleep(0.01)
    assert len(started) == 2


def test_a_removed_source_leaves_no_image(slow):
    preview_stage, gallery, go = slow
    preview_stage.process(Batch(frames(1, source="cam", pixels=True)))
    gallery.forget("cam")
    go.set()
    preview_stage.close()
    assert gallery.newest("cam") is None


def test_events_of_a_failed_frame_have_no_image():
    gallery = Gallery()
    frame = frames(1, source="cam", pixels=True)[0]
    frame.emit("crossed")
    frame.error = "detect failed"
    preview(gallery).process(Batch([], failed=[frame]))
    assert [entry.jpeg for entry in gallery.events(5)] == [None]


def test_a_frame_without_pixels_has_no_image():
    gallery = Gallery()
    gallery.request("a")
    gallery.request("b")
    empty = frames(1, source="a", pixels=True)[0]
    empty.surface = None
    preview(gallery).process(Batch([empty, *frames(1, source="b", pixels=True)]))
    assert gallery.newest("a") is None
    assert gallery.newest("b") is not None


@pytest.mark.parametrize("function", ["preprocess.preprocess", "thumbnail.draw_small"])  # on the lane; in background
def test_a_failed_image_does_not_fail_its_frame(monkeypatch, function):
    gallery = Gallery()
    logged = collect()
    gallery.request("cam")
    preview_stage = preview(gallery)
    monkeypatch.setattr(f"streamkit.ops.{function}", lambda *_: 1 / 0)
    batch = Batch(frames(2, source="cam", pixels=True))
    assert preview_stage.process(batch) is batch
    preview_stage.close()
    assert not batch.failed
    assert preview_stage.context.counters["previews failed"] == 1
    assert "ZeroDivisionError" in logged[0]


@pytest.mark.parametrize(
    ("size", "small"),
    [
        ((1920, 1080), (640, 360)),
        ((3840, 2160), (640, 360)),
        ((640, 480), (640, 480)),
        ((320, 241), (320, 240)),
        ((1080, 1920), (270, 480)),
        ((1, 1), (2, 2)),
        ((9000, 10), (640, 2)),
    ],
)
def test_image_sizes_are_even_bounded_and_keep_the_aspect_ratio(size, small):
    assert small_spec(*size, (WIDTH, HEIGHT)).size == small


@pytest.mark.gpu
def test_only_the_small_image_is_copied_from_the_gpu(root):
    gallery = Gallery()
    reference = Gallery()
    text = "sources: {street: samples/street.mp4}\nstages:\n  detect: {model: demo}"
    for device_gallery, device in ((gallery, "cuda"), (reference, "cpu")):
        device_gallery.request("street")
        counts = run(text, root, device_gallery, limit=1, device=device)["counts"]
        assert counts.get("previews to host", 0) == (device == "cuda")
        assert "pixels to host" not in counts
    shown, wanted = (
        looked_at(device_gallery.newest("street").jpeg).astype(int) for device_gallery in (gallery, reference)
    )
    assert np.abs(shown - wanted).mean() < 2
