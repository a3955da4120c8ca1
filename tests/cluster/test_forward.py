"""What the head makes of the nodes' answers."""

from streamkit.cluster.cluster_alarms import sum_rules
from streamkit.cluster.cluster_run import NodeView
from streamkit.cluster.forward import merged_metrics

TEXT = """# HELP streamkit_frames_total Frames delivered by a source
# TYPE streamkit_frames_total counter
streamkit_frames_total{{source="{0}"}} {1}
# HELP streamkit_ready 1 if frames are accepted
# TYPE streamkit_ready gauge
streamkit_ready 1.0
"""


def test_the_metrics_of_all_nodes_have_their_node_as_label():
    nodes = [NodeView(name, "10.0.0.1", state, "", "cpu", 0.5, []) for name, state in (("a", "ready"), ("b", "lost"))]
    found = merged_metrics({"a": TEXT.format("gate", 7.0), "b": TEXT.format("door", 8.0)}, nodes).decode()
    lines = found.splitlines()
    assert 'streamkit_frames_total{node="a",source="gate"} 7.0' in lines
    assert 'streamkit_frames_total{node="b",source="door"} 8.0' in lines
    assert lines.count("# TYPE streamkit_frames_total counter") == 1
    assert 'streamkit_ready{node="b"} 1.0' in lines
    assert lines[-2:] == ['streamkit_node_up{node="a"} 1.0', 'streamkit_node_up{node="b"} 0.0']


def test_alarms_are_counted_over_nodes():
    rules = sum_rules([{"down": ("down_s > 30", 0)}, {"down": ("down_s > 30", 2)}, {"down": ("down_s > 30", 1)}])
    assert rules == {"down": ("down_s > 30", 3)}
