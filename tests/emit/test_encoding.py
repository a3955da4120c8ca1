"""Records in another format, with a client that does what it is told; real brokers are in test_examples_kafka.py."""

import pytest

from streamkit.emit.client import Client, EncodingClient, Message, RecordRejected, SendError


class Scripted(Client):
    where = "kafka://broker:9092"
    secrets = ("hunter2",)

    def __init__(self, answer=None):
        self.received = []
        self.answer = answer
        self.idled = 0
        self.closed = 0

    def connect(self):
        self.as_connected = (self.timeout_s, self.over())

    def deliver(self, messages):
        self.received += messages
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def idle(self):
        self.idled += 1

    def close(self):
        self.closed += 1


def encode(body):
    if body == b"odd":
        raise ValueError("it is odd")
    return b"<" + body + b">"


def messages(*bodies):
    return [Message(f"s-{n}", "t", "k", body) for n, body in enumerate(bodies)]


def test_only_bodies_are_encoded():
    inner = Scripted()
    assert EncodingClient(inner, encode).deliver(messages(b"a", b"b")) == {}
    assert inner.received == messages(b"<a>", b"<b>")


def test_an_unencodable_record_is_refused_under_its_original_position():
    inner = Scripted({0: "too large", 1: "also"})
    refused = EncodingClient(inner, encode).deliver(messages(b"odd", b"a", b"odd", b"b", b"c"))
    assert [message.body for message in inner.received] == [b"<a>", b"<b>", b"<c>"]
    odd = "it cannot be converted to the format: it is odd"
    assert refused == {0: odd, 1: "too large", 2: odd, 3: "also"}


def test_a_delivery_without_encodable_records_sends_nothing():
    inner = Scripted(SendError("away"))
    assert list(EncodingClient(inner, encode).deliver(messages(b"odd"))) == [0]


@pytest.mark.parametrize("kind", [SendError, RecordRejected])
@pytest.mark.parametrize(
    ("bodies", "done", "expected"),
    [
        ([b"a", b"b", b"c"], 2, 2),
        ([b"a", b"b"], 2, 2),
        ([b"a", b"odd", b"b", b"c"], 1, 1),
        ([b"odd", b"a", b"b"], 1, 0),
        ([b"a", b"b", b"odd"], 2, 2),
    ],
)
def test_the_delivered_count_ends_at_the_first_unencodable_record(bodies, done, expected, kind):
    """What has no form must be given up before what comes behind it counts as arrived."""
    with pytest.raises(kind) as caught:
        EncodingClient(Scripted(kind("cut", done)), encode).deliver(messages(*bodies))
    assert caught.value.done == expected


def test_the_wrapped_client_gets_timeouts_idle_and_close_calls():
    inner = Scripted()
    client = EncodingClient(inner, encode)
    client.timeout_s = 3.0
    client.over = lambda: True
    client.connect()
    assert inner.as_connected == (3.0, True)
    assert client.where == "kafka://broker:9092"
    assert client.redact("a hunter2 b") == "a *** b"
    client.idle()
    client.close()
    assert (inner.idled, inner.closed) == (1, 1)
