"""How the tables of a report look."""

from streamkit.evaluate.report import as_table


def test_a_table_has_names_and_meanings_on_the_left_and_numbers_on_the_right():
    rows = [("car", "0.5", "found"), ("motorcycle", "12.25", "missed by far")]
    assert as_table(rows, ("class", "share", "meaning")).splitlines() == [
        "class         share  meaning",
        "car             0.5  found",
        "motorcycle    12.25  missed by far",
    ]


def test_numbers_stay_as_they_are_written():
    table = as_table([("a", "0.500"), ("b", "1e3")], ("name", "number"))
    assert table.splitlines()[1:] == ["a          0.500", "b            1e3"]
