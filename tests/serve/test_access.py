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
    names = []

    def new(role, name=None):
        name = name or f"a {role or 'nobody'} {len(names)}"
        answer = server.client.post("/api/v1/tokens", json={"name": name, "role": role})
        assert answer.status_code == 201, answer.text
        names.append(name)
        return answer.json()["token"]

    yield new
    for name in names:
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
    for client in opened:
        client.close()


# ------------------------------------------------------------------------------------------------ roles and routes


def test_the_table_has_every_route(server):
    paths = server.open.get("/openapi.json").json()["paths"]
    assert {(verb.upper(), path) for path, calls in paths.items() for verb in calls} == set(NEEDS)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role or "no token")
def test_each_role_has_only_the_rights_of_the_table(server, create, role):
    """The paths name things that are not there, so that an allowed request changes nothing either."""
    headers = bearer(create(role) if role else "")
    for (method, path), needed in NEEDS.items():
        route = f"{method} {path}"
        with server.open.stream(method, re.sub(r"\{\w+\}", "987654", path), headers=headers) as answer:
            if ROLES.index(role) >= ROLES.index(needed):  # a stream of events has no end: its body is not read
                assert answer.status_code not in (401, 403), route
                continue
            answer.read()
            assert answer.status_code == (403 if role else 401), (route, answer.text)
            if role:
                assert f"needs the role {needed}" in answer.json()["error"], route
                assert f"is {role}" in answer.json()["error"], route


def test_only_operators_see_addresses(server, create):
    for role in ROLES:
        headers = bearer(create(role) if role else "")
        shown = server.open.get("/api/v1/sources", headers=headers).json()
        assert [bool(source["address"]) for source in shown] == [role in (OPERATOR, ADMIN)] * 2


# --------------------------------------------------------------------------------------------------------- sessions


def test_each_browser_has_a_session_with_its_role(server, create, browser):
    token = create(VIEWER, "anna")
    first = browser(token)
    second = browser(token, **{"user-agent": "Phone"})
    session = first.get("/api/v1/session").json()
    assert (session["signed_in"], session["name"], session["role"]) == (True, "anna", "viewer")
    assert first.cookies["streamkit"] != second.cookies["streamkit"]
    assert token not in str(first.cookies)
    assert first.get("/api/v1/sources/street/snapshot.jpg").status_code == 200
    assert first.post("/api/v1/sources/street/pause").status_code == 403
    listed = first.get("/api/v1/sessions").json()
    assert [(session["name"], session["own"]) for session in listed if session["own"]] == [("anna", True)]
    assert {session["name"] for session in listed} == {"anna"}  # not those of others
    assert "Phone" in {session["agent"] for session in listed}
    assert all(session["address"] == "127.0.0.1" for session in listed)
    assert first.cookies["streamkit"] not in str(listed)


def test_signing_out_ends_the_session_on_the_server(server, create, browser):
    client = browser(create(VIEWER))
    cookie = {"cookie": f"streamkit={client.cookies['streamkit']}"}
    assert server.open.get("/api/v1/sessions", headers=cookie).status_code == 200
    assert client.delete("/api/v1/session").status_code == 204
    assert server.open.get("/api/v1/sessions", headers=cookie).status_code == 401


def test_signing_in_again_ends_the_previous_session(server, create, browser):
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


def test_only_an_admin_ends_sessions_of_other_tokens(server, create, browser):
    anna = browser(create(OPERATOR, "anna"))
    ben = browser(create(VIEWER, "ben"))
    ids = {session["name"]: session["id"] for session in server.client.get("/api/v1/sessions").json()}
    assert anna.delete(f"/api/v1/sessions/{ids['ben']}").status_code == 404
    assert ben.get("/api/v1/session").json()["signed_in"]
    assert server.client.delete(f"/api/v1/sessions/{ids['ben']}").status_code == 204
    assert not ben.get("/api/v1/session").json()["signed_in"]
    assert anna.delete(f"/api/v1/sessions/{ids['anna']}").status_code == 204
    assert anna.get("/api/v1/sessions").status_code == 401


# ----------------------------------------------------------------------------------------------------------- tokens


def test_revoking_a_token_ends_its_sessions_at_once(server, create, browser):
    token = create(OPERATOR, "anna")
    client = browser(token)
    assert server.open.get("/api/v1/sessions", headers=bearer(token)).status_code == 200
    assert server.client.delete("/api/v1/tokens/anna").status_code == 204
    assert server.open.get("/api/v1/sessions", headers=bearer(token)).status_code == 401
    assert client.post("/api/v1/sources/street/pause").status_code == 401
    assert not client.get("/api/v1/session").json()["signed_in"]
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
    token_by_name = {token["name"]: token for token in answer.json()}
    assert (token_by_name["admin"]["role"], token_by_name["admin"]["origin"]) == ("admin", "server")
    assert (
        token_by_name["anna"]["origin"],
        token_by_name["anna"]["created_by"],
        token_by_name["anna"]["sessions"],
    ) == ("page", "admin", 1)
    assert abs(token_by_name["anna"]["created_s"] - time.time()) < 60


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
def test_a_failed_creation_of_a_token_names_the_reason(server, body, status, words):
    answer = server.client.post("/api/v1/tokens", json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_a_refused_revocation_names_the_reason(server):
    assert server.client.delete("/api/v1/tokens/nobody").status_code == 404
    answer = server.client.delete("/api/v1/tokens/admin")
    assert answer.status_code == 409
    assert "--token" in answer.json()["error"]
    assert server.client.get("/api/v1/tokens").status_code == 200


def test_tokens_of_the_page_and_of_a_file_survive_a_restart(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    file = tmp_path / "tokens.yaml"
    file.write_text("- {name: carl, role: operator, token: the token of carl}\n")
    file.chmod(0o600)
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    options = {"data": tmp_path / "data", "tokens": read_tokens(file)}
    with served(text, root, **options) as instance:
        anna = instance.client.post("/api/v1/tokens", json={"name": "anna", "role": "viewer"}).json()["token"]
        assert instance.client.post("/api/v1/tokens", json={"name": "carl", "role": "viewer"}).status_code == 409
    with served(text, root, **options) as instance:
        for token, name, role in ((anna, "anna", "viewer"), ("the token of carl", "carl", "operator")):
            session = instance.open.get("/api/v1/session", headers=bearer(token)).json()
            assert (session["signed_in"], session["name"], session["role"]) == (True, name, role)
        assert instance.client.delete("/api/v1/tokens/carl").status_code == 409
        listed = instance.client.get("/api/v1/audit?action=tokens.add").json()
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


def test_a_token_revoked_by_another_process_ends_its_sessions(tmp_path):
    store = tmp_path / "tokens.json"
    access = Access(Token(TOKEN), store=store)
    other_access = Access(Token(TOKEN), store=store)
    who = access.with_token(access.create("anna", "viewer", "admin"))
    cookie = {"streamkit": access.sessions.open(who.key, "", "")}
    opened = access.with_cookie(cookie)
    assert access.active(opened)
    other_access.revoke("anna")
    assert not access.active(opened)
    assert not access.active(who)
    assert access.with_cookie(cookie) is None
    assert access.sessions.all() == []
    who = access.with_token(access.create("ben", "viewer", "admin"))
    access.sessions.open(who.key, "", "")
    access.revoke("ben")
    assert access.sessions.all() == []


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


def test_every_change_is_audited_with_user_address_and_outcome(server, create, browser):
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
    entries = audit(server, who="dora")[::-1]
    assert [(entry["action"], entry["target"], entry["status"]) for entry in entries] == [
        ("session.add", "dora", 204),
        ("sources.add", "yard", 201),
        ("sources.change", "yard", 200),
        ("sources.pause", "yard", 200),
        ("stages.change", "detect.postprocess", 422),
        ("tokens.add", "", 403),
        ("sources.remove", "yard", 204),
        ("session.remove", "", 204),
    ]
    assert {(entry["role"], entry["address"]) for entry in entries} == {("operator", "203.0.113.9")}
    assert entries[1]["detail"] == {"uri": "rtsp://u:***@127.0.0.1:9/x", "options": {"timeout": "3s"}}
    assert entries[2]["detail"] == {"options": {"timeout": "4s"}}
    assert entries[4]["detail"] == {"values": {"min_score": 2}}
    assert "0 to 1" in entries[4]["outcome"]
    assert "needs the role admin" in entries[5]["outcome"]
    assert {entry["outcome"] for entry in entries if entry["status"] < 400} == {"done"}
    assert [entry["number"] for entry in audit(server, who="dora", failed=True)] == [
        entries[5]["number"],
        entries[4]["number"],
    ]


def test_wrong_tokens_are_audited_but_not_reads_or_unauthenticated_requests(server):
    def new():
        """Without those of the administrator, which another test has made and which may come late."""
        return [entry for entry in audit(server) if entry["number"] > before and entry["who"] != "admin"]

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
        with served(text, root, data=tmp_path / "data") as instance:
            instance.running("cam")
            disk.fill()
            refused = instance.client.post("/api/v1/sources/cam/pause")
            assert refused.status_code == 409
            assert "state.db: database or disk is full; free some space on its disk" in refused.json()["error"]
            assert instance.source("cam")["state"] == "running"
            refused = instance.client.delete("/api/v1/sources/cam")
            assert (refused.status_code, instance.source("cam")["state"]) == (409, "running")
            disk.free()
            assert instance.client.post("/api/v1/sources/cam/pause").status_code == 200
    with (
        small_disk(tmp_path / "disk", "1m") as disk,
        served(text.partition("\nstate")[0], root, data=disk.folder) as instance,
    ):
        disk.fill()
        refused = instance.client.post("/api/v1/tokens", json={"name": "anna", "role": "operator"})
        assert refused.status_code == 503
        assert "tokens.json: No space left on device; give another folder with --data" in refused.json()["error"]
        for _ in range(20):
            assert instance.client.put("/api/v1/sources/cam", json={"uri": "test://"}).status_code == 200
        problem = instance.until(
            lambda: next(
                (p for p in instance.client.get("/api/v1/status").json()["problems"] if p["kind"] == "audit"), None
            )
        )
        assert problem["severity"] == "error"
        assert problem["text"].startswith("the audit log is not written: ")
        disk.free()
        assert sorted(path.name for path in disk.folder.glob(".*")) == []
        entries = instance.until(lambda: len(entries_so_far := audit(instance, limit=50)) == 21 and entries_so_far)
        assert [entry["action"] for entry in entries] == ["sources.change"] * 20 + ["tokens.add"]
        assert (entries[-1]["status"], entries[-1]["outcome"]) == (503, refused.json()["error"])
        instance.until(
            lambda: "audit" not in [p["kind"] for p in instance.client.get("/api/v1/status").json()["problems"]]
        )


def test_no_secret_is_in_any_file_of_the_server(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    secret = "geheim-4711"
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root, data=tmp_path / "data") as instance:
        token = instance.client.post("/api/v1/tokens", json={"name": "anna", "role": "operator"}).json()["token"]
        cookie = instance.open.post("/api/v1/session", json={"token": token}).headers["set-cookie"]
        instance.open.post("/api/v1/session", json={"token": f"{secret} as a token"})
        uris = [f"rtsp://u:{secret}@127.0.0.1:9/x", f"rtsp://127.0.0.1:9/user=a_password={secret}?pass={secret}"]
        for n, uri in enumerate(uris):
            new = {"id": f"c{n}", "uri": uri, "options": {"timeout": f"rtsp://u:{secret}@h"}}
            instance.client.post("/api/v1/sources", json=new)
            instance.client.post("/api/v1/sources", json={**new, "options": {}})
            instance.client.put(f"/api/v1/sources/c{n}", json={"uri": uri})
            instance.client.post("/api/v1/sources/test", json={"uri": uri, "options": {"timeout": "1s"}})
            instance.client.post("/api/v1/sources.csv", json={"csv": f"id,uri\nd{n},{uri}\n", "mode": "valid"})
        assert len(instance.client.get("/api/v1/audit").json()) >= 12
    for path in Path(tmp_path / "data").iterdir():
        stored = path.read_bytes()
        for word in (secret, token, TOKEN, cookie.partition("=")[2].partition(";")[0]):
            assert word.encode() not in stored, path
        assert path.stat().st_mode & 0o077 == 0


def test_a_new_admin_token_ends_the_sessions_of_the_previous_one(tmp_path):
    def access(text):
        return Access(Token(text), sessions=Sessions(path=tmp_path / "sessions.json"))

    first = access(TOKEN)
    cookies = {"streamkit": first.sessions.open(first.with_token(TOKEN).key, "", "")}
    assert access(TOKEN).with_cookie(cookies).name == "admin"
    assert access("another long token").with_cookie(cookies) is None
