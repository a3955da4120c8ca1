"""benchmarks/performance.py: rows keep what they have measured, and run on the CPU."""

import math

import pytest

from benchmarks import performance
from benchmarks.performance import CPU, Bench, LeftOut, Row, measure
from streamkit.core.errors import StreamkitError


@pytest.fixture
def row(monkeypatch):
    def add_row(work, repeat=3, limit_s=60.0):
        monkeypatch.setitem(performance.ROWS, "row", Row(work, repeat, limit_s))

    return add_row


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path, tmp_path, "cpu", CPU)


def test_every_value_has_its_median_its_range_and_all_repetitions(row, bench):
    def work(bench):
        bench.conditions |= {"streams": 14}
        for fps in (3.0, 1.0, 2.0, 9.0):
            bench.raw.append({"fps": fps})
            yield {"fps": fps, "gpu": None}

    row(work)
    measurement = measure("row", bench, None, math.inf)
    assert measurement["figures"] == {"fps": {"median": 2.0, "low": 1.0, "high": 3.0, "values": [3.0, 1.0, 2.0]}}
    assert (measurement["repetitions"], measurement["error"]) == (3, None)
    assert measurement["conditions"] == {"device": "cpu", "streams": 14}
    assert measurement["raw"] == [{"fps": 3.0}, {"fps": 1.0}, {"fps": 2.0}]
    assert measure("row", bench, 1, math.inf)["repetitions"] == 1


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (StreamkitError("no decoder"), "after 1 of 3 repetitions: no decoder"),
        (TimeoutError(), "stopped at its time limit of 5 s, after 1 of 3 repetitions"),
        (LeftOut("no broker"), "left out: no broker"),
    ],
)
def test_measurements_before_an_error_are_kept(row, bench, failure, text):
    def work(bench):
        yield {"fps": 3.0}
        raise failure

    row(work, limit_s=5.0)
    measurement = measure("row", bench, None, math.inf)
    assert measurement["error"] == text
    assert measurement["figures"]["fps"]["values"] == [3.0]


def test_a_repetition_without_enough_time_is_not_started(row, bench, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(performance.time, "monotonic", lambda: now[0])

    def work(bench):
        while True:
            now[0] += 4.0
            yield {"fps": 3.0}

    row(work, repeat=5)
    measurement = measure("row", bench, None, 10.0)
    assert (measurement["repetitions"], measurement["error"]) == (2, "2 of 5 repetitions fitted into 10 s")


def test_a_file_of_another_machine_gets_no_rows(tmp_path):
    machine = {"gpu": "NVIDIA H100", "cpu": "a", "cores": 16, "driver": "580"}
    content = performance.opened(tmp_path / "a.json", machine)
    (tmp_path / "a.json").write_text(performance.json.dumps(content))
    assert performance.opened(tmp_path / "a.json", machine) == content
    with pytest.raises(SystemExit, match="another machine"):
        performance.opened(tmp_path / "a.json", {**machine, "gpu": "NVIDIA H200"})
    assert performance.card(machine) == "h100"
    assert performance.card({"gpu": None}) == "cpu"


def test_a_quantile_is_interpolated_in_its_bucket():
    counts = {0.01: 0.0, 0.02: 10.0, 0.05: 20.0, math.inf: 20.0}
    assert performance._quantile(counts, 0.5) == 20.0
    assert performance._quantile(counts, 0.95) == 47.0
    assert performance._quantile({0.01: 0.0, math.inf: 1.0}, 0.5) == 10.0
    assert performance._quantile({}, 0.5) is None


@pytest.fixture
def real(test_data, tmp_path):
    return Bench(test_data, tmp_path, "cpu", CPU)


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("files-hevc", "load-serve", "kill")]


@pytest.mark.parametrize("name", [*LONG, "plain-loop"])
def test_a_row_runs_on_the_cpu(real, name):
    measurement = measure(name, real, 1, 120.0)
    assert measurement["error"] is None
    values = {key: figure["median"] for key, figure in measurement["figures"].items()}
    if name == "files-hevc":
        assert values["decoders_fps"] == max(values["decoders_1_fps"], values["decoders_3_fps"]) > values["fps"] > 0
        limit = min(values["decoders_fps"], values["network_fps"])
        assert values["of_limit"] == pytest.approx(values["fps"] / limit, rel=0.01)
    elif name == "load-serve":
        assert measurement["conditions"]["streams"] == CPU.many
        assert values["requests"] >= 12
        assert values["live_bytes"] > 1000, "the live stream was read"
        assert values["fps"] > 0
        assert 0 < values["p50_ms"] <= values["p95_ms"]
        assert (real.folder / "names.txt").read_text().startswith("tench"), "without the line `background`"
    elif name == "plain-loop":
        assert values["cpu_one_fps"] > 0
        assert [repetition["frames"] for repetition in measurement["raw"]] == [
            CPU.plain_frames,
            CPU.plain_frames * CPU.plain_streams,
        ]
    else:
        assert 0.5 < values["first_back_s"] <= values["back_s"]
        assert values["sources"] >= 1
        assert values["p95_others_ms"] > 0
