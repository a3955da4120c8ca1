"""The examples that send elsewhere, each with the real broker or database that it is for."""

import json
import re
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
from support.brokers import place  # noqa: F401  a fixture
from support.brokers.mqtt import MosquittoServer
from support.example_runs import ROOT
from support.listener import Listener


@pytest.fixture
def example(tmp_path, here, monkeypatch):
    """Run an example in a folder of its own, with these words in its environment."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")

    def run(name, limit, **words):
        for variable, word in words.items():
            monkeypatch.setenv(variable, word)
        completed = here(ROOT / "examples" / name, "--device", "cpu", "--limit", limit, cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        assert "records are left" not in completed.stderr
        return completed

    return run


@pytest.fixture
def mosquitto():
    if (reason := MosquittoServer.missing()) is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="streamkit-mqtt-") as folder:
        Path(folder).chmod(0o755)  # it does not run as root
        server = MosquittoServer(Path(folder) / "broker")
        server.start()
        yield server
        server.kill()


def value(config, payload):
    """What Home Assistant makes of a payload, by the value template that it was given."""
    jinja2 = pytest.importorskip("jinja2")
    return jinja2.Environment().from_string(config["value_template"]).render(value_json=json.loads(payload))


def test_the_example_home_assistant_publishes_entities(example, mosquitto):
    before = Listener(mosquitto)
    before.listen(lambda: before.there, "it listens")
    user = f"streamkit:{quote(mosquitto.password, safe='')}"
    example("home_assistant.yaml", 120, MQTT=f"{user}@127.0.0.1:{mosquitto.port}")
    status_topics = ("streamkit/status", "streamkit/events/status")
    before.listen(
        lambda: {topic for topic, text in before.passed if text == "offline"} == set(status_topics), "it has gone"
    )
    for topic in status_topics:
        assert [text for name, text in before.passed if name == topic] == ["online", "offline"]

    later = Listener(mosquitto)  # Home Assistant, which starts afterwards
    later.listen(lambda: len(later.retained) >= 6, later.retained)
    configs = {topic: json.loads(text) for topic, text in later.retained.items() if topic.startswith("homeassistant/")}
    assert configs.keys() == {
        "homeassistant/sensor/streamkit_street/person/config",
        "homeassistant/sensor/streamkit_street/car/config",
        "homeassistant/event/streamkit_events_street/events/config",
    }
    assert len({config["unique_id"] for config in configs.values()}) == 3
    for topic, discovery in configs.items():
        assert re.fullmatch(r"homeassistant/(sensor|event)/[a-zA-Z0-9_-]+/[a-zA-Z0-9_-]+/config", topic)
        assert discovery["device"]["name"] == "street"
        assert discovery["device"]["identifiers"]
        assert discovery["origin"]["name"] == "streamkit"
        assert later.retained[discovery["availability"][0]["topic"]] == "offline"

    sent = [text for topic, text in before.passed if topic == "streamkit/street"]
    assert later.retained["streamkit/street"] == sent[-1], "the last numbers are kept"
    assert len(sent) > 2
    for label in ("person", "car"):
        config = configs[f"homeassistant/sensor/streamkit_street/{label}/config"]
        assert config["state_topic"] == "streamkit/street"
        assert (config["state_class"], config["expire_after"]) == ("measurement", 180)
        counted = [sum(detection["label"] == label for detection in json.loads(text)["objects"]) for text in sent]
        assert [int(value(config, text)) for text in sent] == counted
        assert max(counted) > 0

    config = configs["homeassistant/event/streamkit_events_street/events/config"]
    events = [text for topic, text in before.passed if topic == config["state_topic"]]
    assert len(events) >= 1
    for text in events:
        payload = json.loads(value(config, text))
        assert payload["event_type"] in config["event_types"] == ["crossing.crossed"]
        assert payload["data"]["direction"] in ("in", "out")
        assert payload["track_id"] == json.loads(text)["event"]["track_id"]
    for client in (before, later):
        client.close()


def as_grafana_asks(text, span):
    """The SQL with Grafana's macros filled in, as its data source for PostgreSQL does."""
    seconds = {"10s": 10, "1m": 60}
    text = re.sub(r"\$__timeFilter\(([^)]*)\)", rf"\1 BETWEEN '{span[0]}' AND '{span[1]}'", text)
    text = re.sub(
        r"\$__timeGroupAlias\(([^)]*),\s*'(\w+)'\)",
        lambda match: f'floor(extract(epoch from {match[1]})/{seconds[match[2]]})*{seconds[match[2]]} AS "time"',
        text,
    )
    assert "$__" not in text
    return text


def test_the_example_postgres_grafana_fills_its_tables(example, place):  # noqa: F811
    import psycopg

    there = place("postgres")
    password = quote(there.broker.password, safe="")
    example("postgres_grafana.yaml", 150, POSTGRES=f"streamkit:{password}@127.0.0.1:{there.broker.port}/postgres")
    dashboard = json.loads((ROOT / "examples" / "grafana_dashboard.json").read_text())
    assert dashboard["__inputs"][0]["name"] == "DS_POSTGRES"
    panel_rows = {}
    at = {"host": "127.0.0.1", "port": there.broker.port, "user": "streamkit", "password": there.broker.password}
    with psycopg.connect(**at, dbname="postgres") as connection:
        for panel in dashboard["panels"]:
            (target,) = panel["targets"]
            assert panel["datasource"]["uid"] == target["datasource"]["uid"] == "${DS_POSTGRES}"
            query = as_grafana_asks(target["rawSql"], ("1970-01-01T00:00:00Z", "1970-01-01T00:00:30Z"))
            cursor = connection.execute(query)
            panel_rows[panel["title"]] = [
                dict(zip([column.name for column in cursor.description], row, strict=True)) for row in cursor
            ]
            later = as_grafana_asks(target["rawSql"], ("2001-01-01T00:00:00Z", "2001-01-01T01:00:00Z"))
            assert connection.execute(later).fetchall() == [], "only what is asked for"
        rows = connection.execute("SELECT pts_s, label, track_id FROM objects").fetchall()
        events = connection.execute("SELECT record -> 'event', track_id FROM events ORDER BY pts_s DESC").fetchall()

    plotted = {(row["time"], row["metric"]): row["value"] for row in panel_rows["Objects in sight, by label"]}
    slots = {(pts_s // 10 * 10, f"street {label}") for pts_s, label, _ in rows}
    assert plotted.keys() == slots
    for (time_s, metric), count in plotted.items():
        seen = {track for pts_s, label, track in rows if pts_s // 10 * 10 == time_s and metric == f"street {label}"}
        assert count == len(seen - {None})
    assert [row["time"] for row in panel_rows["Objects in sight, by label"]] == sorted(time_s for time_s, _ in plotted)
    assert {row["label"]: row["tracks"] for row in panel_rows["Tracks, by label"]}.keys() == {
        label for _, label, _ in rows
    }
    crossings = panel_rows["Crossings a minute, by direction"]
    assert sum(row["value"] for row in crossings) == len(events) > 0
    assert {row["metric"] for row in crossings} == {f"street {event['data']['direction']}" for event, _ in events}
    last = panel_rows["Last events"]
    assert [row["track_id"] for row in last] == [track for _, track in events]
    assert {row["kind"] for row in last} == {"crossed"}
