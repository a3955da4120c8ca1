"""The page says how the running pipeline differs from its YAML, and before an edit what it does to the run."""

import re

import pytest
from support.pages import CHROMIUM, chromium_fixture, expect, open_page_fixture, shoot  # noqa: F401  fixtures
from support.servers import served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

TEXT = """\
sources:
  street: {uri: samples/street.mp4, every: 3, pace: 10, loop: true}
  yard: {uri: "test://?width=64&height=48&frames=0", pace: 5}
stages:
  detect: {model: demo}
  track: {}
  door: {stage: line_counter, line: [[320, 60], [320, 360]]}
  crowd: {stage: rule, when: "count(person) > 5"}
"""
TITLE = "The running pipeline differs from the YAML"


@pytest.fixture(name="shop")
def shop_fixture(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = f"{TEXT}state: {tmp_path}/state.db\n"
    with served(text, root, path=tmp_path / "shop.yaml", data=tmp_path / "data") as instance:
        instance.running("yard")
        yield instance


def test_differences_are_shown_and_reverted(open_page, shop):
    page = open_page(url=shop.url, view="sources")
    note = page.get_by_role("region", name=TITLE)
    expect(page.get_by_role("row").filter(has_text="yard")).to_be_visible()
    expect(note).to_be_hidden()
    shop.client.delete("/api/v1/sources/yard")
    shop.client.patch("/api/v1/stages/detect", json={"min_score": 0.7})
    expect(note).to_be_visible()
    expect(note.get_by_role("listitem")).to_have_text(
        ["source yard of the YAML is removed", "detect.postprocess.min_score is 0.7, and not set in the YAML"]
    )
    expect(note).to_contain_text("A restart keeps these changes")
    shoot(page, "differences")
    note.get_by_role("button", name="Restore").click()
    expect(note).to_be_hidden()
    expect(page.get_by_role("row").filter(has_text="yard")).to_be_visible()
    assert shop.client.get("/api/v1/config/differences").json()["differences"] == []


def test_differences_are_saved_to_the_yaml_after_a_preview(open_page, shop, tmp_path):
    shop.client.delete("/api/v1/sources/yard")
    page = open_page(url=shop.url, view="config")
    note = page.get_by_role("region", name=TITLE)
    note.get_by_role("button", name="Write to the YAML").click()
    box = page.get_by_role("dialog")
    expect(box).to_contain_text("yard: {uri:")
    expect(box).to_contain_text("This is applied while the pipeline runs.")
    box.get_by_role("button", name="Save and apply").click()
    expect(note).to_be_hidden()
    assert "yard" not in (tmp_path / "shop.yaml").read_text()
    expect(page.get_by_label("The YAML of this pipeline")).not_to_have_value(re.compile("yard"))
    shop.until(lambda: shop.client.get("/api/v1/config").json()["applied"])
    assert list(shop.engine.running.states) == ["street"]


def test_the_page_says_before_saving_whether_the_pipeline_is_rebuilt(open_page, shop):
    page = open_page(url=shop.url, view="config")
    area = page.get_by_label("The YAML of this pipeline")
    expect(area).to_have_value(re.compile("line_counter"))
    text = area.input_value()
    box = page.get_by_role("dialog")
    for edit, words in (
        (("[320, 60]", "[300, 60]"), "This is applied while the pipeline runs."),
        (("track: {}", "track: {track_ttl: 1s}"), "The pipeline is rebuilt for this (track: track_ttl): its cameras"),
    ):
        area.fill(text.replace(*edit))
        page.get_by_role("button", name="Show changes and save").click()
        expect(box).to_contain_text(words)
        shoot(page, "rebuilt")
        box.get_by_role("button", name="Cancel").click()
