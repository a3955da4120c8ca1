"""Which object goes to which track, on small scenes in exact figures: gates, rounds, looks, direction, recovery.

Most scenes stand still: a track is then expected where it was, and the overlap of an object with it is plain
arithmetic. Objects are 40 x 80 pixels, frames 25 a second.
"""

import numpy as np
import pytest

from streamkit.stages.analytics.track import Track
from streamkit.testing.kit import detections, frames, run_stage
from streamkit.tracking.kalman import as_box, begin, correct, predict, reupdate

STEADY = 25  # frames after which a track is settled


def scene(*shown, looks=None):
    """Frames that show these objects, each (x, y of its upper left corner[, score[, class]])."""
    video = frames(len(shown), step_s=0.04)
    for number, (frame, objects) in enumerate(zip(video, shown, strict=True)):
        full = [(x, y, *rest, *(0.9, "car")[len(rest) :]) for x, y, *rest in objects]
        boxes = np.array([(x, y, x + 40, y + 80) for x, y, *_ in full], np.float32).reshape(-1, 4)
        columns = {} if looks is None else {"embedding": np.array(looks[number], np.float32).reshape(-1, 2)}
        table = detections(
            boxes, [s for *_, s, _ in full], label=[c for *_, c in full], labels=("car", "person"), **columns
        )
        frame.tables = {"detect": table}
    return video


def tracked(video, **options):
    return [frame.detections.track_id.tolist() for frame in run_stage(Track(**options), video)]


def last(*shown, looks=None, **options):
    """The numbers of the last frame's objects; two frames more show them, so that who is new has one by then."""
    shown_longer = [*shown, *[shown[-1]] * 3]
    if looks is not None:
        looks = [*looks, *[looks[-1]] * 3]
    ids = tracked(scene(*shown_longer, looks=looks), **options)
    return ids[-1]


def still(*objects):
    return [list(objects)] * STEADY


def beside(iou):
    """How far beside a box another one is that overlaps it by so much."""
    return 40 * (1 - iou) / (1 + iou)


# ------------------------------------------------------------------------------------------------------------ gates


@pytest.mark.parametrize("method", ["bytetrack", "botsort", "ocsort", "sort", "iou"])
@pytest.mark.parametrize(("iou", "matches"), [(0.2, False), (0.23, False), (0.3, True)])
def test_an_object_matches_a_track_from_the_minimum_overlap(method, iou, matches):
    assert last(*still((100, 0)), [(100 + beside(iou), 0)], method=method, min_iou=0.25) == [1 if matches else 2]


def test_the_default_minimum_overlap_is_a_33rd():
    assert last(*still((100, 0)), [(100 + beside(0.025), 0)]) == [2]
    assert last(*still((100, 0)), [(100 + beside(0.035), 0)]) == [1]


@pytest.mark.parametrize(("iou", "matches"), [(0.27, False), (0.33, True)])
def test_a_weak_object_matches_a_track_from_an_overlap_of_0_3(iou, matches):
    ids = tracked(scene(*still((100, 0)), [(100 + beside(iou), 0, 0.2)]))
    assert ids[-1] == [1 if matches else -1]


@pytest.mark.parametrize(("score", "matches"), [(0.09, False), (0.11, True)])
def test_an_object_below_the_low_score_matches_no_track(score, matches):
    assert tracked(scene(*still((100, 0)), [(100, 0, score)]))[-1] == [1 if matches else -1]


def test_a_weak_object_does_not_recover_a_lost_track():
    hidden = [*still((100, 0)), [], [(100, 0, 0.3)]]
    assert tracked(scene(*hidden))[-1] == [-1]
    assert tracked(scene(*hidden[:-1], [(100, 0, 0.45)]))[-1] == [1]


def test_an_object_does_not_match_a_track_of_another_class():
    shown = [*still((100, 0)), [(100, 0, 0.9, "person")]]
    assert last(*shown) == [2]
    assert last(*shown, class_aware=False) == [1]


def test_the_high_score_matches_and_the_new_score_starts_a_track():
    assert tracked(scene(*[[(100, 0, 0.5)]] * 5))[-1] == [1]
    assert tracked(scene(*[[(100, 0, 0.49)]] * 5))[-1] == [-1]
    assert tracked(scene(*still((100, 0)), [(100 + beside(0.1), 0, 0.41)]))[-1] == [1], "strong: the first round"
    assert tracked(scene(*still((100, 0)), [(100 + beside(0.1), 0, 0.39)]))[-1] == [-1], "weak: the second"


@pytest.mark.parametrize(("iou", "matches"), [(0.08, False), (0.12, True)])
def test_an_object_matches_a_new_track_from_an_overlap_of_0_1(iou, matches):
    """`confirm` is 0.1 s: three frames at 25 a second are not enough, four are."""
    jump = 100 + beside(iou)
    ids = tracked(scene([(500, 200)], [(500, 200), (100, 0)], *[[(500, 200), (jump, 0)]] * 3))
    assert ids[-1] == [1, 2 if matches else -1]


def test_confirmed_tracks_are_matched_before_new_ones():
    """A new track of two frames stands nearer to the object than the confirmed one, which gets it all the same."""
    near = 100 + beside(0.8)
    far = 100.0
    ids = tracked(scene(*still((far, 0)), [(far, 0), (far + 30, 0)], [(near, 0)], *[[(near, 0)]] * 4))
    assert {row[0] for row in ids} == {1}


# ------------------------------------------------------------------------------------------------------------ rounds


def test_the_best_sum_of_pairs_is_selected():
    """The second object is nearest to the first track, but then the first one would have none."""
    ids = tracked(scene(*still((100, 0), (130, 0)), [(85, 0), (112, 0)]))
    assert ids[-1] == [1, 2]


def test_heights_distinguish_neighbors():
    """Two boxes overlap the track alike; that of its height is its own."""
    video = scene(*still((100, 0)), [(110, 0), (100, 20)])
    frame = video[-1]
    assert tracked(video)[-1][0] == 1
    frame.detections = frame.detections[[1, 0]]
    assert tracked(video)[-1][1] == 1


def test_the_weaker_duplicate_is_dropped_from_an_overlap_of_0_6():
    def twice(iou, *scores):
        return tracked(scene([(100, 0, scores[0]), (100 + beside(iou), 0, scores[1])]))[0]

    assert twice(0.62, 0.9, 0.8) == [1, -1]
    assert twice(0.62, 0.8, 0.9) == [-1, 1]
    assert twice(0.62, 0.9, 0.9) == [1, -1]
    assert twice(0.58, 0.9, 0.8) == [1, 2]
    video = scene([(100, 0, 0.9, "car"), (102, 0, 0.8, "person")])
    assert tracked(video)[0] == [1, 2], "of two classes"
    assert tracked(video, class_aware=False)[0] == [1, -1]


@pytest.mark.parametrize("box", [(50, 0, 50, 80), (50, 80, 90, 80), (50, 0, np.inf, 80), (50, 0, 90, np.nan)])
def test_a_box_without_area_starts_no_track(box):
    video = scene(*[[(300, 0), (0, 0)]] * 5)
    for frame in video:
        boxes = frame.detections.xyxy.copy()
        boxes[1] = box
        frame.detections = frame.detections.with_columns(xyxy=boxes)
    assert tracked(video) == [[1, -1]] * 5


# ------------------------------------------------------------------------------------------------------------- looks

RED = (1.0, 0.0)
BLUE = (0.0, 1.0)
UNKNOWN = (np.nan, np.nan)


def like_red(cosine):
    return (cosine, -np.sqrt(1 - cosine**2))


def after_red_and_blue(objects, looks, blue=112, **options):
    """The numbers of objects that come after a red track, 1, at x = 100 and a blue one, 2, that overlap."""
    shown = [*still((100, 0), (blue, 0)), [(x, 0) for x in objects]]
    return tracked(scene(*shown, looks=[[RED, BLUE]] * STEADY + [looks]), appearance=True, **options)[-1]


@pytest.mark.parametrize(
    ("x", "look", "track"),
    [
        (107, UNKNOWN, 2),  # the blue one is nearer
        (107, like_red(0.75), 1),
        (107, like_red(0.65), 2),  # below `min_similarity`
        (109, like_red(0.75), 1),  # looks say (1 + .75) / 2 = .875, the overlap with the blue one is .860
        (110, like_red(0.75), 2),  # and here .905
    ],
)
def test_embeddings_outweigh_overlap_for_well_overlapping_objects(x, look, track):
    assert after_red_and_blue([x], [look]) == [track]


def test_without_appearance_embeddings_are_ignored():
    shown = [*still((100, 0), (112, 0)), [(107, 0)]]
    assert tracked(scene(*shown, looks=[[RED, BLUE]] * STEADY + [[RED]]))[-1] == [2]


@pytest.mark.parametrize(("iou", "track"), [(0.51, 1), (0.49, 2)])
def test_embeddings_count_from_an_overlap_of_0_5(iou, track):
    x = 100 + beside(iou)
    assert after_red_and_blue([x], [RED], blue=x + beside(0.9)) == [track]


def test_embeddings_never_worsen_a_match():
    """The first object overlaps the red track by .951, and its looks alone would be worth .875: too little."""
    assert after_red_and_blue([101, 90.8], [like_red(0.75), UNKNOWN]) == [1, 2]


@pytest.mark.parametrize(("cosine", "matches"), [(0.72, True), (0.68, False)])
def test_embeddings_recover_a_lost_track_from_the_minimum_similarity(cosine, matches):
    shown = [*still((100, 0)), [], [(400, 200)], *[[(400, 200)]] * 4]
    looks = [[RED]] * STEADY + [[]] + [[like_red(cosine)]] * 5
    assert tracked(scene(*shown, looks=looks), appearance=True)[-1] == [1 if matches else 2]


@pytest.mark.parametrize(("blue_frames", "matches"), [(1, True), (6, True), (7, False)])
def test_the_embedding_of_a_track_is_a_mean_with_decay_0_9(blue_frames, matches):
    """After six blue frames it still has .9 ** 6 = .53 of its red, a cosine of .75; after seven one of .68."""
    seen = STEADY + blue_frames
    strong_blue = (0.0, 30.0)  # how long an embedding is does not count
    shown = [*[[(100, 0)]] * seen, [], *[[(400, 200)]] * 5]
    looks = [[RED]] * STEADY + [[strong_blue]] * blue_frames + [[]] + [[RED]] * 5
    assert tracked(scene(*shown, looks=looks), appearance=True)[-1] == [1 if matches else 2]


def test_a_missing_embedding_does_not_change_that_of_the_track():
    shown = [*still((100, 0)), [(100, 0)], [], *[[(400, 200)]] * 5]
    looks = [[RED]] * STEADY + [[UNKNOWN], []] + [[RED]] * 5
    assert tracked(scene(*shown, looks=looks), appearance=True)[-1] == [1]


def test_a_new_track_does_not_inherit_an_earlier_embedding():
    """The red track is forgotten; another takes its room, without looks, and is found again by nothing."""
    shown = [*still((100, 0)), *[[]] * 10, *[[(100, 0)]] * 10, [], *[[(400, 200)]] * 5]
    looks = [[RED]] * STEADY + [[]] * 10 + [[UNKNOWN]] * 10 + [[]] + [[RED]] * 5
    assert tracked(scene(*shown, looks=looks), appearance=True, track_ttl=0.2)[-1] == [3]


def test_a_track_recovered_by_embedding_restarts_its_motion():
    walk = [[(100 + 2 * i, 0)] for i in range(STEADY)]
    shown = [*walk, [], [(400, 200)], []]
    video = scene(*shown, looks=[[RED]] * STEADY + [[], [RED], []])
    table = run_stage(Track(appearance=True, predicted=True), video)[-1].detections
    np.testing.assert_allclose(table.xyxy, [[400, 200, 440, 280]], atol=0.01)


def test_remaining_tracks_keep_their_embeddings():
    """The first of three tracks is forgotten: the others move up, with their looks."""
    green = (0.6, 0.8)
    three = [(100, 0), (250, 0), (400, 0)]
    shown = [*[three] * STEADY, *[three[1:]] * 10, [], *[[(100, 300), (250, 300)]] * 4]
    looks = [[(0.0, -1.0), RED, green]] * STEADY + [[RED, green]] * 10 + [[]] + [[green, RED]] * 4
    ids = tracked(scene(*shown, looks=looks), appearance=True, track_ttl=0.2, min_similarity=0.9)
    assert ids[-1] == [3, 2]


# ------------------------------------------------------------------------------------------- OC-SORT: its direction


def ahead_and_behind(further, **options):
    """A track walks to the right; then one object is ahead of where it is expected, and one behind where it came from.

    Returns:
        The number of the one ahead and of the one behind, which is `further` pixels nearer.
    """
    walk = [[(100 + 2 * i, 0)] for i in range(STEADY)]
    x = 100 + 2 * STEADY
    return tracked(scene(*walk, [(x + 12, 0), (x - 12 + further, 0)]), **options)[-1]


def test_ocsort_prefers_the_object_that_keeps_a_tracks_direction():
    assert ahead_and_behind(0.5, method="sort") == [-1, 1]
    assert ahead_and_behind(0.5, method="ocsort") == [1, -1]
    assert ahead_and_behind(3, method="ocsort") == [-1, 1], "the overlap counts for more"


def test_the_direction_of_a_track_is_that_of_its_box_centers():
    stage = Track(method="ocsort")
    run_stage(stage, scene(*[[(10.5 + n, 20.25 - n)] for n in range(3)]))
    track = stage.tracker.pool.tracks[0, 0]
    np.testing.assert_allclose(track["path"][:3], [[0.04 * n, 30.5 + n, 60.25 - n] for n in range(3)])
    assert (track["steps"], track["seen_s"], track["score"]) == (3, 0.08, np.float32(0.9))


def test_ocsort_does_not_penalize_a_track_without_direction():
    """A walker passes above one that stands; an object beside them is nearer to the one that stands."""
    x = 100 + 2 * STEADY
    walk = [[(100 + 2 * i, 0), (x + 26, 0)] for i in range(STEADY)]
    for method in ("sort", "ocsort"):
        assert tracked(scene(*walk, [(x + 13.6, 0)]), method=method)[-1] == [2 if method == "sort" else 1]
    across = [[(100, 0 + 2 * i), (126, 2 * STEADY)] for i in range(STEADY)]
    for method in ("sort", "ocsort"):
        assert tracked(scene(*across, [(113.5, 2 * STEADY)]), method=method)[-1] == [2]


# ------------------------------------------------------------------------------------------ OC-SORT: its second chance


def stopped(hidden, at=0.0, **options):
    """Something fast is hidden for so many frames, and then stands `at` pixels from where it was seen last.

    Returns:
        Its numbers in the frames from then on; without a second chance it is a new track.
    """
    walk = [[(12 * i, 100)] for i in range(STEADY)]
    ids = tracked(scene(*walk, *[[]] * hidden, *[[(walk[-1][0][0] + at, 100)]] * 5), **options)
    return [i for row in ids[STEADY + hidden :] for i in row]


def test_ocsort_recovers_a_stopped_object_at_its_last_box():
    assert stopped(4, method="sort") == [-1, -1, -1, 2, 2]
    assert stopped(4, method="ocsort") == [1] * 5


@pytest.mark.parametrize(("iou", "matches"), [(0.32, True), (0.28, False)])
def test_ocsort_needs_an_overlap_of_0_3_with_the_last_box(iou, matches):
    assert (stopped(4, -beside(iou), method="ocsort")[-1] == 1) is matches


def test_ocsort_needs_no_overlap_with_the_last_box_after_half_a_second():
    assert stopped(11, method="ocsort")[-1] == 1, "0.48 s after it was seen"
    assert stopped(12, method="ocsort")[-1] == 2, "0.52 s"


def test_ocsort_leaves_new_tracks_their_objects():
    """Somebody else comes near the last box of one that is lost, and is there before it would be found again."""
    walk = [[(12 * i, 100)] for i in range(STEADY)]
    x = walk[-1][0][0]
    come = [[(x - 40 + 11 * i, 100)] for i in range(6)]
    assert tracked(scene(*walk, [], *come), method="ocsort")[-1] == [2]


def test_ocsort_matches_a_recent_track_by_its_last_box():
    """It was never lost: it turns on the spot, faster than its motion lets expect."""
    walk = [[(24 * i, 100)] for i in range(STEADY)]
    turned = [*walk, [(walk[-1][0][0] - 18, 100)]]
    assert tracked(scene(*turned), method="sort")[-1] == [-1]
    assert tracked(scene(*turned), method="ocsort")[-1] == [1]


def test_ocsort_continues_from_the_last_box_of_a_track():
    """Its motion leads on; once it is found at its last box, it is expected there, and not ahead of it."""
    walk = [[(24 * i, 100)] for i in range(STEADY)]
    stopped_at = [(walk[-1][0][0] + 4, 100)]
    video = scene(*walk, *[stopped_at] * 2, [])
    table = run_stage(Track(method="ocsort", predicted=True), video)[-1].detections
    assert table.track_id.tolist() == [1]
    np.testing.assert_allclose(table.xyxy[0, 0], stopped_at[0][0], atol=3)


# -------------------------------------------------------------------------------------------- OC-SORT: its re-update


@pytest.mark.parametrize("method", ["sort", "ocsort"])
@pytest.mark.parametrize("score", [0.9, 0.6])
@pytest.mark.parametrize("lower", [18, 30], ids=["where it was expected", "elsewhere"])
def test_ocsort_replays_the_path_to_an_unexpected_position(method, score, lower):
    """Hidden for 0.2 s it comes out lower. Where it is expected then is the filter's, with or without the way there."""
    walk = [[(100 + 2 * i, 100)] for i in range(STEADY)]
    back = (100 + 2 * (STEADY + 5), 100 + lower)
    video = scene(*walk, *[[]] * 5, [(*back, score)], [])
    table = run_stage(Track(method=method, predicted=True), video)[-1].detections
    assert table.track_id.tolist() == [1]

    mean = np.zeros((4, 2))
    cov = np.zeros((4, 3))
    box = np.zeros(4)
    boxes = [np.float32((x, y, x + 40, y + 80)).astype(float) for ((x, y),) in walk]
    seen = np.float32(0.9)
    back = np.float32((*back, back[0] + 40, back[1] + 80)).astype(float)
    begin(mean, cov, boxes[0])
    for observed in boxes[1:]:
        predict(mean, cov, 0.04, True)
        correct(mean, cov, observed, float(seen), 1.0)
    if method == "ocsort" and lower == 30:
        reupdate(mean, cov, boxes[-1], back, float(np.float32(score)), 0.24)
    else:
        predict(mean, cov, 0.04, True)
        for _ in range(5):
            predict(mean, cov, 0.04, False)
        correct(mean, cov, back, float(np.float32(score)), 1.0)
    predict(mean, cov, 0.04, True)
    as_box(mean, box)
    np.testing.assert_allclose(table.xyxy[0], box, atol=0.01)


def test_smoothed_boxes_belong_to_their_objects():
    """Frames with one, two and three objects, which a batch holds one behind the other."""
    places = [(100, 0), (300, 0), (500, 0)]
    video = scene(*[places[: 1 + n % 3] for n in range(9)])
    for frame in run_stage(Track(smooth=True, confirm=0.0), video):
        expected = [[x, y, x + 40, y + 80] for x, y in places[: 1 + frame.index % 3]]
        np.testing.assert_allclose(frame.detections.xyxy, expected, atol=0.01)


def test_a_lost_object_keeps_its_size():
    video = scene(*still((100, 100)), *[[]] * 6)
    for frame in video[:STEADY]:
        boxes = frame.detections.xyxy + np.array([-1, -1, 1, 1], np.float32) * frame.index
        frame.detections = frame.detections.with_columns(xyxy=boxes)
    boxes_while_lost = [frame.detections.xyxy[0] for frame in run_stage(Track(predicted=True), video)[STEADY:]]
    sizes = np.array([box[2:] - box[:2] for box in boxes_while_lost])
    np.testing.assert_allclose(sizes, sizes[:1].repeat(6, axis=0), atol=0.01)


def test_an_object_keeps_its_size_in_skipped_frames():
    growing = scene(*still((100, 100)), *[[(100, 100)]] * 6)
    for frame in growing:
        boxes = frame.detections.xyxy + np.array([-1, -1, 1, 1], np.float32) * frame.index
        frame.detections = frame.detections.with_columns(xyxy=boxes)
    seen = growing[STEADY - 1].detections.xyxy[0]
    for frame in growing[STEADY:]:
        frame.tables = {"detect": frame.detections[:0]}
        frame._state.skipped_detectors = frozenset({"detect"})
    for frame in run_stage(Track(), growing)[STEADY:]:
        (expected,) = frame.detections.xyxy
        np.testing.assert_allclose(expected[2:] - expected[:2], seen[2:] - seen[:2], atol=0.01)


LANDSCAPE = (640, 360)
START = {"right": (500, 100), "left": (100, 100), "down": (300, 180), "up": (300, 100)}
STEP = {"right": (6, 0), "left": (-6, 0), "down": (0, 6), "up": (0, -6)}


@pytest.mark.parametrize("way", START)
def test_a_predicted_object_ends_at_the_border_of_its_frame(way):
    """An object of 40 x 80 pixels moves out of 640 x 360; the detector loses it before it reaches the border."""
    x, y = START[way]
    dx, dy = STEP[way]
    video = scene(*[[(x + n * dx, y + n * dy)] for n in range(14)], *[[]] * 30)
    tables = [frame.detections for frame in run_stage(Track(predicted=2.0), video)][14:]
    boxes = np.array([table.xyxy[0] for table in tables if len(table)])
    assert 8 < len(boxes) < 30, "it ends when it has left the frame"
    axis = 0 if dx else 1
    border = LANDSCAPE[axis] if dx + dy > 0 else 0
    front = boxes[:, axis + 2 * (dx + dy > 0)]
    assert np.count_nonzero(front == border) > 3
    assert (np.abs(np.diff(boxes[:, axis + 2 * (dx + dy < 0)])) > 3).all(), "its back goes on to move"
    across = boxes[:, 1 - axis :: 2]
    np.testing.assert_allclose(across, across[:1].repeat(len(across), axis=0), atol=0.5)
    assert all(table.extra["predicted"].all() for table in tables)
