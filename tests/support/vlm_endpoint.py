"""An OpenAI-compatible HTTP endpoint for tests: it stores requests, and a test sets its answers."""

import base64
import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

Answer = dict[str, Any] | str | int | bytes
"""What an endpoint answers: values of the answer, the text of the completion, an HTTP status, or a raw body."""


@dataclass
class Call:
    """A request: its body, headers, arrival time, and images, (height, width, 3) uint8 RGB."""

    body: dict[str, Any]
    headers: dict[str, str]
    at_s: float = field(default_factory=time.monotonic)

    @property
    def prompt(self) -> str:
        return self.body["messages"][0]["content"][0]["text"]

    @property
    def images(self) -> list[np.ndarray]:
        import cv2

        decoded = []
        for part in self.body["messages"][0]["content"][1:]:
            kind, _, data = part["image_url"]["url"].partition(",")
            assert (part["type"], kind) == ("image_url", "data:image/jpeg;base64")
            bgr = cv2.imdecode(np.frombuffer(base64.b64decode(data, validate=True), np.uint8), cv2.IMREAD_COLOR)
            decoded.append(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB))
        return decoded


class Endpoint(http.server.ThreadingHTTPServer):
    """The server. `answers` gets each call and its number, from 0."""

    daemon_threads = True
    request_queue_size = 50

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: list[Call] = []
        self.delay_s = 0.0
        self.knows_response_format = True
        self.answers: Callable[[Call, int], Answer] = lambda call, number: {"injured": True, "why": "lies there"}
        self._lock = threading.Lock()
        self.at_once = self.peak_at_once = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early."""

    def take(self, call: Call) -> tuple[int, bytes, dict[str, str]]:
        with self._lock:
            number = len(self.calls)
            self.calls.append(call)
            self.at_once += 1
            self.peak_at_once = max(self.at_once, self.peak_at_once)
        time.sleep(self.delay_s)
        with self._lock:
            self.at_once -= 1
        if not self.knows_response_format and "response_format" in call.body:
            return 400, json.dumps({"error": {"message": "unknown field response_format"}}).encode(), {}
        answer = self.answers(call, number)
        if isinstance(answer, bytes):
            return 200, answer, {}
        if isinstance(answer, int):
            return answer, json.dumps({"error": {"message": "out of order"}}).encode(), {"Retry-After": "0"}
        text = answer if isinstance(answer, str) else json.dumps(answer)
        usage = {"prompt_tokens": 100, "completion_tokens": 7}
        return 200, json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode(), {}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(*self.server.take(Call(body, {name.lower(): value for name, value in self.headers.items()})))

    def do_GET(self) -> None:
        assert self.path == "/v1/models"
        self._send(200, json.dumps({"data": [{"id": "eye-7b"}]}).encode(), {})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def vlm() -> Iterator[Endpoint]:
    """Start an endpoint."""
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@contextlib.contextmanager
def apart(delay_s: float, fails_every: int) -> Iterator[str]:
    """Start an endpoint in a separate process, so that it takes no time from the pipeline; yield its address."""
    command = [sys.executable, __file__, str(delay_s), str(fails_every)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main() -> None:
    """Serve until killed."""
    server = Endpoint()
    fails_every = int(sys.argv[2])
    server.delay_s = float(sys.argv[1])
    server.answers = lambda call, number: 503 if number % fails_every == 0 else {"injured": False, "why": "walks"}
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
