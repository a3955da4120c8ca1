# SPDX-License-Identifier: Apache-2.0
"""What each emitter declares of its broker or database, once: documentation, tests and benchmarks derive from it."""

from __future__ import annotations

from collections.abc import Mapping
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
        drops_repeats: whether a record that is sent twice is stored once.
    """

    product: str
    acknowledged_by: str
    page: str
    example: str = ""
    modules: tuple[str, ...] = ()
    drops_repeats: bool = False

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
    lines = ["| stage | sends to | a record is acknowledged by | extra |", "| --- | --- | --- | --- |"]
    for name, broker in sorted(table.items()):
        extra = f"`{name}`" if broker.modules else "none"
        lines.append(f"| [`{name}`]({broker.page}) | {broker.product} | {broker.acknowledged_by} | {extra} |")
    return "\n".join(lines)
