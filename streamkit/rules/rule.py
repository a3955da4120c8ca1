# SPDX-License-Identifier: Apache-2.0
"""A rule's options and its compiled form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamkit.rules.language import TypeChecker, Typed, facts_of
from streamkit.rules.schedule import Schedule
from streamkit.rules.scope import Facts, Scope, is_per_object
from streamkit.rules.syntax import RuleError, parse
from streamkit.rules.vocabulary import DetectionVocabulary


class OptionError(ValueError):
    """Invalid options of a rule.

    Attributes:
        errors: each problem, with the option's name.
    """

    def __init__(self, errors: Sequence[tuple[str, RuleError]]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(f"{option}: {error}" for option, error in self.errors))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with typed conditions.

    Attributes:
        name: its name.
        when: its condition.
        clear: the condition that clears it; None if it is cleared when `when` is no longer true.
        for_s: how long `when` must be true at every step before it is raised, in seconds.
        clear_s: how long the clear condition must be true before it is cleared.
        cooldown_s: how long after it was cleared it is not raised again.
        schedule: when it is active; None for always. Outside it nothing is raised, and a raised rule is cleared.
        per_object: whether it refers to one object, so that it is raised for each object.
    """

    name: str
    when: Typed
    clear: Typed | None = None
    for_s: float = 0.0
    clear_s: float = 0.0
    cooldown_s: float = 0.0
    schedule: Schedule | None = None
    per_object: bool = False


def make_rule(name: str, options: Mapping[str, Any], above: Scope, facts: Facts) -> Rule:
    """Make a rule from its options: `when`, `clear`, `clear_for`, `cooldown`, `schedule`.

    Args:
        name: its name.
        options: as in the YAML; missing options may be absent or None.
        above: what it may refer to.
        facts: collects what it looks up.

    Raises:
        OptionError: a condition is invalid.
        MissingPackage: cel-python is not installed.
    """
    errors: list[tuple[str, RuleError]] = []
    when = clear = None
    clear_s = options.get("clear_for")
    with _errors_of("when", errors):
        when = _read(options["when"], above, facts, None)
    if options.get("clear") is not None:
        with _errors_of("clear", errors):
            clear = _read(options["clear"], above, facts, None if when is None else when.per_object)
            _check_clear(options["clear"], clear, when, clear_s, facts)
            clear_s = clear.for_s or clear_s
    if errors or when is None:
        raise OptionError(errors)
    return Rule(
        name,
        when.tree,
        None if clear is None else clear.tree,
        when.for_s,
        clear_s or 0.0,
        options.get("cooldown") or 0.0,
        options.get("schedule"),
        when.per_object,
    )


def _check_clear(text: str, clear: _Condition, when: _Condition | None, clear_s: float | None, facts: Facts) -> None:
    """Check a clear condition against the rule's other options. Raises RuleError."""
    if clear.for_s and clear_s is not None:
        raise RuleError(text, text.index("for"), "write for here, or clear_for; not both")
    if when is not None and clear.per_object and not when.per_object:
        reason = "clear refers to one object, and when to all of them; use count, present or absent here too"
        raise RuleError(text, _of_object(clear.tree, facts), reason)


def check_syntax(options: Mapping[str, Any]) -> None:
    """Check the syntax of a rule's conditions, without their names. Raises OptionError."""
    errors: list[tuple[str, RuleError]] = []
    for option in ("when", "clear"):
        with _errors_of(option, errors):
            if options.get(option) is not None:
                parse(options[option])
    if errors:
        raise OptionError(errors)


class _Condition(NamedTuple):
    """A typed condition, how long it must be true, and whether it refers to one object."""

    tree: Typed
    for_s: float
    per_object: bool


def _read(text: str, above: Scope, facts: Facts, per_object: bool | None) -> _Condition:
    """Read a condition; `per_object` says whether `event` refers to the object, None where the condition decides.

    Raises:
        RuleError: it is invalid.
    """
    syntax, for_s = parse(text)

    def condition(per_object: bool) -> Typed:
        vocabulary = DetectionVocabulary(above, facts, per_object=per_object)
        return TypeChecker(text, vocabulary).condition(syntax, "a rule")

    tree = condition(bool(per_object))
    is_about_object = is_per_object(tree, facts)
    if is_about_object and per_object is None:  # then `event` refers to the object too
        tree = condition(True)
    if is_about_object and not above.tracked:
        reason = "this refers to one object, which needs tracks: put track above the rule, or count objects, as in "
        raise RuleError(text, _of_object(tree, facts), reason + "count(score > 0.8) > 0")
    return _Condition(tree, for_s, is_about_object)


@contextmanager
def _errors_of(option: str, errors: list[tuple[str, RuleError]]) -> Iterator[None]:
    """Add the errors of an option to `errors`."""
    try:
        yield
    except RuleError as error:
        errors += [(option, problem) for problem in error.all]


def _of_object(tree: Typed, facts: Facts) -> int:
    """Return the position of a condition's first reference to one object."""
    return min(fact.at for fact in facts_of(tree) if fact.key in facts.objects)
