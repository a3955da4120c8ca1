# SPDX-License-Identifier: Apache-2.0
"""Evaluation and debouncing of many rules at once, in plain Python; `kernels` compiles it with Numba.

A condition is true (1), false (0) or unknown (0.5): `and` is the minimum, `or` the maximum, `not` 1 minus the value. An
unknown number is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from streamkit.tracking.jit import cached

EQ, NE, LT, LE, GT, GE = range(6)
OBJECT_AND_CONST, FRAME_AND_CONST = 6, 12  # and one of the six above: a fact compared with a constant
CONST, OBJECT, FRAME, AND, OR, NOT, SAME, OTHER, ADD, SUB, MUL, DIV, NEG, CHOOSE = range(18, 32)
SKIP_IF_FALSE, SKIP_IF_TRUE, END = range(32, 35)

NOTHING, RAISED, CLEARED, CLOSED = range(4)
"""Outcome of a step for a rule: no change, raised, cleared, cleared because its schedule ended."""


def _compare(op: int, a: float, b: float) -> float:
    """Compare two numbers."""
    if math.isnan(a) or math.isnan(b):
        return 0.5
    if op == GT:
        true = a > b
    elif op == LT:
        true = a < b
    elif op == EQ:
        true = a == b
    elif op == GE:
        true = a >= b
    elif op == LE:
        true = a <= b
    else:
        true = a != b
    return 1.0 if true else 0.0


def _combine(op: int, a: float, b: float) -> float:
    """Combine two truths or numbers by an operator that is no comparison of numbers."""
    if op == AND:
        return min(a, b)
    if op == OR:
        return max(a, b)
    if op == ADD:
        return a + b
    if op == SUB:
        return a - b
    if op == MUL:
        return a * b
    if op == DIV:
        return a / b if b != 0.0 else math.nan
    if a == 0.5 or b == 0.5:
        return 0.5
    return 1.0 if (a == b) == (op == SAME) else 0.0


def value(
    ops: Any, constants: Any, at: int, objects: Any, row: int, frames: Any, frame: int, stack: Any
) -> float:  # fmt: skip
    """Return the value of the condition that starts at `at`, for one row of `objects` and one of `frames`."""
    top = -1
    while True:
        op, arg = ops[at, 0], ops[at, 1]
        if op < CONST:
            if op >= FRAME_AND_CONST:
                top += 1
                stack[top] = _compare(op - FRAME_AND_CONST, frames[frame, arg], constants[ops[at, 2]])
            elif op >= OBJECT_AND_CONST:
                top += 1
                stack[top] = _compare(op - OBJECT_AND_CONST, objects[row, arg], constants[ops[at, 2]])
            else:
                top -= 1
                stack[top] = _compare(op, stack[top], stack[top + 1])
        elif op == END:
            return float(stack[0])
        elif op == SKIP_IF_FALSE:
            if stack[top] == 0.0:
                at = arg - 1
        elif op == SKIP_IF_TRUE:
            if stack[top] == 1.0:
                at = arg - 1
        elif op == CONST:
            top += 1
            stack[top] = constants[arg]
        elif op == FRAME:
            top += 1
            stack[top] = frames[frame, arg]
        elif op == OBJECT:
            top += 1
            stack[top] = objects[row, arg]
        elif op == NOT:
            stack[top] = 1.0 - stack[top]
        elif op == NEG:
            stack[top] = -stack[top]
        elif op == CHOOSE:
            top -= 2
            if stack[top] == 1.0:
                stack[top] = stack[top + 1]
            elif stack[top] == 0.0:
                stack[top] = stack[top + 2]
            else:
                stack[top] = 0.5 if arg else math.nan
        else:
            top -= 1
            stack[top] = _combine(op, stack[top], stack[top + 1])
        at += 1


def count(
    ops: Any, constants: Any, begins: Any, objects: Any, owner: Any, frames: Any, stack: Any, into: Any, columns: Any
) -> None:  # fmt: skip
    """Count for each frame and condition the objects for which the condition is true.

    Args:
        ops: (o, 3) int64, an operation and its two arguments per row.
        constants: (c,) float64.
        begins: (conditions,) int64, start of each condition.
        objects: (n, k) float64, the objects' facts.
        owner: (n,) int64, each object's frame; below 0 for one that does not count.
        frames: (f, a) float64, the frames' facts.
        stack: scratch space for the deepest condition.
        into: (f, a) float64 that the counts are added to, in `columns`.
        columns: (conditions,) int64.
    """
    for row in range(len(owner)):
        frame = owner[row]
        if frame < 0:
            continue
        for i in range(len(begins)):
            if value(ops, constants, begins[i], objects, row, frames, frame, stack) == 1.0:
                into[frame, columns[i]] += 1.0


def advance(
    ops: Any, constants: Any, when: Any, clear: Any, durations: Any, schedule: Any, objects: Any, owner: Any,
    state: Any, frames: Any, now_s: Any, broken: Any, opened: Any, raised: Any, times: Any, stack: Any, changes: Any,
) -> int:  # fmt: skip
    """Advance every rule by one step, for every row.

    Args:
        ops: (o, 3) int64, an operation and its two arguments per row.
        constants: (c,) float64.
        when: (r,) int64, start of each rule's condition.
        clear: (r,) int64, start of its clear condition; below 0 if it is cleared when `when` is no longer true.
        durations: (r, 3) float64, how long until it is raised, until it is cleared, and the cooldown after that.
        schedule: (r,) int64, the column of `opened`, below 0 for always.
        objects: (n, k) float64, facts of the rows.
        owner: (n,) int64, each row's frame.
        state: (n,) int64, each row's place in `raised` and `times`; below 0 for a row to skip.
        frames: (f, a) float64, facts of the frames.
        now_s: (f,) float64.
        broken: (n,) bool, reset the row's durations.
        opened: (f, s) bool, whether each schedule is open.
        raised: (places, r) bool.
        times: (places, r, 3) float64, start of the current condition, last time raised, last time cleared.
        stack: scratch space for the deepest condition.
        changes: (n x r, 3) int64, receives row, rule and outcome.

    Returns:
        The number of rows written to `changes`.
    """
    n = 0
    for row in range(len(owner)):
        place, frame = state[row], owner[row]
        if place < 0:
            continue
        now = now_s[frame]
        for rule in range(len(when)):
            if broken[row]:
                times[place, rule, 0] = math.nan
            became = NOTHING
            counts, up = schedule[rule] < 0 or opened[frame, schedule[rule]], raised[place, rule]
            if up and not counts:
                became = CLOSED
            else:
                lasts = counts
                if counts and not (up and clear[rule] >= 0):
                    true = value(ops, constants, when[rule], objects, row, frames, frame, stack) == 1.0
                    lasts = true != up
                if lasts and clear[rule] >= 0:
                    over = value(ops, constants, clear[rule], objects, row, frames, frame, stack) == 1.0
                    lasts = over == up
                if not lasts:
                    times[place, rule, 0] = math.nan
                else:
                    if math.isnan(times[place, rule, 0]):
                        times[place, rule, 0] = now
                    cool = up or now - times[place, rule, 2] >= durations[rule, 2]
                    if cool and now - times[place, rule, 0] >= durations[rule, 1 if up else 0]:
                        became = CLEARED if up else RAISED
            if became != NOTHING:
                changes[n, 0], changes[n, 1], changes[n, 2] = row, rule, became
                n += 1
    return n


@lru_cache(maxsize=1)
def kernels() -> tuple[Callable[..., None], Callable[..., int]]:
    """Return `count` and `advance`: compiled, or as they are if Numba is not installed."""
    try:
        from numba.extending import register_jitable
    except ImportError:
        return count, advance
    for inner in (_compare, _combine, value):
        register_jitable(nogil=True, error_model="numpy")(inner)
    return cached(count), cached(advance)
