import json

import numpy as np
import pytest

from streamkit.core.records import record
from streamkit.emit.record_selection import VARIABLES, RecordSelection
from streamkit.testing.kit import detections, frames


def scene(labels_by_frame, *, tracks=False, step_s=0.1):
    video = frames(len(labels_by_frame), width=640, height=480)
    for i, (frame, labels) in enumerate(zip(video, labels_by_frame, strict=True)):
        names = ("car", "person")
        boxes = [[10 * n, 20, 10 * n + 5, 40] for n in range(len(labels))]
        table = detections(boxes, labels=names, track_id=range(len(labels)) if tracks else None)
        frame.pts_s = i * step_s
        frame.tables = {"detect": table.with_columns(class_id=np.array([names.index(n) for n in labels], np.int32))}
    return video


def sent(choice, video):
    selected = [choice.of(frame, lambda frame=frame: record(frame)) for frame in video]
    return [[(values, json.loads(body)) for values, body, _ in frame_records] for frame_records in selected]


def counts(choice, video):
    return [len(frame_records) for frame_records in sent(choice, video)]


def test_a_frame_record_equals_that_of_jsonl():
    video = scene([["car"], []])
    assert sent(RecordSelection("frames"), video) == [[(("test",), record(frame))] for frame in video]


def test_a_frame_record_omits_objects_of_other_labels():
    (((_, frame_record),),) = sent(RecordSelection("frames", labels=["person"]), scene([["car", "person"]]))
    assert [detected["label"] for detected in frame_record["objects"]] == ["person"]


def test_each_object_is_a_record_with_its_frame():
    video = scene([["car", "person"], []])
    (first_object, second_object), nothing = sent(RecordSelection("objects"), video)
    assert first_object[0] == ("test", "car", "detect", "none")
    assert len(first_object[0]) == len(VARIABLES["objects"])
    whole = record(video[0])
    objects = whole.pop("objects")
    _ = whole.pop("events")
    assert [first_object[1], second_object[1]] == [{**whole, "object": detected} for detected in objects]
    assert nothing == []
    unnamed = sent(RecordSelection("objects", named=False), video)[0]
    assert [body for _, body in unnamed] == [first_object[1], second_object[1]]


def test_records_of_a_damaged_frame_are_marked():
    (frame,) = scene([["car"]])
    frame._state.stage = "crossing"
    frame.damaged = True
    frame.emit("crossed", track_id=7)
    for send in ("frames", "objects", "events"):
        assert [body["damaged"] for _, body in sent(RecordSelection(send), [frame])[0]] == [True]


def test_events_are_selected_by_name():
    video = scene([["car"]])
    video[0]._state.stage = "crossing"
    video[0].emit("crossed", track_id=7, direction="in")
    video[0].emit("other")
    all_ = sent(RecordSelection("events"), video)[0]
    some = sent(RecordSelection("events", when="crossing.crossed"), video)[0]
    assert [values for values, _ in all_] == [
        ("test", "crossing", "crossed", "7"),
        ("test", "crossing", "other", "none"),
    ]
    assert [values for values, _ in some] == [("test", "crossing", "crossed", "7")]
    event_record = some[0][1]
    assert event_record["event"] == {"kind": "crossed", "stage": "crossing", "track_id": 7, "data": {"direction": "in"}}
    assert "objects" not in event_record


def test_every_limits_frames_and_tracks_by_media_time():
    video = scene([["car"]] * 10, tracks=True)
    assert counts(RecordSelection("frames", every_s=0.3), video) == [
        1,
        0,
        0,
        1,
        0,
        0,
        1,
        0,
        0,
        1,
    ]
    video = scene([["car"], ["car", "person"], ["car", "person"], ["car"]], tracks=True)
    assert counts(RecordSelection("objects", every_s=0.2), video) == [
        1,
        1,
        1,
        0,
    ]
    choice = RecordSelection("frames", every_s=100)
    assert counts(choice, video[:2]) == [1, 0]
    choice.end("test")
    assert counts(choice, video[:1]) == [1], "a source that comes again begins anew"


def test_on_change_sends_frames_whose_counts_differ():
    seen = [["car"], ["car"], ["car", "car"], ["person", "car"], ["car", "person"], [], []]
    assert counts(RecordSelection("frames", on_change=True), scene(seen)) == [
        1,
        0,
        1,
        1,
        0,
        1,
        0,
    ]
    only = RecordSelection("frames", on_change=True, labels=["person"])
    assert counts(only, scene(seen)) == [1, 0, 0, 1, 0, 1, 0]
    again = RecordSelection("frames", on_change=True, every_s=0.2)
    assert counts(again, scene([["car"]] * 4 + [[]] * 4)) == [
        1,
        0,
        1,
        0,
        1,
        0,
        1,
        0,
    ]


def test_a_millisecond_early_counts_as_due_and_a_time_jump_back_restarts_the_interval():
    video = scene([[]] * 6)
    for frame, pts_s in zip(video, (1.0, 1.2989, 1.2991, 0.5, 0.7, 0.8), strict=True):
        frame.pts_s = pts_s
    assert counts(RecordSelection("frames", every_s=0.3), video) == [
        1,
        0,
        1,
        1,
        0,
        1,
    ]


def test_sources_have_separate_intervals_and_counts():
    video = scene([["car"]] * 6)
    for n, frame in enumerate(video):
        frame.source = "gate" if n % 2 else "yard"
    assert counts(RecordSelection("frames", every_s=0.3), video) == [
        1,
        1,
        0,
        0,
        1,
        1,
    ]
    choice = RecordSelection("frames", on_change=True)
    assert counts(choice, video) == [1, 1, 0, 0, 0, 0]
    choice.end("gate")
    assert counts(choice, video[:4]) == [0, 1, 0, 0]


def test_untracked_objects_share_an_interval_after_the_label_filter():
    video = scene([["car", "person"]] * 3)
    assert counts(RecordSelection("objects", every_s=0.2), video) == [2, 0, 2]
    only = sent(RecordSelection("objects", labels=["person"], every_s=0.2), video)
    assert [[values[1] for values, _ in frame_records] for frame_records in only] == [["person"], [], ["person"]]


def test_a_change_is_sent_at_once_and_restarts_the_interval():
    seen = [["car"], [], [], [], []]
    assert [
        len(frame_records)
        for frame_records in sent(RecordSelection("frames", on_change=True, every_s=0.2), scene(seen))
    ] == [
        1,
        1,
        0,
        1,
        0,
    ]


def test_an_appearing_or_disappearing_error_is_a_change():
    choice = RecordSelection("frames", on_change=True)
    video = scene([[]] * 5)
    errors = (None, "detect failed", "detect failed", "other", None)
    records = [
        {**record(frame), **({"error": error} if error else {})} for frame, error in zip(video, errors, strict=True)
    ]
    selected = [
        choice.of(frame, lambda frame_record=frame_record: frame_record)
        for frame, frame_record in zip(video, records, strict=True)
    ]
    assert [len(frame_records) for frame_records in selected] == [1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"send": "events", "labels": ["car"]}, "with send: events use when"),
        ({"send": "events", "every_s": 1.0}, "with send: events use when"),
        ({"send": "objects", "on_change": True}, "on_change selects frames; remove it with send: objects"),
        ({"send": "frames", "when": "a"}, "when selects events; write send: events"),
    ],
)
def test_conflicting_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RecordSelection(**options)


def test_values_without_a_json_form_become_text():
    video = scene([["car"]])
    video[0].tables["detect"] = video[0].tables["detect"].with_columns(what=np.array([{1, 2}], object))
    (((_, object_record),),) = sent(RecordSelection("objects"), video)
    assert object_record["object"]["what"] == [1, 2]


def test_an_event_has_the_box_of_its_track_if_any():
    (frame,) = scene([["car", "person", "car"]], tracks=True)
    frame.tables["detect"] = frame.tables["detect"].with_columns(track_id=np.array([5, 6, -1]))
    frame._state.stage = "crossing"
    for track in (6, 5, 9, None):
        frame.emit("crossed", track_id=track)
    boxed = [box for _, _, box in RecordSelection("events", boxed=True).of(frame, lambda: record(frame))]
    assert boxed == [[10, 20, 15, 40], [0, 20, 5, 40], None, None]
    assert [box for _, _, box in RecordSelection("events").of(frame, lambda: record(frame))] == [None] * 4


def test_tracks_are_forgotten_a_minute_after_their_interval():
    choice = RecordSelection("objects", every_s=100.0, named=False)

    def at(pts_s, *tracks):
        (frame,) = scene([["car"] * len(tracks)])
        frame.pts_s = pts_s
        frame.tables["detect"] = frame.tables["detect"].with_columns(track_id=np.array(tracks))
        return len(choice.of(frame, lambda: record(frame)))

    many = range(1001)
    assert at(0.0, *many) == 1001
    assert (at(99.9, 0, 1), len(choice._last_s["test"])) == (0, 1001), "their time runs"
    assert (at(161.0, 2000), len(choice._last_s["test"])) == (1, 1), "all of 0 s are forgotten"
    assert at(162.0, *range(3000, 4000)) == 1000
    assert (at(300.0, 2000), len(choice._last_s["test"])) == (1, 1001)
    assert at(301.0, 3000) == 1
    assert len(choice._last_s["test"]) == 1001, "up to a minute more than its time a track is known"
