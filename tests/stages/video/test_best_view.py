"""Which view of an object a snapshot shows, and how much memory the views take."""

from pathlib import Path

import numpy as np
import pytest
from support.sights import (
    BLUE,
    GREEN,
    HEIGHT,
    LARGE,
    RED,
    SMALL,
    WIDTH,
    files,
    happen,
    looks,
    near,
    painted,
    saved,
    scene,
    snap,
)

from streamkit.core.data import Color, Surface
from streamkit.core.units import Of
from streamkit.stages.video.snapshot import Snapshot
from streamkit.testing.kit import detections, frames, run_stage


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_the_best_view_before_and_after_the_event_is_written_once(batch):
    views = [(SMALL, RED, True), (LARGE, GREEN, True), (SMALL, RED, True), (SMALL, RED, True), None, None]
    footage = scene(views)
    happen(footage[2])
    processed, _ = snap(footage, batch)
    (path,) = files()
    assert path == "snaps/gate/video/000002.000s_person_7.jpg", "named after the event's time"
    color, size = looks(path)
    assert near(color, GREEN)
    assert size == (140 + 2 * 14, 80 + 2 * 8), "pad is a tenth on each side"
    ((at, event),) = saved(processed)
    assert at == 4, "two seconds after the event"
    assert event.track_id == 7
    assert event.data == {
        "path": path,
        "label": "person",
        "box": [120, 60, 200, 200],
        "frame": 1,
        "pts_s": 1.0,
        "of": {"stage": "door", "kind": "crossed", "frame": 2, "pts_s": 2.0},
    }
    assert "snapshot" not in processed[2].events[0].data


def test_the_stage_waits_for_a_better_view_after_the_event():
    footage = scene([(SMALL, RED, True), (SMALL, RED, True), (LARGE, BLUE, True), (SMALL, RED, True)])
    happen(footage[1])
    snap(footage)
    assert near(looks(*files())[0], BLUE)


def test_the_sharper_of_equal_views_is_selected():
    footage = scene([(LARGE, RED, False), (LARGE, GREEN, True), (LARGE, BLUE, False), (LARGE, BLUE, False)])
    happen(footage[0])
    snap(footage)
    assert near(looks(*files())[0], GREEN)


def test_a_too_old_view_is_not_selected():
    footage = scene([(LARGE, GREEN, True), *[(SMALL, RED, True)] * 5])
    happen(footage[4])
    snap(footage, before=2.0, after=0.0)
    assert near(looks(*files())[0], RED)


def test_without_before_only_views_from_the_event_on_count():
    footage = scene([(LARGE, GREEN, True), (SMALL, RED, True), (SMALL, RED, True)])
    happen(footage[1])
    processed, _ = snap(footage, before=0, after=0)
    assert near(looks(*files())[0], RED)
    crossed, saved_event = processed[1].events
    assert (saved_event.kind, crossed.data["snapshot"]) == ("saved", saved_event.data["path"]), (
        "it was at once: the event knows"
    )
    assert "snapshot" not in footage[1].events[0].data, "other branches have the event, too"


def test_batch_sizes_do_not_change_the_view():
    def footage():
        noise_frames = frames(30, "gate", width=WIDTH, height=HEIGHT, step_s=0.25)
        state = np.random.default_rng(5)
        for frame in noise_frames:
            corner = state.integers(0, 60, (6, 2))
            boxes = np.concatenate([corner, corner + state.integers(20, 160, (6, 2))], axis=1)
            seen = state.random(6) < 0.7
            data = state.integers(0, 256, (HEIGHT * 3 // 2, WIDTH), dtype=np.uint8)
            frame.surface = Surface(data, Color())
            frame.tables = {"detect": detections(boxes[seen], track_id=np.arange(6)[seen])}
            for track in np.flatnonzero(state.random(6) < 0.1).tolist():
                happen(frame, track=track)
        return noise_frames

    outcomes = []
    for batch in (1, 4, [3, 1, 7], 30):
        path = f"snaps/{{source}}/{len(outcomes)}/{{time}}-{{track_id}}.jpg"
        processed, counts = snap(footage(), batch, before=1.0, after=0.6, buffer=100_000, path=path)
        about = [(at, e.track_id, {**e.data, "path": Path(e.data["path"]).read_bytes()}) for at, e in saved(processed)]
        outcomes.append((about, counts))
    assert len(outcomes[0][0]) > 5
    assert outcomes[0][1]["views dropped: out of memory"] > 0
    for other in outcomes[1:]:
        assert other == outcomes[0]


def test_of_selects_the_detector_of_the_tracks():
    footage = scene([(LARGE, GREEN, True)] * 2)
    for frame in footage:
        small = detections([SMALL], track_id=[7], label=["face"])
        frame.tables = {"detect": frame.tables["detect"], "faces": small}
    happen(footage[0])
    processed, _ = snap(footage, after=1)
    assert saved(processed)[0][1].data["label"] == "person", "the first has it"
    processed, _ = snap(footage, after=1, of=Of("faces"))
    assert saved(processed)[0][1].data["label"] == "face"
    _, counts = snap(footage, after=1, of=Of("faces", ("nose",)))
    assert counts == {"snapshots given up: the object was not seen": 1}


def test_a_predicted_object_is_not_a_view():
    footage = scene([(SMALL, RED, True), (LARGE, GREEN, True), (SMALL, RED, True)])
    for frame, predicted in zip(footage, (False, True, False), strict=True):
        frame.tables["detect"] = frame.tables["detect"].with_columns(predicted=np.array([predicted]))
    happen(footage[1])
    snap(footage, after=1)
    assert near(looks(*files())[0], RED)


def test_memory_is_bounded_in_count_and_bytes():
    footage = frames(3, "gate", width=WIDTH, height=HEIGHT, step_s=0.1)
    boxes = [[10 * i, 10, 10 * i + 20, 40] for i in range(12)]
    for frame in footage:
        frame.surface = painted(0, 0, WIDTH, HEIGHT, GREEN)
        frame.tables = {"detect": detections(boxes, track_id=range(12))}
    happen(footage[2], track=11)
    _, counts = snap(footage, max_tracks=3, after=0)
    assert counts["views dropped: out of memory"] >= 9
    assert counts["snapshots written"] == 1
    assert "views dropped: out of memory" not in snap(footage)[1]
    view_bytes = 24 * 36 * 3 // 2  # with its pad
    stage = Snapshot(when="door.crossed", buffer=3 * view_bytes, path="snaps/{source}/{time}.jpg")
    held = []
    look = Snapshot._update

    def watched(self, frame, seen):
        processed = look(self, frame, seen)
        held.append(sum(view.bytes for view in self._views_in_memory()))
        return processed

    Snapshot._update = watched
    try:
        run_stage(stage, footage)
    finally:
        Snapshot._update = look
    assert len(held) == 3
    assert 0 < max(held) <= 3 * view_bytes


def test_waiting_views_are_written_early_if_memory_is_short():
    footage = scene([(LARGE, GREEN, True), (SMALL, RED, True), (LARGE, BLUE, True), None])
    happen(footage[1])
    processed, counts = snap(footage, before=0, buffer=1000)
    assert counts["snapshots written early: out of memory"] == 1
    assert [at for at, _ in saved(processed)] == [1]
    assert near(looks(*files())[0], RED)
