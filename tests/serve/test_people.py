"""People with passwords: from the first sign-in to the last, and what a stranger learns about them."""

import itertools
import time

import httpx
import pytest
from support.servers import PIPELINE, TOKEN, served

from streamkit.serve.passwords import MIN_LENGTH, check_password, one_time_password
from streamkit.serve.people import PeopleStore

PASSWORD = "correct horse battery"
OTHER = "another horse entirely"
ADDRESSES = itertools.count(1)


@pytest.fixture(scope="module")
def shared(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(PIPELINE, root) as api_server:
            yield api_server


@pytest.fixture
def server(shared):
    """A server without people and without counted attempts."""
    yield shared
    for person in shared.client.get("/api/v1/people").json():
        shared.client.delete(f"/api/v1/people/{person['name']}")


@pytest.fixture
def browser(server):
    opened = []

    def new(**headers):
        headers = {"x-forwarded-for": f"10.0.0.{next(ADDRESSES)}", **headers}  # attempts count for each address
        client = httpx.Client(base_url=server.url, timeout=20, headers=headers, verify=False)
        opened.append(client)
        return client

    yield new
    for client in opened:
        client.close()


def create(server, name="anna", role="viewer", groups=None):
    answer = server.client.post("/api/v1/people", json={"name": name, "role": role, "groups": groups})
    assert answer.status_code == 201, answer.text
    return answer.json()["password"]


def sign_in(client, name="anna", password=PASSWORD, **new):
    return client.post("/api/v1/session", json={"name": name, "password": password, **new})


def signed_in(server, client, name="anna", role="viewer", groups=None):
    """Create a person who has chosen a password, and sign a browser in."""
    answer = sign_in(client, name, create(server, name, role, groups), new_password=PASSWORD)
    assert answer.status_code == 204, answer.text
    return client


# -------------------------------------------------------------------------------------------------- the first sign-in


def test_a_one_time_password_must_be_replaced_at_the_first_sign_in(server, browser):
    password = create(server, "anna", "operator")
    client = browser()
    answer = sign_in(client, "anna", password)
    assert answer.status_code == 409
    assert "choose a new one" in answer.json()["error"]
    assert not client.cookies
    assert sign_in(client, "anna", password, new_password=password).status_code == 422
    assert sign_in(client, "anna", password, new_password="short").status_code == 422
    assert sign_in(client, "anna", password, new_password=PASSWORD).status_code == 204
    session = client.get("/api/v1/session").json()
    assert (session["name"], session["role"], session["has_password"]) == ("anna", "operator", True)
    assert sign_in(browser(), "anna", password, new_password=OTHER).status_code == 401
    assert sign_in(browser(), "ANNA").status_code == 204


def test_a_one_time_password_is_valid_for_seven_days(tmp_path):
    now_s = [1e9]
    store = PeopleStore(tmp_path / "people.json", clock=lambda: now_s[0])
    person = store.create("anna", "viewer", None, "admin", "a hash")
    now_s[0] += 7 * 86_400 - 1
    assert not store.expired(person)
    now_s[0] += 2
    assert store.expired(person)
    assert not store.expired(store.choose(person, "another hash"))


def test_one_time_passwords_keep_the_rules_and_differ():
    passwords = {one_time_password() for _ in range(20)}
    assert len(passwords) == 20
    for password in passwords:
        check_password(password, "anna")


@pytest.mark.parametrize(
    ("password", "rule"),
    [
        ("x" * (MIN_LENGTH - 1), "12 to 256 characters, got 11"),
        ("y" * 257, "12 to 256 characters, got 257"),
        ("Annabella-1234", "name with a few characters more"),
        ("aaaabbbbaaaabbbb", "at least 5 different"),
    ],
)
def test_weak_passwords_are_refused_without_repeating_them(password, rule):
    with pytest.raises(ValueError, match=rule) as error:
        check_password(password, "annabella")
    assert password not in str(error.value)


# ------------------------------------------------------------------------------------------------------- the password


def test_changing_the_password_ends_the_other_sessions_and_renews_this_one(server, browser):
    phone = signed_in(server, browser())
    desk = browser()
    assert sign_in(desk).status_code == 204
    before = desk.cookies["streamkit"]
    change = {"password": PASSWORD, "new_password": OTHER}
    assert desk.put("/api/v1/session/password", json={**change, "password": "wrong wrong wrong"}).status_code == 403
    assert desk.put("/api/v1/session/password", json=change).status_code == 204
    assert desk.get("/api/v1/session").json()["signed_in"]
    assert not phone.get("/api/v1/session").json()["signed_in"]
    old = {"cookie": f"streamkit={before}"}
    assert not server.open.get("/api/v1/session", headers=old).json()["signed_in"]
    assert sign_in(browser()).status_code == 401
    assert sign_in(browser(), password=OTHER).status_code == 204


def test_another_origin_cannot_change_a_password(server, browser):
    client = signed_in(server, browser())
    change = {"password": PASSWORD, "new_password": OTHER}
    for evil in ({"origin": "http://127.0.0.1:1"}, {"sec-fetch-site": "same-site"}):
        assert client.put("/api/v1/session/password", json=change, headers=evil).status_code == 401
    assert sign_in(browser()).status_code == 204


def test_a_token_has_no_password_to_change(server):
    answer = server.client.put("/api/v1/session/password", json={"password": "x", "new_password": PASSWORD})
    assert answer.status_code == 409


def test_an_admin_resets_a_password_which_ends_the_sessions(server, browser):
    client = signed_in(server, browser())
    password = server.client.post("/api/v1/people/anna/reset").json()["password"]
    assert not client.get("/api/v1/session").json()["signed_in"]
    assert sign_in(browser()).status_code == 401
    assert sign_in(browser(), password=password).status_code == 409
    assert sign_in(browser(), password=password, new_password=OTHER).status_code == 204


def test_signing_in_gives_a_session_that_nobody_could_have_planted(server, browser):
    create(server)
    server.client.post("/api/v1/people/anna/reset")
    client = browser()
    signed_in(server, client, "ben")
    planted = client.cookies["streamkit"]
    assert sign_in(client, "ben").status_code == 204
    assert client.cookies["streamkit"] != planted
    assert not server.open.get("/api/v1/session", headers={"cookie": f"streamkit={planted}"}).json()["signed_in"]


# ---------------------------------------------------------------------------------------------------------- strangers


def test_a_stranger_does_not_learn_who_there_is(server, browser):
    signed_in(server, browser())
    wrong = sign_in(browser(), "anna", "not the password at all")
    unknown = sign_in(browser(), "carl", "not the password at all")
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json()["error"] == unknown.json()["error"]


@pytest.mark.alone
def test_an_unknown_name_takes_as_long_as_a_wrong_password(server, browser):
    signed_in(server, browser())
    client = browser()

    def fastest_s(name):
        times = []
        for n in range(4):
            began_s = time.perf_counter()
            assert sign_in(client, name, f"a wrong password {name} {n}").status_code == 401
            times.append(time.perf_counter() - began_s)
        return min(times)

    assert fastest_s("carl") > 0.5 * fastest_s("anna")


def test_attempts_are_limited_also_at_once_and_for_the_right_password(root, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with served(PIPELINE, root, data=tmp_path) as api_server, httpx.Client(base_url=api_server.url) as client:
        signed_in(api_server, client)
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda n: sign_in(api_server.open, "anna", f"wrong {n}"), range(16)))
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses.count(401) <= 11  # ten, and one more after six seconds
        assert statuses[-1] == 429
        locked = sign_in(api_server.open)
        assert locked.status_code == 429
        assert int(locked.headers["retry-after"]) > 0
        assert client.get("/api/v1/session").json()["signed_in"]


def test_since_there_are_people_reading_needs_a_sign_in(server, browser):
    assert server.open.get("/api/v1/sources").status_code == 200
    client = signed_in(server, browser())
    for path in ("/api/v1/sources", "/api/v1/status", "/api/v1/events", "/metrics"):
        assert server.open.get(path).status_code == 401, path
        assert client.get(path).status_code == 200, path
    assert server.open.get("/api/v1/session").json()["people"]
    assert server.open.get("/live").status_code == 200
    server.client.delete("/api/v1/people/anna")
    assert not client.get("/api/v1/session").json()["signed_in"]
    assert server.open.get("/api/v1/sources").status_code == 200


def test_no_password_is_in_the_files_or_in_the_audit_log(root, tmp_path):
    with served(PIPELINE, root, data=tmp_path) as api_server, httpx.Client(base_url=api_server.url) as client:
        password = create(api_server, "anna", "operator")
        sign_in(client, "anna", password, new_password=PASSWORD)
        client.post("/api/v1/sources/street/pause")
        sign_in(api_server.open, "anna", "a wrong password")
        entries = api_server.client.get("/api/v1/audit").json()
        logged = "\n".join(api_server.logged)
    assert ("anna", "sources.pause", "street") in {
        (entry["who"], entry["action"], entry["target"]) for entry in entries
    }
    failed = [entry["target"] for entry in entries if entry["status"] == 401]
    assert failed == ["anna"]
    assert ("admin", "people.add", "anna") in {(entry["who"], entry["action"], entry["target"]) for entry in entries}
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file()).decode("latin-1")
    for secret in (password, PASSWORD, TOKEN):
        assert secret not in str(entries) + files + logged
    assert (tmp_path / "people.json").stat().st_mode & 0o077 == 0


# --------------------------------------------------------------------------------------------------------- the admins


def test_rights_change_at_once_and_names_are_of_one_person(server, browser):
    client = signed_in(server, browser())
    assert client.post("/api/v1/sources/street/pause").status_code == 403
    answer = server.client.put("/api/v1/people/anna", json={"role": "operator", "groups": ["yard", "yard"]})
    assert answer.json()["groups"] == ["yard"]
    session = client.get("/api/v1/session").json()
    assert (session["role"], session["groups"]) == ("operator", ["yard"])
    for path, name in (("people", "Anna"), ("tokens", "anna"), ("people", "admin")):
        answer = server.client.post(f"/api/v1/{path}", json={"name": name, "role": "viewer"})
        assert answer.status_code == 409, (path, name)
    assert server.client.post("/api/v1/people", json={"name": "<b>", "role": "viewer"}).status_code == 422
    admin = {"name": "carl", "role": "admin", "groups": ["yard"]}
    assert server.client.post("/api/v1/people", json=admin).status_code == 422
    (person,) = server.client.get("/api/v1/people").json()
    assert time.time() - person["seen_s"] < 60
    assert (person["sessions"], person["one_time"]) == (1, False)


def test_people_and_their_sessions_outlive_a_restart(root, tmp_path):
    with served(PIPELINE, root, data=tmp_path) as api_server, httpx.Client(base_url=api_server.url) as client:
        signed_in(api_server, client)
        cookie = {"cookie": f"streamkit={client.cookies['streamkit']}"}
    with served(PIPELINE, root, data=tmp_path) as api_server:
        assert api_server.open.get("/api/v1/session", headers=cookie).json()["name"] == "anna"
