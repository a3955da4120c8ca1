"""`collect`: reasons, budgets, duplicates, what is in the lines, and what goes wrong."""

import errno
import os
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.collecting import collect, lines, reasons
from support.sights import LARGE, happen

from streamkit.core.data import Color, Surface
from streamkit.core.errors import OutputError
from streamkit.core.sentences import sentence
from streamkit.core.units import Of, Rate
from streamkit.ops.color import from_rgb
from streamkit.stages.video import collect as collect_module
from streamkit.stages.video.collect import Collect
from streamkit.testing.kit import detections, frames, run_stage

DAY_S = 86400.0


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spots(seed, width=320, height=240):
    """A frame that looks like no other one."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)


def scene(*scores, source="gate", step_s=10.0, first=0, label="person", **columns):
    """A frame for each score, of one object; all frames look different."""
    scene_frames = []
    for i, score in enumerate(scores):
        (frame,) = frames(1, source, pixels=spots(first + i), start=first + i, step_s=step_s)
        more = {name: [column[i]] for name, column in columns.items()}
        frame.tables = {"detect": detections([[40, 40, 160, 200]], [score], label=[label], **more)}
        scene_frames.append(frame)
    return scene_frames


# --------------------------------------------------------------------------------------------------------- reasons


def test_objects_with_a_low_score_are_collected_with_their_frame():
    footage = scene(0.9, 0.45, 0.2, 0.3, 0.51)
    processed, counts, entries = collect(footage, low_score=(0.3, 0.5))
    assert reasons(entries) == [(1, "low_score"), (3, "low_score")]
    assert counts == {"images collected: low_score": 2}
    entry = entries[0]
    assert (entry["source"], entry["pts_s"], entry["width"], entry["reasons"]) == ("gate", 10.0, 320, ["low_score"])
    (about,) = entry["objects"]
    assert about.pop("hash")
    assert about == {
        "box": [40, 40, 160, 200],
        "score": 0.45,
        "class_id": 0,
        "label": "person",
        "stage": "detect",
        "reasons": ["low_score"],
    }
    image = cv2.imread(str(Path("collected", entry["image"])))[..., ::-1]
    assert np.abs(image.astype(float) - spots(1)).mean() < 4
    assert [[(e.kind, e.data["reason"]) for e in frame.events] for frame in processed][1:4:2] == [
        [("collected", "low_score")]
    ] * 2
    assert sentence(processed[1].events[0]) == "An image of person at gate was collected for labeling: low score."


def test_a_time_jump_back_ends_the_pause_after_a_hit():
    seen = scene(0.4, 0.4, 0.4, 0.4)
    for frame, pts_s in zip(seen, [100.0, 104.0, 0.0, 4.0], strict=True):
        frame.pts_s = pts_s
    assert reasons(collect(seen, low_score=(0.3, 0.5), every=5.0)[2]) == [(0, "low_score"), (2, "low_score")]


def test_the_random_rate_is_the_same_after_a_time_jump_back():
    seen = scene(*[0.9] * 80, step_s=1.0)
    for frame in seen[40:]:
        frame.pts_s -= 40.0
    collected = [line["frame"] for line in collect(seen, random=Rate(30, "min"), duplicates="keep")[2]]
    assert 12 <= sum(index < 40 for index in collected) <= 28
    assert 12 <= sum(index >= 40 for index in collected) <= 28


def test_of_selects_the_objects():
    footage = [*scene(0.4), *scene(0.4, first=1, label="car")]
    assert reasons(collect(footage, low_score=(0.3, 0.5), of=Of("detect", ("car",)))[2]) == [(1, "low_score")]


def test_only_searched_frames_are_collected():
    footage = scene(0.4, 0.4, 0.4, predicted=[True, False, False])
    footage[1]._state.skipped_detectors = frozenset({"detect"})
    assert reasons(collect(footage, low_score=(0.3, 0.5), random=Rate(10_000_000, "s"))[2]) == [(2, "low_score")]


def test_a_source_pauses_after_a_hit():
    footage = [*scene(*[0.4] * 10, step_s=1.0), *scene(0.4, source="yard", first=20)]
    entries = collect(footage, low_score=(0.3, 0.5), every=4.0)[2]
    assert [(entry["source"], entry["frame"]) for entry in entries] == [
        ("gate", 0),
        ("gate", 4),
        ("gate", 8),
        ("yard", 20),
    ]


def test_disagreeing_detectors_are_a_reason():
    footage = scene(0.9, 0.9, 0.9)
    footage[0].tables["second"] = detections([[42, 40, 160, 200]], [0.7], label=["person"])
    footage[1].tables["second"] = detections(
        [[200, 40, 300, 200], [44, 40, 160, 200]], [0.7, 0.3], label=["person"] * 2
    )
    footage[2].tables["second"] = detections(labels=["person"])
    footage[2]._state.skipped_detectors = frozenset({"second"})
    entries = collect(footage, disagreement={"between": (Of("detect"), Of("second"))}, models={"second": "large"})[2]
    assert reasons(entries) == [(1, "disagreement")]
    marked = [
        (detection["stage"], detection["box"][0]) for detection in entries[0]["objects"] if "reasons" in detection
    ]
    assert marked == [("second", 200)]
    assert entries[0]["models"] == {"second": "large"}


def test_two_detectors_are_compared_by_the_named_classes():
    (frame,) = scene(0.9)
    boxes = [[40, 40, 160, 200], [200, 40, 300, 200]]
    labels = ["person", "car"]
    frame.tables = {name: detections(boxes, [0.9, 0.9], label=labels) for name in ("detect", "second")}
    for between in ((Of("detect", ("person",)), Of("second")), (Of("detect"), Of("second", ("person",)))):
        assert collect([frame], disagreement={"between": between})[2] == []
    frame.tables["second"] = frame.tables["second"][[1]]
    entries = collect([frame], disagreement={"between": (Of("detect", ("person",)), Of("second"))})[2]
    assert [[detection["label"] for detection in line["objects"] if "reasons" in detection] for line in entries] == [
        ["person"]
    ]


def unit(*values):
    vector = np.array(values, np.float32)
    return vector / np.linalg.norm(vector)


def test_novel_objects_are_those_far_from_all_collected_ones():
    vectors = [unit(1, 0, 0), unit(1, 0.1, 0), unit(0, 1, 0), unit(1, 1, 0), unit(0.05, 1, 0.05), np.full(3, np.nan)]
    footage = scene(*[0.9] * 6, embedding=vectors)
    entries = collect(footage, novelty=0.2, every=0.0)[2]
    assert reasons(entries) == [(0, "novelty"), (2, "novelty"), (3, "novelty")]
    again = scene(*[0.9] * 6, embedding=vectors, first=50)
    assert reasons(collect(again, novelty=0.2, every=0.0)[2]) == reasons(entries), "a new run knows what there is"
    assert collect(scene(0.9, embedding=[unit(0, 0, 1)], first=60), novelty=0.2)[1] == {"images collected: novelty": 1}


def test_objects_collected_for_another_reason_are_not_novel():
    vectors = [unit(1, 0), unit(1, 0.01)]
    entries = collect(scene(0.4, 0.9, embedding=vectors), novelty=0.2, low_score=(0.3, 0.5), every=0.0)[2]
    assert [entry["reasons"] for entry in entries] == [["low_score", "novelty"]]


def test_similar_vectors_are_stored_once():
    (frame,) = scene(0.9)
    boxes = [[40, 40, 160, 200], [200, 40, 300, 200]] * 2
    vectors = [unit(1, 0), unit(1, 0.01), unit(0, 1), unit(0.01, 1)]
    frame.tables = {"detect": detections(boxes, label=["person"] * 4, embedding=np.array(vectors))}
    (line,) = collect([frame], novelty=0.2)[2]
    assert ["vector" in detection for detection in line["objects"]] == [True, False, True, False]
    assert ["reasons" in detection for detection in line["objects"]] == [True] * 4


def test_events_are_a_reason_with_and_without_an_object():
    footage = scene(0.9, 0.9, 0.9, track_id=[7, 7, 7])
    happen(footage[0])
    happen(footage[1], track=None)
    happen(footage[2], kind="other")
    entries = collect(footage, when="door.crossed")[2]
    assert reasons(entries) == [(0, "when"), (1, "when")]
    assert entries[0]["objects"][0]["reasons"] == ["when"]
    assert "hash" in entries[1]
    _, counts, entries = collect(footage, when="door.crossed", capture="object", path="objects")
    assert reasons(entries) == [(0, "when")]
    assert counts == {"images collected: when": 1, "events without an object": 1}


def test_random_frames_come_at_a_mean_rate_and_are_the_same_each_time():
    def taken(folder):
        footage = [
            frame
            for source in ("a", "b")
            for frame in frames(300, source, width=32, height=32, pixels=True, step_s=10.0)
        ]
        entries = collect(footage, random=Rate(60, "h"), duplicates="keep", path=folder)[2]
        return [(entry["source"], entry["frame"]) for entry in entries]

    first = taken("one")
    assert first == taken("two")
    for source in ("a", "b"):
        assert 30 < sum(name == source for name, _ in first) < 75, "50 minutes, one a minute on average"
    assert len({frame for _, frame in first}) > 60


# ------------------------------------------------------------------------------------------------- objects as images


def test_each_object_is_a_separate_image_with_its_objects():
    (frame,) = scene(0.4)
    frame.tables = {
        "detect": detections(
            [[40, 40, 120, 160], [60, 50, 90, 80], [200, 60, 260, 120], [100, 40, 220, 160]],
            [0.4, 0.9, 0.35, 0.8],
            label=["person", "bag", "person", "car"],
        )
    }
    processed, counts, entries = collect([frame], low_score=(0.3, 0.5), capture="object", pad=0.0)
    assert counts == {"images collected: low_score": 2}
    assert [entry["part"] for entry in entries] == [[40, 40, 120, 160], [200, 60, 260, 120]]
    boxes = [
        [(detection["label"], detection["box"], "reasons" in detection) for detection in image["objects"]]
        for image in entries
    ]
    assert boxes == [
        [("person", [0, 0, 80, 120], True), ("bag", [20, 10, 50, 40], False)],
        [("person", [0, 0, 60, 60], True)],
    ]
    image = cv2.imread(str(Path("collected", entries[0]["image"])))[..., ::-1].astype(float)
    assert np.abs(image - spots(0)[40:160, 40:120]).mean() < 4
    assert len(processed[0].events) == 2


def test_a_random_object_is_drawn_from_the_frame():
    footage = scene(0.9, 0.9, 0.9)
    footage[1].tables["detect"] = footage[1].tables["detect"][[]]
    entries = collect(footage, random=Rate(10_000_000, "s"), capture="object")[2]
    assert reasons(entries) == [(2, "random")], "the first frame comes after no time"
    assert entries[0]["objects"][0]["reasons"] == ["random"]


# ------------------------------------------------------------------------------------------------------ duplicates


def parked(colors, source="gate"):
    """Frames of an object with a weak score that stands still; its color tells what it looks like."""
    parked_frames = frames(len(colors), source, width=320, height=240, step_s=10.0)
    for i, (frame, box) in enumerate(zip(parked_frames, colors, strict=True)):
        rgb = spots(99)
        x1, y1, x2, y2 = LARGE
        rgb[y1:y2, x1:x2] = spots(box, x2 - x1, y2 - y1)
        frame.surface = Surface(from_rgb(rgb, Color()), Color())
        frame.tables = {"detect": detections([LARGE], [0.4], label=["car"], embedding=[unit(1, 0.01 * i)])}
    return parked_frames


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [("gate", 0), ("gate", 2)]),
        ({"duplicates": "source"}, [("gate", 0), ("gate", 2), ("yard", 0)]),
        ({"duplicates": "keep"}, [("gate", 0), ("gate", 1), ("gate", 2), ("yard", 0)]),
        ({"same_vector": 0.1}, [("gate", 0)]),
    ],
)
def test_similar_objects_are_collected_once(options, expected):
    footage = [*parked([1, 1, 2]), *parked([1], "yard")]
    _, counts, entries = collect(footage, low_score=(0.3, 0.5), **options)
    assert [(entry["source"], entry["frame"]) for entry in entries] == expected
    assert counts.get("duplicate images: low_score", 0) == 4 - len(expected)
    _, counts, again = collect(footage, low_score=(0.3, 0.5), **options)
    assert len(again) == (2 if options.get("duplicates") == "keep" else 1) * len(expected), "also in a new run"


def test_similar_frames_are_collected_once():
    footage = [*scene(0.9, 0.9), *scene(0.9, first=0)]
    footage[2].pts_s = 20.0
    footage[2].index = 2
    for frame in footage:
        happen(frame, track=None)
    assert reasons(collect(footage, when="door.crossed")[2]) == [(0, "when"), (1, "when")]


def test_an_object_is_not_compared_with_whole_frames():
    first = scene(0.9)[0]
    second = scene(0.4)[0]
    happen(first, track=None)
    second.pts_s = 10.0
    second.index = 1
    second.tables = {"detect": detections([[0, 0, 320, 240]], [0.4], label=["car"])}
    assert reasons(collect([first, second], when="door.crossed", low_score=(0.3, 0.5))[2]) == [
        (0, "when"),
        (1, "low_score"),
    ]


def test_a_random_frame_with_a_weak_object_is_compared_as_a_frame():
    footage = parked([1, 1])
    footage[1].surface = Surface(from_rgb(np.rot90(spots(5, 240, 320)).copy(), Color()), Color())
    footage[1].surface.data[60:200, 120:200] = footage[0].surface.data[60:200, 120:200]
    options = {"low_score": (0.3, 0.5), "path": "one"}
    assert reasons(collect(footage, **options)[2]) == [(0, "low_score")], "the object is known"
    entries = collect(footage, **{**options, "path": "two"}, random=Rate(10_000_000, "s"))[2]
    assert [entry["reasons"] for entry in entries] == [["low_score"], ["low_score", "random"]]


# ---------------------------------------------------------------------------------------------------------- budget


def test_a_budget_holds_over_sources_and_restarts_until_midnight(monkeypatch):
    now_s = [20_000 * DAY_S + 80_000]
    monkeypatch.setattr(collect_module.time, "time", lambda: now_s[0])
    options = {"low_score": (0.3, 0.5), "at_most": Rate(3, "day")}
    _, counts, _ = collect([*scene(0.4, 0.4), *scene(0.4, 0.4, source="yard", first=10)], **options)
    assert counts == {"images collected: low_score": 3, "images over budget: low_score": 1}
    now_s[0] += 6000
    _, counts, _ = collect(scene(0.4, first=20), **options)
    assert counts == {"images over budget: low_score": 1}
    now_s[0] += 401
    _, counts, entries = collect(scene(0.4, first=30), **options)
    assert counts == {"images collected: low_score": 1}
    assert len(entries) == 4
    assert collect(scene(0.4, first=40), **{**options, "at_most": Rate(1, "s")})[1] == {
        "images over budget: low_score": 1
    }


def test_images_of_the_future_do_not_use_the_budget(monkeypatch):
    now_s = [30_000 * DAY_S]
    monkeypatch.setattr(collect_module.time, "time", lambda: now_s[0])
    options = {"low_score": (0.3, 0.5), "at_most": Rate(1, "day")}
    collect(scene(0.4), **options)
    now_s[0] = 20_000 * DAY_S
    assert collect(scene(0.4, 0.4, first=10), **options)[1] == {
        "images collected: low_score": 1,
        "images over budget: low_score": 1,
    }


@pytest.mark.parametrize("wrong", ['"collected":"soon"', '"hash":"x"', '"hash":5', '"hash":"fffffffffffffffff"'])
def test_a_line_with_a_damaged_value_is_skipped_and_counted(wrong):
    happened = scene(0.9)
    happen(happened[0], track=None)
    collect(happened, when="door.crossed")
    path = Path("collected/collected.jsonl")
    name = wrong.partition(":")[0]
    path.write_text(re.sub(rf'{name}:"[^"]*"', wrong, path.read_text()))
    assert wrong in path.read_text()
    assert collect(scene(0.4, first=10), low_score=(0.3, 0.5))[1] == {
        "unreadable lines": 1,
        "images collected: low_score": 1,
    }


def test_two_stages_of_a_folder_share_budget_and_duplicates():
    first, second = (Collect("collected", (0.3, 0.5), at_most=Rate(3, "day")) for _ in range(2))
    for stage in (first, second):
        stage.context = type(stage.context)()
        stage.open()
    for frame in scene(0.4, 0.4, 0.4, 0.4):
        first.write(frame)
        second.write(frame)
    assert dict(first.context.counters.values) == {"images collected: low_score": 3, "images over budget: low_score": 1}
    assert dict(second.context.counters.values) == {
        "duplicate images: low_score": 2,
        "images over budget: low_score": 2,
    }
    for stage in (first, second):
        stage.close()


# --------------------------------------------------------------------------------------------------------- trouble


def test_a_damaged_frame_is_not_collected():
    footage = scene(0.4, 0.9, 0.4)
    footage[0].damaged = footage[1].damaged = True
    _, counts, entries = collect(footage, low_score=(0.3, 0.5), every=0.0)
    assert reasons(entries) == [(2, "low_score")]
    assert counts == {"damaged frames left out": 1, "images collected: low_score": 1}


def test_a_failed_frame_is_never_collected():
    """It may have failed in the stage that hides."""
    stage = Collect("collected", (0.3, 0.5), random=Rate(10_000_000, "s"))
    stage.context = type(stage.context)()
    stage.open()
    for error in ("draw raised", None):
        (frame,) = scene(0.4)
        frame.error = error
        stage.write(frame)
        assert len(lines()) == (error is None)
    frame.surface = None
    frame.pts_s = 100.0
    stage.write(frame)
    stage.close()
    assert len(lines()) == 1


def test_a_full_disk_loses_images_only(monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    stage = Collect("collected", (0.3, 0.5))
    with pytest.raises(OutputError, match="collect: 2 images under collected/images could not be written: the disk is"):
        run_stage(stage, scene(0.4, 0.4))
    assert dict(stage.context.counters.values) == {"images not written: low_score": 2}
    assert lines() == []
    assert os.listdir("collected/images") == []


def test_a_partial_image_is_removed_at_the_next_start():
    part = Path("collected/images/.gate_000001.000s_when.jpg.part")
    collect([], random=Rate(1, "h"))
    part.write_bytes(b"half")
    assert collect([], random=Rate(1, "h"))[1] == {"unfinished images removed": 1}
    assert not part.exists()


def test_damaged_lines_are_skipped_and_counted():
    collect(scene(0.4), low_score=(0.3, 0.5))
    with Path("collected/collected.jsonl").open("a") as file:
        file.write('note to myself\n{"schema": "streamkit/collected/1", "image": "images/a.jpg"}\n')
    counts = collect(scene(0.4, first=5), low_score=(0.3, 0.5), at_most=Rate(2, "day"))[1]
    assert counts == {"unreadable lines": 2, "images collected: low_score": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set at least one reason: when, disagreement, low_score, novelty, random, such as low_score"),
        ({"low_score": (0.5, 0.3)}, r"low_score must be \[lowest, highest\], got \[0.5, 0.3\]"),
        ({"when": []}, "when must name an event"),
        ({"random": Rate(1, "h"), "path": "out/{source}"}, "path must be a folder for all sources"),
        ({"novelty": 0.1, "same_vector": 0.2}, "same_vector must be at most novelty, 0.1"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Collect(**{"path": "collected", **options})


@pytest.mark.gpu
def test_a_device_gives_the_same_images():
    import cupy

    from streamkit.core.data import Device

    host = scene(0.4, 0.4)
    device = scene(0.4, 0.4)
    for frame in device:
        frame.surface = type(frame.surface)(cupy.asarray(frame.surface.data), frame.surface.color)
    expected = collect(host, low_score=(0.3, 0.5), path="host")[2]
    stage = Collect("device", (0.3, 0.5))
    stage.context = type(stage.context)(device=Device("cuda", 0))
    run_stage(stage, device)
    assert [entry["objects"] for entry in lines("device")] == [entry["objects"] for entry in expected]
    for entry, host_entry in zip(lines("device"), expected, strict=True):
        assert Path("device", entry["image"]).read_bytes() == Path("host", host_entry["image"]).read_bytes()
