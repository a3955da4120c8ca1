"""Formats of texts: names, masks and expressions, normalization, and characters that look alike."""

import time

import pytest

from streamkit.analytics.text_patterns import NAMED, TextPattern, normalized


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("de", ["BAB1234", "MX1", "HHAB123E"], ["1234", "B12345", "BABCDE1"]),
        ("fr", ["AB123CD"], ["AB123C", "OB123CD"]),
        ("uk", ["AB12CDE"], ["AB1CDE", "QB12CDE"]),
        ("it", ["AB123CD"], ["A1123CD"]),
        ("es", ["1234BCD"], ["1234ABC"]),
        ("nl", ["AB123C", "12ABC3"], ["ABCDEF"]),
        ("pl", ["WA12345", "WAB1234"], ["1"]),
        ("at", ["W12345A", "GUABC12"], ["12"]),
        ("be", ["1ABC234", "ABC123"], ["ABCD123"]),
        ("ch", ["ZH123456"], ["Z1"]),
        ("us", ["7ABC123", "ILUVNY"], ["A"]),
        ("any", ["X1"], ["A-1"]),
        ("container", ["MSCU1234567"], ["MSCX1234567"]),
    ],
)
def test_named_formats_match_their_texts(name, good, bad):
    pattern = TextPattern(name)
    assert [text for text in good if not pattern.matches(text)] == []
    assert [text for text in bad if pattern.matches(text)] == []


def test_every_named_format_is_tested():
    names = test_named_formats_match_their_texts.pytestmark[0].args[1]
    assert {case[0] for case in names} == set(NAMED)


@pytest.mark.parametrize(
    ("mask", "good", "bad"),
    [
        ("AA-9999", "XY1234", "XY123"),
        ("A{1,3} A{1,2} 9{1,4}", "BAB1234", "1BAB"),
        ("9{4}**", "1234A5", "12345"),
        (r"EX[0-9]+|KT[A-Z]", "EX123", "EX"),
    ],
)
def test_masks_and_expressions_match(mask, good, bad):
    assert TextPattern(mask).matches(good)
    assert not TextPattern(mask).matches(bad)


@pytest.mark.parametrize("pattern", ["AB[", "(?P<a", "A{3,1}"])
def test_an_invalid_pattern_is_refused(pattern):
    with pytest.raises(ValueError, match=r"must be a name \(any, at, .*\), a mask such as AA-9999 or a regular"):
        TextPattern(pattern)


def test_a_misspelled_name_is_not_an_expression():
    with pytest.raises(ValueError, match="names no known format: 'contaner'; did you mean 'container'"):
        TextPattern("contaner")


def test_a_name_in_capitals_is_not_an_expression():
    with pytest.raises(ValueError, match="names no known format: 'DE'; did you mean 'de'"):
        TextPattern("DE")


def test_a_long_text_is_repaired_as_fast_as_a_short_one():
    started_s = time.process_time()
    assert TextPattern("de").repaired("8O1" * 30, [0.5] * 90) is None
    assert time.process_time() - started_s < 0.5
    text = "AAAAAAAAAAAAAAA8"
    assert TextPattern("A{16}").repaired(text, [0.9] * 15 + [0.4]) == "AAAAAAAAAAAAAAAB"


def test_texts_are_normalized_to_upper_case_letters_and_digits():
    assert normalized(("b", "-", "ab", " ", "1"), (0.9, 0.8, 0.7, 0.6, 0.5)) == ("BAB1", [0.9, 0.7, 0.7, 0.5])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8AB1234", "BAB1234"),
        ("BA8I2E4", None),
        ("BABI2O4", "BAB1204"),
        ("BAB1234", "BAB1234"),
        ("0AB1234", "OAB1234"),
    ],
)
def test_similar_characters_are_replaced_as_the_format_requires(text, expected):
    assert TextPattern("AAA9999").repaired(text, [0.9] * len(text)) == expected


def test_the_least_certain_character_is_replaced_first():
    either = TextPattern("A9|9A")
    assert either.matches("A9|9A") is False  # a mask has no alternatives: this is an expression
    pattern = TextPattern("[A-Z][0-9]|[0-9][A-Z]")
    assert pattern.repaired("88", [0.9, 0.4]) == "8B"
    assert pattern.repaired("88", [0.4, 0.9]) == "B8"


def test_at_most_three_characters_are_replaced():
    assert TextPattern("AAA").repaired("888", [0.5] * 3) == "BBB"
    assert TextPattern("AAAA").repaired("8888", [0.5] * 4) is None
