"""Events in words."""

import numpy as np
import pytest

from streamkit.core.data import Event
from streamkit.core.sentences import KINDS, plain, sentence, span_text
from streamkit.core.stage import default_registry


def sentence_of(kind, track=None, stage="line", **data):
    return sentence(Event(kind, stage, "gate", 3, 0.12, track, data))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            ("crossed", 7, "door", {"direction": "in", "label": "car", "in": 5, "out": 3}),
            'Car 7 crossed the line "door" going in at gate (5 in, 3 out so far).',
        ),
        (
            ("crossed", 7, "line", {"line": "north", "direction": "out"}),
            'Track 7 crossed the line "north" going out at gate.',
        ),
        (
            ("counted", None, "line", {"in": 1, "out": 2, "from_s": 0, "to_s": 300}),
            'In 5 min, 1 went in and 2 went out over the line "line" at gate.',
        ),
        (
            ("entered", 3, "till", {"label": "person", "count": 2}),
            'Person 3 entered the zone "till" at gate (2 inside).',
        ),
        (
            ("entered", 3, "z", {"zone": "till", "label": "person", "count": 2, "appeared": True}),
            'Person 3 appeared in the zone "till" at gate (2 inside).',
        ),
        (
            ("left", 3, "till", {"label": "person", "count": 1, "dwell_s": 12.04}),
            'Person 3 left the zone "till" at gate after 12 s (1 inside).',
        ),
        (
            ("left", 3, "till", {"label": "person", "count": 1, "dwell_s": 2.5, "lost": True}),
            'Person 3 was last seen in the zone "till" at gate after 2.5 s (1 inside).',
        ),
        (
            ("loitering", 3, "till", {"label": "person", "count": 1, "dwell_s": 7200}),
            'Person 3 has been in the zone "till" at gate for 2 h.',
        ),
        (
            ("overcrowded", None, "till", {"count": 6, "since_s": 1}),
            'The zone "till" at gate is overcrowded: 6 objects.',
        ),
        (
            ("cleared", None, "till", {"count": 1, "since_s": 1}),
            'The zone "till" at gate is no longer overcrowded (1 inside).',
        ),
        (
            ("occupancy", None, "till", {"mean": 2.5, "max": 4, "entered": 3, "left": 2, "from_s": 0, "to_s": 60}),
            'In 60 s, the zone "till" at gate held 2.5 objects on average, 4 at most; 3 entered and 2 left.',
        ),
        (("raised", None, "rules", {"rule": "crowd", "since_s": 1}), 'The rule "crowd" is true at gate.'),
        (("raised", 4, "rules", {"rule": "long", "label": "car"}), 'The rule "long" is true for car 4 at gate.'),
        (
            ("cleared", 4, "rules", {"rule": "long", "label": "car", "lasted_s": 31}),
            'The rule "long" is no longer true for car 4 at gate after 31 s.',
        ),
        (("raised", None, "alarms", {"alarm": "down", "text": 'camera "gate"\n is down'}), 'Camera "gate" is down.'),
        (
            ("met", 3, "near", {"other": 5, "labels": ["person", "car"], "distance": 1}),
            "Person 3 and car 5 met at gate.",
        ),
        (
            ("parted", 3, "near", {"other": 5, "labels": ["person", "car"], "together_s": 12}),
            "Person 3 and car 5 parted at gate after 12 s.",
        ),
        (
            ("speeding", 7, "speed", {"label": "car", "speed_kmh": 63.2, "limit_kmh": 50.0}),
            "Car 7 moves at 63 km/h at gate, above the limit of 50 km/h.",
        ),
        (
            ("slowed", 7, "speed", {"label": "car", "speed_kmh": 44.0, "limit_kmh": 50.0}),
            "Car 7 has slowed to 44 km/h at gate, below the limit of 50 km/h.",
        ),
        (("changed", 7, "way", {"label": "car", "direction": "north"}), "Car 7 moves north at gate."),
        (
            ("changed", 7, "way", {"label": "car", "direction": "north", "before": "east"}),
            "Car 7 turned from east to north at gate.",
        ),
        (("wrong_way", 7, "way", {"label": "car", "direction": "north"}), "Car 7 moves the wrong way at gate: north."),
        (("anomalous", None, "seams", {"score": 0.834, "since_s": 4.0}), "The view of gate is anomalous: score 0.83."),
        (
            ("cleared", None, "seams", {"max_score": 0.9, "lasted_s": 2.0}),
            "The view of gate is no longer anomalous after 2 s (highest score 0.90).",
        ),
        (("manual", None, "clip", {}), "A clip of gate was started by hand."),
        (
            ("recorded", None, "clip", {"clip": "/x.mp4", "duration_s": 30.0, "bytes": 3_400_000, "start_s": 1}),
            "A clip of gate was recorded: 30 s, 3.4 MB.",
        ),
        (
            ("saved", 7, "snap", {"path": "x.jpg", "label": "car", "of": {"stage": "door", "kind": "crossed"}}),
            "A snapshot of car at gate was saved for door crossed.",
        ),
        (("saved", None, "heat", {"path": "x.png"}), "The image of heat at gate was saved."),
        (
            ("resized", None, "decode", {"width": 640, "height": 480, "before": {"width": 320, "height": 240}}),
            "The picture of gate is 640x480 from now on, before 320x240.",
        ),
        (
            ("reconnected", None, "decode", {"cause": "timeout", "away_s": 4.25}),
            "The source gate is connected again after 4.2 s (timeout).",
        ),
        (
            ("restarted", None, "pipeline", {"cause": "process 3 was killed", "frames_lost": 1}),
            "The source gate was restarted in another process: process 3 was killed; 1 frame was lost.",
        ),
        (
            ("too_close", 7, "mine", {"label": "car", "meters": 1.5, "box": [1, 2], "with": {"a": [1, {"b": None}]}}),
            "Too close for car 7 at gate, from mine: meters 1.5, with a 1 b none.",
        ),
        (("hello", None, "mine", {}), "Hello at gate, from mine."),
    ],
)
def test_each_kind_has_a_sentence(event, text):
    kind, track, stage, data = event
    assert sentence_of(kind, track, stage, **data) == text


def test_every_kind_of_built_in_event_has_a_distinct_sentence():
    registry = default_registry()
    declared = {kind for name in registry.names() for kind in registry[name].spec.emits}
    assert {"crossed", "entered", "raised", "recorded", "saved"} <= declared
    assert declared | {"reconnected", "resized", "restarted"} <= KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    "data",
    [
        {},
        {"count": None, "dwell_s": "x", "labels": 3, "of": [], "bytes": "many", "to_s": float("inf"), "from_s": 0},
        {
            "in": {"a": 1},
            "rule": ["x"],
            "speed_kmh": np.float32(3),
            "limit_kmh": "fast",
            "dwell_s": float("nan"),
            "count": 1,
        },
    ],
)
def test_unexpected_event_data_gives_a_sentence(kind, data):
    text = sentence_of(kind, 7, **data)
    assert "gate" in text
    assert text.endswith((".", "…"))
    assert "{" not in text


def test_a_long_text_is_shortened_to_a_line():
    text = sentence_of("said", what="a\n" * 500)
    assert len(text) == 300
    assert "\n" not in text


def test_values_are_formatted_in_words():
    assert plain({"a_b": [1.50, True], "c": None}) == "a b 1.5 yes, c none"
    assert [span_text(duration_s) for duration_s in (0.4, 31, 99.6, 7260, 3600)] == [
        "0.4 s",
        "31 s",
        "100 s",
        "2 h 1 min",
        "1 h",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1, "1 s"),
        (8.5, "8.5 s"),
        (9, "9 s"),
        (9.4, "9.4 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (10.4, "10 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (149, "2 min"),
        (151, "3 min"),
        (3569, "59 min"),
        (3571, "1 h"),
        (3660, "1 h 1 min"),
        (86400, "24 h"),
        (-3, "-3 s"),
    ],
)
def test_a_duration_has_its_significant_digits(seconds, text):
    assert span_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0.0 kB"),
        (940, "0.9 kB"),
        (99_900, "99.9 kB"),
        (100_000, "0.1 MB"),
        (3_400_000, "3.4 MB"),
        (12_340_000_000, "12340.0 MB"),
    ],
)
def test_the_size_of_a_clip_is_in_kilobytes_below_a_tenth_of_a_megabyte(size, text):
    assert sentence_of("recorded", None, "clip", clip="/x.mp4", duration_s=30.0, bytes=size, start_s=1).endswith(
        f"30 s, {text}."
    )
