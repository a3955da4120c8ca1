"""What lines and zones cost, loosely: the machine may have other things to do."""

import time

import numpy as np
import pytest

from benchmarks.lines_and_zones import OBJECTS, SOURCES, batches, main, measure, stages


@pytest.mark.alone
def test_a_batch_of_64_sources_is_analyzed_in_milliseconds():
    frame_batches = batches(60)
    assert len(frame_batches[0]) == SOURCES
    assert len(frame_batches[0].table("detect")) == SOURCES * OBJECTS
    best = 0.0
    for stage in stages().values():
        times, events = measure(stage, frame_batches, clock=time.process_time)
        assert events > 100
        best += float(np.quantile(times, 0.1))
    assert best < 12.0, "milliseconds of one core for both stages; the bar is 4 on a quiet one"


def test_the_measurement_is_printed(capsys):
    main(12)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("lines: median ")
    assert lines[-1].endswith("per batch of 64 sources with 30 objects, 10 lines and 10 zones")
