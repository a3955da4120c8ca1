"""Records in words."""

import re

import pytest

from streamkit.emit.mail_format import summary, title, when

OF = {"stage": "line", "kind": "crossed"}
CAR = {"label": "car", "class_id": 2}
HEAD = {"source": "gate", "frame": 3, "pts_s": 1.234}


@pytest.mark.parametrize(
    ("record", "text", "titled"),
    [
        (
            {"event": {"kind": "crossed", "stage": "line"}},
            'An object crossed the line "line" at gate.',
            "crossed at gate",
        ),
        (
            {"event": {"kind": "reconnected", "stage": "decode", "data": {"cause": "timeout", "away_s": 4.25}}},
            "The source gate is connected again after 4.2 s (timeout).",
            "reconnected at gate",
        ),
        (
            {"event": {"kind": "saved", "stage": "s", "track_id": 8, "data": {"label": "car", "of": OF, "box": []}}},
            "A snapshot of car at gate was saved for line crossed.",
            "saved at gate",
        ),
        (
            {"event": {"kind": "raised", "stage": "alarms", "data": {"alarm": "dark", "text": "the camera\n is dark"}}},
            "the camera is dark",
            "dark raised at gate",
        ),
        (
            {"event": {"kind": "said", "stage": "s", "data": {"what": "a \n b" + "c" * 300, "text": ""}}},
            f"Said at gate, from s: what a b{'c' * 269}…",
            "said at gate",
        ),
        ({"object": {**CAR, "score": 0.987}}, "car at gate (score 0.99)", "car at gate"),
        ({"object": {**CAR, "score": None, "track_id": 7}}, "car at gate (track 7)", "car at gate"),
        ({"object": {**CAR, "score": None}}, "car at gate", "car at gate"),
        ({"objects": [CAR, {"class_id": 7}, CAR]}, "2 car, 1 7 at gate", "frames of gate"),
        ({"objects": []}, "nothing at gate", "frames of gate"),
        ({"objects": [], "error": "detect\n failed"}, "gate: detect failed", "frames of gate"),
    ],
)
def test_a_record_is_described_in_a_line(record, text, titled):
    assert (summary({**HEAD, **record}), title({**HEAD, **record})) == (text, titled)


def test_the_time_is_wall_clock_or_the_position_in_a_recording():
    assert when(HEAD) == "1.23 s"
    assert re.fullmatch(r"2026-08-0[12] \d\d:00:00", when({**HEAD, "time": "2026-08-01T12:00:00.250Z"}))
