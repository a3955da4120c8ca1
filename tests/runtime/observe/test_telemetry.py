"""OpenTelemetry: what a run sends to a collector, and what happens if the collector or the packages are missing."""

import contextlib
import socket
import sys
import time
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from support.collector import collecting_otlp, number, points, samples, still, twins
from support.commands import command
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core import tracing
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.errors import ConfigError, MissingPackage
from streamkit.core.stage import Context
from streamkit.core.tracing import Spans
from streamkit.runtime.multiprocess.frame_ipc import ParentStages, RelaySink, Uplink, frame_pipe
from streamkit.runtime.observe import telemetry
from streamkit.runtime.observe.batch_traces import BatchSpans
from streamkit.runtime.observe.metrics import registry
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.pipeline import PipelineRun

PIPELINE = """
sources: {bars: "test://?width=64&height=64&frames=20"}
stages:
  draw: {}
  jsonl: {path: "OUT/{source}.jsonl"}
  copy: {stage: jsonl, path: "OUT/{source}-2.jsonl", from: decode}
"""
VARIABLES = (
    *telemetry.ENDPOINTS,
    "OTEL_TRACES_SAMPLER",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    telemetry.failures.values.clear()
    yield
    telemetry.failures.values.clear()
    assert telemetry.active() is None


@pytest.fixture
def collector(monkeypatch):
    with collecting_otlp() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.endpoint)
        yield server


def run(tmp_path, text=PIPELINE, trace=None):
    """Run a pipeline with telemetry."""
    path = tmp_path / "p.yaml"
    path.write_text(text.replace("OUT", str(tmp_path)))
    exported = telemetry.open_telemetry()
    running = PipelineRun(build(read(path)), Device(), trace=trace)
    with telemetry.exporting(exported, lambda: registry(running)):
        assert running.run() == 0
    return running


# ----------------------------------------------------------------------------------------------------------- metrics


def test_every_prometheus_metric_has_an_equal_otlp_metric(tmp_path, collector):
    running = run(tmp_path)
    resource, metrics = collector.exports[-1]
    assert still(twins(metrics)) == still(samples(generate_latest(registry(running)).decode()))
    assert twins(metrics)["streamkit_frames_total", ("source", "bars")] == 20
    assert twins(metrics).keys() == samples(generate_latest(registry(running)).decode()).keys()
    assert metrics["streamkit.stage_seconds"].unit == "s"
    assert metrics["process.resident_memory_bytes"].unit == "By"
    assert metrics["streamkit.frames"].sum.is_monotonic
    assert metrics["streamkit.frames"].sum.aggregation_temporality == 2  # cumulative
    assert resource["service.name"] == "streamkit"
    assert resource["process.pid"] > 0


def test_a_histogram_and_a_restarted_counter_are_exported():
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.sdk.resources import Resource

    from streamkit.runtime.observe.otlp_metrics import OtlpMetrics

    metrics_registry = CollectorRegistry()
    wait = Histogram("streamkit_wait_seconds", "d", ["stage"], registry=metrics_registry, buckets=(0.1, 1.0))
    for value in (0.05, 0.5, 0.6, 7.0):
        wait.labels("a").observe(value)
    wait.labels("b").observe(0.1)
    Gauge("streamkit_ready", "d", registry=metrics_registry).set(1)
    count = Counter("streamkit_frames", "d", registry=metrics_registry)
    count.inc(5)
    reader = OtlpMetrics(metrics_registry, Resource({}))

    def read():
        (part,) = encode_metrics(reader.read()).resource_metrics
        return {metric.name: metric for metric in part.scope_metrics[0].metrics}

    first = read()
    created = {
        key: value
        for key, value in samples(generate_latest(metrics_registry).decode()).items()
        if not key[0].endswith("_created")
    }
    assert twins(first) == created
    (before,) = points(first["streamkit.frames"])
    count.inc()
    (later,) = points(read()["streamkit.frames"])
    assert (number(later), later.start_time_unix_nano) == (6, before.start_time_unix_nano)
    count.reset()
    (again,) = points(read()["streamkit.frames"])
    assert (number(again), again.start_time_unix_nano) == (0, later.time_unix_nano)


def test_the_environment_sets_the_export_interval(collector, monkeypatch):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    metrics_registry = CollectorRegistry()
    value = Gauge("streamkit_ready", "d", registry=metrics_registry)
    with telemetry.exporting(telemetry.open_telemetry(), lambda: metrics_registry):
        for number in (3, 4):
            value.set(number)
            collector.until(lambda: collector.exports and value_of(collector, "streamkit.ready") == value._value.get())


def value_of(collector, name):
    return number(points(collector.exports[-1][1][name])[0])


# ------------------------------------------------------------------------------------------------------------ traces


def test_a_batch_is_a_tree_of_its_source_its_stages_and_its_sinks(tmp_path, collector):
    run(tmp_path, PIPELINE.replace("sources:", "batch: 4\nsources:"))
    batches = collector.named("batch")
    assert len(batches) == 5
    for batch in batches:
        parts = {span.name: span for span in collector.below(batch)}
        assert parts.keys() == {"source", "stage draw", "sink jsonl", "sink copy"}
        source = parts["source"]
        draw = parts["stage draw"]
        jsonl = parts["sink jsonl"]
        assert batch.start_ns == source.start_ns < source.ended_ns <= draw.start_ns
        assert draw.start_ns < draw.ended_ns <= jsonl.start_ns < jsonl.ended_ns
        assert batch.ended_ns >= max(span.ended_ns for span in parts.values())
        assert source.about == {"streamkit.source": "bars", "streamkit.frames": 4}
        assert draw.about == {"streamkit.stage": "draw", "streamkit.stage.type": "draw", "streamkit.frames": 4}
        assert not any(span.failed for span in parts.values())
    (opened,) = collector.named("open source")
    assert opened.about == {"streamkit.source": "bars"}


def test_spans_name_what_failed(tmp_path, collector):
    plugin = tmp_path / "odd.py"
    plugin.write_text(
        "from streamkit import stage\n\n@stage('odd')\ndef odd(frame):\n    '''Fail.'''\n"
        "    if frame.index == 2:\n        raise ValueError('two')\n"
    )
    text = PIPELINE.replace("draw: {}", "odd: {}").replace("sources:", f"plugins: [{plugin}]\nbatch: 4\nsources:")
    path = tmp_path / "p.yaml"
    path.write_text(text.replace("OUT", str(tmp_path)))
    exported = telemetry.open_telemetry()
    with telemetry.exporting(exported):
        PipelineRun(build(read(path)), Device()).run()
    assert [span.failed for span in sorted(collector.named("stage odd"), key=lambda span: span.start_ns)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert len(collector.named("sink jsonl")) == len(collector.named("batch")) == 5, "its trace goes on"


def test_the_environment_overrides_the_default_sampling(tmp_path, collector, monkeypatch):
    many = PIPELINE.replace("frames=20", "frames=120").replace("sources:", "batch: 2\nsources:")
    run(tmp_path, many)
    assert 10 <= len(collector.named("batch")) <= 20
    collector.spans.clear()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    run(tmp_path, many)
    assert len(collector.named("batch")) == 60
    collector.spans.clear()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    run(tmp_path, many)
    assert collector.spans == []


@pytest.mark.parametrize(("signal", "left"), [("TRACES", (False, True)), ("METRICS", (True, False))])
def test_the_environment_can_disable_a_signal(tmp_path, collector, monkeypatch, signal, left):
    monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")
    run(tmp_path)
    assert (bool(collector.spans), bool(collector.exports)) == left


def test_profile_and_traces_can_be_combined(tmp_path, collector):
    trace = Trace(tmp_path / "t.json")
    run(tmp_path, trace=trace)
    assert collector.named("sink jsonl")
    events = [event for part in trace.log.kept()[:2] for event in part]
    assert {event.name for event in events if event.kind == "stage"} == {"draw", "jsonl", "copy"}


def test_operations_are_recorded_only_during_export(collector):
    tracing.record_operation("connect source", time.monotonic(), {"streamkit.source": "a"})
    with telemetry.exporting(telemetry.open_telemetry()):
        about = {"streamkit.source": "b"}
        tracing.record_operation("connect source", time.monotonic() - 2, about, "rtsp://u:secret@h: no")
    tracing.record_operation("connect source", time.monotonic(), {"streamkit.source": "c"})
    (span,) = collector.spans
    assert span.about == {"streamkit.source": "b"}
    assert span.failed
    assert span.ended_ns - span.start_ns > 1.9e9


def test_connection_attempts_of_a_camera_are_spans(tmp_path, collector):
    camera = f"rtsp://me:secret@127.0.0.1:{closed_port()}/x"
    path = tmp_path / "p.yaml"
    path.write_text(
        f"sources: {{cam: {{uri: '{camera}', reconnect: {{attempts: 2, max_backoff: 10ms}}}}}}\n"
        f"stages: {{jsonl: {{path: {tmp_path}/r.jsonl}}}}\n"
    )
    exported = telemetry.open_telemetry()
    with telemetry.exporting(exported):
        assert PipelineRun(build(read(path)), Device()).run() == 1
    first, second = sorted(collector.spans, key=lambda span: span.start_ns)
    assert (first.name, second.name) == ("connect source", "reconnect source")
    for span in (first, second):
        assert span.about == {"streamkit.source": "cam", "error.type": "refused"}
        assert span.failed
        assert span.start_ns < span.ended_ns
    assert first.ended_ns <= second.start_ns


def test_delivery_spans_name_their_stage(tmp_path, collector, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the spool is in the working folder
    run(
        tmp_path,
        PIPELINE.replace(
            'copy: {stage: jsonl, path: "OUT/{source}-2.jsonl", from: decode}', "sqlite: {path: OUT/r.db}"
        ),
    )
    deliveries = collector.named("deliver records")
    assert sum(span.about["messaging.batch.message_count"] for span in deliveries) == 20
    assert {span.about["streamkit.stage"] for span in deliveries} == {"sqlite"}


def test_a_trace_continues_in_stages_of_the_parent(tmp_path, collector):
    path = tmp_path / "p.yaml"
    path.write_text(f"sources: {{a: 'test://', b: 'test://'}}\nstages: {{jsonl: {{path: {tmp_path}/all.jsonl}}}}\n")
    graph = build(read(path))
    errors = []
    reader, writer = frame_pipe()
    with telemetry.exporting(telemetry.open_telemetry()):
        uplink = Uplink(writer)
        traces = telemetry.batch_traces(graph)
        relay = RelaySink(uplink, "jsonl")
        spans = BatchSpans(traces, Spans())
        first, second = (Batch([Frame("a", index, 0.0, 64, 48)], sequence=index) for index in range(2))
        traces.begin(first)  # only this one is traced

        def write(batch):
            relay.write(batch.frames[0])
            relay.flush()
            return batch

        for batch in (first, second):
            spans.stage("jsonl", write)(batch)
        uplink.close()
        stages = ParentStages(graph, ["a", "b"], Context, errors.append)
        stages.open()
        with contextlib.suppress(EOFError):
            while True:
                stages.put(reader.recv())
        stages.close()
    assert errors == []
    here, there = collector.named("sink jsonl")
    assert (here.trace, here.parent) == (there.trace, there.parent) != (b"", b"")
    assert stages.finished == {"jsonl": 2}


# ------------------------------------------------------------------------------------------------------- environment


def test_nothing_is_exported_without_an_endpoint(monkeypatch):
    assert telemetry.open_telemetry() is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert telemetry.open_telemetry() is None
    assert telemetry.child_environment() == {}


def test_the_resource_has_names_of_the_environment_and_the_run(collector, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gate")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    exported = telemetry.open_telemetry()
    with telemetry.exporting(exported):
        assert telemetry.child_environment() == {
            "OTEL_RESOURCE_ATTRIBUTES": f"deployment.environment=test,service.instance.id={exported.instance}"
        }
        monkeypatch.setenv(*telemetry.child_environment(3).popitem())
        tracing.record_operation("x", time.monotonic(), {})
    other = telemetry.open_telemetry()  # as a worker process does
    with telemetry.exporting(other):
        assert other.instance == f"{exported.instance}.3"
    assert collector.spans[0].resource.items() >= {
        ("service.name", "gate"),
        ("deployment.environment", "test"),
        ("service.instance.id", exported.instance),
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be http/protobuf, got grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "c:4318", r"must begin with http:// or https://, .* got c:4318"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m", "must be a number of milliseconds above 0, such as 60000, got '1m'"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "must be a number of milliseconds"),
    ],
)
def test_an_invalid_variable_is_refused(monkeypatch, name, value, words):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words):
        telemetry.open_telemetry()


@pytest.mark.parametrize("module", ["opentelemetry.exporter.otlp.proto.http", "prometheus_client"])
def test_a_missing_package_is_reported_with_its_variable(monkeypatch, module):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackage, match=r"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set: .*\[otel\]"):
        telemetry.open_telemetry()


# ---------------------------------------------------------------------------------------------------- collector away


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_an_unreachable_collector_is_logged_once_and_delays_the_end_by_seconds(tmp_path, monkeypatch):
    port = closed_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://me:secret@127.0.0.1:{port}")
    monkeypatch.setattr(telemetry, "FLUSH_S", 0.5)
    logged = collect()
    start_s = time.monotonic()
    running = run(tmp_path)
    assert time.monotonic() - start_s < 5
    about = {text for text in logged if text.startswith("telemetry")}
    rest = "the run continues, and its report counts failed exports"
    assert about == {f"telemetry cannot be sent to http://me:***@127.0.0.1:{port}: Connection refused; {rest}"}
    assert running.counts().items() >= {
        ("telemetry exports failed: metrics", 1),
        ("telemetry exports failed: traces", 1),
    }
    later = PipelineRun(running.graph, Device())
    assert "telemetry exports failed: metrics" not in later.counts(), "each run has its own"


def test_a_silent_collector_delays_the_end_by_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(telemetry, "FLUSH_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        logged = collect()
        start_s = time.monotonic()
        running = run(tmp_path)
        assert time.monotonic() - start_s < 5
        assert any("no answer; the run continues" in text for text in logged)
        assert running.counts()["telemetry exports failed: traces"] == 1
    time.sleep(0.3)  # the connection is closed: the export that waited fails
    assert running.counts()["telemetry exports failed: traces"] == 1


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c")
    logged = collect()
    log = SimpleNamespace(last={})
    outcomes = telemetry._Outcomes("traces", log)
    for done in (True, False, False, True, True, False):
        log.last["traces"] = "code: 502, reason: Bad Gateway"
        outcomes.note(done)
    assert [text.split(";")[0] for text in logged] == [
        "telemetry cannot be sent to http://c: Bad Gateway",
        "telemetry is sent to http://c again",
        "telemetry cannot be sent to http://c: Bad Gateway",
    ]
    assert telemetry.failures["telemetry exports failed: traces"] == 3


# ----------------------------------------------------------------------------------------------------------- command


@pytest.mark.long
def test_processes_export_a_single_stream(tmp_path, root):
    """The parent exports the metrics of all; a batch's trace goes on from a worker into the parent's sinks."""
    path = tmp_path / "p.yaml"
    path.write_text(
        "device: {use: cpu, processes: 2}\n"
        "sources: {a: 'test://?width=64&height=64&frames=6', b: 'test://?width=64&height=64&frames=6'}\n"
        f"stages: {{draw: {{}}, jsonl: {{path: {tmp_path}/all.jsonl}}}}\n"
    )
    with collecting_otlp() as server:
        completed = command(root, "run", path, env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint})
        assert completed.returncode == 0, completed.stderr
        resource, metrics = server.exports[-1]
        assert len(server.exports) == 1
        assert twins(metrics)["streamkit_frames_total", ("source", "a")] == 6
        assert twins(metrics)["streamkit_stage_frames_total", ("stage", "jsonl")] == 12
        sinks = [span for span in server.named("sink jsonl") if span.resource["process.pid"] == resource["process.pid"]]
        batches = {span.trace: span for span in server.named("batch")}
        assert sinks
        assert all(span.parent == batches[span.trace].id for span in sinks)
        assert resource["process.pid"] not in {span.resource["process.pid"] for span in batches.values()}
        assert {span.resource["service.instance.id"] for span in server.spans} == {resource["service.instance.id"]}


def test_a_batch_exports_the_sums_of_each_worker(tmp_path, root):
    path = tmp_path / "p.yaml"
    path.write_text("sources: {}\nstages: {draw: {}}\n")
    for name in "ab":
        (tmp_path / f"{name}.mp4").write_bytes((root / "samples/street.mp4").read_bytes())
    with collecting_otlp() as server:
        completed = command(
            root,
            "batch",
            path,
            tmp_path / "*.mp4",
            "--out",
            tmp_path / "o",
            "--format",
            "csv",
            "--workers",
            1,
            "--end",
            "0.4",
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint},
        )
        assert completed.returncode == 0, completed.stderr
        ((resource, metrics),) = server.exports
        frames = twins(metrics)["streamkit_frames_total", ("source", "files")]
        assert frames == twins(metrics)["streamkit_stage_frames_total", ("stage", "dataset.csv")] >= 10
        assert resource["service.instance.id"].endswith(".0")
        assert server.named("batch")
