"""What is wrong in `alarms:`, with its place in the YAML."""

import pytest

from streamkit.config.pipeline_config import read_text

HEAD = 'sources: {gate: "rtsp://h/x"}\nstages: {draw: {}}\nalarms: '


def read(text):
    config = read_text(HEAD + text)
    return config, [str(problem) for problem in config.problems]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("{a: 'down_s > 3 fro 5s'}", "3:25", "alarms.a.when: 'fro' is not allowed here"),
        ('{a: "fps_in"}', "3:14", "must be true or false, and this is a number; compare it, as in fps_in > 0"),
        ("{a: {when: cause == timeout}}", "3:29", 'put it in quotes: "timeout"'),
        ("{a: {when: down_s > 3, clear: soon}}", "3:39", "alarms.a.clear must be a duration such as 10s"),
        ("{a: {clear: 5s}}", "3:13", "alarms.a.when is required: the rule, such as"),
        ("[down_s > 3]", "3:9", "alarms must be a mapping: a name and a rule for each"),
        ("{a: {when: down_s > 3, text: '{sorce}'}}", "3:13", "unknown variable {sorce}; did you mean 'source'?"),
        ("{a: {when: down_s > 3, to: []}}", "3:36", "alarms.a.to must name emitters, and names none; leave it out"),
        ("{a: {when: down_s > 3, to: draw}}", "3:36", "got 'draw': is no emitter; put one under stages, such as email"),
    ],
)
def test_invalid_alarms_are_reported_with_their_position(text, place, message):
    _, problems = read(text)
    assert len(problems) == 1, problems
    assert message in problems[0]
    assert problems[0].startswith(f"pipeline.yaml:{place}: ")


def test_a_stage_cannot_have_the_id_of_the_alarm_stage():
    config = read_text('sources: {gate: "rtsp://h/x"}\nstages: {alarms: {stage: draw}}\nalarms: {a: down_s > 3}')
    assert "alarms is the stage of the events of alarms:" in str(config.problems[0])
    assert not read_text('sources: {gate: "rtsp://h/x"}\nstages: {alarms: {stage: draw}}').problems


@pytest.mark.parametrize(
    ("stage", "warned"),
    [
        ("draw: {}", True),
        ("webhook: {url: 'http://h'}", True),
        ("webhook: {url: 'http://h', send: events}", False),
        ("email: {url: 'smtp://h', mail_from: a@b.c, to: x@y.z}", False),
        ("email: {url: 'smtp://h', mail_from: a@b.c, to: x@y.z, when: line.crossed}", True),
    ],
)
def test_alarms_without_a_reader_give_a_warning(stage, warned):
    config = read_text(f'sources: {{gate: "rtsp://h/x"}}\nstages: {{{stage}}}\nalarms: {{a: down_s > 3}}')
    assert config.problems == []
    assert [str(warning).startswith("pipeline.yaml:3:9: no emitter takes alarms") for warning in config.warnings] == [
        True
    ] * warned
