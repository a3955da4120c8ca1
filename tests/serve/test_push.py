"""Alerts to browsers by Web Push: a push service on this machine gets and reads them with the browser's keys."""

import base64
import http.server
import json
import os
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
from streamkit.serve.push import PushCenter, Subscription, check_endpoint
from streamkit.serve.store.review_table import ReviewItem

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
def center(tmp_path):
    """A center that does not send by itself; `now_s` is its clock, `open_ids` the alerts nobody has reviewed."""
    state = SimpleNamespace(now_s=1000.0, open_ids={7}, hidden=set())
    push = PushCenter(
        tmp_path,
        lambda key, source: (key, source) not in state.hidden,
        lambda source: f"North {source}",
        [HOST],
        lambda id_: id_ in state.open_ids,
        lambda: state.now_s,
    )
    push.state = state
    return push


def test_an_alert_arrives_encrypted_and_signed(center, service):
    center.subscribe(service.subscription())
    center.send(alert())
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


def test_keys_and_subscriptions_survive_a_restart_and_are_private(center, service, tmp_path):
    center.subscribe(service.subscription())
    key = center.public_key()
    center.silence("gate", 2000.0)
    again = PushCenter(tmp_path, lambda *_: True, str, [HOST], clock=lambda: 1000.0)
    assert again.public_key() == key
    assert again.subscribed("ann") == 1
    assert again.quiet.until_s == {"gate": 2000.0}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_nothing_is_sent_to_those_who_may_not_see_the_source(center, service):
    center.subscribe(service.subscription())
    center.state.hidden.add(("ann", "vault"))
    center.send(alert(source="vault"))
    assert service.received == []
    center.send(alert(source="gate"))
    assert len(service.received) == 1


@pytest.mark.parametrize("status", [404, 410])
def test_a_browser_that_is_gone_is_forgotten(center, service, status):
    center.subscribe(service.subscription())
    service.status = status
    center.send(alert())
    center.send(alert())
    assert len(service.received) == 1
    assert center.subscribed("ann") == 0
    assert center.counts.values == {"browsers gone": 1}


def test_a_push_service_that_fails_costs_only_its_own_message(center, service, caplog):
    broken = PushService()
    broken.close()
    center.subscribe(broken.subscription())
    center.subscribe(service.subscription())
    center.send(alert())
    assert len(service.received) == 1
    assert center.counts.values == {"alerts sent": 1, "alerts not sent: no answer": 1}
    assert f"the push service {HOST} cannot be reached" in caplog.text
    assert "secret" not in caplog.text


def test_silence_holds_for_its_source_and_its_time(center, service):
    center.subscribe(service.subscription())
    center.silence("gate", 1060.0)
    center.announce(alert())
    center.announce(alert(source="yard"))
    center.state.now_s = 1061.0
    center.announce(alert())
    center.start()
    deadline_s = time.monotonic() + 20
    while len(service.received) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.02)
    center.close()
    assert [message["title"] for message, _ in service.received] == ["North yard", "North gate"]
    assert center.counts.values["alerts not sent: silenced"] == 1


def test_an_alert_that_nobody_reviews_is_sent_once_more(center, service):
    center.subscribe(service.subscription())
    center.escalate_after(60.0)
    center.state.open_ids = {7}
    center.send(alert(7))
    center.send(alert(8))
    for later_s in (59, 61, 200):
        center.state.now_s = 1000.0 + later_s
        center.escalate()
    center.start()
    deadline_s = time.monotonic() + 20
    while len(service.received) < 3 and time.monotonic() < deadline_s:
        time.sleep(0.02)
    center.close()
    assert [(message["title"], message["tag"]) for message, _ in service.received[2:]] == [
        ("Still open: North gate", "streamkit-7")
    ]


def test_a_damaged_file_is_reported_and_replaced(tmp_path, caplog):
    (tmp_path / "push.json").write_text("{")
    center = PushCenter(tmp_path, lambda *_: True, str, [HOST])
    assert "cannot be read, so no browser gets alerts" in caplog.text
    center.subscribe(Subscription(f"http://{HOST}/x", "p", "a", "ann", "ann"))
    assert PushCenter(tmp_path, lambda *_: True, str, [HOST]).subscribed("ann") == 1


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
