import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.expressions import TEXTS, cel, conditions, same

from streamkit.rules.code import Condition
from streamkit.rules.language import BOOL, NUMBER, TEXT, RuleError, RuleField, Vocabulary, compile_rule, facts_of

WORDS = Vocabulary(
    {
        "down_s": NUMBER,
        "drop_rate": "number",
        "disk.free": NUMBER,
        "live": BOOL,
        "state": RuleField(TEXT, ("running", "lost")),
    },
    "alarms",
)


def value(text, **facts):
    return holds(text, WORDS, facts)


def holds(text, words, facts):
    return Condition(compile_rule(text, words)[0])(facts)


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("down_s > 30", True),
        ("down_s > 40", False),
        ("down_s >= 40 and drop_rate < 0.5", True),
        ("down_s > 100 or live", True),
        ("not live", False),
        ("not (down_s > 100)", True),
        ("!live || down_s * 2 == 80", True),
        ("down_s - 10 > 29.5 && -down_s < 0", True),
        ("down_s / 8 == 5", True),
        ("5 / 2 == 2.5", True),
        ("down_s / 0 > 1 or live", True),
        ("down_s / 0 > 1", False),
        ("down_s / 0 < 1", False),
        ("down_s / 0 == 0", False),
        ("down_s / 0 == down_s / 0", False),
        ("0 / 0 <= 0", False),
        ("down_s / -0.0 != 1", False),
        ("0 / down_s == 0", True),
        ("not (down_s / (down_s - 40) < 1)", False),
        ("(down_s / 0 > 1 ? down_s : 1) > 0", False),
        ("(down_s / 0 > 1 ? live : live) or true", True),
        ("not (down_s / 0 > 1 ? live : live)", False),
        ('state == "lost"', True),
        ("state != 'lost'", False),
        ('state in ["running", "lost"]', True),
        ("down_s in [1, 40]", True),
        ("live ? down_s > 3 : down_s > 300", True),
        ("live == true", True),
        ("live != (down_s > 3)", False),
        ("true", True),
        ("down_s > 1 // this is a comment, for you", True),
        ("down_s >\n  30", True),
        ("live and\tnot false", True),
        ("down_s == 0x28", True),
    ],
)
def test_conditions_are_evaluated(text, true):
    assert value(text, down_s=40, drop_rate=0.2, live=True, state="lost") is true


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("live", False),
        ("not live", False),
        ("live or true", True),
        ("live or not live", False),
        ("live == live", False),
    ],
)
def test_an_unknown_truth_decides_nothing(text, true):
    assert holds(text, Vocabulary({"live": BOOL}), {}) is true


@pytest.mark.parametrize(
    ("text", "for_s"),
    [("live", 0), ("live for 10s", 10), ("live for 200ms", 0.2), ("live for 1.5min", 90), ("(live)for 2 h", 7200)],
)
def test_durations_are_parsed(text, for_s):
    assert compile_rule(text, WORDS)[1] == pytest.approx(for_s)


def test_unknown_operands_do_not_decide():
    for facts in ({}, {"down_s": math.nan}, {"down_s": None}, {"down_s": "text"}, {"down_s": True}):
        assert not value("down_s > 3", **facts)
        assert not value("not (down_s > 3)", **facts)
        assert not value("down_s != 3", **facts)
        assert value("down_s > 3 or live", **facts, live=True)
        assert value("not (down_s > 3 and live)", **facts, live=False)
        assert not value("down_s > 3 and live", **facts, live=True)


def test_names_within_a_text_are_not_operators():
    words = Vocabulary({"name": TEXT})
    for written, text in (
        ('"this and that for 10s // or (not"', "this and that for 10s // or (not"),
        (r'"a\"b\\A\n"', 'a"b\\A\n'),
        (r"r'a\n'", "a\\n"),
    ):
        assert holds(f"name == {written}", words, {"name": text})
        assert not holds(f"name == {written}", words, {"name": f"{text}!"})


def test_names_with_dots_and_subscripts_are_equal():
    assert value("disk.free < 5e9", **{"disk.free": 1e9})
    assert value('disk["free"] < 5e9', **{"disk.free": 1e9})


def test_the_names_used_by_a_rule_are_listed():
    condition, _ = compile_rule("down_s > 3 and (live or down_s < 1) and state == 'lost'", WORDS)
    assert [fact.key for fact in facts_of(condition)] == ["down_s", "live", "state"]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "a rule needs a condition"),
        ("down_s >", 9, "the condition is incomplete; an operand is missing at its end"),
        ("(down_s > 3", 1, "this ( is not closed; add a ) at its end"),
        ("down_s > 3)", 11, "this ) has no opening bracket; remove it"),
        ("(down_s > [3)", 13, "the [ at column 11 is still open"),
        ('state == "lost', 10, 'the text that begins here is not closed; add a closing "'),
        ("down_s = 3", 8, "write == to compare"),
        ("down_s > 3 & live", 12, "write && or and"),
        ("down_s > 3 AND live", 12, "write and"),
        ("down_s <> 3", 9, "write != for not equal"),
        ("&& live", 1, "&& stands between two conditions"),
        ("live and or live", 10, "or is not allowed here"),
        ("down_s > 3 live", 12, "'live' is not allowed here"),
        ("down_s > 10s", 10, "10s is not allowed here: durations are allowed after for"),
        ("down_s > 3 for 10", 16, "for 10 needs a unit: write for 10s"),
        ("down_s > 3 for", 15, "for needs a duration such as 10s or 5min after it"),
        ("down_s > 3 for 10s and live", 16, "and nothing else, got '10s and live'"),
        ("down_s > 3 for 10 weeks", 16, "a duration such as 10s"),
        ("dwn_s > 3", 1, "alarms know no name 'dwn_s'; did you mean 'down_s'?"),
        ("live and cnt(3)", 10, "alarms know no function 'cnt'"),
        ("down_s", 1, "must be true or false, and this is a number; compare it, as in down_s > 0"),
        ("state == 5", 7, 'state is a text and 5 is a number; write state == "5"'),
        ('down_s == "5"', 8, "compare down_s with a number"),
        ('down_s > "5"', 10, '"5" is a text; write the number without quotes'),
        ('state > "a"', 1, "texts are compared with == and !="),
        ('state == "lots"', 10, "state is never 'lots'; did you mean 'lost'?"),
        ('state in ["lost", "runing"]', 19, "state is never 'runing'; did you mean 'running'?"),
        ("state == lost", 10, 'if it is a text, put it in quotes: "lost"'),
        ('not state == "lost"', 5, 'as in not (state == "...")'),
        ("1 < down_s < 5", 3, "compare in two steps, as in 1 < x and x < 5"),
        ("live ? down_s > 3 : 5", 1, "both results of ?: must have the same type"),
        ("down_s ? live : live", 1, "the condition before ? must be true or false"),
        ("down_s % 2 == 0", 8, "rules have no operator %"),
        ("state in []", 10, "an empty list matches nothing"),
        ("down_s in state", 11, "in needs a list after it"),
        ("state in [live]", 11, "a list has numbers and texts only"),
        ("[1, 2]", 1, "a list is allowed after in only"),
        ('state.startsWith("a")', 1, "rules have no methods"),
        ('{"a": 1}', 1, "rules have no maps"),
        ('-down_s == "a"', 9, '-down_s is a number and "a" is a text; compare -down_s with a number'),
        ("(not live) > 2", 2, "<, <=, > and >= want numbers, and not live is true or false"),
        ("null == down_s", 1, "null is not allowed in a rule"),
        ("down_s[3] > 1", 8, "only a text is allowed in [ ]"),
        (".down_s > 1", 1, "a name cannot begin with a dot"),
        ("(" * 70 + "live" + ")" * 70, 62, "more than 60 levels of nesting"),
        ("!" * 200 + "live", 62, "more than 60 levels of nesting"),
        (" or ".join(["live"] * 400), 2001, "a rule must have at most 2000 characters"),
    ],
)
def test_invalid_conditions_are_refused(text, column, message):
    with pytest.raises(RuleError) as error:
        compile_rule(text, WORDS)
    assert (error.value.line, error.value.column) == (1, column)
    assert message in error.value.reason
    assert str(error.value) == f"column {column}: {error.value.reason}"


def test_the_line_of_an_error_is_reported():
    with pytest.raises(
        RuleError, match=r"^line 2, column 5: alarms know no name 'lve'; did you mean 'live'\?"
    ) as error:
        compile_rule("live and\n    lve", WORDS)
    assert (error.value.line, error.value.column, error.value.offset) == (2, 5, 13)


def test_a_long_chain_does_not_exceed_the_depth():
    assert value(" or ".join(["live"] * 240), live=True)


@settings(max_examples=120, deadline=None)
@given(st.text(alphabet="abs_l ive()[]\"'!&|<>=+-*/?:.,0123 \n\\", max_size=40))
def test_no_text_crashes_the_parser(text):
    try:
        compile_rule(text, WORDS)
    except RuleError as error:
        place = error.line, error.column, error.reason
    else:
        place = 1, 1, "it is a rule"
    assert min(place[:2]) >= 1
    assert place[2]


@settings(max_examples=60, deadline=None)
@given(
    conditions(same(["a", "b"]), same(["t", "u"]), same(["p"]), leaves=8),
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-3, 7),
            "b": st.floats(-5, 5, width=32),
            "t": st.none() | st.sampled_from(TEXTS),
            "u": st.sampled_from(TEXTS),
            "p": st.none() | st.booleans(),
        }
    ),
)
def test_conditions_equal_those_of_cel(condition, facts):
    ours, theirs = condition
    words = Vocabulary({"a": NUMBER, "b": NUMBER, "t": TEXT, "u": TEXT, "p": BOOL})
    assert holds(ours, words, facts) is (cel(theirs, facts) is True)
