"""Snapshots: what is in the file, names, retention, trouble, privacy, and the same on the device."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.sights import BLUE, GREEN, LARGE, RED, SMALL, files, happen, looks, near, saved, scene, snap

from streamkit.config.diagram import as_text
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Surface
from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.stage import Collecting, FrameStage, default_registry, stage
from streamkit.runtime.multiprocess.partition import assign_sources
from streamkit.stages.video.snapshot import Snapshot
from streamkit.testing.kit import detections, frames, run_stage


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_frame_of_the_event_is_written():
    footage = scene([(SMALL, RED, True), ((80, 60, 240, 180), GREEN, True), (SMALL, RED, True)])
    happen(footage[1], track=None)
    processed, _ = snap(footage, capture="frame", max_size=160)
    assert files() == ["snaps/gate/video/000001.000s_frame_none.jpg"]
    color, size = looks(*files())
    assert near(color, GREEN)
    assert size == (120, 160)
    assert [at for at, _ in saved(processed)] == [1]


def test_images_above_max_size_are_scaled_down():
    footage = scene([(LARGE, GREEN, True)] * 3)
    happen(footage[0])
    snap(footage, max_size=50, pad=0, after=0)
    assert looks(*files())[1] == (50, 29)


def test_a_snapshot_does_not_wait_after_a_time_jump_back():
    """The file was joined from two: its time falls back while a better view is waited for."""
    sent = scene([(LARGE, GREEN, True)] * 5)
    for frame, pts_s in zip(sent, [99.0, 100.0, 0.0, 1.0, 2.0], strict=True):
        frame.pts_s = pts_s
    happen(sent[1])
    returned, counts = snap(sent, after=2, batch=1)
    assert [index for index, _ in saved(returned)] == [2], "with the first frame after the jump"
    assert counts == {"snapshots written": 1}


def test_waiting_snapshots_are_written_at_the_end_of_a_source():
    footage = [*scene([(LARGE, GREEN, True)] * 2), *scene([(SMALL, BLUE, True)] * 2, "yard")]
    happen(footage[1])
    happen(footage[3])
    processed, counts = snap(footage)
    assert len(files()) == 2
    assert saved(processed) == []
    assert counts == {"snapshots written": 2, "snapshots without an event: their source ended": 2}


def test_snapshots_of_a_camera_are_named_by_its_time():
    footage = scene([(LARGE, GREEN, True)] * 2)
    for frame in footage:
        frame.time_s = 1785585600.25
        happen(frame)
    snap(footage, after=0)
    day = "snaps/gate/2026-08-01/20260801T120000.250Z_person_7"
    assert files() == [f"{day}-2.jpg", f"{day}.jpg"], "two pictures never have one name"


def test_events_without_an_image_are_dropped_and_counted():
    footage = scene([(LARGE, GREEN, True), None, None, None])
    happen(footage[1], track=8)
    happen(footage[1], track=None)
    happen(footage[2], kind="other")
    processed, counts = snap(footage)
    assert saved(processed) == []
    assert counts == {
        "snapshots given up: the object was not seen": 1,
        "snapshots given up: the event has no object; capture: frame saves the frame": 1,
    }
    bare = frames(1, "gate")
    happen(bare[0])
    assert snap(bare, capture="frame")[1] == {"snapshots given up: the frame has no pixels": 1}


# --------------------------------------------------------------------------------------------------------- the disk


with Collecting(default_registry()):

    @stage("bell", writes="events", emits=("rung",))
    class Bell(FrameStage):
        """Rings at some frames."""

        def process(self, frame):
            if frame.index % 4 == 0:
                frame.emit("rung")


BELL = """
sources: {a: "test://?frames=20"}
stages:
  bell: {}
  snapshot: {when: bell.rung, capture: frame, path: "snaps/{source}/{time}.jpg"}
  jsonl: {path: "all.jsonl"}
"""


def test_a_full_disk_loses_snapshots_only(monkeypatch):
    footage = scene([(LARGE, GREEN, True)] * 4)
    for frame in footage:
        happen(frame)

    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    snapshot_stage = Snapshot("door.crossed", after=0, path="snaps/{source}/{time}.jpg")
    with pytest.raises(OutputError, match="snapshot: 4 snapshots under snaps could not be written: the disk is full"):
        run_stage(snapshot_stage, footage)
    assert files() == [], "no half picture is left"
    assert dict(snapshot_stage.context.counters.values) == {"snapshots failed": 4}, "and every frame has come"


def test_a_run_with_unwritable_snapshots_completes_and_reports_them(run_pipeline, root, here):
    (here / "snaps").write_text("in the way of the folder")
    with pytest.raises(OutputError, match="5 snapshots under snaps could not be written: a part of the path is a file"):
        run_pipeline(BELL, extra=[Bell])
    assert len(Path("all.jsonl").read_text().splitlines()) == 20, "no frame is lost for it"
    Path("snaps").unlink()
    outcome = run_pipeline(BELL, extra=[Bell])
    assert outcome.code == 0
    assert len(files()) == 5


def test_a_label_too_long_for_a_name_is_shortened():
    (frame,) = scene([(LARGE, GREEN, True)])
    happen(frame)
    frame.tables = {"detect": detections([LARGE], track_id=[7], label=["x" * 255])}
    snapshot_stage = Snapshot("door.crossed", after=0, path="snaps/{source}_{time}_{label}.jpg")
    (frame,) = run_stage(snapshot_stage, [frame])
    (saved,) = [event for event in frame.events if event.kind == "saved"]
    assert saved.data["label"] == "x" * 255
    assert files() == [saved.data["path"]]
    assert saved.data["path"].startswith("snaps/gate_000000.000s_xxxx")


def test_a_too_long_name_loses_its_snapshot_only():
    name = "x" * 300
    views = [(LARGE, GREEN, True)]
    Path("snaps").mkdir()
    footage = [*scene(views, name), *scene(views, "yard")]
    for frame in footage:
        happen(frame)
    snapshot_stage = Snapshot("door.crossed", after=0, path="snaps/{source}_{time}_{label}.jpg")
    with pytest.raises(OutputError, match="snapshot: 1 snapshot under snaps could not be written: the name is too"):
        run_stage(snapshot_stage, footage)
    assert dict(snapshot_stage.context.counters.values) == {"snapshots failed": 1, "snapshots written": 1}
    assert files() == ["snaps/yard_000000.000s_person.jpg"]


def test_a_full_disk_and_retention_are_combined(monkeypatch):
    import shutil
    from collections import namedtuple

    footage = scene([(LARGE, GREEN, True)] * 3)
    happen(footage[0])
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: namedtuple("usage", "free")(50_000_000))
        _, counts = snap(footage, after=0)
    assert counts == {"snapshots given up: disk full": 1}
    old = Path("snaps/gate/2026-08-01/20260801T120000.250Z_person_7.jpg")
    other = Path("snaps/gate/notes.txt")
    for path in (old, other):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    _, counts = snap(footage, after=0, retention={"age": 3600.0})
    assert counts == {"snapshots written": 1, "snapshots removed: over age": 1}
    assert other.exists(), "nothing but snapshots is removed"
    assert not old.exists()


def test_partial_files_of_a_crash_are_removed():
    part = Path("snaps/gate/video/.000002.000s_person_7.jpg.part")
    young = part.with_name(".000003.000s_person_7.jpg.part")
    part.parent.mkdir(parents=True)
    notes = part.with_name(".notes.jpg.part")
    for path in (part, young, notes):
        path.write_bytes(b"x")
    os.utime(part, (1, 1))
    _, counts = snap(scene([None]))
    assert counts == {"unfinished snapshots removed": 2}
    assert not part.exists()
    assert not young.exists(), "a run that is started again at once finds the half that was killed"
    assert notes.exists()


def test_a_partial_file_of_a_running_process_is_not_removed():
    path = Path("snaps/gate/video/000002.000s_person_7.jpg")
    code = (
        "from streamkit.io.outputs import AtomicFile; import time\n"
        f"file = AtomicFile({str(path)!r}); file.begin().write_text('half'); print('begun', flush=True); time.sleep(60)"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=here) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "begun\n"
        part = path.with_name(f".{path.name}.part")
        os.utime(part, (1, 1))
        assert snap(scene([None]))[1] == {}
        assert part.read_text() == "half"
        other.kill()
    part.touch()
    assert snap(scene([None]))[1] == {"unfinished snapshots removed": 1}
    assert not part.exists()


# ----------------------------------------------------------------------------------------------------- the pipeline


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "snaps/{source}/{time}.png"}, "end in .jpg"),
        ({"path": "snaps/{time}.jpg"}, "each image has its own name"),
        ({"path": "snaps/{source}-{time}-{what}.jpg"}, "knows the placeholders"),
        ({"when": []}, "when must name an event"),
        ({"capture": "frame", "after": 1.0}, "leave them out with capture: frame"),
        ({"path": "{source}{time}.jpg", "retention": {"age": 1.0}}, "begins with a folder"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Snapshot(**{"when": "a.b", **options})


PRIVATE = """
device: {device}
sources: {{a: samples/street.mp4, b: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  track: {{}}
  door: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
  draw: {{blur: [person]}}
  snapshot: {{when: door.crossed, from: {above}{more}}}
"""


def private(root, above="draw", more="", device="cpu"):
    text = PRIVATE.format(above=above, more=more, device=device)
    return build(read_text(text, folder=root, registry=default_registry()))


@pytest.mark.parametrize(("above", "more"), [("draw", ""), ("'[draw, door]'", ""), ("door", ", show_hidden: true")])
def test_snapshots_below_hiding_or_declared_clear_are_accepted(root, above, more):
    assert "snapshot" in private(root, above.strip("'"), more).nodes


def test_hidden_objects_leave_no_clear_pixel_in_snapshots(run_pipeline, root):
    """The same frames, clear and as drawn: within persons' boxes nothing fine is left."""
    import json

    import cv2

    text = """
sources: {a: STREET}
stages:
  detect: {model: demo}
  track: {}
  door: {stage: line_counter, line: [[320, 60], [320, 360]]}
  jsonl: {path: "all.jsonl"}
  draw: {blur: [person], only: [none], analytics: false, from: door}
  hidden: {stage: snapshot, when: door.crossed, capture: frame, from: draw, path: "hidden/{source}{time}.jpg"}
  clear:
    {stage: snapshot, when: door.crossed, capture: frame, from: door, show_hidden: true,
     path: "clear/{source}{time}.jpg"}
""".replace("STREET", str(root / "samples" / "street.mp4"))
    run_pipeline(text, limit=250)
    frames_ = {
        round(frame_record["pts_s"], 3): frame_record
        for frame_record in map(json.loads, Path("all.jsonl").read_text().splitlines())
    }
    seen = 0
    for path in sorted(Path("hidden").glob("*.jpg")):
        pictures = [cv2.imread(str(place / path.name), cv2.IMREAD_GRAYSCALE) for place in (path.parent, Path("clear"))]
        for detection in frames_[float(path.stem.removeprefix("a").partition("s")[0])]["objects"]:
            x1, y1, x2, y2 = (round(side) for side in detection["box"])
            if detection["label"] == "person" and (x2 - x1) * (y2 - y1) > 400:
                inside = [picture[y1 + 2 : y2 - 2, x1 + 2 : x2 - 2] for picture in pictures]
                hidden, clear = (cv2.Laplacian(picture, cv2.CV_64F).var() for picture in inside)
                assert hidden < clear / 5
                seen += 1
    assert seen > 3


@pytest.mark.parametrize("above", ["door", "[door, draw]"])
def test_snapshots_that_bypass_hiding_are_refused(root, above):
    with pytest.raises(
        ConfigError, match=r"snapshot would show what draw hides; write from: draw, .* or show_hidden: true"
    ):
        private(root, above)


def test_each_device_writes_its_snapshots(root):
    shares = assign_sources(private(root, device="[cuda:0, cuda:1]"))
    assert [sources for _, sources in shares] == [["a"], ["b"]]
    assert "snapshot: the images that are written go from device to host" in as_text(private(root), "cuda:0")


@pytest.mark.gpu
def test_only_equal_snapshots_leave_the_device():
    import cupy

    from streamkit.ops import traffic

    views = [(SMALL, RED, True), (LARGE, GREEN, True), (SMALL, RED, True), (LARGE, BLUE, True), (LARGE, BLUE, False)]
    footage = scene(views)
    happen(footage[2])
    snap(footage, path="snaps/{source}/host/{time}.jpg")
    for frame in footage:
        frame.surface = Surface(cupy.asarray(frame.surface.data), frame.surface.color)
    before = traffic.so_far().to_host
    processed, counts = snap(footage, path="snaps/{source}/device/{time}.jpg")
    assert counts == {"snapshots written": 1, "snapshots to host": 1}
    host, device = (Path(f"snaps/gate/{where}/000002.000s.jpg").read_bytes() for where in ("host", "device"))
    assert host == device
    assert len(saved(processed)) == 1
    crop = 96 * 168 * 3 // 2
    assert traffic.so_far().to_host - before == crop + 16 * len(views), "the sums of each view, and one crop"


@pytest.mark.parametrize("capture", ["frame", "object"])
def test_a_failed_frame_is_never_written(capture):
    """It may have failed in the stage that hides."""
    snapshot_stage = Snapshot("door.crossed", path="snaps/{source}/{time}.jpg", capture=capture)
    snapshot_stage.context = type(snapshot_stage.context)()
    snapshot_stage.open()
    (frame,) = scene([(LARGE, GREEN, True)])
    happen(frame)
    frame.error = "draw raised"
    snapshot_stage.write(frame)
    snapshot_stage.flush()
    snapshot_stage.close()
    assert files() == []
