# SPDX-License-Identifier: Apache-2.0
"""The keys of a card: their types, and the functions that validate their values.

Each function takes a plain value and returns the checked one, or raises ValueError with what the value must be.
Pydantic collects the errors; `problems` adds file, line and column.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Required, get_args, get_origin

from typing_extensions import TypedDict, get_type_hints  # pydantic needs this TypedDict before Python 3.12

from streamkit.core.addresses import check_characters
from streamkit.core.detections import Skeleton
from streamkit.core.errors import Problem
from streamkit.core.text import did_you_mean, nearest
from streamkit.core.yaml_tree import YamlNode
from streamkit.models.labels import LABEL_LISTS, SKELETONS

SELECTS = ("top_k", "best_class", "softmax")
WITHOUT_LABELS = ("embed", "depth", "anomaly")
"""Tasks of networks that have neither classes nor an alphabet."""
ANCHORS = ("center", "top_left")


@dataclass(frozen=True)
class _By:
    """Annotation of a key: the function that validates its value, and the type in words.

    The function may take `info`, as pydantic's validators do.
    """

    read: Callable[..., Any]
    what: str = "text"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import PlainValidator

        return PlainValidator(self.read).__get_pydantic_core_schema__(source, handler)


def require(holds: object, value: Any, what: str) -> None:
    """Raise ValueError unless the value is valid."""
    if not holds:
        raise ValueError(f"must be {what}, got {value!r}")


def text(value: Any) -> str:
    """Validate non-empty text; a folded YAML text becomes one line."""
    require(isinstance(value, str) and value.strip(), value, "text")
    return " ".join(value.split())


def word_among(value: Any, words: Iterable[str]) -> str:
    """Validate one of these words."""
    choices = tuple(words)
    if value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}, got {value!r}{did_you_mean(str(value), choices)}")
    return str(value)


def family(value: Any, info: Any) -> str:
    """Validate the name of a family that is for the card's task."""
    from streamkit.models.families import FAMILIES

    families_by_name = {**FAMILIES, **info.context.families}
    if value not in families_by_name:
        near = did_you_mean(str(value), families_by_name)
        hint = near or "; for a family of a plugin, name its file: plugins: in the pipeline, or --plugins"
        raise ValueError(f"must be one of {', '.join(sorted(families_by_name))}, got {value!r}{hint}")
    task = info.data.get("task")
    chosen = families_by_name[value]
    if task not in (None, chosen.task):
        fitting = ", ".join(name for name, other in families_by_name.items() if other.task == task)
        hint = f"; the families of {task}: {fitting}" if fitting else ""
        raise ValueError(f"{chosen.name} is for task: {chosen.task}, but the card has task: {task}{hint}")
    return str(chosen.name)


def select(value: Any, info: Any) -> str:
    """Validate what becomes an object of a raw DETR's outputs."""
    from streamkit.models.families import FAMILIES

    word = word_among(value, SELECTS)
    selecting = [name for name, family in FAMILIES.items() if family.traits.selects]
    of = info.data.get("family", selecting[0])
    if of not in selecting:
        raise ValueError(f"is for family: {' or '.join(selecting)}, not for {of}")
    return word


def url(entry: Any) -> str:
    """Validate an http or https address."""
    address = text(entry)
    if not address.startswith(("https://", "http://")):
        raise ValueError(f"must begin with https:// or http://, got {entry!r}")
    check_characters(address)
    return address


def sha256(value: Any) -> str:
    """Validate a SHA-256 sum; returned in lower case."""
    if not isinstance(value, str):
        raise ValueError("must be text: put quotes around it")
    require(re.fullmatch("[0-9a-fA-F]{64}", value), value, "64 hexadecimal digits")
    return value.lower()


def number(value: Any, minimum: float = -math.inf, maximum: float = math.inf) -> float:
    """Validate a number, or a fraction such as `1/255`, from `minimum` to `maximum`."""
    parts = value.split("/") if isinstance(value, str) else [value]
    try:
        if isinstance(value, bool) or len(parts) > 2:
            raise ValueError
        parsed = float(parts[0]) / (float(parts[1]) if len(parts) == 2 else 1.0)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"must be a number, or a fraction such as 1/255, got {value!r}") from None
    require(minimum <= parsed <= maximum, value, f"{minimum:g} to {maximum:g}")
    return parsed


def above_zero(value: Any) -> float:
    """Validate a number above 0."""
    parsed = number(value)
    require(parsed > 0, value, "above 0")
    return parsed


def per_channel(value: Any, read: Callable[[Any], float] = number) -> tuple[float, float, float]:
    """Validate one number for all three channels, or one for each."""
    values = value if isinstance(value, list) else [value] * 3
    require(len(values) == 3, value, "one number or one for each of 3 channels")
    first, second, third = (read(item) for item in values)
    return first, second, third


def whole_number(value: Any, what: str = "a whole number of pixels, at least 1", minimum: float = 1) -> int:
    """Validate a whole number of at least `minimum`."""
    require(isinstance(value, int) and not isinstance(value, bool) and value >= minimum, value, what)
    return int(value)


def yes_or_no(value: Any) -> bool:
    """Validate true or false."""
    require(isinstance(value, bool), value, "true or false")
    return bool(value)


def _need_letterbox(info: Any) -> None:
    """Raise ValueError for a key that `resize` leaves without effect."""
    resize = info.data.get("resize", "letterbox")
    if resize != "letterbox":
        raise ValueError(f"is for resize: letterbox, not {resize}; leave it out")


def anchor(value: Any, info: Any) -> str:
    """Validate where a letterboxed frame lies in the input."""
    position = word_among(value, ANCHORS)
    _need_letterbox(info)
    return position


def padding(value: Any, info: Any) -> float | tuple[float, float, float]:
    """Validate a pixel value, 0 to 255, or one for each channel."""
    _need_letterbox(info)
    pixel = partial(number, minimum=0, maximum=255)
    return per_channel(value, pixel) if isinstance(value, list) else pixel(value)


def resize_to(value: Any, info: Any) -> int:
    """Validate the size of the short side after resizing."""
    resize = info.data.get("resize", "letterbox")
    if resize != "crop":
        raise ValueError(f"is for resize: crop, not {resize}")
    return whole_number(value)


def size(value: Any) -> tuple[int, int]:
    """Validate width and height in pixels."""
    require(isinstance(value, list) and len(value) == 2, value, "[width, height] in pixels")
    return whole_number(value[0]), whole_number(value[1])


def keypoints(value: Any, info: Any) -> Skeleton:
    """Validate a list of names, or the name of a known set of keypoints."""
    from streamkit.models.families import FAMILIES

    of = info.data.get("family")
    if of in FAMILIES and "keypoints" not in FAMILIES[of].columns:
        raise ValueError(f"is for families with keypoints, not for {of}; leave it out")
    if isinstance(value, list):
        names = value and all(isinstance(name, str) and name for name in value)
        require(names and len(set(value)) == len(value), value, "a list of names, each once")
        return Skeleton(tuple(value))
    return SKELETONS[word_among(value, SKELETONS)]


def skeleton(value: Any, info: Any) -> Skeleton:
    """Validate the lines between keypoints: pairs of their names."""
    names = info.data.get("keypoints", Skeleton()).names
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    require(pairs, value, "a list of pairs of keypoints such as [[left_hip, left_knee]]")
    for name in (name for pair in value for name in pair if name not in names):
        raise ValueError(f"names the point {name!r}, which keypoints lacks{did_you_mean(str(name), names)}")
    return Skeleton(names, tuple((names.index(first), names.index(second)) for first, second in value))


def labels(value: Any, info: Any) -> tuple[str, ...]:
    """Validate a list of names, a text file with one per line, or the name of a known list."""
    if isinstance(value, list):
        names = value and not any(isinstance(name, (list, dict)) or name is None for name in value)
        require(names, value, "a list of class names")
        return tuple(str(name) for name in value)
    name = text(value)
    if name in LABEL_LISTS:
        return LABEL_LISTS[name]
    file = info.context.folder / name
    if not file.is_file():
        near = did_you_mean(name, LABEL_LISTS)
        raise ValueError(
            f"{name!r} is neither a known list ({', '.join(LABEL_LISTS)}) nor a file: there is no {file}{near}"
        )
    try:
        names = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"file {file} cannot be read: {error}") from None
    names_of_file = tuple(line.strip() for line in names if line.strip())
    if not names_of_file:
        raise ValueError(f"file {file} is empty: it must have one class name per line")
    return names_of_file


def template(value: Any) -> str:
    """Validate a text with one `{}` in it, which a prompt replaces."""
    pattern = text(value)
    require(pattern.count("{}") == 1, value, 'a text with one {} in it, such as "a photo of a {}"')
    return pattern


def alphabet(value: Any, info: Any) -> tuple[str, ...]:
    """Validate the characters of a reader: in one text, in a list, or in a file with one on each line."""
    if isinstance(value, list):
        characters = tuple(map(str, value))
    else:
        if isinstance(value, (int, float)):
            raise ValueError("must be text: put quotes around it")
        require(isinstance(value, str) and value, value, "the characters, a list of them, or a file with one per line")
        name: str = value
        file = info.context.folder / name
        if not os.path.isfile(file):  # unlike Path.is_file, false for a text longer than a name
            if len(name) > 4 and Path(name).suffix in (".txt", ".keys"):
                raise ValueError(f"there is no file {file}")
            characters = tuple(name)
        else:
            try:
                characters = tuple(file.read_text(encoding="utf-8-sig").rstrip("\n").split("\n"))
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"file {file} cannot be read: {error}") from None
    twice = [character for character, n in Counter(characters).items() if n > 1]
    if not characters or "" in characters or twice:
        what = f"{twice[0]!r} twice" if twice else "an empty character" if characters else "none"
        raise ValueError(f"must have each character once, got {what}")
    return characters


def output_names(value: Any) -> tuple[str, ...]:
    """Validate a list of the names of outputs."""
    names = isinstance(value, list) and value and all(isinstance(name, str) and name for name in value)
    require(names and len(set(value)) == len(value), value, "a list of names of outputs, each once")
    return tuple(value)


# -------------------------------------------------------------------------------------------------------- the keys


_SHARE = _By(partial(number, minimum=0, maximum=1), "number 0..1")
_PER_CHANNEL = "number, or one for each channel"
_TOKEN = _By(partial(whole_number, what="a whole number from 0", minimum=0), "whole number from 0")
_BLANK = _By(
    partial(whole_number, what="a whole number such as 0, or -1 for the last", minimum=-math.inf), "whole number"
)


def _words(*words: str) -> _By:
    return _By(partial(word_among, words=words), " | ".join(words))


class InputKeys(TypedDict, total=False):
    """The keys of `input`, see `InputSpec`."""

    size: Required[Annotated[tuple[int, int], _By(size, "[width, height]"), "width and height in pixels"]]
    resize: Annotated[
        str,
        _words("letterbox", "stretch", "crop"),
        "letterbox keeps the aspect ratio and pads, stretch fills the input, crop cuts out the middle",
    ]
    resize_to: Annotated[
        int,
        _By(resize_to, "whole number from 1"),
        "with crop: length of the shorter side before the crop, in pixels; if not set, the shorter side of size",
    ]
    anchor: Annotated[
        str,
        _By(anchor, " | ".join(ANCHORS)),
        "with letterbox: center pads all sides, top_left only the right and the bottom",
    ]
    pad: Annotated[Any, _By(padding, _PER_CHANNEL), "with letterbox: color of the padding, 0 to 255"]
    antialias: Annotated[
        bool,
        _By(yes_or_no, "true | false"),
        "where a frame becomes smaller: true averages all its pixels, as Pillow and torchvision do; false samples "
        "four, as OpenCV does",
    ]
    color: Annotated[str, _words("rgb", "bgr"), "order of the channels"]
    scale: Annotated[
        float, _By(above_zero, "number or fraction above 0"), "such as 1/255; a value is (pixel * scale - mean) / std"
    ]
    mean: Annotated[tuple[float, float, float], _By(per_channel, _PER_CHANNEL), "subtracted after scale"]
    std: Annotated[
        tuple[float, float, float], _By(partial(per_channel, read=above_zero), _PER_CHANNEL), "divided by after mean"
    ]


class TextKeys(TypedDict, total=False):
    """The keys of `text`, see `streamkit.models.card.TextSpec`."""

    tokenizer: Required[Annotated[str, _By(text, "path"), "the tokenizer.json, relative to the card"]]
    encoder: Annotated[
        str,
        _By(text, "path"),
        "the ONNX file of the text encoder, relative to the card; left out if the network itself takes tokens",
    ]
    template: Annotated[str, _By(template, "text with {}"), "what the encoder is given, such as a photo of a {}"]
    length: Annotated[
        int, _By(whole_number, "whole number from 1"), "tokens that a text is padded to; by default that of the file"
    ]
    pad_id: Annotated[
        int,
        _TOKEN,
        "the token that pads; by default that of the tokenizer",
    ]


class CardKeys(TypedDict, total=False):
    """The keys of a card, see `Card`. A validator sees the values of the keys above it."""

    task: Required[
        Annotated[
            str,
            _words("detect", "classify", "segment", "pose", "embed", "read", "depth", "anomaly", "action"),
            "what the network does",
        ]
    ]
    family: Required[Annotated[str, _By(family, "family"), "how the network's outputs are read"]]
    file: Required[Annotated[str, _By(text, "path"), "the ONNX file, relative to the card"]]
    url: Annotated[
        str,
        _By(url),
        "http or https address from which `models pull` gets the file, into the user's cache; needs sha256",
    ]
    sha256: Annotated[str, _By(sha256, "64 hexadecimal digits"), "SHA-256 of the file"]
    input: Required[Annotated[InputKeys, "how a frame becomes the network's input"]]
    text: Annotated[
        TextKeys,
        "how prompts become an input of an open-vocabulary network (tasks detect and segment), or the text encoder "
        "beside an image encoder (task embed)",
    ]
    labels: Annotated[
        tuple[str, ...],
        _By(labels, "list of text, file or known list"),
        f"class names: a list, a text file with one name per line, or {', '.join(LABEL_LISTS)}; required except for "
        "the tasks embed, read, depth and anomaly and for networks with text",
    ]
    alphabet: Annotated[
        tuple[str, ...],
        _By(alphabet, "text, list of text or file"),
        "with the task read: the characters in the order of the network's classes, without the blank, as one text, a "
        "list, or a text file with one per line; required for the task read",
    ]
    blank: Annotated[
        int,
        _By(
            partial(whole_number, what="a whole number such as 0, or -1 for the last", minimum=-math.inf),
            "whole number",
        ),
        "with the task read: the class that is no character, the blank of ctc or the padding of slots; -1 is the last",
    ]
    score: Annotated[float, _SHARE, "default of a stage's min_score"]
    iou: Annotated[float, _SHARE, "default of a stage's iou"]
    precision: Annotated[
        str,
        _words("auto", "f32", "tf32", "f16"),
        "how a GPU computes the network, where the stage's precision is auto; on a CPU, f32",
    ]
    license: Annotated[str, _By(text), "license of the weights"]
    note: Annotated[str, _By(text), "what a user must know, such as where to get the file"]
    select: Annotated[
        str,
        _By(select, " | ".join(SELECTS)),
        "with the family detr and raw outputs: what becomes an object. top_k, the default, takes the best pairs of "
        "query and class; best_class the best class of each query; softmax the same, with a further class for none",
    ]
    ignore_outputs: Annotated[
        tuple[str, ...],
        _By(output_names, "list of text"),
        "outputs of the network to drop, such as masks where only boxes are wanted; without it, an output that the "
        "family does not read is an error",
    ]
    keypoints: Annotated[
        Skeleton,
        _By(keypoints, "list of text or known set"),
        f"names of the keypoints, or {', '.join(SKELETONS)}",
    ]
    skeleton: Annotated[
        Skeleton, _By(skeleton, "list of pairs"), "the lines between keypoints, such as [[left_hip, left_knee]]"
    ]


_NESTED: dict[str, Any] = {"input": InputKeys, "text": TextKeys}
_WITH_TEXT = ("detect", "segment", "embed")


class CardKey(NamedTuple):
    """A key of a card, for the reference.

    Attributes:
        name: with the keys above it, such as `input.size`.
        type: its type in words.
        required: whether every card must have it.
        default: its default; None if it has none.
        help: its meaning.
    """

    name: str
    type: str
    required: bool
    default: Any
    help: str


def card_key_table(defaults: Mapping[str, Any]) -> list[CardKey]:
    """The keys of a card, in the order of `CardKeys`; those of `input` follow it.

    Args:
        defaults: the defaults, by the key's name.
    """
    return [*_keys_of(CardKeys, "", defaults)]


def _keys_of(kind: Any, above: str, defaults: Mapping[str, Any]) -> Iterator[CardKey]:
    for key, hint in get_type_hints(kind, include_extras=True).items():
        origin: Any = get_origin(hint)
        name = f"{above}{key}"
        required = origin is Required
        inner = get_args(hint)[0] if required else hint
        marks = inner.__metadata__
        what = next((mark.what for mark in marks if isinstance(mark, _By)), "mapping")
        yield CardKey(name, what, required, defaults.get(name), next(mark for mark in marks if isinstance(mark, str)))
        if what == "mapping":
            yield from _keys_of(get_args(inner)[0], f"{name}.", defaults)


@cache
def _adapter() -> Any:
    from pydantic import ConfigDict, TypeAdapter, with_config

    forbid = with_config(ConfigDict(extra="forbid"))
    for keys in _NESTED.values():
        forbid(keys)
    return TypeAdapter(forbid(CardKeys))


class _CardContext(NamedTuple):
    """What validators know besides the card: its folder, and the families of plugins by name."""

    folder: Path
    families: Mapping[str, Any]


def read_keys(
    root: YamlNode, folder: Path, problems: list[Problem], families: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Validate a card's keys and return their values; add what is wrong with them to `problems`.

    Args:
        root: the card, a mapping.
        folder: the card's folder, for its label file.
        problems: the list to add to.
        families: the network families of plugins, by name.
    """
    from pydantic import ValidationError

    plain = root.plain()
    keys = dict[str, Any]()
    errors = list[Any]()
    try:
        keys = _adapter().validate_python(plain, context=_CardContext(folder, families or {}))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    task = plain.get("task")
    has_text = "text" in plain
    if task in ("detect", "classify", "segment", "pose", "action") and "labels" not in plain and not has_text:
        errors.append({"type": "missing", "loc": ("labels",)})
    if has_text and task in ("classify", "pose", "read", "depth", "anomaly", "action"):
        problems.append(root.problem(f"text is for the tasks {', '.join(_WITH_TEXT)}, not for {task}", "text"))
    if has_text and task in ("detect", "segment") and "labels" in plain:
        problems.append(root.problem("the prompts are the labels of a network with text: leave labels out", "labels"))
    if task == "embed" and isinstance(plain.get("text"), dict) and "encoder" not in plain["text"]:
        errors.append({"type": "missing", "loc": ("text", "encoder")})
    problems += _problems(root, errors)
    problems += _of_reader(root, plain)
    problems += _of_pixel_range(root, plain)
    if "url" in plain and "sha256" not in plain:
        problems.append(root.problem("url needs sha256 beside it, the sum that the fetched file must have", "url"))
    return keys


def _of_reader(root: YamlNode, plain: dict[str, Any]) -> Iterator[Problem]:
    """Yield problems with the keys that networks which read text have instead of labels."""
    if plain.get("task") == "read":
        if "alphabet" not in plain:
            yield root.problem("the key 'alphabet' is missing: the characters in the order of the network's classes")
        if "labels" in plain:
            yield root.problem("labels are for classes; the task read has an alphabet", "labels")
    elif (task := plain.get("task")) in WITHOUT_LABELS and "labels" in plain:
        yield root.problem(f"labels are for classes, and the task {task} has none: leave labels out", "labels")
    elif "task" in plain:
        for key in ("alphabet", "blank"):
            if key in plain:
                yield root.problem(f"{key} is for task: read, not for {plain['task']}", key)


_LEVELS = 255
_LOWEST_SPREAD = 0.1
"""Between the input's values for black and for white, at least: a network sees less as a plain picture."""
_ROUNDING = 1e-6


def _of_pixel_range(root: YamlNode, plain: dict[str, Any]) -> Iterator[Problem]:
    """Yield problems with `mean` and `std` that are not in the units that `scale` leaves the pixels in."""
    keys = plain.get("input")
    if not isinstance(keys, dict):
        return
    try:
        scale = above_zero(keys.get("scale", 1))
        mean = per_channel(keys.get("mean", 0))
        std = per_channel(keys.get("std", 1), read=above_zero)
    except ValueError:
        return  # a problem of the key itself
    text = _mean_problem(keys, scale, mean)
    if text:
        yield root.value["input"].problem(text, "mean")
    text = _std_problem(keys, scale, std)
    if text:
        yield root.value["input"].problem(text, "std" if "std" in keys else "scale")


def _mean_problem(keys: dict[str, Any], scale: float, mean: Sequence[float]) -> str:
    """Return what is wrong with a mean that black and white pixels do not enclose; empty if nothing is."""
    white = _LEVELS * scale
    what = f"input.mean {keys.get('mean')} is %s, since scale {keys.get('scale', 1)} turns pixels into 0 to {white:g}"
    rule = "a value is (pixel * scale - mean) / std"
    if min(mean) < 0:
        return f"{what % 'below 0'}, and {rule}: write the mean without its sign"
    if max(mean) > white * (1 + _ROUNDING):
        levels = max(mean) <= _LEVELS
        fix = f"for (pixel - mean) * scale, write scale: 1, the same mean, and std: {1 / scale:g}"
        return f"{what % 'above white'}, and {rule}; {fix if levels else 'give the mean in these units'}"
    if any(0 < channel < scale * (1 - _ROUNDING) for channel in mean):
        return f"{what % 'less than one of 255 levels'}; for a mean of pixels from 0 to 1, write scale: 1/255"
    return ""


def _std_problem(keys: dict[str, Any], scale: float, std: Sequence[float]) -> str:
    """Return what is wrong with the spread of the values that `scale` and `std` leave; empty if nothing is."""
    white = _LEVELS * scale
    spreads = white / max(std), white / min(std)
    fits = spreads[0] >= _LOWEST_SPREAD * (1 - _ROUNDING) and spreads[1] <= _LEVELS * (1 + _ROUNDING)
    if fits:
        return ""
    spread = spreads[0] if spreads[0] < _LOWEST_SPREAD else spreads[1]
    text = (
        f"black and white are {spread:.3g} apart in the network's input, and {_LOWEST_SPREAD:g} to {_LEVELS} are usual"
    )
    if "std" not in keys:
        return f"input.scale {keys['scale']} is wrong: {text}; write scale: 1/255 for values from 0 to 1"
    units = (
        "scale: 1, for a std of pixels from 0 to 255" if spread < 1 else "scale: 1/255, for a std of pixels from 0 to 1"
    )
    return f"input.std {keys['std']} does not belong to scale {keys.get('scale', 1)}: {text}; write {units}"


def _problems(root: YamlNode, errors: list[Any]) -> Iterator[Problem]:
    """Return pydantic's errors as problems.

    A missing key is omitted if an unknown key may be a misspelling of it; `skeleton`, if `keypoints` is wrong.
    """
    places = {error["loc"] for error in errors}
    for error in errors:
        *path, key = error["loc"]
        if key == "skeleton" and ("keypoints",) in places:
            continue
        parent = root.follow(path)[0]
        name = ".".join(error["loc"])
        names = list((_NESTED[path[0]] if path else CardKeys).__annotations__)
        if error["type"] == "missing":
            if key not in {nearest(other, names) for other in parent.value if other not in names}:
                yield parent.problem(f"the key '{name}' is missing")
        elif error["type"] == "extra_forbidden":
            yield parent.problem(f"a card has no key '{name}'{did_you_mean(key, names, all_if_few=True)}", key)
        else:
            yield parent.value[key].problem(f"{name} {_text(error)}")


def _text(error: Any) -> str:
    """Return what the value must be."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    example = "{size: [640, 640], color: rgb}" if error["loc"] == ("input",) else "{tokenizer: tokenizer.json}"
    return f"must be a mapping such as {example}, got {error['input']!r}"
