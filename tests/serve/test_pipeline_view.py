"""The view of the pipeline: rates, the bottleneck, a stage's counters, and each kind of setting with its control."""

import re

import pytest
from support.pages import CHROMIUM, PHONE, chromium_fixture, expect, open_page_fixture, tidy  # noqa: F401  fixtures
from support.servers import TOKEN, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

PLUGIN = """
import time
from dataclasses import field
from typing import Annotated, Literal
from streamkit import FrameStage, Seconds, stage

@stage("knobs", changeable=("on", "count", "wait", "mode", "word", "names", "weights", "maybe"))
class Knobs(FrameStage):
    \"\"\"Has a setting of each kind.\"\"\"

    on: Annotated[bool, "whether it works"] = False
    count: Annotated[int, "how many"] = 3
    wait: Annotated[Seconds, "for how long"] = 0.001
    mode: Annotated[Literal["fast", "fine"], "how well"] = "fast"
    word: Annotated[str, "what to call it"] = "gate"
    names: Annotated[list[str] | None, "which people"] = None
    weights: Annotated[dict[str, float], "how much of each"] = field(default_factory=dict)
    maybe: Annotated[float | None, "perhaps"] = None

    def process(self, frame):
        time.sleep(self.wait)
"""


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    plugin = tmp_path_factory.mktemp("plugin") / "knobs.py"
    plugin.write_text(PLUGIN)
    text = f"plugins: [{plugin}]\nsources: {{street: {{uri: 'test://?width=96&height=64&frames=0', pace: 20}}}}\n"
    text += "stages:\n  knobs: {}\n  draw: {}\n"
    with served(text, root) as knob_server:
        knob_server.running("street")
        yield knob_server


@pytest.fixture(name="knobs")
def knobs_fixture(open_page, server):
    page = open_page()
    page.evaluate("location.hash = '#/pipeline'")
    page.locator('[data-stage="knobs"]').click()
    expect(page.locator("#stage-title")).to_have_text("knobs")
    return page


def values(server):
    return server.engine.running.changeable("knobs")


def form(page):
    return page.get_by_role("form", name="Settings of knobs")


def apply(page):
    form(page).get_by_role("button", name="Apply").click()


def test_the_graph_shows_live_rates_and_counters(knobs, server):
    node = knobs.locator('[data-stage="knobs"]')
    expect(node.locator(".rate")).to_have_text(re.compile(r"^(1[5-9]|2\d)\.\d frames/s$"))
    expect(node.locator(".load")).to_have_text(re.compile(r"^\d+ % busy$"))
    expect(knobs.locator('[data-stage="decode"] .load')).to_have_text("1 of 1 running")
    facts = knobs.locator(".facts")
    expect(facts).to_contain_text(re.compile(r"Cost of a frame\d+\.\d+ ms"))
    expect(facts).to_contain_text("Reads fromsources")
    stage = next(stage_view for stage_view in server.open.get("/api/v1/stages").json() if stage_view["id"] == "knobs")
    assert 10 < stage["fps"] < 30
    assert 0 <= stage["busy"] < 0.9


def test_every_type_of_setting_has_a_control_and_applies_live(knobs, server):
    box = form(knobs)
    expect(box).to_contain_text("for how long")  # the help
    expect(box).to_contain_text("seconds")  # the unit
    box.get_by_label("on", exact=True).check()
    box.get_by_label("count").fill("7")
    box.get_by_label("wait").fill("0.002")
    box.get_by_label("mode").select_option(label="fine")
    box.get_by_label("word").fill("yard")
    box.get_by_label("maybe").fill("2.5")
    who = box.locator(".setting").filter(has_text="which people")
    who.get_by_label("Set").check()
    who.get_by_role("button", name="Add a row").click()
    who.get_by_label("names: value").fill("anna")
    weights = box.locator(".setting").filter(has_text="how much of each")
    weights.get_by_role("button", name="Add a row").click()
    weights.get_by_label("weights: name").fill("car")
    weights.get_by_label("weights: value").fill("0.5")
    apply(knobs)
    expect(knobs.locator("#said")).to_have_text("knobs was changed.")
    wanted = {
        "on": True,
        "count": 7,
        "wait": 0.002,
        "mode": "fine",
        "word": "yard",
        "names": ["anna"],
        "weights": {"car": 0.5},
        "maybe": 2.5,
    }
    server.until(lambda: values(server) == wanted)
    expect(box.locator(".setting-history li")).to_contain_text("count: 3 → 7")
    box.get_by_role("button", name="Restore").click()
    before = {
        "on": False,
        "count": 3,
        "wait": 0.001,
        "mode": "fast",
        "word": "gate",
        "names": None,
        "weights": {},
        "maybe": None,
    }
    server.until(lambda: values(server) == before)
    expect(box.get_by_label("count")).to_have_value("3")
    expect(box.get_by_label("on", exact=True)).not_to_be_checked()
    expect(weights.locator("li")).to_have_count(0)
    expect(box.locator(".setting-history li")).to_have_count(0)


def test_an_invalid_value_is_refused_with_the_reason(knobs, server):
    before = values(server)
    box = form(knobs)
    box.get_by_label("count").fill("")
    apply(knobs)
    expect(box.get_by_role("alert")).to_have_text("Type a number.")
    box.get_by_label("count").fill("4.5")
    apply(knobs)
    expect(box.get_by_role("alert")).to_contain_text("count")
    weights = box.locator(".setting").filter(has_text="how much of each")
    weights.get_by_role("button", name="Add a row").click()
    apply(knobs)
    expect(box.get_by_role("alert")).to_contain_text("weights has an empty row")
    assert values(server) == before


def test_changes_of_other_clients_appear_except_in_edited_fields(knobs, server):
    box = form(knobs)
    box.get_by_label("word").fill("mine")
    server.client.patch("/api/v1/stages/knobs", json={"count": 9, "word": "theirs"})
    expect(box.get_by_label("count")).to_have_value("9")
    expect(box.get_by_label("word")).to_have_value("mine")
    server.client.patch("/api/v1/stages/knobs", json={"count": 3, "word": "gate"})


def test_the_bottleneck_is_highlighted_and_named(knobs, server):
    server.client.patch("/api/v1/stages/knobs", json={"wait": 0.2})
    node = knobs.locator('[data-stage="knobs"]')
    expect(node).to_have_class(re.compile(r"\bhot\b"))
    expect(knobs.locator(".bottleneck")).to_contain_text("knobs is busy")
    assert server.open.get("/api/v1/status").json()["bottleneck"]["stage"] == "knobs"
    colors = "one => [getComputedStyle(one).borderColor, getComputedStyle(document.querySelector('.bottleneck')).color]"
    assert len(set(node.evaluate(colors))) == 1
    expect(knobs.locator("#reason")).to_contain_text("dropped in the last minute")  # the header says what comes of it
    server.client.patch("/api/v1/stages/knobs", json={"wait": 0.001})
    expect(node).not_to_have_class(re.compile(r"\bhot\b"))


def test_asking_for_the_token_keeps_the_typed_value(open_page, server):
    page = open_page(token=None, viewport=PHONE)
    page.evaluate("location.hash = '#/pipeline?stage=knobs'")
    box = form(page)
    box.get_by_label("count").fill("5")
    apply(page)
    page.get_by_label("Token").fill(TOKEN)
    page.locator("#login").get_by_role("button", name="Sign in").click()
    expect(page.locator("#login")).to_be_hidden()
    expect(box.get_by_label("count")).to_have_value("5")
    apply(page)
    server.until(lambda: values(server)["count"] == 5)
    box.get_by_role("button", name="Restore").click()
    server.until(lambda: values(server)["count"] == 3)
