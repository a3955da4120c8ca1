"""One call of an endpoint over HTTP: what is sent, and every way in which it can fail."""

import json
import socket
import threading
import time

import numpy as np
import pytest

from streamkit.io.still_images import jpeg
from streamkit.stages.inference.ask.endpoint import CallError, ChatEndpoint, check_url

KEY = "sk-very-secret-key"
SCHEMA = {"type": "object", "properties": {"injured": {"type": "boolean"}}}


@pytest.fixture
def endpoint():
    """Make endpoints, which are closed at the end."""
    endpoints = []

    def make(url, key=KEY, timeout_s=5.0, **parameters):
        endpoints.append(ChatEndpoint(url, "eye-7b", key, parameters, timeout_s))
        return endpoints[-1]

    yield make
    for chat_endpoint in endpoints:
        chat_endpoint.close()


def test_a_call_is_a_chat_completion_with_images_and_a_schema(vlm, endpoint):
    pictures = [jpeg(np.full((40, 30, 3), color, np.uint8), 90) for color in ((200, 30, 30), (30, 30, 200))]
    reply = endpoint(vlm.url, temperature=0).ask("Is she well?", pictures, SCHEMA)
    assert (json.loads(reply.text)["injured"], reply.prompt_tokens, reply.completion_tokens) == (True, 100, 7)
    (call,) = vlm.calls
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert (call.body["model"], call.body["temperature"], call.prompt) == ("eye-7b", 0, "Is she well?")
    assert [len(call.body["messages"]), call.body["messages"][0]["role"]] == [1, "user"]
    assert call.body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
    }
    red, blue = (image.mean(axis=(0, 1)).round() for image in call.images)
    assert np.abs(red - (200, 30, 30)).max() < 5
    assert np.abs(blue - (30, 30, 200)).max() < 5


def test_a_call_works_without_key_and_schema(vlm, endpoint):
    endpoint(f"{vlm.url}/chat/completions", key=None).ask("?", [], None)
    assert "authorization" not in vlm.calls[0].headers
    assert "response_format" not in vlm.calls[0].body
    assert endpoint(f"{vlm.url}/").models() == ["eye-7b"]


def failure(vlm, endpoint, answer):
    vlm.answers = lambda call, number: answer
    with pytest.raises(CallError) as failed:
        endpoint(vlm.url).ask("?", [], SCHEMA)
    return failed.value


@pytest.mark.parametrize(
    ("status", "retry", "not_understood"),
    [
        (500, True, False),
        (503, True, False),
        (529, True, False),
        (429, True, False),
        (401, False, False),
        (404, False, False),
        (307, False, False),
        (400, False, True),
        (422, False, True),
    ],
)
def test_a_status_determines_whether_a_retry_may_help(vlm, status, retry, not_understood, endpoint):
    error = failure(vlm, endpoint, status)
    assert (error.cause, error.retry, error.not_understood) == (f"HTTP {status}", retry, not_understood)
    assert str(error).startswith(f"HTTP {status} ")
    assert str(error).endswith("(out of order)")


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"<html>welcome</html>", "no completion"),
        (b"[]", "no completion"),
        (b'{"choices": []}', "no completion"),
        (b'{"choices": [{"message": {"content": null}}]}', "no completion"),
        (b'{"choices": [{"message": {"content": [1]}}]}', "no completion"),
        (b'{"choices": "' + b"x" * 1_100_000 + b'"}', "too long"),
    ],
)
def test_a_body_that_is_not_a_completion_is_refused(vlm, body, cause, endpoint):
    error = failure(vlm, endpoint, body)
    assert (error.cause, error.retry) == (cause, False)


def test_implausible_token_counts_are_ignored(vlm, endpoint):
    for usage in ({"prompt_tokens": -5, "completion_tokens": "many"}, [1], None, {"prompt_tokens": True}):
        body = json.dumps({"choices": [{"message": {"content": "{}"}}], "usage": usage}).encode()
        vlm.answers = lambda call, number, body=body: body
        reply = endpoint(vlm.url).ask("?", [], None)
        assert (reply.prompt_tokens, reply.completion_tokens) == (0, 0)


def test_an_unreachable_endpoint_is_reported(endpoint):
    with pytest.raises(CallError, match=r"no answer: .*refused") as failed:
        endpoint("http://127.0.0.1:1/v1").ask("?", [], None)
    assert (failed.value.cause, failed.value.retry) == ("no connection", True)


def test_a_slow_endpoint_times_out(vlm, endpoint):
    vlm.delay_s = 3600.0
    with pytest.raises(CallError, match=r"no answer within 0\.3 s") as failed:
        endpoint(vlm.url, timeout_s=0.3).ask("?", [], None)
    assert (failed.value.cause, failed.value.retry) == ("timeout", True)
    vlm.delay_s = 0.0


def test_an_endpoint_that_sends_byte_by_byte_times_out(endpoint):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            link, _ = server.accept()
            with link:
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                try:
                    for _ in range(100_000):
                        link.sendall(b" ")
                        time.sleep(0.05)
                except OSError:
                    pass

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(CallError, match=r"no complete answer within 0\.4 s"):
            endpoint(f"http://127.0.0.1:{server.getsockname()[1]}/v1", timeout_s=0.4).ask("?", [], None)
        thread.join(60)


def test_the_key_is_in_no_message(vlm, endpoint):
    vlm.answers = lambda call, number: 401
    message = {"error": {"message": f"the key {KEY} is wrong, see https://a:b@c/?token=x"}}
    vlm.take = lambda call: (401, json.dumps(message).encode(), {})
    with pytest.raises(CallError) as failed:
        endpoint(vlm.url).ask("?", [], None)
    assert str(failed.value) == "HTTP 401 Unauthorized (the key *** is wrong, see https://a:***@c/?token=***)"


@pytest.mark.parametrize("url", ["", "eye.example", "ftp://h/v1", "http://", "http://h:99999/v1"])
def test_an_invalid_address_is_refused(url):
    with pytest.raises(ValueError, match=r"^url must be the address of the endpoint, as in http://127.0.0.1:8000/v1$"):
        check_url(url)


def test_an_address_with_blanks_is_refused():
    with pytest.raises(
        ValueError, match=r"^url must have no blanks, and character 9 is a blank: remove it, or write %20"
    ):
        check_url("http://a b/v1")


@pytest.mark.parametrize("url", ["http://me:secret@h/v1", "https://h/v1?api-key=secret"])
def test_a_key_in_the_address_is_refused_and_not_repeated(url):
    with pytest.raises(ValueError, match="put the key into an environment variable, and name that under key_env") as no:
        check_url(url)
    assert "secret" not in str(no.value)


@pytest.mark.parametrize(("url", "verifies"), [("HTTPS://h/v1", True), ("https://h/v1", True), ("http://h/v1", False)])
def test_certificates_are_verified(url, verifies, endpoint, monkeypatch):
    import httpx

    client_options = {}
    monkeypatch.setattr(httpx, "Client", lambda **options: client_options.update(options) or httpx.BaseTransport())
    endpoint(url)
    assert client_options["verify"] is verifies


def test_calls_after_close_or_to_an_invalid_address_fail(vlm, endpoint):
    chat_endpoint = endpoint(vlm.url)
    chat_endpoint.close()
    with pytest.raises(CallError, match=r"no answer: .*closed"):
        chat_endpoint.ask("?", [], None)
    with pytest.raises(CallError, match="url is no address: ") as failed:
        endpoint("http://h\x01/v1").ask("?", [], None)
    assert not failed.value.retry


def test_parameters_may_have_numbers_as_keys(vlm, endpoint):
    endpoint(vlm.url, logit_bias={50256: -100}).ask("?", [], None)
    assert vlm.calls[0].body["logit_bias"] == {"50256": -100}
