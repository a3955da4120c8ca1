import copy
import gc

import numpy as np
import pytest

from streamkit.core.data import Color, Frame, Surface


@pytest.mark.parametrize(
    "data",
    [
        np.zeros((10, 8), np.uint8),
        np.zeros((12, 7), np.uint8),
        np.zeros((12, 8), np.float32),
        np.zeros((12, 8, 1), np.uint8),
    ],
)
def test_a_surface_refuses_arrays_that_are_not_nv12(data):
    with pytest.raises(ValueError, match=r"Surface.data must be uint8 of shape \(height \* 3 / 2, width\)"):
        Surface(data, Color())


def test_a_surface_is_returned_when_its_last_reader_releases_it():
    back = []
    surface = Surface(np.zeros((6, 4), np.uint8), Color(), give_back=lambda data, pending: back.append(data))
    assert (surface.width, surface.height) == (4, 4)
    first = Frame("a", 0, 0.0, 4, 4, surface)
    second = Frame("a", 1, 0.0, 4, 4, surface)
    del surface, first
    gc.collect()
    assert back == []
    del second
    gc.collect()
    assert len(back) == 1


@pytest.mark.parametrize(("awaited", "expected"), [(False, "event"), (True, None)])
def test_an_unawaited_surface_is_reported_when_returned(awaited, expected):
    back = []
    surface = Surface(
        np.zeros((6, 4), np.uint8), Color(), ready="event", give_back=lambda data, pending: back.append(pending)
    )
    surface.awaited = awaited
    del surface
    gc.collect()
    assert back == [expected]


def test_copying_a_surface_returns_the_same_object():
    """A second one of the same memory would give it back twice."""
    back = []
    surface = Surface(np.zeros((6, 4), np.uint8), Color(), give_back=lambda data, pending: back.append(data))
    assert copy.copy(surface) is surface
    assert copy.deepcopy({"kept": [surface]})["kept"][0] is surface
    del surface
    gc.collect()
    assert len(back) == 1
