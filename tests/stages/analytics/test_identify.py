"""Identities over cameras: by appearance, time and place on the ground; events, forgetting, errors and cost."""

import itertools
import time

import numpy as np
import pytest
from support.configs import problems as problems_of
from support.messages import collect

from streamkit.analytics.identity_gallery import IdentityEntry, unit
from streamkit.core.data import Batch, Detections, Frame
from streamkit.core.sentences import sentence
from streamkit.stages.analytics.identify import Identify
from streamkit.testing.kit import detections, frames, run_stage

RNG = np.random.default_rng(3)
LOOKS = np.linalg.qr(RNG.normal(size=(16, 16)))[0].astype(np.float32)
"""Vectors of length 1 whose cosines are 0."""
PLANE = {"points": ((0, 0), (640, 0), (640, 360), (0, 360)), "ground": ((0, 0), (64, 0), (64, 36), (0, 36))}
"""A camera that looks straight down; 10 pixels are a meter."""


def seen(source, objects, start_s=0.0, seconds=2.0, step_s=0.1, label="person"):
    """Frames of a camera on which objects stand still: {track: (look, x, y)}; a look is a number or a vector."""
    footage = frames(round(seconds / step_s), source, step_s=step_s)
    for frame in footage:
        frame.pts_s += start_s
        boxes = [[x - 5, y - 30, x + 5, y] for _, x, y in objects.values()]
        looks = [LOOKS[look] if isinstance(look, int) else look for look, _, _ in objects.values()]
        frame.tables = {
            "detect": detections(
                boxes,
                track_id=list(objects),
                label=[label] * len(boxes),
                labels=("person", "car"),
                embedding=np.array(looks, np.float32).reshape(-1, 16),
            )
        }
    return footage


def merged(*cameras):
    """The frames of several cameras in order of their time, with consecutive numbers for each camera."""
    footage = sorted((frame for camera_frames in cameras for frame in camera_frames), key=lambda frame: frame.pts_s)
    counts = {}
    for frame in footage:
        frame.index = counts[frame.source] = counts.get(frame.source, -1) + 1
    return footage


def identities(done):
    """The last identity of each track by source and track, of all that it had."""
    return {
        (frame.source, int(track)): int(identity)
        for frame in done
        for track, identity in zip(frame.detections.track_id, frame.detections.extra["identity"], strict=True)
        if identity >= 0
    }


def events(done, kind):
    return [(e.source, e.track_id, e.data) for frame in done for e in frame.events if e.kind == kind]


def mixed(look, other_look, share):
    """A vector between two looks."""
    vector = (1 - share) * LOOKS[look] + share * LOOKS[other_look]
    return vector / np.linalg.norm(vector)


# -------------------------------------------------------------------------------------------------------- appearance


def test_equal_embeddings_have_the_same_identity_on_all_cameras():
    footage = merged(seen("a", {1: (0, 100, 100), 2: (1, 300, 100)}), seen("b", {1: (1, 50, 50), 7: (0, 90, 90)}))
    identity_by_track = identities(run_stage(Identify(), footage, batch=2))
    assert identity_by_track["a", 1] == identity_by_track["b", 7]
    assert identity_by_track["a", 2] == identity_by_track["b", 1]
    assert sorted(set(identity_by_track.values())) == [1, 2]


def test_two_tracks_of_a_camera_never_share_an_identity():
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (0, 50, 50), 2: (0, 90, 90)}))
    processed = run_stage(Identify(), footage, batch=2)
    for frame in processed:
        present = [identity for identity in frame.detections.extra["identity"].tolist() if identity >= 0]
        assert len(set(present)) == len(present)
    assert len(set(identities(processed).values())) == 2


def test_a_track_that_returns_beside_its_successor_loses_the_identity():
    first = seen("a", {1: (0, 100, 100)}, seconds=9.0)
    second = seen("a", {2: (0, 100, 100)}, 9.0, seconds=1.0)
    both = seen("a", {1: (0, 100, 100), 2: (0, 200, 100)}, 10.0, seconds=4.0)
    processed = run_stage(Identify(), merged(first, second, both), batch=1)
    assert {int(identity) for frame in processed[95:100] for identity in frame.detections.extra["identity"]} == {1}
    identity_by_track = identities(processed)
    assert identity_by_track == {("a", 1): 1, ("a", 2): 2}
    for frame in processed:
        present = [identity for identity in frame.detections.extra["identity"].tolist() if identity >= 0]
        assert len(set(present)) == len(present)


def test_a_returning_object_keeps_its_identity():
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("a", {5: (0, 200, 100)}, 30.0))
    assert identities(run_stage(Identify(), footage)) == {("a", 1): 1, ("a", 5): 1}


def test_classes_have_separate_identities():
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (0, 50, 50)}, label="car"))
    assert len(set(identities(run_stage(Identify(), footage)).values())) == 2
    only = run_stage(Identify(labels=("person",)), footage)
    assert identities(only) == {("a", 1): 1}


@pytest.mark.parametrize(("share", "same"), [(0.3, True), (0.45, False)])
def test_similarity_below_the_threshold_is_a_new_identity(share, same):
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (mixed(0, 1, share), 50, 50)}))
    identity_by_track = identities(run_stage(Identify(min_similarity=0.9), footage, batch=2))
    assert (identity_by_track["a", 1] == identity_by_track["b", 1]) is same


def test_a_later_better_match_takes_the_identity():
    footage = merged(
        seen("a", {1: (0, 100, 100)}, seconds=4.0),
        seen("b", {1: (mixed(0, 1, 0.4), 50, 50)}, seconds=4.0),
        seen("c", {1: (mixed(0, 1, 0.45), 50, 50)}, 1.0, seconds=3.0),
        seen("a", {1: (0, 100, 100), 2: (mixed(0, 1, 0.42), 50, 50)}, 4.0, seconds=2.0),
        seen("b", {1: (mixed(0, 1, 0.4), 50, 50)}, 4.0, seconds=2.0),
    )
    identity_by_track = identities(run_stage(Identify(), footage, batch=1))
    assert identity_by_track["a", 2] == identity_by_track["b", 1] != identity_by_track["a", 1]


@pytest.mark.parametrize("start_s", [0.0, 100.0])
def test_two_identities_of_an_object_are_merged_after_a_better_view(start_s):
    worse = seen("b", {1: (1, 50, 50)}, start_s, seconds=0.5)
    better = seen("b", {1: (0, 50, 50)}, start_s + 0.5, seconds=4.0)
    stage = Identify()
    processed = run_stage(stage, merged(seen("a", {1: (0, 100, 100)}, start_s, seconds=4.5), worse, better), batch=2)
    early = identities([frame for frame in processed if frame.pts_s < start_s + 0.7])
    assert early == {("a", 1): 1, ("b", 1): 2}
    assert identities(processed) == {("a", 1): 1, ("b", 1): 1}
    assert stage.context.counters.values["identities: merged"] == 1


def test_an_object_without_a_vector_has_no_identity():
    footage = merged(seen("a", {1: (np.full(16, np.nan), 100, 100), 2: (0, 200, 100)}))
    assert identities(run_stage(Identify(), footage)) == {("a", 2): 1}


# --------------------------------------------------------------------------------------------------- time and place


def test_matches_faster_than_the_travel_time_are_refused():
    travel = {"a": {"b": 10.0}}
    soon = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (0, 50, 50)}, 5.0))
    late = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (0, 50, 50)}, 15.0))
    back = merged(seen("b", {1: (0, 100, 100)}), seen("a", {1: (0, 50, 50)}, 5.0))
    assert len(set(identities(run_stage(Identify(travel=travel), soon)).values())) == 2
    assert len(set(identities(run_stage(Identify(travel=travel), late)).values())) == 1
    assert len(set(identities(run_stage(Identify(travel=travel), back)).values())) == 2


def test_ground_positions_distinguish_similar_objects():
    planes = {"a": PLANE, "b": PLANE}
    footage = merged(seen("a", {1: (0, 100, 100), 2: (0, 300, 100)}), seen("b", {8: (0, 305, 95), 9: (0, 95, 105)}))
    identity_by_track = identities(run_stage(Identify(planes=planes), footage, batch=2))
    assert identity_by_track["a", 1] == identity_by_track["b", 9]
    assert identity_by_track["a", 2] == identity_by_track["b", 8]
    assert identity_by_track["a", 1] != identity_by_track["a", 2]


def test_similar_objects_at_different_places_are_distinct():
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (0, 400, 100)}))
    assert len(set(identities(run_stage(Identify(planes={"a": PLANE, "b": PLANE}), footage, batch=2)).values())) == 2
    assert len(set(identities(run_stage(Identify(planes={"a": PLANE}), footage, batch=2)).values())) == 1
    later = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (0, 600, 100)}, 3.0))
    slow, fast = (Identify(planes={"a": PLANE, "b": PLANE}, max_speed_kmh=speed) for speed in (30.0, 200.0))
    assert len(set(identities(run_stage(slow, later)).values())) == 2
    assert len(set(identities(run_stage(fast, later)).values())) == 1


@pytest.mark.parametrize(("x", "parted"), [(104, 0), (400, 1)])
def test_an_object_that_moves_away_from_its_identity_gets_another(x, parted):
    """Two people of one look meet; one of them walks on, which one camera sees."""
    stage = Identify(planes={"a": PLANE, "b": PLANE})
    meets = seen("b", {1: (0, 100, 100)}, seconds=2.0)
    goes = seen("b", {1: (0, x, 100)}, 2.0, seconds=6.0)
    processed = run_stage(stage, merged(seen("a", {1: (0, 100, 100)}, seconds=8.0), meets, goes), batch=2)
    assert len(set(identities([frame for frame in processed if frame.pts_s < 2.0]).values())) == 1
    assert len(set(identities(processed).values())) == 1 + parted
    assert ("identities: parted" in stage.context.counters.values) is bool(parted)


def test_equal_ground_positions_lower_the_threshold():
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (mixed(0, 1, 0.45), 105, 100)}))
    assert len(set(identities(run_stage(Identify(min_similarity=0.9), footage, batch=2)).values())) == 2
    planes = {"a": PLANE, "b": PLANE}
    assert len(set(identities(run_stage(Identify(min_similarity=0.9, planes=planes), footage, batch=2)).values())) == 1


def test_positions_of_unsynchronized_cameras_are_compared_at_equal_times():
    """One camera is a second behind; a car of 20 m/s is 20 m away by then."""

    def driving(source, late_s):
        footage = seen(source, {1: (0, 0, 100)}, seconds=3.0)
        for frame in footage:
            x = 10 * 20 * frame.pts_s
            frame.detections = frame.detections.with_columns(xyxy=np.array([[x - 5, 70, x + 5, 100]], np.float32))
        return [(frame.pts_s + late_s, frame) for frame in footage]

    footage = [f for _, f in sorted([*driving("a", 0.0), *driving("b", 1.0)], key=lambda timed_frame: timed_frame[0])]
    processed = run_stage(Identify(planes={"a": PLANE, "b": PLANE}, min_similarity=1.0), footage, batch=1)
    identity_by_track = identities(processed)
    assert identity_by_track["a", 1] == identity_by_track["b", 1]


def test_a_homography_file_defines_a_plane(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("0.1 0 0\n0 0.1 0\n0 0 1\n")
    footage = merged(seen("a", {1: (0, 100, 100), 2: (0, 300, 100)}), seen("b", {8: (0, 305, 95)}))
    identity_by_track = identities(run_stage(Identify(planes={"a": PLANE, "b": {"file": str(path)}}), footage, batch=2))
    assert identity_by_track["a", 2] == identity_by_track["b", 8]


# ------------------------------------------------------------------------------------------------------------ events


def test_the_events_seen_and_left_describe_the_path():
    footage = merged(
        seen("gate", {1: (0, 100, 100)}, seconds=4.0),
        seen("yard", {3: (0, 50, 50)}, 10.0, seconds=5.0),
        seen("yard", {}, 15.0, seconds=10.0),
    )
    processed = run_stage(Identify(left_after=7.0), footage)
    first, second = events(processed, "seen")
    assert first == ("gate", 1, {"identity": 1, "label": "person", "new": True})
    assert second[:2] == ("yard", 3)
    assert second[2] == {"identity": 1, "label": "person", "before": "gate", "away_s": pytest.approx(6.1)}
    ((source, track, data),) = events(processed, "left")
    assert (source, track) == ("yard", None)
    assert data["path"] == [
        {"source": "gate", "from_s": 0.0, "to_s": pytest.approx(3.9)},
        {"source": "yard", "from_s": 10.0, "to_s": pytest.approx(14.9)},
    ]
    assert data["stayed_s"] == pytest.approx(14.9)
    sentences = [sentence(event) for frame in processed for event in frame.events]
    assert sentences == [
        "Person 1 was seen for the first time, at gate.",
        "Person 1 was seen at yard, 6.1 s after gate.",
        "Person 1 left after 15 s: gate for 3.9 s, then yard for 4.9 s.",
    ]


@pytest.mark.parametrize(("back_s", "cameras"), [(103.0, ["gate", "yard"]), (105.0, ["gate", "yard", "gate"])])
def test_a_return_within_the_track_time_is_not_a_departure(back_s, cameras):
    sightings = merged(
        seen("gate", {1: (0, 100, 100)}, 100.0),
        seen("yard", {1: (0, 50, 50)}, 101.0, seconds=6.0),
        seen("gate", {2: (0, 100, 100)}, back_s),
        seen("yard", {}, 107.0, seconds=10.0),
    )
    ((_, _, left),) = events(run_stage(Identify(left_after=7.0), sightings), "left")
    assert [stay["source"] for stay in left["path"]] == cameras
    assert max(stay["to_s"] for stay in left["path"] if stay["source"] == "gate") == pytest.approx(back_s + 1.9)
    assert left["path"][0]["from_s"] == 100.0


def test_a_brief_appearance_gives_no_event():
    footage = merged(seen("a", {1: (0, 100, 100)}, seconds=0.8), seen("a", {}, 0.8, seconds=10.0))
    processed = run_stage(Identify(left_after=5.0), footage)
    assert identities(processed) == {("a", 1): 1}
    assert [event for frame in processed for event in frame.events] == []


def test_a_returning_identity_is_not_new():
    footage = merged(
        seen("a", {1: (0, 100, 100)}), seen("a", {}, 2.0, seconds=10.0), seen("a", {2: (0, 100, 100)}, 12.0)
    )
    processed = run_stage(Identify(left_after=5.0), footage)
    assert [data.get("new") for _, _, data in events(processed, "seen")] == [True, None]
    assert events(processed, "seen")[1][2]["before"] == "a"


# -------------------------------------------------------------------------------------------------------- forgetting


def counts_of(stage, footage, **options):
    processed = run_stage(stage, footage, **options)
    return identities(processed), dict(stage.context.counters.values)


def test_an_identity_is_forgotten_after_a_time():
    footage = merged(
        seen("a", {1: (0, 100, 100)}), seen("a", {}, 5.0, seconds=20.0, step_s=1.0), seen("a", {2: (0, 100, 100)}, 30.0)
    )
    identity_by_track, counted = counts_of(Identify(forget=10.0, left_after=5.0), footage)
    assert identity_by_track == {("a", 1): 1, ("a", 2): 2}
    assert counted["identities: forgotten, unseen"] == 1
    assert counted["identities: new"] == 2


def test_the_oldest_identity_is_forgotten_at_the_limit():
    footage = merged(
        *(seen("a", {n: (n, 100, 100)}, 10.0 * n) for n in range(4)),
        seen("a", {9: (0, 100, 100)}, 50.0),
        seen("a", {10: (3, 100, 100)}, 60.0),
    )
    identity_by_track, counted = counts_of(Identify(max_identities=3), footage)
    assert identity_by_track["a", 9] == 5
    assert identity_by_track["a", 10] == identity_by_track["a", 3]
    assert counted["identities: forgotten, limit"] == 2


def test_an_object_in_view_is_not_forgotten_while_another_file_is_ahead():
    behind = seen("a", {1: (0, 100, 100)}, seconds=4.0)
    ahead = seen("b", {1: (1, 100, 100)}, seconds=4.0)
    for frame in ahead:
        frame.pts_s *= 10
    footage = [frame for pair in zip(behind, ahead, strict=True) for frame in pair]
    identity_by_track, counted = counts_of(Identify(left_after=4.0, forget=5.0), footage, batch=1)
    assert sorted(identity_by_track.values()) == [1, 2]
    assert "identities: forgotten, unseen" not in counted


def test_a_stopped_camera_holds_no_identity():
    stopped = seen("a", {1: (0, 100, 100)})
    others = [seen("b", {n: (n, 100, 100)}, 10.0 * n) for n in range(1, 6)]
    stage = Identify(max_identities=2)
    _, counted = counts_of(stage, merged(stopped, *others, seen("a", {}, 60.0)))
    assert len(stage._matcher("").gallery) == 2
    assert counted["identities: forgotten, limit"] == 4


# ---------------------------------------------------------------------------------------------- sources of their own


def test_per_source_identities_do_not_depend_on_other_sources():
    camera_a = seen("a", {1: (0, 100, 100), 2: (1, 200, 100)})
    camera_b = seen("b", {1: (1, 100, 100), 2: (2, 200, 100)})
    alone = identities(run_stage(Identify(per_source=True), camera_a, batch=3))
    identity_by_track = identities(run_stage(Identify(per_source=True), merged(camera_a, camera_b), batch=5))
    assert {key: value for key, value in identity_by_track.items() if key[0] == "a"} == alone
    assert {identity_by_track["b", 1], identity_by_track["b", 2]} == {1, 2}


def test_per_source_departures_ignore_frames_of_other_sources():
    camera_a = merged(seen("a", {1: (0, 100, 100)}, seconds=3.0), seen("a", {}, 3.0, seconds=5.0))
    camera_b = seen("b", {1: (0, 100, 100)}, 8.1, seconds=9.0)
    processed = run_stage(Identify(per_source=True, left_after=4.0), [*camera_a, *camera_b], batch=1)
    assert [source for source, _, _ in events(processed, "left")] == ["a"]
    cut = run_stage(Identify(per_source=True, left_after=4.0), [*camera_a[:60], *camera_b], batch=1)
    assert events(cut, "left") == []


def test_live_sources_and_files_cannot_be_combined():
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("b", {1: (0, 100, 100)}))
    for frame in footage:
        frame.time_s = 1.7e9 + frame.pts_s if frame.source == "a" else None
    logged = collect()
    run_stage(Identify(), footage)
    assert any("they have no common time" in text for text in logged)


def test_a_source_moved_to_another_process_starts_with_new_tracks():
    footage = merged(seen("a", {1: (0, 100, 100)}), seen("a", {1: (1, 100, 100)}, 2.1))
    stage = Identify()
    update = stage.update

    def restarted(step):
        for frame in step.frames:  # as the process that died and its successor count
            frame._state.ordinal = frame.index if frame.pts_s < 2 else frame.index - 20
        return update(step)

    stage.update = restarted
    processed = run_stage(stage, footage, batch=1)
    assert {
        int(identity) for frame in processed for identity in frame.detections.extra["identity"] if identity >= 0
    } == {
        1,
        2,
    }


# ------------------------------------------------------------------------------------------------------------ errors

HEAD = "sources: {north: samples/street.mp4}\nstages:\n  detect: {model: demo}\n  track: {}\n"
LOOK = "  look: {stage: embed, model: stripes, of: detect}\n"
FOUR = "[[0, 0], [9, 0], [9, 9], [0, 9]]"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("  identify: {}", "identify reads embedding, which no earlier stage writes; put embed above it"),
        (
            LOOK + f"  identify: {{planes: {{north: {{points: [[0, 0], [9, 0], [9, 9]], ground: {FOUR}}}}}}}",
            "identify.planes.north.points must be four points",
        ),
        (
            LOOK + f"  identify: {{planes: {{north: {{points: {FOUR}}}}}}}",
            "identify: planes.north needs points and ground, or file alone, got points",
        ),
        (
            LOOK + f"  identify: {{planes: {{nort: {{points: {FOUR}, ground: {FOUR}}}}}}}",
            "identify.planes.nort: there is no source 'nort'; did you mean 'north'?",
        ),
        (
            LOOK + "  identify: {travel: {north: {south: 5s}}}",
            "identify.travel.north.south: there is no source 'south'; did you mean 'north'?",
        ),
        (
            LOOK + "  identify: {planes: {north: {file: none.txt}}}",
            "identify: planes.north cannot read the file none.txt: No such file or directory",
        ),
        (
            LOOK + "  identify: {planes: {north: {file: samples/street.truth.jsonl}}}",
            "must hold three rows of three numbers",
        ),
        (
            LOOK + "  identify: {travel: {north: {south: 5s}, south: {north: 8s}}}",
            "travel counts in both directions: give one time for south and north, got 5 s and 8 s",
        ),
        (LOOK + "  identify: {forget: 10s}", "forget must be in ascending order, got 2 s, 60 s and 10 s"),
        (LOOK + "  identify: {left_after: 1s}", "forget must be in ascending order, got 2 s, 1 s and 3600 s"),
        (LOOK + "  identify: {distance: 0}", "distance must be more than 0 m, got 0"),
    ],
)
def test_invalid_options_are_refused(stages, message):
    problems = problems_of(HEAD + stages)
    assert any(message in problem for problem in problems), problems


def test_invalid_homography_files_are_refused(tmp_path):
    path = tmp_path / "h.txt"
    for text, message in (
        ("1 2 3", "got 3 numbers"),
        ("1 2 3 4 5 6 7 8 x", "could not convert"),
        ("1 2 3 2 4 6 0 0 1", "three rows of three numbers, which do not depend on each other"),
        ("nan 0 0 0 1 0 0 0 1", "must be a homography"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            Identify(planes={"a": {"file": str(path)}})


# -------------------------------------------------------------------------------------------------------------- cost


def crowded(cameras, per_camera, length):
    """Batches of a frame of each camera at 25 frames a second, without end; every 2.5 s one of its tracks is new."""
    looks = unit(RNG.normal(size=(4096, length)).astype(np.float32))
    labels = ("person",)
    sources = [f"cam{n}" for n in range(cameras)]
    rows = np.repeat(np.arange(cameras, dtype=np.int32), per_camera)
    boxes = np.tile(np.float32([100, 100, 140, 200]), (len(rows), 1))
    first = np.tile(np.arange(per_camera), cameras)
    for n in itertools.count():
        turn = n + np.repeat(np.arange(cameras), per_camera) * 61 // cameras + 7 * first
        track = first + per_camera * (turn // (62 * per_camera))
        table = Detections(
            boxes,
            np.ones(len(rows), np.float32),
            np.zeros(len(rows), np.int32),
            rows,
            track.astype(np.int64),
            labels,
            {"embedding": looks[(rows * 131 + track * 17) % len(looks)]},
        )
        camera_frames = [Frame(source, n, n * 0.04, 640, 360) for source in sources]
        for frame in camera_frames:
            frame._state.ordinal = n
        yield Batch(camera_frames, tables={"detect": table}, sequence=n)


@pytest.mark.alone
def test_a_batch_of_64_sources_costs_two_milliseconds_beside_a_gallery_of_ten_thousand():
    stage = Identify()
    stage.open()
    states = {f"cam{n}": stage.new_state(f"cam{n}") for n in range(64)}
    matcher = stage._matcher("")
    label = stage._names.number("person")
    for n, look in enumerate(unit(RNG.normal(size=(9_000, 256)).astype(np.float32)), 1):
        matcher.gallery.add(IdentityEntry(n, "person"), label, look)
    matcher.gallery["seen_s"][:] = 0
    spent = []
    for batch in itertools.islice(crowded(64, 10, 256), 500):
        started_s = time.perf_counter()
        stage.process(batch, states)
        spent.append(time.perf_counter() - started_s)
    assert len(matcher.gallery) > 9_600
    spent = np.array(spent[350:]) * 1e3  # the first tracks are all new
    print(f"{np.median(spent):.2f} ms a batch, mean {spent.mean():.2f} ms, 95 % within {np.quantile(spent, 0.95):.2f}")
    assert np.median(spent) < 2.0
