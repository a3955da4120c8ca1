"""Every kind of event, with the keys of its data and its sentence."""

from __future__ import annotations

from collections.abc import Iterator

from reference_pages.markdown import json_text, table
from streamkit.core.event_kinds import ADDED_KEYS, EVENT_KINDS, EventKind
from streamkit.core.sentences import sentence
from streamkit.core.stage import default_registry


def page() -> Iterator[str]:
    """The parts of the page."""
    yield "# Events\n"
    yield (
        "An event says what happened on a frame. Emitters send it as a [record](records.md#event), rules and sinks "
        "select it as `STAGE.KIND`, and the page and mails show its sentence. `track_id` is set if the event concerns "
        "a track; the keys below are those of `data`.\n"
    )
    registry = default_registry()
    stages = dict.fromkeys(kind.stage for kind in EVENT_KINDS)
    rows = (
        (f"[`{kind.kind}`](#{kind.stage}-{kind.kind})", _stage(kind, registry.names()), kind.help)
        for kind in EVENT_KINDS
    )
    yield table(("event", "emitted by", "when"), rows)
    yield "Sinks add keys to the events of other stages:\n"
    yield table(("key", "meaning"), ((f"`{key}`", text) for key, text in ADDED_KEYS.items()))
    yield "Stages of [plugins](../plugins.md) emit kinds of their own; their sentence is made from the data.\n"
    for stage in stages:
        yield f"## `{stage}`\n"
        for kind in EVENT_KINDS:
            if kind.stage == stage:
                yield from _kind(kind)


def _stage(kind: EventKind, stages: tuple[str, ...] | list[str]) -> str:
    return f"[`{kind.stage}`](stages/{kind.stage}.md)" if kind.stage in stages else f"`{kind.stage}`"


def _kind(kind: EventKind) -> Iterator[str]:
    yield f"### `{kind.kind}` {{ #{kind.stage}-{kind.kind} }}\n"
    yield f"{kind.help}\n"
    keys = [(f"`{key}`", "always", text) for key, text in kind.keys.items()]
    keys += [(f"`{key}`", "optional", text) for key, text in kind.optional.items()]
    if keys:
        yield table(("key", "present", "meaning"), keys)
    yield f"> {sentence(kind.event())}\n"
    event = {"kind": kind.kind, "stage": kind.stage, "track_id": kind.track_id, "data": dict(kind.example)}
    shown = {key: setting for key, setting in event.items() if setting is not None}
    yield f"```json\n{json_text(shown)}\n```\n"
