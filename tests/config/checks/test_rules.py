"""The mistakes that people make in rules, each with its place in the YAML, the reason, and the way out."""

from pathlib import Path

import pytest

from streamkit.cli.check import check
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.testing.yaml_tests import run_tests

ROOT = Path(__file__).resolve().parents[3]
ABOVE = """\
sources: {street: 'test://', gate: 'test://'}
stages:
  detect: {model: demo}
  track: {}
  zone: {polygon: {door: [[0,0],[99,0],[99,99]], far side: [[9,0],[10,0],[9,9]]}, labels: [car, person], track_ttl: 3}
  yard: {stage: zone, polygon: [[400, 0], [499, 0], [499, 99]]}
  line: {stage: line_counter, line: [[0, 0], [99, 99]]}
"""


def problem_texts(text):
    with pytest.raises(ConfigError) as caught:
        check(read_text(text, folder=ROOT))
    return [str(problem).removeprefix("pipeline.yaml:") for problem in caught.value.problems]


def warned(text):
    config = read_text(text, folder=ROOT)
    check(config)
    return [str(problem).removeprefix("pipeline.yaml:") for problem in config.warnings if "missing" not in str(problem)]


@pytest.mark.parametrize(
    ("when", "column", "reason"),
    [
        ("count(person > 5", 6, "this ( is not closed; add a ) at its end"),
        ("count(persn) > 5", 7, "there is neither a name nor a class 'persn'; did you mean 'person'?"),
        ("present(truck)", 9, "there is neither a name nor a class 'truck'; did you mean 'track_id'?; classes here: "),
        ("count('dog') > 5", 7, "no model above the rule has a class 'dog'; known: car, person, bike"),
        ("class == 'truck'", 10, "class is never 'truck'; known: car, person, bike"),
        ("class == 5", 7, 'class is a text and 5 is a number; write class == "5" if that text is meant'),
        ("class > 5", 1, "class is a text; texts are compared with == and !="),
        ("class == truck", 10, 'if it is a text, put it in quotes: "truck"'),
        ("cnt(person) > 5", 1, "there is no function 'cnt'; did you mean 'count'?"),
        ("count(person) > 5 for 10", 23, "for 10 needs a unit: write for 10s"),
        ("count(person)", 1, "this is a number; compare it, as in count(person) > 0"),
        ("count(person in zon.door) > 5", 17, "there is no stage 'zon' above the rule; did you mean 'zone'?"),
        ("count(person in zone.dor) > 5", 17, "zone has no area 'dor'; did you mean 'zone.door'?"),
        ("count(person in zone) > 5", 17, "which area of zone"),
        ("in_zone(yard.door)", 9, "yard has no area 'door'; did you mean 'yard'?"),
        ("in_zone(detect)", 9, "detect is no stage zone above the rule"),
        ("in_zone(person > 3)", 16, "person > 3 is no area; write STAGE.AREA, such as zone.door"),
        ("in_zone()", 1, "in_zone takes one name, as in in_zone(zone.door)"),
        ("count(bike in zone.door) > 5", 7, "zone watches car, person only, so no bike is ever in zone.door"),
        ("person and zone.door", 12, "zone.door is an area: write in_zone(zone.door)"),
        ("person and line.crossed", 12, "line is a stage: write event(line.crossed)"),
        ("event(line.croossed)", 7, "line writes no event 'croossed'; did you mean 'line.crossed'?"),
        ("event(detect.found)", 7, "detect writes no events above the rule"),
        ("event(lin.crossed)", 7, "there is no stage 'lin' above the rule; did you mean 'line.crossed'?"),
        ("event(r.raised)", 7, "there is no stage 'r' above the rule"),
        ("event()", 1, "event takes an event, and optionally a condition on its data"),
        ("event(line.crossed, direction)  > 3", 1, "<, <=, > and >= want numbers"),
        ("speed > 50", 1, "speed is measured by a stage speed; put one above the rule"),
        ("direction == 'up'", 1, "direction is measured by a stage direction; put one above the rule"),
        ("attributes.color == 'red'", 1, "objects have no attribute 'color'; put a stage classify with of:, or"),
        ("frame.weather == 'rain'", 1, "frames have no attribute 'weather'; put a stage classify without of:, or"),
        ("count(count(car)) > 5", 7, "count is not allowed within another count; compare the counts"),
        ("count(car, person) > 5", 12, "count takes one condition; join several by and"),
        ("count(source == 'gate') > 5", 14, "count needs a condition on objects, such as count(person)"),
        ("count(score) > 5", 7, "what count counts must be true or false, and this is a number"),
        ("score > 5 and person.age > 3", 15, "there is no name 'person.age'"),
    ],
)
def test_an_invalid_condition_is_reported(when, column, reason):
    (text,) = problem_texts(f'{ABOVE}  r: {{stage: rule, when: "{when}"}}\n')
    assert text.startswith(f"8:{26 + column}: r.when: column {column}: ")
    assert reason in text


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("when: present(persn)", "8:34"),
        ("'when': 'present(persn)'", "8:37"),
        ('when: "present(persn)"', "8:35"),
        ("when: 'zone[''far side''] or present(person)'", "8:27"),
        ("when: 'source == ''a'' or present(persn)'", "8:54"),
        ('when: "source == \\"a\\" or present(persn)"', "8:54"),
    ],
)
def test_the_column_of_a_problem_is_that_of_the_file(written, place):
    (text,) = problem_texts(f"{ABOVE}  r: {{stage: rule, {written}}}\n")
    assert text.startswith(f"{place}: r.when: column ")


@pytest.mark.parametrize("style", ["|", ">", ">-", "|2"])
def test_the_line_of_a_problem_is_that_of_the_file(style):
    indent = "        " if style == "|2" else "      "
    (text,) = problem_texts(
        f"{ABOVE}  r:\n    stage: rule\n    when: {style}\n{indent}present(person) and\n{indent}present(persn)\n"
    )
    assert text.startswith(f"12:{len(indent) + 9}: r.when: ")
    assert "column" in text


def test_problems_of_several_rules_are_reported_together_by_name():
    rules = (
        "    rules:\n      a: {when: present(persn)}\n      b: {when: present(car), clear: absent(cra)}\n"
        "      c: {when: present(car)}\n      d: {when: present(car), clear: car}\n"
        '      e: {when: "present(car) for 1s", clear: "absent(car) for 1s", clear_for: 3s}\n'
    )
    texts = problem_texts(f"{ABOVE}  r:\n    stage: rule\n{rules}")
    assert [text.split(": column", 1)[0] for text in texts] == [
        "11:25: r.a.when",
        "12:45: r.b.clear",
        "14:38: r.d.clear",
        "15:60: r.e.clear",
    ]
    assert "clear refers to one object, and when to all of them" in texts[2]
    assert "write for here, or clear_for; not both" in texts[3]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("", "r: needs either when: CONDITION or rules: {NAME: {when: CONDITION}}"),
        ("when: present(car), rules: {a: {when: present(car)}}", "needs either when"),
        ("rules: {a: {when: present(car)}}, cooldown: 3s", "cooldown apply to a single when; move them to the rules"),
        ("rules: {a b: {when: present(car)}}", "a rule's name must consist of letters, digits, _ and -, got 'a b'"),
        ("rules: {a: {clear: present(car)}}", "r.rules.a.when is required"),
        ("rules: {a: {whn: present(car)}}", "r.rules.a has no option 'whn'; did you mean 'when'?"),
        ("when: present(car), cooldown: 3 weeks", "r.cooldown must be a duration such as 10s"),
        ("when: present(car), schedule: {hours: 22-6}", "8:58: r.schedule.hours must be a beginning and an end"),
        ("when: present(car), schedule: {zone: Europe/Berln}", "must be a time zone, such as Europe/Berlin, got"),
        ("when: present(car), schedule: {days: [mo]}", "r.schedule.days must be weekdays, mon to sun"),
        ("when: present(car), schedule: {day: mon}", "r.schedule has no option 'day'"),
        ("when: 5", "r.when must be text, got 5"),
    ],
)
def test_invalid_options_of_a_rule_are_reported(options, reason):
    texts = problem_texts(f"{ABOVE}  r: {{stage: rule{', ' if options else ''}{options}}}\n")
    assert len([text for text in texts if reason in text]) == 1


def test_a_rule_about_an_object_needs_a_tracker():
    text = "sources: {a: 'test://'}\nstages:\n  detect: {model: demo}\n  r: {stage: rule, when: car and score > 0.8}\n"
    assert problem_texts(text) == [
        "4:26: r.when: column 1: this refers to one object, which needs tracks: put track above the rule, or count "
        "objects, as in count(score > 0.8) > 0"
    ]
    assert warned(text.replace("car and score > 0.8", "count(car and score > 0.8) > 0")) == []


def test_a_rule_can_use_only_classes_kept_by_a_detector():
    above = ABOVE.replace("model: demo", "model: demo, labels: [car]").replace("labels: [car, person]", "labels: [car]")
    (text,) = problem_texts(f"{above}  r: {{stage: rule, when: bike}}\n")
    assert text.endswith("there is neither a name nor a class 'bike'; classes here: car")


def test_a_rule_can_use_only_stages_above_it():
    stages = ABOVE.replace("  line:", "  r: {stage: rule, when: event(line.crossed)}\n  line:")
    (text,) = problem_texts(stages)
    assert "there is no stage 'line' above the rule" in text
    (text,) = problem_texts(f"{ABOVE}  r: {{stage: rule, from: track, when: occupancy(yard) > 1}}\n")
    assert "there is no stage 'yard' above the rule; put a stage zone above it" in text


def test_form_errors_are_reported_beside_other_problems():
    texts = problem_texts(f"{ABOVE}  crop: {{}}\n  r: {{stage: rule, when: (present(persn)}}\n")
    assert len(texts) == 2
    assert "unknown stage 'crop'" in texts[0]
    assert texts[1] == "9:26: r.when: column 1: this ( is not closed; add a ) at its end"


def test_an_unknown_source_gives_a_warning():
    text = f'{ABOVE}  r: {{stage: rule, when: \'source in ["gat", "street"] and present(car)\'}}\n'
    assert warned(text) == ["8:38: r: there is no source 'gat'; did you mean 'gate'?"]


def test_events_of_rules_can_be_referenced_by_name():
    rules = f"{ABOVE}  r:\n    stage: rule\n    rules: {{crowd: {{when: present(car)}}, gone: {{when: absent(car)}}}}\n"
    sink = "  record: {path: 'out/{source}-{time}.mp4', when: WHEN}\n"
    for name in ("r", "r.raised", "r.crowd.raised", "r.gone.cleared"):
        texts = problem_texts(rules + sink.replace("WHEN", name) + "  x: {}\n")
        assert not any("event" in problem for problem in texts)
    for name, way in (("r.crowd.raied", "did you mean 'r.crowd.raised'?"), ("r.crwd.raised", "did you mean")):
        text = rules + sink.replace("WHEN", name)
        assert any(way in problem for problem in problem_texts(text))


TESTS = """\
  r: {{stage: rule, when: "count(person in zone.door) > 1 for 1s", clear_for: 1s{more}}}
tests:
  - name: two at the door
    insert_at: zone
    extract_from: r
    given:
      - {{pts_s: 0, xyxy: [[80, 10, 90, 20], [80, 10, 92, 22]], label: [person, person], track_id: [1, 2]{time}}}
      - {{pts_s: 1, xyxy: [[80, 10, 90, 20], [80, 10, 92, 22]], label: [person, person], track_id: [1, 2]{time}}}
      - {{pts_s: 2, xyxy: [[80, 10, 90, 20]], label: [person], track_id: [1]{time}}}
      - {{pts_s: 5, xyxy: [[80, 10, 90, 20]], label: [person], track_id: [1]{time}}}
      - {{pts_s: 6, xyxy: [[80, 10, 90, 20]], label: [person], track_id: [1]{time}}}
    expect:
      events:
        - {{kind: entered, track_id: 1}}
        - {{kind: entered, track_id: 2}}
"""
RAISED = "        - {kind: raised, stage: r, frame: 1, data: {since_s: 0.0, values: {count(person in zone.door): 2}}}\n"
CLEARED = "        - {kind: left, track_id: 2}\n        - {kind: cleared, frame: 4, data: {lasted_s: 5.0}}\n"


def passed(more="", time="", events=RAISED + CLEARED):
    lines = []
    code = run_tests(read_text(ABOVE + TESTS.format(more=more, time=time) + events, folder=ROOT), lines.append)
    return code, lines


def test_a_rule_is_tested_in_the_yaml():
    assert passed() == (0, ["ok    two at the door", "1 of 1 tests passed"])
    code, lines = passed(events=RAISED.replace("since_s: 0.0", "since_s: 0.5") + CLEARED)
    assert code == 1
    assert "values: {'count(person in zone.door)': 2}" in lines[2]


def test_a_schedule_is_tested_in_the_yaml():
    night = ', schedule: {hours: "22:00-06:00", zone: Europe/Berlin}'
    assert passed(night, ", time: '2026-03-02T22:30:00+01:00'")[0] == 0
    left = CLEARED.splitlines(keepends=True)[0]
    assert passed(night, ", time: '2026-03-02T11:00:00Z'", left)[0] == 0
    with pytest.raises(ConfigError, match=r"test\.given\.0\.time must be a day, a time and its zone"):
        passed(night, ", time: '2026-03-02 11:00'")
