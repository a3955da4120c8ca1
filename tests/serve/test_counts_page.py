"""The view of counts in a real browser: the numbers of the API, also by keyboard, a week earlier, and heat maps."""

import time

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

WEEK_S = 7 * 86400


def crossing(direction, label="car"):
    data = {"line": "door", "direction": direction, "label": label}
    return Event("crossed", "line", "street", 0, 0.0, 1, data)


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    heat = tmp_path_factory.mktemp("heat")
    text = f"""
plugins: [plugins]
sources: {{street: {{uri: samples/street.mp4, pace: 10, every: 3, loop: true, name: Main street}}}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  zone: {{polygon: {{hall: [[0, 0], [640, 0], [640, 360], [0, 360]]}}}}
  heatmap: {{path: "{heat}/{{source}}.png", every: 2s}}
  line: {{stage: line_counter, line: {{door: [[0, 1], [3, 1]]}}}}
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(text, root) as server:
            server.running("street")
            now_s = time.time()
            gallery = server.engine.gallery
            gallery.add_events(now_s, [crossing("in")] * 5 + [crossing("out")] * 2 + [crossing("in", "bus")], None)
            gallery.add_events(now_s - WEEK_S, [crossing("in")] * 3, None)
            server.until(lambda: server.open.get("/api/v1/heatmaps").json())
            server.until(lambda: server.open.get("/api/v1/occupancy").json())
            yield server


def door(page):
    return page.get_by_role("region", name="line: door, Main street")


def test_a_line_shows_its_numbers_and_those_of_a_week_earlier(open_page, server):
    page = open_page(view="counts")
    expect(door(page)).to_contain_text("in 6 · out 2")
    page.get_by_label("Compare with a week earlier").check()
    expect(door(page)).to_contain_text("in 6 (+100 % compared with a week earlier)")
    assert "compare=1" in page.url
    page.get_by_label("By class of object").check()
    expect(door(page)).to_contain_text("in bus 1")
    page.reload()
    expect(door(page)).to_contain_text("in car 5")


def test_the_keyboard_reads_each_period_and_opens_the_table(open_page, server):
    page = open_page(view="counts")
    expect(door(page)).to_contain_text("in 6")
    door(page).locator(".bars-area").focus()
    page.keyboard.press("End")
    for _ in range(24):
        if "in 6, out 2" in door(page).locator("output").inner_text():
            break
        page.keyboard.press("ArrowLeft")
    expect(door(page).locator("output")).to_contain_text("in 6, out 2")
    door(page).locator("summary").focus()
    page.keyboard.press("Enter")
    expect(door(page).locator("tbody tr").nth(22)).to_be_visible()


def test_the_csv_has_what_is_shown(open_page, server):
    page = open_page(view="counts")
    expect(door(page)).to_contain_text("in 6")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert [line.split(",")[2:] for line in lines if ",door," in line] == [
        ["street", "Main street", "line", "door", "in", "", "6"],
        ["street", "Main street", "line", "door", "out", "", "2"],
    ]


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_the_view_is_accessible_and_nothing_is_cut(open_page, server, size, scheme):
    page = open_page(view="counts", viewport=size, color_scheme=scheme)
    expect(door(page)).to_contain_text("in 6")
    expect(page.get_by_role("heading", name="In the zones now")).to_be_visible()
    picture = page.get_by_alt_text("Heat map of Main street")
    picture.scroll_into_view_if_needed()
    page.wait_for_function("image => image.complete && image.naturalWidth === 640", arg=picture.element_handle())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/counts-{scheme}.png", full_page=True)


def test_without_a_token_no_picture_is_shown(open_page, server):
    page = open_page(view="counts", token=None)
    expect(door(page)).to_contain_text("in 6")
    assert page.locator(".counts-heat img").count() == 0
