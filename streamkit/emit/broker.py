# SPDX-License-Identifier: Apache-2.0
"""What each emitter declares of its broker or database, once: documentation, tests and benchmarks derive from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A broker or database to which an emitter sends.

    Attributes:
        product: what it is, for the table of emitters.
        acknowledged_by: what acknowledges a record.
        page: the page of docs/ that describes the emitter.
        example: an address; '' for an emitter without the option `url`.
        modules: the optional packages that the client imports. The extra of the stage's name installs them.
        id_in: where the receiver finds a record's id.
        repeats: what the receiver does with a record that is sent twice; '' if it keeps both.
    """

    product: str
    acknowledged_by: str
    page: str
    example: str = ""
    modules: tuple[str, ...] = ()
    id_in: str = "key `id` of the record"
    repeats: str = ""

    @property
    def scheme(self) -> str:
        """The scheme of the example, such as `mqtt`; '' without one."""
        return self.example.partition("://")[0]


def brokers(stages: Mapping[str, type[Any]]) -> dict[str, Broker]:
    """Return the brokers of the emitters among stages, by the stage's name."""
    declared = {name: getattr(kind, "broker", None) for name, kind in stages.items()}
    return {name: broker for name, broker in declared.items() if isinstance(broker, Broker)}


def broker_table(table: Mapping[str, Broker]) -> str:
    """Return the Markdown table of emitters."""
    head = ("stage", "sends to", "a record is acknowledged by", "its id is in", "repeats", "extra")
    rows: list[Sequence[str]] = [head, ["---"] * len(head)]
    for name, broker in sorted(table.items()):
        extra = f"`{name}`" if broker.modules else "none"
        repeats = broker.repeats or "discard them yourself"
        link = f"[`{name}`]({broker.page})"
        rows.append([link, broker.product, broker.acknowledged_by, broker.id_in, repeats, extra])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
