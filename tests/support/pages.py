"""The page in a real browser, its tiles, and a walk through it with the keyboard."""

import os
import shutil
from pathlib import Path

import pytest

from support.servers import TOKEN

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
"""The first has no windows: tests of the page take two thirds of the time."""

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
expect = playwright.expect
expect.set_options(timeout=60_000)

SHOTS = os.environ.get("STREAMKIT_SCREENSHOTS")
"""A folder for screenshots to look at, where it is set."""

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 375, "height": 740}
in_sizes_and_schemes = pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("desk", "light"),
        ("phone", "dark"),
        pytest.param("desk", "dark", marks=pytest.mark.long),
        pytest.param("phone", "light", marks=pytest.mark.long),
    ],
)


@pytest.fixture(name="chromium", scope="module")
def chromium_fixture():
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(name="open_page")
def open_page_fixture(chromium, server):
    """Opens the page; at the end nothing was blocked, failed in a script, or came from elsewhere."""
    contexts = []
    troubles = []
    elsewhere = []

    def opened(*, token=TOKEN, viewport=None, url=None, view="home", **options):
        context = chromium.new_context(viewport=viewport or DESK, **options)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(error.stack or str(error)))
        page.on("console", lambda line: "Content Security Policy" in line.text and troubles.append(line.text))
        page.on("request", lambda request: elsewhere.append(request.url) if not ours(request.url) else None)
        page.goto((url or server.url) + (f"#token={token}" if token else ""))
        if token == TOKEN:  # until then a click asks for the token
            page.locator("#sign-out").wait_for()
        if url is None or not url.endswith("docs"):
            page.evaluate("view => { location.hash = `#/${view}`; }", view)
        return page

    def ours(url):
        return url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:"))

    yield opened
    for context in contexts:
        context.close()
    assert not troubles, troubles
    assert not elsewhere, elsewhere


@pytest.fixture(autouse=True)
def tidy(server):
    yield
    for source in server.open.get("/api/v1/sources").json():
        if source["id"] not in ("street", "gate"):
            server.client.delete(f"/api/v1/sources/{source['id']}")


def tile(page, id_):
    return page.locator(".tile").filter(has=page.get_by_role("heading", name=id_, exact=True))


def shoot(page, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def wide(page):
    """How far the page is wider than the window, in pixels."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def focused(page):
    return page.evaluate(
        "(e => e.getAttribute('aria-label') ?? e.innerText ?? e.tagName)(document.activeElement)"
    ).strip()


def ring(page):
    """Whether what has the focus shows it: with an outline, or in a drawing with a color of its own."""
    return page.evaluate("""() => {
      const one = document.activeElement, marks = ["rgb(255, 95, 168)", "rgb(214, 0, 108)"];
      return getComputedStyle(one).outlineStyle === "solid"
        || [...one.querySelectorAll(".shape, circle")].some((part) => marks.includes(getComputedStyle(part).stroke));
    }""")


def walk(page, name):
    """Go forward with the tabulator until `name` has the focus; every stop has a name and shows that it has it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        here = focused(page)
        if here == name:
            return
        assert here == "BODY" or page.evaluate("document.activeElement === document.body") or ring(page), here
    raise AssertionError(f"{name} is not reached with the tabulator")
