"""The rows of the bench: what is printed, and what is worked out of several."""

from streamkit.bench.table import HEAD, Measurement, best, binding, growth_per_source
from streamkit.bench.trial import TrialResult


def trial(**changed):
    return TrialResult(
        **{"fps": 5000.0, "lock_free": 0.4, "cores_used": 4.0, "host_mb": 900.0, "start_s": 9.5, **changed}
    )


def test_a_row_is_aligned_with_the_header():
    row = Measurement(
        "whole", 5000.0, "hevc", 14, 64, of_limit=0.875, uses={"decoder": 0.96, "lock": 0.6}, found=trial(), processes=3
    )
    text = str(row)
    assert text.split() == [
        "whole",
        "hevc",
        "14",
        "64",
        "3",
        "5,000",
        "87.5%",
        "40.0%",
        "4.0",
        "0",
        "0",
        "0",
        "900",
        "9.5",
        "decoder",
        "96%",
    ]
    for title, value in {
        "sources": "14",
        "batch": "64",
        "procs": "3",
        "frames/s": "5,000",
        "lock free": "40.0%",
    }.items():
        end = HEAD.index(title) + len(title)
        assert text[:end].endswith(value)


def test_single_parts_have_only_a_speed():
    assert str(Measurement("infer", 9450.0, batch=64)).split() == ["infer", "64", "9,450"]


def test_a_failed_run_shows_the_reason():
    assert str(Measurement("whole", 0.0, "h264", 7, 8, found=trial(error="out of memory"))).endswith(
        "failed: out of memory"
    )


def test_paced_runs_show_drops_and_latency():
    row = Measurement(
        "paced", 3000.0, "hevc", 100, found=trial(latency={"p50_ms": 41.2, "p95_ms": 90.0, "p99_ms": 120.0})
    )
    assert str(row).endswith("0 dropped, p50 41 ms, p95 90 ms, p99 120 ms")


def test_the_most_used_resource_comes_first():
    shares = binding(trial(cores_busy=0.3), 16, decoder=5200.0, network=9000.0, other=None)
    assert list(shares.items()) == [("decoder", 0.962), ("lock", 0.6), ("network", 0.556), ("cores", 0.3)]
    assert binding(trial(lock_free=None), 4) == {"cores": 1.0}


def test_the_best_fitting_row_is_selected():
    rows = [Measurement("infer", 10.0, batch=8), Measurement("infer", 30.0, batch=64), Measurement("decode", 99.0)]
    assert best(rows, what="infer") is rows[1]
    assert best(rows, what="infer", batch=8) is rows[0]
    assert best(rows, what="whole") is None


def test_memory_per_additional_source_is_computed():
    rows = [Measurement("whole", 1.0, "hevc", n, 64, found=trial(device_mb=2000.0 + 75 * n)) for n in (1, 14, 32)]
    rows.append(Measurement("whole", 1.0, "hevc", 64, 64, found=trial(error="failed")))
    assert growth_per_source(rows, "device_mb", what="whole", codec="hevc", batch=64) == 75.0
    assert growth_per_source(rows[:1], "device_mb") is None
    assert growth_per_source([Measurement("whole", 1.0, sources=n, found=trial()) for n in (1, 2)], "device_mb") is None
