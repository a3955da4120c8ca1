"""Who may change things and see pictures."""

import pytest

from streamkit.serve.token import COOKIE, Token

TEXT = "a token of the tests"


def bearer(text):
    return {"authorization": f"Bearer {text}"}


def test_a_token_is_made_where_none_is_given():
    one, other = Token(), Token()
    assert one.generated
    assert one.text != other.text
    assert len(one.text) >= 32
    assert not Token(TEXT).generated


def test_a_token_that_could_be_guessed_is_refused():
    with pytest.raises(ValueError, match=r"at least 16 characters, got 5"):
        Token("short")


@pytest.mark.parametrize(
    "headers",
    [{}, bearer(""), bearer("wrong"), bearer(TEXT + "x"), {"authorization": f"Basic {TEXT}"}, bearer("\udce4")],
)
def test_what_is_not_the_token_is_refused(headers):
    assert not Token(TEXT).allows("GET", headers, {})


def test_the_header_allows():
    assert Token(TEXT).allows("DELETE", bearer(TEXT), {})
    assert Token(TEXT).allows("DELETE", {"authorization": f"bearer {TEXT}"}, {})


def test_the_cookie_allows_and_does_not_hold_the_token():
    token = Token(TEXT)
    assert TEXT not in token.cookie
    assert token.allows("GET", {}, {COOKIE: token.cookie})
    assert not token.allows("GET", {}, {COOKIE: Token().cookie})
    assert not token.allows("GET", {}, {COOKIE: TEXT})


@pytest.mark.parametrize(
    ("method", "origin", "allowed"),
    [
        ("POST", "http://127.0.0.1:8000", True),
        ("POST", None, True),
        ("POST", "http://127.0.0.1:9000", False),
        ("DELETE", "https://evil.example", False),
        ("PATCH", "null", False),
        ("GET", "http://127.0.0.1:9000", True),
    ],
)
def test_with_the_cookie_alone_no_other_origin_changes_anything(method, origin, allowed):
    token = Token(TEXT)
    headers = {"host": "127.0.0.1:8000"} | ({"origin": origin} if origin else {})
    assert token.allows(method, headers, {COOKIE: token.cookie}) is allowed


def test_a_wrong_header_is_not_saved_by_the_cookie():
    token = Token(TEXT)
    assert not token.allows("GET", bearer("wrong"), {COOKIE: token.cookie})


def test_what_a_request_shows():
    token = Token(TEXT)
    cookie = {COOKIE: token.cookie}
    assert token.given({}, {}) == ""
    assert token.given({}, cookie) == token.cookie
    assert token.given(bearer("wrong"), cookie) == "Bearer wrong"
    assert token.given({"authorization": "Bearer "}, cookie) == token.cookie
    assert token.presented_in(bearer(TEXT), {})
    assert token.presented_in({}, cookie)
    assert not token.presented_in(bearer("wrong"), cookie)
    assert not token.presented_in({}, {})
    assert not token.presented_in({"authorization": TEXT}, {})


def test_with_the_header_another_origin_changes_things():
    """No browser sends the header by itself."""
    headers = {**bearer(TEXT), "origin": "http://elsewhere.example", "host": "127.0.0.1:8000"}
    assert Token(TEXT).allows("POST", headers, {})


def test_the_shortest_token():
    assert Token("x" * 16).text == "x" * 16
    with pytest.raises(ValueError, match="got 15"):
        Token("x" * 15)


def test_the_cookie_is_the_same_after_a_restart_and_another_for_another_token():
    assert Token(TEXT).cookie == Token(TEXT).cookie != Token(TEXT + "x").cookie
    assert len(Token(TEXT).cookie) == 64


def test_a_cookie_that_is_not_there_is_not_the_token():
    assert not Token(TEXT).allows("GET", {}, {})
    assert not Token(TEXT).allows("GET", {"authorization": "Bearer "}, {})
    assert not Token(TEXT).matches("")
    assert Token(TEXT).matches(TEXT)
