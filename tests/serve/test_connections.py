"""Clients that are slow, silent or too many, on real sockets of this machine."""

import asyncio
import contextlib
import json
import resource
import select
import socket
import time

import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.serve.connections import Limits, allowed_connections, failed_accepts
from streamkit.serve.server import listen, serving

LATE_S = 1.0
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n"


async def answer(scope, receive, send):
    """Answers with the length of the body; `/slow` after a while, `/large` with more than a socket holds."""
    length = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length = length + len(message["body"])
        more = message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(2 * LATE_S)
    size = 64_000_000 if scope["path"] == "/large" else 8
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    if size == 8:
        await send({"type": "http.response.body", "body": b"%8d" % length})
        return
    for _ in range(640):
        await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Small:
    """A server with few places and short deadlines."""

    def __init__(self, port, refused, logged):
        self.port = port
        self.refused = refused
        self.logged = logged
        self.stack = contextlib.ExitStack()

    def connect(self, sent=b"", timeout=5.0):
        connection = self.stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout))
        if sent:
            connection.sendall(sent)
        return connection


@contextlib.contextmanager
def small_server(late_s):
    listening = listen("127.0.0.1", 0)
    refused = Counters()
    logged = collect()
    limits = Limits(connections=8, send_s=late_s, read_s=late_s)
    with serving(answer, listening, limits, refused=refused):
        small = Small(listening.getsockname()[1], refused, logged)
        with small.stack:
            yield small


@pytest.fixture(name="small")
def small_fixture():
    with small_server(LATE_S) as opened:
        yield opened


@pytest.fixture(name="patient")
def patient_fixture():
    """As `small`, with deadlines that no test reaches."""
    with small_server(60.0) as opened:
        yield opened


def read(client):
    """All that comes until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            received += part
    return received


def first(client):
    """The answer that comes first; empty where the server has closed."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while not received.partition(b"\r\n\r\n")[2] and (part := client.recv(65536)):
            received += part
    return received


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def drip(client, data, every_s=0.1):
    """Send a byte now and then, until the server closes; return the seconds that took and its answer."""
    started_s = time.monotonic()
    client_s = client.gettimeout()
    client.settimeout(every_s)
    received = b""
    for byte in data:
        with contextlib.suppress(ConnectionError):
            client.sendall(bytes([byte]))
        try:
            part = client.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:
            part = b""
        received += part
        if not part:
            break
    else:
        pytest.fail("the server has read all of it")
    client.settimeout(client_s)
    return time.monotonic() - started_s, received


# ------------------------------------------------------------------------------------------------------------ deadlines


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_a_connection_without_headers_is_closed(small, sent):
    started_s = time.monotonic()
    response = read(small.connect(sent))
    assert time.monotonic() - started_s > LATE_S - 0.05
    assert response.startswith(b"HTTP/1.1 408 ")
    text = json.loads(response.partition(b"\r\n\r\n")[2])["error"]
    assert text == f"the headers of a request must arrive within {LATE_S:g} seconds"
    assert small.refused.values == {"headers too slow": 1}


def test_a_connection_with_slow_headers_is_closed(small):
    client = small.connect(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    seconds, response = drip(client, b"x" * 900)
    assert seconds > LATE_S - 0.05
    assert b" 408 " in response
    assert small.refused["headers too slow"] == 1


def test_a_connection_with_a_slow_body_is_closed(small):
    client = small.connect(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n")
    seconds, response = drip(client, b"x" * 900)
    assert seconds > LATE_S - 0.05
    assert b"the body of a request must arrive within" in response
    assert small.refused.values == {"body too slow": 1}


def test_the_body_has_a_separate_deadline(small):
    client = small.connect(POST[:-2])
    time.sleep(LATE_S * 0.6)
    client.sendall(POST[-2:])
    time.sleep(LATE_S * 0.6)  # more than the deadline since the connection, less since the headers
    client.sendall(b"x" * 10)
    assert first(client).endswith(b"      10")
    assert not small.refused.values


def test_a_second_request_has_the_same_deadlines(small):
    client = small.connect(REQUEST)
    assert first(client).startswith(b"HTTP/1.1 200 ")
    _, response = drip(client, b"GET / HTTP/1.1\r\n" + b"x" * 80)
    assert b" 408 " in response
    assert small.refused.values == {"headers too slow": 1}


def test_a_connection_with_timely_requests_stays_open(small):
    client = small.connect()
    for _ in range(4):
        client.sendall(POST + b"x" * 10)
        assert first(client).endswith(b"      10")
        time.sleep(LATE_S * 0.4)
    assert not small.refused.values


def test_an_unread_body_has_a_deadline(small):
    """The answer is complete, and the client goes on to send."""
    client = small.connect(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n")
    drip(client, b"x" * 900)


def test_a_slow_answer_of_the_server_has_no_deadline(small):
    """The deadlines are the client's, not the server's."""
    response = first(small.connect(REQUEST.replace(b"GET /", b"GET /slow")))
    assert response.startswith(b"HTTP/1.1 200 ")
    assert not small.refused.values


def test_a_client_that_does_not_read_the_answer_is_disconnected(small):
    client = small.connect(REQUEST.replace(b"GET /", b"GET /large"))
    until(lambda: small.refused["answer not read"])
    assert len(read(client)) < 64_000_000


def test_a_slow_reader_gets_the_whole_answer(small):
    client = small.connect(REQUEST.replace(b"GET /", b"GET /large"))
    size = 0
    while size < 64_000_000:
        size += len(client.recv(4_000_000))
        time.sleep(0.01)
    assert not small.refused.values


def test_reading_cancels_the_deadline_of_an_answer(small):
    """The answer waits for a moment, the client reads it, and asks for one that takes longer than the deadline."""
    client = small.connect(REQUEST.replace(b"GET /", b"GET /large"))
    time.sleep(LATE_S * 0.3)
    size = len(first(client).partition(b"\r\n\r\n")[2])
    while size < 64_000_000:
        size += len(client.recv(4_000_000))
    client.sendall(REQUEST.replace(b"GET /", b"GET /slow"))
    assert first(client).startswith(b"HTTP/1.1 200 ")
    assert not small.refused.values


def test_a_client_that_disconnects_is_not_counted_as_a_stalled_reader(small):
    client = small.connect(REQUEST.replace(b"GET /", b"GET /large"))
    assert first(client).startswith(b"HTTP/1.1 200 ")
    time.sleep(LATE_S * 0.3)
    client.close()
    time.sleep(LATE_S)
    assert not small.refused.values


def test_an_idle_connection_is_closed(small):
    client = small.connect(REQUEST)
    assert first(client).startswith(b"HTTP/1.1 200 ")
    started_s = time.monotonic()
    response = read(client)
    assert time.monotonic() - started_s > LATE_S - 0.2
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"content-type: application/json\r\n" in response
    assert b"connection: close\r\n" in response
    assert small.refused.values == {"headers too slow": 1}


def test_requests_that_are_not_http_are_counted_and_answered(small):
    response = read(small.connect(b"\x16\x03\x01 hello\r\n\r\n"))
    assert response.startswith(b"HTTP/1.1 400 ")
    assert small.refused.values == {"not HTTP": 1}


# --------------------------------------------------------------------------------------------------------------- places


def test_the_oldest_idle_connections_make_room(patient):
    silent = []
    for _ in range(11):
        silent.append(patient.connect(b"GET / HTTP/1.1\r\n"))
        time.sleep(0.01)
    until(lambda: patient.refused["too many connections"] == 3)
    for client in silent[:3]:
        assert first(client) == b""
    silent[3].sendall(b"Host: 127.0.0.1\r\n\r\n")
    assert first(silent[3]).startswith(b"HTTP/1.1 200 ")
    assert patient.refused["too many connections"] == 3


def test_a_burst_respects_the_limit_of_connections(patient):
    clients = [patient.connect(b"GET / HTTP/1.1\r\n") for _ in range(100)]
    until(lambda: patient.refused["too many connections"] == 92)
    assert first(patient.connect(REQUEST)).startswith(b"HTTP/1.1 200 ")
    closed, _, _ = select.select(clients, [], [], 0)
    assert len(closed) >= 92
    assert all(first(client) == b"" for client in closed)


def test_busy_connections_are_not_evicted(small):
    slow = [small.connect(REQUEST.replace(b"GET /", b"GET /slow")) for _ in range(8)]
    time.sleep(LATE_S / 2)  # they are all with the application
    assert first(small.connect(REQUEST)) == b""
    assert small.refused.values == {"too many connections": 1}
    assert all(first(client).startswith(b"HTTP/1.1 200 ") for client in slow)
    assert first(small.connect(REQUEST)).startswith(b"HTTP/1.1 200 ")


def test_disconnected_clients_free_their_slots(small):
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", small.port), 5) as client:
            client.sendall(REQUEST)
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert not small.refused.values


@pytest.mark.parametrize(
    ("files", "wanted", "allowed"),
    [
        (256, 256, 64),
        (1024, 256, 256),
        (20_000, 256, 256),
        (400, 256, 100),
        (20, 256, 8),
        (1024, 100, 100),
        (resource.RLIM_INFINITY, 256, 256),
    ],
)
def test_connections_are_limited_to_a_quarter_of_the_open_files(monkeypatch, files, wanted, allowed):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert allowed_connections(wanted) == allowed


def test_the_limits_are_the_documented_values():
    limits = Limits()
    assert (limits.connections, limits.send_s, limits.read_s, limits.viewers) == (256, 10.0, 30.0, 64)
    assert Limits(64).viewers == 32
    assert Limits(8).viewers == 4


# --------------------------------------------------------------------------------------------- no more files to be had


def test_failed_accepts_are_logged_once_a_minute(monkeypatch):
    now_s = [1000.0]
    others = []
    monkeypatch.setattr("streamkit.serve.connections.time.monotonic", lambda: now_s[0])

    class Loop:
        def default_exception_handler(self, context):
            others.append(context)

    refused = Counters()
    logged = collect()
    handle = failed_accepts(refused)
    full = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
    for _ in range(500):
        handle(Loop(), full)
    assert len(logged) == 1
    assert "Too many open files" in logged[0]
    assert "ulimit -n" in logged[0]
    now_s[0] += 59.0
    handle(Loop(), full)
    assert len(logged) == 1
    now_s[0] += 1.0
    handle(Loop(), full)
    assert len(logged) == 2
    assert "502 times" in logged[1]
    assert refused.values == {"not accepted": 502}
    assert not others
    handle(Loop(), {"message": "something else"})
    assert others == [{"message": "something else"}]
    assert refused["not accepted"] == 502
