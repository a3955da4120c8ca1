"""Votes over readings: by character, weighted, with missing characters."""

import math

import pytest

from streamkit.analytics.text_votes import TextVotes


def result(*readings):
    votes = TextVotes()
    for text, score, weight in readings:
        votes.add(text, [score] * len(text), weight)
    return votes.result()


def test_a_single_reading_is_the_result():
    vote = result(("AB12", 0.9, 3.0))
    assert (vote.text, vote.agreeing) == ("AB12", 1)
    assert vote.scores == pytest.approx((0.9,) * 4)
    assert vote.score == pytest.approx(0.9)


def test_each_character_is_voted_for():
    assert result(("XB12", 0.9, 1.0), ("AB1Z", 0.9, 1.0), ("AC12", 0.9, 1.0)).text == "AB12"


def test_votes_are_weighted_by_score_and_view():
    assert result(("AB12", 0.9, 1.0), ("XB12", 0.3, 1.0), ("XB12", 0.3, 1.0)).text == "AB12"
    assert result(("AB12", 0.9, 1.0), ("XB12", 0.9, 5.0), ("AB12", 0.9, 1.0)).text == "XB12"


def test_votes_add_up_and_two_weak_ones_lose_to_a_strong_one():
    assert result(("A", 0.99, 1.0), ("B", 0.7, 1.0), ("B", 0.7, 1.0)).text == "A"
    assert result(("A", 0.99, 1.0), *[("B", 0.7, 1.0)] * 4).text == "B"


def test_missing_and_additional_characters_do_not_shift_the_others():
    assert result(("AB1234", 0.8, 1.0), ("AB134", 0.9, 1.0), ("AB1234", 0.8, 1.0)).text == "AB1234"
    assert result(("AB134", 0.9, 1.0), ("AB1234", 0.8, 1.0), ("AB1234", 0.8, 1.0)).text == "AB1234"
    assert result(("AB1234", 0.9, 1.0), ("AB12X34", 0.5, 1.0)).text == "AB1234"
    assert result(("AB12334", 0.9, 1.0), ("AB1234", 0.8, 1.0), ("AB1234", 0.8, 1.0)).text == "AB1234"


def test_the_score_is_that_of_the_least_certain_character():
    vote = result(("AB12", 0.8, 1.0), ("AB17", 0.4, 1.0))
    assert vote.text == "AB12"
    against = math.log(1 - 0.4)
    pro = math.log(1 - 0.8)
    assert vote.scores == pytest.approx((0.6, 0.6, 0.6, 0.8 * pro / (pro + against)))
    assert vote.score == pytest.approx(0.6)
    assert vote.agreeing == 1


def test_the_margin_is_the_mean_of_the_readings_of_the_text():
    votes = TextVotes()
    votes.add("AB12", [0.9] * 4, 1.0, 0.8)
    assert votes.result().margin == pytest.approx(0.8)
    votes.add("AB12", [0.9] * 4, 3.0, 0.4)
    assert votes.result().margin == pytest.approx(0.5)
    votes.add("AB17", [0.5] * 4, 1.0, 0.9)
    assert votes.result() == ("AB12", votes.result().scores, 2, pytest.approx(0.4))


def test_without_readings_there_is_no_text():
    assert TextVotes().result() == ("", (), 0, 0.0)
    assert TextVotes().result().score == 0.0


def test_the_weakest_readings_are_dropped_first():
    votes = TextVotes()
    votes.add("AB12", [0.9] * 4, 10.0)
    for _ in range(40):
        votes.add("XXXX", [0.1] * 4, 1.0)
    assert len(votes) == 32
    assert votes.result().text == "AB12"
