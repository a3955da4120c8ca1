# SPDX-License-Identifier: Apache-2.0
"""Comparison of two networks of one card on frames: whether they find the same, how accurate they are, how fast.

For `models quantize` and `models convert`: the original network and the one made from it.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Array, Detections, Device, Frame
from streamkit.core.errors import ModelError, needs
from streamkit.core.yaml_tree import load_file
from streamkit.models import families
from streamkit.models.card import Card, family_of
from streamkit.models.check import same_places
from streamkit.models.finder import frame_tensor
from streamkit.models.session import Session
from streamkit.ops.boxes import iou_matrix
from streamkit.ops.transfer import fetch

IOU = 0.5
"""Least IoU of two boxes of one object."""
_MIN_SCORE = 0.01
"""Boxes from here on count for AP, as in COCO."""
_NEAR = 0.5
"""An object may have a score this much lower, as a share of the card's threshold, in the other network."""
_ROUNDS = 15
_TIME_S = 6.0


@dataclass(frozen=True, slots=True)
class CardComparison:
    """Result of a comparison.

    Attributes:
        frames: number of frames compared.
        objects: number of objects, or of frames if the network has none.
        agreement: share of the objects that both networks find; of frames with the same best class or mean cosine for
            networks of vectors; of places of the same class for maps.
        score_error: mean difference of the scores of objects that both find.
        ap: AP of the original and of the new network: with `truth`, COCO's AP at IoU .50 to .95; without, AP at IoU .50
            with the original's objects as truth; None for networks without boxes.
        truth: whether `ap` is against ground truth.
        ms: milliseconds for one frame of the original and of the new network, medians of alternating runs.
        speedup: median of the ratios of these pairs.
        place: where both ran.
    """

    frames: int
    objects: int
    agreement: float
    score_error: float
    ap: tuple[float, float] | None
    truth: bool
    ms: tuple[float, float]
    speedup: float
    place: str

    @property
    def loss(self) -> float:
        """What the new network loses of agreement or of AP, whichever is more."""
        return max(1.0 - self.agreement, self.ap[0] - self.ap[1] if self.ap else 0.0)

    def lines(self) -> Iterator[str]:
        """Yield the results as lines of text."""
        if self.ap is None:
            yield f"agreement  {self.agreement:.2%} over {self.frames} frames"
        else:
            yield (
                f"agreement  {self.agreement:.1%} of {self.objects} objects in {self.frames} frames are found by both "
                f"(same class, IoU {IOU:g}); scores differ by {self.score_error:.3f} on average"
            )
            against = "ground truth, IoU .50 to .95" if self.truth else "the original's objects, IoU .50"
            yield f"AP         {self.ap[0]:.3f} -> {self.ap[1]:.3f} against {against}"
        before, after = self.ms
        yield (
            f"speed      {before:.1f} -> {after:.1f} ms a frame on {self.place}, the network alone: "
            f"{self.speedup:.2f} times as fast"
        )


class PictureTruth(NamedTuple):
    """Ground truth in COCO's format.

    Attributes:
        data: the file's content: `images`, `annotations`, `categories`.
        image_ids: by the name of the image's file, without folders.
        categories: the id of each of the card's labels; None for a label that the truth lacks.
    """

    data: Mapping[str, Any]
    image_ids: Mapping[str, int]
    categories: tuple[int | None, ...]


def read_truth(path: Path, card: Card) -> PictureTruth:
    """Read ground truth, a JSON file in COCO's format.

    Raises:
        ModelError: it cannot be read, or none of its categories is a label of the card.
    """
    root, _ = load_file(path)
    data = root.plain()
    lists = isinstance(data, dict) and all(
        isinstance(data.get(key), list) for key in ("images", "annotations", "categories")
    )
    if not lists:
        raise ModelError(f"{path} is not ground truth in COCO's format: a mapping with images, annotations, categories")
    try:
        ids = {str(category["name"]): int(category["id"]) for category in data["categories"]}
        image_ids = {Path(image["file_name"]).name: int(image["id"]) for image in data["images"]}
        boxes = [
            {
                "area": box["bbox"][2] * box["bbox"][3],
                "iscrowd": 0,
                **box,
                "image_id": int(box["image_id"]),
                "category_id": int(box["category_id"]),
                "id": int(box["id"]),
            }
            for box in data["annotations"]
        ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} is not ground truth in COCO's format: images need id and file_name, categories id and name, "
            f"annotations id, image_id, category_id and bbox; ids are whole numbers ({error})"
        ) from None
    categories = tuple(ids.get(label) for label in card.labels)
    if not any(category is not None for category in categories):
        raise ModelError(f"{path} has none of the labels of {card.name}; its categories are {', '.join(list(ids)[:8])}")
    return PictureTruth({**data, "annotations": boxes}, image_ids, categories)


def compare_cards(
    card: Card, converted: Card, frames: Iterable[Frame], device: Device, truth: PictureTruth | None = None
) -> CardComparison:
    """Compare a card's network with the one made from it.

    Args:
        card: the original, as from `check_model`.
        converted: the same with the new file, as from `check_model`.
        frames: frames on the host, read once. With `truth`, those of its images.
        device: where both networks run.
        truth: ground truth for the frames.

    Raises:
        ModelError: there are no frames.
        MissingPackage: `pycocotools` is not installed.
    """
    if device.kind == "cpu":
        return _compare(card, converted, frames, device, truth)
    with device.xp.cuda.Device(device.index), device.xp.cuda.Stream(non_blocking=True):
        return _compare(card, converted, frames, device, truth)


def _compare(
    card: Card, converted: Card, frames: Iterable[Frame], device: Device, truth: PictureTruth | None
) -> CardComparison:
    sides = _Network(card, device), _Network(converted, device)
    reads = sides[0].reads
    kind = "semantic" if reads.regions else card.task
    if reads.numbers:
        kind = "numbers"
    tally = _TALLIES.get(kind, _Boxes)(card, truth)
    first: Frame | None = None
    count = 0
    for frame in frames:
        first = first or frame
        count += 1
        tally.add(frame, *(side.outputs(frame) for side in sides))
    if first is None:
        raise ModelError(f"there are no frames to compare {converted.file.name} with {card.file.name}")
    result: CardComparison = tally.result(count, _speed(sides, first))
    return result


class _Outputs(NamedTuple):
    """The decoded results of a network for one frame: objects, or one array."""

    table: Detections | None
    array: np.ndarray | None


class _Network:
    """One side of the comparison."""

    def __init__(self, card: Card, device: Device) -> None:
        self.card = card
        self.reads = family_of(card)
        self.device = device
        self.session = Session(card.file, device, ignore_outputs=card.ignore_outputs)

    def outputs(self, frame: Frame) -> _Outputs:
        feeds, geometry, sizes = self.feeds(frame)
        outputs = self.session.run(feeds)
        classes = len(self.card.labels)
        if self.reads.regions:
            return _Outputs(None, fetch([self.reads.maps(outputs, classes)])()[0][0])  # type: ignore[attr-defined]
        if self.card.task == "depth":
            return _Outputs(None, fetch([self.reads.maps(outputs)])()[0][0])  # type: ignore[attr-defined]
        if self.card.task == "read":
            best = self.reads.best(outputs, classes, self.card.blank)  # type: ignore[attr-defined]
            return _Outputs(None, fetch([best])()[0][0, :, 0])
        if self.card.task in ("classify", "embed", "anomaly", "action"):
            vectors = fetch([self.reads.vectors(outputs)])()[0]  # type: ignore[attr-defined]
            return _Outputs(None, self.reads.finish(vectors)[0])  # type: ignore[attr-defined]
        return _Outputs(self._table(outputs, geometry, sizes), None)

    def feeds(self, frame: Frame) -> tuple[dict[str, Array], np.ndarray, np.ndarray]:
        tensor, geometry, sizes = frame_tensor(self.card, frame, self.device)
        return {self.session.image_input: tensor, **self.reads.extra_inputs(sizes, self.device.xp)}, geometry, sizes

    def _table(self, outputs: Mapping[str, Array], geometry: np.ndarray, sizes: np.ndarray) -> Detections:
        """Return the objects without masks, which are kept for all frames."""
        card = self.card
        reads = self.reads
        options = families.ReadOptions(np.full(max(1, len(card.labels)), _MIN_SCORE, np.float32), iou=card.iou)
        packed = reads.read(outputs, geometry, sizes, card.input.size, options)
        rows, counts, _ = packed.over(fetch([packed.buffer])()[0], packed.rows.shape)
        return families.unpack(rows, counts, card.labels, reads.columns)


def calibration_feeds(card: Card, frames: Iterable[Frame]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the network's inputs for each frame, (1, ...) on the host; repeated where the file's batch is fixed."""
    session = Session(card.file, Device())
    reads = family_of(card)
    for frame in frames:
        tensor, _, sizes = frame_tensor(card, frame, Device())
        feeds = {session.image_input: tensor, **reads.extra_inputs(sizes, np)}
        yield {
            name: np.repeat(feed, session.fixed_batch or 1, axis=0)
            for name, feed in feeds.items()
            if name in session.inputs
        }


class _Speed(NamedTuple):
    """The last attributes of a `CardComparison`."""

    ms: tuple[float, float]
    speedup: float
    place: str


def _speed(sides: tuple[_Network, _Network], frame: Frame) -> _Speed:
    """Time both networks on a frame, in alternating runs."""
    device = sides[0].device
    times: tuple[list[float], list[float]] = ([], [])
    feeds = [side.feeds(frame)[0] for side in sides]
    started = time.perf_counter()
    for number in range(_ROUNDS + 1):
        for side, feed, side_times in zip(sides, feeds, times, strict=True):
            start = time.perf_counter()
            side.session.run(feed)
            if device.kind != "cpu":
                device.xp.cuda.get_current_stream().synchronize()
            if number:  # the first run of each allocates and tunes
                side_times.append(1000 * (time.perf_counter() - start))
        if number > 2 and time.perf_counter() - started > _TIME_S:
            break
    before, after = times
    ratio = statistics.median(before_ms / after_ms for before_ms, after_ms in zip(before, after, strict=True))
    place = "one CPU thread" if device.kind == "cpu" else str(device)
    return _Speed((statistics.median(before), statistics.median(after)), ratio, place)


# ------------------------------------------------------------------------------------------------- kinds of results


@dataclass(slots=True)
class _Boxes:
    """Objects with boxes, from both networks."""

    card: Card
    truth: PictureTruth | None
    both: int = 0
    objects: int = 0
    score_errors: list[float] = field(default_factory=list)
    tables: list[tuple[int, Detections, Detections]] = field(default_factory=list)

    def add(self, frame: Frame, before: _Outputs, after: _Outputs) -> None:
        """Compare the objects of a frame, and keep them for AP."""
        old = before.table
        new = after.table
        assert old is not None
        assert new is not None
        for these, others in ((old, new), (new, old)):
            sure = these.score >= self.card.score
            near = others.score >= _NEAR * self.card.score
            ious = iou_matrix(these.xyxy[sure], others.xyxy[near])
            ious = np.where(these.class_id[sure][:, None] == others.class_id[near][None], ious, 0.0)
            best = ious.argmax(axis=1) if ious.size else np.zeros(0, int)
            matched = ious[np.arange(len(best)), best] >= IOU
            errors = np.abs(these.score[sure][: len(best)] - others.score[near][best])
            self.score_errors += errors[matched].tolist()
            self.both += int(matched.sum())
            self.objects += int(sure.sum())
        number = self.truth.image_ids.get(frame.source) if self.truth else len(self.tables)
        if number is not None:
            self.tables.append((number, old, new))

    def result(self, frames: int, speed: _Speed) -> CardComparison:
        """Return the comparison."""
        agreement = self.both / self.objects if self.objects else 1.0
        error = statistics.fmean(self.score_errors) if self.score_errors else 0.0
        ap = self._against_truth(self.truth) if self.truth else self._against_original()
        return CardComparison(frames, self.objects // 2, agreement, error, ap, self.truth is not None, *speed)

    def _against_truth(self, truth: PictureTruth) -> tuple[float, float]:
        used = {number for number, *_ in self.tables}
        data = {
            "images": [image for image in truth.data["images"] if image["id"] in used],
            "annotations": [box for box in truth.data["annotations"] if box["image_id"] in used],
            "categories": truth.data["categories"],
        }
        first, second = (
            [row for number, *sides in self.tables for row in _coco_rows(number, sides[side], truth.categories)]
            for side in (0, 1)
        )
        return _average_precision(data, first, 0), _average_precision(data, second, 0)

    def _against_original(self) -> tuple[float, float]:
        """Return AP over all objects at once: averaged over classes, a class with one object would decide it.

        Objects of the original just below the card's threshold count neither as found nor as false, as a crowd in COCO.
        """
        categories = tuple(range(max(1, len(self.card.labels))))
        truth = list[dict[str, Any]]()
        predictions = list[dict[str, Any]]()
        for number, old, new in self.tables:
            rows = _coco_rows(number, old, categories)
            truth += [row for row in rows if row["score"] >= _NEAR * self.card.score]
            predictions += _coco_rows(number, new, categories)
        for row in (
            *truth,
            *predictions,
        ):  # objects of different classes never match: each class gets images of its own
            row |= {"image_id": row["image_id"] * len(categories) + row["category_id"], "category_id": 0}
        for number, row in enumerate(truth, 1):
            below = row["score"] < self.card.score
            row |= {"id": number, "iscrowd": int(below), "area": row["bbox"][2] * row["bbox"][3]}
        if all(row["iscrowd"] for row in truth):
            raise ModelError(
                f"{self.card.file.name} finds no object with a score of {self.card.score:g} or more in these "
                f"{len(self.tables)} frames: name clips that show what it detects"
            )
        data = {
            "images": [{"id": number} for number in range(len(self.tables) * len(categories))],
            "annotations": truth,
            "categories": [{"id": 0, "name": "object"}],
        }
        return 1.0, _average_precision(data, predictions, 1)


def _coco_rows(number: int, table: Detections, categories: tuple[int | None, ...]) -> list[dict[str, Any]]:
    """Return a frame's objects as rows of a result file in COCO's format."""
    rows = []
    for (x1, y1, x2, y2), score, class_id in zip(
        table.xyxy.tolist(), table.score.tolist(), table.class_id.tolist(), strict=True
    ):
        if (category := categories[class_id]) is not None:
            bbox = [x1, y1, x2 - x1, y2 - y1]
            rows.append({"image_id": number, "category_id": category, "bbox": bbox, "score": score})
    return rows


def _average_precision(data: Mapping[str, Any], rows: list[dict[str, Any]], which: int) -> float:
    """Return a value of COCO's summary: 0 for AP at IoU .50 to .95, 1 for AP at .50."""
    with needs("pycocotools", "quantize", "comparing networks"):
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    if not rows:
        return 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = dict(data)
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(rows), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return float(run.stats[which])


@dataclass(slots=True)
class _Arrays:
    """Vectors or class maps of both networks: the mean of one number for each frame."""

    card: Card
    truth: PictureTruth | None
    same: list[float] = field(default_factory=list)

    def add(self, frame: Frame, before: _Outputs, after: _Outputs) -> None:
        """Compare the arrays of a frame."""
        old = before.array
        new = after.array
        assert old is not None
        assert new is not None
        self.same.append(self.likeness(old, new))

    def likeness(self, old: np.ndarray, new: np.ndarray) -> float:
        """Return the share of equal places."""
        return float((old == new).mean())

    def result(self, frames: int, speed: _Speed) -> CardComparison:
        """Return the comparison."""
        return CardComparison(frames, frames, statistics.fmean(self.same), 0.0, None, False, *speed)


class _BestClasses(_Arrays):
    def likeness(self, old: np.ndarray, new: np.ndarray) -> float:
        return float(old.argmax() == new.argmax())


class _Numbers(_Arrays):
    def likeness(self, old: np.ndarray, new: np.ndarray) -> float:
        """Return the share of numbers that are the same to one unit, such as a degree."""
        return float((np.abs(old - new) <= 1).mean())


class _Embeddings(_Arrays):
    def likeness(self, old: np.ndarray, new: np.ndarray) -> float:
        length = float(np.linalg.norm(old) * np.linalg.norm(new))
        return float(np.dot(old, new)) / length if length else 0.0


class _Depths(_Arrays):
    def likeness(self, old: np.ndarray, new: np.ndarray) -> float:
        return same_places(old, new)


class _Scores(_Arrays):
    def likeness(self, old: np.ndarray, new: np.ndarray) -> float:
        return 1 - float(np.abs(old - new).max())


_TALLIES: dict[str, Any] = {
    "action": _BestClasses,
    "classify": _BestClasses,
    "numbers": _Numbers,
    "embed": _Embeddings,
    "semantic": _Arrays,
    "depth": _Depths,
    "anomaly": _Scores,
    "read": _Arrays,
}
"""How results are compared, by task; objects with boxes by default."""
