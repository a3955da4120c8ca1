import pytest

from streamkit.emit.topics import Topics


def test_topics_are_filled_from_a_records_fields():
    topics = Topics({"topic": "cameras/{source}/{label}", "key": "{source}"}, ("source", "label", "stage"))
    assert topics.fill(("gate", "car", "detect")) == [b"cameras/gate/car", b"gate"]
    assert topics.fill(("gate", "car", "other")) is topics.fill(("gate", "car", "detect")), "remembered"
    assert topics.needed == 2


def test_the_cache_of_topics_is_bounded():
    topics = Topics({"topic": "{track_id}"}, ("track_id",))
    for number in range(10_000):
        assert topics.fill((str(number),)) == [str(number).encode()]
        assert topics._filled.cache_info().currsize == min(number + 1, 4096)


def test_values_are_sanitized_and_never_expanded_as_templates():
    topics = Topics({"topic": "a/{source}"}, ("source", "label"), lambda text: text.replace("+", "_"))
    assert topics.fill(("x+{label}", "car")) == [b"a/x_{label}"], "a value with braces is no template"
    assert topics.needed == 1


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{sorce}", r"topic has an unknown variable \{sorce\}; did you mean 'source'\?"),
        ("{x}", r"topic has an unknown variable \{x\}; known: source, label"),
        ("a/{}", r"topic has an unknown variable \{\}"),
        ("a/{source", "topic must be text with names such as {source} in it, got 'a/{source'"),
        ("", "topic must be text with names"),
    ],
)
def test_a_topic_with_unknown_fields_is_refused(template, message):
    with pytest.raises(ValueError, match=message):
        Topics({"topic": template}, ("source", "label"))
