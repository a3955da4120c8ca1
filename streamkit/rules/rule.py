# SPDX-License-Identifier: Apache-2.0
"""A rule's options and its compiled form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamkit.rules.language import TypeChecker, Typed, facts_of
from streamkit.rules.schedule import Schedule
from streamkit.rules.scope import Facts, Scope, is_per_object
from streamkit.rules.syntax import RuleError, parse
from streamkit.rules.vocabulary import DetectionVocabulary


class OptionError(ValueError):
    """An invalid option of a rule.

    Attributes:
        option: the option's name.
        error: the problem.
    """

    def __init__(self, option: str, error: RuleError) -> None:
        self.option, self.error = option, error
        super().__init__(f"{option}: {error}")


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
    when, for_s, per_object = _read("when", options["when"], above, facts, None)
    clear, clear_s = None, options.get("clear_for")
    if options.get("clear") is not None:
        text = options["clear"]
        clear, lasting_s, one_object = _read("clear", text, above, facts, per_object)
        if lasting_s and clear_s is not None:
            raise OptionError("clear", RuleError(text, text.index("for"), "write for here, or clear_for; not both"))
        if one_object and not per_object:
            reason = "clear refers to one object, and when to all of them; use count, present or absent here too"
            raise OptionError("clear", RuleError(text, _of_object(clear, facts), reason))
        clear_s = lasting_s or clear_s
    return Rule(
        name, when, clear, for_s, clear_s or 0.0, options.get("cooldown") or 0.0, options.get("schedule"), per_object
    )


def check_syntax(options: Mapping[str, Any]) -> None:
    """Check the syntax of a rule's conditions, without their names. Raises OptionError."""
    for option in ("when", "clear"):
        with _errors_of(option):
            if options.get(option) is not None:
                parse(options[option])


def _read(
    option: str, text: str, above: Scope, facts: Facts, per_object: bool | None
) -> tuple[Typed, float, bool]:  # fmt: skip
    """Return a condition, how long it must be true, and whether it refers to one object."""

    def condition(per_object: bool) -> Typed:
        vocabulary = DetectionVocabulary(above, facts, per_object=per_object)
        return TypeChecker(text, vocabulary).condition(tree, "a rule")

    with _errors_of(option):
        tree, for_s = parse(text)
        made = condition(bool(per_object))
        one_object = is_per_object(made, facts)
        if one_object and per_object is None:  # then `event` refers to the object too
            made = condition(True)
        if one_object and not above.tracked:
            reason = "this refers to one object, which needs tracks: put track above the rule, or count objects, as in "
            raise RuleError(text, _of_object(made, facts), reason + "count(score > 0.8) > 0")
    return made, for_s, one_object


@contextmanager
def _errors_of(option: str) -> Iterator[None]:
    try:
        yield
    except RuleError as error:
        raise OptionError(option, error) from None


def _of_object(made: Typed, facts: Facts) -> int:
    """Return the position of a condition's first reference to one object."""
    return min(one.at for one in facts_of(made) if one.key in facts.objects)
