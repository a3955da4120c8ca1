"""A Ray cluster on this machine: a head without work, and nodes of one core each, every one in a folder of its own.

What makes it small and dependable: little memory for objects, no dashboard, no autoscaler, no reports on its use, and
health checks that find a lost node in seconds. Each node keeps its files in a folder of its own, as on a machine of its
own: in a shared one they take away what others were sent. The folders' names are short, as those of sockets have to be.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_OBJECTS = 80 * 2**20
"""Bytes of memory for objects, a node; the least that Ray takes is 75 MiB."""
_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 4,
}


class RayNodes:
    """The cluster of the tests.

    Attributes:
        address: of its head.
        nodes: those that work, by name.
    """

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self._folder = folder
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": _OBJECTS,
                "include_dashboard": False,
                "no_monitor": True,
                "_system_config": _HEALTH,
            },
        )
        self.address = self._cluster.address
        self.nodes: dict[str, Any] = {}

    def add(self, name: str, core: int | None = None, cpus: int = 1) -> None:
        """Start a node, in a folder of its own, and kept on one core of the machine where that is named."""
        home = Path.cwd()
        allowed = os.sched_getaffinity(0)
        place = self._folder / name
        place.mkdir(exist_ok=True)
        os.chdir(place)
        os.sched_setaffinity(0, allowed if core is None else {sorted(allowed)[core % len(allowed)]})
        try:
            self.nodes[name] = self._cluster.add_node(
                num_cpus=cpus, object_store_memory=_OBJECTS, temp_dir=str(place), node_name=name
            )
        finally:
            os.sched_setaffinity(0, allowed)
            os.chdir(home)

    def workers(self, name: str) -> list[Any]:
        """The processes (`psutil.Process`) of a node in which workers of a run are."""
        import psutil

        raylet = psutil.Process(self.nodes[name].all_processes["raylet"][0].process.pid)
        return [process for process in raylet.children() if process.cmdline()[0].startswith("ray::RayWorker")]

    def lose(self, name: str) -> None:
        """Kill a node with SIGKILL; its workers go with it."""
        self._cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def close(self) -> None:
        """End all."""
        self._cluster.shutdown()


@contextlib.contextmanager
def _cluster() -> Iterator[RayNodes]:
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    before = dict(os.environ)
    os.environ |= {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    nodes = RayNodes(folder)
    try:
        nodes.add("a")
        nodes.add("b")
        yield nodes
    finally:
        nodes.close()
        os.environ.clear()
        os.environ.update(before)
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


@pytest.fixture(scope="session")
def ray_nodes(request: pytest.FixtureRequest) -> Iterator[RayNodes]:
    """A cluster with two nodes, `a` and `b`, that offer one core each. Who loses one puts it back.

    They run on any core: other tests slow down a node that is kept on one of two cores twenty times.
    """
    pytest.importorskip("ray", reason="needs the package ray: pip install -e '.[ray]'")
    with contextlib.ExitStack() as running:
        request.config.stash[_RUNNING] = running
        yield running.enter_context(_cluster())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End the cluster after the last test that uses it: its processes take a share of a core until then."""
    try:
        return (yield)
    finally:
        running = item.config.stash.get(_RUNNING, None)
        if running is not None and item is next(filter(_uses_cluster, reversed(item.session.items)), None):
            running.close()


def _uses_cluster(item: pytest.Item) -> bool:
    return "ray_nodes" in getattr(item, "fixturenames", ())


_RUNNING = pytest.StashKey[contextlib.ExitStack]()
