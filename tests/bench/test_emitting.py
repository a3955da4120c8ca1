import math

from streamkit.bench.emitting import OBJECTS, measure


def test_it_measures_one_emitter(tmp_path):
    found = measure("sqlite", tmp_path, 40)
    assert found["records_per_s"] > 40 * OBJECTS / 30
    assert found["stage_us_per_frame"] > 0
    assert math.isnan(found["caught_up_per_s"])
