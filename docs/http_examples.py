"""Write docs/http_examples.json: requests to a running server and its responses; `python docs/http_examples.py`.

It takes half a minute, and runs in the checkout. Long lists and texts are cut off with `…`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "http_examples.json"
API = "/api/v1"
# characters of a text, items of a list, characters of an example
_TEXT = 240
_ITEMS = 2
_MAX_CHARACTERS = 1600

PIPELINE = """
sources:
  street: {uri: samples/street.mp4, pace: realtime, loop: true}
stages:
  detect: {model: demo, min_score: 0.3}
  track: {}
  line: {stage: line_counter, line: [[320, 60], [320, 360]]}
  zone: {polygon: {hall: [[100, 60], [600, 60], [600, 360], [100, 360]]}}
  heatmap: {path: "out/{source}-heat.png", every: 2s}
  record: {path: "out/{source}/{time}-{kind}.mp4", when: line.crossed, before: 1s, after: 1s, continuous: true}
alarms:
  up: uptime_s > 1
"""
YARD = {"id": "yard", "uri": "test://", "options": {"pace": 5}}


def main() -> None:
    """Run the server, send the requests, write the file."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.servers import served

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "samples").symlink_to(ROOT / "samples")
        os.chdir(folder)
        try:
            with served(PIPELINE, folder, path=folder / "pipeline.yaml") as server:
                server.until(lambda: [event for event in server.client.get(f"{API}/events").json() if event["clip"]])
                server.until(lambda: server.client.get(f"{API}/alarms").json()[0]["raised"])
                server.until(lambda: server.client.get(f"{API}/review").json())
                for path in ("occupancy", "heatmaps", "recordings"):
                    server.until(lambda path=path: server.client.get(f"{API}/{path}").json())
                examples = _record_examples(server)
        finally:
            os.chdir(before)
    FILE.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _record_examples(server: Any) -> dict[str, dict[str, Any]]:
    """The examples: by method and path as in the OpenAPI document."""
    examples: dict[str, dict[str, Any]] = {}

    def ask(method: str, path: str, body: Any = None, query: str = "", **values: Any) -> Any:
        reply = server.client.request(method, path.format(**values) + query, json=body)
        reply.raise_for_status()
        example = {} if body is None else {"request": cut(body)}
        if reply.content and reply.headers["content-type"].startswith("application/json"):
            example["response"] = cut(reply.json())
        examples[f"{method} {path}"] = example
        return reply.json() if "response" in example else None

    from support.servers import TOKEN

    for path in ("/live", "/ready", f"{API}/status", f"{API}/sources", f"{API}/stages", f"{API}/source-options"):
        ask("GET", path)
    for path in ("problems", "alarms", "alarms/history", "logs", "events/names", "events/store", "audit"):
        ask("GET", f"{API}/{path}")
    for path in ("counts", "occupancy", "heatmaps", "review/open", "push"):
        ask("GET", f"{API}/{path}")
    ask("GET", f"{API}/source-changes")
    ask("POST", f"{API}/source-actions", {"action": "change", "ids": ["street"], "group": "entrance"})
    layout = {"name": "Gates", "sources": ["street"], "size": 4}
    tour = {"name": "Round", "stops": [{"layout": "Gates", "seconds": 10}]}
    ask("PUT", f"{API}/layouts", {"layouts": [layout], "tours": [tour]})
    ask("GET", f"{API}/layouts")
    items = ask("GET", f"{API}/review", query="?limit=2")
    ask("GET", f"{API}/review/{{id}}", id=items[0]["id"])
    ask("PATCH", f"{API}/review/{{id}}", {"reviewed": True, "comment": "a delivery"}, id=items[0]["id"])
    ask("POST", f"{API}/review/reviewed", {"ids": [items[0]["id"]]})
    ask("DELETE", f"{API}/review/{{id}}", id=items[0]["id"])
    browser = {"endpoint": "https://fcm.googleapis.com/fcm/send/abc", "keys": {"p256dh": "BAbc", "auth": "abc"}}
    ask("POST", f"{API}/push/subscriptions", browser)
    ask("POST", f"{API}/push/unsubscribe", {"endpoint": browser["endpoint"]})
    ask("POST", f"{API}/push/silence", {"minutes": 15, "source": "street"})
    ask("POST", f"{API}/push/escalation", {"minutes": 5})
    (recorded, *_) = ask("GET", f"{API}/recordings")
    period = f"?source=street&from_s={recorded['first_s']}&to_s={recorded['last_s']}&bins=4"
    ask("GET", f"{API}/recordings/timeline", query=period)
    ask("POST", f"{API}/alarms/{{name}}/acknowledge", {"source": "pipeline"}, name="up")
    ask("POST", f"{API}/problems/acknowledge", {"id": "alarm:up"})
    ask("GET", f"{API}/sources/{{id}}", id="street")
    events = ask("GET", f"{API}/events", query="?kind=crossed&limit=2")
    ask("GET", f"{API}/events/timeline", query="?bins=4")
    ask("GET", f"{API}/events/{{number}}", number=events[0]["number"])
    ask("GET", f"{API}/series", query="?name=frames&source=street")
    ask("POST", f"{API}/sources", YARD)
    ask("PUT", f"{API}/sources/{{id}}", {"options": {"pace": 2}}, id="yard")
    server.until(lambda: server.source("yard")["state"] == "running")
    ask("POST", f"{API}/sources/{{id}}/pause", id="yard")
    ask("POST", f"{API}/sources/{{id}}/resume", id="yard")
    ask("POST", f"{API}/sources/{{id}}/record", id="street")
    ask("DELETE", f"{API}/sources/{{id}}", id="yard")
    ask("POST", f"{API}/sources/test", {"id": "test", "uri": "test://"})
    ask("POST", f"{API}/sources.csv", {"csv": "id,uri,pace\nyard,test://,5\n", "mode": "check"})
    ask("PATCH", f"{API}/stages/{{id}}", {"line": [[300, 60], [300, 360]]}, id="line")
    ask("GET", f"{API}/config/differences")
    ask("POST", f"{API}/config/differences/restore")
    config = ask("GET", f"{API}/config")
    ask("POST", f"{API}/config/differences/write", {"hash": config["hash"], "dry_run": True})
    ask("POST", f"{API}/config/check", {"text": config["text"].replace("0.3", "0.4")})
    shapes = {"line": {"": [[0.5, 0.2], [0.5, 1.0]]}}
    shape = {"option": "line", "shapes": shapes["line"], "units": "share", "hash": config["hash"]}
    ask("GET", f"{API}/shapes")
    ask("POST", f"{API}/stages/{{id}}/shapes", shape, id="line")
    ask("PUT", f"{API}/config", {"text": config["text"].replace("0.3", "0.4"), "hash": config["hash"]})
    ask("POST", f"{API}/tokens", {"name": "anna", "role": "operator"})
    ask("GET", f"{API}/tokens")
    ask("DELETE", f"{API}/tokens/{{name}}", name="anna")
    _ask_of_people(server, ask, examples)
    ask("POST", f"{API}/session", {"token": TOKEN})
    ask("GET", f"{API}/session")
    sessions = ask("GET", f"{API}/sessions")
    ask("DELETE", f"{API}/sessions/{{id}}", id=sessions[0]["id"])
    return _without_secrets(examples)


def _ask_of_people(server: Any, ask: Any, examples: dict[str, dict[str, Any]]) -> None:
    """The examples of people: one is created, signs in, and changes the password."""
    import httpx

    rights = {"role": "viewer", "groups": ["entrance"]}
    created = ask("POST", f"{API}/people", {"name": "ben", **rights})
    ask("GET", f"{API}/people")
    first = {"name": "ben", "password": created["password"], "new_password": "a long enough password"}
    change = {"password": first["new_password"], "new_password": "another good password"}
    with httpx.Client(base_url=server.url) as browser:
        browser.post(f"{API}/session", json=first).raise_for_status()
        browser.put(f"{API}/session/password", json=change).raise_for_status()
    examples[f"PUT {API}/session/password"] = {"request": change}
    ask("PUT", f"{API}/people/{{name}}", rights | {"role": "operator"}, name="ben")
    ask("POST", f"{API}/people/{{name}}/reset", name="ben")
    ask("DELETE", f"{API}/people/{{name}}", name="ben")


def _without_secrets(examples: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The examples with tokens that are recognizable as such."""
    examples[f"POST {API}/tokens"]["response"]["token"] = "…"
    for path in ("people", "people/{name}/reset"):
        examples[f"POST {API}/{path}"]["response"]["password"] = "…"
    examples[f"POST {API}/session"]["request"]["token"] = "…"
    return examples


def cut(value: Any) -> Any:
    """A value for a page: long texts, lists and mappings are cut off."""
    if isinstance(value, str):
        return value if len(value) <= _TEXT else value[:_TEXT] + "…"
    if isinstance(value, list):
        return [cut(entry) for entry in value[:_ITEMS]] if _nested(value) else value[:12]
    if isinstance(value, dict):
        entries = list(value.items())
        all_nested = all(isinstance(child, (dict, list)) for child in value.values())
        if all_nested and len(json.dumps(value)) > _MAX_CHARACTERS:
            entries = entries[:1]
        return {key: cut(child) for key, child in entries}
    return value


def _nested(value: list[Any]) -> bool:
    return any(isinstance(child, (dict, list)) for child in value)


if __name__ == "__main__":
    main()
