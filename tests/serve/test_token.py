"""The admin's token, roles, and what a request shows."""

import pytest

from streamkit.serve.token import Token, bearer, covers, from_this_origin

TEXT = "a token of the tests"


def header(text):
    return {"authorization": f"Bearer {text}"}


def test_a_token_is_generated_by_default():
    token = Token()
    other_token = Token()
    assert token.generated
    assert token.text != other_token.text
    assert len(token.text) >= 32
    assert not Token(TEXT).generated


def test_a_weak_token_is_refused():
    with pytest.raises(ValueError, match=r"at least 16 characters, got 5"):
        Token("short")


def test_the_shortest_valid_token_is_accepted():
    assert Token("x" * 16).text == "x" * 16
    with pytest.raises(ValueError, match="got 15"):
        Token("x" * 15)


@pytest.mark.parametrize("text", ["", "wrong", TEXT + "x", TEXT[:-1], TEXT.upper(), "\udce4"])
def test_a_wrong_token_is_refused(text):
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
def test_a_request_shows_its_token_or_cookie(headers, expected):
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
def test_a_cookie_from_another_origin_cannot_change_anything(method, origin, allowed):
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
def test_each_role_includes_the_rights_of_lower_roles(role, may):
    assert [covered for covered in ("viewer", "operator", "admin") if covers(role, covered)] == may
