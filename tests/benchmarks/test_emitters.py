import math

import pytest
from support.brokers.nats import NatsServer

from benchmarks.emitters import OBJECTS, measure


def test_an_emitter_is_measured(tmp_path):
    measurements = measure("sqlite", tmp_path, 40)
    assert measurements["records_per_s"] > 40 * OBJECTS / 30
    assert measurements["stage_us_per_frame"] > 0
    assert 0 < measurements["beside_jsonl_us_per_frame"] < measurements["alone_us_per_frame"]
    assert measurements["sender_us_per_record"] > 0
    assert math.isnan(measurements["caught_up_per_s"])


def test_catching_up_with_live_records_is_measured(tmp_path):
    if (reason := NatsServer.missing()) is not None:
        pytest.skip(reason)
    measurements = measure("nats", tmp_path, 40)
    assert measurements["caught_up_per_s"] > 40 * OBJECTS / 30
    assert measurements["caught_up_live_per_s"] > 40 * OBJECTS / 30
    assert measurements["live_took_longer"] >= 0.9
