# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a data set's networks: one for all of its files, so that a resumed one goes on as it began."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamkit.batch.folder import MANIFEST, manifest
from streamkit.config.plan import Graph
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError
from streamkit.models.arithmetic import F32, Arithmetic, candidates, pinned_precision
from streamkit.models.arithmetic_choice import ArithmeticChoice, choice_file, read_choice
from streamkit.models.card import Card, family_of
from streamkit.models.network import takes_single_images
from streamkit.models.session import Session
from streamkit.models.versions import gpu_versions
from streamkit.runtime.execution.sizes import batch_sizes
from streamkit.stages.inference.arithmetic_trial import ArithmeticTrial, compare_on_files

logger = logging.getLogger(__name__)


def arithmetic_overrides(
    graph: Graph, out: Path, device: Device | None, files: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield values of `--set` that fix engine and precision of each stage with a network.

    What the YAML says holds. Otherwise it is what the data set began with, what was chosen in an earlier run on this
    GPU, what finds the same as f32 on the first images of files, or f32.

    Args:
        graph: the pipeline.
        out: the data set's folder, which need not exist.
        device: where networks run; None for the nodes of a cluster, whose GPUs are not known here.
        files: of the data set; paths of videos and images.
    """
    stages = _stages_of(out)
    for stage in graph.config.stages:
        if not hasattr(stage.type, "precision"):
            continue
        engine = str(stage.options.get("engine", "auto"))
        card = stage.options.get("model")
        precision = str(stage.options.get("precision", "auto"))
        if isinstance(card, Card):
            precision = pinned_precision(card.precision, precision)
        before = stages.get(stage.id, {})
        arithmetic = _began_with(engine, precision, before, device)
        if arithmetic is None:
            assert device is not None
            arithmetic = _chosen(card, candidates(engine, precision, device), device, files, graph)
        yield f"stages.{stage.id}.engine", arithmetic.engine
        yield f"stages.{stage.id}.precision", arithmetic.precision


def _began_with(engine: str, precision: str, before: Mapping[str, Any], device: Device | None) -> Arithmetic | None:
    """Return what the options or the data set fix; None if it is open."""
    if device is not None and device.kind == "cpu":
        return F32
    allowed = candidates(engine, precision, device or Device("cuda"))
    if len(allowed) == 1:
        return allowed[0]
    first_arithmetic = Arithmetic(before.get("engine", F32.engine), before.get("precision", F32.precision))
    if before and first_arithmetic in allowed:
        return first_arithmetic
    return F32 if device is None else None


def _chosen(card: Any, allowed: Sequence[Arithmetic], device: Device, files: Sequence[str], graph: Graph) -> Arithmetic:
    """Return what was chosen on this GPU, or is chosen now on the first images of files."""
    if not isinstance(card, Card) or family_of(card).takes_clips:  # the comparison needs single images
        return F32
    file = choice_file(card.file, card.input.size, gpu_versions(device.index), allowed)
    choice = read_choice(file)
    if choice is None and files and not card.takes_prompts:
        logger.info(f"{card.file.name}: comparing precisions on the first images")
        batch = 1 if takes_single_images(card) else batch_sizes(graph.config.batch.size, device)[-1]
        choice = _compare(card, allowed, device, batch, files, file)
    return choice.arithmetic if choice is not None and choice.arithmetic in allowed else F32


def _compare(
    card: Card, allowed: Sequence[Arithmetic], device: Device, batch: int, files: Sequence[str], file: Path
) -> ArithmeticChoice | None:
    """Compare faster arithmetics with f32 on the GPU; None if there was not enough to tell."""
    cuda = device.xp.cuda

    def open_session(arithmetic: Arithmetic) -> Session:
        session = Session(
            card.file, device, arithmetic=arithmetic, quick=arithmetic == F32, ignore_outputs=card.ignore_outputs
        )
        session.warm((session.fixed_batch or batch,), card.input.size)
        return session

    with cuda.Device(device.index), cuda.Stream(non_blocking=True):
        trial = ArithmeticTrial(card, allowed, open_session, file)
        if trial.choice is None:
            reference = open_session(F32)
            compare_on_files(trial, reference, card, card.labels, files, reference.fixed_batch or batch)
        if trial.choice is None:
            logger.warning(f"{card.file.name} runs in {F32}: {trial}; set precision to choose yourself")
    return trial.choice


def _stages_of(out: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of the stages that a data set began with; none if there is no data set."""
    if not (out / MANIFEST).is_file():
        return {}
    try:
        stages = manifest(out)["identity"].get("stages", {})
    except ConfigError:
        return {}  # it is reported where the folder is opened
    return stages if isinstance(stages, dict) else {}
