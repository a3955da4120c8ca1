"""A receiver of webhooks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from streamkit.emit.sender import POISON
from support.broker_servers import BrokerServer
from support.place import Place
from support.poison import Poison

HOOK = """
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if b"poison" in body:
            self.close_connection = True
            return
        with open("got", "ab") as file:
            file.write(body + b"\\n")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()
"""


class Hook(BrokerServer):
    """A receiver of webhooks, in a process of its own; what it answers for stands in its file."""

    name = "webhook"
    binary = "python3"

    def command(self) -> list[str]:
        return [sys.executable, "-c", HOOK, str(self.port)]


class WebhookPlace(Place):
    kind = "webhook"
    poisons = (Poison(POISON, "no answer: ", {"text": "poison"}),)
    measured = False
    server = Hook

    @classmethod
    def options_at(cls, folder: Path, port: int, password: str) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{port}/hook", "secret": "whsec_c2VjcmV0"}

    def received(self) -> list[dict[str, Any]]:
        text = (self.folder / "broker" / "got").read_text()
        return [record for line in text.splitlines() if line.endswith("]") for record in json.loads(line)]
