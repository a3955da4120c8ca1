"""What the head makes of the nodes' answers."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from streamkit.cluster.cluster_alarms import ClusterAlarms, sum_rules
from streamkit.cluster.cluster_run import NodeView
from streamkit.cluster.forward import Forwarder, merged_metrics
from streamkit.serve.api_models import RequestRejected

TEXT = """# HELP streamkit_frames_total Frames delivered by a source
# TYPE streamkit_frames_total counter
streamkit_frames_total{{source="{0}"}} {1}
# HELP streamkit_ready 1 if frames are accepted
# TYPE streamkit_ready gauge
streamkit_ready 1.0
"""


def test_the_metrics_of_all_nodes_have_their_node_as_label():
    nodes = [NodeView(name, "10.0.0.1", state, "", "cpu", 0.5, []) for name, state in (("a", "ready"), ("b", "lost"))]
    merged_text = merged_metrics({"a": TEXT.format("gate", 7.0), "b": TEXT.format("door", 8.0)}, nodes).decode()
    lines = merged_text.splitlines()
    assert 'streamkit_frames_total{node="a",source="gate"} 7.0' in lines
    assert 'streamkit_frames_total{node="b",source="door"} 8.0' in lines
    assert lines.count("# TYPE streamkit_frames_total counter") == 1
    assert 'streamkit_ready{node="b"} 1.0' in lines
    assert lines[-2:] == ['streamkit_node_up{node="a"} 1.0', 'streamkit_node_up{node="b"} 0.0']


def test_raised_alarms_are_summed_over_nodes():
    rules = sum_rules([{"down": ("down_s > 30", 0)}, {"down": ("down_s > 30", 2)}, {"down": ("down_s > 30", 1)}])
    assert rules == {"down": ("down_s > 30", 3)}


def test_alarm_counts_are_summed_over_nodes():
    config = SimpleNamespace(name="down", options=SimpleNamespace(when="down_s > 30"))
    node_report = SimpleNamespace(rules={"down": ("down_s > 30", 2)})
    alarms = ClusterAlarms(lambda: [node_report, node_report], lambda: None, [config])
    assert alarms.report() == {"down": {"raised": 4}}


@pytest.fixture
def node():
    """A node with an API that answers with the path and the token of a request."""

    class Api(BaseHTTPRequestHandler):
        def do_GET(self):
            body = f"{self.path} {self.headers['authorization']}".encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield SimpleNamespace(url=url, token="of-the-node", node=SimpleNamespace(name="a"))
        server.shutdown()
        thread.join()


def body_of(node, path):
    async def fetch():
        response = await Forwarder(SimpleNamespace()).get(node, path, headers={"authorization": "Bearer of-the-client"})
        body = await response.aread()
        await response.aclose()
        return body.decode()

    return asyncio.run(fetch())


def test_a_node_gets_the_path_and_its_own_token(node):
    assert body_of(node, "/metrics") == "/metrics Bearer of-the-node"


def test_a_node_that_does_not_answer_is_named(node):
    unused_port = SimpleNamespace(url="http://127.0.0.1:1", token="", node=node.node)
    with pytest.raises(RequestRejected, match="node a does not answer") as rejected:
        body_of(unused_port, "/metrics")
    assert rejected.value.status == 503
