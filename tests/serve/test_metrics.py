"""What Prometheus reads of sources that were lost, dropped frames, and loads."""

import re
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.servers import served

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState
from streamkit.runtime.observe import nvml
from streamkit.runtime.observe.event_counts import EventSeries
from streamkit.runtime.observe.metrics import BOUNDS_S, PipelineCollector
from streamkit.runtime.observe.nvml import GpuUtilization
from streamkit.serve.metrics import ServerCollector, registry
from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.zone import Zone
from streamkit.stages.inference.infer import Infer


def test_reconnects_by_cause_are_counted_once():
    state = SourceState()
    assert state.reconnects_by_cause() == {}
    state.counters.add("reconnects", 3)
    state.counters.add("reconnects: lost", 2)
    state.counters.add("reconnects: timeout")
    assert state.reconnects_by_cause() == {"lost": 2, "timeout": 1}


def test_reconnections_without_a_cause_are_counted():
    state = SourceState()
    for word in ("running", "reconnecting", "running"):
        state.set_state(word)
    assert state.reconnects_by_cause() == {"unknown": 1}


def test_drops_and_reconnects_have_their_cause_as_a_label(server):
    state = server.engine.state("gate")
    state.counters.add("reconnects: lost", 4)
    state.drops.add("frames dropped: over age", 5)
    text = generate_latest(registry(server.engine)).decode()
    samples = {
        (s.name, *sorted(s.labels.values())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert samples["streamkit_reconnects_total", "gate", "lost"] == 4
    assert samples["streamkit_frames_dropped_total", "gate", "over_age"] == 5


def test_source_names_are_escaped(server):
    new = {"id": "yard", "uri": "test://", "options": {"pace": 5}}
    assert server.client.post("/api/v1/sources", json=new).status_code == 201
    states = server.engine.running.sources
    states.states = {**states.states, 'a"b\\c\n': SourceState()}
    families = list(text_string_to_metric_families(server.open.get("/metrics").text))
    assert any(s.labels.get("source") == 'a"b\\c\n' for family in families for s in family.samples)


def latency(*seconds):
    histogram = Histogram()
    for value_s in seconds:
        histogram.add(value_s)
    return histogram


def source(state, frames, latency=None, **counts):
    source_state = SourceState(frames=frames, state=state, latency=latency)
    for kind, n in counts.items():
        place, _, cause = kind.partition("_")
        if place == "dropped":
            source_state.drops.add(f"frames dropped: {cause}", n)
        else:
            source_state.counters.add(f"reconnects: {cause}", n)
    return source_state


def standing_still():
    """A run whose counts are known, all of them different."""
    states = {
        "gate": source("running", 11, latency(0.015, 0.4, 20.0), dropped_over_age=2, reconnects_lost=3),
        "yard": source("failed", 0),
        "removed": source("ended", 99, latency(1.0)),
    }
    states["removed"].removed = True
    states["gate"]._samples.extend([(0.0, 0, 0), (2.0, 25, 25)])
    return SimpleNamespace(
        ready=True,
        stopping=False,
        fatal=None,
        graph=SimpleNamespace(
            nodes={
                "detect": SimpleNamespace(options={}, type=Infer),
                "new": SimpleNamespace(options={}, type=Infer),
                "crossing": SimpleNamespace(options={}, type=LineCounter),
                "till": SimpleNamespace(options={}, type=Zone),
                "preview": SimpleNamespace(options={"gallery": object()}, type=Infer),
            }
        ),
        devices=(Device("cpu"),),
        states=states,
        sources=SimpleNamespace(removed=RemovedSources(frames=1000, drops=dropping("frames dropped: over age", 7))),
        latency={"detect": latency(0.06)},
        meters=lambda: {"detect": {"frames": 31, "failed": 4, "seconds": 1.5}, "preview": {"frames": 1}},
        queues=lambda: {"detect": 6},
        detections={"detect": 41},
        event_counts={
            EventSeries("gate", "crossing", "crossed", "path", "in", "person"): 42,
            EventSeries("gate", "crossing", "crossed", "path", "in", "car"): 3,
            EventSeries("gate", "crossing", "crossed", "path", "out", "person"): 5,
            EventSeries("yard", "crossing", "crossed", "", "in", "person"): 7,
            EventSeries("gate", "till", "entered", "queue", "", "person"): 8,
            EventSeries("gate", "till", "left", "queue", "", "person"): 9,
            EventSeries("gate", "till", "overcrowded", "queue"): 2,
            EventSeries("pipeline", "alarms", "raised"): 6,
            EventSeries("removed", "crossing", "crossed", "path", "in", "person"): 1000,
            EventSeries("gate", "collect", "entered"): 12,
        },
        counts=lambda: {
            "pixels to host": 43,
            "records dropped: spool full": 45,
            "records dropped: Spool-full": 1,
            "crossing path in: person": 42,
            "till queue entered: person": 8,
            "tillage: rows": 11,
        },
        alarms=SimpleNamespace(
            raised=[SimpleNamespace(alarm="slow", source="gate")], rules=lambda: {"slow": ("fps < 5", 44)}
        ),
    )


def dropping(phrase, n):
    counters = Counters()
    counters.add(phrase, n)
    return counters


def standing_server():
    """A server whose counts are known."""
    return SimpleNamespace(
        refused=dropping("too many wrong tokens", 21),
        store=SimpleNamespace(counts=dropping("images removed: size", 47)),
        gallery=SimpleNamespace(live=SimpleNamespace(viewers=51, lost=52)),
    )


def test_each_count_has_its_metric():
    samples = {
        (s.name, *s.labels.values()): s.value
        for part in (PipelineCollector(standing_still()), ServerCollector(standing_server()))
        for metric in part.collect()
        for s in metric.samples
        if "latency" not in s.name
    }
    states = {
        ("streamkit_source_state", id_, word): float(word == now)
        for id_, now in (("gate", "running"), ("yard", "failed"))
        for word in ("connecting", "running", "reconnecting", "paused", "ended", "failed")
    }
    assert samples == {
        ("streamkit_frames_total", "gate"): 11,
        ("streamkit_frames_total", "yard"): 0,
        ("streamkit_frames_dropped_total", "gate", "over_age"): 2,
        ("streamkit_reconnects_total", "gate", "lost"): 3,
        **states,
        ("streamkit_source_frames_per_second", "gate"): 12.5,
        ("streamkit_source_frames_per_second", "yard"): 0.0,
        ("streamkit_live_viewers",): 51,
        ("streamkit_live_lost_total",): 52,
        ("streamkit_sources",): 2,
        ("streamkit_stage_frames_total", "detect"): 31,
        ("streamkit_stage_frames_total", "new"): 0,
        ("streamkit_stage_frames_total", "crossing"): 0,
        ("streamkit_stage_frames_total", "till"): 0,
        ("streamkit_stage_frames_failed_total", "detect"): 4,
        ("streamkit_stage_frames_failed_total", "new"): 0,
        ("streamkit_stage_frames_failed_total", "crossing"): 0,
        ("streamkit_stage_frames_failed_total", "till"): 0,
        ("streamkit_stage_seconds_total", "detect"): 1.5,
        ("streamkit_stage_seconds_total", "new"): 0.0,
        ("streamkit_stage_seconds_total", "crossing"): 0.0,
        ("streamkit_stage_seconds_total", "till"): 0.0,
        ("streamkit_stage_queue_batches", "detect"): 6,
        ("streamkit_detections_total", "detect"): 41,
        ("streamkit_events_total", "gate", "crossing", "crossed"): 50,
        ("streamkit_events_total", "yard", "crossing", "crossed"): 7,
        ("streamkit_events_total", "gate", "till", "entered"): 8,
        ("streamkit_events_total", "gate", "till", "left"): 9,
        ("streamkit_events_total", "gate", "till", "overcrowded"): 2,
        ("streamkit_events_total", "pipeline", "alarms", "raised"): 6,
        ("streamkit_events_total", "gate", "collect", "entered"): 12,
        ("streamkit_line_crossings_total", "gate", "crossing", "path", "in", "person"): 42,
        ("streamkit_line_crossings_total", "gate", "crossing", "path", "in", "car"): 3,
        ("streamkit_line_crossings_total", "gate", "crossing", "path", "out", "person"): 5,
        ("streamkit_line_crossings_total", "yard", "crossing", "", "in", "person"): 7,
        ("streamkit_zone_entries_total", "gate", "till", "queue", "person"): 8,
        ("streamkit_zone_exits_total", "gate", "till", "queue", "person"): 9,
        ("streamkit_counts_total", "pixels_to_host", ""): 43,
        ("streamkit_counts_total", "records_dropped", "spool_full"): 46,
        ("streamkit_counts_total", "tillage", "rows"): 11,
        ("streamkit_store_total", "images_removed_size"): 47,
        ("streamkit_http_refused_total", "too_many_wrong_tokens"): 21,
        ("streamkit_alarm", "slow", "gate"): 1.0,
        ("streamkit_alarms_raised_total", "slow"): 44,
        ("streamkit_ready",): 1.0,
    }


def test_removed_files_stay_in_the_totals():
    samples = {
        (s.name, *s.labels.values()): s.value
        for metric in PipelineCollector(standing_still(), by_source=False).collect()
        for s in metric.samples
    }
    assert samples["streamkit_frames_total", "files"] == 1011
    assert samples["streamkit_frames_dropped_total", "files", "over_age"] == 9
    assert samples["streamkit_events_total", "files", "crossing", "crossed"] == 1057
    assert samples["streamkit_line_crossings_total", "files", "crossing", "path", "in", "person"] == 1042
    assert samples["streamkit_zone_exits_total", "files", "till", "queue", "person"] == 9
    assert samples["streamkit_sources",] == 2
    assert not [key for key in samples if "gate" in key and key[0] != "streamkit_alarm"]


def test_a_stopping_or_failed_run_is_not_ready():
    for name, value in (("stopping", True), ("fatal", ValueError()), ("ready", False)):
        running = standing_still()
        setattr(running, name, value)
        ready = [
            s.value for m in PipelineCollector(running).collect() for s in m.samples if s.name == "streamkit_ready"
        ]
        assert ready == [0.0]


def test_a_pipeline_on_the_cpu_has_no_gpu_load_metrics():
    collector = PipelineCollector(standing_still())
    assert not collector._nvml
    assert not [metric for metric in collector.collect() if "utilization" in metric.name]


def test_each_gpu_has_separate_load_metrics(monkeypatch):
    uses = {0: GpuUtilization(0.25, 0.5), 1: GpuUtilization(0.75, None)}
    monkeypatch.setattr(nvml, "Nvml", lambda index: SimpleNamespace(use=lambda: uses[index]))
    running = standing_still()
    running.devices = (Device("cuda", 0), Device("cuda", 1))
    samples = {
        (sample.name, sample.labels["device"]): sample.value
        for metric in PipelineCollector(running).collect()
        for sample in metric.samples
        if "utilization" in sample.name
    }
    assert samples == {
        ("streamkit_gpu_utilization_ratio", "cuda:0"): 0.25,
        ("streamkit_gpu_utilization_ratio", "cuda:1"): 0.75,
        ("streamkit_decoder_utilization_ratio", "cuda:0"): 0.5,
    }


def test_histograms_count_up_to_each_bound():
    buckets = {}
    sums = {}
    for metric in PipelineCollector(standing_still()).collect():
        for s in metric.samples:
            name = next((value for name, value in s.labels.items() if name != "le"), "")
            if s.name.endswith("_bucket"):
                buckets.setdefault((s.name, name), []).append((s.labels["le"], s.value))
            elif s.name.endswith(("latency_seconds_sum", "latency_seconds_count")):
                sums[s.name.rpartition("_")[2], name] = s.value
    bounds = [0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0]
    assert list(BOUNDS_S) == bounds
    names = [*map(str, bounds), "+Inf"]
    assert buckets == {
        ("streamkit_source_latency_seconds_bucket", "gate"): [*zip(names, [0, 0, *[1] * 8, *[2] * 6, 3], strict=True)],
        ("streamkit_stage_latency_seconds_bucket", "detect"): [*zip(names, [*[0] * 5, *[1] * 12], strict=True)],
    }
    assert (sums["count", "gate"], sums["count", "detect"]) == (3, 1)
    assert sums["sum", "gate"] == pytest.approx(20.415, rel=0.01)
    assert sums["sum", "detect"] == pytest.approx(0.06, rel=0.01)


@pytest.mark.gpu
def test_the_load_of_gpu_and_decoder_is_exported(root, monkeypatch):
    monkeypatch.chdir(root)
    text = """
device: cuda
sources: {cam: {uri: samples/street.mp4, every: 5, pace: realtime, loop: true}}
stages: {detect: {model: demo}}
"""
    with served(text, root) as instance:
        instance.running("cam")
        for name in ("gpu", "decoder"):
            sample = rf'^streamkit_{name}_utilization_ratio{{device="cuda:0"}} (\S+)$'
            (load,) = re.findall(sample, instance.open.get("/metrics").text, re.MULTILINE)
            assert 0 <= float(load) <= 1
