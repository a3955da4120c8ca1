# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a data set's networks: one for all of its files, so that a resumed one goes on as it began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamkit.batch.folder import MANIFEST, manifest
from streamkit.config.plan import Graph
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError
from streamkit.models.arithmetic import F32, Arithmetic, candidates
from streamkit.models.arithmetic_choice import choice_file, read_choice
from streamkit.models.card import Card
from streamkit.models.versions import gpu_versions


def arithmetic_overrides(graph: Graph, out: Path, device: Device | None) -> Iterator[tuple[str, str]]:
    """Yield values of `--set` that fix engine and precision of each stage with a network.

    What the YAML says holds. Otherwise it is what the data set began with, what was chosen in an earlier run on this
    GPU, or f32.

    Args:
        graph: the pipeline.
        out: the data set's folder, which need not exist.
        device: where networks run; None for the nodes of a cluster, whose GPUs are not known here.
    """
    stages = _stages_of(out)
    for stage in graph.config.stages:
        if not hasattr(stage.type, "precision"):
            continue
        engine = str(stage.options.get("engine", "auto"))
        precision = str(stage.options.get("precision", "auto"))
        before = stages.get(stage.id, {})
        arithmetic = _fixed(stage.options.get("model"), engine, precision, before, device)
        yield f"stages.{stage.id}.engine", arithmetic.engine
        yield f"stages.{stage.id}.precision", arithmetic.precision


def _fixed(card: Any, engine: str, precision: str, before: Mapping[str, Any], device: Device | None) -> Arithmetic:
    if device is not None and device.kind == "cpu":
        return F32
    allowed = candidates(engine, precision, device or Device("cuda"))
    if len(allowed) == 1:
        return allowed[0]
    begun = Arithmetic(before.get("engine", F32.engine), before.get("precision", F32.precision))
    if before and begun in allowed:
        return begun
    if device is None or not isinstance(card, Card):
        return F32
    choice = read_choice(choice_file(card.file, card.input.size, gpu_versions(device.index), allowed))
    return choice.arithmetic if choice is not None and choice.arithmetic in allowed else F32


def _stages_of(out: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of the stages that a data set began with; none if there is no data set."""
    if not (out / MANIFEST).is_file():
        return {}
    try:
        stages = manifest(out)["identity"].get("stages", {})
    except ConfigError:
        return {}  # it is reported where the folder is opened
    return stages if isinstance(stages, dict) else {}
