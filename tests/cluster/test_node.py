"""A node by itself: it is an ordinary object, so that no Ray is needed."""

import asyncio
import os
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import streamkit
from streamkit.cluster import node as module
from streamkit.cluster.exchange import LEASE_S, LOST_S, NodeJob, NodeOrders, NodeReport
from streamkit.cluster.node import ClusterNode, WithToken, write_files
from streamkit.core.data import Event
from streamkit.runtime.ingest.source_status import LastFrame
from streamkit.runtime.multiprocess.messages import SourceOrder

PIPELINE = b"""device: cpu
sources: {elsewhere: "rtsp://127.0.0.1:9/a"}
stages:
  csv: {path: "out/{source}.csv"}
"""
TOKEN = "the token of this node"
PATTERN = {"uri": "test://?frames=0&width=64&height=48", "pace": 20}


class Head:
    """What the head does with a node."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.number = 0
        self.cursor = 0
        self.wanted: dict[str, SourceOrder] = {}

    def sync(self, *, changed: bool = False) -> NodeReport:
        self.number += changed
        orders = NodeOrders(self.number, dict(self.wanted), {}, time.monotonic()) if changed else None
        report: NodeReport = pickle.loads(self.node.sync(orders, self.cursor, 0))
        self.cursor = report.events_until
        return report

    def until(self, true: Callable[[NodeReport], Any], seconds: float = 60.0) -> NodeReport:
        """Exchange reports until one is as wanted, and return it."""
        end_s = time.monotonic() + seconds
        while not true(report := self.sync()):
            assert time.monotonic() < end_s, report
            time.sleep(0.05)
        return report


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Head]:
    """A head with a node that runs `PIPELINE`, or the files that a test names by its parameter."""
    monkeypatch.chdir(tmp_path)  # the node has a working folder of its own
    files = getattr(request, "param", {"p.yaml": PIPELINE})
    job = NodeJob("a", tmp_path, files, "p.yaml", {}, "127.0.0.1", TOKEN, False, "1d", "1GB")
    head = Head(ClusterNode(streamkit.__version__, pickle.dumps(job)))
    head.until(lambda report: report.ready)
    yield head
    head.node.stop()


def order(id_: str, number: int, entry: dict[str, Any] | None = None, **more: Any) -> SourceOrder:
    return SourceOrder(id_, number, entry or PATTERN, **more)


def test_a_node_follows_its_orders(head):
    assert os.getcwd().endswith("/a")  # where outputs are written
    head.wanted = {"one": order("one", 1), "bad": order("bad", 2, {"uri": "test://", "speed": 2})}
    head.sync(changed=True)
    report = head.until(lambda report: report.worker.states.get("one") and report.worker.states["one"].frames > 3)
    assert report.worker.numbers == {"one": 1}  # the YAML's sources are not its own
    assert (report.number, report.cores >= 1, report.device) == (1, True, "cpu")
    assert report.refused["bad"][0].number == 2
    assert "has no option 'speed'" in report.refused["bad"][1]
    head.wanted = {"one": order("one", 1, paused=True)}
    head.sync(changed=True)
    report = head.until(lambda report: report.worker.states["one"].state == "paused")
    assert report.refused == {}
    after = LastFrame(500, 7.0, time.monotonic())
    head.wanted = {"one": order("one", 3, after=after)}
    head.sync(changed=True)
    report = head.until(lambda report: report.worker.numbers == {"one": 3} and report.worker.states["one"].last)
    assert report.worker.states["one"].last[0] > 500  # its indices continue
    head.wanted = {}
    head.sync(changed=True)
    head.until(lambda report: not report.worker.states and not report.worker.numbers)


def test_a_refused_source_is_retried_once_corrected(head):
    head.wanted = {"one": order("one", 1, {"uri": "test://", "speed": 2})}
    head.sync(changed=True)
    refused = head.until(lambda report: report.refused).refused
    assert refused["one"][0].number == 1
    head.wanted = {"one": order("one", 2)}
    head.sync(changed=True)
    report = head.until(lambda report: report.worker.states.get("one") and report.worker.states["one"].frames > 3)
    assert report.worker.numbers == {"one": 2}
    assert report.refused == {}
    head.wanted = {"one": order("one", 3, {"uri": "test://", "speed": 3})}
    head.sync(changed=True)
    assert head.until(lambda report: report.refused).refused["one"][0].number == 3


@pytest.mark.parametrize("ahead_s", [-5000.0, 5000.0])
def test_times_continue_although_the_heads_clock_differs(head, ahead_s):
    sent_s = time.monotonic()
    head_now_s = sent_s + ahead_s
    after = LastFrame(500, 7.0, head_now_s - 2.0)
    orders = NodeOrders(1, {"one": order("one", 1, after=after)}, {}, head_now_s)
    head.node.sync(orders, 0, 0)
    report = head.until(lambda report: report.worker.states.get("one") and report.worker.states["one"].last)
    last = report.worker.states["one"].last
    assert last.number > 500
    assert 8.5 < last.pts_s < 9.5 + time.monotonic() - sent_s  # two seconds later


def test_events_are_sent_once_and_in_order(head):
    def publish(count: int) -> None:
        for number in range(count):
            head.node.publish(Event("restarted", "pipeline", "one", number, 0.0, data={"odd": {number}}))

    publish(3)
    first = head.until(lambda report: report.events)
    assert [event.number for event in first.events] == [1, 2, 3]
    assert first.events[0].event.data == {"odd": [0]}  # as JSON: what a plugin puts there may not be known at the head
    publish(2)
    assert [event.number for event in head.until(lambda report: report.events).events] == [4, 5]
    assert head.sync().events == []
    head.cursor = 99  # of a store that is lost: this one is new
    assert head.sync().events_until == 5


def test_the_api_of_a_node_answers_its_head_only(head):
    url = f"http://127.0.0.1:{head.sync().port}"
    for path in ("/api/v1/sources", "/metrics", "/live", "/"):
        assert httpx.get(url + path).status_code == 401
        assert httpx.get(url + path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert httpx.get(f"{url}/live", headers={"authorization": "Bearer another one, long enough"}).status_code == 401


def test_a_websocket_without_token_is_closed_with_code_1008():
    messages = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        messages.append(message)

    asyncio.run(WithToken(None, TOKEN)({"type": "websocket", "headers": []}, receive, send))
    assert messages == [{"type": "websocket.close", "code": 1008}]


def test_a_valid_edit_is_applied_and_an_invalid_one_rejected(head, monkeypatch):
    monkeypatch.setenv("STREAMKIT_OUT", "")
    monkeypatch.delenv("STREAMKIT_OUT")  # the node sets it, which ends with the test
    head.wanted = {"one": order("one", 1)}
    head.sync(changed=True)
    head.until(lambda report: "one" in report.worker.states)
    assert "cuda" in head.node.apply({"p.yaml": PIPELINE.replace(b"device: cpu", b"device: cuda:77")}, {})
    assert head.sync().ready
    assert head.node.apply({"p.yaml": PIPELINE}, {}) == ""
    edited = PIPELINE + b'  jsonl: {path: "${STREAMKIT_OUT}/{source}.jsonl", from: decode}\n'
    assert head.node.apply({"p.yaml": edited, "more.txt": b"x"}, {"STREAMKIT_OUT": "out"}) == ""
    head.until(lambda report: report.worker.states.get("one") and report.worker.states["one"].frames > 3)
    assert list(Path("out").glob("*.jsonl*")) or list(Path("out").glob(".*.jsonl*"))


def test_a_node_without_its_head_stops_its_sources(head, monkeypatch):
    ended: list[float] = []
    monkeypatch.setattr(module, "LEASE_S", 1.0)
    monkeypatch.setattr(module, "end_at_once", lambda: ended.append(time.monotonic()))
    head.wanted = {"one": order("one", 1)}
    head.sync(changed=True)
    head.until(lambda report: report.worker.states.get("one") and report.worker.states["one"].frames > 3)
    running = head.node._engine.running
    time.sleep(2.0)
    assert running.stopping
    frames = running.states["one"].frames
    time.sleep(0.3)
    assert running.states["one"].frames == frames
    assert "no contact with the head for 1 s" in head.sync().failure


BLOCKED = b"""
import time
from pathlib import Path
from streamkit import Sink, stage

@stage("blocked")
class Blocked(Sink):
    def write(self, frame):
        while not Path("release").exists():
            time.sleep(0.02)
"""


@pytest.mark.quiet
@pytest.mark.parametrize(
    "head",
    [
        {
            "p.yaml": b"device: cpu\nplugins: [blocked.py]\nsources: {one: 'test://'}\nstages:\n  blocked: {}\n",
            "blocked.py": BLOCKED,
        }
    ],
    indirect=True,
)
def test_a_node_that_cannot_drain_exits_before_its_lease_ends(head, monkeypatch):
    ended: list[float] = []
    lease_s = 0.5
    monkeypatch.setattr(module, "end_at_once", lambda: ended.append(time.monotonic()))
    head.wanted = {"one": order("one", 1)}
    head.sync(changed=True)
    head.until(lambda report: report.worker.states.get("one") and report.worker.states["one"].frames > 3)
    acknowledged_s = head.node._reported_s
    head.sync()
    monkeypatch.setattr(module, "LEASE_S", lease_s)
    while not ended:
        assert time.monotonic() - acknowledged_s < 10.0, "it never exits"
        time.sleep(0.02)
    Path("release").touch()
    silent_s = ended[0] - acknowledged_s
    assert lease_s + 1.5 < silent_s < lease_s + LOST_S - LEASE_S  # after a chance to write what is decoded


def test_an_undelivered_report_does_not_extend_the_lease(head, monkeypatch):
    monkeypatch.setattr(module, "LEASE_S", 1.0)
    head.sync()
    sent_s = head.node._reported_s
    time.sleep(0.2)
    head.sync()
    assert head.node._lease_from_s == sent_s


def test_another_version_is_reported(tmp_path):
    node = ClusterNode("0.0.1", b"what this version cannot read")
    report: NodeReport = pickle.loads(node.sync(None, 0, 0))
    assert report.failure == (
        f"streamkit is {streamkit.__version__} there and 0.0.1 at the head; install the same version"
    )


def test_files_are_replaced_and_removed(tmp_path):
    write_files(tmp_path / "p", {"a.yaml": b"1", "cards/b": b"2"})
    before = (tmp_path / "p" / "a.yaml").stat().st_mtime_ns
    write_files(tmp_path / "p", {"a.yaml": b"1", "c": b"3"})
    assert sorted(path.name for path in (tmp_path / "p").rglob("*") if path.is_file()) == ["a.yaml", "c"]
    assert (tmp_path / "p" / "a.yaml").stat().st_mtime_ns == before
