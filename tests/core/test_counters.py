import pytest

from streamkit.core.counters import Counters, slug


def test_counts_add_up_by_name():
    first = Counters()
    second = Counters()
    first.add("pixels to host")
    first.add("pixels to host", 3)
    first.add("boxes removed: size", 2)
    second.add("pixels to host", 10)
    assert first["pixels to host"] == 4
    assert first["never"] == 0
    total = Counters.total([first, second])
    assert total == {"boxes removed: size": 2, "pixels to host": 14}
    assert list(total) == sorted(total)
    assert first["pixels to host"] == 4  # the parts stay as they are


def test_reading_does_not_create_a_counter():
    counters = Counters()
    assert counters["drops"] == 0
    assert Counters.total([counters]) == {}
    assert Counters.total([]) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("over age", "over_age"),
        ("too many wrong tokens", "too_many_wrong_tokens"),
        ("not HTTP", "not_http"),
        (" door-in, the sender's! ", "door_in_the_sender_s"),
        ("człowiek", "człowiek"),
        ("", ""),
    ],
)
def test_a_slug_is_a_single_lower_case_word(text, expected):
    assert slug(text) == expected
