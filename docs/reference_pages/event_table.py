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
    stages = dict.fromkeys(one.stage for one in EVENT_KINDS)
    rows = (
        (f"[`{one.kind}`](#{one.stage}-{one.kind})", _stage(one, registry.names()), one.help) for one in EVENT_KINDS
    )
    yield table(("event", "emitted by", "when"), rows)
    yield "Sinks add keys to the events of other stages:\n"
    yield table(("key", "meaning"), ((f"`{key}`", text) for key, text in ADDED_KEYS.items()))
    yield "Stages of [plugins](../plugins.md) emit kinds of their own; their sentence is made from the data.\n"
    for stage in stages:
        yield f"## `{stage}`\n"
        for one in EVENT_KINDS:
            if one.stage == stage:
                yield from _kind(one)


def _stage(one: EventKind, stages: tuple[str, ...] | list[str]) -> str:
    return f"[`{one.stage}`](stages/{one.stage}.md)" if one.stage in stages else f"`{one.stage}`"


def _kind(one: EventKind) -> Iterator[str]:
    yield f"### `{one.kind}` {{ #{one.stage}-{one.kind} }}\n"
    yield f"{one.help}\n"
    keys = [(f"`{key}`", "always", text) for key, text in one.keys.items()]
    keys += [(f"`{key}`", "optional", text) for key, text in one.optional.items()]
    if keys:
        yield table(("key", "present", "meaning"), keys)
    yield f"> {sentence(one.event())}\n"
    event = {"kind": one.kind, "stage": one.stage, "track_id": one.track_id, "data": dict(one.example)}
    shown = {key: value for key, value in event.items() if value is not None}
    yield f"```json\n{json_text(shown)}\n```\n"
