"""Perceptual hashes: what looks alike has close ones, also under noise; what does not has not."""

import numpy as np

from streamkit.core.data import Color, Surface
from streamkit.ops.color import from_rgb
from streamkit.ops.perceptual_hash import BITS, hash_distances, perceptual_hash


def hashed(rgb):
    return perceptual_hash(Surface(from_rgb(rgb, Color()), Color()), rgb.shape[1::-1])


def picture(seed, width=160, height=120):
    """Large spots."""
    import cv2

    spots = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return cv2.resize(spots, (width, height), interpolation=cv2.INTER_CUBIC)


def test_noise_brightness_and_size_change_few_bits():
    clean = picture(1)
    random = np.random.default_rng(0)
    noisy = np.clip(clean + random.normal(0, 6, clean.shape), 0, 255).astype(np.uint8)
    darker = (clean * 0.8).astype(np.uint8)
    others = [hashed(noisy), hashed(darker), hashed(picture(1, 320, 240))]
    assert hash_distances(hashed(clean), others).max() <= 6
    assert hash_distances(hashed(clean), [hashed(clean)]).tolist() == [0]


def test_other_pictures_differ_in_many_bits():
    hashes = [hashed(picture(seed)) for seed in range(20)]
    distances = np.array([hash_distances(hash_, hashes) for hash_ in hashes])[~np.eye(20, dtype=bool)]
    assert distances.min() > 10
    assert 0 <= min(hashes) < max(hashes) < 2**BITS


def test_noise_on_an_even_surface_sets_no_bit():
    random = np.random.default_rng(0)
    even = [np.clip(random.normal(128, 3, (120, 160, 3)), 0, 255).astype(np.uint8) for _ in range(5)]
    assert {hashed(image) & ~(1 << 63) for image in even} == {0}, "but for the mean"


def test_pixels_that_pad_an_odd_size_do_not_count():
    odd = picture(3, 161, 121)
    surface = Surface(from_rgb(odd, Color()), Color())
    data = surface.data.copy()
    data[:121, 161:] = 255
    assert perceptual_hash(Surface(data, Color()), (161, 121)) == perceptual_hash(surface, (161, 121))
