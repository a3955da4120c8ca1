# SPDX-License-Identifier: Apache-2.0
"""Names of rules about detections, listed in docs/rule-language.md. Each becomes a fact of a frame or of an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamkit.core.text import did_you_mean, nearest
from streamkit.rules.code import Condition
from streamkit.rules.language import (
    BOOL,
    NUMBER,
    TEXT,
    UNKNOWN,
    Fact,
    RuleField,
    TypeChecker,
    Typed,
    Vocabulary,
    kind_of,
    words,
)
from streamkit.rules.list_file import InFile, ListFile, list_file_path
from streamkit.rules.scope import ALIASES, MEASURED, OBJECT, Area, Facts, Happening, Scope, ZoneScope, is_per_object
from streamkit.rules.syntax import Call, Literal, Name, Op

CALLS = ("count", "present", "absent", "occupancy", "event", "events", "in_zone", "dwell_s")
_FEW = 12  # names that a message lists
_ALL = Literal(True, 0)


class DetectionVocabulary(Vocabulary):
    """What rules about what is seen know.

    Args:
        above: capabilities of the stages above.
        facts: collects what is looked up; may be shared by many rules.
        per_object: whether `event` refers to the object under evaluation.
    """

    def __init__(self, above: Scope, facts: Facts, *, per_object: bool = False) -> None:
        super().__init__({}, "rules")
        self.above = above
        self.facts = facts
        self.per_object = per_object
        self._counting = False

    def name(self, name: Name, checker: TypeChecker) -> Typed:
        """Resolve a field of an object or of the frame, or a label: whether the object has that class."""
        text = ALIASES.get(str(name), str(name))
        if text == "source":
            self.facts.frames["source"] = "source"
            return Fact("source", RuleField(TEXT), name.at)
        if text in OBJECT:
            allowed_texts = {"label": self.above.labels, "detector": self.above.detectors or None}
            return self._object(text, OBJECT[text], name.at, allowed_texts.get(text), shown=str(name))
        if text in MEASURED:
            return self._measured(text, name, checker)
        if name.parts[0] == "frame" and len(name.parts) > 1:
            return self._classified(name, name.parts[1:], self.above.facts, checker)
        if name.parts[0] == "attributes" or name.parts[0] in self.above.attributes:
            parts = name.parts[1:] if name.parts[0] == "attributes" else name.parts
            return self._classified(name, parts, self.above.attributes, checker)
        if text in self.above.columns:
            return self._object(text, UNKNOWN, name.at)
        if len(name.parts) == 1 and (self.above.labels is None or text in self.above.labels):
            return self._label(text, name.at)
        raise checker.error(name.at, self._no_name(name))

    def foreign(self, name: Name) -> bool:
        """See `Vocabulary.foreign`."""
        return len(name.parts) == 1 and ALIASES.get(str(name), str(name)) not in MEASURED

    def _no_name(self, name: Name) -> str:
        text = str(name)
        labels = self.above.labels or ()
        if name.parts[0] in self.above.zones:
            label = (labels or ("person",))[0]
            return f"{text} is an area: write in_zone({name.written}), or count({label} in {name.written})"
        if name.parts[0] in self.above.events:
            return f"{name.parts[0]} is a stage: write event({text}) for whether it wrote an event"
        what = "there is neither a name nor a class" if len(name.parts) == 1 else "there is no name"
        measured = {measurement for measurement in (*MEASURED, *ALIASES) if self._there(measurement)}
        near = did_you_mean(text, sorted({*OBJECT, "class", "source", *self.above.columns, *labels} | measured))
        if labels and nearest(text, labels) is None:
            near += f"; classes here: {', '.join(labels[:_FEW])}{', ...' if len(labels) > _FEW else ''}"
        return f"{what} {text!r}{near}"

    def _there(self, name: str) -> bool:
        """Whether something is measured."""
        return self.above.ways is not None if name == "direction" else ALIASES.get(name, name) in self.above.columns

    def _measured(self, text: str, name: Name, checker: TypeChecker) -> Typed:
        if text == "depth" and "relative_depth" in self.above.columns and not self._there(text):
            raise checker.error(
                name.at, "depth is in meters, and the network above gives depth without a unit: write relative_depth"
            )
        if not self._there(text):
            raise checker.error(name.at, f"{name} is measured by a stage {MEASURED[text]}; put one above the rule")
        if text == "direction" and self.above.ways is not None:
            ways = tuple(self.above.ways.arrows)
            return self._object(text, TEXT, name.at, ways)
        return self._object(text, NUMBER, name.at, shown=str(name))

    def _classified(
        self, name: Name, parts: tuple[str, ...], attributes: Mapping[str, tuple[str, ...] | None], checker: TypeChecker
    ) -> Fact:
        """Resolve `attributes.color`, `color.label`, `attributes.color.score` of objects; `frame.weather` of frames."""
        of_frame = attributes is self.above.facts
        first = parts[0] if parts else ""
        if first not in attributes:
            whose, of = ("frames", "without") if of_frame else ("objects", "with")
            hint = f"; put a stage classify {of} of:, or ask, above the rule"
            raise checker.unknown(name.at, f"{whose} have no attribute {first!r}", first, attributes, hint)
        if len(parts) > 2 or parts[1:] not in ((), ("label",), ("score",)):
            raise checker.error(name.at, f"an attribute has a label and a score; write {first}.label, not {name}")
        part = parts[1] if len(parts) > 1 else "label"
        number = part == "score" or first in self.above.numbers
        key = f"{'frame' if of_frame else 'attributes'}.{first}" + (".score" if part == "score" else "")
        part = "number" if number and part == "label" else part
        if of_frame:
            self.facts.frames[key] = (first, part)
        else:
            self.facts.objects[key] = ("attributes", first, part)
        return Fact(key, RuleField(NUMBER) if number else RuleField(TEXT, attributes[first]), name.at, str(name))

    def _label(self, label: str, at: int) -> Op:
        return Op("==", (self._object("label", TEXT, at, self.above.labels), Literal(label, at)), at)

    def _object(
        self, key: str, kind: str, at: int, values: tuple[str, ...] | None = None, what: Any = None, shown: str = ""
    ) -> Fact:
        self.facts.objects[key] = key if what is None else what
        return Fact(key, RuleField(kind, values), at, shown)

    # ------------------------------------------------------------------------------------------------------- calls

    def call(self, call: Call, checker: TypeChecker) -> Typed:
        """Resolve one of `CALLS`."""
        if call.name == "file":
            raise checker.error(call.at, 'file is allowed after in only, as in plate in file("known.txt")')
        if call.name not in CALLS:
            raise checker.unknown(call.at, f"there is no function {call.name!r}", call.name, CALLS)
        if call.name in ("present", "absent"):
            op = ">" if call.name == "present" else "=="
            return Op(op, (self._count(call, checker), Literal(0.0, call.at)), call.at)
        typed: Typed = getattr(self, f"_{call.name}")(call, checker)
        return typed

    def _count(self, call: Call, checker: TypeChecker) -> Fact:
        if len(call.args) > 1:
            text = f"{call.name} takes one condition; join several by and, as in {call.name}(person and score > 0.5)"
            raise checker.error(call.args[1].at, text)
        if self._counting:
            raise checker.error(call.at, f"{call.name} is not allowed within another count; compare the counts outside")
        condition = self._of_objects(call, checker) if call.args else _ALL
        key = f"count({words(condition) if call.args else ''})"
        members = self._members(condition)
        if members is None:
            self.facts.counts[key] = condition
        else:
            self.facts.members[key] = members
        return Fact(key, RuleField(NUMBER), call.at, call.shown("count"))

    def _of_objects(self, call: Call, checker: TypeChecker) -> Typed:
        self._counting = True
        try:
            arg = call.args[0]
            if isinstance(arg, Literal) and isinstance(arg.value, str):  # a label in quotes
                condition: Typed = self._quoted_label(arg, checker)
            else:
                condition = checker.condition(arg, f"what {call.name} counts")
        finally:
            self._counting = False
        if not is_per_object(condition, self.facts):
            text = f"{call.name} needs a condition on objects, such as {call.name}(person)"
            raise checker.error(arg.at, f"{text}; {words(condition)} does not refer to objects")
        return condition

    def _quoted_label(self, literal: Literal, checker: TypeChecker) -> Op:
        label = str(literal.value)
        if self.above.labels is not None and label not in self.above.labels:
            near = did_you_mean(label, self.above.labels, all_if_few=len(self.above.labels) <= _FEW)
            raise checker.error(literal.at, f"no model above the rule has a class {label!r}{near}")
        return self._label(label, literal.at)

    def _members(self, condition: Typed) -> tuple[Area, str | None] | None:
        """Return the area and the class if a condition consists of these only."""
        parts = condition.args if isinstance(condition, Op) and condition.op == "&&" else (condition,)
        areas = [self.facts.objects[p.key] for p in parts if isinstance(p, Fact) and p.key.startswith("in_zone(")]
        equal = [p.args for p in parts if isinstance(p, Op) and p.op == "==" and isinstance(p.args[1], Literal)]
        labels = [str(right.value) for left, right in equal if isinstance(left, Fact) and left.key == "label"]
        if len(areas) != 1 or len(areas) + len(labels) != len(parts) or len(labels) > 1:
            return None
        return areas[0], labels[0] if labels else None

    def _occupancy(self, call: Call, checker: TypeChecker) -> Fact:
        area = self._area(self._single_argument(call, checker), checker)
        key = f"count(in_zone({area}))"
        self.facts.members[key] = area, None
        return Fact(key, RuleField(NUMBER), call.at, call.shown())

    def _in_zone(self, call: Call, checker: TypeChecker) -> Fact:
        return self._in_area(self._single_argument(call, checker), call.at, checker)

    def _in_area(self, arg: Any, at: int, checker: TypeChecker) -> Fact:
        area = self._area(arg, checker)
        return self._object(f"in_zone({area})", BOOL, at, what=area)

    def _dwell_s(self, call: Call, checker: TypeChecker) -> Fact:
        area = self._area(self._single_argument(call, checker), checker)
        return self._object(f"dwell_s({area})", NUMBER, call.at, what=(area,))

    def _single_argument(self, call: Call, checker: TypeChecker) -> Any:
        if len(call.args) != 1:
            raise checker.error(call.at, f"{call.name} takes one name, as in {call.name}(zone.door)")
        return call.args[0]

    def _area(self, arg: Any, checker: TypeChecker) -> Area:
        name = arg.value if isinstance(arg, Literal) else str(arg) if isinstance(arg, Name) else None
        if not isinstance(name, str):
            raise checker.error(arg.at, f"{words(arg)} is no area; write STAGE.AREA, such as zone.door")
        stage, _, area = name.partition(".")
        zone = self.above.zones.get(stage)
        if zone is None:
            what = f"{stage} is no stage zone" if stage in self.above.stages else f"there is no stage {stage!r}"
            raise checker.unknown(
                arg.at, f"{what} above the rule", stage, self.above.zones, "; put a stage zone above it"
            )
        if area not in zone.areas:
            what = f"{stage} has no area {area!r}" if area else f"which area of {stage}"
            raise checker.unknown(arg.at, what, name, [str(Area(stage, area_name)) for area_name in zone.areas])
        return Area(stage, area)

    def inside(self, op: Op, checker: TypeChecker) -> Typed | None:
        """Resolve `person in zone.door`: an object of that class, in that area."""
        left, right = op.args
        if isinstance(right, Call) and right.name == "file":
            in_file = _in_file(left, right, self.above.folder, checker)
            of_object = in_file.text.key in self.facts.objects
            (self.facts.objects if of_object else self.facts.frames)[in_file.key] = in_file
            return Op("in", (in_file.text, in_file), op.at)
        if not isinstance(right, (Name, Literal)):
            return None
        area = self._in_area(right, right.at, checker)
        if isinstance(left, Literal) and isinstance(left.value, str):
            inner: Typed = self._quoted_label(left, checker)
        else:
            inner = checker.condition(left, "the left side of in")
        self._watched(left, inner, self.facts.objects[area.key], checker)
        return Op("&&", (inner, area), op.at)

    def _watched(self, left: Any, condition: Typed, area: Area, checker: TypeChecker) -> None:
        zone: ZoneScope = self.above.zones[area.stage]
        label = (
            condition.args[1].value if isinstance(condition, Op) and isinstance(condition.args[-1], Literal) else None
        )
        if zone.labels and isinstance(label, str) and label not in zone.labels:
            text = f"{area.stage} watches {', '.join(zone.labels)} only, so no {label} is ever in {area}"
            raise checker.error(left.at, f"{text}; add it to labels of {area.stage}")

    # ------------------------------------------------------------------------------------------------------ events

    def _events(self, call: Call, checker: TypeChecker) -> Fact:
        happening, key = self._happening(call, checker)
        self.facts.happened[key] = happening
        return Fact(key, RuleField(NUMBER), call.at, call.shown("events"))

    def _event(self, call: Call, checker: TypeChecker) -> Typed:
        if not self.per_object and not self._counting:
            return Op(">", (self._events(call, checker), Literal(0.0, call.at)), call.at)
        happening, key = self._happening(call, checker)
        return self._object(key.replace("events(", "event(", 1), BOOL, call.at, what=happening)

    def _happening(self, call: Call, checker: TypeChecker) -> tuple[Happening, str]:
        if not 1 <= len(call.args) <= 2:
            raise checker.error(call.at, f"{call.name} takes an event, and optionally a condition on its data")
        arg = call.args[0]
        event = str(arg.value) if isinstance(arg, Literal) else str(arg) if isinstance(arg, Name) else ""
        stage, _, kind = event.partition(".")
        kinds_by_stage = self.above.events
        names = [
            name
            for id_, kinds in kinds_by_stage.items()
            for name in ([f"{id_}.{event_kind}" for event_kind in kinds] or [id_])
        ]
        if stage not in kinds_by_stage:
            what = f"{stage} writes no events" if stage in self.above.stages else f"there is no stage {stage!r}"
            hint = "; put a stage that writes events above the rule"
            raise checker.unknown(arg.at, f"{what} above the rule", event, names, hint)
        if kind and kinds_by_stage[stage] and kind not in kinds_by_stage[stage]:
            stage_events = [f"{stage}.{event_kind}" for event_kind in kinds_by_stage[stage]]
            raise checker.unknown(arg.at, f"{stage} writes no event {kind!r}", event, stage_events)
        if len(call.args) == 1:
            return Happening(stage, kind or None), f"events({event})"
        where = TypeChecker(checker.text, _Data(self.above.folder)).condition(
            call.args[1], "the condition on an event's data"
        )
        return Happening(stage, kind or None, Condition(where)), f"events({event}, {words(where)})"


class _Data(Vocabulary):
    """The names of an event's data: any name is accepted."""

    def __init__(self, folder: Path) -> None:
        super().__init__({}, "events")
        self.folder = folder

    def name(self, name: Name, checker: TypeChecker) -> Typed:
        """Accept any name; its kind is that of the value it is compared with."""
        return Fact(str(name), RuleField(UNKNOWN), name.at)

    def inside(self, op: Op, checker: TypeChecker) -> Typed | None:
        """Resolve `text in file("known.txt")`."""
        left, right = op.args
        if not (isinstance(right, Call) and right.name == "file"):
            return None
        in_file = _in_file(left, right, self.folder, checker)
        return Op("in", (in_file.text, in_file), op.at)


def _in_file(left: Any, call: Call, folder: Path, checker: TypeChecker) -> InFile:
    """Resolve whether a text is in a file: beside the YAML if it is there, else in the working directory."""
    text_fact = checker.of(left)
    if not isinstance(text_fact, Fact) or kind_of(text_fact) not in (TEXT, UNKNOWN):
        text = f"only a name that stands for a text can be in a file, such as plate; {words(left)} is none"
        raise checker.error(left.at, text)
    path = call.args[0] if len(call.args) == 1 else None
    if not isinstance(path, Literal) or not isinstance(path.value, str):
        raise checker.error(call.at, 'file takes the path of a text file in quotes, as in plate in file("known.txt")')
    try:
        file = ListFile(list_file_path(path.value, folder))
    except ValueError as error:
        raise checker.error(path.at, f"{error}; write one text per line into it") from None
    of_text = replace(text_fact, field=replace(text_fact.field, kind=TEXT))
    return InFile(f"{text_fact.key} in {words(call)}", RuleField(BOOL), call.at, words(call), of_text, file)
