"""The messages of the run in the API, as a stream, and on the page."""

import json
import logging

import pytest
from support.pages import CHROMIUM, chromium_fixture, expect, open_page_fixture, tidy  # noqa: F401  fixtures
from support.servers import SECRET, TOKEN

from streamkit.core.logs import MessageStore

logger = logging.getLogger("streamkit.stages.tests")


def texts(server, query=""):
    return [message["text"] for message in server.client.get(f"/api/v1/logs{query}").json()]


def test_only_the_latest_messages_are_kept_while_receiving():
    store = MessageStore(keep=3)
    logger.warning("before")
    with store.receiving():
        for n in range(5):
            logger.info("message %d", n)
        logger.debug("not this")
        logging.getLogger("other").warning("not this either")
    logger.warning("after")
    assert [(message.number, message.text, message.level, message.place) for message in store.messages()] == [
        (n + 1, f"message {n}", "info", "stages.tests") for n in (2, 3, 4)
    ]


def test_the_api_filters_messages_by_level_and_number_and_masks_secrets(server):
    assert server.open.get("/api/v1/logs").status_code == 401
    last = server.client.get("/api/v1/logs").json()[-1]["number"]
    logger.info("fine")
    logger.warning(f"no answer from rtsp://u:{SECRET}@host/x?token={SECRET}")
    logger.error("broken")
    messages = [
        message
        for message in server.client.get(f"/api/v1/logs?after={last}").json()
        if message["place"] == "stages.tests"
    ]
    assert [(message["level"], message["text"]) for message in messages] == [
        ("info", "fine"),
        ("warning", "no answer from rtsp://u:***@host/x?token=***"),
        ("error", "broken"),
    ]
    assert messages[0]["time_s"] > 1e9
    assert "fine" not in texts(server, f"?after={last}&level=warning")
    assert texts(server, f"?after={last}&level=error") == ["broken"]
    assert texts(server, f"?after={2**53}") == []
    assert len(texts(server, "?limit=1")) == 1
    assert any("gate cannot be reached" in text for text in texts(server)), "what was logged as the run began"
    assert SECRET not in server.client.get("/api/v1/logs").text
    assert server.client.get("/api/v1/logs?level=loud").status_code == 422


def test_the_stream_sends_new_messages_and_resumes_after_a_number(server):
    assert server.open.get("/api/v1/logs/stream").status_code == 401
    last = server.client.get("/api/v1/logs").json()[-1]["number"]
    logger.warning("first of two")

    def follow(headers, query, count):
        with server.client.stream("GET", f"/api/v1/logs/stream{query}", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = []
            lines = answer.iter_lines()
            while len(events) < count:
                line = next(lines)
                if line.startswith("data: "):
                    events.append(json.loads(line[6:]))
                    logger.error("second of two")
            return events

    first, second = follow({}, f"?after={last}&level=warning", 2)
    assert (first["text"], second["text"], second["level"]) == ("first of two", "second of two", "error")
    (again,) = follow({"last-event-id": str(first["number"])}, "?level=warning", 1)
    assert again["number"] == second["number"]


def test_addresses_are_masked_for_viewers(server):
    last = server.client.get("/api/v1/logs").json()[-1]["number"]
    logger.warning("no answer from rtsp://ann:secret@10.0.0.7:554/live, nor from mqtts://broker.example:8883")
    token = server.client.post("/api/v1/tokens", json={"name": "vera", "role": "viewer"}).json()["token"]
    viewer = {"authorization": f"Bearer {token}"}
    shown = "no answer from rtsp://..., nor from mqtts://..."
    try:
        messages = server.open.get(f"/api/v1/logs?after={last}", headers=viewer).json()
        assert [message["text"] for message in messages] == [shown]
        with server.open.stream("GET", f"/api/v1/logs/stream?after={last}", headers=viewer) as answer:
            line = next(line for line in answer.iter_lines() if line.startswith("data: "))
        assert json.loads(line[6:])["text"] == shown
    finally:
        server.client.delete("/api/v1/tokens/vera")
    (operator,) = server.client.get(f"/api/v1/logs?after={last}").json()
    assert operator["text"] == "no answer from rtsp://ann:***@10.0.0.7:554/live, nor from mqtts://broker.example:8883"


def test_followers_are_limited_and_disconnected_ones_free_slots(server):
    import contextlib

    with contextlib.ExitStack() as stack:
        for _ in range(16):
            answer = stack.enter_context(server.client.stream("GET", "/api/v1/logs/stream"))
            assert answer.status_code == 200
        assert server.client.get("/api/v1/logs/stream").status_code == 429
    server.until(lambda: free(server))


def free(server):
    with server.client.stream("GET", "/api/v1/logs/stream") as answer:
        return answer.status_code == 200


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")
def test_the_view_filters_and_follows(open_page):
    logger.info("quiet words")
    logger.warning("<b>loud</b> words")
    page = open_page()
    page.evaluate("location.hash = '#/logs'")
    rows = page.locator(".log li")
    expect(rows.filter(has_text="quiet words")).to_be_visible()
    expect(rows.filter(has_text="<b>loud</b> words").first).to_contain_text("warning")  # text, not markup
    page.get_by_label("Level").select_option("warning")
    expect(rows.filter(has_text="quiet words")).to_have_count(0)
    page.get_by_label("Text").fill("LOUD")
    expect(rows).to_have_count(1)
    logger.error("loud again")
    logger.error("something else")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("loud again")
    page.get_by_label("Follow").uncheck()
    logger.error("loud and late")
    page.wait_for_timeout(1000)
    expect(rows).to_have_count(2)
    page.get_by_label("Follow").check()
    expect(rows).to_have_count(3)
    page.get_by_label("Text").fill("no such words")
    expect(page.locator("#view").get_by_text("No message matches.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in to read the messages")).to_be_visible()
    expect(rows).to_have_count(0)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")
def test_the_view_asks_signed_out_users_to_sign_in(open_page):
    page = open_page(token=None)
    page.evaluate("location.hash = '#/logs'")
    page.get_by_role("button", name="Sign in to read the messages").click()
    page.get_by_label("Token").fill(TOKEN)
    page.locator("#login").get_by_role("button", name="Sign in").click()
    expect(page.locator(".log li").first).to_be_visible()
