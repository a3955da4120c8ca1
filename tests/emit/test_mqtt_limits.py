"""What a broker announces that it takes, and what MQTT does not have in topics."""

import json
from types import SimpleNamespace

import pytest
from support.brokers import place  # noqa: F401  a fixture
from support.listener import Listener
from support.messages import collect

from streamkit.emit.client import Message, SendError, address
from streamkit.stages.sinks.brokers.mqtt import SCHEMES, MqttClient, MqttSink, PacketLimit

LIMIT = 2000


@pytest.fixture
def there(place):  # noqa: F811
    mqtt_place = place("mqtt")
    command = mqtt_place.broker.command

    def with_limits():
        arguments = command()
        with open(arguments[-1]) as file:
            text = file.read().replace("max_inflight_messages 0", "max_inflight_messages 3")
        with open(arguments[-1], "w") as file:
            file.write(f"{text}max_packet_size {LIMIT}\n")
        return arguments

    mqtt_place.broker.command = with_limits
    mqtt_place.restart()
    return mqtt_place


@pytest.fixture
def client(there):
    clients = []

    def make(**options):
        clients.append(MqttClient(address(there.options()["url"], SCHEMES), **options))
        clients[-1].logged = collect()
        clients[-1].connect()
        return clients[-1]

    yield make
    for opened in clients:
        opened.close()


def message(number, size, topic="streamkit/a"):
    """A record whose body takes so many bytes."""
    body = json.dumps({"id": f"s-{number}", "source": topic[-1], "x": ""}).encode()
    return Message(f"s-{number}", topic, "", body[:-2] + b"x" * (size - len(body)) + body[-2:])


@pytest.mark.parametrize("topic", ["streamkit/a", "streamkit/é"])
def test_a_message_of_the_brokers_limit_is_sent_and_a_byte_more_is_refused(topic, client, there):
    mqtt_client = client()
    listener = Listener(there.broker)
    listener.listen(lambda: listener.there, "subscribed")
    # a byte for the type, two for the length, two before the topic, two of the id, one for no properties
    largest = LIMIT - 8 - len(topic.encode())
    refused = mqtt_client.deliver([message(1, largest, topic), message(2, largest + 1, topic), message(3, 60, topic)])
    assert refused == {1: f"the message has {LIMIT + 1} bytes, and the broker accepts {LIMIT}"}
    listener.listen(lambda: len(listener.passed) == 2, "two messages")
    assert [len(text) for _, text in listener.passed] == [largest, 60]
    listener.close()


@pytest.mark.parametrize(("payload", "size"), [(115, 129), (116, 131), (16371, 16386), (16372, 16388)])
def test_the_length_field_grows_with_the_length_of_a_message(payload, size):
    refusal = PacketLimit(size - 1).refusal("a" * 7, payload)
    assert refusal == f"the message has {size} bytes, and the broker accepts {size - 1}"
    assert PacketLimit(size).refusal("a" * 7, payload) is None


def test_records_share_a_message_within_the_brokers_limit(client, there):
    mqtt_client = client(batch=10)
    listener = Listener(there.broker)
    listener.listen(lambda: listener.there, "subscribed")
    refused = mqtt_client.deliver(
        [*(message(n, 600) for n in range(7)), message(7, 3000), message(8, 100), message(9, 100)]
    )
    assert list(refused) == [7]
    listener.listen(lambda: len(listener.passed) == 4, "four messages")
    ids = [[record["id"] for record in json.loads(text)] for _, text in listener.passed]
    assert ids == [["s-0", "s-1", "s-2"], ["s-3", "s-4", "s-5"], ["s-6"], ["s-8", "s-9"]]
    assert all(len(text) <= LIMIT for _, text in listener.passed)
    listener.close()


def test_an_oversized_retained_message_is_logged_once_and_keeps_the_connection(client):
    mqtt_client = client()
    mqtt_client.retained = {"house/large": b"x" * LIMIT, "house/b": b"1"}
    mqtt_client.idle()
    mqtt_client.idle()
    assert mqtt_client.logged == [
        f"{mqtt_client.where} does not accept house/large: the message has {LIMIT + 19} bytes, and the broker accepts "
        f"{LIMIT}; it is not published"
    ]
    assert mqtt_client.deliver([message(1, 100)]) == {}


def test_a_retained_message_that_ends_the_connection_is_dropped_after_three_attempts(client):
    mqtt_client = client()
    mqtt_client.retained = {"house/\x1b": b"1"}
    for _ in range(3):
        with pytest.raises(SendError, match="the connection is lost"):
            mqtt_client.idle()
        mqtt_client.close()
        retained = mqtt_client.retained
        mqtt_client.retained = {}
        mqtt_client.connect()
        mqtt_client.retained = retained
    mqtt_client.idle()
    assert mqtt_client.deliver([message(1, 100)]) == {}
    assert len(mqtt_client.logged) == 1
    assert "it is not published" in mqtt_client.logged[0]


def test_in_flight_messages_respect_the_brokers_receive_maximum(client, monkeypatch):
    """Some brokers end the connection of who sends more than their Receive Maximum."""
    mqtt_client = client()
    paho = mqtt_client._client
    publish = mqtt_client._client.publish
    under_way = [0]

    def counted(*args, **options):
        publication = publish(*args, **options)
        under_way[0] = max(under_way[0], len(paho._out_messages))
        return publication

    monkeypatch.setattr(paho, "publish", counted)
    assert mqtt_client.deliver([message(n, 60) for n in range(50)]) == {}
    assert under_way == [3]


@pytest.mark.parametrize(("batch", "gather_s"), [(1, 0.0), (2, 0.1)])
def test_records_are_gathered_only_for_batched_messages(batch, gather_s):
    assert MqttClient(address("mqtt://127.0.0.1:1", SCHEMES), batch=batch).gather_s == gather_s


def test_the_next_message_waits_for_the_oldest_in_flight(client, monkeypatch):
    """As many as the broker announces are always under way: to wait for each alone takes a round trip a message."""
    mqtt_client = client()
    under_way = []
    seen = []

    class OneByOne:
        """A connection on which each look brings one acknowledgement, in order."""

        def publish(self, topic, payload, **options):
            seen.append(len(under_way))
            under_way.append(100 + len(seen))
            return SimpleNamespace(mid=under_way[-1], rc=0)

        def loop(self, wait_s):
            mqtt_client._answers[under_way.pop(0)] = 0
            return 0

    with monkeypatch.context() as patch:
        patch.setattr(mqtt_client, "_client", OneByOne())
        assert mqtt_client.deliver([message(n, 60) for n in range(7)]) == {}
    assert seen == [0, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    "letter",
    [
        "\0",
        "\x01",
        "\t",
        "\n",
        "\x1b",
        "\x1f",
        "\x7f",
        "\x80",
        "\x9f",
        "\ufdd0",
        "\ufdef",
        "\ufffe",
        "\uffff",
        "\U0001fffe",
        "\U0010ffff",
        chr(0xD800),
        chr(0xDFFF),
        "+",
        "#",
    ],
)
def test_invalid_characters_of_a_topic_become_underscores(letter):
    assert MqttSink.clean(f"a{letter}b/c") == "a_b/c"


def test_valid_characters_of_a_topic_are_unchanged():
    text = " ~\xa0é/\ufdcf\ufdf0\ufffd\U0001fffd€😀{}$"
    assert MqttSink.clean(text) == text


def test_labels_of_unusual_characters_pass_a_real_broker(there):
    from streamkit.core.counters import Counters
    from streamkit.core.stage import Context
    from streamkit.emit.segment_file import SpoolRecord

    odd = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0xFDD0, 0xFFFE, 0x1FFFF)]
    stage = MqttSink(
        **there.options(), send="objects", topic="streamkit/{label}/a", spool={"path": str(there.folder / "s")}
    )
    counters = Counters()
    stage.context = Context("out", counters=counters)
    stage.open()
    stage.queue.append(
        [
            SpoolRecord(
                stage._topics.fill(("a", letter, "detect", "7"))[0], b"", json.dumps({"source": "_/a"}).encode()
            )
            for letter in odd
        ]
    )
    stage.sender.run(lambda: not stage.queue.waiting)
    stage.queue.close()
    assert counters.values == {"records sent": len(odd)}
    assert len(there.received()) == len(odd)


@pytest.mark.parametrize("option", ["topic", "status", "discovery"])
@pytest.mark.parametrize("letter", ["\x1b", "\x85", "\uffff"])
def test_topic_options_with_invalid_characters_are_refused(option, letter):
    with pytest.raises(ValueError, match=f"{option} cannot contain control characters, got "):
        MqttSink(url="mqtt://h", **{option: f"a{letter}b"})


def test_a_slow_broker_gets_its_retained_messages_again(client, there):
    mqtt_client = client()
    timeout_s = mqtt_client.timeout_s
    mqtt_client.retained = {"house/a": b"1"}
    mqtt_client.timeout_s = -1.0
    for _ in range(4):
        with pytest.raises(SendError, match="no acknowledgement within"):
            mqtt_client.idle()
    mqtt_client.timeout_s = timeout_s
    mqtt_client.idle()
    assert mqtt_client.logged == []
    listener = Listener(there.broker)
    listener.listen(lambda: "house/a" in listener.retained, "the retained message")
    assert listener.retained["house/a"] == "1"
    listener.close()


@pytest.mark.parametrize(("less", "parts"), [(0, [[0, 1], [2, 3]]), (1, [[0], [1], [2], [3]])])
def test_a_message_is_filled_up_to_the_limit(less, parts):
    messages = [message(n, 60, "a") for n in range(4)]
    limit = PacketLimit(1 + 2 + 2 + 1 + 2 + 1 + len("[,]") + 2 * 60 - less)
    packets = list(limit.packets(messages, batch=10))
    assert [indices for _, indices, _ in packets] == parts
    assert [len(payload) for *_, payload in packets] == ([123] * 2 if less == 0 else [62] * 4)
