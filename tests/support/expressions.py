"""Random conditions in the languages of streamkit and CEL, and the evaluation by cel-python."""

import sys
from functools import lru_cache

import celpy
from celpy.celtypes import BoolType, DoubleType, StringType
from hypothesis import strategies as st

TEXTS = ("car", "person", "dog")
_MAKE = {bool: BoolType, str: StringType, int: DoubleType, float: DoubleType}


@lru_cache(maxsize=1024)
def program(text):
    limit = sys.getrecursionlimit()
    try:
        environment = celpy.Environment()  # which sets a limit of its own
        return environment.program(environment.compile(text))
    finally:
        sys.setrecursionlimit(limit)


def cel(text, facts):
    """Return True, False, or None if CEL reports an error because of an unknown value."""
    present_facts = {name: _MAKE[type(value)](value) for name, value in facts.items() if value is not None}
    try:
        return bool(program(text).evaluate(present_facts))
    except celpy.CELEvalError:
        return None


def numbers(names):
    """Return a strategy of numbers as (streamkit, CEL); `names` are the facts' names in both."""
    leaves = st.sampled_from(names) | st.integers(0, 6).map(lambda n: (str(n), f"{n}.0"))

    def larger(inner):
        both = st.tuples(inner, st.sampled_from("+-*"), inner)
        pair = both.map(lambda v: tuple(f"({v[0][i]} {v[1]} {v[2][i]})" for i in (0, 1)))
        return pair | inner.map(lambda v: (f"-({v[0]})", f"-({v[1]})"))

    return st.recursive(leaves, larger, max_leaves=3)


def conditions(number_names, text_names, truth_names, leaves=5):
    """Return a strategy of conditions as (streamkit, CEL)."""
    compared = st.tuples(
        numbers(number_names), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers(number_names)
    )
    parts = [compared.map(lambda v: tuple(f"{v[0][i]} {v[1]} {v[2][i]}" for i in (0, 1)))]
    if text_names:
        comparison = st.tuples(st.sampled_from(text_names), st.sampled_from(["==", "!="]), st.sampled_from(TEXTS))
        parts.append(comparison.map(lambda v: tuple(f'{v[0][i]} {v[1]} "{v[2]}"' for i in (0, 1))))
        listed = st.tuples(st.sampled_from(text_names), st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))
        parts.append(listed.map(lambda v: tuple(f"{v[0][i]} in {v[1]}".replace("'", '"') for i in (0, 1))))
    if truth_names:
        parts.append(st.sampled_from(truth_names))

    def larger(inner):
        pairs = st.tuples(inner, st.sampled_from([("and", "&&"), ("or", "||"), ("&&", "&&"), ("||", "||")]), inner)
        chosen = st.tuples(inner, inner, inner)
        return st.one_of(
            pairs.map(lambda v: tuple(f"({v[0][i]}) {v[1][i]} ({v[2][i]})" for i in (0, 1))),
            inner.map(lambda v: (f"not ({v[0]})", f"!({v[1]})")),
            chosen.map(lambda v: tuple(f"(({v[0][i]}) ? ({v[1][i]}) : ({v[2][i]}))" for i in (0, 1))),
        )

    return st.recursive(st.one_of(parts), larger, max_leaves=leaves)


def same(names):
    return [(name, name) for name in names]
