"""The charts in a real browser: the server's clock, the axes, and the color of each camera."""

import json
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from support.pages import CHROMIUM, chromium_fixture, expect, open_page_fixture  # noqa: F401  fixtures

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

HOURS_AHEAD = "Date.now = ((now) => () => now.call(Date) + 3 * 3600e3)(Date.now);"
FIELDS = {"sums": False, "step_s": 10, "unit": "frames/s"}


def ends(requests, path):
    """The ends of the periods that requests asked for, in seconds since 1970."""
    queries = [parse_qs(urlsplit(url).query) for url in requests if urlsplit(url).path.endswith(path)]
    return [float(query["to"][0]) for query in queries if "to" in query]


def test_periods_end_at_the_servers_current_time(open_page, server):
    page = open_page(view="charts")
    page.add_init_script(HOURS_AHEAD)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.reload()
    expect(page.get_by_role("heading", name="Charts")).to_be_visible()
    page.evaluate("location.hash = '#/events?period=hour'")
    expect(page.get_by_role("heading", name="Events")).to_be_visible()
    page.wait_for_timeout(500)
    now_s = time.time()
    assert ends(requests, "/series")
    assert [end for end in ends(requests, "/series") if abs(end - now_s) > 30] == []
    (timeline, *_) = ends(requests, "/events/timeline")
    assert 0 <= timeline - now_s <= 3600 / 96 + 30
    starts = [parse_qs(urlsplit(url).query).get("from") for url in requests if urlsplit(url).path.endswith("/events")]
    assert abs(float(next(start[0] for start in starts if start)) - (now_s - 3600)) < 30


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [(0, [0, 0.5, 1]), (1, [0, 0.5, 1]), (4, [0, 1, 2, 3, 4]), (7, [0, 2, 4, 6, 8]), (0.03, [0, 0.01, 0.02, 0.03])],
)
def test_the_axis_has_round_numbers_also_without_a_value_above_zero(open_page, server, largest, ticks):
    axis = open_page().evaluate(
        "async (largest) => (await import('/page/views/chart.js')).valueTicks(largest)", largest
    )
    assert axis == pytest.approx(ticks)


# -------------------------------------------------------------------------------------------------------------- colors


def colors(page, *lists):
    """The colors of cameras after each of the lists of all cameras was seen."""
    return page.evaluate(
        """async (lists) => {
          const { assignColors, colorOf } = await import("/page/colors.js");
          return lists.map((ids) => {
            assignColors(ids);
            return Object.fromEntries(ids.map((id) => [id, colorOf(id)]));
          });
        }""",
        lists,
    )


def test_a_camera_keeps_its_color_when_others_are_added_or_removed(open_page, server):
    page = open_page(token=None, url=f"{server.url}docs")  # which assigns no colors itself
    cameras = [f"cam{n}" for n in range(30)]
    first, fewer, more = colors(page, cameras, cameras[5:], [*cameras[5:], "new"])
    assert len(set(first.values())) == 30
    assert fewer == {id_: first[id_] for id_ in cameras[5:]}
    assert {id_: more[id_] for id_ in cameras[5:]} == fewer
    assert more["new"] not in fewer.values()
    page.reload()
    (again,) = colors(page, cameras[5:])
    assert again == fewer


def test_each_color_contrasts_with_the_card(open_page, server):
    """Lines have a contrast of at least 3 on what they are drawn on, in both color schemes."""
    for scheme in ("light", "dark"):
        page = open_page(color_scheme=scheme)
        ratios = page.evaluate(
            """async () => {
              const { colorOfSlot } = await import("/page/colors.js");
              const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
              const luminance = (color) => {
                const probe = document.createElement("i");
                probe.style.color = color;
                document.body.append(probe);
                context.fillStyle = getComputedStyle(probe).color;
                context.fillRect(0, 0, 1, 1);
                const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].map((value) => {
                  const share = value / 255;
                  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
                });
                return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
              };
              const card = luminance("var(--card)");
              return [...Array(48).keys()].map((slot) => {
                const [dark, light] = [card, luminance(colorOfSlot(slot))].sort((a, b) => a - b);
                return (light + 0.05) / (dark + 0.05);
              });
            }"""
        )
        assert min(ratios) >= 3, scheme


def test_a_camera_has_the_same_color_in_all_charts_and_its_lines_differ_by_dashes(open_page, server):
    page = open_page()
    values = [[100, 1.0], [110, 2.0]]
    series = {
        "frames": [("street", ""), ("gate", "")],
        "latency": [("gate", "")],  # the first line of this chart is another camera's
        "counts": [("street", "path in"), ("street", "path out"), ("gate", "path in")],
    }

    def answer(route):
        name = parse_qs(urlsplit(route.request.url).query)["name"][0]
        lines = [{"source": source, "label": label, "values": values} for source, label in series.get(name, [])]
        period = {"from_s": 0, "to_s": 200, "name": name, "series": lines}
        route.fulfill(body=json.dumps({**FIELDS, **period}), content_type="application/json")

    page.route("**/api/v1/series?*", answer)
    page.evaluate("location.hash = '#/charts'")
    expect(page.locator(".legend li")).to_have_count(6)
    lines = page.evaluate(
        """() => [...document.querySelectorAll(".legend li")].map((entry) => {
          const line = entry.querySelector("path");
          const dashes = line.getAttribute("stroke-dasharray") ?? "";
          return [entry.textContent.trim(), line.style.getPropertyValue("--own"), dashes];
        })"""
    )
    color = {name: stroke for name, stroke, _ in lines[:2]}
    assert color["street"] != color["gate"]
    assert [stroke for _, stroke, _ in lines] == [color[name.split()[0]] for name, _, _ in lines]
    dashes = {name: dash for name, _, dash in lines[3:]}
    assert dashes["street path in"] == dashes["gate path in"] == ""
    assert dashes["street path out"] != ""


# --------------------------------------------------------------------------------------------------------------- focus


def answered(page, series):
    """Answer each request for a chart's values with those of its name in `series`."""

    def answer(route):
        name = parse_qs(urlsplit(route.request.url).query)["name"][0]
        lines = [{"source": "", "label": name, "values": values} for values in series.get(name, [])]
        period = {"from_s": 0, "to_s": 200, "name": name, "series": lines}
        route.fulfill(body=json.dumps({**FIELDS, **period}), content_type="application/json")

    page.route("**/api/v1/series?*", answer)


def test_a_chart_keeps_the_focus_when_it_loses_its_values(open_page, server):
    page = open_page()
    page.clock.install()
    series = {"gpu": [[[100, 1.0], [110, 2.0]]]}
    answered(page, series)
    page.evaluate("location.hash = '#/charts'")
    chart = page.locator(".chart").filter(has=page.get_by_role("heading", name="GPU load"))
    area = chart.locator(".chart-area")
    area.focus()
    page.keyboard.press("End")
    expect(chart.locator(".chart-told")).not_to_be_empty()
    series.clear()
    page.clock.fast_forward(10_000)
    expect(chart.locator(".empty")).to_be_visible()
    expect(area).to_be_focused()
    expect(chart.locator(".chart-told")).to_be_empty()
    expect(area.locator("svg")).to_have_count(0)
    page.keyboard.press("Tab")
    expect(chart.locator("summary")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    expect(chart).to_be_hidden()
    assert page.evaluate("document.activeElement !== document.body")


def test_charts_are_focusable_once_their_values_are_loaded(open_page, server):
    page = open_page()
    page.route("**/api/v1/series?*", lambda route: None)
    page.evaluate("location.hash = '#/charts'")
    expect(page.get_by_role("heading", name="Frames", exact=True)).to_be_visible()
    assert page.locator(".chart-area:visible, .chart summary:visible").count() == 0
    assert page.get_by_role("heading", name="GPU load").count() == 0
