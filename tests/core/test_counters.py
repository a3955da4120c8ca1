import pytest

from streamkit.core.counters import Counters, slug


def test_counts_add_up_by_name():
    one, other = Counters(), Counters()
    one.add("pixels to host")
    one.add("pixels to host", 3)
    one.add("boxes removed: size", 2)
    other.add("pixels to host", 10)
    assert one["pixels to host"] == 4
    assert one["never"] == 0
    total = Counters.total([one, other])
    assert total == {"boxes removed: size": 2, "pixels to host": 14}
    assert list(total) == sorted(total)
    assert one["pixels to host"] == 4  # the parts stay as they are


def test_reading_leaves_no_trace():
    counters = Counters()
    assert counters["drops"] == 0
    assert Counters.total([counters]) == {}
    assert Counters.total([]) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("over age", "over_age"),
        ("too many wrong tokens", "too_many_wrong_tokens"),
        ("not HTTP", "not_http"),
        (" door-in, the sender's! ", "door_in_the_sender_s"),
        ("człowiek", "człowiek"),
        ("", ""),
    ],
)
def test_a_slug_is_one_lower_case_word(text, told):
    assert slug(text) == told
