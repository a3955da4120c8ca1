import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from streamkit.core.units import Bytes, Count, Pixels, Point, Rate, Score, Seconds, seconds, size_bytes, wall_clock


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10s", 10.0),
        ("200ms", 0.2),
        ("5min", 300.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("1.5 s", 1.5),
        (" 3s ", 3.0),
        ("1e2ms", 0.1),
        (7, 7.0),
        (0.25, 0.25),
        (0, 0.0),
        ("0s", 0.0),
    ],
)
def test_durations_are_parsed_to_seconds(text, value):
    assert seconds(text) == pytest.approx(value)
    assert isinstance(seconds(text), float)


@pytest.mark.parametrize(
    "text", ["10", "s", "10 sec", "10S", "-5s", -1, True, None, [1], "1:30", "nan", "1..5s", "", "5m"]
)
def test_invalid_durations_are_refused(text):
    with pytest.raises(ValueError, match=r"must be a duration such as 10s, 200ms or 5min \(a bare number is seconds\)"):
        seconds(text)


@pytest.mark.parametrize("duration", [1e308, 10**30, "1e300d", "73001d", 6_307_200_001, "6307200000001ms"])
def test_a_duration_is_200_years_at_most(duration):
    with pytest.raises(ValueError, match=r"^must be at most 73000d, which is 200 years, got "):
        seconds(duration)
    assert seconds("73000d") == seconds(6_307_200_000) == 6_307_200_000.0


@pytest.mark.parametrize("size", [1e308, 10**18 + 1000, 10**30, "1000001TB", "1e300B"])
def test_a_size_is_a_million_terabytes_at_most(size):
    with pytest.raises(ValueError, match=r"^must be at most 1000000TB, got "):
        size_bytes(size)
    assert size_bytes("1000000TB") == size_bytes(10**18) == 10**18


@pytest.mark.parametrize("time", [1e308, float("nan"), float("inf"), -1, 253_402_300_800])
def test_a_wall_clock_time_is_at_most_the_year_9999(time):
    with pytest.raises(ValueError, match=r"^must be seconds since 1970, from 0 to 253402300799, "):
        wall_clock(time)
    assert wall_clock(253_402_300_799) == 253_402_300_799.0
    assert wall_clock(0) == 0.0


@pytest.mark.parametrize("duration", [float("nan"), float("inf"), "1e999s"])
def test_infinite_durations_are_refused(duration):
    with pytest.raises(ValueError, match="must be a duration"):
        seconds(duration)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100MB", 100_000_000),
        ("2GiB", 2 * 1024**3),
        ("1KiB", 1024),
        ("5B", 5),
        ("1.5KB", 1500),
        (42, 42),
        ("1TB", 10**12),
    ],
)
def test_sizes_are_parsed_to_bytes(text, value):
    assert size_bytes(text) == value
    assert isinstance(size_bytes(text), int)


@pytest.mark.parametrize("text", ["100", "100mb", "MB", -1, False, None, "1 PB"])
def test_invalid_sizes_are_refused(text):
    with pytest.raises(ValueError, match="must be a size such as 100MB"):
        size_bytes(text)


@given(st.floats(0, 1e6), st.sampled_from([("ms", 1e-3), ("s", 1), ("min", 60), ("h", 3600)]))
def test_a_unit_multiplies(number, unit):
    assert seconds(f"{number!r}{unit[0]}") == pytest.approx(number * unit[1])


def check(kind, text):
    return TypeAdapter(kind).validate_json(text, strict=True)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Score, "0", 0.0),
        (Score, "1", 1.0),
        (Score, "0.4", 0.4),
        (Seconds, '"5min"', 300.0),
        (Seconds, "2", 2.0),
        (Bytes, '"1KB"', 1000),
        (Pixels, "0", 0.0),
        (Count, "1", 1),
        (Point, "[1, 2.5]", (1.0, 2.5)),
        (Score | None, "null", None),
        (Seconds | None, '"1s"', 1.0),
    ],
)
def test_options_accept_units(kind, text, value):
    assert check(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Score, "1.5", "must be 0 to 1, got 1.5"),
        (Score, "-0.1", "must be 0 to 1, got -0.1"),
        (Score, '"0.4"', "valid number"),
        (Score, "NaN", "must be 0 to 1, got nan"),
        (Score, "true", "valid number"),
        (Pixels, "-1", "must be at least 0, got -1"),
        (Count, "0", "must be at least 1, got 0"),
        (Count, "2.5", "valid integer"),
        (Count, "true", "valid integer"),
        (Seconds, '"soon"', "must be a duration"),
        (Seconds, "-1", "must be a duration"),
        (Bytes, '"big"', "must be a size"),
        (Point, "[1]", "required"),
        (Point, "[1, 2, 3]", "at most 2 items"),
        (Point, '"1,2"', "valid array"),
    ],
)
def test_options_refuse_invalid_units(kind, text, message):
    with pytest.raises(ValidationError) as caught:
        check(kind, text)
    assert message in str(caught.value)


def test_the_schema_has_unit_and_bounds():
    score = TypeAdapter(Score).json_schema()
    assert (score["type"], score["minimum"], score["maximum"]) == ("number", 0, 1)
    texts = [schema for schema in TypeAdapter(Seconds).json_schema()["anyOf"] if schema["type"] == "string"]
    import re

    assert re.match(texts[0]["pattern"], "1.5min")
    assert not re.match(texts[0]["pattern"], "soon")
    pattern = TypeAdapter(Bytes).json_schema()["anyOf"][1]["pattern"]
    assert re.match(pattern, "100MB")
    assert re.match(pattern, "2GiB")
    assert re.match(pattern, "5B")


@pytest.mark.parametrize(
    ("text", "count", "period_s"),
    [("500/day", 500, 86400), ("6/h", 6, 3600), (" 20 / min ", 20, 60), ("2/s", 2, 1), ("10000/day", 10_000, 86400)],
)
def test_rates_are_parsed(text, count, period_s):
    rate = TypeAdapter(Rate).validate_python(text)
    assert (rate.count, rate.period_s) == (count, period_s)
    assert str(rate) == text.replace(" ", "")
    assert Rate.read(str(rate)) == Rate.read(rate) == rate
    assert re.search(TypeAdapter(Rate).json_schema()["pattern"], text)


@pytest.mark.parametrize(
    "text", ["500", 500, "0/day", "-1/h", "10001/s", "1.5/s", "5/week", "5/m", "day", "5/", "/s", None, [5]]
)
def test_invalid_rates_are_refused(text):
    with pytest.raises(ValidationError, match=r"must be 1 to 10000 in a period \(s, min, h, day\), such as 20/min or"):
        TypeAdapter(Rate).validate_python(text)
