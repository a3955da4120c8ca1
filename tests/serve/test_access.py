"""Each role against each route, and what a token that is revoked and a session that ends may still do."""

import re
import time
from pathlib import Path

import httpx
import pytest
from support.full_disk import small_disk
from support.roles import ADMIN, NEEDS, NOBODY, OPERATOR, VIEWER
from support.servers import TOKEN, served

from streamkit.core.errors import ConfigError
from streamkit.serve.access import Access
from streamkit.serve.sessions import IDLE_S, Sessions
from streamkit.serve.token import Token
from streamkit.serve.token_store import read_tokens

ROLES = [NOBODY, VIEWER, OPERATOR, ADMIN]


def bearer(token):
    return {"authorization": f"Bearer {token}"} if token else {}


@pytest.fixture
def create(server):
    """Create a token with a role; return its text."""
    made = []

    def new(role, name=None):
        name = name or f"a {role or 'nobody'} {len(made)}"
        answer = server.client.post("/api/v1/tokens", json={"name": name, "role": role})
        assert answer.status_code == 201, answer.text
        made.append(name)
        return answer.json()["token"]

    yield new
    for name in made:
        server.client.delete(f"/api/v1/tokens/{name}")


@pytest.fixture
def browser(server):
    """Sign a browser in with a token; return its client."""
    opened = []

    def new(token, **headers):
        client = httpx.Client(base_url=server.url, timeout=20, headers=headers)
        opened.append(client)
        assert client.post("/api/v1/session", json={"token": token}).status_code == 204
        return client

    yield new
    for one in opened:
        one.close()


# ------------------------------------------------------------------------------------------------ roles and routes


def test_the_table_has_every_route(server):
    paths = server.open.get("/openapi.json").json()["paths"]
    assert {(verb.upper(), path) for path, calls in paths.items() for verb in calls} == set(NEEDS)


@pytest.mark.parametrize(("method", "path"), NEEDS, ids=[" ".join(one) for one in NEEDS])
def test_no_role_may_more_than_the_table_says(server, create, method, path):
    """The path names things that are not there, so that an allowed request changes nothing either."""
    where = re.sub(r"\{\w+\}", "987654", path)
    for role in ROLES:
        token = create(role) if role else ""
        allowed = ROLES.index(role) >= ROLES.index(NEEDS[method, path])
        with server.open.stream(method, where, headers=bearer(token)) as answer:
            if allowed:  # a stream of events has no end, so that its body is not read
                assert answer.status_code not in (401, 403), role
                continue
            answer.read()
            assert answer.status_code == (403 if role else 401), (role, answer.text)
            if role:
                assert f"needs the role {NEEDS[method, path]}" in answer.json()["error"]
                assert f"is {role}" in answer.json()["error"]


def test_only_operators_see_addresses(server, create):
    for role in ROLES:
        headers = bearer(create(role) if role else "")
        shown = server.open.get("/api/v1/sources", headers=headers).json()
        assert [bool(one["address"]) for one in shown] == [role in (OPERATOR, ADMIN)] * 2


# --------------------------------------------------------------------------------------------------------- sessions


def test_a_session_knows_its_role_and_is_another_for_each_browser(server, create, browser):
    token = create(VIEWER, "anna")
    one, other = browser(token), browser(token, **{"user-agent": "Phone"})
    assert one.get("/api/v1/session").json() == {"signed_in": True, "name": "anna", "role": "viewer"}
    assert one.cookies["streamkit"] != other.cookies["streamkit"]
    assert token not in str(one.cookies)
    assert one.get("/api/v1/sources/street/snapshot.jpg").status_code == 200
    assert one.post("/api/v1/sources/street/pause").status_code == 403
    listed = one.get("/api/v1/sessions").json()
    assert [(found["name"], found["own"]) for found in listed if found["own"]] == [("anna", True)]
    assert {found["name"] for found in listed} == {"anna"}  # not those of others
    assert "Phone" in {found["agent"] for found in listed}
    assert all(found["address"] == "127.0.0.1" for found in listed)
    assert one.cookies["streamkit"] not in str(listed)


def test_signing_out_ends_the_session_and_not_only_the_cookie(server, create, browser):
    client = browser(create(VIEWER))
    cookie = {"cookie": f"streamkit={client.cookies['streamkit']}"}
    assert server.open.get("/api/v1/sessions", headers=cookie).status_code == 200
    assert client.delete("/api/v1/session").status_code == 204
    assert server.open.get("/api/v1/sessions", headers=cookie).status_code == 401


def test_signing_in_again_ends_the_session_before(server, create, browser):
    client = browser(create(VIEWER))
    old = {"cookie": f"streamkit={client.cookies['streamkit']}"}
    assert client.post("/api/v1/session", json={"token": TOKEN}).status_code == 204
    assert client.get("/api/v1/session").json()["role"] == "admin"
    assert server.open.get("/api/v1/session", headers=old).json()["signed_in"] is False


def test_another_origin_neither_ends_a_session_nor_changes_anything(create, browser):
    client = browser(create(ADMIN))
    evil = {"origin": "http://127.0.0.1:1"}
    assert client.post("/api/v1/tokens", json={"name": "x", "role": "admin"}, headers=evil).status_code == 401
    cookie = {"cookie": f"streamkit={client.cookies['streamkit']}"}
    client.delete("/api/v1/session", headers=evil)
    assert client.get("/api/v1/session", headers=cookie).json()["signed_in"]


def test_an_admin_ends_any_session_and_others_only_those_of_their_token(server, create, browser):
    anna, ben = browser(create(OPERATOR, "anna")), browser(create(VIEWER, "ben"))
    ids = {one["name"]: one["id"] for one in server.client.get("/api/v1/sessions").json()}
    assert anna.delete(f"/api/v1/sessions/{ids['ben']}").status_code == 404
    assert ben.get("/api/v1/session").json()["signed_in"]
    assert server.client.delete(f"/api/v1/sessions/{ids['ben']}").status_code == 204
    assert not ben.get("/api/v1/session").json()["signed_in"]
    assert anna.delete(f"/api/v1/sessions/{ids['anna']}").status_code == 204
    assert anna.get("/api/v1/sessions").status_code == 401


# ----------------------------------------------------------------------------------------------------------- tokens


def test_a_revoked_token_is_over_at_once_with_its_sessions(server, create, browser):
    token = create(OPERATOR, "anna")
    client = browser(token)
    assert server.open.get("/api/v1/sessions", headers=bearer(token)).status_code == 200
    assert server.client.delete("/api/v1/tokens/anna").status_code == 204
    assert server.open.get("/api/v1/sessions", headers=bearer(token)).status_code == 401
    assert client.post("/api/v1/sources/street/pause").status_code == 401
    assert client.get("/api/v1/session").json() == {"signed_in": False, "name": "", "role": ""}
    assert server.open.post("/api/v1/session", json={"token": token}).status_code == 401
    create(VIEWER, "anna")  # under the same name
    assert not client.get("/api/v1/session").json()["signed_in"]


@pytest.mark.parametrize("with_cookie", [True, False])
def test_a_live_stream_ends_when_its_token_is_revoked(server, create, browser, with_cookie, caplog):
    token = create(VIEWER, "anna")
    client = browser(token)
    headers = {} if with_cookie else bearer(token)
    with (client if with_cookie else server.open).stream(
        "GET", "/api/v1/sources/street/live.mjpg", headers=headers
    ) as answer:
        parts = answer.iter_raw()
        next(parts)
        server.client.delete("/api/v1/tokens/anna")
        for _ in parts:  # it would never end
            pass
    assert "ASGI" not in caplog.text  # to the web server it is a response like others


def test_tokens_are_listed_without_their_texts(server, create, browser):
    text = create(VIEWER, "anna")
    browser(text)
    answer = server.client.get("/api/v1/tokens")
    assert text not in answer.text
    found = {one["name"]: one for one in answer.json()}
    assert (found["admin"]["role"], found["admin"]["origin"]) == ("admin", "server")
    assert (found["anna"]["origin"], found["anna"]["created_by"], found["anna"]["sessions"]) == ("page", "admin", 1)
    assert abs(found["anna"]["created_s"] - time.time()) < 60


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"name": "admin", "role": "viewer"}, 409, "has a token already"),
        ({"name": "a/b", "role": "viewer"}, 422, "a name has"),
        ({"name": " a", "role": "viewer"}, 422, "a name has"),
        ({"name": "", "role": "viewer"}, 422, "name"),
        ({"name": "x" * 65, "role": "viewer"}, 422, "name"),
        ({"name": "x", "role": "root"}, 422, "viewer"),
        ({"name": "x"}, 422, "role"),
        ({"name": "x", "role": "viewer", "token": "mine"}, 422, "token"),
    ],
)
def test_a_token_that_cannot_be_created_says_why(server, body, status, words):
    answer = server.client.post("/api/v1/tokens", json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_what_cannot_be_revoked_says_why(server):
    assert server.client.delete("/api/v1/tokens/nobody").status_code == 404
    answer = server.client.delete("/api/v1/tokens/admin")
    assert answer.status_code == 409
    assert "--token" in answer.json()["error"]
    assert server.client.get("/api/v1/tokens").status_code == 200


def test_tokens_outlive_a_restart_and_those_of_a_file_are_there(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    file = tmp_path / "tokens.yaml"
    file.write_text("- {name: carl, role: operator, token: the token of carl}\n")
    file.chmod(0o600)
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    options = {"data": tmp_path / "data", "tokens": read_tokens(file)}
    with served(text, root, **options) as one:
        anna = one.client.post("/api/v1/tokens", json={"name": "anna", "role": "viewer"}).json()["token"]
        assert one.client.post("/api/v1/tokens", json={"name": "carl", "role": "viewer"}).status_code == 409
    with served(text, root, **options) as one:
        for token, name, role in ((anna, "anna", "viewer"), ("the token of carl", "carl", "operator")):
            known = one.open.get("/api/v1/session", headers=bearer(token)).json()
            assert known == {"signed_in": True, "name": name, "role": role}
        assert one.client.delete("/api/v1/tokens/carl").status_code == 409
        listed = one.client.get("/api/v1/audit?action=tokens.add").json()
        assert [(entry["who"], entry["target"]) for entry in listed] == [("admin", "carl"), ("admin", "anna")]
    assert "the token of carl" not in "".join(
        path.read_text(errors="replace") for path in (tmp_path / "data").iterdir()
    )


def test_a_file_has_no_token_called_admin(tmp_path):
    file = tmp_path / "tokens.yaml"
    file.write_text("- {name: admin, role: viewer, token: the token of admin}\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="'admin' is that of --token"):
        Access(Token(TOKEN), read_tokens(file))


def test_a_session_of_a_token_that_another_process_revoked_is_over(tmp_path):
    store = tmp_path / "tokens.json"
    one, other = Access(Token(TOKEN), store=store), Access(Token(TOKEN), store=store)
    who = one.with_token(one.create("anna", "viewer", "admin"))
    cookie = {"streamkit": one.sessions.open(who.key, "", "")}
    opened = one.with_cookie(cookie)
    assert one.active(opened)
    other.revoke("anna")
    assert not one.active(opened)
    assert not one.active(who)
    assert one.with_cookie(cookie) is None
    assert one.sessions.all() == []
    who = one.with_token(one.create("ben", "viewer", "admin"))
    one.sessions.open(who.key, "", "")
    one.revoke("ben")
    assert one.sessions.all() == []


def test_an_idle_session_is_not_active():
    class Clock:
        now_s = 1000.0

        def __call__(self):
            return self.now_s

    clock = Clock()
    access = Access(Token(TOKEN), sessions=Sessions(clock))
    who = access.with_cookie({"streamkit": access.sessions.open(access.with_token(TOKEN).key, "", "")})
    assert (who.name, access.active(who)) == ("admin", True)
    clock.now_s += IDLE_S + 1
    assert not access.active(who)


# ------------------------------------------------------------------------------------------------------------ audit


def audit(server, **filters):
    return server.client.get("/api/v1/audit", params=filters).json()


def test_every_change_is_in_the_log_with_who_and_where_and_its_outcome(server, create, browser):
    dora = browser(create(OPERATOR, "dora"), **{"x-forwarded-for": "203.0.113.9"})
    server.until(lambda: audit(server, who="dora"))  # it is written after the answer
    try:
        new = {"id": "yard", "uri": "rtsp://u:geheim-4711@127.0.0.1:9/x", "options": {"timeout": "3s"}}
        assert dora.post("/api/v1/sources", json=new).status_code == 201
        assert dora.put("/api/v1/sources/yard", json={"options": {"timeout": "4s"}}).status_code == 200
        assert dora.post("/api/v1/sources/yard/pause").status_code == 200
        assert dora.patch("/api/v1/stages/detect.postprocess", json={"min_score": 2}).status_code == 422
        assert dora.post("/api/v1/tokens", json={"name": "x", "role": "admin"}).status_code == 403
        assert dora.delete("/api/v1/sources/yard").status_code == 204
        assert dora.delete("/api/v1/session").status_code == 204
    finally:
        server.client.delete("/api/v1/sources/yard")
    server.until(lambda: audit(server, who="dora")[0]["action"] == "session.remove")  # it is written after the answer
    found = audit(server, who="dora")[::-1]
    assert [(one["action"], one["target"], one["status"]) for one in found] == [
        ("session.add", "dora", 204),
        ("sources.add", "yard", 201),
        ("sources.change", "yard", 200),
        ("sources.pause", "yard", 200),
        ("stages.change", "detect.postprocess", 422),
        ("tokens.add", "", 403),
        ("sources.remove", "yard", 204),
        ("session.remove", "", 204),
    ]
    assert {(one["role"], one["address"]) for one in found} == {("operator", "203.0.113.9")}
    assert found[1]["detail"] == {"uri": "rtsp://u:***@127.0.0.1:9/x", "options": {"timeout": "3s"}}
    assert found[2]["detail"] == {"options": {"timeout": "4s"}}
    assert found[4]["detail"] == {"values": {"min_score": 2}}
    assert "0 to 1" in found[4]["outcome"]
    assert "needs the role admin" in found[5]["outcome"]
    assert {one["outcome"] for one in found if one["status"] < 400} == {"done"}
    assert [one["number"] for one in audit(server, who="dora", failed=True)] == [found[5]["number"], found[4]["number"]]


def test_reading_and_what_strangers_try_is_not_in_the_log_but_a_wrong_token_is(server):
    def new():
        """Without those of the administrator, which another test has made and which may come late."""
        return [one for one in audit(server) if one["number"] > before and one["who"] != "admin"]

    before = audit(server, limit=1)[0]["number"]
    server.client.get("/api/v1/sources")
    server.open.get("/api/v1/sources")
    server.open.post("/api/v1/sources/street/pause")
    assert new() == []
    headers = {"x-forwarded-for": "203.0.113.66"}
    for n in range(5):
        server.open.post("/api/v1/session", json={"token": f"geheim-4711 {n}"}, headers=headers)
    (entry,) = new()  # one a second
    assert (entry["who"], entry["action"], entry["status"]) == ("", "session.add", 401)
    assert entry["address"] == "203.0.113.66"


def test_on_a_full_disk_tokens_are_refused_and_changes_are_audited_later(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    with small_disk(tmp_path / "disk") as disk:
        text += f"\nstate: {disk.folder}/state.db"
        with served(text, root, data=tmp_path / "data") as one:
            one.running("cam")
            disk.fill()
            refused = one.client.post("/api/v1/sources/cam/pause")
            assert refused.status_code == 409
            assert "state.db: database or disk is full; free some space on its disk" in refused.json()["error"]
            assert one.source("cam")["state"] == "running"
            refused = one.client.delete("/api/v1/sources/cam")
            assert (refused.status_code, one.source("cam")["state"]) == (409, "running")
            disk.free()
            assert one.client.post("/api/v1/sources/cam/pause").status_code == 200
    with small_disk(tmp_path / "disk") as disk, served(text.partition("\nstate")[0], root, data=disk.folder) as one:
        disk.fill()
        refused = one.client.post("/api/v1/tokens", json={"name": "anna", "role": "operator"})
        assert refused.status_code == 503
        assert "tokens.json: No space left on device; give another folder with --data" in refused.json()["error"]
        for _ in range(20):
            assert one.client.put("/api/v1/sources/cam", json={"uri": "test://"}).status_code == 200
        problem = one.until(
            lambda: next((p for p in one.client.get("/api/v1/status").json()["problems"] if p["kind"] == "audit"), None)
        )
        assert problem["severity"] == "error"
        assert problem["text"].startswith("the audit log is not written: ")
        disk.free()
        assert sorted(path.name for path in disk.folder.glob(".*")) == []
        entries = one.until(lambda: len(found := audit(one, limit=50)) == 21 and found)
        assert [entry["action"] for entry in entries] == ["sources.change"] * 20 + ["tokens.add"]
        assert (entries[-1]["status"], entries[-1]["outcome"]) == (503, refused.json()["error"])
        one.until(lambda: "audit" not in [p["kind"] for p in one.client.get("/api/v1/status").json()["problems"]])


def test_no_secret_is_in_any_file_of_the_server(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    secret = "geheim-4711"
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root, data=tmp_path / "data") as one:
        token = one.client.post("/api/v1/tokens", json={"name": "anna", "role": "operator"}).json()["token"]
        cookie = one.open.post("/api/v1/session", json={"token": token}).headers["set-cookie"]
        one.open.post("/api/v1/session", json={"token": f"{secret} as a token"})
        uris = [f"rtsp://u:{secret}@127.0.0.1:9/x", f"rtsp://127.0.0.1:9/user=a_password={secret}?pass={secret}"]
        for n, uri in enumerate(uris):
            new = {"id": f"c{n}", "uri": uri, "options": {"timeout": f"rtsp://u:{secret}@h"}}
            one.client.post("/api/v1/sources", json=new)
            one.client.post("/api/v1/sources", json={**new, "options": {}})
            one.client.put(f"/api/v1/sources/c{n}", json={"uri": uri})
            one.client.post("/api/v1/sources/test", json={"uri": uri, "options": {"timeout": "1s"}})
            one.client.post("/api/v1/sources.csv", json={"csv": f"id,uri\nd{n},{uri}\n", "mode": "valid"})
        assert len(one.client.get("/api/v1/audit").json()) >= 12
    for path in Path(tmp_path / "data").iterdir():
        stored = path.read_bytes()
        for word in (secret, token, TOKEN, cookie.partition("=")[2].partition(";")[0]):
            assert word.encode() not in stored, path
        assert path.stat().st_mode & 0o077 == 0


def test_another_admin_token_ends_the_sessions_of_the_one_before(tmp_path):
    def access(text):
        return Access(Token(text), sessions=Sessions(path=tmp_path / "sessions.json"))

    first = access(TOKEN)
    cookies = {"streamkit": first.sessions.open(first.with_token(TOKEN).key, "", "")}
    assert access(TOKEN).with_cookie(cookies).name == "admin"
    assert access("another long token").with_cookie(cookies) is None
