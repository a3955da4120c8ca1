"""Lookup of a family's outputs among a network's, with errors for mismatches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def rank(value: Any) -> int:
    """Return the number of dimensions of a shape or of an array."""
    return len(getattr(value, "shape", value))


def only(family: str, outputs: Mapping[str, T], dimensions: int, layout: str) -> tuple[str, T]:
    """Return the only output with that many dimensions: its name, and its shape or array.

    Raises:
        ValueError: there is none, or more than one.
    """
    fitting = [(name, value) for name, value in outputs.items() if rank(value) == dimensions]
    if len(fitting) != 1:
        raise ValueError(
            f"family {family} reads one output of {dimensions} dimensions, {layout}; the network has {listed(outputs)}"
        )
    return fitting[0]


def named(family: str, outputs: Mapping[str, T], names: Sequence[str]) -> list[T]:
    """Return the outputs of these names.

    Raises:
        ValueError: one is missing.
    """
    missing = [name for name in names if name not in outputs]
    if missing:
        raise ValueError(
            f"family {family} reads the outputs {', '.join(names)}; the network lacks {', '.join(missing)} "
            f"and has {listed(outputs)}"
        )
    return [outputs[name] for name in names]


def fits(size: Any, expected: int) -> bool:
    """Whether a dimension has that size, or is open."""
    return not isinstance(size, int) or size < 1 or size == expected


def check_size(family: str, output: str, shape: Sequence[Any], axis: int, expected: int, what: str) -> None:
    """Check that a dimension is open or has the expected size; raise ValueError."""
    if len(shape) <= axis or not fits(shape[axis], expected):
        raise ValueError(
            f"family {family}: dimension {axis} of output {output!r} must be {expected} ({what}), "
            f"its shape is {tuple(shape)}"
        )


def check_classes(family: str, output: str, shape: Sequence[Any], axis: int, others: int, classes: int) -> None:
    """Check that a dimension has `others` values and a score for each class of the label list; raise ValueError."""
    size = shape[axis]
    if fits(size, others + classes):
        return
    beside = f" beside {others} other values" if others else ""
    wants = f"it is trained on {size - others}" if size > others else "it is no output of this family"
    raise ValueError(
        f"family {family}: output {output!r} of shape {tuple(shape)} holds {max(size - others, 0)} classes{beside}, "
        f"and the label list has {classes}; {wants}: give the card the labels or the family of this network"
    )


def listed(outputs: Mapping[str, Any]) -> str:
    """Return the outputs and their shapes as text for a message."""
    shapes = {name: tuple(getattr(value, "shape", value)) for name, value in outputs.items()}
    return ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items()) or "no outputs"
