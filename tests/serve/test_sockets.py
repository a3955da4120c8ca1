"""What strangers and clients may do to WebSockets: refusals, large messages, many of them."""

import pytest
from support.servers import TOKEN, served
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from streamkit.serve.connections import MAX_MESSAGE_BYTES

PIPELINE = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}\n"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def server(root):
    with served(PIPELINE, root, viewers=2) as served_camera:
        served_camera.running("cam")
        yield served_camera


def opened(server, path="records", **headers):
    return connect(f"{server.url}api/v1/{path}".replace("http", "ws"), additional_headers=headers, proxy=None)


def wait_for_close(client):
    """Read what comes until the server closes the connection."""
    for _ in range(200):
        client.recv(timeout=20)


def test_refusals_are_counted_and_log_nothing(server, caplog):
    for n in range(12):
        with pytest.raises(InvalidStatus) as refused:
            opened(server)
        assert refused.value.response.status_code == 403
        assert refused.value.response.headers["x-request-id"]
        with pytest.raises(InvalidStatus) as missing:
            opened(server, f"records?source=cam{n}", **HEADERS)
        assert missing.value.response.status_code == 404
        with pytest.raises(InvalidStatus):
            opened(server, "nothing", **HEADERS)
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []
    assert 'streamkit_http_refused_total{cause="token"} 12.0' in server.open.get("/metrics").text


@pytest.mark.parametrize("path", ["records", "videos"])
def test_a_message_has_at_most_64_kilobytes(server, path):
    with opened(server, path, **HEADERS) as client:
        client.send('{"sources": []}'.ljust(MAX_MESSAGE_BYTES))
        if path == "records":
            assert client.recv(timeout=20)
        client.send('{"sources": []}'.ljust(MAX_MESSAGE_BYTES + 1))
        with pytest.raises(ConnectionClosedError) as closed:
            wait_for_close(client)
    assert closed.value.rcvd.code == 1009
    assert server.client.get("/live").status_code == 200


def test_the_number_of_sockets_of_a_client_is_limited(server):
    sockets = [opened(server, "videos", **HEADERS) for _ in range(4)]
    with pytest.raises(InvalidStatus):
        opened(server, "videos", **HEADERS)
    assert 'cause="too_many_websockets"' in server.client.get("/metrics").text
    sockets.pop().close()
    server.until(lambda: can_open(server))
    for client in sockets:
        client.close()


def can_open(server):
    try:
        opened(server, "videos", **HEADERS).close()
    except InvalidStatus:
        return False
    return True
