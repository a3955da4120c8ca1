"""The alarm center: rules in words, acknowledgement in the API and on the page, and the history."""

import re

import pytest
from support.pages import CHROMIUM, chromium_fixture, expect, open_page_fixture  # noqa: F401  fixtures
from support.servers import SECRET, served

from streamkit.config.alarms import FACTS
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.serve.alarm_center import _FACTS, in_words, rule_in_words

TEXT = f"""
sources:
  gate: {{uri: "rtsp://operator:{SECRET}@127.0.0.1:9/stream1"}}
  bars: {{uri: "test://?width=96&height=64&frames=0", pace: 5}}
stages:
  draw: {{}}
alarms:
  camera_down: {{when: "down_s > 0.2 && cause == 'refused'", clear: 0.2s}}
  never: {{when: "total_fps > 1e6 for 10s", cooldown: 5min, schedule: {{days: mon-fri, hours: "8:00-18:00"}}}}
"""


@pytest.fixture(scope="module")
def server(root):
    with served(TEXT, root) as alarm_server:
        alarm_server.until(lambda: alarm_server.open.get("/api/v1/status").json()["alarms"])
        yield alarm_server


def test_every_fact_has_a_description():
    assert _FACTS.keys() == FACTS.keys()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("down_s > 30", "the seconds for which a source is down is above 30"),
        ("drop_rate >= 0.1 for 1min", "the share of a source's frames that are dropped is at least 0.1 for 1min"),
        (
            "!(state in ['failed', \"paused\"]) || cause == 'a > b'",
            "not (the state of a source is one of ['failed', \"paused\"]) or the cause of that state is 'a > b'",
        ),
    ],
)
def test_a_rule_is_described_in_words(rule, words):
    assert rule_in_words(rule) == words


def test_delays_and_schedules_are_described_in_words(tmp_path):
    down, never = build(read(tmp_path / "x.yaml", text=TEXT)).config.alarms
    assert "is above 0.2 and the cause of that state is 'refused'; cleared when" in in_words(down)
    assert in_words(never) == (
        "Raised when the frames per second of all sources is above 1e6 for 10s; cleared when that has not been so for "
        "10 s; not raised again within 5 min; only on Mon, Tue, Wed, Thu, Fri from 8:00 to 18:00."
    )


def test_an_alarm_is_acknowledged_until_it_is_cleared(server):
    path = "/api/v1/alarms/camera_down/acknowledge"
    assert server.open.post(path, json={"source": "gate"}).status_code == 401
    assert server.client.post("/api/v1/alarms/none/acknowledge", json={"source": "gate"}).status_code == 404
    answer = server.client.post(path, json={"source": "bars"})
    assert (answer.status_code, "is not raised for 'bars'" in answer.json()["error"]) == (409, True)
    server.until(
        lambda: [problem["alarms"] for problem in server.open.get("/api/v1/problems").json()] == [["camera_down"]]
    )
    acknowledged = server.client.post(path, json={"source": "gate"})
    assert acknowledged.json()["raised"][0]["acknowledged"] is True
    assert server.open.get("/api/v1/status").json()["alarms"][0]["acknowledged"] is True

    def severity():
        return [problem["severity"] for problem in server.open.get("/api/v1/problems").json()]

    server.until(lambda: severity() == ["warning"])
    server.client.post("/api/v1/sources/gate/pause")
    server.until(lambda: not server.open.get("/api/v1/status").json()["alarms"])
    server.client.post("/api/v1/sources/gate/resume")
    raised = server.until(lambda: server.open.get("/api/v1/status").json()["alarms"])
    assert raised[0]["acknowledged"] is False  # it is another one
    kinds = [change["kind"] for change in server.open.get("/api/v1/alarms/history").json()]
    assert kinds == ["raised", "cleared", "raised"]
    assert len(server.open.get("/api/v1/alarms/history?limit=1").json()) == 1


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")
def test_the_view_shows_rules_and_history_and_takes_an_acknowledgement(open_page, server):
    server.until(lambda: server.open.get("/api/v1/status").json()["alarms"])
    page = open_page()
    page.locator("#status").click()  # the header leads to the reasons
    expect(page).to_have_url(re.compile("#/alarms$"))
    view = page.locator("#view")
    wrong = view.locator("section").filter(has=page.get_by_role("heading", name="Problems"))
    expect(wrong.locator("li")).to_have_count(1)  # the camera and its alarm
    expect(wrong.locator("li")).to_contain_text('camera "gate" has been down')
    expect(wrong.locator("li")).to_contain_text("alarm camera_down")
    expect(page.locator("#status")).to_have_class("status bad")
    wrong.get_by_role("button", name=re.compile('^Acknowledge: camera "gate" has been down')).click()
    expect(wrong.locator("li")).to_contain_text("acknowledged, for")
    expect(wrong.get_by_role("button")).to_have_count(0)
    expect(page.locator("#status")).to_have_class("status warn")
    assert server.open.get("/api/v1/status").json()["alarms"][0]["acknowledged"] is True
    rules = view.get_by_role("heading", name="Rules").locator("..")
    expect(rules).to_contain_text("the seconds for which a source is")
    expect(rules).to_contain_text("raised for gate; raised since the start: ")
    history = view.locator("section").filter(has=page.get_by_role("heading", name="History")).locator("li")
    expect(history.first).to_contain_text("camera_down raised")
    wrong.get_by_role("link", name=re.compile("gate")).click()
    expect(page.locator("#home")).to_be_visible()
    server.client.post("/api/v1/sources/gate/pause")
    expect(page.locator("#status-text")).to_have_text("running")
    page.locator("#status").click()
    expect(wrong).to_contain_text("Nothing is wrong.")
    expect(history.first).to_contain_text("camera_down cleared")
    server.client.post("/api/v1/sources/gate/resume")
