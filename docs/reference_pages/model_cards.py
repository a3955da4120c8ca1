"""Every key of a model card, every network family, and the cards that ship."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from reference_pages.markdown import table
from streamkit.models.card import Card, list_cards, load_card
from streamkit.models.card_keys import card_key_table
from streamkit.models.families import FAMILIES
from streamkit.ops.letterbox import InputSpec

_EXAMPLE = """```yaml
task: detect
family: yolov8
file: best.onnx
input: {size: [640, 640], resize: letterbox, color: rgb, scale: 1/255}
labels: coco
score: 0.25
iou: 0.7
```
"""
_SIZES = (
    "N is the batch, A anchors, C classes, Q queries, K objects, P keypoints, M mask coefficients, D values, h and w a "
    "map, T places along a text. Outputs in `code` are found by name, the others by their shape. Scores are from 0 to "
    "1, after the sigmoid. *NMS* says whether non-max suppression follows, with the stage's `iou`. Families that were "
    "not compared with an export of their authors are *unverified*. For other outputs, write a [family as a "
    "plugin](../plugins.md).\n"
)


def page() -> Iterator[str]:
    """The parts of the page."""
    yield "# Model cards\n"
    yield (
        "A model card is a YAML file that says how a network is fed and read. [Models](../models.md) shows how to get "
        "one; `streamkit models new best.onnx` writes it.\n"
    )
    yield _EXAMPLE
    yield "## Keys\n"
    rows = (
        (f"`{key.name}`", key.type, "required" if key.required else _default(key.default), key.help)
        for key in card_key_table(_defaults())
    )
    yield table(("key", "type", "default", "meaning"), rows)
    yield "## Families\n"
    yield _SIZES
    yield table(("task", "family", "outputs", "values", "NMS"), _families())
    yield "## Cards that ship\n"
    yield "`streamkit models pull NAME` downloads the file of a card with an address. Read its license first.\n"
    yield table(("card", "task", "family", "classes", "license", "file"), map(_card, map(load_card, list_cards())))


def _defaults() -> dict[str, Any]:
    defaults = {key.name: key.default for key in dataclasses.fields(Card)}
    defaults |= {f"input.{key.name}": key.default for key in dataclasses.fields(InputSpec)}
    return {name: default for name, default in defaults.items() if default is not dataclasses.MISSING}


def _default(value: Any) -> str:
    if value in (None, "", ()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return (
        f"`{value[0]:g}`" if isinstance(value, tuple) else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
    )


def _families() -> Iterator[tuple[str, ...]]:
    tasks = list(dict.fromkeys(family.task for family in FAMILIES.values()))
    for family in sorted(FAMILIES.values(), key=lambda family: tasks.index(family.task)):
        for form in family.traits.formats:
            yield family.task, f"`{family.name}`", form.outputs, form.values, "yes" if family.suppress else "no"


def _card(card: Card) -> tuple[str, ...]:
    there = "is in the package" if card.file.is_file() and not card.url else "`models pull`" if card.url else card.note
    return f"`{card.name}`", card.task, f"`{card.family}`", str(len(card.labels) or ""), card.license, there
