"""Every view of the page, in a real browser: it opens, fits, has a heading, can be read, and passes axe.

The tests loop over the page's own list of views, so that a new view is covered. With
`STREAMKIT_DOCS_SHOTS=1` they write docs/ui/*.webp.
"""

import io
import itertools
import os
import re
import time
from pathlib import Path

import pytest
from support.pages import (  # noqa: F401  fixtures
    CHROMIUM,
    chromium_fixture,
    expect,
    in_sizes_and_schemes,
    open_page_fixture,
    ring,
    tidy,
    tile,
    wide,
)
from support.recorded_days import record_clip
from support.servers import served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

SIZES = {"desk": {"width": 1400, "height": 900}, "phone": {"width": 390, "height": 844}}
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
MAX_BYTES = 120_000
WRITES = os.environ.get("STREAMKIT_DOCS_SHOTS")

PIPELINE = """
# A street, its yard and its gate
sources:
  street: {uri: samples/street.mp4, every: 3, pace: 5, loop: true}
  yard: {uri: samples/street.mp4, pace: 2, loop: true, start: 4s}
  gate: {uri: "rtsp://operator:geheim@127.0.0.1:9/stream1"}
stages:
  detect: {model: demo}
  track: {}
  line: {stage: line_counter, line: [[320, 60], [320, 360]]}
  crossing: {stage: zone, polygon: [[100, 60], [500, 60], [500, 360], [100, 360]], from: track}
  draw: {from: line}
  record: {continuous: true, folder: RECORDINGS}
alarms:
  camera_down: down_s > 3
  few_frames: {when: total_fps < 2, schedule: {days: mon-fri, hours: "8:00-18:00"}}
"""


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    path = tmp_path_factory.mktemp("views") / "street.yaml"
    folder = tmp_path_factory.mktemp("recordings")
    record_quarter_of_an_hour(folder, root / "samples/street.mp4")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(PIPELINE.replace("RECORDINGS", str(folder)), root, path=path) as view_server:
            view_server.running("street")
            view_server.until(lambda: view_server.open.get("/api/v1/alarms/history").json())
            yield view_server


def record_quarter_of_an_hour(folder, clip):
    """Recordings before the server starts; `yard` was away for some minutes."""
    begin_s = time.time() - 960
    for source, away in (("street", range(0)), ("yard", range(400, 520))):
        end_s = begin_s
        while end_s < begin_s + 900:
            cause = "camera away" if int(end_s - begin_s) in away else ""
            if cause:
                end_s = begin_s + away.stop
            end_s = record_clip(folder, source, clip, end_s, cause)


@pytest.fixture(autouse=True)
def tidy():  # noqa: F811  the module's server keeps its sources
    return


def names(page):
    return page.evaluate("import('/page/views/index.js').then((one) => one.VIEWS.map((view) => view.name))")


def go(page, name):
    """Open a view by its address, and wait until it has content."""
    page.evaluate("name => { location.hash = `#/${name}`; }", name)
    shown = page.locator("main:visible")
    expect(shown.get_by_role("heading").first).to_be_visible()
    settle(page)
    return shown


def settle(page):
    """Wait until the view has what the server knows."""
    with page.expect_response("**/api/v1/source-changes*"):
        pass
    page.wait_for_timeout(300)


def write(page, name):
    from PIL import Image

    folder = Path("docs/ui")
    folder.mkdir(exist_ok=True)
    picture = Image.open(io.BytesIO(page.screenshot()))
    for quality in (82, 70, 55):
        picture.save(folder / f"{name}.webp", quality=quality, method=6)
        if (folder / f"{name}.webp").stat().st_size < MAX_BYTES:
            return
    raise AssertionError(f"{name}.webp has more than {MAX_BYTES} bytes")


MOVING = """() => [...document.querySelectorAll("*")].filter((one) => {
  const style = getComputedStyle(one);
  return style.scrollBehavior === "smooth" || style.animationName !== "none"
    || (style.transitionProperty !== "none" && !/^(0s(, )?)+$/.test(style.transitionDuration));
}).map((one) => one.outerHTML.slice(0, 100))"""


@in_sizes_and_schemes
def test_every_view_fits_and_passes_the_accessibility_check(open_page, root, size, scheme, monkeypatch):
    """The width, the contrast, the findings of axe, and that nothing moves where the user wants no motion."""
    axe = pytest.importorskip("axe_playwright_python.base", reason="no axe; pip install axe-playwright-python")
    monkeypatch.chdir(root)
    page = open_page(viewport=SIZES[size], color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.add_script_tag(path=axe.AXE_FILE_PATH)
    views = names(page)
    assert views[0] == "live"
    assert len(views) >= 4
    go(page, "home")
    expect(tile(page, "street").locator("img")).to_be_visible()
    for name in views:
        go(page, name)
        assert wide(page) <= 0, f"{name} is wider than the window"
        assert page.locator("main:visible").count() == 1, name
        unreadable = [contrast for contrast in page.evaluate(CONTRAST) if contrast["ratio"] < 4.5]
        assert unreadable == [], name
        assert page.evaluate(MOVING) == [], name
        axe_result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        violations = [
            (violation["id"], [node["html"][:160] for node in violation["nodes"]])
            for violation in axe_result["violations"]
        ]
        assert violations == [], name
        if WRITES:
            write(page, f"{name}-{size}-{scheme}")


@pytest.mark.long
def test_every_view_is_navigable_by_keyboard(open_page):
    page = open_page(viewport=SIZES["desk"])
    for name in names(page):
        go(page, name)
        page.reload()  # the focus begins at the top
        expect(page.locator("main:visible").get_by_role("heading").first).to_be_visible()
        settle(page)
        page.keyboard.press("Tab")
        expect(page.locator("#skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main:visible")).to_be_focused()
        assert page.evaluate("location.hash") == f"#/{name}"  # the skip link keeps the view
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body"):
                break
            assert ring(page), f"{name}: {page.evaluate('document.activeElement.outerHTML.slice(0, 200)')}"


@pytest.mark.parametrize("size", SIZES)
def test_the_navigation_reaches_every_view(open_page, size):
    page = open_page(viewport=SIZES[size])
    expect(page.locator("#views a").first).to_be_visible()
    for name in names(page)[::-1]:
        link = page.locator(f'#views a[data-view="{name}"]')
        if not link.is_visible():
            page.locator("#more").click()
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        expect(page.locator("main:visible").get_by_role("heading").first).to_be_visible()
        box = page.locator("#nav").bounding_box()
        if size == "phone":
            assert box["y"] + box["height"] == pytest.approx(SIZES[size]["height"], abs=1)
        else:
            assert (box["x"], box["width"] < 240) == (0, True)


def test_the_list_of_sources_shows_what_is_counted(open_page, server):
    server.engine.state("gate").counters.add("frames concealed", 5)
    row = go(open_page(viewport=SIZES["desk"]), "sources").locator("tr", has_text="gate")
    expect(row.locator(".counts")).to_contain_text("frames concealed: 5")


def test_a_phone_has_the_alarms_in_its_bar_with_the_number_of_problems(open_page):
    page = open_page(viewport=SIZES["phone"])
    link = page.locator('#views a[data-view="alarms"]')
    expect(link).to_be_visible()
    expect(link.locator(".problem-count")).to_have_text(re.compile(r"^\d$"))
    box = link.locator(".problem-count").bounding_box()
    assert box["x"] + box["width"] <= SIZES["phone"]["width"]


def test_a_phone_stacks_the_cameras(open_page):
    page = open_page(viewport=SIZES["phone"])
    expect(tile(page, "yard")).to_be_visible()
    boxes = [tile(page, id_).bounding_box() for id_ in ("gate", "street", "yard")]  # the worst first
    assert len({box["x"] for box in boxes}) == 1
    assert all(upper["y"] + upper["height"] <= lower["y"] for upper, lower in itertools.pairwise(boxes))
    assert all(box["width"] > 340 for box in boxes)
