"""Emitters in a pipeline: what is checked beforehand, what is logged, what is counted."""

import builtins
import errno
import json
import os
import sqlite3
import subprocess
import sys

import pytest
from support.broker_servers import free_port
from support.messages import collect

from benchmarks.emitters import add_stages
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, MissingPackage, OutputError
from streamkit.core.stage import default_registry
from streamkit.emit.broker import brokers
from streamkit.runtime.pipeline import PipelineRun

REGISTRY = default_registry()
add_stages(REGISTRY)


def graph(sink, *, count=20, sources=("gate", "yard"), above=None):
    each = {"stage": "numbered_frames", "uri": "none", "count": count}
    stages = {**({"detect": above} if above else {}), "out": sink}
    text = json.dumps({"device": "cpu", "sources": dict.fromkeys(sources, each), "stages": stages})
    return build(read_text(text, registry=REGISTRY))


def run(sink, **options):
    logged = collect()
    pipeline = PipelineRun(graph(sink, **options), Device("cpu"))
    return pipeline.run(), pipeline.report(0)["counts"], logged


def problems(sink):
    with pytest.raises(ConfigError) as caught:
        graph(sink)
    return str(caught.value)


def rows(path, text):
    with sqlite3.connect(path) as connection:
        fetched = connection.execute(text).fetchall()
    connection.close()
    return fetched


def test_all_sources_are_written_to_one_table_in_order(tmp_path):
    out = {"stage": "sqlite", "path": str(tmp_path / "x.db"), "send": "objects", "spool": {"path": str(tmp_path / "s")}}
    code, counts, logged = run(out, above={"stage": "ten_objects"})
    assert (code, counts["records sent"]) == (0, 400)
    assert not any("spool" in text for text in logged)
    table = rows(tmp_path / "x.db", "SELECT source, frame, label FROM objects ORDER BY rowid")
    for source in ("gate", "yard"):
        assert [row[1] for row in table if row[0] == source] == [n // 10 for n in range(200)]
    assert {row[2] for row in table} == {"car", "person", "bicycle"}


def test_the_default_spool_is_named_after_the_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run({"stage": "sqlite", "path": "x.db"})[0] == 0
    assert sorted(path.name for path in (tmp_path / "spool" / "out").iterdir()) == ["acknowledged", "lock", "name"]


def test_an_unreachable_broker_logs_a_warning_and_records_wait(tmp_path):
    sink = {
        "stage": "redis",
        "url": f"redis://:pa55@127.0.0.1:{free_port()}",
        "spool": {"path": str(tmp_path / "s")},
        "drain_timeout": "1s",
    }
    code, counts, logged = run(sink)
    assert code == 0
    assert counts["records left in the spool"] == 40
    assert counts["connections lost or refused"] >= 1
    (warning,) = [text for text in logged if "no connection" in text]
    assert warning.startswith("redis://127.0.0.1:")
    assert "records wait in the spool; the emitter retries until it succeeds" in warning
    assert "40 records are left in" in logged[-1]
    assert not any("pa55" in text for text in logged)


def test_an_unreachable_required_broker_ends_the_run_with_exit_code_2(tmp_path, root):
    (tmp_path / "p.yaml").write_text(
        "sources: {a: 'test://'}\n"
        f"stages:\n  mqtt: {{url: 'mqtt://me:${{SECRET}}@127.0.0.1:{free_port()}', required: true}}\n"
    )
    completed = subprocess.run(
        [sys.executable, str(root / "run.py"), "p.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "SECRET": "hunter2"},
    )
    assert completed.returncode == 2, completed.stderr
    assert "mqtt: mqtt://127.0.0.1:" in completed.stderr
    assert "is required and cannot be used: no connection: " in completed.stderr
    assert "start it, or remove required: true, so that records wait in the spool" in completed.stderr
    assert "hunter2" not in completed.stderr + completed.stdout
    assert not (tmp_path / "spool").exists()


def test_a_full_spool_can_stop_the_run(tmp_path):
    sink = {
        "stage": "redis",
        "url": f"redis://127.0.0.1:{free_port()}",
        "spool": {"path": str(tmp_path / "s"), "size": "1MB", "when_full": "stop"},
        "drain_timeout": "0.5s",
    }
    with pytest.raises(OutputError, match=r"the spool .* is full with 1 MB, and when_full is stop"):
        run(sink, count=20_000)


def test_dropped_sent_and_waiting_records_add_up(tmp_path):
    sink = {
        "stage": "redis",
        "url": f"redis://127.0.0.1:{free_port()}",
        "spool": {"path": str(tmp_path / "s"), "size": "1MB"},
        "drain_timeout": "0.5s",
    }
    code, counts, logged = run(sink, count=6000)
    assert code == 1, "records that are lost are a failure"
    dropped = counts["records dropped: spool full"]
    assert dropped > 0
    assert dropped + counts["records left in the spool"] == 12_000
    assert sum("the oldest records are dropped, and counted" in text for text in logged) == 1
    assert logged[-1] == f"out lost records: {dropped:,} records dropped: spool full"
    out = {"stage": "sqlite", "path": str(tmp_path / "x.db"), "spool": {"path": str(tmp_path / "s")}}
    _, counts, _ = run(out, count=1, sources=("last",))
    assert counts["records sent"] == 12_000 - dropped + 1, "a spool may also be sent elsewhere"
    table = rows(tmp_path / "x.db", "SELECT frame FROM frames WHERE source = 'gate' ORDER BY rowid")
    assert [row[0] for row in table] == list(range(6000 - len(table), 6000)), (
        "the newest, and none is missing among them"
    )


def full_disk(monkeypatch, folder):
    """Make the disk refuse writes to this folder once the spool is open."""
    real = os.write

    def write(handle, data):
        if os.readlink(f"/proc/self/fd/{handle}").startswith(str(folder)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data)

    monkeypatch.setattr(os, "write", write)


def test_a_full_disk_and_a_full_spool_are_reported_differently(tmp_path, monkeypatch):
    full_disk(monkeypatch, tmp_path / "s")
    sink = {"stage": "sqlite", "path": str(tmp_path / "x.db"), "spool": {"path": str(tmp_path / "s")}}
    code, counts, logged = run(sink, count=10)
    assert (code, counts["records dropped: disk full"]) == (1, 20)
    assert "records dropped: spool full" not in counts
    assert logged == [
        f"the disk of the spool {tmp_path}/s is full, or its quota is used up; new records are dropped, and counted",
        "out lost records: 20 records dropped: disk full",
    ]


def test_expired_and_refused_records_fail_the_run(tmp_path):
    path = tmp_path / "x.db"
    database = sqlite3.connect(path)
    columns = "id TEXT PRIMARY KEY, source TEXT, frame INTEGER, pts_s REAL, time TEXT, error TEXT, record TEXT"
    database.execute(f"CREATE TABLE frames ({columns}, CHECK (frame <> 3))")
    database.close()
    code, counts, logged = run({"stage": "sqlite", "path": str(path), "spool": {"path": str(tmp_path / "s")}}, count=10)
    assert (code, counts["records sent"]) == (1, 18)
    assert logged[-1] == "out lost records: 2 records given up: refused by the broker"
    away = {
        "stage": "redis",
        "url": f"redis://127.0.0.1:{free_port()}",
        "drain_timeout": "0s",
        "spool": {"path": str(tmp_path / "t"), "age": "0s"},
    }
    code, counts, logged = run(away, count=10)
    assert code == 1
    assert counts["records dropped: over age"] > 0
    assert "records dropped: over age" in logged[-1]


def test_two_emitters_cannot_share_a_spool(tmp_path):
    spool = {"spool": {"path": str(tmp_path / "s")}}
    each = {"stage": "numbered_frames", "uri": "none", "count": 1}
    stages = {name: {"stage": "sqlite", "path": f"{tmp_path}/{name}.db", "from": "decode", **spool} for name in "ab"}
    shared = build(
        read_text(json.dumps({"device": "cpu", "sources": {"x": each}, "stages": stages}), registry=REGISTRY)
    )
    with pytest.raises(OutputError, match=r"is in use by another run or emitter; set a different spool\.path for each"):
        PipelineRun(shared, Device("cpu")).run()


def test_records_of_failed_frames_carry_the_error(tmp_path):
    from streamkit.core.stage import Collecting, FrameStage, stage

    registry = REGISTRY.copy()
    with Collecting(registry):

        @stage("fails")
        class Fails(FrameStage):
            """Fails on every third frame."""

            def process(self, frame):
                if frame.index % 3 == 0:
                    raise ValueError("no")

    each = {"stage": "numbered_frames", "uri": "none", "count": 9}
    sink = {"stage": "sqlite", "path": str(tmp_path / "x.db"), "spool": {"path": str(tmp_path / "s")}}
    text = json.dumps({"device": "cpu", "sources": {"a": each}, "stages": {"fails": {}, "out": sink}})
    PipelineRun(build(read_text(text, registry=registry)), Device("cpu")).run()
    table = rows(tmp_path / "x.db", "SELECT frame, error FROM frames ORDER BY rowid")
    assert [row[0] for row in table] == list(range(9))
    assert [bool(row[1]) for row in table] == [n % 3 == 0 for n in range(9)]


BROKERS = brokers(default_registry())
MQTT = {"stage": "mqtt", "url": "mqtt://u:hunter2@h"}


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({**MQTT, "topic": "cameras/{sorce}"}, "topic has an unknown variable {sorce}; did you mean 'source'?"),
        (
            {**MQTT, "send": "objects", "topic": "{lable}"},
            "topic has an unknown variable {lable}; did you mean 'label'?",
        ),
        ({**MQTT, "topic": "cameras/#"}, "topic cannot contain the wildcards + and #"),
        ({**MQTT, "sned": "objects"}, "mqtt has no option 'sned'; did you mean 'send'?"),
        (
            {**MQTT, "send": "object"},
            "out.send must be frames, objects or events, got 'object'; did you mean 'objects'?",
        ),
        ({**MQTT, "spool": {"size": "10KB"}}, "spool.size must be at least 1MB, got 0.01MB"),
        ({**MQTT, "timeout": 1e308}, "out.timeout must be at most 73000d, which is 200 years, got 1e+308"),
        ({**MQTT, "timeout": "1.5d"}, "timeout must be at most 1d, got 1.5d: some clients count milliseconds"),
        ({**MQTT, "drain_timeout": 1e300}, "out.drain_timeout must be at most 73000d"),
        ({**MQTT, "spool": {"age": 1e308}}, "out.spool.age must be at most 73000d"),
        ({**MQTT, "spool": {"size": 1e308}}, "out.spool.size must be at most 1000000TB"),
        ({**MQTT, "spool": {"when": "stop"}}, "out.spool has no option 'when'; did you mean 'when_full'?"),
        ({**MQTT, "tls": {"ca": "x"}}, "tls needs an encrypted address: write mqtts:// in the url"),
        ({**MQTT, "url": "mqqt://u:hunter2@h"}, "url must begin with mqtt:// or mqtts://, as in mqtt://host"),
        ({**MQTT, "send": "events", "when": "detect.crossed"}, "no stage writes the event 'detect.crossed'"),
        ({"stage": "webhook", "url": "https://h", "secret": 4711}, "out.secret must be text; put quotes around it"),
        ({"stage": "redis", "url": "redis://h/x"}, "url must end with the number of a database"),
        ({"stage": "sqlite", "path": "x.db", "table": "a b"}, "table must be letters, digits and underscores"),
        (
            {"stage": "postgres", "url": "postgres://h/x", "tls": {"ca": "x"}},
            "tls applies to verified connections only; add encryption: verify",
        ),
        (
            {"stage": "amqp", "url": "amqp://u:hunter2@h/a/b"},
            "url must end with one virtual host, as in amqp://host/vh",
        ),
        ({**MQTT, "discovery": "homeassistant"}, "discovery makes a sensor for each label; write labels, as in"),
        (
            {**MQTT, "discovery": "homeassistant", "send": "objects"},
            "discovery needs send: frames, to show object counts, or send: events",
        ),
        ({**MQTT, "discovery": "ha", "send": "events", "when": "x"}, "discovery makes an entity for each event"),
        ({**MQTT, "discovery": "ha", "labels": ["car"], "batch": 3}, "leave batch out with discovery, got 3"),
        ({**MQTT, "discovery": "ha", "labels": ["car"], "topic": "all"}, "with discovery each source has one topic"),
        ({**MQTT, "status": "a/#"}, "status must be a plain topic, without + # { }, got 'a/#'"),
        ({"stage": "amqp", "url": "amqp://u:hunter2@h", "tls": {"ca": "x"}}, "write amqps:// in the url"),
        ({"stage": "amqp", "url": "amqp://h", "exchange": "{sorce}"}, "exchange has an unknown variable {sorce}"),
        ({"stage": "nats", "url": "nats://u:hunter2@h", "tls": {"ca": "x"}}, "write tls:// in the url"),
        (
            {"stage": "nats", "url": "nats://h", "subject": "a.*"},
            "subject must be words joined by dots, without spaces",
        ),
        ({"stage": "nats", "url": "nats://h", "subject": "a..b"}, "subject must be words joined by dots"),
        ({"stage": "nats", "url": "nats://u:hunter2@h", "creds": "x"}, "leave the user out of url"),
        ({"stage": "nats", "url": "nats://h", "servers": ["u:hunter2@h:1"]}, "servers must be a list of host:port"),
    ],
)
def test_invalid_options_name_the_fix_and_show_no_secret(sink, message):
    text = problems(sink)
    assert message in text
    assert "hunter2" not in text
    assert "4711" not in text


@pytest.mark.parametrize(
    ("kind", "package"),
    [(kind, broker.modules[0]) for kind, broker in BROKERS.items() if broker.modules and broker.example],
)
def test_a_missing_package_is_reported_before_the_first_frame(kind, package, tmp_path, monkeypatch):
    import_module = builtins.__import__

    def import_others(name, *arguments, **options):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return import_module(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", import_others)
    with pytest.raises(MissingPackage, match=rf"pip install -e '.*\[{kind}\]'"):
        run({"stage": kind, "url": f"{BROKERS[kind].scheme}://h", "spool": {"path": str(tmp_path / "s")}})


def test_several_processes_share_an_emitter(tmp_path, root):
    (tmp_path / "p.yaml").write_text(
        "device: {use: cpu, processes: 2}\n"
        "sources: {a: 'test://?width=96&height=64&frames=20', b: 'test://?width=96&height=64&frames=20'}\n"
        "stages: {sqlite: {path: out.db}}\n"
    )
    subprocess.run([sys.executable, str(root / "run.py"), "p.yaml"], cwd=tmp_path, check=True, capture_output=True)
    table = rows(tmp_path / "out.db", "SELECT source, frame FROM frames ORDER BY rowid")
    for source in "ab":
        assert [row[1] for row in table if row[0] == source] == list(range(20))
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["sqlite"]
