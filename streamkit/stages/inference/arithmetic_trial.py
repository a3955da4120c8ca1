# SPDX-License-Identifier: Apache-2.0
"""Choice of a network's arithmetic while a run begins: faster ones are compared with f32 on the run's first images."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.core.errors import OutputError, describe
from streamkit.engine.errors import EngineError
from streamkit.io.image_file import IMAGE_SUFFIXES
from streamkit.media.spread_frames import first_frames
from streamkit.models.agreement import ArithmeticAgreement, Images
from streamkit.models.arithmetic import F32, Arithmetic
from streamkit.models.arithmetic_choice import ArithmeticChoice, read_choice, write_choice
from streamkit.models.card import Card, family_of
from streamkit.models.layer_check import keep_outside, tensors_outside
from streamkit.models.session import Session
from streamkit.ops.preprocess import preprocess

logger = logging.getLogger(__name__)

_EVERY_S = 0.5
"""Between two comparisons beside a run, each of which costs a run of the network and a copy of its outputs."""
_VIDEOS = 8
"""Of a run of files, the first videos are compared, and the first images."""
_FILE_STEP = 4
"""Of these, every fourth frame is compared before the run begins."""
_FILE_IMAGES = 256
"""Images that are compared before a run of files at most: some seconds of decoding."""
_FAILED_FOR_S = 3600.0
"""How long a choice lasts that a failure caused, such as a lack of memory; the network itself may run."""

Run = Callable[[Session], dict[str, Array]]
"""Runs a session on the images in question."""


class ArithmeticTrial:
    """Compares faster arithmetics with f32, one after the other, and decides.

    Args:
        card: of the network.
        allowed: the arithmetics, the fastest first; the last is f32.
        open_session: opens and warms a session; raises if the network cannot run in the arithmetic.
        file: where the choice is kept.

    Attributes:
        choice: the decision; None as long as there is none.
        session: a session in the chosen arithmetic; None if it is f32.
    """

    def __init__(
        self,
        card: Card,
        allowed: Sequence[Arithmetic],
        open_session: Callable[[Arithmetic], Session],
        file: Any,
    ) -> None:
        self._card = card
        self._allowed = tuple(allowed)
        self._left = [arithmetic for arithmetic in allowed if arithmetic != F32]
        self._open = open_session
        self._file = file
        self._agreement = ArithmeticAgreement(card)
        self._refused: list[str] = []
        self._failed = False
        self._set_apart = set[str]()
        self._openings = 0
        self._next_s = 0.0
        self.choice: ArithmeticChoice | None = None
        self.session: Session | None = None
        self._take_next()

    def is_due(self) -> bool:
        """Whether a run should be compared now: every half second, and at first."""
        return self.choice is None and time.monotonic() >= self._next_s

    def compare(self, reference: Mapping[str, Array], run: Run, images: Images, feeds: Mapping[str, Array]) -> None:
        """Run the network in faster arithmetics too, compare, and decide if there was enough to tell.

        Args:
            reference: outputs in f32.
            run: runs a session on the same images.
            images: which they are.
            feeds: the network's inputs for them.
        """
        compared = 0
        while self.choice is None and self.session is not None and compared != self._openings:
            compared = self._openings
            if self._refuses(self.session, reference, run, images, feeds):
                self._take_next()  # without a reference to the last session: two would be in memory

    def _refuses(
        self,
        session: Session,
        reference: Mapping[str, Array],
        run: Run,
        images: Images,
        feeds: Mapping[str, Array],
    ) -> bool:
        """Compare a run; return whether the next arithmetic is to be tried."""
        other = read_choice(self._file)  # of another process
        if other is not None and other.arithmetic in self._allowed:
            self._decide(other)
            return False
        self._next_s = time.monotonic() + _EVERY_S
        try:
            outputs = run(session)
        except Exception as error:  # of ONNX Runtime, cuDNN or CuPy: the network runs in f32 all the same
            return self._fails(session, f"cannot be used: {describe(error)}")
        self._agreement.add(reference, outputs, images)
        verdict = self._agreement.verdict
        if verdict == "unknown":
            return False
        layers = None
        try:
            if verdict == "different":
                layers = session.check_layers(feeds)
                large = () if layers is None else layers.large
            else:
                large = session.large_tensors(feeds)
        except Exception as error:  # such as a lack of memory
            return self._fails(session, f"cannot be checked: {describe(error)}")
        if self._sets_apart(session, large):
            return True
        if verdict == "same":
            self._write(session.arithmetic, "; ".join([*self._refused, str(self._agreement)]))
            return False
        reason = f"{session.arithmetic} is not used: {self._agreement}"
        self._refused.append(reason if layers is None else f"{reason}, {layers}")
        return True

    def _fails(self, session: Session, why: str) -> bool:
        self._refused.append(f"{session.arithmetic} {why}")
        self._failed = True
        return True

    def _sets_apart(self, session: Session, large: Sequence[str]) -> bool:
        """Let an arithmetic be opened again without tensors whose values are too large; False if there are none."""
        names = sorted(set(large) - session.outside - self._set_apart)
        if not names:
            return False
        self._set_apart.update(names)
        try:
            keep_outside(self._card.file, names)
        except OutputError as error:
            logger.warning(f"{self._card.file.name}: {len(names)} tensors are too large for f16: {error}")
            return False
        logger.info(
            f"{self._card.file.name}: values of {', '.join(names[:3])}{' ...' if names[3:] else ''} are too large for "
            f"f16; {len(names)} tensors are computed outside of the fused engine"
        )
        self._left.insert(0, session.arithmetic)
        return True

    def __str__(self) -> str:
        return str(self._agreement)

    def _take_next(self) -> None:
        """Open the next arithmetic; without one, decide for f32."""
        self.session = None
        self._agreement = ArithmeticAgreement(self._card)
        while self._left and self.session is None:
            arithmetic = self._left.pop(0)
            self._openings += 1
            try:
                self.session = self._open(arithmetic)
            except EngineError as error:
                self._refused.append(f"{arithmetic} cannot be used: {error}")
            except Exception as error:  # of ONNX Runtime, cuDNN or the converter: the network runs in f32 all the same
                self._refused.append(f"{arithmetic} cannot be used: {describe(error)}")
                self._failed = True
        if self.session is None:
            self._write(F32, "; ".join(self._refused) or "no other is allowed")

    def _write(self, arithmetic: Arithmetic, reason: str) -> None:
        """Decide, for all processes and later runs."""
        expires_at_s = time.time() + _FAILED_FOR_S if self._failed else None
        choice = ArithmeticChoice(arithmetic.engine, arithmetic.precision, reason, expires_at_s)
        first = write_choice(self._file, choice)
        self._decide(first if first.arithmetic in self._allowed else choice)

    def _decide(self, choice: ArithmeticChoice) -> None:
        if self.session is not None and not self._is_of(self.session, choice):
            self.session = None
            if choice.arithmetic != F32:
                try:
                    self.session = self._open(choice.arithmetic)
                except Exception as error:  # see `_compare`
                    reason = f"{choice.arithmetic} cannot be used: {describe(error)}"
                    choice = ArithmeticChoice(F32.engine, F32.precision, reason)
        self.choice = choice
        logger.info(f"{self._card.file.name} runs in {choice.arithmetic}: {choice.reason}")

    def _is_of(self, session: Session, choice: ArithmeticChoice) -> bool:
        """Whether a session is what was chosen; another process may have found further tensors too large for f16."""
        same = session.arithmetic == choice.arithmetic
        return same and (choice.engine != "fused" or session.outside >= tensors_outside(self._card.file))


def compare_on_files(
    trial: ArithmeticTrial, reference: Session, card: Card, labels: Sequence[str], files: Sequence[str], batch: int
) -> None:
    """Compare on the first images of files, until there is a decision or there were enough images.

    Args:
        trial: a trial that has started.
        reference: a session in f32.
        card: of the network.
        labels: of its classes.
        files: videos and images; those that cannot be read are left out.
        batch: images of a run.
    """
    xp = reference.device.xp
    pictures = [file for file in files if Path(file).suffix.lower() in IMAGE_SUFFIXES]
    others = [file for file in files if Path(file).suffix.lower() not in IMAGE_SUFFIXES]
    frames = islice(first_frames([*others[:_VIDEOS], *pictures[:_FILE_IMAGES]], _FILE_STEP), _FILE_IMAGES)
    while trial.choice is None and (shown := list(islice(frames, batch))):
        sizes_wh = np.ones((batch, 2), np.int64)
        sizes_wh[: len(shown)] = [(frame.width, frame.height) for frame in shown]
        surfaces = [frame.surface for frame in shown if frame.surface is not None]
        sizes = [(frame.width, frame.height) for frame in shown]
        tensor, geometry = preprocess(surfaces, sizes, card.input, batch=batch)
        feeds = {reference.image_input: xp.asarray(tensor), **family_of(card).extra_inputs(sizes_wh, xp)}
        images = Images(geometry, sizes_wh[: len(shown)], tuple(labels))
        trial.compare(reference.run(feeds), partial(_run, feeds), images, feeds)


def _run(feeds: Mapping[str, Array], session: Session) -> dict[str, Array]:
    return session.run(feeds)
