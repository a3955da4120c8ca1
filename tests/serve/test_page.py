"""The page in a real browser: what it shows, and what it says where there is nothing to show."""

import re
from pathlib import Path

import pytest
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    DESK,
    PHONE,
    chromium_fixture,
    expect,
    in_sizes_and_schemes,
    open_page_fixture,
    shoot,
    tidy,
    tile,
    wide,
)
from support.servers import TOKEN, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

WATCH_JUMPS = """() => {
  window.jumped = 0;
  const ours = (shift) => shift.sources.some((one) => one.node?.parentElement?.closest("#cameras, header"));
  const add = (list) => list.getEntries().filter(ours).forEach((shift) => { window.jumped += shift.value; });
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: false });
}"""


# -------------------------------------------------------------------------------------------------------- what it shows


@in_sizes_and_schemes
def test_the_overview_shows_live_images(open_page, server, scheme, size):
    server.until(lambda: server.open.get("/api/v1/status").json()["last_event"])
    page = open_page(color_scheme=scheme, viewport=DESK if size == "desk" else PHONE)
    street = tile(page, "street")
    gate = tile(page, "gate")
    expect(street.locator("img")).to_be_visible()
    expect(street.locator(".badge")).to_have_text("running")
    expect(gate.locator(".badge")).to_have_text(re.compile("refused"))
    expect(gate.locator(".message")).to_contain_text("refused")
    expect(street.locator("dd").first).to_have_text(re.compile(r"^[1-9]\d?\.\d$"))
    expect(page.locator(".event").first).to_be_visible()
    shown = street.locator("img").evaluate("one => [one.naturalWidth, one.naturalHeight]")
    assert shown == [640, 360]
    first = street.locator("img").get_attribute("src")
    expect(street.locator("img")).not_to_have_attribute("src", first)
    assert wide(page) <= 0
    page.wait_for_timeout(500)
    shoot(page, f"wall-{size}-{scheme}")
    assert page.url == f"{server.url}#/home"  # the token is not left in the address


def test_the_layout_does_not_shift_on_updates(open_page, server):
    page = open_page()
    expect(tile(page, "street").locator("img")).to_be_visible()
    page.evaluate(WATCH_JUMPS)
    server.client.post("/api/v1/sources/street/pause")
    expect(tile(page, "street").locator(".badge")).to_have_text("paused")
    server.client.post("/api/v1/sources/street/resume")
    expect(tile(page, "street").locator(".badge")).to_have_text("running")
    page.wait_for_timeout(1500)
    assert page.evaluate("window.jumped") < 0.02


def test_text_has_enough_contrast_in_light_and_dark(open_page):
    """The contrast of each text and what it stands on, by WCAG's formula."""
    measure = (Path(__file__).parent / "contrast.js").read_text()
    for scheme in ("light", "dark"):
        page = open_page(color_scheme=scheme)
        expect(tile(page, "street").locator("img")).to_be_visible()
        contrasts = page.evaluate(measure)
        assert len(contrasts) > 25
        assert not [contrast for contrast in contrasts if contrast["ratio"] < 4.5]


def test_signed_out_users_see_no_image_and_an_offer_to_sign_in(open_page):
    page = open_page(token=None)
    expect(tile(page, "street").locator(".badge")).to_have_text("running")
    expect(tile(page, "street").locator("img")).to_be_hidden()
    expect(tile(page, "street").get_by_text("Sign in to see images")).to_be_visible()
    shoot(page, "signed-out")
    page.get_by_role("button", name="Add a camera").click()
    page.get_by_label("Token").fill("not the token at all")
    page.locator("#login").get_by_role("button", name="Sign in").click()
    expect(page.locator("#login-error")).to_contain_text("wrong token")
    page.get_by_label("Token").fill(TOKEN)
    page.locator("#login").get_by_role("button", name="Sign in").click()
    expect(tile(page, "street").locator("img")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(tile(page, "street").locator("img")).to_be_hidden()


def test_the_api_page_shows_the_openapi_document(open_page, server):
    page = open_page(token=None, url=f"{server.url}docs")
    expect(page.locator("article").filter(has_text="/api/v1/sources/{id}/pause")).to_contain_text(
        "Needs the role operator"
    )
    assert page.locator("article").count() > 25
    assert wide(page) <= 0
    shoot(page, "docs")


def test_texts_of_cameras_and_stages_are_escaped(open_page, server):
    evil = "<img src=x onerror=alert(1)>"
    server.client.post("/api/v1/sources", json={"id": "yard", "uri": "rtsp://127.0.0.1:9/<marquee>"})
    from streamkit.core.data import Event

    page = open_page()
    expect(tile(page, "yard").locator(".address")).to_contain_text("/<marquee>")
    server.engine.gallery.add_events(1.0, [Event(evil, evil, "street", 1, 0.04, None, {evil: evil})], None)
    expect(page.locator(".event").filter(has_text=evil).locator("strong")).to_have_text(
        f"{evil} at street, from {evil}: {evil} {evil}."
    )
    assert page.locator("img[src=x], marquee").count() == 0


# -------------------------------------------------------------------------------------------------- when it is not well


def test_the_header_is_not_green_while_all_cameras_are_down(open_page, root, monkeypatch):
    monkeypatch.chdir(root)
    text = """
sources: {gate: "rtsp://127.0.0.1:9/a", yard: "rtsp://127.0.0.1:9/b", bars: "test://?width=96&height=64&frames=0"}
stages: {jsonl: {path: /dev/null}}
"""
    with served(text, root) as instance:
        instance.running("bars")
        page = open_page(url=instance.url)
        status = page.locator("#status")
        reason = page.locator("#reason")
        expect(page.locator("#status-text")).to_have_text("1 problem")
        expect(status).to_have_class("status bad")
        expect(page.locator("header")).to_have_class("bad")
        expect(reason).to_have_text('2 cameras are down (refused): "gate" and "yard"')
        expect(page.locator("#said")).to_contain_text("2 cameras are down (refused)")
        instance.client.delete("/api/v1/sources/bars")
        expect(reason).to_have_text("no source is running: all 2 are down")
        assert status.get_attribute("title") == "no source is running: all 2 are down"
        red = status.locator(".dot").evaluate("one => getComputedStyle(one).backgroundColor")
        assert red == status.evaluate("one => getComputedStyle(one).color")
        shoot(page, "all-down")
        page.evaluate("location.hash = '#/home?source=yard'")
        expect(tile(page, "yard")).to_be_in_viewport()
        for id_ in ("gate", "yard"):
            instance.client.post(f"/api/v1/sources/{id_}/pause")
        expect(status).to_have_class("status ok")
        expect(page.locator("#status-text")).to_have_text("running")
        expect(page.locator("header")).not_to_have_class("bad")


# ------------------------------------------------------------------------------------------------------ when it is away


def test_an_empty_pipeline_offers_to_add_a_camera(open_page, root, monkeypatch):
    monkeypatch.chdir(root)
    text = "sources: {cam: {uri: 'test://', pace: 5}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root) as instance:
        instance.running("cam")
        instance.client.delete("/api/v1/sources/cam")
        page = open_page(url=instance.url)
        expect(page.get_by_text("No cameras.")).to_be_visible()
        expect(page.get_by_text("No stage of this pipeline emits events.")).to_be_visible()
        shoot(page, "empty")


def test_the_page_reconnects_after_a_restart_of_the_server(open_page, root, monkeypatch):
    monkeypatch.chdir(root)
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root) as instance:
        port = int(instance.url.rsplit(":", 1)[1].strip("/"))
        instance.running("cam")
        page = open_page(url=instance.url)
        expect(tile(page, "cam").locator("img")).to_be_visible()
    expect(page.locator("#away")).to_contain_text("has not responded")
    expect(page.locator("#status-text")).to_have_text("no response")
    expect(page.locator("#status")).to_have_class("status bad")
    expect(tile(page, "cam")).to_have_count(1)  # what was there stays to be seen
    shoot(page, "away")
    with served(text, root, port=port) as instance:
        expect(page.locator("#away")).to_be_hidden()
        expect(tile(page, "cam").locator(".badge")).to_have_text("running")
        first = tile(page, "cam").locator("img").get_attribute("src")
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.get_by_label("Token").fill(TOKEN)
        page.locator("#login").get_by_role("button", name="Sign in").click()
        expect(tile(page, "cam").locator("img")).not_to_have_attribute("src", first)


def test_a_view_that_fails_to_load_offers_a_reload(open_page):
    page = open_page()
    page.route("**/page/views/sources.js", lambda route: route.abort())
    page.evaluate("location.hash = '#/sources'")
    expect(page.locator("#view")).to_contain_text("This view could not be loaded.")
    page.unroute("**/page/views/sources.js")
    page.get_by_role("button", name="Load the page again").click()
    expect(page.get_by_role("heading", name="Sources")).to_be_visible()
