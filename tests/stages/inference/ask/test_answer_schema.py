"""The form of an answer: what is read, what is refused, and what becomes of it."""

import json

import pytest

from streamkit.stages.inference.ask.answer_schema import MAX_CHARS, AnswerError, AnswerSchema

FORM = {"injured": "bool", "people": "int", "height_m": "float", "why": "str", "pose": ["standing", "lying"]}
GOOD = {"injured": True, "people": 2, "height_m": 1.8, "why": "she lies there", "pose": "lying"}


def read(**changed):
    return AnswerSchema(FORM).read(json.dumps({**GOOD, **changed}))


def test_an_answer_that_matches_the_schema_is_read():
    assert read() == GOOD
    assert read(height_m=2) == {**GOOD, "height_m": 2.0}
    assert AnswerSchema(FORM).json_schema() == {
        "type": "object",
        "properties": {
            "injured": {"type": "boolean"},
            "people": {"type": "integer"},
            "height_m": {"type": "number"},
            "why": {"type": "string"},
            "pose": {"type": "string", "enum": ["standing", "lying"]},
        },
        "required": list(FORM),
        "additionalProperties": False,
    }


@pytest.mark.parametrize("around", ["```json\n%s\n```", "<think>maybe {no}?</think>\n%s", "The answer is %s."])
def test_an_answer_is_extracted_from_surrounding_text(around):
    assert AnswerSchema(FORM).read(around % json.dumps(GOOD)) == GOOD


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"injured": "yes"}, "injured must be true or false"),
        ({"injured": 1}, "injured must be true or false"),
        ({"injured": None}, "injured must be true or false"),
        ({"people": 2.0}, "people must be a whole number"),
        ({"people": True}, "people must be a whole number"),
        ({"people": 2**63}, "people must be a whole number"),
        ({"height_m": "1.8"}, "height_m must be a number"),
        ({"height_m": False}, "height_m must be a number"),
        ({"why": ["it", "is"]}, "why must be a short text of 1000 characters at most"),
        ({"why": "x" * 1001}, "why must be a short text of 1000 characters at most"),
        ({"why": "a\x1b[2Jb"}, "why must be a short text .* without control characters"),
        ({"pose": "sitting"}, "pose must be one of standing, lying"),
        ({"pose": 1}, "pose must be one of standing, lying"),
        ({"more": 1}, "it has 1 keys that the question does not name"),
    ],
)
def test_an_answer_that_violates_the_schema_is_refused(changed, why):
    with pytest.raises(AnswerError, match=why) as refused:
        read(**changed)
    assert refused.value.cause == "wrong form"


@pytest.mark.parametrize(
    "text", ["", "Yes, he is injured.", "[true]", '{"injured": true', "}{", "{" * 5000, '{"a": NaN}']
)
def test_an_answer_that_is_not_a_json_object_is_refused(text):
    with pytest.raises(AnswerError, match="it contains no JSON object") as refused:
        AnswerSchema(FORM).read(text)
    assert refused.value.cause == "not JSON"


def test_an_answer_with_a_missing_value_is_refused():
    with pytest.raises(AnswerError, match="it lacks why, pose"):
        AnswerSchema(FORM).read(json.dumps({name: GOOD[name] for name in ("injured", "people", "height_m")}))


def test_answer_values_become_attributes_and_rule_fields():
    assert AnswerSchema.attributes({**GOOD, "people": 12, "height_m": 1.75, "injured": False}) == {
        "injured": {"label": "no", "score": None},
        "people": {"label": "12", "score": None},
        "height_m": {"label": "1.75", "score": None},
        "why": {"label": "she lies there", "score": None},
        "pose": {"label": "lying", "score": None},
    }
    fields = AnswerSchema(FORM).fields()
    assert [(field.kind, field.values) for field in fields.values()] == [
        ("text", ("yes", "no")),
        ("number", None),
        ("number", None),
        ("text", None),
        ("text", ("standing", "lying")),
    ]
    for part in ('"injured": true or false', '"people": a whole number', '"pose": one of standing, lying'):
        assert part in AnswerSchema(FORM).instruction()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, r"answer must name at least one value and its type, as in \{injured: bool, why: str\}"),
        ({"injured": "boolean"}, r"answer\.injured must be bool, int, float, str, or a list .*; did you mean 'bool'\?"),
        ({"injured": "date"}, r"answer\.injured must be bool, int, float, str, or a list of words .*, got 'date'$"),
        ({"color": ["red"]}, r"answer\.color must list at least two different words, got \['red'\]"),
        ({"color": ["red", "red"]}, r"answer\.color must list at least two different words"),
        ({"color": ["red", " "]}, r"answer\.color must list at least two different words"),
        ({"color": ["red", "x" * (MAX_CHARS + 1)]}, r"answer\.color must list at least two different words"),
        ({"is injured": "bool"}, r"answer: a name must consist of letters, digits and _, got 'is injured'"),
    ],
)
def test_an_impossible_schema_is_refused(answer, why):
    with pytest.raises(ValueError, match=why):
        AnswerSchema(answer)


def test_a_choice_may_be_as_long_as_a_text():
    word = "x" * MAX_CHARS
    assert AnswerSchema({"color": ["red", word]}).read(json.dumps({"color": word})) == {"color": word}
