# SPDX-License-Identifier: Apache-2.0
"""A card derived from an ONNX file, for `model: best.onnx` without a card.

What is known of a network is collected from, in this order: the exporter's metadata in the file (`metadata_facts`), the
files of Hugging Face, Roboflow and PaddleDetection and lists of labels beside it (`beside_facts`), and the shapes of
its inputs and outputs (`shape_facts`). A network line's own input, such as YOLOX's, completes it. Sources that
contradict each other and choices that remain open are errors: nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from streamkit.core.errors import ModelError, Problem
from streamkit.core.text import did_you_mean, printable
from streamkit.core.yaml_tree import tree
from streamkit.models.beside_facts import from_hugging_face, from_paddle, from_roboflow, label_lists, read_labels
from streamkit.models.card import AUTO, DEFAULT_CARD, Card, card_from, find_card, load_card
from streamkit.models.card_keys import WITHOUT_LABELS, CardKeys, InputKeys
from streamkit.models.dynamic_batch import for_batches
from streamkit.models.facts import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    CardFact,
    CardFacts,
    Underivable,
    contradiction,
    need,
    shown,
)
from streamkit.models.families import FAMILIES, Family
from streamkit.models.families.base import ReadOptions, listed, unclaimed
from streamkit.models.families.plugin import PluginFamily
from streamkit.models.labels import LABEL_LISTS
from streamkit.models.metadata_facts import from_metadata
from streamkit.models.network_file import ModelInfo, TensorInfo, inspect
from streamkit.models.pull import pull
from streamkit.models.run_facts import doubts, values_of, with_sizes
from streamkit.models.shape_facts import Candidate, candidates

_ORDER = [key for key in CardKeys.__annotations__ if key != "input"]
_INPUT = [f"input.{key}" for key in InputKeys.__annotations__]
_MUST = ("input.resize", "input.color", "input.scale", "input.mean", "input.std")
"""What a frame must be turned into is never left to a card's defaults."""
_WIDTH = 110
_WRITE_FAMILY = "write a family in a plugin"
_OTHER_FORMATS = (".pt", ".pth", ".engine", ".tflite", ".torchscript", ".safetensors", ".mlpackage", ".pb")


# ------------------------------------------------------------------------------------------------------------ result


@dataclass(frozen=True)
class DerivedCard:
    """A card's keys with their origins.

    Attributes:
        file: the ONNX file.
        facts: every key but `file`, in the order of a card.
        assumed: what no source says, one sentence each; only if the user has asked for a card to complete.
        about: one line about the network; may be empty.
    """

    file: Path
    facts: dict[str, CardFact]
    assumed: tuple[str, ...] = ()
    about: str = ""

    def card(self) -> Card:
        """Return the card that stands for the file in a pipeline. Raises ModelError."""
        plain: dict[str, Any] = {"file": self.file.name, "input": {}}
        for key, fact in self.facts.items():
            value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
            holder, name = (plain["input"], key[6:]) if key.startswith("input.") else (plain, key)
            holder[name] = value
        return card_from(tree(plain, str(self.file)), self.file)

    def text(self, folder: Path) -> str:
        """Return the card's YAML for a file in `folder`; beside or above each key, where its value comes from."""
        head = [f"# Derived from {self.file.name} by streamkit models new. {_join_lines(self.about)}".rstrip()]
        head += [f"# CHECK: {assumption}" for assumption in self.assumed]
        inner = [key for key in self.facts if key.startswith("input.")]
        outer = [key for key in self.facts if key not in ("task", "family", *inner)]
        path = _relative(self.file, folder)
        network = CardFact(path, "absolute" if Path(path).is_absolute() else "relative to this card")
        body = [line for key in ("task", "family") for line in _entry(key, self.facts[key])]
        body += [*_entry("file", network), "input:"]
        body += [f"  {line}" for key in inner for line in _entry(key[6:], self.facts[key])]
        body += [line for key in outer for line in _entry(key, self.facts[key])]
        return "\n".join([*head, *body]) + "\n"


def _relative(file: Path, folder: Path) -> str:
    file = file.absolute()
    folder = folder.absolute()
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def _join_lines(text: str) -> str:
    return " ".join(printable(text, one_line=True).split())


def _entry(key: str, fact: CardFact) -> list[str]:
    """Return a key's lines: with the origin behind a short value, above a long one."""
    value = fact.value
    origin = _join_lines(fact.origin)
    list_name = next((name for name, names in LABEL_LISTS.items() if key == "labels" and names == value), None)
    if list_name is not None or not isinstance(value, (list, tuple)):
        return [f"{key + ': ' + _scalar(list_name or value):32}  # {origin}"]
    items = [_scalar(item) for item in value]
    short = f"{key}: [{', '.join(items)}]"
    if len(short) < _WIDTH // 2:
        return [f"{short:32}  # {origin}"]
    lines = [f"# {origin}", f"{key}: ["]
    for item in items:
        if len(lines[-1]) + len(item) > _WIDTH or lines[-1].endswith("["):
            lines.append("  ")
        lines[-1] += f"{item}, "
    return [*(line.rstrip() for line in lines), "]"]


def _scalar(value: Any) -> str:
    """Return a value as YAML; text that YAML could read as something else in quotes."""
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[A-Za-z][\w./ -]*", value, re.ASCII) or re.fullmatch(r"1/\d+", value)
    same = plain and value == value.strip() and yaml.safe_load(value) == value and value.lower() not in ("y", "n")
    return value if same else json.dumps(value, ensure_ascii=False)


def _classes(count: int) -> str:
    return f"{count} class{'es' if count != 1 else ''}"


def _lists_of(count: int | None) -> str:
    """Return the known lists of so many classes, for a message; empty if there is none."""
    same = [f"{key} has as many" for key, names in LABEL_LISTS.items() if len(names) == count]
    return f" ({', '.join(same)})" if same else ""


def _sizes(tensor: TensorInfo) -> tuple[int | str, ...]:
    """Return a shape for messages, with a question mark for an open size."""
    return tuple(dim if isinstance(dim, int) else "?" for dim in tensor.dims)


# ------------------------------------------------------------------------------------------------------------ deriving


def open_model(name: str, folder: Path | None = None, families: Mapping[str, PluginFamily] | None = None) -> Card:
    """Return the card that `model: name` stands for in a YAML in `folder`: derived for an `.onnx`, else read.

    The network of `auto` is downloaded if it is not there.

    Args:
        name: the name or path of a card, `auto` for the card `DEFAULT_CARD`, or the path of an `.onnx` file.
        folder: the YAML's folder.
        families: the network families of plugins, by name, for cards.

    Raises:
        ModelError: there is no such card or network, or it cannot be used.
    """
    if Path(name).suffix.lower() in _OTHER_FORMATS:
        raise ModelError(
            f"{name} is no ONNX file; export the network to ONNX, for Ultralytics with: yolo export "
            "model=best.pt format=onnx"
        )
    if Path(name).suffix.lower() == ".onnx":
        return derive((folder or Path()) / Path(name).expanduser()).card()
    card = load_card(find_card(DEFAULT_CARD if name == AUTO else name, folder), families)
    if not card.url:
        return card
    if name == AUTO:
        try:
            card = dataclasses.replace(card, file=pull(card))
        except ModelError as error:
            raise ModelError(
                f"{error}; or name a network of yours, as in model: best.onnx. `streamkit demo` runs without a download"
            ) from None
    return for_batches(card)


def derive(
    file: Path,
    *,
    family: str = "",
    labels: str = "",
    size: tuple[int, int] | None = None,
    assume: bool = False,
    families: Mapping[str, PluginFamily] | None = None,
) -> DerivedCard:
    """Derive a card from an ONNX file and what is beside it.

    Args:
        file: the network.
        family: the family, instead of choosing it by the outputs.
        labels: a known list or a file with the labels, instead of those found.
        size: width and height of the input, where the file leaves them open.
        assume: complete an unknown input with the most usual values and say so in `assumed`, instead of refusing.
        families: the network families of plugins, by name, for `family`.

    Raises:
        Underivable: something is missing, ambiguous or contradictory; lists all of it with the fix.
        ModelError: the file cannot be read.
    """
    if not file.is_file():
        near = did_you_mean(file.name, [network.name for network in file.parent.glob("*.onnx") if network.is_file()])
        if file.is_dir():
            raise ModelError(f"{file} is a folder; give the path of an ONNX file in it")
        kind = f"there is no file {file}"
        raise ModelError(f"{kind}{near or '; give the path of an ONNX file, relative to the YAML'}")
    info = inspect(file)
    if (family in FAMILIES and FAMILIES[family].task == "read") or ("character" in info.metadata and not family):
        return _reader(file, info, size, family, labels)
    return _Derivation(file, info, assume, families or {}).run(family, labels, size)


def _reader(file: Path, info: ModelInfo, size: tuple[int, int] | None, family: str, labels: str) -> DerivedCard:
    """Derive the card of PP-OCR's recognizers, which name their characters in the file: line by line, and a space."""
    text = ""
    if "character" not in info.metadata or family not in ("", "ctc"):
        text = (
            "a network that reads text needs its alphabet, which its file does not name; write a card with task: read"
        )
    elif labels:
        text = "--labels is for classes, and the file names its characters; leave --labels out"
    if text:
        raise Underivable([Problem(str(file), 0, 0, text)])
    characters = info.metadata["character"].splitlines()
    classes = next(iter(info.outputs.values())).dims[-1]
    if classes == len(characters) + 2 and " " not in characters:
        characters.append(" ")
    facts = CardFacts()
    facts.add(
        f"the metadata of {file.name} (character)", task="read", family="ctc", alphabet=tuple(characters), blank=0
    )
    shape = f"the shape of input {info.image_input!r}"
    sizes = [(size, "--size"), (info.size, shape), ((320, 48), "PP-OCR: the authors' input")]
    chosen, origin = next(size_and_origin for size_and_origin in sizes if size_and_origin[0] is not None)
    facts.add(origin, input_size=list(chosen or ()))
    facts.add("PP-OCR: the authors' input", input_resize="letterbox", input_anchor="top_left", input_pad=127.5)
    facts.add("PP-OCR: the authors' input", input_color="bgr", input_scale="1/255", input_mean=0.5, input_std=0.5)
    ordered = {key: facts.by_key[key] for key in [*_ORDER, *_INPUT] if key in facts.by_key}
    return DerivedCard(file, ordered)


class _Derivation:
    """One derivation: `facts` grows, `problems` lists what is wrong."""

    def __init__(self, file: Path, info: ModelInfo, assume: bool, plugins: Mapping[str, PluginFamily]) -> None:
        self.file = file
        self.info = info
        self.assume = assume
        self.plugins = plugins
        self.facts: dict[str, CardFact] = {}
        self.problems: list[str] = []
        self.assumed: list[str] = []
        self.about = ""
        self.among: tuple[str, ...] | None = None
        self.user_families: tuple[str, ...] | None = None
        self.plugin: PluginFamily | None = None
        self.stride: CardFact | None = None
        self.points: CardFact | None = None
        here = Path.cwd()
        path = file.relative_to(here) if file.is_relative_to(here) else file
        self.new = f"streamkit models new {shlex.quote(str(path))}"

    def run(self, family: str, labels: str, size: tuple[int, int] | None) -> DerivedCard:
        """Collect the facts and choose the family."""
        steps: list[Callable[[], CardFacts]] = [
            lambda: from_metadata(self.info),
            lambda: from_hugging_face(self.file),
            lambda: from_roboflow(self.file),
            lambda: from_paddle(self.file),
        ]
        if labels:
            self._try(lambda: self._set("labels", self._labels_of_option(labels)))
        for step in steps:
            self._try(lambda step=step: self._merge(step()))  # type: ignore[misc]
        self._stop()
        self._try(lambda: self._set_size(size))
        self._try(self._resolve)
        names = (*self.plugins, *FAMILIES)
        if family and family not in names:
            hint = did_you_mean(family, names, all_if_few=True)
            more = "" if hint.endswith("?") else "; --plugins FILE adds a plugin's"
            self.problems.append(f"--family {family} is unknown{hint}{more}")
            self._stop()
        if family in self.plugins:
            self.plugin = self.plugins[family].for_input(self._size or (0, 0))
        elif family:
            self.user_families = (family,)
        self._try(self._add_labels)
        if not self.problems:
            self._try(lambda: self._choose(family))
        self._stop()
        self._compare_points()
        self._try(self._read_once)
        self._complete()
        self._stop()
        facts = {key: self.facts[key] for key in [*_ORDER, *_INPUT] if key in self.facts}
        return DerivedCard(self.file, facts, tuple(self.assumed), self.about)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except ModelError:
            raise
        except ValueError as error:
            self.problems.append(str(error))

    def _stop(self) -> None:
        if self.problems:
            raise Underivable([Problem(str(self.file), 0, 0, text) for text in dict.fromkeys(self.problems)])

    def _merge(self, facts: CardFacts) -> None:
        """Add a source's facts: those already known must be the same."""
        for key, fact in facts.by_key.items():
            self._set(key, fact)
        if facts.families is not None and self.among is None:
            self.among = facts.families
        self.about = self.about or facts.about
        self.stride = self.stride or facts.stride
        self.points = self.points or facts.points
        if facts.note:
            self.facts["note"] = CardFact(facts.note, "not as the authors do it")

    def _set(self, key: str, fact: CardFact) -> None:
        earlier = self.facts.setdefault(key, fact)
        if earlier.value != fact.value and not earlier.origin.startswith("--"):
            fix = f"remove what is wrong, or write a card: {self.new}"
            if key == "labels":
                fix = f"remove the wrong list, or decide with {self.new} --labels FILE"
            self.problems.append(contradiction(key, [earlier, fact], fix))

    # ----------------------------------------------------------------------------------------------- size and labels

    def _set_size(self, size: tuple[int, int] | None) -> None:
        """Find the input's size: the file's, which the sources must not contradict, else a source's."""
        fixed = self.info.size
        stated = self.facts.get("input.size")
        if size is not None:
            stated = CardFact(list(size), "--size")
        if fixed is None:
            where = listed({self.info.image_input: _sizes(self.info.inputs[self.info.image_input])})
            need(
                stated,
                f"its input {where} leaves height and width open, and no source says with which the network is "
                f"trained; write a card: {self.new} --size WIDTHxHEIGHT, or export it with a fixed size",
            )
        elif stated is not None and tuple(stated.value) != fixed:
            of_input = CardFact(list(fixed), f"the shape of input {self.info.image_input!r}")
            fix = f"export the network again with one size, or write a card for the file's: {self.new} --size {{}}x{{}}"
            is_of_user = stated.origin == "--size"
            if not is_of_user and size is None:
                raise ValueError(contradiction("input.size", [stated, of_input], fix.format(*fixed)))
            need(
                False,
                f"--size is {shown('input.size', stated.value)}, but input {self.info.image_input!r} takes "
                f"{shown('input.size', fixed)}; leave --size out",
            )
        if fixed is not None:
            stated = CardFact(list(fixed), f"the shape of input {self.info.image_input!r}")
        assert stated is not None
        self.facts["input.size"] = stated
        stride = self.stride
        if fixed is None and stride is not None and any(side % stride.value for side in stated.value):
            raise ValueError(
                f"input.size is {shown('input.size', stated.value)} in {stated.origin}, and width and height must be "
                f"multiples of {stride.value}, by {stride.origin}; write a card: {self.new} --size WIDTHxHEIGHT"
            )

    def _resolve(self) -> None:
        """Find the sizes of outputs that the file leaves open, if families differ in them."""
        labels = self.facts.get("labels")
        fitting = self._candidates(None if labels is None else len(labels.value))
        if self._size is not None and len(fitting) > bool(self.among or self.user_families):
            self.info = with_sizes(self.info, self._size)

    @property
    def _size(self) -> tuple[int, int] | None:
        fact = self.facts.get("input.size")
        return None if fact is None else (fact.value[0], fact.value[1])

    def _labels_of_option(self, name: str) -> CardFact:
        if name in LABEL_LISTS:
            return CardFact(LABEL_LISTS[name], "--labels")
        path = Path(name).expanduser()
        near = did_you_mean(name, LABEL_LISTS)
        need(path.is_file(), f"--labels {name} is neither a file nor a known list ({', '.join(LABEL_LISTS)}){near}")
        return CardFact(read_labels(path).value, f"--labels {path.name}")

    def _add_labels(self) -> None:
        """Find the labels: a source's, else those of a file beside the network that has as many as the outputs."""
        named = self.facts.get("labels")
        lists = label_lists(self.file)
        alone = len(list(self.file.absolute().parent.glob("*.onnx"))) == 1
        if named is not None:
            other = next((fact for fact in lists if fact.value != named.value), None)
            if other is not None and alone:
                self._set("labels", other)
            return
        if self.plugin is not None and len(lists) == 1:  # its check compares the number
            self.facts["labels"] = lists[0]
            return
        fitting = [fact for fact in lists if self._candidates(len(fact.value))]
        if len(fitting) == 1:
            self.facts["labels"] = fitting[0]
            return
        if fitting:
            raise ValueError(
                f"the labels are ambiguous: {self._lists(fitting)}; decide with {self.new} --labels FILE, or remove one"
            )
        certain = self._certain(None)
        if lists and certain and not any(self._needs_no_labels(candidate.family) for candidate in certain):
            raise ValueError(self._other_number(certain, lists))

    def _other_number(self, certain: list[Candidate], lists: list[CardFact]) -> str:
        """Say that the lists of labels are not as long as the outputs have classes, and what else those may hold."""
        numbers = " or ".join(dict.fromkeys(str(candidate.classes) for candidate in certain if candidate.classes))
        text = f"the labels are {self._lists(lists)}, but the outputs {self._outputs()} have "
        text += f"{numbers or 'another number of'} classes"
        angled = [] if self.among or self.user_families else candidates(self.info, self._size, None, ("yolov8_obb",))
        if angled:
            text += (
                f", or {_classes(angled[0].classes or 0)} and the angle of oriented boxes, which {self.new} --family "
            )
            text += "yolov8_obb reads"
        longer = {candidate.classes for candidate in certain if FAMILIES[candidate.family].traits.selects} & {
            len(fact.value) + 1 for fact in lists
        }
        if longer:
            text += ". The last may be no object, as in the first DETR: put its config.json beside it, or write a card "
            return f"{text}with select: softmax. Otherwise give the list of this network: {self.new} --labels FILE"
        return f"{text}; give the list of this network: {self.new} --labels FILE"

    def _lists(self, lists: list[CardFact]) -> str:
        return ", ".join(f"{shown('labels', fact.value)} in {fact.origin}" for fact in lists)

    @staticmethod
    def _needs_no_labels(family: str) -> bool:
        reads = FAMILIES[family]
        return bool(reads.label or reads.numbers) or reads.task in WITHOUT_LABELS

    # --------------------------------------------------------------------------------------------------------- family

    def _candidates(self, classes: int | None, whole: bool = True) -> list[Candidate]:
        select = self.facts["select"].value if "select" in self.facts else ""
        size = None if self.user_families else self._size
        families = self.user_families or self.among
        fitting = candidates(self.info, size, classes, families, select)
        if classes is not None and any(
            FAMILIES[candidate.family].task == "classify"
            for candidate in candidates(self.info, size, None, families, select)
        ):  # names of classes speak against an embedding, also where they are as many as another list has
            fitting = [candidate for candidate in fitting if FAMILIES[candidate.family].task != "embed"]
        return [candidate for candidate in fitting if self.user_families or whole is not bool(candidate.unread)]

    def _certain(self, classes: int | None) -> list[Candidate]:
        """Return the candidates that neither a run excludes nor a user has to decide on."""
        fitting = self._candidates(classes)
        excluded = self._excluded(fitting)
        return [candidate for candidate in self._sure(fitting) if candidate.family not in excluded]

    def _sure(self, fitting: list[Candidate]) -> list[Candidate]:
        """Return the candidates that may be chosen without the user: named by a source, or by shapes of their own."""
        named = self.among is not None or self.user_families is not None
        return [
            candidate
            for candidate in fitting
            if named or FAMILIES[candidate.family].certain(self.info, candidate.classes, "labels" in self.facts)
        ]

    def _outputs(self) -> str:
        return listed({name: _sizes(output) for name, output in self.info.outputs.items()})

    def _choose(self, user_family: str) -> None:
        """Choose the family: the user's, or the only one that reads the outputs."""
        labels = self.facts.get("labels")
        count = None if labels is None else len(labels.value)
        if user_family:
            if self.plugin is not None:
                self._check_plugin(self.plugin, count)
            else:
                self._check_user_family(user_family, count)
            return
        fitting = self._candidates(count)
        excluded = self._excluded(fitting)
        left = [candidate for candidate in fitting if candidate.family not in excluded]
        if not left:
            raise ValueError(self._none_fits(labels, excluded))
        if len(left) > 1 or not self._sure(left):
            raise ValueError(self._ambiguous(left))
        name = left[0].family
        why = "".join(f"; not {family}: {reason}" for family, reason in excluded.items())
        reading = FAMILIES[name].reading(self.info.output_dims)
        self.facts["family"] = CardFact(name, f"the outputs {self._outputs()}{reading}{why}")
        self._label(name, left[0].classes)

    def _excluded(self, fitting: list[Candidate]) -> dict[str, str]:
        """Return the families that a run excludes, each with the reason; a source's only family is not doubted."""
        named = self.among is not None
        if self._size is None or len(fitting) <= named:
            return {}
        return doubts(self.info, self._size, fitting)

    def _check_plugin(self, family: PluginFamily, count: int | None) -> None:
        """Check a plugin's family, which takes the place of a built-in one of its name."""
        need(count, f"no source names the classes, for family {family.name}; write a card: {self.new} --labels FILE")
        family.check(self.info.output_dims, count or 0)
        self.facts["family"] = CardFact(family.name, "--family")
        self.facts["task"] = CardFact(family.task, f"family {family.name}")
        self.among = None

    def _check_user_family(self, name: str, count: int | None) -> None:
        family = FAMILIES[name]
        if family.task in WITHOUT_LABELS:
            self.facts.pop("labels", None)
        fitting = candidates(self.info, None, count, (name,))
        if not fitting:
            family.check(self.info.output_dims, count or 1)
        classes = fitting[0].classes if fitting else None
        self.among = None
        self._ignore(unclaimed(family, self.info.output_dims, classes or count or 1), name)
        self.facts["family"] = CardFact(name, f"--family{family.reading(self.info.output_dims)}")
        self._label(name, classes)

    def _ignore(self, unread: list[str], family: str) -> None:
        """Drop the outputs that the user's family does not read, and say so."""
        if not unread:
            return
        self.facts["ignore_outputs"] = CardFact(tuple(unread), f"not read by family {family}")
        lost = listed({name: _sizes(self.info.outputs[name]) for name in unread})
        self.assumed.append(f"family {family} does not read {lost}; ignore_outputs drops what is there")
        self.info = self.info.without_outputs(unread)

    def _label(self, name: str, classes: int | None) -> None:
        """Set the task and, for a family of one class, its label; the labels must be known otherwise."""
        family = FAMILIES[name]
        task = self.facts.get("task")
        if task is not None and task.value != family.task:
            self.problems.append(
                f"task is {task.value} in {task.origin}, but family {name} is for task: {family.task}; decide with "
                f"{self.new} --family F"
            )
        self.facts["task"] = task or CardFact(family.task, f"family {name}")
        if family.label:
            self.facts["labels"] = CardFact((family.label,), f"family {name} finds one class")
        elif family.numbers:
            self.facts["labels"] = CardFact(family.numbers, f"family {name} gives these numbers")
        elif family.task in WITHOUT_LABELS:
            self.facts.pop("labels", None)
        elif "labels" not in self.facts:
            many = _classes(classes) if classes else "its classes"
            decided = f" --family {name}" if self.user_families else ""
            self.problems.append(
                f"no source names {many} (family {name}, outputs {self._outputs()}); put labels.txt beside it, one "
                f"name per line, or write a card: {self.new}{decided} --labels FILE{_lists_of(classes)}"
            )

    def _compare_points(self) -> None:
        """Refuse metadata with another number of keypoints than the outputs."""
        family = FAMILIES.get(self.facts["family"].value)
        labels = self.facts.get("labels")
        if self.points is None or family is None or labels is None:
            return
        count = family.points(self.info.output_dims, len(labels.value))
        if count is not None and count != self.points.value:
            self.problems.append(
                f"the keypoints are {self.points.value} in {self.points.origin}, but the outputs {self._outputs()} "
                f"have {count}; export the network again"
            )

    def _read_once(self) -> None:
        """Run a network of open size once, and decode its outputs: not every size fits its layers and its family."""
        family = FAMILIES.get(self.facts["family"].value)
        size = self._size
        if self.info.size is not None or len(self.info.inputs) > 1 or family is None or size is None:
            return
        outputs = values_of(self.info, size)
        if family.task in ("classify", "action", *WITHOUT_LABELS) or family.regions:
            return
        options = ReadOptions(np.ones(max(1, len(self.facts["labels"].value)), np.float32))
        reads = family.selecting(self.facts["select"].value if "select" in self.facts else "")
        reads.read(outputs, np.ones((1, 4), np.float32), np.array([size], np.int64), size, options)

    def _none_fits(self, labels: CardFact | None, excluded: Mapping[str, str]) -> str:
        """Say why no family reads the outputs: another number of classes, further outputs, or another format."""
        fitting = self._certain(None) if labels is not None else []
        if labels is not None and any(candidate.classes for candidate in fitting):
            return self._other_number(fitting, [labels])
        taken = {"orig_target_sizes"}
        more = [name for name in self.info.inputs if name not in {self.info.image_input, *taken}]
        if more:
            inputs = listed({name: _sizes(info) for name, info in self.info.inputs.items()})
            return (
                f"its inputs are {inputs}, and no family has a value for {', '.join(more)} beside the images; export "
                "it with the images as the only input, or write a card with text if it takes texts"
            )
        partial = self._sure(self._candidates(None if labels is None else len(labels.value), whole=False))
        if partial:
            return self._left_over(partial)
        clips = self.info.clip is not None
        among = self.among or [name for name, reads in FAMILIES.items() if reads.takes_clips == clips]
        task = f" of {self.facts['task'].origin}" if "task" in self.facts else ""
        reasons = "".join(f"; not {family}: {reason}" for family, reason in excluded.items())
        return (
            f"no family{task} reads its outputs {self._outputs()}; tried {', '.join(among)}{reasons}; export it "
            f"{'without end2end and nms, ' if self._selects_itself() else ''}in one of the formats in "
            f"the reference of model cards, or {_WRITE_FAMILY}"
        )

    def _left_over(self, partial: list[Candidate]) -> str:
        """Say which outputs the families leave that read the others."""
        reads = " or ".join(
            f"family {candidate.family} does not read {', '.join(candidate.unread)}" for candidate in partial
        )
        return (
            f"no family reads all of its outputs {self._outputs()}: {reads}; to go without, write a card that ignores "
            f"what is left: {self.new} --family {partial[0].family}; otherwise {_WRITE_FAMILY}"
        )

    def _selects_itself(self) -> bool:
        """Whether the metadata say that non-max suppression is part of the network, or not needed."""
        metadata = self.info.metadata
        return metadata.get("end2end") == "True" or "'nms': True" in metadata.get("args", "")

    def _ambiguous(self, fitting: list[Candidate]) -> str:
        """Ask which of the families it is; the last answer is none of them."""
        read = ", ".join(
            f"{option.family} ({FAMILIES[option.family].task}"
            f"{', ' + _classes(option.classes) if option.classes else ''})"
            for option in fitting
        )
        none = f"none of these: {_WRITE_FAMILY}"
        if all(FAMILIES[option.family].task == "depth" for option in fitting):
            forms = [f"--family {option.family} ({FAMILIES[option.family].traits.meaning})" for option in fitting]
            return (
                f"no source says in which form its outputs {self._outputs()} give depth; decide with {self.new} "
                f"{' or '.join(forms)}; {none}"
            )
        if len(fitting) > 1:
            several = f"several families read its outputs {self._outputs()}: {read}"
            return f"{several}; decide with {self.new} --family F; {none}"
        meaning = FAMILIES[fitting[0].family].traits.meaning
        return (
            f"the shapes of its outputs {self._outputs()} do not say what they mean; {meaning}, decide with {self.new} "
            f"--family {fitting[0].family} --labels FILE{_lists_of(fitting[0].classes)}; {none}"
        )

    # ------------------------------------------------------------------------------------------------------- the rest

    def _complete(self) -> None:
        """Complete the input and thresholds with those of the network's line."""
        family = self.facts["family"].value
        reads = FAMILIES.get(family, Family())
        line = reads.line(self.info, self._size if self.among is None else None)
        for key, fact in line.by_key.items():
            if key.startswith("input.") and key[6:] in ("anchor", "pad") and self._resize(line) != "letterbox":
                continue
            self.facts.setdefault(key, fact)
        points = "" if self.plugin is not None else reads.keypoints(self.info.output_dims, 1)
        if points:
            self.facts["keypoints"] = CardFact(points, f"family {family}")
        if not reads.traits.selects:
            self.facts.pop("select", None)
        missing = [key for key in _MUST if key not in self.facts]
        if missing:
            self._assume(family, reads.traits.input_hint, missing)

    def _resize(self, line: CardFacts) -> Any:
        return (self.facts.get("input.resize") or line.by_key["input.resize"]).value

    def _assume(self, family: str, input_hint: str, missing: list[str]) -> None:
        """Complete an unknown input with the most usual values, if the user has asked for it; else report it."""
        names = ", ".join(missing)
        if not self.assume:
            hint = input_hint or "put preprocessor_config.json beside it, or "
            self.problems.append(
                f"no source says how an image becomes the input of this network ({names}), and family {family} has "
                f"networks with different inputs; {hint}write a card and complete it: {self.new} --family {family}"
            )
            return
        usual: dict[str, Any] = {
            "input.resize": "stretch",
            "input.color": "rgb",
            "input.scale": "1/255",
            "input.mean": IMAGENET_MEAN,
            "input.std": IMAGENET_STD,
        }
        if input_hint:
            usual |= {"input.resize": "letterbox", "input.mean": 0, "input.std": 1}
        for key in missing:
            self.facts[key] = CardFact(usual[key], "ASSUMED: no source says it")
        self.assumed.append(
            f"no source says {names}; the usual values are written. Compare them with the code that the network was "
            "trained with, and look at streamkit models check CARD VIDEO --draw out.png"
        )
