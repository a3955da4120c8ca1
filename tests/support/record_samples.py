"""Valid and invalid records, and the compiler of .proto files."""

from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
DESIGNED = {
    "schema": "streamkit/1",
    "source": "street",
    "frame": 12,
    "pts_s": 0.48,
    "width": 640,
    "height": 360,
    "objects": [{"box": [10.5, 20.0, 80.25, 120.0], "score": 0.91, "class_id": 2, "label": "car", "track_id": 7}],
    "events": [{"kind": "crossed", "stage": "crossing", "track_id": 7, "data": {"direction": "in"}}],
}
HEAD = {name: DESIGNED[name] for name in ("schema", "source", "frame", "pts_s", "width", "height")}
GOOD = {
    "the documented record": DESIGNED,
    "no objects, no events": {**HEAD, "objects": [], "events": []},
    "a failed frame of a camera": {
        **HEAD,
        "time": "2026-08-01T12:00:00.250Z",
        "error": "detect failed",
        "objects": [],
        "events": [],
    },
    "an object": {**HEAD, "id": "a1-7", "object": DESIGNED["objects"][0]},
    "an event": {**HEAD, "id": "a1-8", "event": DESIGNED["events"][0]},
    "a damaged frame": {**DESIGNED, "damaged": True},
    "an object of a damaged frame": {**HEAD, "damaged": True, "object": DESIGNED["objects"][0]},
    "an event of a damaged frame": {**HEAD, "damaged": True, "event": DESIGNED["events"][0]},
    "further keys": {**DESIGNED, "weather": "rain", "objects": [{**DESIGNED["objects"][0], "height_m": 1.8}]},
    "a fact that is called object": {**DESIGNED, "object": 3},
    "a box with a corner that is nowhere": {**HEAD, "object": {**DESIGNED["objects"][0], "box": [None, 0, 1, 1]}},
    "an object with every key": {
        **HEAD,
        "object": {
            **DESIGNED["objects"][0],
            "stage": "detect",
            "predicted": True,
            "speed_kmh": 31.5,
            "heading_deg": 90.25,
            "attributes": {"color": {"label": "red", "score": 0.8}},
            "keypoints": [[1.5, 2.0, 0.5], [3.0, 4.0, 0.9]],
            "mask": {"size": [360, 640], "counts": "abc0"},
            "embedding": [0.6, 0.8],
            "crop": "/9j/4AAQ",
            "corners": [[-1.5, 2.0], [3.0, 4.25], [2.0, 9.0], [0.0, 7.0]],
        },
    },
}
BAD = {
    "no source": ({key: value for key, value in DESIGNED.items() if key != "source"}, "'source' is a required"),
    "another version": ({**DESIGNED, "schema": "streamkit/2"}, "'streamkit/1' was expected"),
    "half a box": ({**HEAD, "object": {**DESIGNED["objects"][0], "box": [1, 2]}}, "[1, 2] is too short"),
    "a score of text": ({**HEAD, "object": {**DESIGNED["objects"][0], "score": "0.9"}}, "'0.9' is not of type"),
    "a track of text": ({**HEAD, "object": {**DESIGNED["objects"][0], "track_id": "7"}}, "'7' is not of type"),
    "an event of no kind": ({**HEAD, "event": {"stage": "zone"}}, "'kind' is a required property"),
    "no list of events": ({**HEAD, "objects": []}, "'events' is a required property"),
    "damage in words": ({**DESIGNED, "damaged": "a bit"}, "'a bit' is not of type 'boolean'"),
    "no time": ({**DESIGNED, "time": 5}, "5 is not of type 'string'"),
    "a mask of no size": ({**HEAD, "object": {**DESIGNED["objects"][0], "mask": {"counts": "a"}}}, "'size' is a req"),
    "an attribute with a key of its own": (
        {**DESIGNED, "attributes": {"color": {"label": "red", "score": 1.0, "hue": 3}}},
        "'hue' was unexpected",
    ),
}


def compile_proto(path, *options):
    """Run protoc over a file."""
    google_protos = Path(grpc_tools.__file__).parent / "_proto"  # Google's
    assert protoc.main(["protoc", f"-I{path.parent}", f"-I{google_protos}", *options, str(path)]) == 0
