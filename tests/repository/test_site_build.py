"""The site that MkDocs builds, opened as files in a browser: search works, and nothing is asked of a network."""

import re
from pathlib import Path

import pytest
from support.built_site import build_site
from support.pages import CHROMIUM, DESK, PHONE, chromium_fixture  # noqa: F401  a fixture

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    return folder


@pytest.fixture
def opened(chromium, site):
    """Opens a page; at the end no script has failed, and every request was to a file."""
    troubles = []

    def open_page(place, viewport=DESK):
        page = chromium.new_context(viewport=viewport).new_page()
        page.on("pageerror", lambda error: troubles.append(error.stack or str(error)))
        page.on("console", lambda line: line.type in ("error", "warning") and troubles.append(line.text))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or troubles.append(request.url))
        page.on("requestfailed", lambda request: troubles.append(f"{request.url} failed"))
        page.goto((site / place).as_uri())
        return page

    yield open_page
    assert troubles == []


@pytest.mark.parametrize(("place", "viewport"), [("index.html", DESK), ("reference/stages/zone.html", PHONE)])
def test_the_search_finds_an_option_without_a_server(opened, place, viewport):
    page = opened(place, viewport)
    if viewport is PHONE:
        page.locator("label.md-header__button[for=__search]").click()
    field = page.locator("input.md-search__input")
    field.click()
    field.press_sequentially("require_present_below")
    assert "No matching" in page.locator(".md-search-result__meta", has_text="matching").inner_text()
    field.fill("")
    field.press_sequentially("freeze_timeout")
    first = page.locator(".md-search-result__link").first
    first.wait_for()
    assert "reference/stages/source.html" in " ".join(
        link.get_attribute("href") for link in page.locator(".md-search-result__link").all()
    )
    first.click()
    page.locator("h1").first.wait_for()
    assert "freeze_timeout" in page.content()


def test_every_page_opens_without_an_error_or_a_request(opened, site):
    page = opened("index.html")
    places = ("architecture", "changelog", "reference/http-api", "reference/events", "project/examples/detect.yaml")
    for place in places:
        page.goto((site / f"{place}.html").as_uri())
        assert page.locator("h1").count() == 1


def test_tables_are_not_wider_than_a_phone(opened):
    page = opened("reference/pipeline.html", PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_every_page_is_there_as_markdown_and_llms_txt_leads_to_it(site):
    pages = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")} - {"404"}
    texts = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.md")}
    assert {re.sub("/README$", "/index", text) for text in texts} == pages  # as MkDocs names them
    linked = set(re.findall(r"\]\((\S+)\.md\)", (site / "llms.txt").read_text(encoding="utf-8")))
    assert {"rules", "reference/stages/track", "reference/plugin_api"} <= linked <= texts
    assert ":::" not in (site / "reference" / "plugin_api.md").read_text(encoding="utf-8")
