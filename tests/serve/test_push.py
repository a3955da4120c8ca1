"""Alerts to browsers by Web Push: a push service on this machine gets and reads them with the browser's keys."""

import base64
import http.server
import json
import os
import socket
import threading
import time
from types import SimpleNamespace

import http_ece
import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from support.servers import served

from streamkit.core.data import Event
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.push import PushCenter, check_endpoint
from streamkit.serve.store import push_table, review_table
from streamkit.serve.store.push_table import Subscription
from streamkit.serve.store.review_table import ReviewItem
from streamkit.serve.store.serve_store import ServeStore, StoreUnreadable

HOST = "127.0.0.1"


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class PushService:
    """A browser and its push service: `received` has the decrypted messages with the headers of their requests."""

    def __init__(self):
        self.private_key = ec.generate_private_key(ec.SECP256R1())
        self.auth = os.urandom(16)
        self.status = 201
        self.received = []
        self.lock = threading.Lock()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                plain = http_ece.decrypt(
                    body, private_key=service.private_key, auth_secret=service.auth, version="aes128gcm"
                )
                with service.lock:
                    service.received.append((json.loads(plain), dict(self.headers)))
                self.send_response(service.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://{HOST}:{self.server.server_port}/send/secret"

    @property
    def keys(self):
        point = self.private_key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return {"p256dh": text(point), "auth": text(self.auth)}

    def subscription(self, key="ann", owner="ann"):
        return Subscription(self.endpoint, self.keys["p256dh"], self.keys["auth"], owner, key)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def service():
    push_service = PushService()
    yield push_service
    push_service.close()


def alert(id_=7, source="gate"):
    words = "A van stands at the gate."
    return ReviewItem(
        id_,
        source,
        "van",
        "raised",
        "car",
        3,
        "alert",
        words,
        100.0,
        101.0,
        1,
        9,
        None,
        None,
        [],
        None,
        None,
        False,
        "",
    )


@pytest.fixture
def store(tmp_path):
    serve_store = ServeStore(tmp_path)
    yield serve_store
    with serve_store.writing():
        pass


@pytest.fixture
def center(store):
    """A center that sends when it is told to; `now_s` is its clock, `hidden` what owners may not see."""
    state = SimpleNamespace(now_s=1000.0, hidden=set())
    push = PushCenter(
        store,
        lambda key, source: (key, source) not in state.hidden,
        lambda source: f"North {source}",
        [HOST],
        lambda: state.now_s,
    )
    push.state = state
    return push


def send(center, *items):
    for item in items:
        center.announce(item)
    center.send_due()


def test_an_alert_arrives_encrypted_and_signed(center, service):
    center.subscribe(service.subscription())
    send(center, alert())
    ((message, headers),) = service.received
    assert message == {
        "title": "North gate",
        "body": "A van stands at the gate.",
        "url": "/#/review?item=7",
        "tag": "streamkit-7",
        "time_s": 100.0,
    }
    assert headers["authorization"].startswith("vapid t=")
    assert center.public_key() in headers["authorization"]
    assert headers["urgency"] == "high"
    assert center.counts.values == {"alerts sent": 1}


def test_keys_and_subscriptions_survive_a_restart(service, tmp_path):
    keys = []
    for run in range(2):
        store = ServeStore(tmp_path)
        with store.writing():
            center = PushCenter(store, lambda *_: True, str, [HOST], lambda: 1000.0)
            if run == 0:
                center.subscribe(service.subscription())
                center.silence("gate", 2000.0)
            keys.append(center.public_key())
            assert center.subscribed("ann") == 1
            assert center.quiet().until_s == {"gate": 2000.0}
    assert keys[0] == keys[1]


def test_nothing_is_sent_to_those_who_may_not_see_the_source(center, service):
    center.subscribe(service.subscription())
    center.state.hidden.add(("ann", "vault"))
    send(center, alert(source="vault"))
    assert service.received == []
    send(center, alert(source="gate"))
    assert len(service.received) == 1


@pytest.mark.parametrize("status", [404, 410])
def test_a_browser_that_is_gone_is_forgotten(center, service, status):
    center.subscribe(service.subscription())
    service.status = status
    send(center, alert())
    send(center, alert())
    assert len(service.received) == 1
    assert center.subscribed("ann") == 0
    assert center.counts.values == {"browsers gone": 1}


def test_a_push_service_that_fails_costs_only_its_own_message(center, service, caplog):
    broken = PushService()
    broken.close()
    center.subscribe(broken.subscription())
    center.subscribe(service.subscription())
    send(center, alert())
    assert len(service.received) == 1
    assert center.counts.values == {"alerts sent": 1, "alerts not sent: no answer": 1}
    assert f"the push service {HOST} cannot be reached" in caplog.text
    assert "secret" not in caplog.text


def test_silence_holds_for_its_source_and_its_time(center, service):
    center.subscribe(service.subscription())
    center.silence("gate", 1060.0)
    send(center, alert(), alert(source="yard"))
    center.state.now_s = 1061.0
    send(center, alert())
    center.silence("", 2000.0)
    send(center, alert(source="yard"))
    assert [message["title"] for message, _ in service.received] == ["North yard", "North gate"]
    assert center.counts.values["alerts not sent: silenced"] == 2


def test_an_alert_that_nobody_reviews_is_sent_once_more(center, service, store):
    center.subscribe(service.subscription())
    center.escalate_after(60.0)
    columns = "id, key, source, stage, kind, severity, text, started_s, ended_s, events, number, path"
    row = "'k', 'gate', 'van', 'raised', 'alert', 'a van', 100, 101, 1, 9, '[]'"
    for id_ in (7, 8):
        store.change(
            lambda connection, id_=id_: connection.execute(
                f"INSERT INTO review_items ({columns}) VALUES ({id_}, {row})"
            )
        )
    send(center, alert(7), alert(8))
    store.change(lambda connection: review_table.mark_reviewed(connection, [8], "ann", 1010.0))
    for later_s in (59, 61, 200):
        center.state.now_s = 1000.0 + later_s
        center.send_due()
    assert [(message["title"], message["tag"]) for message, _ in service.received[2:]] == [
        ("Still open: North gate", "streamkit-7")
    ]


def test_an_alert_waits_while_the_store_is_busy(center, service, store, monkeypatch):
    center.subscribe(service.subscription())
    read = store.read
    monkeypatch.setattr(store, "read", lambda query: read(query) if query is push_table.quiet else busy())
    send(center, alert())
    monkeypatch.undo()
    center.send_due()
    assert len(service.received) == 1


def busy():
    raise StoreUnreadable("locked")


def test_the_end_of_the_server_does_not_wait_for_all_browsers(center):
    with socket.create_server((HOST, 0)) as silent:  # it accepts, and never answers
        for number in range(20):
            endpoint = f"http://{HOST}:{silent.getsockname()[1]}/{number}"
            keys = PushService()
            keys.close()
            center.subscribe(Subscription(endpoint, keys.keys["p256dh"], keys.keys["auth"], "ann", "ann"))
        begin_s = time.monotonic()
        with center.sending():
            center.announce(alert())
            time.sleep(1.0)
    assert time.monotonic() - begin_s < 15


def test_more_alerts_than_can_wait_are_counted(center):
    for _ in range(1003):
        center.announce(alert())
    assert center.counts.values == {"alerts not sent: too many wait": 3}


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://fcm.googleapis.com/fcm/send/abc",
        "https://updates.push.services.mozilla.com/wpush/v2/abc",
        "https://wns2-par02p.notify.windows.com/w/?token=abc",
        "https://web.push.apple.com/abc",
        "http://push.example:8080/abc",
    ],
)
def test_addresses_of_push_services_are_accepted(endpoint):
    check_endpoint(endpoint, ["push.example"])


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://fcm.googleapis.com/x",
        "https://10.0.0.7/x",
        "https://localhost/x",
        "https://evilgoogleapis.com/x",
        "https://fcm.googleapis.com:8443/x",
        "https://fcm.googleapis.com@10.0.0.7/x",
        "https://user:pass@fcm.googleapis.com/x",
        "file:///etc/passwd",
        "https://[::1]/x",
        "x",
        "https://[broken/x",
    ],
)
def test_other_addresses_are_refused_without_their_path(endpoint):
    with pytest.raises(RequestRejected) as error:
        check_endpoint(endpoint, [])
    assert "/x" not in error.value.text
    assert "pass" not in error.value.text


# ---------------------------------------------------------------------------------------------------------------- API


@pytest.fixture(scope="module")
def pushing(root):
    pipeline = """
plugins: [plugins]
sources: {street: {uri: samples/street.mp4, pace: 5, every: 6, loop: true, name: Main street}}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  van: {stage: rule, when: "score > 2"}
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(pipeline, root, push_services=[HOST]) as server:
            server.running("street")
            yield server


def test_a_raised_rule_reaches_a_browser_that_has_subscribed(pushing, service):
    before = pushing.client.get("/api/v1/push").json()
    assert len(base64.urlsafe_b64decode(before["public_key"] + "=")) == 65
    subscription = {"endpoint": service.endpoint, "keys": service.keys, "expirationTime": None}
    assert pushing.client.post("/api/v1/push/subscriptions", json=subscription).json()["browsers"] == 1
    raised = Event("raised", "van", "street", 0, 0.0, 5, {"rule": "van", "values": {}, "since_s": 0.0, "label": "car"})
    pushing.engine.gallery.add_events(time.time(), [raised], None)
    pushing.until(lambda: service.received)
    message = service.received[0][0]
    assert message["title"] == "Main street"
    item = int(message["url"].rpartition("=")[2])
    assert pushing.client.get(f"/api/v1/review/{item}").json()["item"]["severity"] == "alert"
    ended = pushing.client.post("/api/v1/push/unsubscribe", json={"endpoint": service.endpoint}).json()
    assert ended["browsers"] == 0


def test_silence_and_escalation_are_set_by_operators(pushing):
    silenced = pushing.client.post("/api/v1/push/silence", json={"minutes": 5, "source": "street"}).json()["silenced"]
    assert silenced["street"] == pytest.approx(time.time() + 300, abs=30)
    assert pushing.client.post("/api/v1/push/silence", json={"minutes": 0, "source": "street"}).json()["silenced"] == {}
    assert pushing.client.post("/api/v1/push/silence", json={"minutes": 5, "source": "x"}).status_code == 404
    assert pushing.client.post("/api/v1/push/escalation", json={"minutes": 2}).json()["escalate_s"] == 120
    assert pushing.client.post("/api/v1/push/escalation", json={"minutes": None}).json()["escalate_s"] is None
    assert pushing.client.post("/api/v1/push/escalation", json={"minutes": 0}).status_code == 422


def test_without_a_token_nobody_subscribes(pushing, service):
    subscription = {"endpoint": service.endpoint, "keys": service.keys}
    with httpx.Client(base_url=pushing.url) as stranger:
        assert stranger.get("/api/v1/push").status_code == 401
        assert stranger.post("/api/v1/push/subscriptions", json=subscription).status_code == 401
        assert stranger.post("/api/v1/push/silence", json={"minutes": 5}).status_code == 401


def test_the_page_can_be_installed(pushing):
    page = pushing.open.get("/").text
    assert '<link rel="manifest" href="/page/manifest.webmanifest">' in page
    manifest = json.loads(pushing.open.get("/page/manifest.webmanifest").text)
    assert manifest["display"] == "standalone"
    assert pushing.open.get(manifest["icons"][0]["src"]).status_code == 200
    worker = pushing.open.get("/service-worker.js")
    assert worker.headers["content-type"].startswith("text/javascript")
