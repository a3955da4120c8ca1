"""Signing in at a provider of OpenID Connect that runs beside the server, and by the headers of a proxy."""

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from support.oidc_provider import CLIENT, CLIENT_SECRET, oidc_provider
from support.servers import served

from streamkit.core.errors import ConfigError
from streamkit.serve.access_file import AccessFile, Grant, ProviderOptions, ProxyOptions, read_access

PIPELINE = """
sources:
  yard: {uri: "test://?width=96&height=64&frames=0", pace: 5, group: yard}
  vault: {uri: "test://?width=96&height=64&frames=0", pace: 5, group: vault}
stages: {jsonl: {path: /dev/null}}
"""
GRANTS = {
    "bosses": Grant("admin"),
    "guards": Grant("operator", ["yard"]),
    "night": Grant("operator", ["vault"]),
    "staff": Grant("viewer"),
}
START = "/api/v1/session/oidc"
ANNA = {"sub": "4711", "preferred_username": "anna", "groups": ["guards", "unknown"]}


@pytest.fixture(scope="module")
def provider():
    with oidc_provider() as running:
        yield running


@pytest.fixture(scope="module")
def shared(root, provider):
    from streamkit.serve.server import listen

    free = listen("127.0.0.1", 0)
    port = free.getsockname()[1]
    free.close()
    options = ProviderOptions(provider.issuer, CLIENT, f"http://127.0.0.1:{port}/", "the company")
    external = AccessFile(GRANTS, oidc=options)
    with served(PIPELINE, root, port=port, external=external, oidc_secret=CLIENT_SECRET) as api_server:
        yield api_server


@pytest.fixture
def server(shared, provider):
    provider.person = dict(ANNA)
    provider.spoil = {}
    provider.asked.clear()
    yield shared
    for person in shared.client.get("/api/v1/people").json():
        shared.client.delete(f"/api/v1/people/{person['name']}")


@pytest.fixture
def browser(server):
    with httpx.Client(base_url=server.url, timeout=20, verify=False) as client:
        yield client


def sign_in(browser):
    """Go to the provider and back; return the last response."""
    return browser.get(START, follow_redirects=True)


def failure(answer):
    """The code with which the page is opened after a sign-in that failed."""
    return answer.url.fragment.removeprefix("sign-in=")


# --------------------------------------------------------------------------------------------------------- the sign-in


def test_a_person_of_the_provider_signs_in_with_the_rights_of_the_groups(server, browser, provider):
    assert server.open.get("/api/v1/session").json()["provider"] == "the company"
    answer = sign_in(browser)
    assert (answer.status_code, answer.url.path, answer.url.fragment) == (200, "/", "")
    session = browser.get("/api/v1/session").json()
    assert (session["name"], session["role"], session["groups"]) == ("anna", "operator", ["yard"])
    assert not session["has_password"]
    assert [source["id"] for source in browser.get("/api/v1/sources").json()] == ["yard"]
    assert provider.asked[0]["client_id"] == CLIENT
    entries = server.client.get("/api/v1/audit", params={"who": "anna"}).json()
    assert [(entry["action"], entry["detail"]["provider"]) for entry in entries] == [("session.add", provider.issuer)]
    (person,) = server.client.get("/api/v1/people").json()
    assert (person["origin"], person["name"]) == ("provider", "anna")
    assert server.client.post("/api/v1/people/anna/reset").status_code == 409
    assert server.open.post("/api/v1/session", json={"name": "anna", "password": "x"}).status_code == 401


def test_the_next_sign_in_has_the_new_groups_and_keeps_the_person(server, browser, provider):
    sign_in(browser)
    provider.person |= {"groups": ["staff"], "preferred_username": "anna.b"}
    sign_in(browser)
    session = browser.get("/api/v1/session").json()
    assert (session["name"], session["role"], session["groups"]) == ("anna.b", "viewer", None)
    assert [person["name"] for person in server.client.get("/api/v1/people").json()] == ["anna.b"]


def test_reading_needs_a_sign_in(server):
    assert server.open.get("/api/v1/sources").status_code == 401


@pytest.mark.parametrize(
    ("person", "code"),
    [
        ({"groups": ["strangers"]}, "rights"),
        ({"groups": None}, "rights"),
        ({"preferred_username": "admin"}, "failed"),
        ({"preferred_username": "<b>"}, "failed"),
        ({"preferred_username": 5}, "failed"),
    ],
)
def test_who_has_no_rights_or_no_name_is_not_signed_in(server, browser, provider, person, code):
    provider.person |= person
    assert failure(sign_in(browser)) == code
    assert not browser.get("/api/v1/session").json()["signed_in"]


def test_the_name_of_another_person_is_not_taken(server, browser, provider):
    sign_in(browser)
    provider.person["sub"] = "another"
    assert failure(sign_in(browser)) == "failed"


# --------------------------------------------------------------------------------------------------- wrong ID tokens


@pytest.mark.parametrize(
    "spoil",
    [
        {"iss": "http://127.0.0.1:1"},
        {"aud": "another"},
        {"aud": [CLIENT, "another"]},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"nonce": "another"},
        {"exp": 1},
        {"exp": None},
        {"iat": 4e9},
        {"sub": ""},
    ],
    ids=str,
)
def test_a_wrong_id_token_is_refused(server, browser, provider, spoil):
    provider.spoil = spoil
    assert failure(sign_in(browser)) == "failed"
    assert not browser.get("/api/v1/session").json()["signed_in"]


def test_a_token_of_another_key_is_refused_and_a_new_key_of_the_provider_is_not(server, browser, provider, monkeypatch):
    published = provider.published
    provider.rotate()
    provider.published = published
    assert failure(sign_in(browser)) == "failed"
    monkeypatch.setattr("streamkit.serve.oidc._KEYS_EVERY_S", 0.0)
    provider.published = [provider.key]
    assert sign_in(browser).url.fragment == ""


# ------------------------------------------------------------------------------------------- state, code and redirects


def begun(browser):
    """Begin a sign-in; return the address to which the provider leads back."""
    at_provider = browser.get(START).headers["location"]
    query = parse_qs(urlsplit(at_provider).query)
    assert query["code_challenge_method"] == ["S256"]
    return httpx.get(at_provider).headers["location"]


def test_an_answer_is_good_once_and_in_the_browser_that_began(server, browser):
    back = begun(browser)
    with httpx.Client(base_url=server.url) as victim:
        assert victim.get(back).headers["location"] == "/#sign-in=expired"
        assert not victim.get("/api/v1/session").json()["signed_in"]
    assert browser.get(back).headers["location"] == "/"
    assert browser.get(back).headers["location"] == "/#sign-in=expired"


def test_a_code_of_another_sign_in_is_refused(server, browser):
    """The code of an attacker's sign-in has another PKCE challenge."""
    with httpx.Client(base_url=server.url) as attacker:
        code = parse_qs(urlsplit(begun(attacker)).query)["code"][0]
    state = parse_qs(urlsplit(begun(browser)).query)["state"][0]
    answer = browser.get(f"{START}/callback", params={"code": code, "state": state})
    assert answer.headers["location"] == "/#sign-in=failed"


@pytest.mark.parametrize("query", ["", "state=x&code=y", "error=access_denied", "redirect=https://evil.example"])
def test_the_way_back_leads_to_the_page_only(server, browser, query):
    assert browser.get(f"{START}/callback?{query}").headers["location"] == "/#sign-in=expired"


def test_a_refusal_of_the_provider_is_told(server, browser):
    state = parse_qs(urlsplit(begun(browser)).query)["state"][0]
    answer = browser.get(f"{START}/callback", params={"error": "access_denied", "state": state})
    assert answer.headers["location"] == "/#sign-in=denied"


def test_an_answer_that_names_another_issuer_is_refused(server, browser):
    back = f"{begun(browser)}&iss=https://evil.example"
    assert browser.get(back).headers["location"] == "/#sign-in=failed"


def test_a_sign_in_begins_with_a_new_session(server, browser):
    sign_in(browser)
    before = browser.cookies["streamkit"]
    sign_in(browser)
    assert browser.cookies["streamkit"] != before
    assert not server.open.get("/api/v1/session", headers={"cookie": f"streamkit={before}"}).json()["signed_in"]


# --------------------------------------------------------------------------------------------------- a proxy's headers

ANNAS = {"remote-user": "anna", "remote-groups": "guards, night"}


@pytest.fixture(scope="module")
def behind(root):
    external = AccessFile(GRANTS, proxy=ProxyOptions(["127.0.0.1"]))
    with served(PIPELINE, root, external=external) as api_server:
        yield api_server


def test_the_proxy_names_the_person_and_the_groups(behind):
    session = behind.open.get("/api/v1/session", headers=ANNAS).json()
    assert (session["name"], session["role"], session["groups"]) == ("anna", "operator", ["vault", "yard"])
    assert behind.open.post("/api/v1/sources/yard/pause", headers=ANNAS).status_code == 200
    who = behind.client.get("/api/v1/audit", params={"action": "sources.pause"}).json()[0]["who"]
    assert who == "anna"
    strangers = {"remote-user": "anna", "remote-groups": "strangers"}
    assert behind.open.get("/api/v1/sources", headers=strangers).status_code == 401
    assert behind.open.get("/api/v1/sources", headers={**ANNAS, "remote-user": "admin"}).status_code == 401


def test_an_address_in_forwarded_headers_is_not_that_of_the_connection(behind):
    """The proxy names its client in them: they neither give nor take the trust in the connection."""
    headers = {**ANNAS, "x-forwarded-for": "10.9.9.9"}
    assert behind.open.get("/api/v1/session", headers=headers).json()["signed_in"]


def test_a_header_that_comes_twice_is_refused(behind):
    headers = [*ANNAS.items(), ("remote-user", "ben")]
    assert behind.open.get("/api/v1/sources", headers=headers).status_code == 403


def test_another_origin_changes_nothing_with_the_proxys_sign_in(behind):
    evil = {**ANNAS, "origin": "http://127.0.0.1:1"}
    assert behind.open.post("/api/v1/sources/yard/resume", headers=evil).status_code == 401


def test_the_headers_are_refused_from_any_other_address(root):
    external = AccessFile(GRANTS, proxy=ProxyOptions(["10.1.0.0/16"]))
    with served(PIPELINE, root, external=external) as api_server:
        for headers in (ANNAS, {**ANNAS, "x-forwarded-for": "10.1.0.7"}, {"remote-groups": "bosses"}):
            answer = api_server.open.get("/api/v1/sources", headers=headers)
            assert (answer.status_code, "only the proxy" in answer.text) == (403, True)
        assert api_server.client.get("/api/v1/sources").status_code == 200


# ------------------------------------------------------------------------------------------------------------ the file

FILE = """
grants:
  bosses: {role: admin}
  guards: {role: operator, cameras: [yard]}
oidc: {issuer: "https://login.example.com", client_id: cameras, address: "https://cameras.example.com/"}
"""


def test_the_file_is_read(tmp_path):
    path = tmp_path / "access.yaml"
    path.write_text(FILE)
    path.chmod(0o644)
    access = read_access(path)
    assert access.oidc is not None
    assert access.oidc.address == "https://cameras.example.com"
    assert access.granted({"guards", "others"}) == ("operator", ("yard",))
    assert access.granted({"guards", "bosses"}) == ("admin", None)
    assert access.granted({"others"}) is None


def test_a_lower_role_never_widens_what_a_higher_one_may_do():
    access = AccessFile(GRANTS)
    assert access.granted({"guards", "staff"}) == ("operator", ("yard",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("role: admin", "role: boss"), "grants.bosses.role"),
        (("role: admin", "role: admin, cameras: [x]"), "an admin sees all cameras"),
        (("https://login", "http://login"), "issuer must begin with https://"),
        (("https://cameras", "ftp://cameras"), "address must begin with https://"),
        (("client_id", "client"), "oidc.client"),
        (("oidc:", "proxy: {addresses: [10.0.0.1]}\noidc:"), "either oidc or proxy"),
    ],
)
def test_the_problems_of_the_file_are_told_with_their_line(tmp_path, change, message):
    path = tmp_path / "access.yaml"
    path.write_text(FILE.replace(*change))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=message) as error:
        read_access(path)
    assert f"{path}:" in str(error.value)


def test_the_addresses_of_a_proxy_are_checked(tmp_path):
    path = tmp_path / "access.yaml"
    path.write_text(f"{FILE.partition('oidc')[0]}proxy: {{addresses: [10.0.0.0/8, nowhere]}}")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="'nowhere' does not appear to be an IPv4 or IPv6 network"):
        read_access(path)


def test_a_file_that_others_may_write_is_refused(tmp_path):
    path = tmp_path / "access.yaml"
    path.write_text(FILE)
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod"):
        read_access(path)
