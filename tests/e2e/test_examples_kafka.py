"""The example that sends Avro to Kafka, and what a consumer with the checked-in schemas reads of it."""

import io
import json
import os
import subprocess
import sys

import fastavro
import pytest
from emit.test_emitter import run
from support.broker_servers import free_port
from support.brokers.kafka import KafkaServer
from support.decoding import decoder
from support.example_runs import ROOT, SCHEMA

from streamkit.io.formats import avro

TEN = {"stage": "ten_objects"}


def consumed(port, topics, count):
    """The first `count` messages of some topics: topic, value and headers."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "all",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "allow.auto.create.topics": True,
        }
    )
    partitions = [
        (topic, n) for topic in topics for n in consumer.list_topics(topic, timeout=10).topics[topic].partitions
    ]
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for topic, number in partitions])
    messages_read = []
    while len(messages_read) < count and (messages := consumer.consume(count - len(messages_read), 20)):
        messages_read += [
            (message.topic(), message.value(), dict(message.headers()))
            for message in messages
            if message.error() is None
        ]
    consumer.close()
    return messages_read


def read(value, send):
    """As a consumer reads single-object encoding who has the .avsc."""
    schema = fastavro.schema.load_schema(str(ROOT / "docs" / "schema" / f"streamkit-1.{send}.avsc"))
    assert value[:10] == avro.single_object_prefix(send)
    return fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, None)


@pytest.fixture
def broker(tmp_path, monkeypatch):
    if (reason := KafkaServer.missing()) is not None:
        pytest.skip(reason)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    server = KafkaServer(tmp_path / "broker")
    server.start()
    yield server
    server.kill()


def test_the_example_kafka_avro_sends_records(broker, tmp_path):
    completed = subprocess.run(
        [
            sys.executable,
            ROOT / "run.py",
            "run",
            ROOT / "examples" / "kafka_avro.yaml",
            "--device",
            "cpu",
            "--limit",
            "30",
            "--report",
            "report.json",
        ],
        env={**os.environ, "KAFKA": f"127.0.0.1:{broker.port}"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    sent = json.loads((tmp_path / "report.json").read_text())["counts"]["records sent"]
    messages_read = consumed(broker.port, ["streamkit.objects", "streamkit.events"], sent)
    assert len(messages_read) == sent
    objects = [(value, headers) for topic, value, headers in messages_read if topic == "streamkit.objects"]
    events = [value for topic, value, _ in messages_read if topic == "streamkit.events"]
    assert len(objects) > 20
    for value, headers in objects:
        record = read(value, "objects")
        assert headers["id"].decode() == record["id"]
        assert record["object"]["label"] in ("car", "person")
        assert 0 <= record["object"]["box"]["x1"] <= record["object"]["box"]["x2"] <= record["width"] == 640
        assert record["extra"] is record["object"]["extra"] is None, "all that it says has a field"
        assert [error.message for error in SCHEMA.iter_errors(decoder("avro", "objects")(value[10:]))] == []
    assert events
    for value in events:
        event = read(value, "events")["event"]
        assert (event["kind"], event["stage"]) == ("crossed", "road")
        assert json.loads(event["data"])["direction"] in ("in", "out")


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json"])
def test_each_record_begins_with_the_id_of_its_schema(format_, broker, tmp_path):
    options = {"url": f"kafka://127.0.0.1:{broker.port}", "format": format_, "schema_id": 42}
    code, counts, _ = run({"stage": "kafka", **options, "spool": {"path": str(tmp_path / "s")}}, count=3)
    assert (code, counts["records sent"]) == (0, 6)
    index = b"\0" if format_ == "protobuf" else b""
    decode = json.loads if format_ == "json" else decoder(format_, "frames")
    for _, value, headers in consumed(broker.port, ["streamkit"], 6):
        assert value.startswith(b"\0\0\0\0\x2a" + index)
        record = decode(value[5 + len(index) :])
        assert record["id"] == headers["id"].decode()
        assert record["source"] in ("gate", "yard")
        assert [error.message for error in SCHEMA.iter_errors(record)] == []


def test_spooled_records_of_another_format_are_dropped_and_reported(broker, tmp_path):
    there = {"stage": "kafka", "url": f"kafka://127.0.0.1:{broker.port}", "spool": {"path": str(tmp_path / "s")}}
    away = {**there, "url": f"kafka://127.0.0.1:{free_port()}", "drain_timeout": 0.1, "timeout": 0.1}
    run(away, count=2, sources=("gate",))
    code, counts, logged = run({**there, "send": "objects", "format": "avro"}, count=2, sources=("yard",), above=TEN)
    assert code == 1
    assert counts["records given up: refused by the broker"] == 2
    assert counts["records sent"] == len(consumed(broker.port, ["streamkit"], 20)) == 20
    (error_line,) = {text for text in logged if "refuses" in text}
    assert "it cannot be converted to the format: ObjectRecord must have object" in error_line
