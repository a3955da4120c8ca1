import pytest

from streamkit.core.data import Event
from streamkit.core.event_filter import EventFilter


@pytest.mark.parametrize(
    ("when", "inside"),
    [("line.crossed", True), ("line", True), (["x", "line.crossed"], True), ("line.returned", False), (None, False),
     ("line.cross", False), ("crossed", False)],
)  # fmt: skip
def test_what_is_an_occasion(when, inside):
    assert (Event("crossed", "line", "gate", 3, 0.1) in EventFilter(when)) is inside
