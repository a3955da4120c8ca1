import numpy as np
import pytest

from streamkit.analytics.heat import Heat, painted


def test_the_hottest_pixel_is_where_most_time_was_spent():
    heat = Heat(0.03)
    heat.warm(np.array([[0.25, 0.5]]), 10.0)
    heat.warm(np.array([[0.75, 0.5], [np.nan, 0.5]]), 5.0)
    for height, width in ((360, 640), (90, 120), (1080, 1920)):
        spread = heat.spread(height, width)
        assert spread.shape == (height, width)
        row, column = np.unravel_index(spread.argmax(), spread.shape)
        assert (column / width, row / height) == pytest.approx((0.25, 0.5), abs=0.02)
        assert spread[height // 2, width * 3 // 4] == pytest.approx(0.5, abs=0.05)
        assert spread[: height // 4].max() == 0


def test_heat_decays_over_time():
    heat = Heat(0.03)
    heat.warm(np.array([[0.5, 0.5]]), 9.0)
    for _ in range(50):
        heat.cool(0.04, 1.0)
    assert heat.seconds.sum() == pytest.approx(1.0)


def test_cold_areas_leave_the_image_unchanged():
    below = np.random.default_rng(0).integers(0, 256, (90, 160, 3), dtype=np.uint8)
    heat = Heat(0.05)
    assert np.array_equal(painted(below, heat, "turbo", 1.0), below)
    heat.warm(np.array([[0.5, 0.5]]), 1.0)
    picture = painted(below, heat, "turbo", 1.0)
    assert np.array_equal(picture[:20], below[:20])
    assert picture[45, 80, 0] > 100, "the hottest is red"
    assert picture[45, 80, 2] < 30


def test_a_hot_spot_does_not_hide_the_rest():
    heat = Heat(0.005)
    heat.seconds[90:] = 1.0  # half of the picture
    heat.seconds[40, 100] = 1000.0
    spread = heat.spread(180, 320)
    assert spread[100:170, 10:310].min() == pytest.approx(1.0, abs=0.01)
    assert spread[40, 100] == 1.0
    assert spread[:30].max() == 0


def test_heat_is_a_disc_of_its_radius_at_any_aspect_ratio():
    for height, width in ((200, 800), (400, 400), (360, 640)):
        heat = Heat(0.2)
        heat.warm(np.array([[0.5, 0.5]]), 1.0)
        hot = heat.spread(height, width) > np.exp(-0.5)  # one standard deviation: half the radius
        high = np.ptp(np.nonzero(hot.any(axis=1))[0]) + 1
        wide = np.ptp(np.nonzero(hot.any(axis=0))[0]) + 1
        assert high / height == pytest.approx(0.2, abs=0.02)
        assert wide / height == pytest.approx(0.2, abs=0.02)


def test_a_third_is_left_after_the_time_and_a_ninth_after_twice_that():
    heat = Heat(0.03)
    heat.warm(np.array([[0.5, 0.5], [0.999, 1.0]]), 9.0)
    heat.cool(4.0, 4.0)
    assert heat.seconds[90, 160] == heat.seconds[179, 319] == pytest.approx(3.0)
    heat.cool(8.0, 4.0)
    assert heat.seconds[90, 160] == pytest.approx(1 / 3)


@pytest.mark.parametrize("share", [1.0, 1.5, 0.999, -0.2])
def test_objects_at_or_beyond_the_edges_heat_the_border(share):
    heat = Heat(0.03)
    heat.warm(np.array([[share, 0.5], [0.5, share]]), 2.0)
    row, column = (0, 0) if share < 0 else (179, 319)
    wanted = np.zeros((180, 320))
    wanted[90, column] = wanted[row, 160] = 2.0
    assert np.array_equal(heat.seconds, wanted)
    assert heat.spread(90, 160).shape == (90, 160)


@pytest.mark.parametrize("opacity", [1.0, 0.5, 0.25])
@pytest.mark.parametrize(("palette", "hottest"), [("turbo", (122, 4, 3)), ("heat", (255, 255, 255))])
def test_the_hottest_pixel_has_the_last_color_of_the_palette(palette, hottest, opacity):
    heat = Heat(0.03)
    heat.seconds[:] = 4.0  # the same everywhere but for the frame's edges
    below = np.full((180, 320, 3), 40, np.uint8)
    hottest_part = painted(below, heat, palette, opacity)[60:120, 60:260]
    assert (hottest_part == np.rint(40 * (1 - opacity) + np.array(hottest) * opacity)).all()
    heat.seconds[:, :160] = 0.36  # 0.09 of the hottest, which is covered with 0.3 of the opacity
    cool = painted(below, heat, "heat", opacity)[90, 80]
    assert cool == pytest.approx(np.array([40 + (60 - 40) * 0.3 * opacity, *[40 * (1 - 0.3 * opacity)] * 2]), abs=1)
