# SPDX-License-Identifier: Apache-2.0
"""What Ultralytics and YOLOv5 exports say of themselves: the metadata in the ONNX file.

`task`, `names`, `imgsz`, `stride`, `kpt_shape`, `license` and `description` as written by
https://github.com/ultralytics/ultralytics (engine/exporter.py); the export of https://github.com/ultralytics/yolov5
writes `stride` and `names` only. The inputs are those of their predictors: letterbox in the middle on gray 114, RGB,
1/255; classifiers resize the short side and crop the middle, without mean and deviation.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from streamkit.models.facts import CardFact, CardFacts, need
from streamkit.models.families import FAMILIES
from streamkit.models.network_file import ModelInfo

_RTDETR = ("rtdetr", "rtdetr_e2e")


def from_metadata(info: ModelInfo) -> CardFacts:
    """Return what the file's own metadata say; nothing if they are not of Ultralytics.

    Raises:
        ValueError: a value cannot be read, or no family reads networks of this task.
    """
    metadata = info.metadata
    facts = CardFacts()
    if "names" not in metadata or not ("stride" in metadata or "task" in metadata):
        return facts
    origin = f"the metadata of {info.file.name}"
    facts.add(f"{origin} (names)", labels=_names(metadata["names"], origin))
    facts.about = metadata.get("description", "")
    if metadata.get("license"):
        facts.add(f"{origin} (license)", license=metadata["license"].split()[0])
    task = metadata.get("task")
    facts.families = _families(task or "", origin)
    if task == "detect" and "head" in metadata:  # exports before version 8.4 do not name it
        is_rtdetr = metadata["head"] == "RTDETRDecoder"
        facts.families = tuple(name for name in facts.families if (name in _RTDETR) == is_rtdetr)
    if task is not None:
        facts.add(f"{origin} (task: {task})", task=FAMILIES[facts.families[0]].task)
    if "imgsz" in metadata:
        facts.add(f"{origin} (imgsz, height and width)", input_size=_size(metadata["imgsz"], origin))
    if metadata.get("stride", "").isdigit() and int(metadata["stride"]) > 0:
        facts.stride = CardFact(int(metadata["stride"]), f"{origin} (stride)")
    if task == "classify":
        line = "Ultralytics' predictor of task: classify"
        facts.add(line, input_resize="crop", input_antialias=True, input_color="rgb", input_scale="1/255")
        facts.add(line, input_mean=0, input_std=1)
    if task == "semantic":
        line = "Ultralytics' predictor of task: semantic"
        facts.add(line, input_resize="letterbox", input_anchor="center", input_pad=114, input_color="rgb")
        facts.add(line, input_scale="1/255", input_mean=0, input_std=1)
    if task == "depth":
        line = "Ultralytics' predictor of task: depth"
        facts.add(line, input_resize="stretch", input_color="rgb", input_scale="1/255", input_mean=0, input_std=1)
    if task == "pose":
        _points(metadata, origin, facts)
    return facts


def _families(task: str, origin: str) -> tuple[str, ...]:
    by_name = {name: declared.traits.ultralytics for name, declared in FAMILIES.items()}
    tasks = sorted({task_of_family for tasks in by_name.values() for task_of_family in tasks if task_of_family})
    families = tuple(name for name, tasks in by_name.items() if task in tasks)
    need(
        families,
        f"task is {task!r} in {origin}, and no family reads it; the tasks are {', '.join(tasks)}; export "
        "a network of one of these, or write a family in a plugin",
    )
    return families


def _literal(key: str, text: str, origin: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"{key} in {origin} is not a list or mapping: {text[:60]!r}; export the network again, or write a card"
        ) from None


def _names(text: str, origin: str) -> tuple[str, ...]:
    """Read the class names, a mapping from number to name, or a list."""
    names_or_numbers = _literal("names", text, origin)
    names = dict(enumerate(names_or_numbers)) if isinstance(names_or_numbers, (list, tuple)) else names_or_numbers
    numbered = isinstance(names, Mapping) and names and sorted(map(str, names)) == sorted(map(str, range(len(names))))
    need(
        numbered,
        f"names in {origin} must number the classes from 0 without gaps, got {text[:60]!r}; write a card "
        "with the labels",
    )
    return tuple(str(name) for _, name in sorted(names.items(), key=lambda item: int(item[0])))


def _size(text: str, origin: str) -> list[int]:
    imgsz = _literal("imgsz", text, origin)
    sides = (imgsz, imgsz) if isinstance(imgsz, int) else imgsz
    whole = (
        isinstance(sides, (list, tuple)) and len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
    )
    need(whole, f"imgsz in {origin} must be height and width, got {text!r}; write a card with input.size")
    height, width = sides
    return [width, height]


def _points(metadata: Mapping[str, str], origin: str, facts: CardFacts) -> None:
    """Add the keypoints and their number: COCO's for a person with 17 of them."""
    shape = _literal("kpt_shape", metadata.get("kpt_shape", "(17, 3)"), origin)
    two = isinstance(shape, (list, tuple)) and len(shape) == 2
    need(
        two and shape[1] == 3,
        f"kpt_shape is {shape} in {origin}; a keypoint must have x, y and a score: train with kpt_shape [points, 3]",
    )
    if "kpt_shape" in metadata:
        facts.points = CardFact(shape[0], f"{origin} (kpt_shape)")
    if shape[0] == 17 and facts.by_key["labels"].value == ("person",):
        facts.add(f"{origin} (kpt_shape: 17 points of a person)", keypoints="coco")
