# SPDX-License-Identifier: Apache-2.0
"""The events that streamkit emits: when each occurs, and the keys of its data. For the reference and its tests.

Stages of plugins emit kinds of their own, which are not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.core.data import Event


@dataclass(frozen=True)
class EventKind:
    """A kind of event.

    Attributes:
        kind: its name.
        stage: the type of the stage that emits it, or `decode`, `alarms` or `pipeline`.
        help: when it occurs.
        keys: the keys of its data that are always present, with their meaning.
        optional: further keys of its data, with their meaning and when they are present.
        example: data of an example.
        track_id: the example's track; None for events that concern no track.
    """

    kind: str
    stage: str
    help: str
    keys: Mapping[str, str]
    example: Mapping[str, Any]
    optional: Mapping[str, str] = field(default_factory=dict)
    track_id: int | None = None

    def event(self) -> Event:
        """The example, at the source `gate`."""
        return Event(self.kind, self.stage, "gate", 100, 4.0, self.track_id, dict(self.example))


_LABEL = {"label": "class of the object"}
_AT = {"at_s": "presentation time at which it happened, in seconds"}
_WINDOW = {"from_s": "start of the period, in seconds", "to_s": "end of the period, in seconds"}
_LINE = {"line": "name of the line; absent if the line has no name"}
_ZONE = {"zone": "name of the area; absent if the area has no name"}
_COUNT = {"count": "number of tracks that are in the area now"}
_SINCE = {"since_s": "presentation time since which it has been so, in seconds"}
_PAIR = {"other": "the other track", "labels": "the classes of both tracks"}
_SPEED = {"speed_kmh": "speed in km/h", "limit_kmh": "the limit in km/h"}
_DIRECTION = {"direction": "name of the direction", "heading_deg": "degrees clockwise from up"}
_RULE = {"rule": "name of the rule, or the stage's id"}
_VALUES = {"values": "the facts that the rule names, with their values"}
_OF_OBJECT = {"label": "class of the object, in a rule about objects"}
_ALARM = {"alarm": "name of the alarm", "text": "the message"}
_FACTS = {"down_s, ...": "each fact that the alarm's rule names"}

EVENT_KINDS: tuple[EventKind, ...] = (
    EventKind(
        "crossed",
        "line_counter",
        "A track crosses a line.",
        {
            "direction": "in or out",
            **_LABEL,
            "in": "crossings in so far, of this line",
            "out": "crossings out so far, of this line",
            **_AT,
        },
        {"line": "door", "direction": "in", "label": "person", "in": 5, "out": 3, "at_s": 3.96},
        {**_LINE, "attributes": "the object's attributes by name, if a classifier has set them"},
        7,
    ),
    EventKind(
        "counted",
        "line_counter",
        "A period of the option `window` ends.",
        {"in": "crossings in during the period", "out": "crossings out during the period", **_WINDOW},
        {"line": "door", "in": 12, "out": 9, "from_s": 0.0, "to_s": 300.0},
        _LINE,
    ),
    EventKind(
        "entered",
        "zone",
        "A track enters an area.",
        {**_LABEL, **_COUNT, **_AT},
        {"zone": "till", "label": "person", "count": 2, "at_s": 3.96},
        {**_ZONE, "appeared": "true if the track was first seen inside"},
        7,
    ),
    EventKind(
        "left",
        "zone",
        "A track leaves an area.",
        {**_LABEL, **_COUNT, "dwell_s": "seconds that the track was inside", **_AT},
        {"zone": "till", "label": "person", "count": 1, "dwell_s": 12.0, "at_s": 15.96},
        {**_ZONE, "lost": "true if the track was last seen inside"},
        7,
    ),
    EventKind(
        "loitering",
        "zone",
        "A track has been in an area for as long as the option `loitering` says.",
        {**_LABEL, **_COUNT, "dwell_s": "seconds that the track has been inside"},
        {"zone": "till", "label": "person", "count": 2, "dwell_s": 60.0},
        _ZONE,
        7,
    ),
    EventKind(
        "overcrowded",
        "zone",
        "More tracks are in an area than the option `more_than` allows.",
        {**_COUNT, **_SINCE},
        {"zone": "till", "count": 6, "since_s": 3.0},
        _ZONE,
    ),
    EventKind(
        "cleared",
        "zone",
        "An overcrowded area no longer is.",
        {**_COUNT, **_SINCE},
        {"zone": "till", "count": 4, "since_s": 9.0},
        _ZONE,
    ),
    EventKind(
        "occupancy",
        "zone",
        "A period of the option `window` ends.",
        {
            "mean": "mean number of tracks inside",
            "max": "largest number of tracks inside",
            "entered": "tracks that entered",
            "left": "tracks that left",
            **_WINDOW,
        },
        {"zone": "till", "mean": 2.5, "max": 4, "entered": 3, "left": 2, "from_s": 0.0, "to_s": 60.0},
        _ZONE,
    ),
    EventKind(
        "read",
        "read",
        "The text of a track is sure, or another one than before is.",
        {
            "value": "the text",
            "score": "score of its least certain character, 0 to 1",
            "readings": "number of readings that were voted over",
            "attribute": "name of the attribute that has the text",
        },
        {"value": "BAB1234", "score": 0.9412, "readings": 3, "attribute": "plate", "label": "car"},
        {**_LABEL, "before": "the previous text, if there was one"},
        7,
    ),
    EventKind(
        "started",
        "action",
        "A label of an action starts, of a track or of the whole frame.",
        {
            "action": "the label",
            "score": "its score, 0 to 1",
            "since_s": "presentation time of the first clip with the label, in seconds",
        },
        {"action": "falling", "score": 0.8731, "since_s": 3.0, "label": "person"},
        _LABEL,
        7,
    ),
    EventKind(
        "ended",
        "action",
        "A label of an action no longer holds.",
        {"action": "the label", "lasted_s": "seconds that it held"},
        {"action": "falling", "lasted_s": 6.0, "label": "person"},
        {**_LABEL, "lost": "true if the track was lost meanwhile, or its source paused or restarted"},
        7,
    ),
    EventKind(
        "speeding",
        "speed",
        "A track becomes faster than the option `limit_kmh`.",
        {**_LABEL, **_SPEED},
        {"label": "car", "speed_kmh": 63.2, "limit_kmh": 50.0},
        track_id=7,
    ),
    EventKind(
        "slowed",
        "speed",
        "A track that was too fast no longer is.",
        {**_LABEL, **_SPEED},
        {"label": "car", "speed_kmh": 44.0, "limit_kmh": 50.0},
        track_id=7,
    ),
    EventKind(
        "changed",
        "direction",
        "A track moves in another direction than before, or its first direction is known.",
        {**_DIRECTION, **_LABEL},
        {"direction": "north", "heading_deg": 2.1, "label": "car", "before": "east"},
        {"before": "the previous direction, if there was one"},
        7,
    ),
    EventKind(
        "wrong_way",
        "direction",
        "A track begins to move in a direction that the option `wrong` names. It follows `changed`.",
        {**_DIRECTION, **_LABEL},
        {"direction": "south", "heading_deg": 178.4, "label": "car"},
        {"before": "the previous direction, if there was one"},
        7,
    ),
    EventKind(
        "met",
        "proximity",
        "Two tracks have been close to each other for as long as the option `near_for` says.",
        {**_PAIR, "distance": "distance in the units of the stage", **_SINCE},
        {"other": 9, "labels": ["person", "car"], "distance": 34.98, "since_s": 3.0},
        track_id=7,
    ),
    EventKind(
        "parted",
        "proximity",
        "Two tracks that had met are no longer close to each other.",
        {**_PAIR, "together_s": "seconds that they were close to each other"},
        {"other": 9, "labels": ["person", "car"], "together_s": 12.0},
        track_id=7,
    ),
    EventKind(
        "seen",
        "identify",
        "An identity comes to a camera.",
        {"identity": "its number", **_LABEL},
        {"identity": 12, "label": "person", "before": "yard", "away_s": 8.2},
        {
            "new": "true if no camera has seen it before",
            "before": "the camera that saw it before, unless it is new",
            "away_s": "seconds since then; 0 if both see it at the same time",
        },
        7,
    ),
    EventKind(
        "left",
        "identify",
        "No camera has seen an identity for as long as the option `left_after` says.",
        {
            "identity": "its number",
            **_LABEL,
            "path": "its stays in order: `source`, `from_s`, `to_s`",
            "stayed_s": "seconds from its first to its last sighting",
        },
        {
            "identity": 12,
            "label": "person",
            "path": [
                {"source": "gate", "from_s": 0.4, "to_s": 12.8},
                {"source": "yard", "from_s": 21.0, "to_s": 95.2},
            ],
            "stayed_s": 94.8,
        },
    ),
    EventKind(
        "raised",
        "rule",
        "A rule becomes true.",
        {**_RULE, **_SINCE, **_VALUES},
        {"rule": "crowd", "since_s": 3.0, "values": {"count(person)": 6}},
        _OF_OBJECT,
    ),
    EventKind(
        "anomalous",
        "anomaly",
        "A frame's score reaches `min_score`.",
        {"score": "how unusual the frame is, 0 to 1", **_SINCE},
        {"score": 0.83, "since_s": 4.0},
    ),
    EventKind(
        "cleared",
        "anomaly",
        "The frames of a source are no longer anomalous.",
        {"max_score": "the highest score meanwhile", "lasted_s": "seconds that they were"},
        {"max_score": 0.91, "lasted_s": 2.4},
    ),
    EventKind(
        "cleared",
        "rule",
        "A rule is no longer true.",
        {**_RULE, "lasted_s": "seconds that it was true"},
        {"rule": "crowd", "lasted_s": 31.0, "values": {"count(person)": 4}},
        {
            **_OF_OBJECT,
            **_VALUES,
            "lost": "true if the object was lost meanwhile",
            "closed": "true if the rule's schedule ended it",
        },
    ),
    EventKind(
        "saved",
        "heatmap",
        "The image has been written.",
        {"path": "the file"},
        {"path": "out/gate-heat.png"},
    ),
    EventKind(
        "saved",
        "snapshot",
        "A snapshot for an event has been written.",
        {
            "path": "the file",
            "label": "class of the object",
            "frame": "number of the frame that is shown",
            "pts_s": "presentation time of that frame, in seconds",
            "of": "the event: its stage, kind, frame and pts_s",
        },
        {
            "path": "out/gate/000004.000s_car.jpg",
            "label": "car",
            "box": [275.8, 93.7, 319.2, 110.1],
            "frame": 98,
            "pts_s": 3.92,
            "of": {"stage": "door", "kind": "crossed", "frame": 100, "pts_s": 4.0},
        },
        {"box": "x1, y1, x2, y2 of the object in pixels of the source, if the event concerns an object"},
        7,
    ),
    EventKind(
        "collected",
        "collect",
        "An image has been collected for labeling.",
        {"path": "the file", "reason": "when, disagreement, low_score, novelty or random"},
        {"path": "collected/images/gate_000004.000s_low_score.jpg", "reason": "low_score", "label": "person"},
        {"label": "class of the object for which it was collected, if it is one"},
        7,
    ),
    EventKind(
        "answered",
        "ask",
        "The answer to a question about a track or a frame has come.",
        {
            "answer": "the answer by name",
            "prompt": "the question",
            "of": "what it is about: stage, kind and frame of the event, and pts_s",
        },
        {
            "answer": {"injured": True, "why": "lies on the floor and does not move"},
            "prompt": "Is this person injured?",
            "label": "person",
            "latency_s": 3.1,
            "of": {"stage": "rule", "kind": "raised", "frame": 41, "pts_s": 1.64},
        },
        {
            "label": "class of the object",
            "latency_s": "seconds from the event to the answer",
            "cached": "true for the answer to an earlier question about the same track",
        },
        7,
    ),
    EventKind(
        "manual",
        "record",
        "A clip is requested by the API or the page.",
        {},
        {},
    ),
    EventKind(
        "recorded",
        "record",
        "A clip is complete.",
        {
            "clip": "the file",
            "start_s": "presentation time of its first frame, in seconds",
            "duration_s": "its duration in seconds",
            "bytes": "its size",
        },
        {"clip": "out/gate/000003.000s-crossed.mp4", "start_s": 1.0, "duration_s": 30.0, "bytes": 3_400_000},
    ),
    EventKind(
        "reconnected",
        "decode",
        "A source that was lost is back; the event is on its first frame.",
        {"cause": "why it was lost, such as timeout", "away_s": "seconds that it was away"},
        {"cause": "timeout", "away_s": 4.25},
    ),
    EventKind(
        "resized",
        "decode",
        "The frames of a source have another size from here on. Shapes in pixels are scaled with them.",
        {
            "width": "width of the frame in pixels",
            "height": "height of the frame in pixels",
            "before": "width and height until then",
        },
        {"width": 640, "height": 480, "before": {"width": 320, "height": 240}},
    ),
    EventKind(
        "restarted",
        "pipeline",
        "The process that read a source has died, and another one reads it.",
        {"cause": "how the process ended", "frames_lost": "known number of lost frames"},
        {"cause": "process 3 was killed", "frames_lost": 12},
    ),
    EventKind(
        "raised",
        "alarms",
        "An alarm on the pipeline is raised.",
        _ALARM,
        {"alarm": "camera_down", "text": 'camera "gate" has been down for 31 s (timeout)', "down_s": 31.2},
        _FACTS,
    ),
    EventKind(
        "cleared",
        "alarms",
        "An alarm on the pipeline is cleared.",
        _ALARM,
        {"alarm": "camera_down", "text": 'camera "gate" is back after 1 min', "down_s": 0.0, "lasted_s": 44.1},
        {**_FACTS, "lasted_s": "seconds that it was raised; absent if its source was removed"},
    ),
)
"""Every kind of event, by stage."""

ADDED_KEYS: Mapping[str, str] = {
    "clip": "the clip that `record` writes around the event",
    "clip_s": "position of the event in the clip, in seconds",
    "snapshot": "the file that `snapshot` writes for the event, if it is ready with the same frame",
}
"""Keys that sinks add to the data of other stages' events."""
