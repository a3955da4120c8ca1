"""Makes objects of the network's outputs."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from streamkit.data import Batch, Detections
from streamkit.stage import BatchStage, Count, Pixels, Score, stage
from streamkit.units import Model
from streamkit.yamlfile import did_you_mean


@stage("postprocess", reads="outputs", writes="detections")
class Postprocess(BatchStage):
    """Read the network's outputs: thresholds, boxes in source pixels, non-max suppression.

    Boxes are clipped at the picture's border, never dropped. What each filter removes is in the report, under
    `boxes removed`.

    Options:
        model: the card of the network; its family says how the outputs are read.
        min_score: the least score of an object, 0 to 1, or one for each class as {car: 0.5, person: 0.3}; classes
            that are not named keep the card's.
        iou: an object whose box overlaps a better one by more than this is dropped; by default the card's.
        agnostic: objects suppress each other whatever their class.
        labels: keep these classes only.
        top_k: at most this many objects a frame, the best.
        min_size: drop boxes whose shorter side is below this, in source pixels.
        max_size: drop boxes whose longer side is above this, in source pixels.
    """

    changeable: ClassVar[tuple[str, ...]] = (
        "min_score", "iou", "agnostic", "labels", "top_k", "min_size", "max_size",
    )  # fmt: skip

    model: Model
    min_score: Score | dict[str, Score] | None = None
    iou: Score | None = None
    agnostic: bool = False
    labels: list[str] | None = None
    top_k: Count = 300
    min_size: Pixels = 0.0
    max_size: Pixels | None = None

    def __post_init__(self) -> None:
        """Refuse labels that the model does not have."""
        named = [*(self.labels or []), *(self.min_score if isinstance(self.min_score, dict) else [])]
        known = self.model.labels
        unknown = [f"no class {name!r}{did_you_mean(name, known)}" for name in named if name not in known]
        if unknown:
            raise ValueError(f"{self.model.name} has {' and '.join(unknown)}")

    def open(self) -> None:
        """Find the network's family, and the threshold of each class."""
        from streamkit.models.families import family

        self._family = family(self.model.family)
        self._table = self.context.id.split(".", 1)[0]
        self._removed: deque[np.ndarray] = deque()
        self.changed()

    def changed(self) -> None:
        """Work out the threshold of each class."""
        from streamkit.models.families import ReadOptions

        card = self.model
        given = self.min_score
        default = given if isinstance(given, (int, float)) else card.score
        scores = np.full(max(1, len(card.labels)), default, np.float32)
        for name, score in given.items() if isinstance(given, dict) else ():
            scores[card.labels.index(name)] = score
        if self.labels is not None:
            scores[[name not in self.labels for name in card.labels]] = np.inf
        self._read = ReadOptions(
            min_score=scores,
            iou=card.iou if self.iou is None else self.iou,
            agnostic=self.agnostic,
            top_k=self.top_k,
            min_size=self.min_size,
            max_size=np.inf if self.max_size is None else self.max_size,
        )

    def process(self, batch: Batch) -> Batch:
        """Add the table named after the stage; on a GPU it is on its way to the host when this returns."""
        from streamkit.models.families import unpack
        from streamkit.ops.transfer import fetch

        assert batch.geometry is not None
        sizes = np.array([(frame.width, frame.height) for frame in batch.frames], np.int64)
        packed = self._family.read(batch.outputs, batch.geometry, sizes, self.model.input.size, self._read)
        wait = fetch([packed.buffer])
        table: dict[str, Detections] = {}

        def take() -> Detections:
            # Branches may ask from two threads: `setdefault` lets one of them win, and only that one counts.
            if "made" not in table:
                rows, counts, _ = packed.over(wait()[0])
                made = unpack(rows, counts, self.model.labels, self._family.columns)
                if table.setdefault("made", made) is made:
                    self._removed.append(counts[:, 1:].sum(axis=0))
            return table["made"]

        batch.tables[self._table] = take() if batch.xp is np else take
        batch.outputs = {}
        self._count()
        return batch

    def close(self) -> None:
        """Count what is left to count."""
        self._count()

    def _count(self) -> None:
        from streamkit.models.families import CAUSES

        while self._removed:
            for cause, n in zip(CAUSES, self._removed.popleft().tolist(), strict=True):
                if n:
                    self.context.counters.add(f"boxes removed: {cause}", n)
