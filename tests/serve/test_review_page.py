"""The view of review items in a real browser: cards with crops, marks, notes, the path, and new alerts."""

import time

import cv2
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    DESK,
    PHONE,
    SHOTS,
    chromium_fixture,
    expect,
    open_page_fixture,
)
from support.servers import served

from streamkit.core.data import Event

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

BOXES = [(0.1, 0.5, 0.3, 0.7), (0.4, 0.4, 0.6, 0.7), (0.7, 0.3, 0.9, 0.6)]


def frame(color):
    image = np.full((180, 320, 3), 90, np.uint8)
    image[70:120, 130:190] = color
    return cv2.imencode(".jpg", image)[1].tobytes()


def event(kind, stage, track, **data):
    return Event(kind, stage, "street", 0, 0.0, track, data)


@pytest.fixture(scope="module")
def server(root):
    text = """
plugins: [plugins]
sources: {street: {uri: samples/street.mp4, pace: 5, every: 6, loop: true, name: Main street}}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  van: {stage: rule, when: "score > 2"}
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(text, root) as server:
            server.running("street")
            yield server


@pytest.fixture(autouse=True)
def items(server):
    """An alert of three events, and two notices; those of earlier tests are deleted."""
    for item in server.client.get("/api/v1/review?limit=500").json():
        server.client.delete(f"/api/v1/review/{item['id']}").raise_for_status()
    tracks = int(time.monotonic() * 1000) % 10**9
    now_s = time.time() - 20
    gallery = server.engine.gallery
    red = frame((0, 0, 200))
    for place, box in enumerate(BOXES):
        kind = "raised" if place == 0 else "entered"
        data = {"rule": "van", "values": {}, "since_s": 0.0} if place == 0 else {"zone": "yard", "count": 1}
        stage = "van" if place == 0 else "zone"
        gallery.add_events(now_s + 2 * place, [event(kind, stage, tracks, label="car", **data)], red, [box])
    for place in (1, 2):
        crossed = event("crossed", "line", tracks + place, direction="in", label="person")
        gallery.add_events(now_s + 10 + place, [crossed], frame((0, 200, 0)), [BOXES[0]])
    server.until(lambda: len(server.client.get("/api/v1/review").json()) == 3)


def cards(page):
    return page.locator(".review-card")


def test_alerts_come_first_and_a_mark_takes_them_off_the_list(open_page, server):
    page = open_page(view="review")
    expect(cards(page)).to_have_count(1)
    expect(page.get_by_role("tab", name="Alerts (1)")).to_be_visible()
    expect(page.locator('#views a[data-view="review"] .problem-count')).to_have_text("1")
    assert page.title().startswith("(1) Review")
    page.get_by_role("tab", name="Notices (2)").click()
    expect(cards(page)).to_have_count(2)
    page.get_by_role("tab", name="Alerts (1)").click()
    expect(cards(page)).to_have_count(1)
    page.locator(".mark").click()
    expect(cards(page)).to_have_count(0)
    expect(page.locator('#views a[data-view="review"] .problem-count')).to_have_text("")
    assert not page.title().startswith("(")
    page.get_by_label("Show reviewed items").check()
    expect(cards(page)).to_contain_text("reviewed by admin")


def test_an_item_shows_its_picture_its_path_and_what_people_write(open_page, server):
    page = open_page(view="review")
    cards(page).click()
    detail = page.locator(".review-detail")
    picture = detail.locator("img")
    page.wait_for_function("image => image.naturalWidth === 320", arg=picture.element_handle())
    points = detail.locator("polyline").get_attribute("points")
    assert points == "20.00,70.00 50.00,70.00 80.00,60.00"
    crop = cards(page).locator("img")
    page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=crop.element_handle())
    assert crop.evaluate("image => image.naturalWidth === image.naturalHeight && image.naturalHeight < 180")
    detail.get_by_label("Comment").fill("seen <b>before</b>")
    detail.get_by_role("button", name="Save the comment").click()
    expect(detail.locator(".review-note")).to_have_text("seen <b>before</b>")
    detail.get_by_role("button", name="Keep", exact=True).click()
    expect(detail.get_by_role("button", name="Stop keeping")).to_be_visible()
    page.get_by_role("tab", name="Kept").click()
    expect(cards(page)).to_have_count(1)
    page.get_by_label("Words or plates").fill("before")
    expect(cards(page)).to_have_count(1)
    page.get_by_label("Words or plates").fill("never")
    expect(cards(page)).to_have_count(0)
    address = page.url
    again = open_page(view="review")
    again.goto(address)
    again.reload()
    expect(again.locator(".review-detail h3")).to_contain_text("Alert")


def test_an_item_is_deleted_after_a_question_only(open_page, server):
    page = open_page(view="review")
    cards(page).click()
    page.locator(".review-detail").get_by_role("button", name="Delete").click()
    box = page.get_by_role("dialog")
    box.get_by_role("button", name="Cancel").click()
    expect(cards(page)).to_have_count(1)
    page.locator(".review-detail").get_by_role("button", name="Delete").click()
    box.get_by_role("button", name="Delete").click()
    expect(cards(page)).to_have_count(0)
    assert len(server.client.get("/api/v1/review").json()) == 2


def test_a_new_alert_appears_by_itself_and_rings_where_the_sound_is_on(open_page, server):
    page = open_page(view="review")
    expect(cards(page)).to_have_count(1)
    page.evaluate("""() => {
      window.tones = 0;
      const start = OscillatorNode.prototype.start;
      OscillatorNode.prototype.start = function (...times) { window.tones += 1; start.apply(this, times); };
    }""")
    page.get_by_label("Sound for new alerts").check()
    assert page.evaluate("window.tones") == 2
    raised = event("raised", "van", 77, rule="van", values={}, since_s=0.0, label="bus")
    server.engine.gallery.add_events(time.time(), [raised], None)
    expect(cards(page)).to_have_count(2)
    page.wait_for_function("window.tones === 4")
    expect(page.locator("#said")).to_contain_text("New alert")


def test_the_keyboard_alone_reviews_items(open_page, server):
    page = open_page(view="review")
    expect(cards(page)).to_have_count(1)
    page.get_by_role("tab", name="Alerts (1)").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Notices (2)")).to_be_focused()
    expect(cards(page)).to_have_count(2)
    cards(page).first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".review-detail h3")).to_contain_text("Notice")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(cards(page)).to_have_count(1)


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_the_view_is_accessible_and_nothing_is_cut(open_page, server, size, scheme):
    page = open_page(view="review", viewport=size, color_scheme=scheme)
    page.get_by_role("tab", name="All").click()
    expect(cards(page)).to_have_count(3)
    if size is DESK:
        cards(page).last.click()
        expect(page.locator(".review-picture polyline")).to_be_attached()
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = page.evaluate("""() => {
      const right = document.querySelector(".review-view").getBoundingClientRect().right;
      return [...document.querySelectorAll(".review-view :is(input, select, label, button)")]
        .filter((element) => element.getBoundingClientRect().right > right + 1).map((element) => element.outerHTML);
    }""")
    assert cut == []
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/review-{scheme}.png")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_viewer_without_a_token_sees_words_and_no_picture(open_page, server):
    page = open_page(view="review", token=None)
    expect(cards(page)).to_contain_text("sign in to see it")
    assert page.locator(".review-card img").count() == 0
