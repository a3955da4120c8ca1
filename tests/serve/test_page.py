"""The page in a real browser: what it shows, what a user can do with it, and with a keyboard alone."""

import os
import re
import shutil
from pathlib import Path

import pytest
from servers import SECRET, TOKEN, served

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to look with; apt-get install chromium")
expect = playwright.expect
expect.set_options(timeout=20_000)

SHOTS = os.environ.get("STREAMKIT_SCREENSHOTS")
"""A folder for screenshots to look at, where it is set."""

WATCH_JUMPS = """() => {
  window.jumped = 0;
  const ours = (shift) => shift.sources.some((one) => one.node?.parentElement?.closest("#cameras, header"));
  const add = (list) => list.getEntries().filter(ours).forEach((shift) => { window.jumped += shift.value; });
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: false });
}"""

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 740}


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, server):
    """Opens the page; at the end nothing was blocked, failed in a script, or came from elsewhere."""
    contexts, troubles, elsewhere = [], [], []

    def opened(*, token=TOKEN, viewport=None, url=None, **options):
        context = chromium.new_context(viewport=viewport or DESK, **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda line: "Content Security Policy" in line.text and troubles.append(line.text))
        page.on("request", lambda one: elsewhere.append(one.url) if not ours(one.url) else None)
        page.goto((url or server.url) + (f"#token={token}" if token else ""))
        if token == TOKEN:  # until then a click asks for the token
            page.locator("#sign-out").wait_for()
        return page

    def ours(url):
        return url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:"))

    yield opened
    for context in contexts:
        context.close()
    assert not troubles
    assert not elsewhere


@pytest.fixture(autouse=True)
def tidy(server):
    yield
    for one in server.open.get("/sources").json():
        if one["id"] not in ("street", "gate"):
            server.client.delete(f"/sources/{one['id']}")


def tile(page, id_):
    return page.locator(".tile").filter(has=page.get_by_role("heading", name=id_, exact=True))


def shoot(page, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def wide(page):
    """How far the page is wider than the window, in pixels."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


# -------------------------------------------------------------------------------------------------------- what it shows


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_a_wall_of_live_pictures(open_page, server, scheme, size):
    server.until(lambda: server.open.get("/status").json()["last_event"])
    page = open_page(color_scheme=scheme, viewport=DESK if size == "desk" else PHONE)
    street, gate = tile(page, "street"), tile(page, "gate")
    expect(street.locator("img")).to_be_visible()
    expect(street.locator(".badge")).to_have_text("running")
    expect(gate.locator(".badge")).to_have_text(re.compile("refused"))
    expect(gate.locator(".words")).to_contain_text("refused")
    expect(street.locator("dd").first).to_have_text(re.compile(r"^[1-9]\d?\.\d$"))
    expect(page.locator(".event").first).to_be_visible()
    expect(page.locator("#graph svg")).to_be_visible()
    shown = street.locator("img").evaluate("one => [one.naturalWidth, one.naturalHeight]")
    assert shown == [640, 360]
    first = street.locator("img").get_attribute("src")
    expect(street.locator("img")).not_to_have_attribute("src", first)
    assert wide(page) <= 0
    page.wait_for_timeout(500)
    shoot(page, f"wall-{size}-{scheme}")
    assert page.url == server.url  # the token is not left in the address


def test_nothing_jumps_when_things_change(open_page, server):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    page.evaluate(WATCH_JUMPS)
    server.client.post("/sources/street/pause")
    expect(tile(page, "street").locator(".badge")).to_have_text("paused")
    server.client.post("/sources/street/resume")
    expect(tile(page, "street").locator(".badge")).to_have_text("running")
    page.wait_for_timeout(1500)
    assert page.evaluate("window.jumped") < 0.02


def test_text_can_be_read_in_light_and_dark(open_page):
    """The contrast of each text and what it stands on, by WCAG's formula."""
    measure = (Path(__file__).parent / "contrast.js").read_text()
    for scheme in ("light", "dark"):
        page = open_page(color_scheme=scheme)
        expect(tile(page, "street").locator("img")).to_be_visible()
        page.locator("#settings summary").first.click()
        expect(page.locator("#settings form").first).to_be_visible()
        found = page.evaluate(measure)
        assert len(found) > 30
        assert not [one for one in found if one["ratio"] < 4.5]


def test_signed_out_it_shows_no_picture_and_offers_to_sign_in(open_page):
    page = open_page(token=None)
    expect(tile(page, "street").locator(".badge")).to_have_text("running")
    expect(tile(page, "street").locator("img")).to_be_hidden()
    expect(tile(page, "street").get_by_text("Sign in to see pictures")).to_be_visible()
    shoot(page, "signed-out")
    page.get_by_role("button", name="Add a camera").click()
    page.get_by_label("Token").fill("not the token at all")
    page.locator("#door").get_by_role("button", name="Sign in").click()
    expect(page.locator("#door-error")).to_contain_text("not the token")
    page.get_by_label("Token").fill(TOKEN)
    page.locator("#door").get_by_role("button", name="Sign in").click()
    expect(tile(page, "street").locator("img")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(tile(page, "street").locator("img")).to_be_hidden()


def test_the_api_page_reads_the_api(open_page, server):
    page = open_page(token=None, url=f"{server.url}docs")
    expect(page.locator("article").filter(has_text="/sources/{id}/pause")).to_contain_text("Needs the token")
    assert page.locator("article").count() > 25
    assert wide(page) <= 0
    shoot(page, "docs")


# -------------------------------------------------------------------------------------------------- what a user can do


def test_a_camera_is_added_and_removed_with_the_keyboard_alone(open_page, server):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    press = page.keyboard.press
    press("Tab")
    assert focused(page) == "Skip to the cameras"
    press("Enter")
    press("Tab")
    assert focused(page) == "Add a camera"
    assert ring(page)
    press("Enter")
    expect(page.locator("#camera")).to_be_visible()
    page.keyboard.type("yard")
    press("Tab")
    page.keyboard.type("test://")
    shoot(page, "add")
    press("Enter")
    expect(tile(page, "yard").locator(".badge")).to_have_text("running")
    expect(page.locator("#camera")).to_be_hidden()
    assert focused(page) == "Add a camera"  # where the user was
    walk(page, "Remove yard")
    press("Enter")
    expect(page.locator("#removal")).to_be_visible()
    press("Escape")
    expect(page.locator("#removal")).to_be_hidden()
    assert server.source("yard")
    assert focused(page) == "Remove yard"
    press("Enter")
    walk(page, "Remove")
    press("Enter")
    expect(tile(page, "yard")).to_have_count(0)
    assert server.source("yard") == {}


def focused(page):
    return page.evaluate(
        "(e => e.getAttribute('aria-label') ?? e.innerText ?? e.tagName)(document.activeElement)"
    ).strip()  # fmt: skip


def ring(page):
    return page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def walk(page, name):
    """Go forward with the tabulator until `name` has the focus; every stop has a name and shows that it has it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        here = focused(page)
        if here == name:
            return
        assert here == "BODY" or page.evaluate("document.activeElement === document.body") or ring(page), here
    raise AssertionError(f"{name} is not reached with the tabulator")


def test_errors_are_ones_a_user_can_act_on(open_page, server):
    page = open_page()
    page.get_by_role("button", name="Add a camera").click()
    box = page.locator("#camera")

    def answer(id_, uri, options=""):
        box.get_by_label("Name").fill(id_)
        box.get_by_label("Address").fill(uri)
        if options:
            box.locator("summary").click()
            box.get_by_label("As JSON").fill(options)
        box.get_by_role("button", name="Add").click()
        return page.locator("#camera-error")

    expect(answer("street", "test://")).to_contain_text("there is a source 'street' already")
    expect(answer("yard", f"rstp://u:{SECRET}@host/x")).to_contain_text("rtsp")
    expect(answer("yard", "/etc/passwd")).to_contain_text("--allow-files")
    expect(answer("yard", "test://", "{pace}")).to_contain_text("not JSON")
    box.get_by_label("As JSON").fill('{"pase": 3}')
    box.get_by_role("button", name="Add").click()
    expect(page.locator("#camera-error")).to_contain_text("did you mean")
    shoot(page, "add-error")
    box.get_by_role("button", name="Cancel").click()
    expect(box).to_be_hidden()
    assert server.source("yard") == {}


def test_pause_and_change(open_page, server):
    server.client.post("/sources", json={"id": "yard", "uri": "test://", "options": {"pace": 10}})
    page = open_page()
    yard = tile(page, "yard")
    expect(yard.locator("img")).to_be_visible()
    yard.get_by_role("button", name="Pause yard").click()
    expect(yard.locator(".badge")).to_have_text("paused")
    expect(yard.locator(".picture")).to_have_class(re.compile("stale"))
    yard.get_by_role("button", name="Resume yard").click()
    expect(yard.locator(".badge")).to_have_text("running")
    yard.get_by_role("button", name="Change yard").click()
    page.get_by_label("Address").fill(f"rtsp://u:{SECRET}@127.0.0.1:9/x")
    page.locator("#camera-save").click()
    expect(yard.locator(".address")).to_have_text("rtsp://u:***@127.0.0.1:9/x")
    yard.get_by_role("button", name="Change yard").click()
    expect(page.get_by_label("Address")).to_have_value("")  # a masked password is not sent back
    assert SECRET not in page.content()


def test_a_picture_is_enlarged_and_closed(open_page):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    page.get_by_role("button", name="Enlarge street").click()
    large = page.locator("#large-picture")
    expect(large).to_be_visible()
    for _ in range(200):
        if large.evaluate("one => one.naturalWidth") == 640:
            break
        page.wait_for_timeout(100)
    assert large.evaluate("one => one.naturalWidth") == 640
    shoot(page, "large")
    page.keyboard.press("Escape")
    expect(large).to_be_hidden()
    expect(large).not_to_have_attribute("src", re.compile("mjpg"))


def test_a_setting_is_changed(open_page, server):
    page = open_page()
    page.locator("summary", has_text="Settings of detect.postprocess").click()
    form = page.get_by_role("form", name="Settings of detect.postprocess")
    form.get_by_label("min_score").fill("7")
    form.get_by_role("button", name="Apply").click()
    expect(form.get_by_role("alert")).to_contain_text("0 to 1")
    form.get_by_label("min_score").fill("0.55")
    form.get_by_role("button", name="Apply").click()
    expect(form.get_by_role("alert")).to_have_text("")
    server.until(lambda: server.engine.running.changeable("detect.postprocess")["min_score"] == 0.55)


def test_a_clip_is_recorded_with_the_keyboard_alone(open_page, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = f"""
sources:
  street: {{uri: samples/street.mp4, pace: realtime, loop: true, phase: 1}}
  gate: {{uri: "rtsp://127.0.0.1:9/stream1"}}
  bars: {{uri: "test://", pace: 5}}
stages:
  clip: {{stage: record, before: 1s, after: 1s, path: "{tmp_path}/{{source}}/{{time}}.mp4"}}
"""
    with served(text, root) as one:
        one.running("street")
        page = open_page(url=one.url, viewport=PHONE)
        expect(tile(page, "street").locator("img")).to_be_visible()
        expect(page.get_by_role("button", name="Record a clip of gate")).to_be_disabled()  # nothing comes of it
        expect(page.get_by_role("button", name="Record a clip of bars")).to_be_hidden()  # it has nothing to record
        walk(page, "Record a clip of street")
        page.keyboard.press("Enter")
        expect(tile(page, "street").locator(".words")).to_contain_text("is being recorded")
        expect(page.locator("#said")).to_have_text("A clip of street is being recorded.")
        assert focused(page) == "Record a clip of street"
        assert wide(page) <= 0
        shoot(page, "record")
        expect(page.locator(".event").filter(has_text="recorded at street")).to_be_visible()
        expect(page.locator(".event").filter(has_text="manual at street")).to_be_visible()
        assert len(list(tmp_path.glob("street/*.mp4"))) == 1
        shoot(page, "recorded")


def test_recording_asks_for_the_token_and_says_why_it_cannot(open_page, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = f"""
sources: {{street: {{uri: samples/street.mp4, pace: realtime, loop: true}}}}
stages: {{clip: {{stage: record, path: "{tmp_path}/{{time}}.mp4"}}}}
"""
    with served(text, root) as one:
        one.running("street")
        page = open_page(token=None, url=one.url)
        record = page.get_by_role("button", name="Record a clip of street")
        record.click()
        expect(page.locator("#door")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.locator("#door").get_by_role("button", name="Sign in").click()
        expect(page.locator("#door")).to_be_hidden()
        expect(tile(page, "street").locator("img")).to_be_visible()
        page.route("**/status", lambda route: route.abort())  # the page does not hear that it is paused
        one.client.post("/sources/street/pause")
        record.click()
        expect(tile(page, "street").get_by_role("alert")).to_contain_text("gives no pictures now, it is paused")
        shoot(page, "record-error")
        assert list(tmp_path.iterdir()) == []


def test_no_button_to_record_where_no_stage_does(open_page):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    expect(page.get_by_role("button", name="Record a clip of street")).to_be_hidden()


def test_what_cameras_and_stages_say_never_becomes_markup(open_page, server):
    evil = "<img src=x onerror=alert(1)>"
    server.client.post("/sources", json={"id": "yard", "uri": f"rtsp://127.0.0.1:9/{evil}"})
    from streamkit.data import Event

    server.engine.gallery.tell(1.0, [Event(evil, evil, "street", 1, 0.04, None, {evil: evil})], None)
    page = open_page()
    expect(tile(page, "yard").locator(".address")).to_contain_text(evil)
    expect(page.locator(".event").filter(has_text=evil).locator("strong")).to_have_text(f"{evil} at street")
    assert page.locator("img[src=x]").count() == 0


# ------------------------------------------------------------------------------------------------------ when it is away


def test_no_camera_yet(open_page, root, monkeypatch):
    monkeypatch.chdir(root)
    text = "sources: {cam: {uri: 'test://', pace: 5}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root) as one:
        one.running("cam")
        one.client.delete("/sources/cam")
        page = open_page(url=one.url)
        expect(page.get_by_text("No camera yet.")).to_be_visible()
        expect(page.get_by_text("No stage of this pipeline emits events.")).to_be_visible()
        shoot(page, "empty")


def test_the_server_goes_away_and_comes_back(open_page, root, monkeypatch):
    monkeypatch.chdir(root)
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root) as one:
        port = int(one.url.rsplit(":", 1)[1].strip("/"))
        one.running("cam")
        page = open_page(url=one.url)
        expect(tile(page, "cam").locator("img")).to_be_visible()
    expect(page.locator("#away")).to_contain_text("does not answer")
    expect(page.locator("#status-text")).to_have_text("no answer")
    expect(tile(page, "cam")).to_have_count(1)  # what was there stays to be seen
    shoot(page, "away")
    with served(text, root, port=port) as one:
        expect(page.locator("#away")).to_be_hidden()
        expect(tile(page, "cam").locator(".badge")).to_have_text("running")
        first = tile(page, "cam").locator("img").get_attribute("src")
        expect(tile(page, "cam").locator("img")).not_to_have_attribute("src", first)
