"""The styles of a view stay in that view: no visit of another view changes how it looks."""

import re
from pathlib import Path

import pytest
from support.pages import CHROMIUM, chromium_fixture, expect, open_page_fixture  # noqa: F401  fixtures
from support.servers import served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

PIPELINE = """
sources:
  street: {uri: samples/street.mp4, every: 3, pace: 10, loop: true}
  gate: {uri: "rtsp://127.0.0.1:9/stream1"}
stages:
  detect: {model: demo}
  track: {}
  line: {stage: line_counter, line: [[320, 60], [320, 360]]}
alarms:
  camera_down: down_s > 0.2
"""

FINGERPRINT = (Path(__file__).parent / "fingerprint.js").read_text()

# Each fact with the width of its text, divided by its height.
FACTS = """() => [...document.querySelectorAll(".facts dd")].filter((fact) => fact.textContent).map((fact) => {
  const range = document.createRange();
  range.selectNodeContents(fact);
  const { width, height } = range.getBoundingClientRect();
  return [fact.textContent, width / height];
})"""


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    path = tmp_path_factory.mktemp("styles") / "street.yaml"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(PIPELINE, root, path=path) as server:
            server.running("street")
            server.until(lambda: server.open.get("/api/v1/events?stage=line").json())
            yield server


def names(page):
    return page.evaluate("import('/page/views/index.js').then(({ VIEWS }) => VIEWS.map(({ name }) => name))")


def visit(page, name):
    page.evaluate("name => { location.hash = `#/${name}`; }", name)
    expect(page.locator(f'main[data-view="{name}"]:visible').get_by_role("heading").first).to_be_visible()


def open_items(page, name):
    """Open what a view opens, so that its styles are compared as well."""
    if name == "events":
        page.locator(".event-row").first.click()
        expect(page.locator(".event-detail .facts dd").first).to_be_visible()
    elif name == "pipeline":
        page.locator('[data-stage="line"]').click()
        expect(page.locator(".facts dd").first).to_be_visible()
    elif name == "charts":
        page.locator(".chart-table summary").first.click()


def test_style_rules_of_a_view_apply_in_that_view_only(open_page, server):
    page = open_page()
    rules = page.evaluate("""async () => {
      const { VIEWS } = await import("/page/views/index.js"), rules = {};
      for (const { name } of VIEWS) {
        const sheet = new CSSStyleSheet();
        sheet.replaceSync(await (await fetch(`/page/views/${name}.css`)).text());
        rules[name] = [...sheet.cssRules].map((rule) => rule.selectorText ?? rule.cssText);
      }
      return rules;
    }""")
    assert len(rules) > 8
    for name, selectors in rules.items():
        assert set(selectors) == {f'main[data-view="{name}"]'}, name


def test_expanded_items_look_the_same_after_visiting_all_views(open_page, server):
    traveled = open_page()
    views = names(traveled)
    for name in views:
        visit(traveled, name)
    for name in views:
        fresh = open_page(view=name)
        styles = []
        for page in (fresh, traveled):
            visit(page, name)
            open_items(page, name)
            page.wait_for_timeout(300)
            styles.append(page.evaluate(FINGERPRINT))
        fresh.context.close()
        shared = styles[0].keys() & styles[1].keys()
        assert len(shared) >= 5, name
        changed = {path: (styles[0][path], styles[1][path]) for path in shared if styles[0][path] != styles[1][path]}
        assert changed == {}, name


def test_facts_keep_their_layout_after_visiting_all_views(open_page, server):
    page = open_page()
    for name in names(page):
        visit(page, name)
    for view in ("events", "pipeline"):
        visit(page, view)
        open_items(page, view)
        shapes = page.evaluate(FACTS)
        assert len(shapes) > 5
        assert not [text for text, shape in shapes if len(text) > 5 and shape < 1], "a letter stands below the other"


def test_a_view_appears_after_its_style_is_loaded(open_page, server):
    page = open_page()
    blocked = []
    page.route(re.compile(r"/page/views/logs\.css"), lambda route: blocked.append(route))
    page.evaluate("location.hash = '#/logs'")
    page.wait_for_timeout(500)
    assert blocked
    assert page.locator("#view *").count() == 0
    blocked[0].continue_()
    expect(page.locator("#view").get_by_role("heading", name="Messages")).to_be_visible()
