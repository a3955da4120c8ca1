"""Wrong tokens, by address."""

import pytest
from support.clock import FakeClock

from streamkit.serve import token_attempts as module
from streamkit.serve.token_attempts import Guesses, TooManyGuesses


@pytest.fixture(name="clock")
def clock_fixture():
    return FakeClock(5000.0)


@pytest.fixture(name="guess")
def guess_fixture(clock):
    guesses = Guesses(clock)
    return lambda token, address="10.0.0.1": guesses.judge(address, token, lambda: token == "right")


def waits(guess, token, address="10.0.0.1"):
    with pytest.raises(TooManyGuesses) as rejection:
        guess(token, address)
    return rejection.value.wait_s


def test_ten_attempts_are_free_then_six_seconds_apart(guess, clock):
    assert not any(guess(f"wrong {n}") for n in range(10))
    assert waits(guess, "another") == 6
    clock.now_s += 5.9
    assert waits(guess, "another") == 1
    clock.now_s += 0.1
    assert not guess("another")
    assert waits(guess, "and another") == 6


def test_a_throttled_address_is_refused_with_the_right_token(guess, clock):
    assert guess("right")
    for n in range(10):
        guess(f"wrong {n}")
    assert waits(guess, "right") == 6
    clock.now_s += 6
    assert guess("right")
    assert guess("right")  # what is right costs nothing


def test_other_addresses_are_not_throttled(guess):
    for n in range(10):
        guess(f"wrong {n}")
    assert guess("right", "10.0.0.2")
    assert not guess("wrong", "10.0.0.2")


def test_a_repeated_expired_cookie_counts_once(guess):
    assert not any(guess("old cookie") for _ in range(1000))
    assert guess("right")
    for n in range(9):
        guess(f"wrong {n}")
    assert not guess("old cookie")  # while it waits as well: it is known to be wrong
    assert waits(guess, "new") == 6


def test_attempts_expire_after_a_minute(guess, clock):
    for n in range(10):
        guess(f"wrong {n}")
    clock.now_s += 3600
    assert not any(guess(f"later {n}") for n in range(10))
    assert waits(guess, "right") == 6


def test_an_ipv6_network_counts_as_an_address(guess):
    for n in range(10):
        guess(f"wrong {n}", f"2001:db8::{n}")
    assert waits(guess, "right", "2001:db8::ffff") == 6
    assert waits(guess, "right", "2001:db8:0:0:ffff::1%eth0") == 6
    assert guess("right", "2001:db8:0:1::1")


def test_an_ipv4_mapped_address_counts_as_ipv4(guess):
    for n in range(10):
        guess(f"wrong {n}", "::ffff:10.0.0.1")
    assert waits(guess, "right") == 6
    assert guess("right", "::ffff:10.0.0.2")
    assert not guess("wrong", "a name")


def test_memory_is_bounded_and_later_addresses_share_a_counter(monkeypatch, clock):
    monkeypatch.setattr(module, "_ADDRESSES", 20)
    guesses = Guesses(clock)
    for n in range(20):
        assert not guesses.judge(f"10.0.0.{n}", "wrong", lambda: False)
    for n in range(10):
        assert not guesses.judge(f"10.1.0.{n}", f"wrong {n}", lambda: False)
    with pytest.raises(TooManyGuesses):
        guesses.judge("10.1.0.99", "new", lambda: True)
    assert len(guesses._addresses) == 21
    clock.now_s += 60
    assert guesses.judge("10.1.0.99", "new", lambda: True)
    assert not guesses.judge("10.1.0.99", "wrong", lambda: False)
    assert set(guesses._addresses) == {"10.1.0.99"}  # addresses that have waited long enough are dropped
