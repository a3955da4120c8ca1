"""Counts of lines and zones beside those of the truth."""

from streamkit.core.data import Event
from streamkit.evaluate.counting import count_errors, count_table


def crossed(frame, track, direction="in", label="car", line="a", source="gate"):
    return Event(
        "crossed", "door", source, frame, frame / 25, track, {"direction": direction, "label": label, "line": line}
    )


def test_counts_are_compared_per_line_direction_and_class():
    truth = [crossed(10, 1), crossed(20, 2), crossed(30, 3, "out")]
    events = [crossed(11, 7), crossed(31, 9, "out"), crossed(90, 9, "out"), crossed(40, 5, label="dog")]
    rows = count_table(events, truth, ["car"])
    assert [(row["shape"], row["what"], row["found"], row["truth"], row["error"]) for row in rows] == [
        ("a", "in", 1, 2, -1),
        ("a", "out", 2, 1, 1),
    ]
    errors = count_errors(events, truth, ["car"])
    assert [(error.kind, error.frame, error.track_id) for error in errors] == [("missed", 20, 2), ("extra", 90, 9)]


def test_events_are_paired_with_the_nearest_within_a_second():
    truth = [crossed(10, 1), crossed(50, 2)]
    assert count_errors([crossed(34, 8), crossed(52, 9)], truth, ["car"]) == []
    errors = count_errors([crossed(37, 8), crossed(52, 9)], truth, ["car"])
    assert [(error.kind, error.frame) for error in errors] == [("missed", 10), ("extra", 37)]
    other = count_errors([crossed(10, 8, source="yard")], [crossed(10, 1)], ["car"])
    assert [error.kind for error in other] == ["missed", "extra"]
