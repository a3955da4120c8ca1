"""The head's loop: when nodes start, get sources and edits, and what happens when one of them fails. No Ray runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.cameras import until
from support.fake_ray import FakeActor, FakeRay, FastClock, Method
from support.messages import collect
from support.packages import require

from streamkit.cluster.cluster_run import ClusterRun
from streamkit.cluster.exchange import LOST_S, NodeJob
from streamkit.cluster.ray_nodes import NodeHandle, RayNode
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_source, read_text
from streamkit.config.plan import Graph
from streamkit.core.errors import ConfigError
from streamkit.runtime.preview.gallery import Gallery

require("ray")

SPEED = 20.0
IDS = ("north", "east", "south", "west")
SOURCES = "".join(f"  {id_}: rtsp://127.0.0.1:9/{id_}\n" for id_ in IDS)
TEXT = f"sources:\n{SOURCES}stages:\n  detect: {{model: demo}}\n  jsonl: {{path: x.jsonl}}\n"


def graph_of(text: str = TEXT) -> Graph:
    return build(read_text(text))


class Cluster:
    """A run on nodes that a test controls.

    Attributes:
        text: the YAML that the next edit rolls out.
        logged: what was logged.
    """

    def __init__(
        self, *names: str, prepare: Callable[[FakeActor], None] = lambda actor: None, speed: float = SPEED
    ) -> None:
        self.clock = FastClock(speed)
        self.ray = FakeRay(*names, clock=self.clock)
        self.ray.prepare = prepare
        self.text = TEXT
        self.logged = collect()
        job = NodeJob("", Path("unused"), self.files(), "p.yaml", {}, "", "", False, "1d", "1GB")
        self.start_s = self.clock()
        self.run = ClusterRun(graph_of(), self.ray, job, self.files, Gallery(), lambda node: 0, self.clock)

    def files(self) -> dict[str, bytes]:
        return {"p.yaml": self.text.encode()}

    def reads(self) -> dict[str, list[str]]:
        """The sources that each node reads, by its last actor."""
        return {name: sorted(self.ray.of(name)[-1].sources) for name in self.ray.names if self.ray.of(name)}

    def shared_out(self) -> bool:
        return sorted(id_ for ids in self.reads().values() for id_ in ids) == sorted(self.run.states)


@contextmanager
def running(*names: str, **options: Any) -> Iterator[Cluster]:
    cluster = Cluster(*names, **options)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(cluster.run.run()), daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        cluster.run.stop()
        thread.join(30)
    assert codes == [130]


def test_sources_are_assigned_after_the_lease_of_an_earlier_head():
    with running("a", "b", speed=1.0) as cluster:
        until(lambda: len(cluster.run.ready_nodes()) == 2)
        until(lambda: sum(actor.frames for actor in cluster.ray.actors) > 4)  # each has reported again
        sources = [actor.sources for actor in cluster.ray.actors]
        assert sources == [{}, {}] or cluster.clock() - cluster.start_s > LOST_S
        cluster.clock.ahead_s = LOST_S
        until(cluster.shared_out)
        assert sorted(map(len, cluster.reads().values())) == [2, 2]
    assert all(actor.killed for actor in cluster.ray.actors)


def test_a_node_that_never_gets_ready_delays_sources_briefly():
    import ray

    def is_stuck(*_: Any) -> bytes:
        raise ray.exceptions.ActorUnavailableError("it starts", None)

    def prepare(actor: FakeActor) -> None:
        if actor.node == "b":
            actor.sync = Method(is_stuck)

    with running("a", "b", prepare=prepare) as cluster:
        until(cluster.shared_out)
        assert cluster.reads() == {"a": sorted(IDS), "b": []}


def test_sources_of_a_silent_node_are_freed_after_its_lease():
    node = NodeHandle(RayNode("1", "a", "127.0.0.1", 0), None, "", 1, 0, lambda: 100.0, heard_s=95.0)
    node.end("does not answer", crashed=False)
    assert node.free_at_s == 95.0 + LOST_S


def test_a_failing_node_restarts_with_growing_delays():
    def fails(actor: FakeActor) -> None:
        actor.failure = "the disk is full"

    with running("a", prepare=fails) as cluster:
        until(lambda: len(cluster.ray.actors) == 5)
        assert cluster.run.lost_nodes() == ["node a has ended: the disk is full"]
        assert not cluster.run.ready
    started_s = [actor.started_s for actor in cluster.ray.actors]
    pauses_s = [later - earlier for earlier, later in pairwise(started_s)]
    assert all(pause_s >= expected_s for pause_s, expected_s in zip(pauses_s, (2, 4, 8, 16), strict=True)), pauses_s
    assert pauses_s[3] < 32
    assert cluster.logged.count("node a has ended: the disk is full") >= 4


def test_a_node_that_ran_restarts_after_a_short_delay():
    with running("a") as cluster:
        for count in range(1, 4):
            until(lambda count=count: len(cluster.ray.actors) == count and cluster.run.ready_nodes())
            until(cluster.shared_out)
            cluster.ray.actors[-1].failure = "a driver crashed"
        until(lambda: len(cluster.ray.actors) == 4)
    started_s = [actor.started_s for actor in cluster.ray.actors]
    assert all(later - earlier >= 2 for earlier, later in pairwise(started_s))


def test_sources_of_a_failed_node_move_once():
    lost_nodes: set[str] = set()

    def stays_lost(actor: FakeActor) -> None:
        if actor.node in lost_nodes:
            actor.failure = "it is lost"

    with running("a", "b", prepare=stays_lost) as cluster:
        until(cluster.shared_out)
        lost_nodes.add("b")
        moved = cluster.reads()["b"]
        numbers = {id_: cluster.ray.of("a")[0].sources.get(id_) for id_ in IDS}
        cluster.ray.of("b")[0].failure = "a driver crashed"
        until(lambda: cluster.reads()["a"] == sorted(IDS))
        (survivor,) = cluster.ray.of("a")
        until(lambda: len(survivor.published) == 2)
        assert sorted(event.source for event in survivor.published) == moved
        assert all(survivor.sources[id_].number == order.number for id_, order in numbers.items() if order is not None)
        after = {id_: survivor.sources[id_].after for id_ in moved}
        assert all(last is not None and last[0] > 0 for last in after.values())  # its indices continue
        numbers = {id_: survivor.sources[id_].number for id_ in IDS}
        moved_s = cluster.clock()
        until(lambda: cluster.clock() > moved_s + 2 * LOST_S)
        assert len(survivor.published) == 2
        assert {id_: survivor.sources[id_].number for id_ in IDS} == numbers


def test_an_edit_rejected_by_the_second_node_is_reverted_on_the_first():
    def rejects(actor: FakeActor) -> None:
        if actor.node == "b":
            actor.rejects[b"second"] = "there is no such device"

    with running("a", "b", prepare=rejects) as cluster:
        until(cluster.shared_out)
        before = cluster.text.encode()
        cluster.text = f"{TEXT}  second: {{stage: jsonl, path: y.jsonl}}\n"
        with pytest.raises(ConfigError, match=r"^node b: there is no such device$"):
            cluster.run.roll(graph_of(cluster.text), {})
        (first,) = cluster.ray.of("a")
        (second,) = cluster.ray.of("b")
        assert first.files == second.files == [cluster.text.encode(), before]
        assert "second" not in cluster.run.graph.nodes
        late = f"{TEXT}  third: {{stage: jsonl, path: z.jsonl}}\n"
        cluster.text = late
        cluster.run.roll(graph_of(late), {})
        assert first.files[-1] == second.files[-1] == late.encode()
        assert "third" in cluster.run.graph.nodes


def test_a_node_that_cannot_apply_an_edit_in_time_or_at_all_rejects_it():
    from ray.exceptions import GetTimeoutError, RayTaskError

    failure = RayTaskError("apply", "Traceback\nOSError: no space left on device", OSError("no space left on device"))

    def rejects(actor: FakeActor) -> None:
        actor.rejects |= {b"late": GetTimeoutError("late"), b"full": failure}

    with running("a", prepare=rejects) as cluster:
        until(cluster.shared_out)
        for name, reason in (("late", "its stages were not open within 900 s"), ("full", "no space left on device")):
            cluster.text = f"{TEXT}  {name}: {{stage: jsonl, path: y.jsonl}}\n"
            with pytest.raises(ConfigError, match=f"node a: .*{reason}"):
                cluster.run.roll(graph_of(cluster.text), {})
        assert cluster.run.graph.nodes.keys() == graph_of().nodes.keys()


def test_a_node_lost_during_an_edit_gets_it_after_its_restart():
    from ray.exceptions import RayActorError

    started: list[str] = []

    def dies(actor: FakeActor) -> None:
        if actor.node == "b" and "b" not in started:
            actor.rejects[b"second"] = RayActorError()
        started.append(actor.node)

    with running("a", "b", prepare=dies) as cluster:
        until(cluster.shared_out)
        cluster.text = f"{TEXT}  second: {{stage: jsonl, path: y.jsonl}}\n"
        cluster.run.roll(graph_of(cluster.text), {})
        assert "second" in cluster.run.graph.nodes
        until(lambda: started == ["a", "b", "b"] and len(cluster.run.ready_nodes()) == 2)
        assert any(text.startswith("node b was lost during an edit") for text in cluster.logged)


def test_settings_apply_to_all_nodes_and_to_new_nodes():
    with running("a") as cluster:
        until(cluster.shared_out)
        cluster.run.set("detect", {"min_score": 0.6})
        until(lambda: cluster.ray.of("a")[0].settings == {"detect.postprocess": {"min_score": 0.6}})
        cluster.ray.names.append("b")
        until(lambda: len(cluster.ray.of("b")) == 1 and cluster.ray.of("b")[0].settings)
        assert cluster.ray.of("b")[0].settings == {"detect.postprocess": {"min_score": 0.6}}


def test_without_a_node_a_source_is_neither_added_nor_changed():
    with running() as cluster:
        (other,) = read_source(cluster.run.graph.config, "yard", "rtsp://127.0.0.1:9/yard")
        (changed,) = read_source(cluster.run.graph.config, "north", "rtsp://127.0.0.1:9/other")
        for call, source in ((cluster.run.add, other), (cluster.run.change, changed)):
            with pytest.raises(ConfigError, match="no node of the cluster is ready"):
                call(source)
        assert [source.id for source in cluster.run.graph.sources] == list(cluster.run.states) == list(IDS)
        assert cluster.run.addresses["north"] == "rtsp://127.0.0.1:9/north"
