# SPDX-License-Identifier: Apache-2.0
"""What one run of a network on a gray image shows: sizes that its file leaves open, and families that do not fit.

Shapes are shared: (N, 8400, 6) holds YOLOX's raw values, decoded boxes with an objectness, or corners with a class. A
family that a network's shapes allow is excluded where the values cannot be its own. Outputs of zeros exclude nothing,
but for networks that always have rows.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamkit.core.data import Device
from streamkit.core.errors import ModelError, OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import write_cache_file
from streamkit.models.families import FAMILIES
from streamkit.models.families.base import Size, Values
from streamkit.models.network import network_hash
from streamkit.models.network_file import ModelInfo, not_run
from streamkit.models.onnxruntime_package import need_onnxruntime
from streamkit.models.session import Session
from streamkit.models.shape_facts import Candidate

logger = logging.getLogger(__name__)

_FORMAT = 2
_RUN = "in a run on a gray image"


def with_sizes(info: ModelInfo, size: Size) -> ModelInfo:
    """Return the network with the sizes that the file leaves open as in one run on a gray image, but for the batch.

    Without change if there are none, or if the network has further inputs.
    """
    open_ = any(None in output.shape[1:] for output in info.outputs.values())
    if not open_ or len(info.inputs) > 1:
        return info
    values = values_of(info, size)
    outputs = {
        name: dataclasses.replace(output, dims=(*output.dims[:1], *values[name].shape[1:]))
        for name, output in info.outputs.items()
    }
    return dataclasses.replace(info, outputs=outputs)


def doubts(info: ModelInfo, size: Size, candidates: Sequence[Candidate]) -> dict[str, str]:
    """Return the families that the values of one run exclude, each with the reason.

    Args:
        info: the network.
        size: width and height of its input.
        candidates: what its shapes allow.

    Raises:
        ModelError: the network cannot be run.
    """
    tasks = {FAMILIES[candidate.family].task for candidate in candidates}
    doubted = list(candidates)
    if tasks >= {"classify", "embed"}:  # whether the vector is of classes is not yet known
        doubted = [candidate for candidate in candidates if FAMILIES[candidate.family].task != "classify"]
    reasons = {candidate.family: doubt(info, size, candidate.family, candidate.classes) for candidate in doubted}
    return {family: reason for family, reason in reasons.items() if reason}


def doubt(info: ModelInfo, size: Size, family: str, classes: int | None) -> str:
    """Return why the values of one run are not a family's; empty if they may be, or nothing is known of its values.

    Raises:
        ModelError: the network cannot be run.
    """
    rule = FAMILIES[family].traits.doubt
    if rule is None or len(info.inputs) > 1:
        return ""
    try:
        values = values_of(info, size)
    except ModelError:
        if info.clip is None or info.clip.frames is not None:
            raise
        return ""  # it may take another number of frames
    reason = rule(values, size, classes)
    return f"{reason}, {_RUN}" if reason else ""


def values_of(info: ModelInfo, size: Size) -> Values:
    """Return the outputs for one gray image; cached until the file changes. Raises ModelError."""
    return _values(info.file, network_hash(info.file), size)


@functools.lru_cache(maxsize=16)
def _values(file: Path, contents: str, size: Size) -> Values:
    """Return the outputs of a run, which is kept: each process that begins needs them again."""
    width, height = size
    runtime = need_onnxruntime().__version__
    values_file = user_cache("networks", f"{contents}-gray-{width}x{height}-{_FORMAT}-{runtime}.npz")
    values = _cached_values(values_file)
    if values is None:
        values = _run(file, size)
        content = io.BytesIO()
        np.savez(content, *values.values(), names=np.array(list(values)))
        try:
            write_cache_file(values_file, content.getvalue())
        except OutputError as error:
            logger.debug(f"a run of {file.name} on a gray image is not kept: {error}")
    return values


def _cached_values(file: Path) -> Values | None:
    """Return the outputs in a file; None if there is none that can be read."""
    try:
        with np.load(io.BytesIO(file.read_bytes())) as arrays:
            names = arrays["names"].tolist()
            return {name: arrays[f"arr_{place}"] for place, name in enumerate(names)}
    except Exception:  # what damage raises has no common base but Exception; the values are made again
        return None


def _run(file: Path, size: Size) -> Values:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    session = Session(file, Device(), threads=threads)
    shape = session.info.image_shape(session.fixed_batch or 1, size)
    image = np.full(shape, 114 if session.dtype == "u8" else 0.447)
    dtype = {"f32": np.float32, "f16": np.float16, "u8": np.uint8}[session.dtype]
    try:
        outputs = session.run({session.image_input: image.astype(dtype)})
    except ModelError:
        raise
    except Exception as error:
        # ONNX Runtime's exceptions have no common base but Exception.
        clip = session.info.clip
        raise not_run(file, size, error, None if clip is None else clip.count()) from None
    return {name: np.asarray(value) for name, value in outputs.items()}
