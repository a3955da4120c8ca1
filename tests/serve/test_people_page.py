"""People on the page: an admin creates a person, who signs in, chooses a password and changes it."""

import pytest
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    PHONE,
    chromium_fixture,
    expect,
    open_page_fixture,
    shoot,
    wide,
)
from support.servers import served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

PIPELINE = """
sources:
  yard: {uri: "test://?width=96&height=64&frames=0", pace: 5, group: yard, name: The yard}
  vault: {uri: "test://?width=96&height=64&frames=0", pace: 5, group: vault}
stages: {jsonl: {path: /dev/null}}
"""
PASSWORD = "correct horse battery"
OTHER = "another horse entirely"


@pytest.fixture(scope="module")
def server(root):
    with served(PIPELINE, root) as api_server:
        yield api_server


@pytest.fixture(autouse=True)
def no_people(server):
    yield
    for person in server.client.get("/api/v1/people").json():
        server.client.delete(f"/api/v1/people/{person['name']}")


def findings(page):
    """What axe finds, and whether the page is wider than the window."""
    axe = pytest.importorskip("axe_playwright_python.base", reason="no axe; pip install axe-playwright-python")
    page.add_script_tag(path=axe.AXE_FILE_PATH)
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [violation["id"] for violation in result["violations"]], max(0, wide(page))


def test_a_person_is_created_and_signs_in(open_page, server):
    page = open_page(view="access", bypass_csp=True)
    form = page.get_by_role("form", name="Create a person")
    expect(page.get_by_text("There are no people yet")).to_be_visible()
    form.get_by_label("Name").fill("anna")
    form.get_by_label("Role").select_option("operator")
    expect(form.get_by_text("There are: vault, yard")).to_be_visible()
    form.get_by_label("Camera groups").fill("yard")
    form.get_by_role("button").click()
    password = page.get_by_label("One-time password").input_value()
    shoot(page, "people-once")
    page.get_by_role("button", name="Done").click()
    row = page.locator("section[aria-labelledby=people-title] tr").filter(has_text="anna")
    expect(row).to_contain_text("has not signed in yet")
    shoot(page, "people-access")
    assert findings(page) == ([], 0)

    anna = open_page(token="", viewport=PHONE, bypass_csp=True)
    login = anna.locator("#login")
    expect(login).to_be_visible()
    login.get_by_label("Name").fill("anna")
    login.get_by_label("Password", exact=True).fill(password)
    shoot(anna, "people-login")
    login.get_by_role("button", name="Sign in", exact=True).click()
    expect(login.get_by_label("New password")).to_be_focused()
    login.get_by_label("New password").fill(PASSWORD)
    shoot(anna, "people-login-new")
    assert findings(anna) == ([], 0)
    anna.keyboard.press("Enter")
    expect(anna.locator("#who")).to_have_text("anna · operator")
    expect(anna.locator(".tile")).to_have_count(1)
    expect(row).not_to_contain_text("has not signed in yet")

    row.get_by_role("button", name="Change anna").click()
    page.get_by_role("dialog").get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Save").click()
    expect(anna.locator("#who")).to_have_text("anna · viewer")
    row.get_by_role("button", name="Remove anna").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(row).to_have_count(0)
    expect(anna.locator("#sign-in")).to_be_visible()


def test_a_person_changes_the_own_password(open_page, server):
    password = server.client.post("/api/v1/people", json={"name": "ben", "role": "viewer"}).json()["password"]
    credentials = {"name": "ben", "password": password, "new_password": PASSWORD}
    assert server.open.post("/api/v1/session", json=credentials).status_code == 204
    server.open.cookies.clear()
    page = open_page(token="", viewport=PHONE, color_scheme="dark", bypass_csp=True)
    page.locator("#login").get_by_label("Name").fill("ben")
    page.locator("#login-password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#who")).to_have_text("ben · viewer")
    page.evaluate("location.hash = '#/access'")
    form = page.get_by_role("form", name="Change the password")
    expect(page.get_by_text("ben is viewer and sees all cameras.")).to_be_visible()
    expect(page.get_by_role("heading", name="Audit log")).to_have_count(0)
    form.get_by_label("Present password").fill("not the password")
    form.get_by_label("New password").fill(OTHER)
    form.get_by_role("button").click()
    expect(page.get_by_role("alert").filter(has_text="the present password is wrong")).to_be_visible()
    form.get_by_label("Present password").fill(PASSWORD)
    shoot(page, "people-own")
    assert findings(page) == ([], 0)
    form.get_by_role("button").click()
    expect(page.locator("#said")).to_have_text("The password was changed; your other browsers were signed out.")
    expect(page.locator("#who")).to_have_text("ben · viewer")
    credentials = {"name": "ben", "password": OTHER}
    assert server.open.post("/api/v1/session", json=credentials).status_code == 204
    server.open.cookies.clear()


def test_a_failed_sign_in_at_the_provider_is_told(open_page, server):
    page = open_page(token="", url=f"{server.url}#sign-in=rights")
    expect(page.locator("#login-error")).to_have_text("You have no rights here; an admin can give your group some.")
    assert "sign-in" not in page.url
