# SPDX-License-Identifier: Apache-2.0
"""Model cards: everything needed to get the authors' own results from raw frames.

A card is a YAML file beside the network; this module reads and finds cards. `check_model` in `network.py` checks
whether the network's file fits its card.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.core.detections import Skeleton
from streamkit.core.errors import ConfigError, ModelError, Problem
from streamkit.core.text import did_you_mean
from streamkit.core.user_cache import user_cache
from streamkit.core.yaml_tree import YamlNode, load_file
from streamkit.models.card_keys import read_keys

if TYPE_CHECKING:
    from streamkit.models.families import Family
    from streamkit.models.families.plugin import PluginFamily
    from streamkit.ops.letterbox import InputSpec


AUTO = "auto"
"""What a YAML names for the card `DEFAULT_CARD`, whose network is downloaded where it is missing."""
DEFAULT_CARD = "yolox-nano"


@dataclass(frozen=True, slots=True)
class TextSpec:
    """How a text becomes an embedding, or tokens.

    Attributes:
        tokenizer: the tokenizer.json, absolute.
        encoder: the ONNX file of the text encoder, absolute; None if the network itself takes tokens.
        template: the text around a prompt, with `{}` in its place.
        length: tokens that a text is padded to; None for the length in the file, or that of the text.
        pad_id: the token that pads; None for that of the tokenizer.
    """

    tokenizer: Path
    encoder: Path | None = None
    template: str = "{}"
    length: int | None = None
    pad_id: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One network: its file, its input and how its output is decoded.

    Attributes:
        name: the card's file name without `.yaml`.
        path: the card; the ONNX file if the card is derived from it.
        task: what it does, a task of `card_keys.CardKeys`.
        family: how its output is decoded, a name in `streamkit.models.families`.
        file: the ONNX file, absolute; it may not exist yet. With a `url`, it is in the user's cache, unless it is
            beside the card.
        url, sha256: where `streamkit models pull` gets it and its checksum; empty if it cannot be downloaded.
        input: how a frame becomes the network's input. Layout and dtype are those of the ONNX file once
            `check_model` has read it.
        labels: class names; empty if the task has none, as embed, depth and anomaly. Of a network that reads text, the
            characters of its alphabet.
        blank: with the task `read`, the class that is no character; below 0 it counts from the end.
        skeleton: names of the keypoints, and pairs that a drawing joins; None if the card has none.
        ignore_outputs: outputs of the network that are dropped on purpose.
        select: which of a raw DETR's queries and classes become objects, one of `card_keys.SELECTS`; empty for the
            family's default, see `families.detr`.
        decoder: the family of a plugin; None for a built-in one.
        text: how texts become its second input, or the text encoder that belongs to it; None if it knows no texts.
        score: default of a stage's `min_score`, 0..1.
        iou: default of a stage's `iou`, 0..1.
        precision: how a GPU computes it where the stage's `precision` is `auto`, see `arithmetic.Precision`.
        license: of the network's weights.
        note: anything that users must know, such as where to get the file.
    """

    name: str
    path: Path
    task: str
    family: str
    file: Path
    input: InputSpec
    labels: tuple[str, ...] = ()
    url: str = ""
    sha256: str = ""
    score: float = 0.25
    iou: float = 0.45
    precision: str = "auto"
    license: str = ""
    note: str = ""
    skeleton: Skeleton | None = None
    select: str = ""
    blank: int = 0
    decoder: PluginFamily | None = None
    text: TextSpec | None = None
    ignore_outputs: tuple[str, ...] = ()

    @property
    def takes_prompts(self) -> bool:
        """Whether its classes are the prompts that a stage gives it."""
        return self.text is not None and self.task != "embed"

    @property
    def derived(self) -> bool:
        """Whether there is no card: `path` is the ONNX file from which this one was derived."""
        return self.path.suffix.lower() == ".onnx"

    def attributes(self, name: str) -> tuple[str, ...]:
        """Return the attributes that a stage of that name gives: one, or one for each number of the family."""
        return tuple(f"{name}_{label}" for label in self.labels) if family_of(self).numbers else (name,)

    def with_file(self, file: Path) -> Card:
        """Return the same card for another file of the same network, such as one with a dynamic batch."""
        return dataclasses.replace(self, file=file.absolute(), url="", sha256="")

    def how_to_get(self) -> str:
        """Return what to do if the file is missing."""
        if self.url:
            return f"fetch it with: streamkit models pull {self.name}"
        return self.note or f"put the ONNX file there; the card {self.path} has no url to fetch it from"


def load_card(path: Path, families: Mapping[str, PluginFamily] | None = None) -> Card:
    """Read a card.

    Args:
        path: the card.
        families: the network families of plugins, by name; one takes the place of a built-in one of that name.

    Raises:
        ModelError: the card has problems; lists all of them with line and column.
    """
    try:
        root, problems = load_file(path)
    except ConfigError as error:
        raise ModelError(error.problems if error.problems[0].file else str(error)) from None
    if not isinstance(root.value, dict):
        raise ModelError([root.problem("a card is a mapping, with keys such as task, family and file")])
    return card_from(root, path, problems, families)


def card_from(
    root: YamlNode, path: Path, problems: Sequence[Problem] = (), families: Mapping[str, PluginFamily] | None = None
) -> Card:
    """Return the card of a YAML's mapping.

    Args:
        root: the mapping.
        path: the card; its files are relative to its folder.
        problems: those of the YAML.
        families: the network families of plugins, by name; one takes the place of a built-in one of that name.

    Raises:
        ModelError: the card has problems; lists all of them with line and column.
    """
    from streamkit.ops.letterbox import InputSpec

    folder = path.absolute().parent
    mistakes = list(problems)
    families = families or {}
    keys = read_keys(root, folder, mistakes, families)
    if mistakes:
        raise ModelError(list(dict.fromkeys(mistakes)))
    keypoints = keys.pop("keypoints", None)
    keys |= {
        "file": _network_file(path.stem, (folder / keys["file"]).resolve(), keys["sha256"] if keys.get("url") else ""),
        "input": InputSpec(**keys["input"]),
        "skeleton": keys.get("skeleton", keypoints),
    }
    if keys["task"] == "read":
        keys["labels"] = keys.pop("alphabet", ())
    if (text := keys.get("text")) is not None:
        paths = {name: (folder / text[name]).resolve() for name in ("tokenizer", "encoder") if name in text}
        keys["text"] = TextSpec(**{**text, **paths})
    if keys["family"] in families:
        keys["decoder"] = families[keys["family"]].for_input(keys["input"].size)
    return Card(path.stem, path.absolute(), **keys)


def downloaded_network(name: str, checksum: str) -> Path:
    """Return where `streamkit models pull` puts the network of a card: in the user's cache."""
    return user_cache("models", f"{name}-{checksum[:12]}.onnx")


def _network_file(name: str, beside: Path, checksum: str) -> Path:
    """Return where a card's network is: beside the card, or in the user's cache if it was or may be downloaded.

    Args:
        name: of the card.
        beside: the file that the card names.
        checksum: of the file to download; empty if it cannot be downloaded.
    """
    if not checksum:
        return beside
    downloaded = downloaded_network(name, checksum)
    return beside if beside.is_file() and not downloaded.is_file() else downloaded


# -------------------------------------------------------------------------------------------------- finding cards


def shipped_models() -> Path:
    """Return the folder of the cards that ship with streamkit: the checkout's `models/`, or the wheel's copy."""
    package = Path(__file__).resolve().parents[1]
    packed = package / "shipped" / "models"
    return packed if packed.is_dir() else package.parent / "models"


def sample_video() -> Path:
    """Return the video that ships with streamkit, a drawn street of 16 s; the file may be missing."""
    return shipped_models().parent / "samples" / "street.mp4"


def list_cards(folder: Path | None = None) -> list[Path]:
    """Return the cards of a folder, by default `shipped_models()`, sorted by name."""
    return sorted((folder or shipped_models()).glob("*.yaml"))


def find_card(name: str, folder: Path | None = None) -> Path:
    """Find the card that `model: name` refers to in a YAML in `folder`.

    A name is looked up beside the YAML, in its `models/`, and among the shipped cards; a path is relative to the YAML.
    Without a YAML, the working folder is used.

    Raises:
        ModelError: there is no such card; lists where it looked.
    """
    reference = Path(name).expanduser()
    folder = folder or Path()
    if reference.suffix == ".onnx":
        raise ModelError(
            f"{name!r} is a network, not a card. model: {name} takes it as it is; for a card of it: "
            f"streamkit models new {name}"
        )
    if reference.suffix in (".yaml", ".yml") or len(reference.parts) > 1:
        path = folder / reference
        for candidate in (path, path.with_name(path.name + ".yaml")):
            if candidate.is_file():
                return candidate
        siblings = [card.name for card in path.parent.glob("*.y*ml")]
        raise ModelError(f"there is no card {path}{did_you_mean(path.name, siblings)}")
    folders = list(dict.fromkeys(directory.absolute() for directory in (folder, folder / "models", shipped_models())))
    for path in (directory / (name + suffix) for directory in folders for suffix in (".yaml", ".yml")):
        if path.is_file():
            return path
    names = list(
        dict.fromkeys(card.stem for directory in folders for card in list_cards(directory) if _looks_like_a_card(card))
    )
    searched = ", ".join(map(str, folders))
    raise ModelError(f"there is no model card {name}.yaml in {searched}{did_you_mean(name, names, all_if_few=True)}")


def called(path: Path) -> str:
    """Return what a command calls the card at `path`: its name if that resolves to it, else its path."""
    try:
        return path.stem if find_card(path.stem).samefile(path) else str(path)
    except (ModelError, OSError):
        return str(path)


def _looks_like_a_card(path: Path) -> bool:
    """Whether a YAML file is a card: pipelines are often in the same folder."""
    return re.search(r"^family:", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE) is not None


def family_of(card: Card) -> Family:
    """Return the card's family, with the card's `select`."""
    from streamkit.models import families

    if card.decoder is not None:
        return card.decoder
    return families.family(card.family).selecting(card.select)


def wrong(card: Card, *texts: str) -> ModelError:
    """Return the error for problems with a card's network."""
    return ModelError([Problem(str(card.path), 0, 0, text) for text in texts])
