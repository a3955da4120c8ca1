# SPDX-License-Identifier: Apache-2.0
"""`streamkit models quantize` and `models convert`: a card's network in another precision, kept if it is as good."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streamkit.core.data import Device, Frame
from streamkit.core.errors import ModelError
from streamkit.models.card import Card
from streamkit.models.card_comparison import CardComparison, PictureTruth, calibration_feeds, compare_cards
from streamkit.models.card_writer import check_targets, write_network_and_card
from streamkit.models.half import write_f16
from streamkit.models.int8 import saturates, too_few_frames, write_int8
from streamkit.models.network import check_model

MIN_FRAMES = 8
"""Least number of frames for the ranges of int8 values."""


@dataclass(frozen=True, slots=True)
class PrecisionReport:
    """Result of a conversion.

    Attributes:
        method: how the network was made, a line of text.
        comparison: with the original.
        megabytes: size of the original and of the new file.
        max_loss: the largest loss that was allowed.
        file: the new network; None if it was refused.
        card: the new card, likewise.
    """

    method: str
    comparison: CardComparison
    megabytes: tuple[float, float]
    max_loss: float
    file: Path | None
    card: Path | None

    def __str__(self) -> str:
        before, after = self.megabytes
        verdict = f"loss       {self.comparison.loss:.3f} (at most {self.max_loss:g}, --max-loss)"
        lines = [self.method, f"size       {before:.1f} -> {after:.1f} MB", *self.comparison.lines(), verdict]
        if self.file is None:
            lines.append(
                "REFUSED: it loses more than allowed, and nothing is written. Use more frames that are like those it "
                "will see, keep the float network, or for a GPU make an f16 one"
            )
        else:
            lines.append(f"wrote {self.file} and {self.card}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PrecisionRequest:
    """What to make, and how to judge it.

    Attributes:
        card: the card of the float network.
        out: the card to write; the network goes beside it, with the suffix `.onnx`.
        calibration: frames on the host for the ranges of values.
        shown: frames on the host to compare both networks on, read once.
        device: where they are compared.
        truth: ground truth for `shown`.
        max_loss: largest loss of agreement or AP, 0 to 1.
        overwrite: whether existing files are replaced.
    """

    card: Card
    out: Path
    calibration: Sequence[Frame]
    shown: Iterable[Frame]
    device: Device
    truth: PictureTruth | None = None
    max_loss: float = 0.02
    overwrite: bool = False


def quantize_card(
    request: PrecisionRequest, reduce_range: bool | None = None, symmetric: bool = False
) -> PrecisionReport:
    """Write the int8 version of a card's network, and a card for it, unless it loses too much.

    Args:
        request: what to make.
        reduce_range: whether weights have 7 bits; by default, on processors where 8 bits saturate.
        symmetric: whether activations are int8 around zero, as TensorRT needs.

    Raises:
        MissingPackage: a package of the extra `quantize` is missing.
        ModelError: the network cannot be used or quantized, or there are too few frames.
        OutputError: the files cannot be written.
    """
    if len(request.calibration) < MIN_FRAMES:
        raise too_few_frames(len(request.calibration), MIN_FRAMES)
    narrow = saturates() and not symmetric if reduce_range is None else reduce_range
    write = functools.partial(write_int8, reduce_range=narrow, symmetric=symmetric)
    return _make(request, "int8", write)


def convert_card(request: PrecisionRequest) -> PrecisionReport:
    """Write the f16 version of a card's network, and a card for it, unless it loses too much.

    Raises:
        MissingPackage: a package of the extra `quantize` is missing.
        ModelError: the network cannot be used or converted, or there are no frames.
        OutputError: the files cannot be written.
    """
    return _make(request, "f16", write_f16)


def _make(
    request: PrecisionRequest, kind: Literal["int8", "f16"], write: Callable[[Path, Path, Any], Any]
) -> PrecisionReport:
    card = check_model(request.card)
    out = request.out.absolute()
    file = out.with_suffix(".onnx")
    check_targets((file, out), request.overwrite)
    if file == card.file or out == card.path:
        raise ModelError(
            f"{request.out} would replace the card or the network it is made from; name another with --out"
        )
    with tempfile.TemporaryDirectory(prefix="streamkit-") as folder:
        network = Path(folder) / file.name
        facts = write(card.file, network, calibration_feeds(card, request.calibration))
        converted = check_model(card.with_file(network))
        comparison = compare_cards(card, converted, request.shown, request.device, request.truth)
        megabytes = card.file.stat().st_size / 1e6, network.stat().st_size / 1e6
        report = PrecisionReport(f"{kind:10} {facts}", comparison, megabytes, request.max_loss, file, out)
        if comparison.loss > request.max_loss:
            return dataclasses.replace(report, file=None, card=None)
        head = f"{kind} of {card.file.name}, made with streamkit models on {datetime.date.today().isoformat()}."
        write_network_and_card(network, file, card, out, [head, *comparison.lines()])
    return report
