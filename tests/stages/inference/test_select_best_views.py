"""Which views of a track a network runs on: the first, and those that are much better than all before."""

import numpy as np
import pytest

from streamkit.core.data import Surface
from streamkit.core.units import Of
from streamkit.stages.inference.select_best_views import SelectBestViews
from streamkit.testing.kit import _batches, detections, frames


def chosen(views, batch=1, **options):
    """The frames of which an object is chosen."""
    stage = SelectBestViews(of=Of("detect"), **options)
    stage.context = type(stage.context)("x")
    states = {"test": stage.new_state("test")}
    indices = []
    for part in _batches(views, (batch,)):
        done = stage.process(part, states)
        indices += [done.frames[row].index for row in done.rows.tolist()]
    return indices


def film(heights, tracks=(7,), step_s=0.1):
    """Frames on which a gray object is 40 pixels wide, and of these heights."""
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
        ([40, 52, 62, 66], [0, 1, 3]),  # each is compared with the best one that was chosen
        ([40, 80, 40, 80, 160], [0, 1, 4]),
        ([80, 40, 20], [0]),
    ],
)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_much_larger_view_of_a_track_is_selected_again(heights, expected, batch):
    assert chosen(film(heights), batch) == expected


def test_a_sharper_view_of_the_same_size_is_better():
    views = film([40, 40, 40])
    noise = np.random.default_rng(0).integers(0, 256, views[1].surface.data.shape, dtype=np.uint8)
    views[1].surface = Surface(noise, views[1].surface.color)
    assert chosen(views) == [0, 1]


def test_untracked_objects_are_never_selected():
    assert chosen(film([40, 80], tracks=(-1,))) == []
    assert chosen(film([40, 80], tracks=(-1, 3))) == [0, 1]


def test_a_track_after_a_long_absence_starts_over():
    assert chosen(film([80, 40], step_s=9.0)) == [0]
    assert chosen(film([80, 40], step_s=11.0)) == [0, 1]
    assert chosen(film([80, 40], step_s=3.0), track_ttl=2.0) == [0, 1]


def test_small_views_are_skipped():
    assert chosen(film([20, 40, 80]), min_size=30.0) == [1, 2]
