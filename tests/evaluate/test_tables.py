"""How the tables of a report look."""

from streamkit.evaluate.report import as_table


def test_names_are_left_aligned_and_numbers_right_aligned():
    rows = [("car", "0.5", "found"), ("motorcycle", "12.25", "missed by far")]
    assert as_table(rows, ("class", "share", "meaning")).splitlines() == [
        "class         share  meaning",
        "car             0.5  found",
        "motorcycle    12.25  missed by far",
    ]


def test_numbers_are_shown_unchanged():
    table = as_table([("a", "0.500"), ("b", "1e3")], ("name", "number"))
    assert table.splitlines()[1:] == ["a          0.500", "b            1e3"]
