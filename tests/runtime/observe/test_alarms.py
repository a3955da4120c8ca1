"""Alarms on the pipeline itself: looked at while no frame flows, told to emitters, log and report."""

import json
import logging
import math
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from emit.test_webhook import hook  # noqa: F401  a fixture
from support.cameras import HOLD, going, pipeline, registry, until
from support.clock import FakeClock
from support.messages import collect

from streamkit.config.alarms import Alarm, AlarmConfig, vocabulary
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_text
from streamkit.core.data import Event
from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.logs import ROOT
from streamkit.core.yaml_tree import YamlNode
from streamkit.rules.language import compile_rule
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule
from streamkit.runtime.observe.alarms import (
    WHOLE,
    Alarms,
    AlarmSubject,
    alarm_text,
    duration_text,
    recovery_text,
    value_text,
)
from streamkit.runtime.observe.health import HealthSnapshot, emitters
from streamkit.runtime.prepare import prepare


def alarm(when, name="a", **options):
    alarm_options = Alarm(when, **options)
    condition, for_s = compile_rule(when, vocabulary())
    rule = Rule(name, condition, None, for_s, alarm_options.clear, alarm_options.cooldown, alarm_options.schedule)
    return AlarmConfig(name, alarm_options, rule, YamlNode({}, "x", 1, 1))


class AlarmLog:
    """Alarms without a pipeline: what is looked at is given, and what is told is kept."""

    def __init__(self, *configs, addresses=None, wall_clock=time.time):
        self.events = []
        self.logged = collect()
        addresses = {"gate": "rtsp://u:p@h/x"} if addresses is None else addresses
        self.alarms = Alarms(configs, HealthSnapshot, [], addresses, self.logged.append, wall_clock=wall_clock)
        self.alarms.listen(lambda time_s, event: self.events.append(event))

    def at(self, now_s, sources=None, about=None, **whole):
        facts = HealthSnapshot(
            {id_: {"cause": "", **source_facts} for id_, source_facts in (sources or {}).items()}, whole, about or {}
        )
        before = len(self.events)
        self.alarms.step(facts, now_s)
        return [(event.kind, event.source, event.data["text"]) for event in self.events[before:]]


def test_an_alarm_is_raised_once_and_cleared_on_recovery():
    log = AlarmLog(alarm("down_s > 30", "camera_down", clear=10.0))
    assert log.at(0, {"gate": {"down_s": 0.0}}) == []
    assert log.at(30, {"gate": {"down_s": 29.5, "cause": "timeout"}}) == []
    assert log.at(31, {"gate": {"down_s": 31.2, "cause": "timeout"}}) == [
        ("raised", "gate", 'camera "gate" has been down for 31 s (timeout)')
    ]
    event = log.events[0]
    assert (event.stage, event.source) == ("alarms", "gate")
    assert event.data["alarm"] == "camera_down"
    assert (event.data["down_s"], event.data["cause"]) == (31.2, "timeout")
    (now,) = log.alarms.raised
    assert (now.alarm, now.source) == ("camera_down", "gate")
    assert now.text == 'camera "gate" has been down for 31 s (timeout)'
    assert log.at(44, {"gate": {"down_s": 44.2, "cause": "refused"}}) == []
    (later,) = log.alarms.raised
    assert later.text == 'camera "gate" has been down for 44 s (refused)'  # as it is now, not as it was when raised
    assert later.since_s == now.since_s
    assert log.events[0].data["text"] == 'camera "gate" has been down for 31 s (timeout)'
    assert log.at(45, {"gate": {"down_s": 0.0}}) == []
    assert log.alarms.raised == [later]  # nothing new is known of what is wrong
    assert log.at(55, {"gate": {"down_s": 0.0}}) == [("cleared", "gate", 'camera "gate" is back after 45 s')]
    assert log.events[1].data["lasted_s"] == 14
    assert log.alarms.raised == []
    assert log.alarms.report() == {"camera_down": {"raised": 1}}
    assert log.logged[0].startswith("alarm camera_down raised at ")


def test_unknown_facts_are_omitted_in_the_text():
    log = AlarmLog(alarm("fps_in < 5 or disk_used_share > 0.9", "trouble"), alarm("disk_used_share > 0.9", "other"))
    sources = {"gate": {"fps_in": math.nan}}
    assert log.at(0, sources, disk_used_share=0.95, about={"disk_used_share": "out"}) == [
        ("raised", "gate", "the disk of out is 95% full"),
        ("raised", WHOLE, "the disk of out is 95% full"),
    ]
    assert [kind for kind, *_ in log.at(1, {"gate": {"fps_in": 25.0}}, disk_used_share=0.5)] == []
    assert [kind for kind, *_ in log.at(30, {"gate": {"fps_in": 25.0}}, disk_used_share=0.5)] == ["cleared"] * 2
    assert "could not" not in "".join(log.logged)


def test_source_rules_are_checked_per_source_and_pipeline_rules_once():
    log = AlarmLog(alarm("drop_rate > 0.1 for 1min"), alarm("disk_free_gb < 5", "disk"))
    sources = {"gate": {"drop_rate": 0.5}, "yard": {"drop_rate": 0.01}, "hall": {"drop_rate": 0.2}}
    assert log.at(0, sources, disk_free_gb=3.21, about={"disk_free_gb": "out"}) == [
        ("raised", WHOLE, "3.2 GB are free on the disk of out")
    ]
    assert log.at(59, sources, disk_free_gb=3.0) == []
    assert log.at(60, sources, disk_free_gb=3.0) == [
        ("raised", "gate", '50% of the frames of camera "gate" are dropped'),
        ("raised", "hall", '20% of the frames of source "hall" are dropped'),
    ]
    sources = {name: {"drop_rate": 0.0} for name in sources}
    assert log.at(61, sources, disk_free_gb=3.0) == []
    assert log.at(120, sources, disk_free_gb=3.0)[0] == (
        "cleared",
        "gate",
        'a is over after 1 s: 0% of the frames of camera "gate" are dropped',
    )


def test_a_removed_source_drops_its_alarm_and_state():
    log = AlarmLog(alarm("down_s > 1"))
    for n in range(100):
        assert [kind for kind, *_ in log.at(n, {f"cam{n}": {"down_s": 2.0}})] == ["raised", "cleared"][: 1 + (n > 0)]
    assert log.events[-1].data["text"] == 'source "cam98" was removed'
    (watch,) = log.alarms._watches
    assert len(watch.rule) == len(watch.raised) == 1


def test_alarms_may_have_custom_texts_and_schedules():
    night = {"days": "mon-sun", "hours": ["00:00-00:01", "00:01-24:00"]}
    from pydantic import TypeAdapter

    text = "{source}: only {fps_in} ({alarm}, {latency_p95_s})"
    log = AlarmLog(
        alarm("fps_in < 5", "slow", text=text, schedule=TypeAdapter(Schedule).validate_python(night)),
        alarm("fps_in < 5", "never", schedule=Schedule(days=frozenset())),
    )
    assert log.at(0, {"gate": {"fps_in": 3.14159}}) == [("raised", "gate", "gate: only 3.14 (slow, ?)")]
    with pytest.raises(ValueError, match=r"text has an unknown variable \{sorce\}; did you mean 'source'"):
        Alarm("fps_in < 5", text="{sorce}")


def test_a_custom_text_shows_current_values():
    log = AlarmLog(alarm("disk_used_share > 0.9 for 5s", "full", text="{disk_used_share} of {source}", clear=1.0))
    log.at(0, disk_used_share=0.91)
    log.at(5, disk_used_share=0.92)
    assert [alarm_state.text for alarm_state in log.alarms.raised] == ["0.92 of pipeline"]
    log.at(6, disk_used_share=0.97)
    assert [alarm_state.text for alarm_state in log.alarms.raised] == ["0.97 of pipeline"]
    log.at(7, disk_used_share=0.5)
    assert [alarm_state.text for alarm_state in log.alarms.raised] == ["0.97 of pipeline"]
    log.at(9, disk_used_share=0.5)
    assert log.alarms.raised == []
    log.at(10, disk_used_share=0.99)
    assert log.alarms.raised == []  # not for five seconds yet


def test_the_end_of_a_run_raises_no_alarm():
    ending = [False]
    logged = collect()
    low = HealthSnapshot(pipeline={"total_fps": 0.0})
    alarms = Alarms([alarm("total_fps < 1")], lambda: low, [], {}, logged.append, lambda: ending[0])
    ending[0] = True
    alarms.evaluate()
    assert logged == []
    ending[0] = False
    alarms.evaluate()
    assert len(logged) == 1
    text = "sources: {gate: {stage: camera}}\nstages: {slow: {}}\nalarms: {low: total_fps < 1}"
    for stopped in (False, True):
        running, _ = pipeline(text)
        if stopped:
            running.stop()
        running.alarms.evaluate()
        assert running.alarms.events["raised"] == (0 if stopped else 1)


def test_a_failing_alarm_stops_no_other_and_a_full_spool_ends_the_run():
    logged = collect()
    failed = []
    calls = []

    def look():
        calls.append(1)
        raise [RuntimeError("no facts"), OutputError("the spool is full"), OSError()][len(calls) % 3 - 1]

    alarms = Alarms([alarm("fps_in < 5")], look, [], {}, failed.append)
    for _ in range(3):
        alarms.evaluate()
    assert [str(error) for error in failed] == ["the spool is full"]
    assert logged == [
        "the alarms could not be evaluated: RuntimeError: no facts",
        "the alarms could not be evaluated: OSError",
    ]


class Taking:
    """An emitter, as far as alarms see it."""

    def __init__(self, send="events", full=False):
        self.send = send
        self.full = full
        self.frames = []

    def enqueue(self, frame):
        if self.full:
            raise OutputError("the spool is full")
        self.frames.append(frame)


def test_alarms_go_to_the_emitters_of_events_that_they_name(monkeypatch):
    takers = {"table": Taking(), "hook": Taking(), "frames": Taking("frames")}
    low = HealthSnapshot(pipeline={"total_fps": 0.0})
    configs = [alarm("total_fps < 1", "all"), alarm("total_fps < 2", "named", to=("hook",))]
    logged = collect()
    monkeypatch.setattr("streamkit.runtime.observe.alarms.emitters", lambda runners: list(takers.items()))
    alarms = Alarms(configs, lambda: low, [], {}, logged.append, wall_clock=lambda: 1785585600.25)
    alarms.step(low, 0.0)
    alarm_names = {id_: [frame.events[0].data["alarm"] for frame in taker.frames] for id_, taker in takers.items()}
    assert alarm_names == {"table": ["all"], "hook": ["all", "named"], "frames": []}
    (frame,) = takers["table"].frames
    assert (frame.source, frame.time_s, frame.index, frame.pts_s) == (WHOLE, 1785585600.25, 0, 0.0)
    assert [(event.kind, event.stage, event.source) for event in frame.events] == [("raised", "alarms", WHOLE)]
    assert (len(logged), alarms.events["raised"]) == (2, 2)


def test_an_alarm_for_a_full_spool_ends_the_run(monkeypatch):
    failed = []
    logged = collect()
    low = HealthSnapshot(pipeline={"total_fps": 0.0})
    full = [("table", Taking(full=True))]
    monkeypatch.setattr("streamkit.runtime.observe.alarms.emitters", lambda runners: full)
    alarms = Alarms([alarm("total_fps < 1")], lambda: low, [], {}, failed.append)
    alarms.evaluate()
    assert [str(error) for error in failed] == ["the spool is full"]
    assert [text.split(" at ")[0] for text in logged] == ["alarm a raised"]


def test_raised_alarms_are_listed_oldest_first():
    clock = FakeClock(100.0)
    log = AlarmLog(alarm("total_fps < 1", "later"), alarm("total_fps < 9", "first"), wall_clock=clock)
    log.at(0, total_fps=5.0)
    clock.now_s = 200.0
    log.at(1, total_fps=0.5)
    assert [(alarm_state.alarm, alarm_state.since_s) for alarm_state in log.alarms.raised] == [
        ("first", 100.0),
        ("later", 200.0),
    ]
    assert log.alarms.report() == {"later": {"raised": 1, "now": [WHOLE]}, "first": {"raised": 1, "now": [WHOLE]}}


PIPELINE = """
sources: {{gate: {{stage: camera, {source}}}}}
stages:
  {stages}
  table: {{stage: sqlite, path: "{folder}/x.db", send: events, spool: {{path: "{folder}/spool"}}}}
  frames: {{stage: sqlite, path: "{folder}/y.db", spool: {{path: "{folder}/spool2"}}}}
alarms: {alarms}
"""


def rows(path: Path) -> list[dict]:
    if not path.exists():
        return []
    with sqlite3.connect(path) as connection:
        try:
            records = connection.execute(
                "SELECT source, frame, stage, kind, record FROM events ORDER BY rowid"
            ).fetchall()
        except sqlite3.OperationalError:
            return []
    connection.close()
    return [{**json.loads(row[4]), "row": row[:4]} for row in records]


def test_an_alarm_is_sent_without_any_frame(tmp_path, hook):  # noqa: F811
    stages = f"hook: {{stage: webhook, url: '{hook.url}', send: events, spool: {{path: {tmp_path}/spool3}}}}"
    text = PIPELINE.format(
        source="hangs: true",
        stages=stages,
        folder=tmp_path,
        alarms="{quiet: {when: quiet_s > 0.1, to: [table, hook]}}",
    )
    HOLD.clear()
    running, logged = pipeline(text)
    with going(running):
        until(lambda: rows(tmp_path / "x.db") and hook.received)
        assert running.alarms.raised[0].alarm == "quiet"
        HOLD.set()
    (record,) = rows(tmp_path / "x.db")
    assert record["row"] == ("gate", 0, "alarms", "raised")
    assert record["event"]["data"]["text"].startswith('source "gate" has given no frame for ')
    assert record.keys() == {"id", "schema", "source", "frame", "pts_s", "time", "width", "height", "event", "row"}
    report = running.report(0)
    assert report["alarms"] == {"quiet": {"raised": 1, "now": ["gate"]}}
    assert report["events"] == {"raised": 1}
    assert any(text.startswith("alarm quiet raised at 2") for text in logged)
    assert report["counts"]["records sent"] == 2, "an emitter of frames gets no events"
    (posted,) = json.loads(hook.received[0][1])
    assert (posted["source"], posted["event"]) == ("gate", record["event"])


def test_an_undelivered_spool_raises_an_alarm_and_a_buffering_one_does_not(tmp_path):
    stages = (
        f"away: {{stage: mqtt, url: 'mqtt://127.0.0.1:9', drain_timeout: 100ms, spool: {{path: {tmp_path}/away}}}}\n"
        f"  rolls: {{stage: parquet, path: {tmp_path}/rows, spool: {{path: {tmp_path}/rolls}}}}"
    )
    text = PIPELINE.format(
        source="rate: 50",
        stages=stages,
        folder=tmp_path,
        alarms="{stuck: {when: undelivered_s > 0.5}, fills: {when: spool_records > 20}}",
    )
    running, _ = pipeline(text)
    with going(running):
        until(lambda: len(rows(tmp_path / "x.db")) == 2)
        texts = {row["event"]["data"]["alarm"]: row["event"]["data"]["text"] for row in rows(tmp_path / "x.db")}
        emitters_by_stage = dict(emitters(running._runners))
        assert (emitters_by_stage["rolls"].queue.acknowledged, emitters_by_stage["away"].sender.delivered) == (0, 0)
        rolls = emitters_by_stage["rolls"]
        until(lambda: rolls.sender.undelivered < 20 < rolls.queue.waiting)
        time.sleep(0.6)
        before_s = running._observer.snapshot().pipeline["undelivered_s"]
        undelivered = emitters_by_stage["away"].queue
        undelivered.take(1000)
        undelivered.acknowledge(undelivered.waiting)  # as if the broker had accepted all
        assert running._observer.snapshot().pipeline["undelivered_s"] < before_s
    assert set(texts) == {"stuck", "fills"}
    assert "away" in texts["stuck"]


def test_a_hanging_stage_raises_an_alarm_while_it_hangs(tmp_path):
    text = PIPELINE.format(
        source="rate: 50", stages="slow: {hangs: true}", folder=tmp_path, alarms="{hangs: stage_call_s > 0.2}"
    )
    HOLD.clear()
    running, _ = pipeline(text)
    with going(running):
        until(lambda: rows(tmp_path / "x.db"))
        HOLD.set()
    assert rows(tmp_path / "x.db")[0]["row"] == ("pipeline", 0, "alarms", "raised")
    assert rows(tmp_path / "x.db")[0]["event"]["data"]["text"].startswith("stage slow has been in one call for ")


def test_an_alarm_does_not_wait_for_a_blocking_spool(tmp_path):
    from streamkit.emit.segment_file import SpoolRecord
    from streamkit.emit.spool import FULL, Spool

    spool = Spool(tmp_path / "s", size=2000, when_full="block")
    spool.append([SpoolRecord(b"", b"", b"x" * 1500)])
    done = threading.Thread(target=lambda: spool.append([SpoolRecord(b"", b"", b"y" * 1000)], wait=False), daemon=True)
    done.start()
    done.join(20)
    assert not done.is_alive()
    assert spool._counters[FULL] == 1
    spool.close()
    spool.append([SpoolRecord(b"", b"", b"late")], wait=False)
    assert Spool(tmp_path / "s").waiting == 1


@pytest.mark.parametrize(
    ("when", "send", "message"),
    [
        (
            "down_s > 30",
            "frames",
            "alarms.a.to: table has send: frames, and alarms are events; write send: events there",
        ),
        ("downs > 30", "events", "alarms know no name 'downs'; did you mean 'down_s'?"),
        ("state > 30", "events", "<, <=, > and >= want numbers, and state is a text"),
        ("cause == 'timout'", "events", "cause is never 'timout'; did you mean 'timeout'?"),
        ("1 < 2", "events", "alarms.a.when names no fact; streamkit explain alarms lists them"),
    ],
)
def test_invalid_alarms_are_reported_with_their_position(when, send, message):
    text = (
        "sources: {gate: {stage: camera}}\n"
        f"stages: {{table: {{stage: sqlite, path: x.db, send: {send}}}}}\n"
        f'alarms: {{a: {{when: "{when}", to: table}}}}\n'
    )
    with pytest.raises(ConfigError) as caught:
        build(read_text(text, registry=registry()))
    (problem,) = caught.value.problems
    assert message in problem.text
    assert (problem.line, problem.column >= 13) == (3, True)


def test_the_condition_of_an_emitter_must_allow_alarms():
    def problems(when, to="table"):
        text = (
            "sources: {gate: {stage: camera}}\n"
            f"stages: {{table: {{stage: sqlite, path: x.db, send: events, when: {when}}}}}\n"
            f"alarms: {{a: {{when: down_s > 1, to: {to}}}}}\n"
        )
        try:
            build(read_text(text, registry=registry()))
        except ConfigError as error:
            return str(error)
        return ""

    assert problems("alarms") == problems("alarms.raised") == ""
    assert "no stage writes the event 'alarms.raisd'; did you mean 'alarms.raised'?" in problems("alarms.raisd")
    assert "takes no alarms; add alarms to its when, or leave its when out" in problems("slow.x")
    assert "must name emitters, got 'tabel': there is none; did you mean 'table'?" in problems("alarms", "tabel")


def test_several_processes_share_their_alarms(tmp_path):
    (tmp_path / "p.yaml").write_text(
        "device: {use: cpu, processes: 2}\n"
        "sources:\n"
        "  a: {uri: 'test://?width=96&height=64', pace: 20}\n"
        "  b: {uri: 'test://?width=96&height=64', pace: 20}\n"
        f"stages: {{sqlite: {{path: {tmp_path}/x.db, send: events, spool: {{path: {tmp_path}/s}}}}}}\n"
        "alarms: {flows: fps_in > 1, both: sources == 2 and total_fps > 1, gone: down_s > 1}\n"
    )
    fleet = prepare(build(read(tmp_path / "p.yaml")), tmp_path / "p.yaml", {})
    thread = threading.Thread(target=fleet.run, daemon=True)
    thread.start()
    try:
        until(
            lambda: (
                {(alarm_state.alarm, alarm_state.source) for alarm_state in fleet.alarms.raised}
                == {("flows", "a"), ("flows", "b"), ("both", WHOLE)}
            )
        )
        fleet.sources.owner("b").child.kill()
        until(lambda: fleet.health().sources["b"]["state"] == "failed")  # before it restarts
        until(lambda: fleet.restarted == 1)
        until(lambda: fleet.health().sources.get("b", {}).get("state") == "running")
        assert fleet.health().pipeline["sources"] == 2
    finally:
        fleet.stop()
        thread.join(60)
    assert not thread.is_alive()
    records = rows(tmp_path / "x.db")
    assert sorted(row["row"][0] for row in records if row["row"][3] == "raised")[:3] == ["a", "b", "pipeline"]
    assert [row["row"][0] for row in records if row["row"][3] == "restarted"] == ["b"]
    assert "gone" in fleet.report(0)["alarms"]
    assert fleet.report(0)["events"]["restarted"] == 1
    assert "alarms" not in fleet.report(0)["devices"][0]


@pytest.mark.alone
def test_five_hundred_sources_and_ten_rules_cost_little():
    sources = {f"cam{n}": {"down_s": 0.0, "drop_rate": 0.01, "latency_p95_s": 0.3, "fps_in": 25.0} for n in range(500)}
    rules = ["down_s > 30", "drop_rate > 0.1 for 1min", "latency_p95_s > 2 and fps_in > 1", "fps_in < 5 or down_s > 9"]
    log = AlarmLog(*(alarm(rule, f"a{n}") for n, rule in enumerate(rules * 3)))
    log.at(0, sources)
    start_s = time.process_time()
    log.at(1, sources)
    assert time.process_time() - start_s < 0.5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (math.nan, "an unknown time"),
        (0.4, "0 s"),
        (99.0, "99 s"),
        (100.0, "2 min"),
        (99 * 60, "99 min"),
        (100 * 60, "1 h 40 min"),
        (2 * 3600, "2 h"),
        (47 * 3600 + 60, "47 h 1 min"),
        (48 * 3600 + 1800, "2 d"),
        (49 * 3600, "2 d 1 h"),
    ],
)
def test_durations_are_rounded_in_messages(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [("away", "away"), (99.96, "100"), (-120.4, "-120"), (3.14159, "3.14"), (100, "100")]
)
def test_values_are_formatted_in_messages(value, text):
    assert value_text(value) == text


GATE = AlarmSubject("gate", "camera", {"disk_free_gb": "out", "spool_records": "hook"})


class ObservedAlarms:
    """Alarms without a pipeline, at a time of day that is set, and what they tell."""

    def __init__(self, *configs, **addresses):
        self.now_s = 5000.0
        self.published = []
        self.logged = collect()
        self.alarms = Alarms(configs, HealthSnapshot, [], addresses, self.logged.append, wall_clock=lambda: self.now_s)
        self.alarms.listen(lambda time_s, event: self.published.append((time_s, event)))

    def at(self, now_s, snapshot):
        before = len(self.published)
        self.now_s = 5000.0 + now_s
        self.alarms.step(snapshot, now_s)
        return [(event.kind, event.source, event.data["text"]) for _, event in self.published[before:]]


def snapshot_of(sources=None, about=None, last_frames=None, **whole):
    return HealthSnapshot(sources or {}, whole, about or {}, last_frames or {})


def test_an_alarm_event_has_the_last_frame_and_values_with_four_decimals():
    config = alarm("drop_rate > 0.1 or total_fps < 1", "slow", clear=0.0)
    seen = ObservedAlarms(config, gate="rtsp://h/x")
    source_facts = {"drop_rate": 0.123456, "cause": "lost", "quiet_s": 3.0, "fail_rate": 0.5}
    seen.at(0, snapshot_of({"gate": source_facts}, last_frames={"gate": (7, 0.28, 64, 48)}, total_fps=12.34567))
    text = '12% of the frames of camera "gate" are dropped'
    data = {"alarm": "slow", "text": text, "drop_rate": 0.1235, "total_fps": 12.3457, "cause": "lost"}
    assert seen.published == [(5000.0, Event("raised", "alarms", "gate", 7, 0.28, data=data))]
    seen.at(3.25, snapshot_of({"gate": {"drop_rate": math.nan, "cause": ""}}, total_fps=25.0))
    seen.at(7.5, snapshot_of({"gate": {"drop_rate": 0.0, "cause": ""}}, total_fps=25.0))
    text = "slow is over after 3 s: 25.0 frames per second reach the end of the pipeline"
    data = {"alarm": "slow", "text": text, "total_fps": 25.0, "cause": "", "lasted_s": 3.2}
    assert seen.published[1:] == [(5003.25, Event("cleared", "alarms", "gate", 0, 0.0, data=data))]
    assert seen.alarms.events == {"raised": 1, "cleared": 1}


def test_a_raised_alarm_is_a_warning_and_a_cleared_one_is_not():
    levels = []
    handler = logging.Handler()
    handler.emit = lambda record: levels.append((record.levelname, record.getMessage().split(" at ")[0]))
    logging.getLogger(ROOT).addHandler(handler)
    try:
        seen = ObservedAlarms(alarm("total_fps < 1", clear=0.0))
        seen.at(0, snapshot_of(total_fps=0.0))
        seen.at(1, snapshot_of(total_fps=5.0))
    finally:
        logging.getLogger(ROOT).removeHandler(handler)
    assert levels == [("WARNING", "alarm a raised"), ("INFO", "alarm a cleared")]


def test_rules_and_reports_count_each_time_that_an_alarm_is_raised():
    seen = ObservedAlarms(alarm("down_s > 1", clear=0.0), alarm("total_fps < 1", "b"))
    assert seen.alarms.rules() == {"a": ("down_s > 1", 0), "b": ("total_fps < 1", 0)}
    for second, down_s in enumerate((2.0, 0.0, 3.0)):
        seen.at(second, snapshot_of({"x": {"down_s": down_s}, "y": {"down_s": 0.0}}, total_fps=5.0))
    assert seen.alarms.rules() == {"a": ("down_s > 1", 2), "b": ("total_fps < 1", 0)}
    assert seen.alarms.report() == {"a": {"raised": 2, "now": ["x"]}, "b": {"raised": 0}}
    seen.alarms.disable()
    assert seen.at(9, snapshot_of({"x": {"down_s": 0.0}}, total_fps=0.0)) == []
    assert (seen.alarms.report(), seen.alarms.rules(), seen.alarms.raised) == ({}, {}, [])


def test_source_facts_take_precedence_over_pipeline_facts_in_a_rule():
    seen = ObservedAlarms(alarm("fps_in < 5 and total_fps > 1"))
    sources = {"x": {"fps_in": 2.0}, "y": {"fps_in": 9.0}, "z": {"fps_in": 1.0, "total_fps": 0.0}}
    events = seen.at(0, snapshot_of(sources, total_fps=9.0))
    assert events == [("raised", "x", 'source "x" delivers 2.0 frames per second')]


@pytest.mark.parametrize(
    ("names", "values", "text"),
    [
        (["down_s"], {"down_s": 31.4, "cause": "auth"}, 'camera "gate" has been down for 31 s (auth)'),
        (["down_s"], {"down_s": 31.4, "cause": ""}, 'camera "gate" has been down for 31 s'),
        (["quiet_s"], {}, 'camera "gate" has given no frame for 0 s'),
        (["fps_in", "down_s"], {"fps_in": math.nan, "down_s": 150.0}, 'camera "gate" has been down for 2 min'),
        (["fps_in", "down_s"], {"fps_in": math.nan}, 'camera "gate" delivers nan frames per second'),
        (["fps_in", "down_s"], {"down_s": 150.0}, 'camera "gate" has been down for 2 min'),
        (["state"], {"state": "failed"}, 'camera "gate" is failed'),
        (["cause"], {"cause": "auth", "state": "failed"}, 'camera "gate" is failed (auth)'),
        (["cause"], {"cause": "auth"}, 'camera "gate" is away (auth)'),
        (["sources_down"], {"sources_down": 2.0, "sources": 7}, "2 of 7 sources are down"),
        (["sources_down"], {"sources_down": 2}, "2 of 0 sources are down"),
        (["disk_free_gb"], {"disk_free_gb": 4.04}, "4.0 GB are free on the disk of out"),
        (["disk_used_share"], {"disk_used_share": 0.5}, "the disk of nothing is 50% full"),
        (["spool_records"], {"spool_records": 12345.0}, "12,345 records wait in the spool of hook"),
        (["uptime_s"], {"uptime_s": 7200.0}, "the pipeline has run for 2 h"),
    ],
)
def test_facts_are_described_in_messages(names, values, text):
    assert alarm_text(names, values, GATE) == text


def test_recoveries_are_described_in_messages():
    def recovery(names, before, now):
        return recovery_text(names, before, now, 14.0, GATE)

    assert recovery(["quiet_s", "x"], {"quiet_s": 100.0}, {"quiet_s": 0.0}) == 'camera "gate" is back after 2 min'
    assert recovery(["down_s"], {"down_s": 31.0}, {}) == 'camera "gate" is back after 45 s'
    assert recovery(["down_s"], {"down_s": 31.0}, {"down_s": 30.5}) == 'camera "gate" is back after 45 s'
    assert recovery(["down_s"], {"down_s": 31.0}, {"down_s": 31.0}) is None
    assert recovery(["down_s"], {}, {"down_s": 0.0}) is None
    assert recovery(["down_s"], {}, {}) is None
    assert recovery(["fps_in", "down_s"], {"down_s": 31.0}, {"down_s": 0.0}) is None
    assert recovery([], {"down_s": 31.0}, {"down_s": 0.0}) is None
