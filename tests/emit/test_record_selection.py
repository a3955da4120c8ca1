import json

import numpy as np
import pytest

from streamkit.core.records import record
from streamkit.emit.record_selection import VARIABLES, RecordSelection
from streamkit.testing.kit import detections, frames


def scene(labels_by_frame, *, tracks=False, step_s=0.1):
    made = frames(len(labels_by_frame), width=640, height=480)
    for i, (frame, found) in enumerate(zip(made, labels_by_frame, strict=True)):
        names = ("car", "person")
        boxes = [[10 * n, 20, 10 * n + 5, 40] for n in range(len(found))]
        table = detections(boxes, labels=names, track_id=range(len(found)) if tracks else None)
        frame.pts_s = i * step_s
        frame.tables = {"detect": table.with_columns(class_id=np.array([names.index(n) for n in found], np.int32))}
    return made


def sent(choice, made):
    return [
        [(values, json.loads(body)) for values, body, _ in choice.of(one, lambda one=one: record(one))] for one in made
    ]


def test_a_frames_record_is_what_jsonl_writes():
    made = scene([["car"], []])
    assert sent(RecordSelection("frames"), made) == [[(("test",), record(one))] for one in made]


def test_objects_of_other_labels_are_left_out_of_a_frames_record():
    (((_, one),),) = sent(RecordSelection("frames", labels=["person"]), scene([["car", "person"]]))
    assert [found["label"] for found in one["objects"]] == ["person"]


def test_each_object_is_a_record_with_its_frame():
    made = scene([["car", "person"], []])
    (one, other), nothing = sent(RecordSelection("objects"), made)
    assert one[0] == ("test", "car", "detect", "none")
    assert len(one[0]) == len(VARIABLES["objects"])
    whole = record(made[0])
    objects, _ = whole.pop("objects"), whole.pop("events")
    assert [one[1], other[1]] == [{**whole, "object": found} for found in objects]
    assert nothing == []
    unnamed = sent(RecordSelection("objects", named=False), made)[0]
    assert [body for _, body in unnamed] == [one[1], other[1]]


def test_records_of_objects_and_events_of_a_damaged_frame_say_so():
    (made,) = scene([["car"]])
    made._state.stage, made.damaged = "crossing", True
    made.emit("crossed", track_id=7)
    for send in ("frames", "objects", "events"):
        assert [body["damaged"] for _, body in sent(RecordSelection(send), [made])[0]] == [True]


def test_events_are_chosen_by_name():
    made = scene([["car"]])
    made[0]._state.stage = "crossing"
    made[0].emit("crossed", track_id=7, direction="in")
    made[0].emit("other")
    all_, some = (
        sent(RecordSelection("events"), made)[0],
        sent(RecordSelection("events", when="crossing.crossed"), made)[0],
    )
    assert [values for values, _ in all_] == [
        ("test", "crossing", "crossed", "7"),
        ("test", "crossing", "other", "none"),
    ]
    assert [values for values, _ in some] == [("test", "crossing", "crossed", "7")]
    told = some[0][1]
    assert told["event"] == {"kind": "crossed", "stage": "crossing", "track_id": 7, "data": {"direction": "in"}}
    assert "objects" not in told


def test_every_thins_frames_and_tracks_by_their_own_time():
    made = scene([["car"]] * 10, tracks=True)
    assert [len(one) for one in sent(RecordSelection("frames", every_s=0.3), made)] == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]
    made = scene([["car"], ["car", "person"], ["car", "person"], ["car"]], tracks=True)
    assert [len(one) for one in sent(RecordSelection("objects", every_s=0.2), made)] == [1, 1, 1, 0]
    choice = RecordSelection("frames", every_s=100)
    assert [len(one) for one in sent(choice, made[:2])] == [1, 0]
    choice.end("test")
    assert [len(one) for one in sent(choice, made[:1])] == [1], "a source that comes again begins anew"


def test_on_change_sends_frames_whose_counts_differ():
    seen = [["car"], ["car"], ["car", "car"], ["person", "car"], ["car", "person"], [], []]
    assert [len(one) for one in sent(RecordSelection("frames", on_change=True), scene(seen))] == [1, 0, 1, 1, 0, 1, 0]
    only = RecordSelection("frames", on_change=True, labels=["person"])
    assert [len(one) for one in sent(only, scene(seen))] == [1, 0, 0, 1, 0, 1, 0]
    again = RecordSelection("frames", on_change=True, every_s=0.2)
    assert [len(one) for one in sent(again, scene([["car"]] * 4 + [[]] * 4))] == [1, 0, 1, 0, 1, 0, 1, 0]


def test_a_frame_that_is_a_millisecond_early_is_on_time_and_time_that_goes_back_begins_again():
    made = scene([[]] * 6)
    for frame, pts_s in zip(made, (1.0, 1.2989, 1.2991, 0.5, 0.7, 0.8), strict=True):
        frame.pts_s = pts_s
    assert [len(one) for one in sent(RecordSelection("frames", every_s=0.3), made)] == [1, 0, 1, 1, 0, 1]


def test_every_source_has_its_own_time_and_its_own_counts():
    made = scene([["car"]] * 6)
    for n, frame in enumerate(made):
        frame.source = "gate" if n % 2 else "yard"
    assert [len(one) for one in sent(RecordSelection("frames", every_s=0.3), made)] == [1, 1, 0, 0, 1, 1]
    choice = RecordSelection("frames", on_change=True)
    assert [len(one) for one in sent(choice, made)] == [1, 1, 0, 0, 0, 0]
    choice.end("gate")
    assert [len(one) for one in sent(choice, made[:4])] == [0, 1, 0, 0]


def test_objects_without_a_track_have_one_time_together_and_the_labels_choose_before():
    made = scene([["car", "person"]] * 3)
    assert [len(one) for one in sent(RecordSelection("objects", every_s=0.2), made)] == [2, 0, 2]
    only = sent(RecordSelection("objects", labels=["person"], every_s=0.2), made)
    assert [[values[1] for values, _ in one] for one in only] == [["person"], [], ["person"]]


def test_a_change_is_sent_at_once_and_the_time_counts_from_there():
    seen = [["car"], [], [], [], []]
    assert [len(one) for one in sent(RecordSelection("frames", on_change=True, every_s=0.2), scene(seen))] == [
        1,
        1,
        0,
        1,
        0,
    ]


def test_an_error_that_comes_or_goes_is_a_change():
    choice, made = RecordSelection("frames", on_change=True), scene([[]] * 5)
    errors = (None, "detect failed", "detect failed", "other", None)
    records = [{**record(one), **({"error": error} if error else {})} for one, error in zip(made, errors, strict=True)]
    found = [choice.of(one, lambda told=told: told) for one, told in zip(made, records, strict=True)]
    assert [len(one) for one in found] == [1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"send": "events", "labels": ["car"]}, "with send: events write when"),
        ({"send": "events", "every_s": 1.0}, "with send: events write when"),
        ({"send": "objects", "on_change": True}, "on_change chooses frames; leave it out with send: objects"),
        ({"send": "frames", "when": "a"}, "when chooses events; write send: events"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        RecordSelection(**options)


def test_what_json_does_not_have_becomes_text():
    made = scene([["car"]])
    made[0].tables["detect"] = made[0].tables["detect"].with_columns(what=np.array([{1, 2}], object))
    (((_, one),),) = sent(RecordSelection("objects"), made)
    assert one["object"]["what"] == [1, 2]


def test_the_box_of_an_event_is_that_of_its_track_and_none_where_it_has_no_track():
    (made,) = scene([["car", "person", "car"]], tracks=True)
    made.tables["detect"] = made.tables["detect"].with_columns(track_id=np.array([5, 6, -1]))
    made._state.stage = "crossing"
    for track in (6, 5, 9, None):
        made.emit("crossed", track_id=track)
    boxed = [box for _, _, box in RecordSelection("events", boxed=True).of(made, lambda: record(made))]
    assert boxed == [[10, 20, 15, 40], [0, 20, 5, 40], None, None]
    assert [box for _, _, box in RecordSelection("events").of(made, lambda: record(made))] == [None] * 4


def test_tracks_are_forgotten_a_minute_after_their_time_and_not_while_it_runs():
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
