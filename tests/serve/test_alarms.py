"""Alarms in the API, in the metrics and on the page, of a camera that is not there."""

import re

import pytest
from support.servers import SECRET, served

TEXT = f"""
sources:
  gate: {{uri: "rtsp://operator:{SECRET}@127.0.0.1:9/stream1"}}
  test: {{uri: "test://?width=96&height=64&frames=0", pace: 10}}
stages:
  draw: {{}}
alarms:
  camera_down: {{when: "down_s > 0.2 && cause == 'refused'"}}
  never: total_fps > 1e6
"""


@pytest.fixture(scope="module")
def alarmed(root):
    with served(TEXT, root) as server:
        server.until(lambda: server.open.get("/api/v1/status").json()["alarms"])
        yield server


def test_the_api_lists_raised_alarms_and_stores_them_as_events(alarmed):
    (status,) = alarmed.open.get("/api/v1/status").json()["alarms"]
    assert (status["alarm"], status["source"]) == ("camera_down", "gate")
    assert re.fullmatch(r'camera "gate" has been down for \d+ s \(refused\)', status["text"])
    down, never = alarmed.open.get("/api/v1/alarms").json()
    assert (down["name"], down["rule"], down["count"]) == ("camera_down", "down_s > 0.2 && cause == 'refused'", 1)
    assert down["raised"][0]["source"] == "gate"
    assert (never["count"], never["raised"]) == (0, [])
    (event,) = alarmed.open.get("/api/v1/events").json()
    assert (event["kind"], event["stage"], event["source"]) == ("raised", "alarms", "gate")
    assert re.fullmatch(r'camera "gate" has been down for \d+ s \(refused\)', event["data"]["text"])
    seconds = int(re.search(r"\d+", status["text"])[0])
    later = alarmed.until(
        lambda: down_for(alarmed) > seconds and alarmed.open.get("/api/v1/status").json()["alarms"][0]
    )
    assert later["alarm"] == "camera_down"
    assert [event["data"]["text"] for event in alarmed.open.get("/api/v1/events").json()] == [event["data"]["text"]]
    assert event["image"] is False
    assert "alarms" in alarmed.open.get("/api/v1/status").json()["emits"]
    (change,) = alarmed.open.get("/api/v1/alarms/history").json()
    assert (change["kind"], change["alarm"], change["source"]) == ("raised", "camera_down", "gate")
    assert (change["text"], change["number"]) == (event["data"]["text"], 1)
    assert change["time_s"] == event["time_s"]
    assert alarmed.open.get("/api/v1/status").json()["events"] == {"raised": 1}
    assert alarmed.open.get("/api/v1/status").json()["last_event"] == event["number"] == 1
    assert SECRET not in alarmed.open.get("/api/v1/alarms").text + alarmed.open.get("/api/v1/events").text


def down_for(server):
    (alarm,) = server.open.get("/api/v1/status").json()["alarms"]
    return int(re.search(r"\d+", alarm["text"])[0])


def test_the_alarm_metric_is_set_while_the_alarm_is_raised(alarmed):
    text = alarmed.open.get("/metrics").text
    assert 'streamkit_alarm{alarm="camera_down",source="gate"} 1.0' in text
    assert 'streamkit_alarms_raised_total{alarm="camera_down"} 1.0' in text
    assert 'streamkit_alarms_raised_total{alarm="never"} 0.0' in text
    assert 'streamkit_alarm{alarm="never"' not in text
    assert 'streamkit_events_total{kind="raised",source="gate",stage="alarms"} 1.0' in text


def test_the_page_shows_an_alarm_until_it_is_cleared(alarmed):
    playwright = pytest.importorskip("playwright.sync_api")
    from support import pages  # imports Playwright

    if pages.CHROMIUM is None:
        pytest.skip("no Chromium to look with; apt-get install chromium-headless-shell")
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=pages.CHROMIUM, args=pages.FLAGS)
        page = browser.new_page()
        troubles = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(alarmed.url)
        expect = playwright.expect
        expect(page.locator("#status")).to_have_class("status bad", timeout=20_000)
        expect(page.locator("#status-text")).to_have_text("1 problem")  # the camera and its alarm
        expect(page.locator("#reason")).to_have_text(re.compile('^camera "gate" has been down'))
        expect(page.locator(".event strong").first).to_have_text(re.compile('Camera "gate" has been down for'))
        assert alarmed.client.delete("/api/v1/sources/gate").status_code == 204
        expect(page.locator("#status")).to_have_class("status ok")
        expect(page.locator("#status-text")).to_have_text("running")
        expect(page.locator("#reason")).to_have_text("")
        expect(page.locator(".event strong").first).to_have_text('Camera "gate" was removed.')
        assert not troubles
        browser.close()
