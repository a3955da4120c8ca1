"""A network runs on the first view of a track, and on each view that is much better than all before it."""

import numpy as np
import pytest

from streamkit.core.data import Surface
from streamkit.core.units import Of
from streamkit.stages.inference.select_best_views import SelectBestViews
from streamkit.testing.kit import _batches, detections, frames


def selected_frames(views, batch_size=1, **options):
    """Return the indices of the frames in which an object is selected."""
    stage = SelectBestViews(of=Of("detect"), **options)
    stage.context = type(stage.context)("x")
    states = {"test": stage.new_state("test")}
    indices = []
    for batch in _batches(views, (batch_size,)):
        selection = stage.process(batch, states)
        indices += [selection.frames[row].index for row in selection.rows.tolist()]
    return indices


def frames_with_heights(heights, tracks=(7,), step_s=0.1):
    """Return frames with a gray object that is 40 pixels wide and has these heights."""
    views = frames(len(heights), "test", step_s=step_s, pixels=True)
    for frame, height in zip(views, heights, strict=True):
        boxes = [[100, 100, 140, 100 + height]] * len(tracks)
        frame.tables = {"detect": detections(boxes, track_id=list(tracks), label=["car"] * len(tracks))}
    return views


@pytest.mark.parametrize(
    ("heights", "expected"),
    [
        ([40, 40, 40], [0]),
        ([40, 48, 50], [0]),  # at most 1.25 times the area
        ([40, 52, 62, 66], [0, 1, 3]),  # each is compared with the best view selected so far
        ([40, 80, 40, 80, 160], [0, 1, 4]),
        ([80, 40, 20], [0]),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_much_larger_view_of_a_track_is_selected_again(heights, expected, batch_size):
    assert selected_frames(frames_with_heights(heights), batch_size) == expected


def test_a_sharper_view_of_the_same_size_is_better():
    views = frames_with_heights([40, 40, 40])
    noise = np.random.default_rng(0).integers(0, 256, views[1].surface.data.shape, dtype=np.uint8)
    views[1].surface = Surface(noise, views[1].surface.color)
    assert selected_frames(views) == [0, 1]


def test_untracked_objects_are_never_selected():
    assert selected_frames(frames_with_heights([40, 80], tracks=(-1,))) == []
    assert selected_frames(frames_with_heights([40, 80], tracks=(-1, 3))) == [0, 1]


def test_a_track_after_a_long_absence_starts_over():
    assert selected_frames(frames_with_heights([80, 40], step_s=9.0)) == [0]
    assert selected_frames(frames_with_heights([80, 40], step_s=11.0)) == [0, 1]
    assert selected_frames(frames_with_heights([80, 40], step_s=3.0), track_ttl=2.0) == [0, 1]


def test_small_views_are_skipped():
    assert selected_frames(frames_with_heights([20, 40, 80]), min_size=30.0) == [1, 2]
