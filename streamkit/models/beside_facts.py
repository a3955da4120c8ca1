# SPDX-License-Identifier: Apache-2.0
"""What the files beside a network say of it: Hugging Face's, Roboflow's, and lists of labels.

Hugging Face: `config.json` (architectures, model_type, id2label) and `preprocessor_config.json`, read as its image
processors do (https://github.com/huggingface/transformers). A network in a folder `onnx/` has them one folder up.
Roboflow: `environment.json` (PREPROCESSING, CLASS_LIST) and `class_names.txt`, read as in
https://github.com/roboflow/inference.
PaddleDetection: `infer_cfg.yml` (Preprocess, label_list, draw_threshold), read as its deploy/python/preprocess.py does
(https://github.com/PaddlePaddle/PaddleDetection).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamkit.core.errors import ConfigError
from streamkit.core.yaml_tree import load_file
from streamkit.models.facts import CardFact, CardFacts, need
from streamkit.models.families import FAMILIES

LABEL_FILES = ("labels.txt", "classes.txt", "class_names.txt", "data.yaml")
_VIDEO_STEPS = "video_preprocessor_config.json"
_JSON_FILES = ("config.json", "preprocessor_config.json", _VIDEO_STEPS, "environment.json")
_PADDLE_FILE = "infer_cfg.yml"

_SOFTMAX = ("detr", "yolos", "table-transformer")
"""Model types whose last class is no object, chosen by a softmax as in the first DETR."""
_FILTERS = {0: "nearest", 1: "lanczos", 3: "bicubic", 4: "box", 5: "hamming"}
"""Pillow's filters by number, but for 2, the bilinear one that a card's `antialias` is."""
_BY_HAND = "; write a card for this network: streamkit models new"


def companions(file: Path) -> list[Path]:
    """Return the files beside a network from which its card may be derived, those that exist."""
    names = (*LABEL_FILES, *_JSON_FILES, _PADDLE_FILE)
    return [folder / name for folder in _folders(file) for name in names if (folder / name).is_file()]


def _folders(file: Path) -> list[Path]:
    parent = file.absolute().parent
    return [parent, parent.parent] if parent.name == "onnx" else [parent]


def _read(file: Path, name: str) -> tuple[Path, dict[str, Any]] | None:
    """Return a JSON file beside the network and its content; None if there is none."""
    path = next((folder / name for folder in _folders(file) if (folder / name).is_file()), None)
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None
    need(isinstance(content, dict), f"{path} must hold a JSON mapping, got {type(content).__name__}")
    return path, content


# ------------------------------------------------------------------------------------------------------ Hugging Face


def from_hugging_face(file: Path) -> CardFacts:
    """Return what `config.json` and the image or video processor's file say; nothing if the network has none.

    Raises:
        ValueError: a file cannot be read, or asks for a resize that a card does not have.
    """
    facts = CardFacts()
    config = _read(file, "config.json")
    steps = _read(file, "preprocessor_config.json") or _read(file, _VIDEO_STEPS)
    if config is not None and ("architectures" in config[1] or "id2label" in config[1]):
        _add_config(facts, *config)
    if steps is not None:
        _add_steps(facts, *steps)
    return facts


def _add_config(facts: CardFacts, path: Path, config: Mapping[str, Any]) -> None:
    name = next(iter(config.get("architectures") or ()), "")
    kind = name.rpartition("For")[2]
    families = [declared for declared in FAMILIES.values() if kind and declared.traits.hugging_face == kind]
    if families:
        facts.families = _depth_forms(config) or tuple(declared.name for declared in families)
        facts.add(f"{path.name} (architectures: {name})", task=families[0].task)
        facts.about = name
    labels = config.get("id2label")
    if isinstance(labels, Mapping) and labels:
        numbered = sorted(labels) == sorted(str(number) for number in range(len(labels)))
        need(numbered, f"id2label in {path} must number the classes from 0 without gaps{_BY_HAND}")
        names = tuple(str(labels[str(number)]) for number in range(len(labels)))
        facts.add(f"{path.name} (id2label)", labels=names)
    if (not families or families[0].traits.selects) and config.get("model_type") in _SOFTMAX:
        facts.add(f"{path.name} (model_type: {config['model_type']})", select="softmax")


_METRIC = ("zoedepth", "depth_pro")
"""Model types whose depth is in meters; Depth Anything's `depth_estimation_type` says it of each network."""


def _depth_forms(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the family of a network for depth whose files say the form of its values; () for others."""
    form = "metric" if config.get("model_type") in _METRIC else config.get("depth_estimation_type")
    if form is None and config.get("model_type") == "depth_anything":
        form = "relative"  # the default, which is not written
    return {"metric": ("metric_depth",), "relative": ("inverse_depth",)}.get(str(form), ())


def _add_steps(facts: CardFacts, path: Path, steps: Mapping[str, Any]) -> None:
    """Add an image processor's steps: resize, crop, rescale, normalize."""
    _add_resize(facts, path, steps)
    channels = "bgr" if steps.get("do_flip_channel_order") else "rgb"
    facts.add(f"{path.name} (do_flip_channel_order)", input_color=channels)
    factor: float = 1
    if steps.get("do_rescale", True):
        factor = _number(path, "rescale_factor", steps.get("rescale_factor", 1 / 255))
    inverse = round(1 / factor)
    scale = f"1/{inverse}" if inverse > 1 and abs(1 / factor - inverse) < 1e-3 else factor
    facts.add(f"{path.name} (do_rescale, rescale_factor)", input_scale=scale)
    mean: Any = 0
    std: Any = 1
    if steps.get("do_normalize", "image_mean" in steps):
        mean = steps.get("image_mean")
        std = steps.get("image_std")
        for key, value in (("image_mean", mean), ("image_std", std)):
            need(
                value is not None,
                f"{path} normalizes (do_normalize) without {key}, so it takes the default of its "
                f"image processor; write the numbers there",
            )
            three = value if isinstance(value, list) and len(value) == 3 else [value]
            numbers = all(
                type(factor_of) in (int, float) and (factor_of > 0 or key == "image_mean") for factor_of in three
            )
            need(numbers, f"{key} in {path} must be a number or three{_ABOVE[key]}, got {json.dumps(value)}")
    facts.add(f"{path.name} (do_normalize, image_mean, image_std)", input_mean=mean, input_std=std)


_ABOVE = {"image_mean": "", "image_std": " above 0"}


def _number(path: Path, key: str, value: Any) -> float:
    """Return a number of a JSON file. Raises ValueError unless it is one above 0."""
    number = type(value) in (int, float) and 0 < value < float("inf")
    need(number, f"{key} in {path} must be a number above 0, got {json.dumps(value)}")
    return float(value)


def _side(path: Path, key: str, value: Any) -> int:
    """Return a width or height of a JSON file, where it may be text. Raises ValueError unless it is a whole number."""
    whole = type(value) is int or (isinstance(value, str) and value.isdecimal())
    need(whole and int(value) > 0, f"{key} in {path} must be a number of pixels, got {json.dumps(value)}")
    return int(value)


def _sides(path: Path, key: str, value: Mapping[str, Any]) -> list[int]:
    """Return width and height of a mapping in a JSON file."""
    return [_side(path, f"{side} of {key}", value.get(side)) for side in ("width", "height")]


def _add_resize(facts: CardFacts, path: Path, steps: Mapping[str, Any]) -> None:
    if not steps.get("do_resize", True):
        return
    if steps.get("do_affine_transform"):  # of a box, in the aspect ratio of the input
        facts.add(f"{path.name} (size)", input_size=_sides(path, "size", steps.get("size") or {}))
        facts.add(f"{path.name} (do_affine_transform)", input_resize="letterbox", input_anchor="center", input_pad=0)
        return
    resample = steps.get("resample", 2)
    facts.add(f"{path.name} (resample)", input_antialias=resample != 0)
    if resample in _FILTERS:
        facts.note = (
            f"{path.name} resizes with the {_FILTERS[resample]} filter (resample: {resample}), and streamkit with the "
            f"bilinear one{'' if resample == 0 else ', antialiased'}; scores may differ slightly from the authors'"
        )
    if steps.get("keep_aspect_ratio"):
        facts.note += (
            f"{'; ' if facts.note else ''}{path.name} keeps the aspect ratio of a frame, and an input of streamkit has "
            "one size; export the network in the shape of your frames, such as 924x518 for 16:9"
        )
    size = steps.get("size")
    crop = steps.get("crop_size") if steps.get("do_center_crop") else None
    if isinstance(size, int):
        size = {"shortest_edge": size} if crop else {"height": size, "width": size}
    size = {key: side for key, side in size.items() if side is not None} if isinstance(size, Mapping) else {}
    shortest = size.get("shortest_edge")
    if shortest is not None:
        shortest = _side(path, "shortest_edge of size", shortest)
    share = steps.get("crop_pct")
    if share is not None and shortest is not None and shortest < 384:  # ConvNeXt: resize to more, crop to this
        crop = {"height": shortest, "width": shortest}
        size = {"shortest_edge": int(shortest / _number(path, "crop_pct", share))}
    elif share is not None and shortest is not None:
        size = {"height": shortest, "width": shortest}
    if isinstance(crop, int):
        crop = {"height": crop, "width": crop}
    crop = crop if isinstance(crop, Mapping) else None
    if crop and "shortest_edge" in size:
        facts.add(f"{path.name} (size, do_center_crop)", input_resize="crop", input_resize_to=size["shortest_edge"])
        facts.add(f"{path.name} (crop_size)", input_size=_sides(path, "crop_size", crop))
        return
    shorter = size.get("shortest_edge")
    if shorter and not crop:
        such = json.dumps({"height": shorter, "width": size.get("longest_edge") or shorter})
        raise ValueError(
            f"{path} resizes the shorter side to {shorter} pixels, so the input's shape depends on the frame's, and an "
            f'input of streamkit has one size; write a fixed one there, such as "size": {such}, and export the network '
            "with it or with open sizes"
        )
    exact = "height" in size and "width" in size and not steps.get("do_pad_to_square")
    need(
        exact and not crop,
        f"{path} resizes to {json.dumps(steps.get('size'))}, which has no fixed height and width; "
        f"export the network with a fixed input, and write its card{_BY_HAND.partition(':')[1]}"
        f"{_BY_HAND.partition(':')[2]} BEST.onnx --family F",
    )
    facts.add(f"{path.name} (size)", input_size=_sides(path, "size", size), input_resize="stretch")


# ---------------------------------------------------------------------------------------------------------- Roboflow

_RESIZES: dict[str, dict[str, Any]] = {
    "Stretch to": {"input_resize": "stretch"},
    "Fit (black edges) in": {"input_resize": "letterbox", "input_anchor": "center", "input_pad": 0},
    "Fit (white edges) in": {"input_resize": "letterbox", "input_anchor": "center", "input_pad": 255},
    "Fit (grey edges) in": {"input_resize": "letterbox", "input_anchor": "center", "input_pad": 114},
}
_CHANGES = ("grayscale", "contrast", "static-crop")


def from_roboflow(file: Path) -> CardFacts:
    """Return what Roboflow's `environment.json` says; nothing if the network has none.

    Raises:
        ValueError: it cannot be read, or has a step that a card does not have.
    """
    facts = CardFacts()
    entry = _read(file, "environment.json")
    if entry is None:
        return facts
    path, settings = entry
    steps = settings.get("PREPROCESSING", {})
    try:
        steps = json.loads(steps) if isinstance(steps, str) else steps
    except ValueError as error:
        raise ValueError(f"PREPROCESSING in {path} is not JSON: {error}") from None
    need(isinstance(steps, Mapping), f"PREPROCESSING in {path} must hold a JSON mapping, got {type(steps).__name__}")
    for name in _CHANGES:
        enabled = isinstance(steps.get(name), Mapping) and steps[name].get("enabled", True)
        need(not enabled, f"PREPROCESSING in {path} has {name}, which a card cannot do; train a version without it")
    resize = steps.get("resize")
    if isinstance(resize, Mapping) and resize.get("enabled", True):
        form = resize.get("format", "Stretch to")
        need(
            form in _RESIZES,
            f"PREPROCESSING in {path} resizes by {form!r}, and a card can do {', '.join(_RESIZES)}; "
            "train a version with one of these",
        )
        facts.add(f"{path.name} (PREPROCESSING: {form})", **_RESIZES[form])
        if {"width", "height"} <= resize.keys():
            size = _sides(path, "resize in PREPROCESSING", resize)
            facts.add(f"{path.name} (PREPROCESSING)", input_size=size)
    if names := settings.get("CLASS_LIST"):
        need(isinstance(names, list), f"CLASS_LIST in {path} must be a list of names, got {json.dumps(names)}")
        facts.add(f"{path.name} (CLASS_LIST)", labels=tuple(map(str, names)))
    return facts


# -------------------------------------------------------------------------------------------------- PaddleDetection

_INTERPOLATIONS = {0: "nearest", 2: "bicubic", 3: "area", 4: "Lanczos"}
"""OpenCV's filters by number, but for 1, the bilinear one."""


def from_paddle(file: Path) -> CardFacts:
    """Return what PaddleDetection's `infer_cfg.yml` says; nothing if the network has none.

    Raises:
        ValueError: it cannot be read, or has a step that a card does not have.
    """
    facts = CardFacts()
    path = file.absolute().parent / _PADDLE_FILE
    if not path.is_file():
        return facts
    try:
        settings = load_file(path)[0].plain()
    except ConfigError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    steps = settings.get("Preprocess") if isinstance(settings, dict) else None
    need(isinstance(steps, list), f"{path} must be a mapping with the steps of Preprocess{_BY_HAND}")
    by_type = {step.get("type"): step for step in steps or () if isinstance(step, dict)}
    others = by_type.keys() - {"Resize", "NormalizeImage", "Permute"}
    need(
        not others, f"Preprocess in {path} has {', '.join(sorted(map(str, others)))}, which a card cannot do{_BY_HAND}"
    )
    _add_paddle_resize(facts, path, by_type.get("Resize", {}))
    _add_paddle_values(facts, path, by_type.get("NormalizeImage", {}))
    threshold = settings.get("draw_threshold")
    if isinstance(threshold, float) and 0 < threshold < 1:
        facts.add(f"{path.name} (draw_threshold)", score=threshold)
    if names := settings.get("label_list"):
        need(isinstance(names, list), f"label_list in {path} must be a list of names, got {json.dumps(names)}")
        facts.add(f"{path.name} (label_list)", labels=tuple(map(str, names)))
    return facts


def _add_paddle_resize(facts: CardFacts, path: Path, step: Mapping[str, Any]) -> None:
    sides = step.get("target_size")
    need(isinstance(sides, list) and len(sides) == 2, f"{path} must have the target_size of Resize: height and width")
    need(not step.get("keep_ratio"), f"{path} resizes with keep_ratio, which has no fixed height and width{_BY_HAND}")
    height, width = (_side(path, "target_size", side) for side in sides or ())
    facts.add(f"{path.name} (Resize)", input_size=[width, height], input_resize="stretch", input_color="rgb")
    name = _INTERPOLATIONS.get(step.get("interp", 1))
    if name is not None:
        facts.note = (
            f"{path.name} resizes with the {name} filter (interp: {step['interp']}), and streamkit with the bilinear "
            "one; scores may differ slightly from the authors'"
        )


def _add_paddle_values(facts: CardFacts, path: Path, step: Mapping[str, Any]) -> None:
    facts.add(f"{path.name} (is_scale)", input_scale="1/255" if step.get("is_scale", True) and step else 1)
    if not step or step.get("norm_type", "mean_std") == "none":
        facts.add(f"{path.name} (norm_type)", input_mean=0, input_std=1)
        return
    for key in ("mean", "std"):
        three = step.get(key)
        numbers = isinstance(three, list) and len(three) == 3 and all(type(number) in (int, float) for number in three)
        need(numbers, f"{key} of NormalizeImage in {path} must be three numbers, got {json.dumps(three)}")
    facts.add(f"{path.name} (NormalizeImage)", input_mean=step["mean"], input_std=step["std"])


# ------------------------------------------------------------------------------------------------------------ labels


def label_lists(file: Path) -> list[CardFact]:
    """Return the lists of labels beside a network, equal ones once. Raises ValueError if one cannot be read."""
    by_labels: dict[tuple[str, ...], CardFact] = {}
    for folder in _folders(file):
        for path in (folder / name for name in LABEL_FILES):
            if path.is_file():
                fact = read_labels(path)
                by_labels.setdefault(fact.value, fact)
    return list(by_labels.values())


def read_labels(path: Path) -> CardFact:
    """Read a text file with a name per line, or the `names` of a data set's YAML.

    Raises:
        ValueError: it cannot be read, or has no names.
    """
    try:
        if path.suffix not in (".yaml", ".yml"):
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            names: Any = [line.strip() for line in lines if line.strip()]
        else:
            plain = load_file(path)[0].plain()
            names = plain.get("names") if isinstance(plain, dict) else None
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if isinstance(names, dict):
        numbers = sorted(names, key=lambda key: int(key) if str(key).isdigit() else -1)
        need(
            [str(key) for key in numbers] == [str(i) for i in range(len(names))],
            f"names in {path} must number the classes from 0 without gaps, got {', '.join(map(str, numbers))[:60]}",
        )
        names = [names[key] for key in numbers]
    need(isinstance(names, list) and names, f"{path} has no class names: write one per line")
    return CardFact(tuple(map(str, names)), path.name)
