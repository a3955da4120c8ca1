"""What a user can do on the page in a real browser, also with a keyboard alone."""

import re
from urllib.parse import unquote, urlsplit

import pytest
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    PHONE,
    chromium_fixture,
    expect,
    focused,
    open_page_fixture,
    ring,
    shoot,
    tidy,
    tile,
    walk,
    wide,
)
from support.servers import SECRET, TOKEN, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")


def test_a_camera_is_added_and_removed_by_keyboard(open_page, server):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    press = page.keyboard.press
    press("Tab")
    assert focused(page) == "Skip to the content"
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


def test_errors_name_the_fix(open_page, server):
    page = open_page()
    page.get_by_role("button", name="Add a camera").click()
    box = page.locator("#camera")

    def answer(id_, uri, **options):
        box.get_by_label("Id", exact=True).fill(id_)
        box.get_by_label("Address").fill(uri)
        for name, value in options.items():
            box.get_by_label(name, exact=True).fill(value)
        box.get_by_role("button", name="Add").click()
        return page.locator("#camera-error")

    expect(answer("street", "test://")).to_contain_text("the source 'street' exists already")
    expect(answer("yard", f"rstp://u:{SECRET}@host/x")).to_contain_text("rtsp")
    expect(answer("yard", "/etc/passwd")).to_contain_text("--allow-files")
    expect(answer("yard", "rtsp://host/x", timeout="soon")).to_contain_text("timeout: write a duration, such as 10s")
    expect(answer("yard", "rtsp://u:***@host/x", timeout="")).to_contain_text("write the password")
    shoot(page, "add-error")
    box.get_by_role("button", name="Cancel").click()
    expect(box).to_be_hidden()
    assert server.source("yard") == {}


def test_a_source_is_paused_and_changed(open_page, server):
    server.client.post("/api/v1/sources", json={"id": "yard", "uri": "test://", "options": {"pace": 10}})
    page = open_page()
    yard = tile(page, "yard")
    expect(yard.locator("img")).to_be_visible()
    yard.get_by_role("button", name="Pause yard").click()
    expect(yard.locator(".badge")).to_have_text("paused")
    expect(yard.locator(".view")).to_have_class(re.compile("stale"))
    yard.get_by_role("button", name="Resume yard").click()
    expect(yard.locator(".badge")).to_have_text("running")
    yard.get_by_role("button", name="Change yard").click()
    page.get_by_label("Address").fill(f"rtsp://u:{SECRET}@127.0.0.1:9/x")
    page.locator("#camera-save").click()
    expect(yard.locator(".address")).to_have_text("rtsp://u:***@127.0.0.1:9/x")
    yard.get_by_role("button", name="Change yard").click()
    expect(page.get_by_label("Address")).to_have_value("rtsp://u:***@127.0.0.1:9/x")
    assert SECRET not in page.content()
    page.get_by_label("Address").fill("rtsp://u:***@127.0.0.1:9/y")  # the password is kept
    page.locator("#camera-save").click()
    expect(yard.locator(".address")).to_have_text("rtsp://u:***@127.0.0.1:9/y")
    (config,) = [source for source in server.engine.graph.sources if source.id == "yard"]
    assert config.options["uri"] == f"rtsp://u:{SECRET}@127.0.0.1:9/y"


def test_user_and_password_fields_accept_any_characters(open_page, server):
    password = "p#a?s/s@w:o%r d"
    page = open_page()
    box = page.locator("#camera")
    yard = tile(page, "yard")

    def stored():
        (config,) = [source for source in server.engine.graph.sources if source.id == "yard"]
        parts = urlsplit(config.options["uri"])
        return unquote(parts.username), unquote(parts.password), parts.hostname, parts.path

    page.get_by_role("button", name="Add a camera").click()
    box.get_by_label("Id", exact=True).fill("yard")
    box.get_by_label("Address").fill("rtsp://127.0.0.1:9/x")
    box.get_by_label("User").fill("ann@home")
    box.get_by_label("Password").fill(password)
    shoot(page, "login")
    page.locator("#camera-save").click()
    expect(yard.locator(".address")).to_have_text("rtsp://ann%40home:***@127.0.0.1:9/x")
    assert stored() == ("ann@home", password, "127.0.0.1", "/x")

    yard.get_by_role("button", name="Change yard").click()
    box.get_by_label("Address").fill("rtsp://ann%40home:***@127.0.0.1:9/y")
    page.locator("#camera-save").click()
    expect(yard.locator(".address")).to_have_text("rtsp://ann%40home:***@127.0.0.1:9/y")
    assert stored() == ("ann@home", password, "127.0.0.1", "/y")

    yard.get_by_role("button", name="Change yard").click()
    box.get_by_label("Password").fill("an#other")
    page.locator("#camera-save").click()
    expect(box).to_have_count(0)
    assert stored() == ("ann@home", "an#other", "127.0.0.1", "/y")

    yard.get_by_role("button", name="Change yard").click()
    box.get_by_label("Address").fill("rtsp://ann:ge#heim@127.0.0.1:9/y")
    page.locator("#camera-save").click()
    expect(page.locator("#camera-error")).to_contain_text("%23 for #")
    expect(page.locator("#camera-error")).not_to_contain_text("heim")


def test_a_change_sends_only_the_changed_fields(open_page, server):
    server.client.post("/api/v1/sources", json={"id": "yard", "uri": "test://", "options": {"pace": 10, "fps": 5}})
    page = open_page()
    yard = tile(page, "yard")
    box = page.locator("#camera")
    expect(yard.locator(".badge")).to_have_text("running")
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.method == "PUT" else None)

    def change(**fields):
        yard.get_by_role("button", name="Change yard").click()
        expect(box.get_by_label("Address")).to_be_visible()
        box.locator("summary").click()
        shown = {
            field_label: box.get_by_label(field_label, exact=True).input_value()
            for field_label in ("fps", "pace")
            if field_label not in fields
        }
        for label, value in fields.items():
            box.get_by_label(label, exact=True).fill(value)
        shoot(page, "change")
        page.locator("#camera-save").click()
        expect(box).to_have_count(0)
        page.wait_for_timeout(1500)  # until the tile has heard of it
        return shown

    assert change() == {"fps": "5", "pace": "10"}
    assert (sent[-1], server.source("yard")["options"]) == ({}, {"pace": 10, "fps": 5})
    change(fps="2")
    assert sent[-1] == {"options": {"fps": 2, "pace": 10}}
    assert change(fps="", pace="realtime") == {}
    assert (sent[-1], server.source("yard")["options"]) == ({"options": {"pace": "realtime"}}, {"pace": "realtime"})
    change(pace="")
    assert (sent[-1], server.source("yard")["options"]) == ({"options": {}}, {})
    change(Address=f"rtsp://u:{SECRET}@127.0.0.1:9/x")
    assert sent[-1] == {"uri": f"rtsp://u:{SECRET}@127.0.0.1:9/x"}
    change(timeout="3s")  # without typing the password once more
    assert sent[-1] == {"options": {"timeout": "3s"}}
    (config,) = [source for source in server.engine.graph.sources if source.id == "yard"]
    assert config.options["uri"] == f"rtsp://u:{SECRET}@127.0.0.1:9/x"
    assert server.source("yard")["options"] == {"timeout": "3s"}
    page.get_by_role("button", name="Add a camera").click()
    expect(box.get_by_label("Address")).to_have_attribute("required", "")
    expect(box.get_by_label("timeout", exact=True)).to_have_value("")


def test_signed_out_users_see_no_addresses(open_page, server):
    page = open_page(token=None)
    gate = tile(page, "gate")
    expect(gate.locator(".badge")).to_have_text(re.compile("refused"))
    expect(gate.locator(".address")).to_have_text("source")
    assert "127.0.0.1" not in page.inner_text("body")
    page.get_by_role("button", name="Add a camera").click()
    page.get_by_label("Token").fill(TOKEN)
    page.locator("#login").get_by_role("button", name="Sign in").click()
    expect(gate.locator(".address")).to_have_text("rtsp://operator:***@127.0.0.1:9/stream1?token=***")


def test_an_image_is_enlarged_and_closed(open_page):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    page.get_by_role("button", name="Enlarge street").click()
    large = page.locator("#large-image")
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


def test_a_clip_is_recorded_by_keyboard(open_page, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = f"""
sources:
  street: {{uri: samples/street.mp4, every: 5, pace: realtime, loop: true, pace_seed: 1}}
  gate: {{uri: "rtsp://127.0.0.1:9/stream1"}}
  bars: {{uri: "test://", pace: 5}}
stages:
  clip: {{stage: record, before: 1s, after: 1s, path: "{tmp_path}/{{source}}/{{time}}.mp4"}}
"""
    with served(text, root) as instance:
        instance.running("street")
        page = open_page(url=instance.url, viewport=PHONE)
        expect(tile(page, "street").locator("img")).to_be_visible()
        expect(page.get_by_role("button", name="Record a clip of gate")).to_be_disabled()  # nothing comes of it
        expect(page.get_by_role("button", name="Record a clip of bars")).to_be_hidden()  # it has nothing to record
        walk(page, "Record a clip of street")
        page.keyboard.press("Enter")
        expect(tile(page, "street").locator(".message")).to_contain_text("Recording a clip")
        expect(page.locator("#said")).to_have_text("Recording a clip of street.")
        assert focused(page) == "Record a clip of street"
        assert wide(page) <= 0
        shoot(page, "record")
        expect(page.locator(".event").filter(has_text="A clip of street was recorded")).to_be_visible()
        expect(page.locator(".event").filter(has_text="A clip of street was started by hand")).to_be_visible()
        assert len(list(tmp_path.glob("street/*.mp4"))) == 1
        shoot(page, "recorded")


def test_recording_asks_for_the_token_and_reports_failures(open_page, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = f"""
sources: {{street: {{uri: samples/street.mp4, every: 5, pace: realtime, loop: true}}}}
stages: {{clip: {{stage: record, path: "{tmp_path}/{{time}}.mp4"}}}}
"""
    with served(text, root) as instance:
        instance.running("street")
        page = open_page(token=None, url=instance.url)
        record = page.get_by_role("button", name="Record a clip of street")
        record.click()
        expect(page.locator("#login")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.locator("#login").get_by_role("button", name="Sign in").click()
        expect(page.locator("#login")).to_be_hidden()
        expect(tile(page, "street").locator("img")).to_be_visible()
        page.route("**/status", lambda route: route.abort())  # the page does not hear that it is paused
        instance.client.post("/api/v1/sources/street/pause")
        record.click()
        expect(tile(page, "street").get_by_role("alert")).to_contain_text("delivers no frames: it is paused")
        shoot(page, "record-error")
        assert list(tmp_path.iterdir()) == []


def test_there_is_no_record_button_without_a_record_stage(open_page):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    expect(page.get_by_role("button", name="Record a clip of street")).to_be_hidden()
