"""The views of events and charts in a real browser."""

import re
import time
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
    walk,
    wide,
)
from support.servers import served

from streamkit.core.data import Event

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

TEXT = """
plugins: [plugins]
sources:
  street: {{uri: samples/street.mp4, every: 5, pace: realtime, loop: true, pace_seed: 1}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  line: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
  clip:
    stage: record
    when: line.crossed
    before: 1s
    after: 2s
    max_length: 6s
    path: "{folder}/clips/{{source}}-{{time}}.mp4"
  snap: {{stage: snapshot, from: line, when: line.crossed, after: 0s, path: "{folder}/shots/{{source}}-{{time}}.jpg"}}
"""


WHERE = {"x": [1, 2.5], "on": True}
PLAYS = """() => new Promise((done) => {
  const video = document.querySelector("video"), begun = () => done(video.played.start(0));
  if (video.played.length) begun(); else video.addEventListener("timeupdate", () => video.played.length && begun());
})"""


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("streamkit.serve.store.serve_store.SAMPLE_EVERY_S", 2.0)
        with served(TEXT.format(folder=folder), root) as page_server:
            page_server.running("street")
            page_server.until(lambda: clipped(page_server), 90)
            for n in range(150):
                event = Event("crossed", "line", "yard", n, n / 25, n, {"direction": "in", "label": "truck"})
                page_server.engine.gallery.add_events(time.time() - 7200 + n, [event], None)
            evil = Event("too_close", "mine", "yard", 1, 0.1, None, {"note": "<b>bold</b>", "where": WHERE})
            page_server.engine.gallery.add_events(time.time() - 60, [evil], None)
            yield page_server


def clipped(server):
    """Events of the counter that have all files, oldest first; one that is long enough to see it play."""
    crossed = server.open.get("/api/v1/events", params={"kind": "crossed", "source": "street", "limit": 500}).json()
    return [event for event in crossed[::-1] if event["clip"] and event["snapshot"] and event["image"]]


def view(open_page, address="#/events", **options):
    page = open_page(**options)
    page.evaluate("address => { location.hash = address; }", address)
    return page


def rows(page):
    return page.locator(".event-row")


# --------------------------------------------------------------------------------------------------------------- events


@in_sizes_and_schemes
def test_a_selected_events_clip_plays_from_its_offset(open_page, server, scheme, size):
    event = clipped(server)[0]
    page = view(
        open_page, f"#/events?number={event['number']}", color_scheme=scheme, viewport=DESK if size == "desk" else PHONE
    )
    detail = page.locator(".event-detail")
    expect(detail.get_by_role("heading")).to_have_text(event["text"])
    video = detail.locator("video")
    expect(video).to_be_visible()
    assert page.evaluate(PLAYS) == pytest.approx(event["clip_s"], abs=0.1), "it begins where the event is"
    expect(detail.locator("img")).to_be_visible()
    assert detail.locator("img").evaluate("one => one.naturalWidth") == 640
    expect(detail.locator("dl")).to_contain_text(f"Track{event['track_id']}")
    assert not re.search(r'[{}]|":', detail.locator("dl").inner_text()), "no JSON"
    with page.expect_download() as download:
        detail.get_by_text("Download the clip").click()
    whole = server.client.get(f"/api/v1/events/{event['number']}/clip.mp4").content
    assert Path(download.value.path()).read_bytes() == whole
    assert download.value.suggested_filename == f"street-crossed-{event['number']}.mp4"
    assert wide(page) <= 0
    page.wait_for_timeout(300)
    shoot(page, f"event-{size}-{scheme}")
    detail.get_by_role("button", name="Close").click()
    expect(video).to_have_count(0)
    assert "number" not in page.url
    assert wide(page) <= 0
    shoot(page, f"events-{size}-{scheme}")


def test_filters_change_the_list_and_the_address(open_page, server):
    page = view(open_page)
    expect(rows(page).first).to_be_visible()
    page.get_by_label("Camera", exact=True).select_option("yard")
    expect(rows(page).first).to_contain_text("Too close at yard, from mine: note <b>bold</b>, where x 1 2.5, on yes")
    page.get_by_label("Kind", exact=True).select_option("crossed")
    expect(rows(page).first).to_contain_text("Truck 149 crossed")
    page.get_by_label("Search").fill("truck 14")
    expect(rows(page)).to_have_count(11)  # 14 and 140 to 149
    assert page.url.endswith("#/events?source=yard&kind=crossed&text=truck+14")
    page.reload()
    expect(rows(page)).to_have_count(11)
    expect(page.get_by_label("Search")).to_have_value("truck 14")
    page.get_by_label("Search").fill("nothing like this")
    expect(page.get_by_text("No events match these filters.")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(page.get_by_label("Camera", exact=True)).to_have_value("")
    expect(rows(page).filter(has_text="street").first).to_be_visible()
    page.get_by_label("Period").select_option("hour")
    page.get_by_label("Camera", exact=True).select_option("yard")
    expect(rows(page)).to_have_count(1)  # the others are two hours old


def test_scrolling_loads_more_events(open_page, server):
    page = view(open_page, "#/events?source=yard")
    expect(rows(page).nth(40)).to_be_visible()
    assert rows(page).count() < 150
    for _ in range(6):
        page.mouse.wheel(0, 20_000)
        page.wait_for_timeout(400)
    expect(rows(page)).to_have_count(151)
    expect(page.get_by_text("These are all events.")).to_be_visible()
    numbers = page.eval_on_selector_all(".event-row", "all => all.map((one) => Number(one.dataset.number))")
    assert numbers == sorted(set(numbers), reverse=True)


def test_new_events_appear_by_themselves(open_page, server):
    page = view(open_page, "#/events?source=door")
    expect(page.get_by_text("No events match these filters.")).to_be_visible()
    server.engine.gallery.add_events(time.time(), [Event("opened", "door", "door", 1, 0.1, None, {})], None)
    expect(rows(page)).to_have_count(1)
    page.route("**/api/v1/status", lambda route: route.abort())  # only the stream is left
    page.wait_for_timeout(2000)
    server.engine.gallery.add_events(time.time(), [Event("closed", "door", "door", 2, 0.2, None, {})], None)
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("Closed at door")


def test_a_click_on_the_timeline_shows_the_events_of_that_time(open_page, server):
    page = view(open_page, "#/events")
    bars = page.get_by_role("slider", name=re.compile("^yard: 151 events"))
    bars.focus()
    expect(bars).to_have_attribute("aria-valuetext", re.compile(": 1 event$"))  # the latest that has events
    page.keyboard.press("ArrowLeft")
    expect(bars).to_have_attribute("aria-valuetext", re.compile(": 0 events$"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Camera", exact=True)).to_have_value("yard")
    expect(rows(page)).to_have_count(1)
    assert re.search(r"from=\d+&to=\d+", page.url)
    page.get_by_role("button", name="Clear filters").click()
    expect(bars).to_be_visible()  # the timeline is that of all events again
    page.locator(".bars[data-source=yard] rect:not(.cursor)").first.click()
    expect(rows(page).last).to_contain_text("Truck")


def test_a_link_opens_its_event_or_says_that_it_was_removed(open_page, server):
    event = clipped(server)[0]
    page = view(open_page, f"#/events?number={event['number']}")
    expect(page.locator(".event-detail h3")).to_have_text(event["text"])
    page.evaluate("location.hash = '#/events?number=99999999'")
    expect(page.locator(".event-detail")).to_contain_text("There is no event 99999999; old events are discarded.")
    page.evaluate("at => { location.hash = `#/events?source=street&kind=crossed&at=${at}`; }", event["time_s"])
    expect(page.locator(".event-detail h3")).to_have_text(re.compile(r"crossed the line"))
    shown = int(re.search(r"number=(\d+)", page.url)[1])
    assert server.open.get(f"/api/v1/events/{shown}").json()["time_s"] == pytest.approx(event["time_s"], abs=0.51)


def test_signed_out_users_see_sentences_without_images(open_page, server):
    event = clipped(server)[0]
    page = view(open_page, f"#/events?number={event['number']}", token=None)
    expect(rows(page).first).to_be_visible()
    expect(page.locator(".event-detail")).to_contain_text("Sign in to see the picture and the clip.")
    assert page.locator(".events-view img, .events-view video").count() == 0


def test_an_unplayable_clip_is_offered_for_download(open_page, server):
    event = clipped(server)[0]
    page = open_page()
    page.route("**/clip.mp4", lambda route: route.fulfill(status=200, content_type="video/mp4", body=b"not a video"))
    page.evaluate("address => { location.hash = address; }", f"#/events?number={event['number']}")
    expect(page.get_by_text("This browser cannot play the clip.")).to_be_visible()
    expect(page.get_by_text("Download the clip", exact=True)).to_be_visible()


def test_a_problem_of_the_store_is_shown(open_page, server):
    server.engine.store.problem = "events are not stored: the disk is full"
    server.engine.store._retry_s = time.monotonic() + 60
    try:
        for address in ("#/events", "#/charts"):
            page = view(open_page, address)
            expect(page.get_by_role("alert").filter(has_text="the disk is full")).to_be_visible()
    finally:
        server.engine.store._retry_s = 0.0


def test_the_overview_links_to_the_events(open_page, server):
    page = open_page()
    expect(page.locator("#events .event").first).to_be_visible()
    page.locator("#events .event a").last.click()
    expect(page.locator(".event-detail h3")).to_be_visible()
    assert "#/events?number=" in page.url


@pytest.mark.parametrize("address", ["#/events", "#/charts"])
def test_text_has_enough_contrast_in_light_and_dark(open_page, server, address):
    measure = (Path(__file__).parent / "contrast.js").read_text()
    for scheme in ("light", "dark"):
        page = view(open_page, address, color_scheme=scheme)
        expect(page.locator(".event-row, .chart svg").first).to_be_visible()
        page.wait_for_timeout(300)
        contrasts = page.evaluate(measure)
        assert len(contrasts) > 20
        assert not [contrast for contrast in contrasts if contrast["ratio"] < 4.5]


def test_the_timeline_keeps_the_focus_and_its_time_when_it_is_drawn_again(open_page, server):
    page = open_page()
    page.clock.install()
    page.evaluate("location.hash = '#/events?period=day'")
    bars = page.get_by_role("slider", name=re.compile("^yard"))
    bars.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    words = bars.get_attribute("aria-valuetext")
    bars.evaluate("bars => { bars.dataset.drawing = 'first'; }")
    page.clock.fast_forward(15_000)
    expect(page.locator("[data-drawing]")).to_have_count(0)
    expect(bars).to_be_focused()
    assert bars.get_attribute("aria-valuetext") == words


def test_the_view_works_with_the_keyboard(open_page, server):
    page = view(open_page, "#/events?source=yard&text=truck+149")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Search").focus()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "event-row":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".event-detail h3")).to_contain_text("Truck 149")
    assert page.evaluate("document.activeElement.className.includes('event-detail')")
    page.get_by_role("button", name="Close").press("Enter")
    assert page.evaluate("document.activeElement.className") == "event-row", "the focus returns"


# --------------------------------------------------------------------------------------------------------------- charts


def chart(page, name):
    return page.locator(".chart").filter(has=page.get_by_role("heading", name=re.compile(f"^{name}")))


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_charts_show_the_values_of_the_api(open_page, server, size):
    for ago_s in (200, 100):  # in between, no step has a value
        event = Event("crossed", "line", "porch", 1, 0.1, 1, {"direction": "in", "label": "truck"})
        server.engine.gallery.add_events(time.time() - ago_s, [event], None)
    server.until(lambda: len(series(server, "frames")["series"][0]["values"]) > 3, 60)
    page = view(open_page, "#/charts", viewport=DESK if size == "desk" else PHONE)
    for name, title in (("frames", "Frames"), ("counts", "Lines and zones"), ("disk", "Free disk space")):
        shown_chart = chart(page, title)
        # a level line has no height: it is not "visible"
        expect(shown_chart.locator("svg path.line")).not_to_have_count(0)
        shown_chart.get_by_text("Show as a table").click()
        expect(shown_chart.locator("tbody tr").nth(1)).to_be_visible()
        shown = shown_chart.evaluate(TABLE)
        expected_by_name = {
            (line["source"] + " " + line["label"]).strip() or "Pipeline": dict(map(tuple, line["values"]))
            for line in series(server, name)["series"]
        }
        assert len(shown["rows"]) > 1
        for at, row in [*zip(shown["times"], shown["rows"], strict=True)][1:]:  # the latest may have just begun
            for column, words in zip(shown["names"], row, strict=True):
                value = expected_by_name[column].get(
                    at, 0 if name == "counts" and at > min(expected_by_name[column]) else None
                )
                assert words == ("–" if value is None else page.evaluate(FORMAT, value)), (name, column, at)
    expect(chart(page, "GPU load")).to_be_hidden()
    assert wide(page) <= 0
    shoot(page, f"charts-{size}")


TABLE = """one => ({
  names: [...one.querySelectorAll("thead th")].slice(1).map((cell) => cell.textContent),
  times: [...one.querySelectorAll("tbody tr")].map((row) => Number(row.dataset.at)),
  rows: [...one.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")].map((td) => td.textContent)),
})"""
FORMAT = "value => new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 }).format(value)"


def series(server, name):
    return server.open.get("/api/v1/series", params={"name": name}).json()


def test_values_are_shown_under_the_pointer_and_by_keys(open_page, server):
    server.until(lambda: len(series(server, "frames")["series"][0]["values"]) > 3, 60)
    page = view(open_page, "#/charts?source=street")
    shown_chart = chart(page, "Frames")
    area = shown_chart.locator(".chart-area")
    tooltip = shown_chart.locator(".chart-told")
    expect(area.locator("svg")).to_be_visible()
    area.focus()
    page.keyboard.press("Home")
    expect(tooltip).to_have_text(re.compile(r"street [\d.]+$"))
    first = tooltip.inner_text()
    page.keyboard.press("ArrowRight")
    expect(tooltip).not_to_have_text(first)
    page.keyboard.press("Home")
    expect(tooltip).to_have_text(first)
    area.evaluate("one => one.blur()")
    expect(tooltip).to_have_text("")
    box = area.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 50)
    expect(tooltip).to_have_text(re.compile(r"street [\d.]+$"))
    page.locator("#charts-cameras").select_option("All cameras together")
    expect(shown_chart.locator(".legend")).to_have_text("All cameras")
    page.get_by_label("Period").select_option("day")
    assert page.url.endswith("#/charts?source=+together&period=day")
