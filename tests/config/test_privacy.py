"""What a YAML says of people and places to be hidden, as values."""

import pytest

from streamkit.config.privacy import hidden
from streamkit.ops.hide import HideSpec

ZONE = ((0.0, 0.0), (0.5, 0.0), (0.5, 0.5))
LARGE = ((0.0, 0.0), (50.0, 0.0), (50.0, 50.0))


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("all", {}),
        (("person",), {"labels": frozenset({"person"})}),
        (["person", "car"], {"labels": frozenset({"person", "car"})}),
        ({"labels": ("person",), "grow": 0.5}, {"labels": frozenset({"person"}), "grow": 0.5}),
        ({"labels": ("person",), "grow": 0.0, "cells": 4}, {"labels": frozenset({"person"}), "grow": 0.0, "cells": 4}),
        ({"zone": LARGE}, {"objects": False, "zones": (LARGE,)}),
        ({"zone": {"a": LARGE, "b": LARGE}}, {"objects": False, "zones": (LARGE, LARGE)}),
        ({"zone": ZONE, "units": "share"}, {"objects": False, "zones": (ZONE,), "share": True}),
        ({"zone": LARGE, "units": "pixels"}, {"objects": False, "zones": (LARGE,)}),
        ({"zone": LARGE, "labels": ("car",)}, {"labels": frozenset({"car"}), "zones": (LARGE,)}),
    ],
)
def test_privacy_options_are_read(choice, expected, smooth):
    assert hidden("blur", choice, smooth=smooth) == HideSpec(smooth, **expected)


def test_hiding_has_defaults():
    hidden_spec = HideSpec(True)
    assert (
        hidden_spec.labels,
        hidden_spec.objects,
        hidden_spec.zones,
        hidden_spec.share,
        hidden_spec.cells,
        hidden_spec.grow,
    ) == (
        frozenset(),
        True,
        (),
        False,
        8,
        0.2,
    )


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({}, "^blur needs labels or a zone"),
        ((), "^blur needs labels or a zone"),
        ({"labels": ()}, "^blur needs labels or a zone"),
        ({"labels": (), "zone": LARGE}, "^blur.labels names no class; leave it out to hide the zone itself"),
        ({"zone": LARGE, "units": "share"}, "share"),
    ],
)
def test_options_that_hide_nothing_are_refused(choice, text):
    with pytest.raises(ValueError, match=text):
        hidden("blur", choice, smooth=True)
