"""Records that a broker never takes: what makes each so, and what the emitter does with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from support.place import Place


class Poison(NamedTuple):
    """A record that a place never takes.

    Attributes:
        counter: what the emitter counts, `POISON` or `REFUSED` of `streamkit.emit.sender`.
        why: a part of the reason in the dead letter.
        fields: further fields of the record.
        topic, key: the record's, if it must differ from the others'.
        prepare: makes the place reject it.
        name: tells several of one place apart.
    """

    counter: str
    why: str
    fields: Mapping[str, Any] = {}
    topic: bytes = b""
    key: bytes = b""
    prepare: Callable[[Place], None] = lambda place: None
    name: str = ""
