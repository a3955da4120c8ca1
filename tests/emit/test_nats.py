"""NATS: what its client makes of what a real server answers. Kills and cut connections are in test_delivery.py."""

import asyncio
import base64
import json
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker_servers import free_port
from support.brokers import place  # noqa: F401  a fixture
from support.brokers.nats import NatsServer

from streamkit.emit.client import Message, RecordRejected, SendError, address
from streamkit.stages.sinks.brokers.nats import SCHEMES, NatsClient, NatsSink


def message(number, subject="streamkit.a", size=10):
    body = b'{"id":"s-%d","source":"a","x":"%b"}' % (number, b"x" * size)
    return Message(f"s-{number}", subject, "", body)


@pytest.fixture
def there(place):  # noqa: F811
    return place("nats")


@pytest.fixture
def client(there):
    nats_client = connected(there.options()["url"])
    yield nats_client
    nats_client.close()


@pytest.fixture
def server():
    """Make a server that is told other things."""
    if (reason := NatsServer.missing()) is not None:
        pytest.skip(reason)
    servers = []
    folders = []

    def start(text):
        folders.append(Path(tempfile.mkdtemp(prefix="streamkit-nats-")))
        servers.append(NatsServer(folders[-1]))
        servers[-1].config = lambda: (
            f'listen: "127.0.0.1:{servers[-1].port}"\n{text.replace("FOLDER", str(folders[-1]))}'
        )
        servers[-1].start()
        return servers[-1]

    yield start
    for started in servers:
        started.kill()
    for folder in folders:
        shutil.rmtree(folder)


def connected(url, *, timeout_s=30.0, tls=None, creds=None):
    client = NatsClient(address(url, SCHEMES, tls), (), tls, creds)
    client.timeout_s = timeout_s
    client.connect()
    return client


def idle_for(client, seconds):
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        client.idle()
        time.sleep(0.02)


def ids(there):
    return [record["id"] for record in there.received()]


def test_several_messages_are_in_flight_before_acknowledgements(there, client):
    waiting = []
    publish = client._client.publish

    async def counted(*words):
        waiting.append(len(waiting) - len(client._answers))
        await publish(*words)

    client._client.publish = counted
    assert client.deliver([message(n) for n in range(1000)]) == {}
    assert max(waiting) > 10
    assert ids(there) == [f"s-{n}" for n in range(1000)]


def test_a_stream_stores_a_repeated_record_once(there, client):
    for _ in range(2):
        assert client.deliver([message(n) for n in range(3)]) == {}
        client.close()
        client.connect()
    assert ids(there) == ["s-0", "s-1", "s-2"]


def test_records_wait_until_a_stream_takes_their_subject(there, client):
    with pytest.raises(SendError, match=r"no stream has the subject other\.x; create one, as with nats") as caught:
        client.deliver([message(0), message(1), message(2, "other.x"), message(3)])
    assert caught.value.done == 2
    there.broker.add_stream("streamkit.>", "other.>")
    assert client.deliver([message(2, "other.x"), message(3)]) == {}


def test_a_full_stream_is_retried(there, client):
    there.broker.add_stream(max_msgs=2, discard="new")
    with pytest.raises(SendError, match="the stream does not accept a record: maximum messages exceeded") as caught:
        client.deliver([message(n) for n in range(5)])
    assert caught.value.done == 2


def test_an_oversized_message_is_the_only_refused_record(there, client):
    there.broker.add_stream(max_msg_size=5000)
    refused = client.deliver([message(0), message(1, size=6000), message(2), message(3, size=2**20), message(4)])
    assert refused.keys() == {1, 3}
    assert "message size exceeds maximum allowed" in refused[1]
    assert "and the server accepts 1048576" in refused[3]
    assert ids(there) == ["s-0", "s-2", "s-4"]
    assert client.deliver([message(5, size=2**20 - 40), message(6)]).keys() == {0}, "its header counts as well"


def test_a_server_that_hangs_is_disconnected_after_the_timeout(there, client):
    client.timeout_s = 0.3
    there.broker.freeze()
    with pytest.raises(SendError, match=r"no acknowledgement within 0\.3 s; does a stream have these subjects\?"):
        client.deliver([message(n, size=50_000) for n in range(200)])
    client.close()
    with pytest.raises(SendError, match=r"no answer within 0\.3 s"):
        client.connect()
    client.close()
    there.broker.thaw()


def test_an_unreachable_server_is_replaced_by_another_of_the_cluster(there):
    away = there.options()["url"].replace(f":{there.gate.port}", f":{free_port()}")
    client = NatsClient(address(away, SCHEMES), [f"127.0.0.1:{there.broker.port}"])
    for n in range(6):  # in any order
        client.connect()
        assert client.deliver([message(n)]) == {}
        client.close()


def test_an_idle_client_notices_a_lost_server(there, client):
    client.idle()
    there.broker.kill()
    with pytest.raises(SendError, match=r"the connection is lost: (?!the server has gone)"):  # the client's reason
        idle_for(client, 30)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda url: url.replace("streamkit:", "streamkit:no"), "no connection: Authorization Violation"),
        (
            lambda url: url.replace("nats:", "tls:"),
            "the server does not encrypt; write nats:// in the url",
        ),
        (lambda url: f"nats://u:no@127.0.0.1:{free_port()}", "no connection: .*Connect call failed"),
        (lambda url: "nats://u:no@nowhere.invalid", "no connection: .*not known|Temporary failure"),
    ],
)
def test_a_refused_login_is_reported(change, message, there):
    client = NatsClient(address(change(there.options()["url"]), SCHEMES))
    with pytest.raises(SendError, match=message):
        client.connect()
    client.close()


STORE = 'jetstream { store_dir: "FOLDER/js" }\n'


def test_missing_permissions_are_reported(server):
    users = [
        "{user: streamkit, password: x}",
        '{user: narrow, password: x, permissions: {publish: ["streamkit.a"], subscribe: ["_INBOX.>"]}}',
        '{user: deaf, password: x, permissions: {subscribe: ["nothing"]}}',
    ]
    broker = server(f"{STORE}authorization {{ users = [{', '.join(users)}] }}")
    broker.password = "x"
    broker.add_stream()
    client = connected(f"nats://narrow:x@127.0.0.1:{broker.port}")
    refused = client.deliver([message(0), message(1, "streamkit.Other"), message(2), message(3, "streamkit.Other")])
    assert refused == dict.fromkeys([1, 3], "this user may not publish to that subject")
    client.close()
    client = NatsClient(address(f"nats://deaf:x@127.0.0.1:{broker.port}", SCHEMES))
    try:
        with pytest.raises(
            SendError, match=r"answers of streams cannot be received: .*let this user subscribe to _INBOX"
        ):
            client.connect()
    finally:
        client.close()


def test_permissions_of_subjects_are_case_sensitive(server):
    users = [
        "{user: streamkit, password: x}",
        '{user: narrow, password: x, permissions: {publish: {deny: ["streamkit.gate"]}}}',
    ]
    broker = server(f"{STORE}authorization {{ users = [{', '.join(users)}] }}")
    broker.password = "x"
    broker.add_stream()
    client = connected(f"nats://narrow:x@127.0.0.1:{broker.port}")
    for n in range(0, 500, 100):  # complaints of one round do not count in the next
        assert client.deliver([message(n + i, "streamkit.gate") for i in range(99)]).keys() == set(range(99))
        assert client.deliver([message(n + 99, "streamkit.Gate")]) == {}
    for n in range(1000, 1500, 100):
        messages = [message(n + i, "streamkit.gate" if i % 10 == 1 else "streamkit.Gate") for i in range(100)]
        with pytest.raises(RecordRejected, match="may not publish") as caught:
            client.deliver(messages)
        assert caught.value.done <= 1
        assert not caught.value.whole, "the sender brings them one by one"
        refused = [at for at, sent in enumerate(messages) if client.deliver([sent])]
        assert refused == list(range(1, 100, 10))
    client.close()


@pytest.mark.parametrize("reply", [b'{"ok":true}', b"[1]", b"thanks", b"", b'{"error":"no"}', b'{"stream":"x"}'])
def test_only_an_acknowledgement_of_a_stream_counts(reply, there, client):
    over = threading.Event()

    async def answer():
        import nats

        other = await nats.connect(
            f"nats://127.0.0.1:{there.broker.port}", user="streamkit", password=there.broker.password
        )

        async def respond(message):
            await message.respond(reply)

        await other.subscribe("*.x", cb=respond)
        await other.flush()
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.02)
        await other.close()

    ready = threading.Event()
    somebody = threading.Thread(target=asyncio.run, args=(answer(),))
    somebody.start()
    try:
        assert ready.wait(10)
        client.timeout_s = 0.5
        with pytest.raises(SendError, match=r"no acknowledgement within 0\.5 s; does a stream have these subjects\?"):
            client.deliver([message(0, "other.x")])
        assert client.deliver([message(1, "streamkit.x")]) == {}, "the stream's answer counts beside it"
    finally:
        over.set()
        somebody.join()


@given(st.text())
def test_a_value_is_always_a_single_token_of_a_subject(text):
    assert re.fullmatch(r"[^\s.*>\x00]+", NatsSink.clean(text))


def test_a_token_logs_in_and_missing_jetstream_is_reported(server):
    broker = server("authorization { token: s3cret }")
    client = connected(f"nats://s3cret@127.0.0.1:{broker.port}")
    with pytest.raises(SendError, match=r"no stream has .*; this server runs without JetStream; start it with"):
        client.deliver([message(0)])
    assert client.redact("s3cret is no secret") == "*** is no secret"
    client.close()


def test_a_server_with_an_invalid_certificate_is_refused(server, certificates):
    files = f'cert_file: "{certificates}/cert.pem", key_file: "{certificates}/key.pem"'
    broker = server(f"{STORE}tls {{ {files} }}\nauthorization {{ users = [{{user: streamkit, password: x}}] }}")
    url = f"tls://streamkit:x@127.0.0.1:{broker.port}"
    good = connected(url, tls={"ca": str(certificates / "ca.pem")})
    with pytest.raises(SendError, match="no stream has the subject"):
        good.deliver([message(0)])
    good.close()
    strange = NatsClient(address(url, SCHEMES))
    with pytest.raises(SendError, match="certificate verify failed"):
        strange.connect()
    strange.close()


# ------------------------------------------------------------------------------------- a user's JWT, as `nsc` makes it


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def key_pair(prefix):
    import nkeys

    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


def jwt(kind, name, subject, issuer, **more):
    claims = {
        "jti": name,
        "iat": int(time.time()),
        "iss": issuer.public_key.decode(),
        "name": name,
        "sub": subject.public_key.decode(),
        "nats": {"type": kind, "version": 2, **more},
    }
    head = encoded(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    text = f"{head}.{encoded(json.dumps(claims).encode())}"
    return f"{text}.{encoded(issuer.sign(text.encode()))}"


def test_a_creds_file_logs_in(server, tmp_path):
    nkeys = pytest.importorskip("nkeys")
    operator, account, system, user = map(
        key_pair,
        (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER),
    )
    names = [key.public_key.decode() for key in (account, system)]
    operator_token = jwt("operator", "o", operator, operator, system_account=names[1])
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1}
    limits |= {"wildcards": True, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    accounts = [jwt("account", "a", account, operator, limits=limits), jwt("account", "s", system, operator)]
    resolver = ", ".join(f"{name}: {text}" for name, text in zip(names, accounts, strict=True))
    broker = server(
        f"{STORE}operator: {operator_token}\nsystem_account: {names[1]}\n"
        f"resolver: MEMORY\nresolver_preload {{ {resolver} }}"
    )
    path = tmp_path / "me.creds"
    user_token = jwt("user", "me", user, account, subs=-1, data=-1, payload=-1)
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    url = f"nats://127.0.0.1:{broker.port}"

    async def add_stream():
        import nats

        other = await nats.connect(url, user_credentials=str(path))
        await other.jetstream().add_stream(name="records", subjects=["streamkit.>"])
        await other.close()

    asyncio.run(add_stream())
    client = connected(url, creds=str(path))
    assert client.deliver([message(0)]) == {}
    client.close()
    nobody = NatsClient(address(url, SCHEMES), creds=str(tmp_path / "nowhere.creds"))
    with pytest.raises(SendError, match=r"no connection: .*No such file"):
        nobody.connect()
    nobody.close()
