"""Which node gets a source: by what the nodes measure, and where a move helps much. No Ray is needed."""

from typing import Any

import pytest

from streamkit.cluster.placement import Move, NodeLoad, better_move, capacities, node_policy
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.runtime.ingest.source_status import LastFrame, RemovedSources, SourceState
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.process_count import SourceLoad
from streamkit.runtime.multiprocess.source_scheduler import SourceScheduler
from streamkit.runtime.observe.report_merge import WorkerReport


class Node:
    """A node that keeps its orders."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.takes_sources = True
        self.orders = list[messages.Order]()

    def send(self, order: messages.Order) -> None:
        self.orders.append(order)

    def added_orders(self) -> list[messages.SourceOrder]:
        return [order.source for order in self.orders if isinstance(order, messages.Add)]

    def added(self) -> list[str]:
        return [source.id for source in self.added_orders()]


def cameras(*ids: str) -> list[Any]:
    lines = [f"  {id_}: rtsp://127.0.0.1:9/{id_}" for id_ in ids]
    return read_text("\n".join(["sources:", *lines, "stages:", "  jsonl: {path: x}"])).sources


def sources_of(*ids: str, capacity: dict[str, float] | None = None) -> SourceScheduler:
    strengths = capacity or {}
    policy = node_policy(lambda source: SourceLoad(30.0, 0.1, live=True), lambda node: strengths.get(node.name, 1.0))
    return SourceScheduler(cameras(*ids), (), RemovedSources, True, policy=policy)


def report(sources: SourceScheduler, node: Node, frames: int) -> None:
    """Let a node report the frames of each of its sources."""
    numbers = {source.id: source.number for source in node.added_orders()}
    states = {
        id_: SourceState(frames=frames, last=LastFrame(frames - 1, frames / 30, 0.0), state="running")
        for id_ in numbers
    }
    sources.update(node, WorkerReport(states=states, numbers=numbers))


def test_the_capacity_of_a_node_is_measured():
    strengths = capacities(
        {
            "busy": NodeLoad(2.0, 0.5, 4.0),  # half busy with 2: entirely with 4
            "idle": NodeLoad(0.1, 0.02, 8.0),  # says little: as many cores as `busy`, twice
            "new": NodeLoad(0.0, None, 40.0),
        }
    )
    assert strengths == {"busy": 4.0, "idle": 8.0, "new": 40.0}
    assert capacities({"new": NodeLoad(0.0, None, 4.0)}) == {"new": 4.0}


def test_a_source_moves_only_from_an_overloaded_node_to_one_with_room():
    sources = {"b": {"small": 0.1, "large": 0.3}, "a": {"small": 0.2, "large": 0.6}}
    assert better_move({"a": 0.95, "b": 0.2}, sources) == Move("large", "a", "b")
    assert better_move({"a": 0.95, "b": 0.5}, sources) == Move("small", "a", "b")
    assert better_move({"a": 0.75, "b": 0.0}, sources) is None  # the tracks are worth more
    assert better_move({"a": 0.95, "b": 0.65}, sources) is None
    assert better_move({"a": 0.95}, sources) is None


def test_waiting_sources_go_to_the_least_loaded_node():
    sources = sources_of("one", "two", "three", capacity={"strong": 2.0})
    assert sources.place_waiting() == []
    assert {state.message for state in sources.states.values()} == {"waits for a node"}
    strong = Node("strong")
    weak = Node("weak")
    for node in (weak, strong):
        sources.add_process(node)
    assert sources.place_waiting() == []  # none was restarted
    assert (len(strong.added()), len(weak.added())) == (2, 1)
    sources.place_waiting()
    assert (len(strong.added()), len(weak.added())) == (2, 1)


def test_a_source_of_a_lost_node_continues_on_another_or_waits_for_one():
    sources = sources_of("one", "two")
    a = Node("a")
    b = Node("b")
    for node in (a, b):
        sources.add_process(node)
    sources.place_waiting()
    for node in (a, b):
        report(sources, node, 100)
    b.takes_sources = False
    (moved,) = sources.lose(b, crashed=False)
    assert moved.id in a.added()
    order = next(source for source in a.added_orders() if source.id == moved.id)
    assert order.after is not None
    assert order.after[0] >= 99  # no index comes twice
    a.takes_sources = False
    assert sources.lose(a, crashed=False) == []
    assert {state.message for state in sources.states.values()} == {"its node is lost; waits for another"}
    c = Node("c")
    sources.add_process(c)
    assert {source.id for source in sources.place_waiting()} == {"one", "two"}
    assert sorted(c.added()) == ["one", "two"]
    assert sources.place_waiting() == []  # each is restarted once
    assert sorted(c.added()) == ["one", "two"]


def test_a_source_that_moves_when_its_node_is_lost_is_restarted_once():
    sources = sources_of("one")
    a = Node("a")
    b = Node("b")
    c = Node("c")
    for node in (a, b):
        sources.add_process(node)
    sources.place_waiting()
    before, target = (a, b) if a.added() else (b, a)
    report(sources, before, 50)
    sources.move("one", target)
    sources.add_process(c)
    before.takes_sources = False
    assert [restarted.id for restarted in sources.lose(before, crashed=True)] == ["one"]
    assert sources.finish_moves(lambda node, id_: False) == []
    assert sorted([*target.added(), *c.added()]) == ["one"]


def test_a_crash_counts_against_a_source_and_a_lost_node_does_not():
    for crashed, state in ((False, "reconnecting"), (True, "failed")):
        sources = sources_of("one")
        nodes = [Node(str(number)) for number in range(7)]
        for node in nodes:
            sources.add_process(node)
        sources.place_waiting()
        for _ in range(6):
            owner = sources.owner("one")
            assert isinstance(owner, Node)
            report(sources, owner, 10)
            owner.takes_sources = False
            sources.lose(owner, crashed=crashed)
            if sources.states["one"].error:
                break
        assert sources.states["one"].state == state


def test_a_moving_source_is_read_by_a_single_node_at_a_time():
    sources = sources_of("one")
    a = Node("a")
    b = Node("b")
    for node in (a, b):
        sources.add_process(node)
    sources.place_waiting()
    before, after = (a, b) if a.added() else (b, a)
    report(sources, before, 50)
    sources.move("one", after)
    assert before.orders[-1] == messages.Remove("one")
    assert sources.finish_moves(lambda node, id_: True) == []
    assert after.added() == []
    assert [source.id for source in sources.finish_moves(lambda node, id_: False)] == ["one"]
    assert after.added() == ["one"]
    assert sources.owner("one") is after


def test_sources_can_be_removed_but_not_added_without_a_node():
    sources = sources_of("one", "two")
    with pytest.raises(ConfigError, match="no node of the cluster is ready"):
        sources.add(cameras("three")[0])
    sources.pause("one")
    sources.remove("two")
    assert list(sources.states) == ["one"]
    node = Node("a")
    sources.add_process(node)
    sources.place_waiting()
    (order,) = node.added_orders()
    assert (order.id, order.paused) == ("one", True)
    sources.remove("one")
    assert sources.removed.sources == 2


def test_a_source_that_a_node_reads_is_paused_there():
    sources = sources_of("one")
    node = Node("a")
    sources.add_process(node)
    sources.place_waiting()
    sources.pause("one")
    assert node.orders[-1] == messages.Pause("one", paused=True)
