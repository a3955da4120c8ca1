import numpy as np
import pytest

from streamkit.ops import glyphs
from streamkit.ops.glyphs import Atlas


@pytest.mark.parametrize("height", [8, 14, 16, 28, 60])
def test_text_is_inside_its_sprite(height):
    atlas = Atlas()
    start, width = atlas.text("Wgj,person", height)
    luma, chroma = atlas.masks(start, width, height)
    assert luma.shape == (height, width)
    assert chroma.shape == (height // 2, width // 2)
    assert luma.max() > 180
    if height >= 14:
        assert not luma[0].any(), "nothing touches the upper edge"
        assert not luma[:, [0, -1]].any(), "nor a side"


def test_chroma_is_the_mean_of_four():
    atlas = Atlas()
    start, width = atlas.text("car", 16)
    luma, chroma = atlas.masks(start, width, 16)
    mean = luma.reshape(8, 2, width // 2, 2).mean((1, 3))
    assert np.abs(chroma - mean).max() <= 0.5


def test_longer_text_is_wider_and_every_width_is_even():
    atlas = Atlas()
    widths = [atlas.text("x" * n, 14)[1] for n in range(1, 30)]
    assert widths == sorted(widths)
    assert len(set(widths)) == len(widths)
    assert not any(width % 2 for width in widths)


def test_a_text_is_drawn_once():
    atlas = Atlas()
    first = atlas.text("car", 14)
    used = atlas.used
    assert atlas.text("car", 14) == first
    assert atlas.used == used
    assert atlas.text("car", 16) != first


@pytest.mark.parametrize("text", ["", " ", "x", "W" * 70, "()[]{}|@$%", "a\x00b"])
@pytest.mark.parametrize("height", [2, 4, 14])
def test_any_text_at_any_size_has_a_sprite(text, height):
    atlas = Atlas()
    start, width = atlas.text(text, height)
    assert width % 2 == 0
    assert start + width * height * 5 // 4 <= atlas.data.size


@pytest.mark.parametrize(("text", "same"), [("Straße", "Stra?e"), ("猫", "?"), ("a\nb", "a?b"), ("🚗 2", "? 2")])
def test_non_ascii_characters_become_question_marks(text, same):
    atlas = Atlas()
    a, width = atlas.text(text, 14)
    b, other = atlas.text(same, 14)
    assert width == other
    assert np.array_equal(atlas.masks(a, width, 14)[0], atlas.masks(b, other, 14)[0])


def test_overlong_names_are_shortened():
    atlas = Atlas()
    assert atlas.text("n" * 5000, 14)[1] == atlas.text("n" * 64, 14)[1]


@pytest.mark.parametrize("diameter", [4, 6, 8, 16])
def test_dot_is_round(diameter):
    atlas = Atlas()
    luma, _ = atlas.masks(atlas.dot(diameter), diameter, diameter)
    assert luma.sum() / 255 == pytest.approx(np.pi * diameter**2 / 4, rel=0.02)
    assert np.array_equal(luma, luma.T)
    assert np.array_equal(luma, luma[::-1, ::-1])
    assert luma[diameter // 2, diameter // 2] == 255


def test_growing_the_atlas_keeps_its_sprites():
    atlas = Atlas()
    start, width = atlas.text("first", 40)
    before = atlas.masks(start, width, 40)[0].copy()
    small = atlas.data.size
    for i in range(60):
        atlas.text(f"number {i}", 40)
    assert atlas.data.size > small
    assert atlas.text("first", 40) == (start, width)
    assert np.array_equal(atlas.masks(start, width, 40)[0], before)


def test_memory_is_bounded_over_many_batches(monkeypatch):
    monkeypatch.setattr(glyphs, "_FULL", 50_000)
    atlas = Atlas()
    for i in range(400):
        atlas.begin()
        atlas.text(f"#{i}", 40)
    assert atlas.used < 60_000


@pytest.mark.gpu
def test_the_atlas_on_the_device_equals_the_host_while_growing():
    atlas = Atlas()
    for i in range(80):
        atlas.text(f"number {i}", 40)
        if i % 7 == 0:
            assert np.array_equal(atlas.on_device().get()[: atlas.used], atlas.data[: atlas.used])
