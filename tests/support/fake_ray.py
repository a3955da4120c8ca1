"""Ray as far as the head of a cluster calls it: nodes come and go at once, and actors are objects of this process."""

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streamkit.cluster.exchange import NodeOrders, NodeReport
from streamkit.runtime.ingest.source_status import LastFrame, SourceState
from streamkit.runtime.observe.report_merge import WorkerReport


class Answer:
    """What a call will return, as `ray.get` gives it; an exception is raised."""

    def __init__(self, content: Any) -> None:
        self.content = content


class Method:
    """A method of an actor."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def remote(self, *args: Any) -> Answer:
        try:
            return Answer(self._call(*args))
        except Exception as error:  # it is raised where the answer is read
            return Answer(error)


@dataclass
class FakeActor:
    """The actor of a node: it follows its orders, and reads each source as they say.

    Attributes:
        node: the name of its node.
        started_s: when it was started, in seconds of the monotonic clock.
        failure: why its pipeline has ended.
        rejects: why it rejects the pipeline's files, by a part of the YAML.
        files: the versions of the YAML that it was given.
        sources: the orders of the sources that it reads, by id.
        settings: the settings that it was given.
        killed: whether the head has killed it.
    """

    node: str
    started_s: float
    failure: str = ""
    rejects: dict[bytes, str | Exception] = field(default_factory=dict)
    files: list[bytes] = field(default_factory=list)
    sources: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    published: list[Any] = field(default_factory=list)
    busy: float | None = None
    killed: bool = False
    number: int = 0
    frames: int = 0

    def __post_init__(self) -> None:
        self.sync = Method(self._sync)
        self.stop = Method(lambda: None)
        self.apply = Method(self._apply)
        self.publish = Method(self.published.append)

    def _sync(self, orders: NodeOrders | None, after_event: int, after_message: int) -> bytes:
        if orders is not None:
            self.number = orders.number
            self.sources = dict(orders.sources)
            self.settings = dict(orders.settings)
        self.frames += 1
        last = LastFrame(self.frames - 1, self.frames / 10, time.monotonic())
        states = {
            id_: SourceState(state="running", started=True, frames=self.frames, last=last) for id_ in self.sources
        }
        numbers = {id_: order.number for id_, order in self.sources.items()}
        report = NodeReport(
            self.number,
            1234,
            not self.failure,
            self.failure,
            "cpu",
            self.busy,
            worker=WorkerReport(states=states, numbers=numbers),
        )
        return pickle.dumps(report)

    def _apply(self, files: dict[str, bytes], environment: dict[str, str]) -> str:
        text = files[next(reversed(files))]
        self.files.append(text)
        for part, reason in self.rejects.items():
            if part in text:
                if isinstance(reason, Exception):
                    raise reason
                return reason
        return ""


class ActorClass:
    """An actor's class: `remote` starts an actor, and returns it."""

    def __init__(self, start: Callable[..., FakeActor]) -> None:
        self.remote = start


class FastClock:
    """A clock that runs `speed` times as fast as the monotonic one, and is `ahead_s` ahead of that."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._start_s = time.monotonic()
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return self._start_s + (time.monotonic() - self._start_s) * self._speed + self.ahead_s


class FakeRay:
    """The package `ray`.

    Args:
        names: the nodes at first.
        clock: monotonic time in seconds.

    Attributes:
        actors: the actors, the first started one first.
        prepare: called with each new actor.
    """

    def __init__(self, *names: str, clock: Callable[[], float] = time.monotonic) -> None:
        import ray
        import ray.util.scheduling_strategies  # takes a while

        self.exceptions = ray.exceptions
        self.names = list(names)
        self.clock = clock
        self.actors: list[FakeActor] = []
        self.prepare: Callable[[FakeActor], None] = lambda actor: None

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": _id(name),
                "NodeName": name,
                "NodeManagerAddress": "127.0.0.1",
                "Alive": True,
                "Resources": {"CPU": 1.0},
            }
            for name in list(self.names)
        ]

    def remote(self, **resources: Any) -> Callable[[Any], Any]:
        return lambda kind: self

    def options(self, scheduling_strategy: Any) -> Any:
        def start(version: str, job: bytes) -> FakeActor:
            node = bytes.fromhex(scheduling_strategy.node_id).rstrip(b"\0").decode()
            actor = FakeActor(node, self.clock())
            self.prepare(actor)
            self.actors.append(actor)
            return actor

        return ActorClass(start)

    def wait(self, answers: list[Answer], num_returns: int, timeout: float) -> tuple[list[Answer], list[Answer]]:
        return answers[:num_returns], answers[num_returns:]

    def get(self, answer: Answer, timeout: float | None = None) -> Any:
        if isinstance(answer.content, Exception):
            raise answer.content
        return answer.content

    def kill(self, actor: FakeActor) -> None:
        actor.killed = True

    def shutdown(self) -> None:
        self.names.clear()

    def of(self, node: str) -> list[FakeActor]:
        """The actors of a node, the first started one first."""
        return [actor for actor in self.actors if actor.node == node]


def _id(name: str) -> str:
    """A node's id, of as many digits as Ray's."""
    return name.encode().hex().ljust(56, "0")
