import base64
import hashlib
import hmac
import http.server
import json
import threading
import time

import pytest

from streamkit.emit.client import Message, RecordRejected, SendError, address
from streamkit.emit.webhook_templates import template_of
from streamkit.stages.sinks.brokers.webhook import SCHEMES, WebhookClient, WebhookSink, secret_bytes


@pytest.fixture
def hook():
    """A server that answers with the codes it is given in turn, and 204 after them; keeps headers and bodies."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.server.received.append((self.headers, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(self.server.codes.pop(0) if self.server.codes else 204)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.received = []
        server.codes = []
        server.daemon_threads = True
        server.url = f"http://me:p%40ss@127.0.0.1:{server.server_port}/hook?token=abc"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(hook):
    clients = []

    def make(**options):
        clients.append(WebhookClient(address(hook.url, SCHEMES), hook.url, **options))
        clients[-1].timeout_s = 5.0
        clients[-1].connect()
        return clients[-1]

    yield make
    for opened in clients:
        opened.close()


def messages(count):
    return [Message(f"s-{n}", "", "", b'{"id":"s-%d"}' % n) for n in range(count)]


def test_a_receiver_can_verify_the_signature(hook, client):
    key = b"a key of one's own"
    client(secret=f"whsec_{base64.b64encode(key).decode()}", headers={"x-site": "north"}).deliver(messages(3))
    ((headers, body),) = hook.received
    assert json.loads(body) == [{"id": "s-0"}, {"id": "s-1"}, {"id": "s-2"}]
    assert headers["webhook-id"] == "s-0"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    signed = b"s-0." + headers["webhook-timestamp"].encode() + b"." + body  # as standardwebhooks.com has it
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert (headers["content-type"], headers["x-site"]) == ("application/json", "north")
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()


def test_records_are_posted_in_batches_and_the_accepted_ones_are_counted(hook, client):
    hook.codes += [200, 503]
    webhook = client(batch=2)
    with pytest.raises(SendError, match="HTTP 503 Service Unavailable") as caught:
        webhook.deliver(messages(5))
    assert caught.value.done == 2
    assert not isinstance(caught.value, RecordRejected)
    webhook.deliver(messages(5)[2:])
    assert [len(json.loads(body)) for _, body in hook.received] == [2, 2, 2, 1]
    assert "webhook-signature" not in hook.received[0][0]


def test_the_end_of_the_run_stops_a_delivery_after_the_current_request(hook, client):
    webhook = client(batch=2)
    webhook.over = lambda: True
    with pytest.raises(SendError, match="the run ends") as caught:
        webhook.deliver(messages(5))
    assert caught.value.done == 2
    assert [len(json.loads(body)) for _, body in hook.received] == [2]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(400, RecordRejected), (413, RecordRejected), (401, SendError), (404, SendError), (429, SendError)],
)
def test_permanent_and_temporary_refusals_are_distinguished(hook, client, code, kind):
    hook.codes.append(code)
    with pytest.raises(SendError, match=str(code)) as caught:
        client().deliver(messages(1))
    assert type(caught.value) is kind


def test_an_unreachable_receiver_is_a_lost_connection(hook, client):
    webhook = WebhookClient(address("http://127.0.0.1:1/x", SCHEMES), "http://127.0.0.1:1/x")
    webhook.connect()
    with pytest.raises(SendError, match="no answer"):
        webhook.deliver(messages(1))
    webhook.close()
    assert webhook.where == "http://127.0.0.1:1", "with services such as Slack the path is what lets one in"
    assert webhook.redact("posted to /x/y") == "posted to ***/y"
    assert "p@ss" not in client().where
    assert "token" not in client().where


def test_a_secret_is_text_or_base64():
    assert secret_bytes("plain") == b"plain"
    assert secret_bytes("whsec_c2VjcmV0") == b"secret"
    for bad in ("", "whsec_no!"):
        with pytest.raises(ValueError, match="secret must") as caught:
            secret_bytes(bad)
        assert "no!" not in str(caught.value)


# ------------------------------------------------------------------------------------------------ messages to people


def event_message(number=0, **data):
    record = {
        "id": f"s-{number}",
        "source": "gate",
        "frame": 7,
        "pts_s": 0.28,
        "time": "2026-11-28T10:00:00.000Z",
        "event": {
            "kind": "crossed",
            "stage": "line",
            "track_id": 3,
            "data": {"direction": "in", "label": "car", **data},
        },
    }
    return Message(f"s-{number}", "", "", json.dumps(record).encode())


@pytest.mark.parametrize(
    ("template", "fields", "expected"),
    [
        ("slack", {}, {"text": 'Car 3 crossed the line "line" going in at gate.\nhttps://site/#/review'}),
        (
            "telegram",
            {"chat_id": "-100"},
            {"text": 'Car 3 crossed the line "line" going in at gate.\nhttps://site/#/review', "chat_id": "-100"},
        ),
        (
            "ntfy",
            {"topic": "gate"},
            {
                "title": "gate",
                "message": 'Car 3 crossed the line "line" going in at gate.',
                "click": "https://site/#/review",
                "topic": "gate",
            },
        ),
        (
            {"what": "{kind} {label}", "at": ["{time}", 5], "none": ""},
            {},
            {"what": "crossed car", "at": ["2026-11-28T10:00:00.000Z", 5]},
        ),
    ],
    ids=["slack", "telegram", "ntfy", "own"],
)
def test_a_template_makes_one_message_of_each_record(hook, client, template, fields, expected):
    filled = template_of(template, fields)
    client(template=filled, link="https://site/#/review").deliver([event_message(0), event_message(1)])
    assert [json.loads(body) for _, body in hook.received] == [expected, expected]
    assert [headers["webhook-id"] for headers, _ in hook.received] == ["s-0", "s-1"]


def test_the_message_for_teams_is_an_adaptive_card_and_braces_in_data_stay(hook, client):
    client(template=template_of("teams", {})).deliver([event_message(label='{link} ünder "quotes"')])
    ((_, body),) = hook.received
    (attachment,) = json.loads(body)["attachments"]
    first, second = attachment["content"]["body"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert '{link} ünder "quotes"' in first["text"]
    assert second["text"] == "2026-11-28T10:00:00.000Z"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "telegram"}, r"template telegram needs fields: {chat_id: ...}"),
        ({"template": "ntfy", "fields": {"topic": ""}}, r"template ntfy needs fields: {topic: ...}"),
        ({"template": {"text": "{txt}"}}, r"template: {txt} is unknown; these are known: text, source, time"),
        ({"fields": {"a": "b"}}, "fields are entries of a message: set template as well"),
    ],
    ids=["chat", "topic", "variable", "fields alone"],
)
def test_an_incomplete_template_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        WebhookSink(url="http://127.0.0.1/x", **options)
