"""The admin's token, roles, and what a request shows."""

import pytest

from streamkit.serve.token import Token, bearer, covers, from_this_origin

TEXT = "a token of the tests"


def header(text):
    return {"authorization": f"Bearer {text}"}


def test_a_token_is_made_where_none_is_given():
    token = Token()
    other_token = Token()
    assert token.generated
    assert token.text != other_token.text
    assert len(token.text) >= 32
    assert not Token(TEXT).generated


def test_a_token_that_could_be_guessed_is_refused():
    with pytest.raises(ValueError, match=r"at least 16 characters, got 5"):
        Token("short")


def test_the_shortest_token():
    assert Token("x" * 16).text == "x" * 16
    with pytest.raises(ValueError, match="got 15"):
        Token("x" * 15)


@pytest.mark.parametrize("text", ["", "wrong", TEXT + "x", TEXT[:-1], TEXT.upper(), "\udce4"])
def test_what_is_not_the_token_is_refused(text):
    assert not Token(TEXT).matches(text)
    assert Token(TEXT).matches(TEXT)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ("", "")),
        (header(TEXT), (f"Bearer {TEXT}", TEXT)),
        ({"authorization": f"bearer {TEXT}"}, (f"bearer {TEXT}", TEXT)),
        ({"authorization": f"Basic {TEXT}"}, (f"Basic {TEXT}", "")),
        ({"authorization": "Bearer "}, ("", "")),
        ({"authorization": TEXT.replace(" ", "")}, ("", "")),
    ],
)
def test_what_a_request_shows(headers, expected):
    assert bearer(headers) == expected


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
    headers = {"host": "127.0.0.1:8000"} | ({"origin": origin} if origin else {})
    assert from_this_origin(method, headers) is allowed


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("", []),
        ("viewer", ["viewer"]),
        ("operator", ["viewer", "operator"]),
        ("admin", ["viewer", "operator", "admin"]),
        ("root", []),
    ],
)
def test_each_role_may_what_those_before_it_may(role, may):
    assert [covered for covered in ("viewer", "operator", "admin") if covers(role, covered)] == may
