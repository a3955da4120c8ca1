"""What each role sees of the page, tokens and sessions on it, the table of sources, and its form."""

import re

import pytest
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    PHONE,
    chromium_fixture,
    expect,
    open_page_fixture,
    shoot,
    tidy,
    tile,
    wide,
)
from support.servers import SECRET, TOKEN

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

PASSWORD = "geheim-0815"


@pytest.fixture
def create(server):
    names = []

    def new(name, role):
        names.append(name)
        return server.client.post("/api/v1/tokens", json={"name": name, "role": role}).json()["token"]

    yield new
    for name in names:
        server.client.delete(f"/api/v1/tokens/{name}")


@pytest.fixture
def view(open_page, server):
    """Open a view of the page with a token."""

    def opened(name, token=TOKEN, **options):
        page = open_page(token=token, **options)
        page.locator("#sign-out" if token else "#sign-in").wait_for()
        page.goto(f"{server.url}#/{name}")
        return page

    return opened


def row(page, text):
    return page.locator("tr").filter(has=page.locator("th, td").get_by_text(text, exact=True))


# ------------------------------------------------------------------------------------------------------------ roles


@pytest.mark.parametrize(
    ("role", "changes", "access"), [("viewer", False, False), ("operator", True, False), ("admin", True, True)]
)
def test_each_role_sees_only_its_controls(view, create, role, changes, access):
    page = view("home", create(f"my {role}", role))
    expect(page.locator("#who")).to_have_text(f"my {role} · {role}")
    expect(tile(page, "street").locator("img")).to_be_visible()
    for button in ("Pause street", "Change street", "Remove street", "Add a camera"):
        expect(page.get_by_role("button", name=button)).to_have_count(int(changes))
    expect(page.get_by_role("link", name="Access")).to_have_count(int(access))
    page.get_by_role("link", name="Sources").click()
    expect(row(page, "street").locator(".badge")).to_have_text("running")
    for button in ("Pause street", "Change street", "Add a source", "Import CSV"):
        expect(page.get_by_role("button", name=button)).to_have_count(int(changes))
    expect(page.get_by_role("link", name="Export CSV")).to_have_count(int(changes))
    address = row(page, "gate").locator(".address")
    expect(address).to_have_text("rtsp://operator:***@127.0.0.1:9/stream1?token=***" if changes else "source")
    page.goto(f"{page.url.partition('#')[0]}#/pipeline?stage=detect.postprocess")
    expect(page.get_by_role("form", name="Settings of detect.postprocess")).to_be_visible()
    expect(page.get_by_role("button", name="Apply")).to_have_count(int(changes))
    page.goto(f"{page.url.partition('#')[0]}#/access")
    if access:
        expect(page.get_by_role("heading", name="Audit log")).to_be_visible()
    else:
        expect(page.locator("#view")).to_contain_text(f"needs the role admin; my {role} is {role}")
    shoot(page, f"role-{role}")


def test_a_revoked_token_signs_the_page_out(view, create, server):
    page = view("sources", create("anna", "operator"))
    expect(page.locator("#who")).to_have_text("anna · operator")
    server.client.delete("/api/v1/tokens/anna")
    expect(page.locator("#sign-in")).to_be_visible()
    expect(page.locator("#who")).to_be_hidden()
    page.get_by_role("button", name="Pause street").click()
    expect(page.locator("#login")).to_be_visible()


def test_the_single_token_of_a_server_is_shown_as_its_role(view):
    expect(view("home").locator("#who")).to_have_text("admin")


# ----------------------------------------------------------------------------------------------------------- access


def test_a_token_is_created_shown_once_and_revoked(view, server):
    page = view("access")
    page.get_by_role("form", name="Create a token").get_by_label("Name").fill("carl")
    page.get_by_role("form", name="Create a token").get_by_label("Role").select_option("operator")
    expect(page.locator("#token-role-help")).to_contain_text("changes, pauses and records")
    page.get_by_role("button", name="Create a token").click()
    text = page.get_by_label("New token").input_value()
    assert len(text) >= 32
    session = server.open.get("/api/v1/session", headers={"authorization": f"Bearer {text}"}).json()
    assert (session["signed_in"], session["name"], session["role"]) == (True, "carl", "operator")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.get_by_role("button", name="Done").click()
    assert text not in page.content()
    shoot(page, "access")
    page.get_by_role("form", name="Create a token").get_by_label("Name").fill("carl")
    page.get_by_role("button", name="Create a token").click()
    expect(page.get_by_role("alert").filter(has_text="has a token already")).to_be_visible()
    page.get_by_role("button", name="Revoke the token of carl").click()
    page.get_by_role("button", name="Revoke", exact=True).last.click()
    expect(page.get_by_role("button", name="Revoke the token of carl")).to_have_count(0)
    assert server.open.get("/api/v1/session", headers={"authorization": f"Bearer {text}"}).json()["signed_in"] is False


def test_a_session_of_another_browser_is_ended(view, create, server):
    anna = view("home", create("anna", "viewer"))
    expect(anna.locator("#who")).to_have_text("anna · viewer")
    page = view("access")
    page.get_by_role("button", name=re.compile("End the session of anna")).click()
    expect(page.get_by_role("button", name=re.compile("End the session of anna"))).to_have_count(0)
    expect(anna.locator("#sign-in")).to_be_visible()
    expect(page.get_by_text("this browser")).to_be_visible()


def test_the_audit_log_is_filtered(view, server):
    server.client.post("/api/v1/sources/street/pause")
    server.client.post("/api/v1/sources/street/resume")
    server.client.patch("/api/v1/stages/detect.postprocess", json={"min_score": 2})
    page = view("access")
    log = page.get_by_role("region", name="Audit log")
    expect(log.get_by_text("sources.resume").first).to_be_visible()
    page.get_by_label("Result").select_option("rejected")
    page.get_by_role("button", name="Show").click()
    expect(log.get_by_text("sources.resume")).to_have_count(0)
    expect(log.get_by_text("stages.change").first).to_be_visible()
    expect(log.get_by_text("0 to 1").first).to_be_visible()
    page.get_by_label("Result").select_option("all")
    page.get_by_label("Topic").select_option("sources")
    page.get_by_label("Contains").fill("street")
    page.get_by_role("button", name="Show").click()
    expect(log.get_by_text("sources.resume").first).to_be_visible()
    expect(log.get_by_text("stages.change")).to_have_count(0)
    page.get_by_label("Who").fill("nobody")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No entries.")).to_be_visible()


@pytest.mark.parametrize("name", ["sources", "access"])
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_the_views_fit_a_phone(view, name, scheme):
    page = view(name, viewport=PHONE, color_scheme=scheme)
    expect(page.locator(".list:visible").first).to_be_visible()
    page.wait_for_timeout(500)
    assert wide(page) <= 0
    shoot(page, f"{name}-phone-{scheme}")


# ---------------------------------------------------------------------------------------------------------- sources


def test_sources_are_paused_and_removed_in_the_table(view, server):
    server.client.post("/api/v1/sources", json={"id": "yard", "uri": "test://", "options": {"pace": 10}})
    page = view("sources")
    yard = row(page, "yard")
    expect(yard.locator(".badge")).to_have_text("running")
    expect(yard.locator(".fps")).not_to_have_text("0.0")
    page.get_by_role("button", name="Pause yard").click()
    expect(yard.locator(".badge")).to_have_text("paused")
    page.get_by_role("button", name="Resume yard").click()
    expect(yard.locator(".badge")).to_have_text("running")
    expect(row(page, "gate").locator(".message")).to_contain_text("connection refused")
    page.get_by_role("button", name="Remove yard").click()
    page.get_by_role("button", name="Remove", exact=True).last.click()
    expect(yard).to_have_count(0)
    assert server.source("yard") == {}


def test_a_camera_is_tested_and_then_added_with_options_from_fields(view, server, rtsp, test_data):
    camera = rtsp({"gate": test_data / "videos" / "vtest_480x360.mp4"}, user="ann", password=PASSWORD)
    page = view("sources")
    page.get_by_role("button", name="Add a source").click()
    box = page.locator("#camera")
    box.get_by_label("Id", exact=True).fill("cam")
    box.get_by_label("Address").fill(camera.url("gate", password="wrong-one"))
    box.get_by_role("button", name="Test the connection").click()
    expect(box.locator(".tested")).to_contain_text("does not work (auth)")
    shoot(page, "test-fails")
    box.get_by_label("Address").fill(camera.url("gate"))
    expect(box.locator(".tested")).to_be_empty()
    box.get_by_label("transport").select_option("tcp")
    box.get_by_label("timeout", exact=True).fill("5s")
    box.get_by_label("reconnect", exact=True).select_option("set below")
    box.get_by_label("max_backoff").fill("2s")
    box.get_by_label("attempts").fill("7")
    box.locator("summary").click()
    box.get_by_label("loop", exact=True).select_option("this many times")
    box.get_by_label("How many times").fill("3")
    box.get_by_label("keyframes", exact=True).select_option("on")
    box.get_by_role("button", name="Test the connection").click()
    expect(box.locator(".tested")).to_contain_text("h264 · 480 × 360")
    image = box.locator(".tested img")
    expect(image).to_be_visible()
    assert image.evaluate("one => one.naturalWidth") == 480
    shoot(page, "test-works")
    box.locator("#camera-save").click()
    expect(box).to_have_count(0)
    expect(row(page, "cam").locator(".badge")).to_have_text("running")
    assert PASSWORD not in page.content()
    assert server.source("cam")["options"] == {
        "transport": "tcp",
        "timeout": "5s",
        "reconnect": {"max_backoff": "2s", "attempts": 7},
        "loop": 3,
        "keyframes": True,
    }
    page.wait_for_timeout(1200)
    page.get_by_role("button", name="Change cam").click()
    assert box.get_by_label("attempts").input_value() == "7"
    box.get_by_role("button", name="Test the connection").click()  # with the password that the page does not know
    expect(box.locator(".tested")).to_contain_text("The connection works.")


def test_sources_are_imported_from_csv(view, server):
    page = view("sources")
    page.get_by_role("button", name="Import CSV").click()
    box = page.locator("#csv")
    text = f"id,uri,timeout\none,rtsp://u:{SECRET}@127.0.0.1:9/a,3s\na b,test://,\ntwo,test://,3s\n"
    box.locator("#csv-file").set_input_files([{"name": "s.csv", "mimeType": "text/csv", "buffer": text.encode()}])
    expect(box.get_by_role("status")).to_have_text("1 of 3 can be added.")
    expect(box.locator("tr", has=page.get_by_role("cell", name="a b", exact=True)).locator(".problem")).to_contain_text(
        "an id consists of"
    )
    expect(box.locator("tr", has=page.get_by_role("cell", name="two", exact=True)).locator(".problem")).to_contain_text(
        "timeout"
    )
    expect(box.locator("tr", has=page.get_by_role("cell", name="one", exact=True)).locator(".problem")).to_have_text(
        "none"
    )
    expect(box.get_by_role("button", name="Add all, or none")).to_be_disabled()
    shoot(page, "csv")
    box.get_by_label("Or paste it here").fill(
        text.replace("a b", "ab").replace("timeout\n", "every\n").replace("3s", "2")
    )
    box.get_by_role("button", name="Check").click()
    expect(box.get_by_role("status")).to_have_text("3 of 3 can be added.")
    box.get_by_role("button", name="Add all, or none").click()
    expect(box).to_have_count(0)
    for name in ("one", "ab", "two"):
        expect(row(page, name)).to_be_visible()
    assert SECRET not in page.content()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    exported = download.value.path().read_text()
    assert "one,rtsp://u:***@127.0.0.1:9/a" in exported
    assert SECRET not in exported
