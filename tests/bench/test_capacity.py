"""How many streams fit: the search, the verdict, and the whole on the pipeline that ships."""

import json

import pytest

from streamkit.bench import trial
from streamkit.bench.capacity import Attempt, CapacityOptions, Search, bottleneck, capacity, largest, used
from streamkit.bench.trial import TrialResult
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError, SourceError
from streamkit.runtime.multiprocess.process_count import overload_text

GOOD = {"p50_ms": 20.0, "p95_ms": 60.0, "p99_ms": 80.0}


@pytest.mark.parametrize("start", [1, 8, 100])
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 37, 150, 1024, 5000])
def test_the_search_ends_within_a_sixteenth_below(limit, start):
    tried_numbers = []

    def fits(number):
        tried_numbers.append(number)
        return number <= limit

    best = largest(fits, start, 1024)
    true = min(limit, 1024)
    assert best <= true
    assert true - best < max(1, best // 16) or best == true
    assert len(tried_numbers) == len(set(tried_numbers)) <= 16
    assert max(tried_numbers) <= 1024


def test_the_maximum_is_never_exceeded():
    tried_numbers = []
    assert largest(lambda number: not tried_numbers.append(number), 1, 5) == 5
    assert tried_numbers == [1, 2, 4, 5]


def search(tmp_path, rates=(25.0, 10.0), **options):
    return Search(tmp_path / "pipeline.yaml", {}, "cpu", CapacityOptions(**options), rates, tmp_path, print)


@pytest.mark.parametrize(
    ("trial_result", "message"),
    [
        (TrialResult(fps=60, latency=GOOD), None),
        (TrialResult(fps=58.3, latency=GOOD), None),
        (TrialResult(fps=58.0, latency=GOOD), "fall behind, 60 frames/s are due"),
        (TrialResult(fps=60, latency=GOOD, dropped=2), "2 frames were dropped"),
        (TrialResult(fps=60, latency={**GOOD, "p95_ms": 151}), "late, more than 150 ms"),
        (TrialResult(fps=60), "no frame passed the graph"),
        (TrialResult(error="no room for a surface"), "no room for a surface"),
    ],
)
def test_failures_of_mixed_streams_are_explained(trial_result, message, tmp_path):
    problem = search(tmp_path)._problem(3, trial_result)
    assert problem is None if message is None else message in problem


def test_measured_shares_are_ordered():
    trial_result = TrialResult(
        cores_used=6.0, cores_busy=0.9, lock_free=0.3, gpu=0.5, decoder=0.97, device_mb=30, device_total_mb=120
    )
    names = ["decoder", "cores", "interpreter lock", "GPU", "device memory"]
    assert list(used(trial_result, 16)) == names
    assert used(TrialResult(cores_used=1.0), 2) == {"cores": 0.5}


@pytest.mark.parametrize(
    ("attempt", "line"),
    [
        (Attempt(12, None, TrialResult(fps=1234.4, processes=1)), "   12 streams: 1,234 frames/s: fits"),
        (
            Attempt(1, None, TrialResult(fps=25.0, processes=1, latency={"p50_ms": 9, "p95_ms": 80.4})),
            "    1 streams: 25 frames/s, p95 latency 80 ms: fits",
        ),
        (
            Attempt(64, "it is late", TrialResult(fps=800.0, processes=2)),
            "   64 streams: 800 frames/s, 2 processes: it is late",
        ),
    ],
)
def test_each_attempt_is_a_line(attempt, line):
    assert str(attempt) == line


@pytest.mark.parametrize(
    ("problem", "trial_result", "shares", "message"),
    [
        ("late", TrialResult(), {"decoder": 0.97, "cores": 0.4}, "decoder"),
        (
            "late",
            TrialResult(stages={"detect.infer": 0.95, "jsonl": 0.1}),
            {"cores": 0.4},
            "the thread of detect.infer",
        ),
        ("late", TrialResult(stages={"jsonl": 0.1}), {"cores": 0.4}, "latency: no measured"),
        ("no room", TrialResult(error="no room for a surface of 1920x1080"), {"cores": 0.0}, "device memory"),
        ("died", TrialResult(error="it died"), {"cores": 0.0}, "it died"),
        (None, TrialResult(), {"cores": 0.99}, "nothing up to 8 streams"),
    ],
)
def test_the_bottleneck_is_named(problem, trial_result, shares, message):
    assert bottleneck(Attempt(8, problem, trial_result), shares).startswith(message)


def test_a_network_bottleneck_is_described_in_numbers(tmp_path, monkeypatch):
    """Up to 12 streams fit, as many as the networks serve."""

    def measured(spec):
        dropped = max(0, spec.streams - 12)
        return TrialResult(fps=30.0 * spec.streams, latency=GOOD, dropped=dropped, gpu=0.97)

    monkeypatch.setattr(trial, "measure", measured)
    pipeline = "sources: {a: 'rtsp://h/a'}\nstages: {detect: {model: demo, every: 2}, jsonl: {path: a.jsonl}}"
    graph = build(read_text(pipeline))

    def overload(streams, needed_fps):
        return overload_text(graph, streams, needed_fps, 385.0)

    capacity_search = search(tmp_path, (30.0,))
    capacity_search.overload = overload
    answer = capacity_search()
    assert str(answer) == (
        "12 streams fit; the bottleneck: the networks (used: GPU 97%, cores 0%); the networks take 2.6 ms a frame: 12 "
        "of 13 live sources fit at 30 frames/s, and frames of all will be dropped; with every: 3 and a tracker all fit"
    )


def test_streams_within_the_network_capacity_have_another_bottleneck(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "measure", lambda spec: TrialResult(fps=1.0, latency=GOOD, gpu=0.97))
    answer = search(tmp_path, (30.0,))()
    assert (answer.streams, answer.bottleneck, answer.overload) == (0, "GPU", "")


def test_the_included_pipeline_is_measured_without_changing_its_outputs(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(root / "samples")
    messages = []
    out = tmp_path / "answer.json"
    options = CapacityOptions(fps=2.0, max_latency_s=30.0, seconds=1.5, warmup_s=0.2, max_streams=2)
    code = capacity(root / "pipeline.yaml", {"batch.max_wait": "10ms"}, "cpu", options, out, messages.append)
    assert code == 0, messages
    answer = json.loads(out.read_text())
    assert answer["streams"] == 2
    assert [attempt["streams"] for attempt in answer["attempts"]] == [1, 2]
    assert answer["bottleneck"] == "nothing up to 2 streams"
    assert 0 < answer["shares"]["cores"] <= 1.1
    assert messages[-1].startswith("2 streams fit; the bottleneck: nothing up to 2 streams")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.json", "samples"]


def test_too_short_a_time_fits_no_stream(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    messages = []
    options = CapacityOptions(fps=2.0, max_latency_s=0.0001, seconds=0.5, warmup_s=0.1)
    assert capacity(root / "pipeline.yaml", {}, "cpu", options, None, messages.append) == 1
    assert "late" in messages[1]
    assert messages[-1].startswith("0 streams fit")


def test_invalid_options_are_reported_before_the_run(root, tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("{sources: {a: nothing.mp4}, stages: {jsonl: {path: a.jsonl}}}")
    with pytest.raises(SourceError, match=r"nothing.mp4"):
        capacity(path, {}, "cpu", CapacityOptions(), None, print)
    with pytest.raises(ConfigError, match=r"no 'x'"):
        capacity(path, {"stages.x.y": "1"}, "cpu", CapacityOptions(), None, print)
    with pytest.raises(ConfigError, match="--start 4 is above --max-streams 2"):
        capacity(path, {}, "cpu", CapacityOptions(start=4, max_streams=2), None, print)
