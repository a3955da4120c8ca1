# SPDX-License-Identifier: Apache-2.0
"""Changes of options that all processes of a fleet must accept: one that a stage rejects is taken back everywhere."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamkit.config.plan import Graph, Node
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle


class SettingChanges:
    """Sends changes of options to all processes.

    Args:
        as_in_yaml: the options of each stage as in the YAML.
        workers: the processes; more may be added.
        changing: the lock of changes to the run.
    """

    def __init__(
        self, as_in_yaml: Mapping[str, Mapping[str, Any]], workers: Sequence[WorkerHandle], changing: threading.RLock
    ) -> None:
        self._as_in_yaml = as_in_yaml
        self._workers = workers
        self._changing = changing
        self._numbers = itertools.count(1)
        self._undo: dict[tuple[str, tuple[str, ...]], tuple[int, Callable[[], None]]] = {}

    def send(self, node: Node, names: Sequence[str], refused: Callable[[], None]) -> None:
        """Send the options of a node to all processes; `refused` restores them if a stage rejects them."""

        def refused_by_worker() -> None:
            refused()
            self._send(node, names, lambda: None)  # the other processes may have accepted it

        self._send(node, names, refused_by_worker)

    def _send(self, node: Node, names: Sequence[str], undo: Callable[[], None]) -> None:
        number = next(self._numbers)
        self._undo[node.id, tuple(names)] = number, undo
        for worker in self._workers:
            worker.send(messages.Set(number, node.id, {name: node.options[name] for name in names}))

    def restore(self, number: int) -> None:
        """Restore the options that a stage has rejected, unless they were changed again."""
        with self._changing:
            for key, (latest, undo) in list(self._undo.items()):
                if latest == number:
                    del self._undo[key]
                    undo()

    def since_yaml(self, graph: Graph) -> dict[str, dict[str, Any]]:
        """Options that were changed since the YAML was read, by stage."""
        changes_by_stage = {}
        for id_, before in self._as_in_yaml.items():
            node = graph.nodes[id_]
            names = node.type.spec.changeable
            changed = {name: node.options[name] for name in names if node.options.get(name) != before.get(name)}
            if changed:
                changes_by_stage[id_] = changed
        return changes_by_stage
