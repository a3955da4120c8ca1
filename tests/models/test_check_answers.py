"""`models check` of networks that answer with a vector."""

import dataclasses

import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models.card import find_card, load_card
from streamkit.models.check import check, frames_of


@pytest.fixture(scope="module")
def shown(root):
    return frames_of([root / "samples" / "street.mp4"], 3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["color", "look"])
def test_what_ships_passes(name, device, shown):
    report = check(load_card(find_card(name)), shown, Device(device))
    assert report.passed, str(report)
    assert report.frames == 3
    assert str(report).endswith("passed")
    assert ("best class" in str(report)) == (name == "color")


@pytest.mark.parametrize("name", ["color", "look"])
def test_a_wrong_meaning_is_found(name, shown, monkeypatch):
    from streamkit.models.families import family

    card = load_card(find_card(name))
    reads = family(card.family)
    right = reads.finish
    monkeypatch.setattr(reads, "finish", lambda vectors: right(np.roll(vectors, 1, axis=1)))
    report = check(card, shown)
    assert not report.passed
    assert report.tensor_max < 0.01
    assert str(report).endswith("FAILED")


def test_a_wrong_tensor_is_found(shown, monkeypatch):
    from streamkit.ops import preprocess as module

    right = module.preprocess

    def brighter(*args, **options):
        tensor, geometry = right(*args, **options)
        return tensor + np.float32(2), geometry

    monkeypatch.setattr(module, "preprocess", brighter)
    assert not check(load_card(find_card("color")), shown).passed


def test_labels_that_do_not_fit(shown):
    card = dataclasses.replace(load_card(find_card("color")), labels=("a",))
    with pytest.raises(ModelError, match="the label list has 1"):
        check(card, shown)
