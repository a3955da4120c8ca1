"""Why a count is missing, and how much of a long list the text of a report has."""

from types import SimpleNamespace

import numpy as np
import pytest

from streamkit.evaluate import report as module
from streamkit.evaluate.boxes import EvaluatedFrame
from streamkit.evaluate.causes import Miss
from streamkit.evaluate.counting import CountError
from streamkit.evaluate.tracking import TrackError

FRAMES = [EvaluatedFrame("b", number, 0.0, 640, 360) for number in range(10)] + [
    EvaluatedFrame("a", number, number / 25, 640, 360) for number in range(200)
]
FIRST = 10  # the place of frame 0 of the source a


def why(*, misses=(), switches=(), kind="missed", track_id=7, frame=100):
    """Explain an error in a count of the object 7 at frame 100 of the source a.

    Args:
        misses: (frame, object, cause) of each miss.
        switches: (frame, object) of each switch of the track.
        kind: of the error.
        track_id: the object.
        frame: the frame.
    """
    truth = SimpleNamespace(
        track_id=np.array([object_id for _, object_id, _ in misses]),
        frame=np.array([FIRST + number for number, *_ in misses]),
    )
    error = CountError(kind, "door in", "car", "a", frame, track_id, "")
    lost = [Miss(row, cause, 0.2) for row, (*_, cause) in enumerate(misses)]
    wrong = [TrackError("switch", FIRST + number, 0, object_id, 3, 9, 2) for number, object_id in switches]
    return module._why(SimpleNamespace(frames=FRAMES, truth=truth), error, lost, wrong)


def test_an_event_missing_in_the_truth_has_no_other_reason():
    for fields in ({"kind": "extra"}, {"track_id": None}):
        assert why(misses=[(100, 7, "nms")], **fields) == "no such event in the truth within a second"


@pytest.mark.parametrize(("frame", "counts"), [(74, False), (75, True), (100, True), (125, True), (126, False)])
def test_misses_and_switches_within_a_second_are_the_reason(frame, counts):
    rest = "tracked, but its box is on the other side, or too short on this one"
    missed = why(misses=[(frame, 7, "nms"), (100, 8, "size")])
    assert missed == ("missed in 1 of the 51 frames around it: nms" if counts else rest)
    switched = why(switches=[(frame, 7), (100, 8)])
    assert switched == (f"switch at frame {frame}: track 3 to 9" if counts else rest)


def test_the_most_frequent_cause_is_the_reason_unless_the_track_switched():
    misses = [(98, 7, "nms"), (99, 7, "min_score"), (100, 7, "min_score")]
    assert why(misses=misses) == "missed in 2 of the 51 frames around it: min_score"
    assert why(misses=misses, switches=[(101, 7)]) == "switch at frame 101: track 3 to 9"


def test_frames_of_another_source_are_not_neighbors():
    assert why(misses=[(-1, 7, "nms")], switches=[(-2, 7)], frame=3).startswith("tracked")
    assert why(misses=[(0, 7, "nms")], frame=25).startswith("missed in 1")
    assert why(misses=[(0, 7, "nms")], frame=26).startswith("tracked")


def test_an_unevaluated_frame_has_no_neighbors():
    assert why(misses=[(0, 7, "nms"), (199, 7, "nms")], switches=[(5, 7)], frame=900).startswith("tracked")


def test_the_text_lists_at_most_eight_rows():
    switch = {"kind": "switch", "source": "a", "label": "car", "id": 7, "before": 3, "after": 9, "lost": 0}
    for count, more in ((8, []), (9, ["  and 1 more, in --json"]), (1_234, ["  and 1,226 more, in --json"])):
        lines = list(module._track_lines({"track_errors": [{**switch, "frame": number} for number in range(count)]}))
        assert lines[0] == "tracks that go wrong"
        assert lines[1:9] == [f"  switch: a frame {number}, car 7: track 3 to 9" for number in range(8)]
        assert lines[9:] == [*more, ""]


@pytest.mark.parametrize(
    ("lost", "text"), [(0, ""), (1, ", after 1 frame without a track"), (12, ", after 12 frames without a track")]
)
def test_the_time_without_a_track_is_shown(lost, text):
    error = {"source": "a", "label": "car", "id": 7, "before": 3, "after": 9, "lost": lost, "frame": 5}
    for kind, what in (("switch", "track 3 to 9"), ("fragment", "track 9")):
        lines = list(module._track_lines({"track_errors": [{**error, "kind": kind}]}))
        assert lines[1] == f"  {kind}: a frame 5, car 7: {what}{text}"
