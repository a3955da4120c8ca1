"""What an MQTT broker is told to keep; what it is sent is in test_delivery.py."""

import json
import socket
import threading

import pytest
from support.brokers import place  # noqa: F401  a fixture
from support.listener import Listener
from support.messages import collect

from streamkit.emit.client import Message, RecordRejected, address
from streamkit.stages.sinks.brokers.mqtt import SCHEMES, MqttClient


@pytest.fixture
def there(place):  # noqa: F811
    return place("mqtt")


def connected(there):
    client = MqttClient(address(there.options()["url"], SCHEMES), status="house/status")
    client.logged = collect()
    client.connect()
    return client


def wait_until_retained(there, topic, wanted):
    """Wait until it has come, and see that the broker has it for whoever comes now."""
    for record in ("last", "retained"):
        listener = Listener(there.broker)
        listener.listen(lambda: getattr(listener, record).get(topic) == wanted, f"{topic} is {wanted}")  # noqa: B023
        listener.close()


def test_the_status_topic_is_online_and_then_offline(there):
    client = connected(there)
    wait_until_retained(there, "house/status", "online")
    client.close()
    wait_until_retained(there, "house/status", "offline")


def test_a_cut_connection_publishes_the_last_will(there):
    client = connected(there)
    wait_until_retained(there, "house/status", "online")
    there.gate.cut()
    wait_until_retained(there, "house/status", "offline")
    client.close()
    client.connect()
    wait_until_retained(there, "house/status", "online")
    client.close()


def test_retained_messages_are_published_at_once_and_after_each_reconnection(there):
    client = connected(there)
    client.retained["house/a"] = b"1"
    client.idle()
    wait_until_retained(there, "house/a", "1")
    client.retained["house/b"] = b"2"
    client.deliver([Message("s-1", "streamkit/x", "", b'{"id":"s-1","source":"x"}')])
    wait_until_retained(there, "house/b", "2")
    client.close()
    there.restart()  # this broker keeps nothing on its disk
    client.connect()
    for topic, text in (("house/a", "1"), ("house/b", "2"), ("house/status", "online")):
        wait_until_retained(there, topic, text)
    assert client.logged == []
    client.close()


def test_a_refused_retained_message_is_logged_and_records_are_still_sent(there):
    there.broker.kill()
    conf = there.folder / "broker" / "acl"
    conf.write_text("user streamkit\ntopic readwrite streamkit/#\ntopic readwrite mark\ntopic read house/#\n")
    conf.chmod(0o644)
    command = there.broker.command

    def with_rights():
        arguments = command()
        with open(arguments[-1], "a") as file:
            file.write(f"acl_file {conf}\n")
        return arguments

    there.broker.command = with_rights
    there._leave()
    there.broker.start()
    there._subscribe()
    client = connected(there)
    assert client.logged == [f"{client.where} does not accept house/status: reason code 0x87; it is not published"]
    client.close()  # Mosquitto 2.0 closes it, too
    client.connect()
    client.deliver([Message("s-1", "streamkit/x", "", b'{"id":"s-1","source":"x"}')])
    assert [record["id"] for record in there.received()] == ["s-1"]
    client.close()


def test_records_of_a_topic_share_a_message_across_other_topics(there):
    client = MqttClient(address(there.options()["url"], SCHEMES), batch=4)
    client.connect()
    listener = Listener(there.broker)
    listener.listen(lambda: listener.there, "subscribed")
    ids = [f"s-{number}" for number in range(15)]
    topics = [f"streamkit/{'abc'[number % 3]}" for number in range(15)]
    topics_by_id = list(zip(ids, topics, strict=True))
    client.deliver(
        [Message(i, t, "", b'{"id":"%b","source":"%b"}' % (i.encode(), t[-1:].encode())) for i, t in topics_by_id]
    )
    listener.listen(lambda: len(listener.passed) == 6, "six messages")
    for topic in set(topics):
        parts = [json.loads(text) for name, text in listener.passed if name == topic]
        assert [len(part) for part in parts] == [4, 1]
        assert [record["id"] for part in parts for record in part] == [i for i, t in topics_by_id if t == topic]
    listener.close()
    client.close()


@pytest.fixture
def strict():
    """The port of a broker that says no to what it may not take, and keeps the connection; Mosquitto 2.0 cuts it."""
    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=answer, args=(server,))
    thread.start()
    yield server.getsockname()[1]
    server.close()
    thread.join(10)


def answer(server):
    """MQTT 5, as far as it takes: CONNACK, and a PUBACK for each PUBLISH, with 0x87 for topics that begin with no."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as stream:
        while head := stream.read(1):
            length = shift = 0
            while (byte := stream.read(1)[0]) & 128:
                length = length | (byte & 127) << shift
                shift = shift + 7
            packet = stream.read(length | byte << shift)
            if head[0] >> 4 == 1:
                connection.sendall(b"\x20\x03\x00\x00\x00")
            elif head[0] >> 4 == 3:
                end = 2 + int.from_bytes(packet[:2], "big")
                code = b"\x87" if packet[2:end].startswith(b"no") else b"\x00"
                connection.sendall(b"\x40\x03" + packet[end : end + 2] + code)


@pytest.mark.parametrize("batch", [1, 3])
def test_every_acknowledgement_is_read_although_some_refuse(strict, batch):
    client = MqttClient(address(f"mqtt://127.0.0.1:{strict}", SCHEMES), batch=batch)
    client.connect()
    messages = [Message(f"s-{n}", "no/x" if n % 10 == 4 else "ok/x", "", b'{"id":"s-%d"}' % n) for n in range(100)]
    if batch == 1:
        refused = client.deliver(messages)
        assert refused == dict.fromkeys(range(4, 100, 10), "reason code 0x87")
    else:
        with pytest.raises(RecordRejected) as caught:  # one of those that share a message may be at fault
            client.deliver(messages)
        assert caught.value.done == 4
        assert not client.deliver(messages[5:8])
    assert client._answers == {}
    client.close()


def test_the_delivered_count_ends_at_the_first_missing_record(there):
    """A message holds the records 0 and 2; the second one, with 1, is refused: 1 is the first that has not arrived."""
    client = MqttClient(address(there.options()["url"], SCHEMES), batch=2)
    client.connect()
    sent = [
        Message(f"s-{number}", topic, "", b'{"id":"s-%d","source":"a"}' % number)
        for number, topic in enumerate(("streamkit/a", "streamkit/+", "streamkit/a"))
    ]
    with pytest.raises(RecordRejected) as caught:
        client.deliver(sent)
    assert caught.value.done == 1
    client.close()
