"""What each alarm says and to whom, word by word: at times that the tests set."""

import logging
import math
import threading
from types import SimpleNamespace

import pytest
from support.messages import collect

from streamkit.config.alarms import Alarm, AlarmConfig, vocabulary
from streamkit.core.data import Event
from streamkit.core.logs import ROOT
from streamkit.core.yaml_tree import YamlNode
from streamkit.rules.language import compile_rule
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule
from streamkit.runtime.observe import alarms as module
from streamkit.runtime.observe.alarms import (
    EVERY_S,
    WHOLE,
    Alarms,
    AlarmSubject,
    alarm_text,
    duration_text,
    recovery_text,
    value_text,
)
from streamkit.runtime.observe.health import HealthSnapshot

GATE = AlarmSubject("gate", "camera", {"disk_free_gb": "out", "spool_records": "hook"})


def alarm(when, name="a", **options):
    alarm_options = Alarm(when, **options)
    condition, for_s = compile_rule(when, vocabulary())
    rule = Rule(name, condition, None, for_s, alarm_options.clear, alarm_options.cooldown, alarm_options.schedule)
    return AlarmConfig(name, alarm_options, rule, YamlNode({}, "x", 1, 1))


class Seen:
    """Alarms without a pipeline, at a time of day that is set, and what they tell."""

    def __init__(self, monkeypatch, *configs, **addresses):
        self.now_s, self.published, self.logged = 5000.0, [], collect()
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: self.now_s, monotonic=lambda: 0.0))
        self.alarms = Alarms(configs, HealthSnapshot, [], addresses, self.logged.append)
        self.alarms.listen(lambda time_s, event: self.published.append((time_s, event)))

    def at(self, now_s, facts):
        before = len(self.published)
        self.now_s = 5000.0 + now_s
        self.alarms.step(facts, now_s)
        return [(event.kind, event.source, event.data["text"]) for _, event in self.published[before:]]


def facts(sources=None, about=None, last_frames=None, **whole):
    return HealthSnapshot(sources or {}, whole, about or {}, last_frames or {})


def test_an_event_has_the_place_of_the_last_frame_and_four_decimals(monkeypatch):
    config = alarm("drop_rate > 0.1 or total_fps < 1", "slow", clear=0.0)
    seen = Seen(monkeypatch, config, gate="rtsp://h/x")
    source_facts = {"drop_rate": 0.123456, "cause": "lost", "quiet_s": 3.0, "fail_rate": 0.5}
    seen.at(0, facts({"gate": source_facts}, last_frames={"gate": (7, 0.28, 64, 48)}, total_fps=12.34567))
    text = '12% of the frames of camera "gate" are dropped'
    data = {"alarm": "slow", "text": text, "drop_rate": 0.1235, "total_fps": 12.3457, "cause": "lost"}
    assert seen.published == [(5000.0, Event("raised", "alarms", "gate", 7, 0.28, data=data))]
    seen.at(3.25, facts({"gate": {"drop_rate": math.nan, "cause": ""}}, total_fps=25.0))
    seen.at(7.5, facts({"gate": {"drop_rate": 0.0, "cause": ""}}, total_fps=25.0))
    text = "slow is over after 3 s: 25.0 frames per second reach the end of the pipeline"
    data = {"alarm": "slow", "text": text, "total_fps": 25.0, "cause": "", "lasted_s": 3.2}
    assert seen.published[1:] == [(5003.25, Event("cleared", "alarms", "gate", 0, 0.0, data=data))]
    assert seen.alarms.events == {"raised": 1, "cleared": 1}


def test_the_frame_that_emitters_get(monkeypatch):
    frames = []
    taker = SimpleNamespace(send="events", enqueue=frames.append)
    monkeypatch.setattr(module, "emitters", lambda runners: [("hook", taker)])
    seen = Seen(monkeypatch, alarm("down_s > 1"))
    seen.at(2, facts({"gate": {"down_s": 2.0}}, last_frames={"gate": (7, 0.28, 64, 48)}))
    (frame,) = frames
    assert (frame.source, frame.index, frame.pts_s, frame.width, frame.height) == ("gate", 7, 0.28, 64, 48)
    assert (frame.time_s, frame.surface, frame.events) == (5002.0, None, [seen.published[0][1]])


def test_emitters_that_are_not_named_or_take_frames_get_nothing(monkeypatch):
    got = []
    takers = [
        (id_, SimpleNamespace(send=send, enqueue=lambda frame, id_=id_: got.append(id_)))
        for id_, send in (("frames", "frames"), ("a", "events"), ("b", "events"), ("c", "events"))
    ]
    monkeypatch.setattr(module, "emitters", lambda runners: takers)
    low = facts(total_fps=0.0)
    for to, wanted in ((None, "abc"), ("b", "b"), (["c", "a"], "ac"), (["frames"], "")):
        got.clear()
        Seen(monkeypatch, alarm("total_fps < 1", to=to)).at(0, low)
        assert got == list(wanted)


def test_a_raised_alarm_is_a_warning_and_a_cleared_one_is_not(monkeypatch):
    levels = []
    handler = logging.Handler()
    handler.emit = lambda record: levels.append((record.levelname, record.getMessage().split(" at ")[0]))
    logging.getLogger(ROOT).addHandler(handler)
    try:
        seen = Seen(monkeypatch, alarm("total_fps < 1", clear=0.0))
        seen.at(0, facts(total_fps=0.0))
        seen.at(1, facts(total_fps=5.0))
    finally:
        logging.getLogger(ROOT).removeHandler(handler)
    assert levels == [("WARNING", "alarm a raised"), ("INFO", "alarm a cleared")]


def test_rules_and_reports_count_each_time_that_an_alarm_is_raised(monkeypatch):
    seen = Seen(monkeypatch, alarm("down_s > 1", clear=0.0), alarm("total_fps < 1", "b"))
    assert seen.alarms.rules() == {"a": ("down_s > 1", 0), "b": ("total_fps < 1", 0)}
    for second, down_s in enumerate((2.0, 0.0, 3.0)):
        seen.at(second, facts({"x": {"down_s": down_s}, "y": {"down_s": 0.0}}, total_fps=5.0))
    assert seen.alarms.rules() == {"a": ("down_s > 1", 2), "b": ("total_fps < 1", 0)}
    assert seen.alarms.report() == {"a": {"raised": 2, "now": ["x"]}, "b": {"raised": 0}}
    seen.alarms.disable()
    assert seen.at(9, facts({"x": {"down_s": 0.0}}, total_fps=0.0)) == []
    assert (seen.alarms.report(), seen.alarms.rules(), seen.alarms.raised) == ({}, {}, [])


def test_a_rule_of_sources_may_name_facts_of_the_pipeline_and_those_of_the_source_come_first(monkeypatch):
    seen = Seen(monkeypatch, alarm("fps_in < 5 and total_fps > 1"))
    events = seen.at(0, facts({"x": {"fps_in": 2.0}, "y": {"fps_in": 9.0}, "z": {"fps_in": 1.0, "total_fps": 0.0}},
                             total_fps=9.0))  # fmt: skip
    assert events == [("raised", "x", 'source "x" delivers 2.0 frames per second')]


def test_an_alarm_that_cannot_be_told_does_not_keep_others_from_it(monkeypatch):
    seen = Seen(monkeypatch, alarm("down_s > 1"), alarm("total_fps < 1", "b"))
    broken = seen.alarms._publish

    def publish(config, key, *rest):
        if key == "x":
            raise ValueError("no such words")
        broken(config, key, *rest)

    monkeypatch.setattr(seen.alarms, "_publish", publish)
    events = seen.at(0, facts({"x": {"down_s": 2.0}, "y": {"down_s": 2.0}}, total_fps=0.0))
    assert [(kind, source) for kind, source, _ in events] == [("raised", "y"), ("raised", WHOLE)]
    assert seen.logged[0] == "alarm a could not be reported: ValueError: no such words"


def test_an_alarm_ends_with_its_source_also_where_others_stay(monkeypatch):
    seen = Seen(monkeypatch, alarm("down_s > 1"), x="rtsp://h/x", y="y.mp4")
    down = {"down_s": 2.0}
    seen.at(0, facts({"x": down, "y": down, "z": down}))
    assert sorted(seen.at(1, facts({"z": down}))) == [
        ("cleared", "x", 'camera "x" was removed'),
        ("cleared", "y", 'source "y" was removed'),
    ]
    assert [alarm_state.source for alarm_state in seen.alarms.raised] == ["z"]
    assert [list(event.data) for _, event in seen.published if event.kind == "cleared"] == [["alarm", "text"]] * 2


def test_an_alarm_that_its_schedule_ends_says_what_is_so(monkeypatch):
    """Without the hours it is raised for, the source is still away."""
    seen = Seen(monkeypatch, alarm("down_s > 1", clear=0.0, schedule=Schedule()))
    seen.at(0, facts({"x": {"down_s": 2.0}}))
    monkeypatch.setattr(Schedule, "open", lambda self, clock: False)
    assert seen.at(60, facts({"x": {"down_s": 62.0}})) == [
        ("cleared", "x", 'a is over after 60 s: source "x" has been down for 62 s')
    ]


def test_a_text_of_ones_own_is_also_that_of_the_end(monkeypatch):
    seen = Seen(monkeypatch, alarm("down_s > 1", clear=0.0, text="{source} is away"))
    assert seen.at(0, facts({"x": {"down_s": 2.0}})) == [("raised", "x", "x is away")]
    assert seen.at(5, facts({"x": {"down_s": 0.0}})) == [
        ("cleared", "x", 'a is over after 5 s: source "x" has been down for 0 s')
    ]


def test_without_alarms_no_thread_looks(monkeypatch):
    ticking, names = threading.Event(), []
    monkeypatch.setattr(module, "EVERY_S", 0.001)
    for configs in ([], [alarm("total_fps < 1")]):
        alarms = Alarms(configs, lambda: ticking.set() or facts(total_fps=5.0), [], {}, names.append)
        with alarms.evaluating():
            thread_names = {thread.name for thread in threading.enumerate()}
            assert ("ticker" in thread_names) == bool(configs)
            assert ticking.wait(30 if configs else 0) == bool(configs)
    assert names == []
    assert EVERY_S == 1.0


def test_the_run_is_not_ending_unless_it_says_so():
    failed = []
    alarms = Alarms([alarm("total_fps < 1")], lambda: facts(total_fps=0.0), [], {}, failed.append)
    alarms._tick()
    assert alarms.events == {"raised": 1}
    assert failed == []


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
)  # fmt: skip
def test_what_is_said_of_a_fact(names, values, text):
    assert alarm_text(names, values, GATE) == text


def test_what_is_said_of_a_source_that_is_back():
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (99.4, "99 s"), (99.99, "100 s"), (149.0, "2 min"), (151.0, "3 min"), (5969.0, "99 min"),
        (5971.0, "1 h 40 min"),
        (3600 * 47 + 59 * 60, "47 h 59 min"), (3600 * 48, "2 d"), (3600 * 71, "2 d 23 h"), (3600 * 72, "3 d"),
        (3600 * 24 * 10 + 3600 * 5, "10 d 5 h"), (0.0, "0 s"),
    ],
)  # fmt: skip
def test_durations_at_their_bounds(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(99.94, "99.9"), (-99.94, "-99.9"), (100.4, "100"), (-100.4, "-100"), (12345.6, "12346"), (0.012345, "0.0123")],
)
def test_values_at_their_bounds(value, text):
    assert value_text(value) == text
