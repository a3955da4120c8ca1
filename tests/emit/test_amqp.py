"""RabbitMQ: what its client makes of what a real broker answers. Kills and cut connections are in test_delivery.py."""

import time

import pytest
from support.broker_servers import free_port
from support.brokers import place  # noqa: F401  a fixture
from support.messages import collect

from streamkit.emit.client import Message, SendError, address
from streamkit.stages.sinks.brokers.amqp import SCHEMES, AmqpClient

FULL_DISK = "rabbit_disk_monitor set_disk_free_limit [{}]"


def message(number, key="streamkit.a", exchange="amq.topic", size=10):
    body = b'{"id":"s-%d","source":"a","x":"%b"}' % (number, b"x" * size)
    return Message(f"s-{number}", key, exchange, body)


@pytest.fixture
def there(place):  # noqa: F811
    return place("amqp")


@pytest.fixture
def client(there):
    amqp_client = connected(there.options()["url"])
    yield amqp_client
    amqp_client.close()


def connected(url, *, timeout_s=30.0, mandatory=True, tls=None):
    client = AmqpClient(address(url, SCHEMES, tls), tls, mandatory)
    client.timeout_s = timeout_s
    client.logged = collect()
    client.connect()
    return client


def ids(there):
    return [record["id"] for record in there.received()]


def test_several_messages_are_in_flight_before_acknowledgements(there, client):
    turns = []
    turn = client._run_loop
    client._run_loop = lambda wait_s: (turns.append(wait_s), turn(wait_s))
    assert client.deliver([message(n) for n in range(1000)]) == {}
    assert ids(there) == [f"s-{n}" for n in range(1000)]
    assert len(turns) * 2 < 1000


def test_an_unroutable_message_is_the_only_refused_record(there, client):
    sent = [message(0), message(1, "other.x"), message(2), message(3, "x" * 300), message(4)]
    refused = client.deliver(sent)
    assert refused == {
        1: "NO_ROUTE: the exchange amq.topic has no queue for it; bind one, or set mandatory: false",
        3: "names of exchanges and routing keys have at most 255 bytes",
    }
    assert ids(there) == ["s-0", "s-2", "s-4"]
    assert "the default exchange has no queue" in client.deliver([message(5, "nowhere", "")])[0]
    assert client.deliver([message(6, there.queue, "")]) == {}


def test_unroutable_messages_may_be_dropped_by_option(there):
    client = connected(there.options()["url"], mandatory=False)
    assert client.deliver([message(0), message(1, "other.x"), message(2)]) == {}
    client.close()
    assert ids(there) == ["s-0", "s-2"]


def test_the_error_of_a_missing_exchange_names_the_fix(there, client):
    with pytest.raises(SendError, match=r"no exchange 'nowhere' in vhost '/' \(404\); create it: records in the spool"):
        client.deliver([message(0, exchange="nowhere"), message(1)])
    client.close()
    client.connect()
    assert client.deliver([message(2)]) == {}


def test_a_message_above_the_announced_limit_is_refused(there):
    there.broker.control("application set_env [rabbit,max_message_size,20000]")
    try:
        client = connected(there.options()["url"])
        sent = [message(0), message(1, size=30_000), message(2)]
        with pytest.raises(SendError, match="larger than"):
            client.deliver(sent)
        client.close()
        client.connect()
        refused = client.deliver(sent)
        client.close()
    finally:
        there.broker.control("application unset_env [rabbit,max_message_size]")
    assert refused.keys() == {1}
    assert "and the broker accepts 20000 in a message" in refused[1]
    assert list(dict.fromkeys(ids(there))) == ["s-0", "s-2"]


def test_a_rejection_by_a_full_queue_is_retried(there, client):
    with there.channel() as channel:
        channel.queue_delete(there.queue)
        limits = {"x-max-length": 2, "x-overflow": "reject-publish"}
        channel.queue_declare(there.queue, durable=True, arguments=limits)
        channel.queue_bind(there.queue, "amq.topic", "streamkit.#")
    assert client.deliver([message(0), message(1)]) == {}
    with pytest.raises(SendError, match="does not accept a record now: a queue may be full") as caught:
        client.deliver([message(n) for n in range(2, 20)])
    arrived = ids(there)
    assert arrived[: 2 + caught.value.done] == [f"s-{n}" for n in range(2 + caught.value.done)]


def test_no_record_is_lost_while_the_brokers_disk_is_full(there):
    client = connected(there.options()["url"], timeout_s=1.0)
    there.broker.control(FULL_DISK.format(10**15))
    try:
        start_s = time.monotonic()
        client.over = lambda: time.monotonic() > start_s + 2.0  # twice the timeout: it is not lost for that
        with pytest.raises(SendError, match="the run ends") as caught:
            client.deliver([message(0), message(1)])
        assert caught.value.done == 0
        assert client.logged == [f"{client.where} accepts nothing for now: low on disk; records wait in the spool"]
        freed = []

        def free():
            if not freed:
                freed.append(there.broker.control(FULL_DISK.format(1_000_000)))
            return False

        client.over = free
        assert client.deliver([message(2)]) == {}, "on the same connection, once there is room"
        assert client.logged[1:] == [f"{client.where} accepts records again"]
    finally:
        there.broker.control(FULL_DISK.format(1_000_000))
        client.close()
    assert ids(there) == ["s-0", "s-1", "s-2"]


def test_a_blocked_connection_closes_without_waiting_for_the_broker(there):
    there.broker.control(FULL_DISK.format(10**15))
    try:
        client = connected(there.options()["url"])
        client.over = lambda: bool(client.logged)
        with pytest.raises(SendError, match="the run ends"):
            client.deliver([message(0)])
        client.close()  # the broker answers nothing until its disk has room again
    finally:
        there.broker.control(FULL_DISK.format(1_000_000))


def test_a_broker_that_hangs_is_disconnected_after_the_timeout(there, client):
    client.timeout_s = 0.3
    there.broker.freeze()
    try:
        with pytest.raises(SendError, match=r"no acknowledgement within 0\.3 s"):
            client.deliver([message(0)])
        client.close()
        with pytest.raises(SendError, match=r"no answer within 0\.3 s"):
            client.connect()
        client.close()
    finally:
        there.broker.thaw()


def test_an_idle_connection_stays_open(there, monkeypatch):
    monkeypatch.setattr("streamkit.stages.sinks.brokers.amqp._HEARTBEAT_S", 1)
    client = connected(there.options()["url"])
    until_s = time.monotonic() + 3.5  # the broker leaves who is silent for two heartbeats
    while time.monotonic() < until_s:
        client.idle()
        time.sleep(0.2)
    assert client.deliver([message(0)]) == {}
    client.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda url: url.replace("streamkit:", "streamkit:no"), r"Login was refused .*\(403\)"),
        (lambda url: f"{url}/none", r"no connection: NOT_ALLOWED - vhost none not found \(530\)"),
        (lambda url: f"amqp://u:no@127.0.0.1:{free_port()}", "no connection: .*Connection refused"),
        (lambda url: "amqp://u:no@nowhere.invalid", "no connection: .*not known|Temporary failure"),
    ],
)
def test_a_refused_login_shows_the_brokers_message(change, message, there):
    client = AmqpClient(address(change(there.options()["url"]), SCHEMES))
    with pytest.raises(SendError, match=message) as caught:
        client.connect()
    client.close()
    assert "pika" not in str(caught.value).lower()
    assert "AMQPConn" not in str(caught.value)


def test_a_broker_with_an_invalid_certificate_is_refused(there, certificates):
    url = (
        there.options()["url"]
        .replace("amqp://", "amqps://")
        .replace(f":{there.gate.port}", f":{there.broker.safe_port}")
    )
    good = connected(url, tls={"ca": str(certificates / "ca.pem")})
    assert good.deliver([message(0)]) == {}
    good.close()
    assert ids(there) == ["s-0"]
    strange = AmqpClient(address(url, SCHEMES))
    with pytest.raises(SendError, match="certificate verify failed"):
        strange.connect()
    strange.close()
