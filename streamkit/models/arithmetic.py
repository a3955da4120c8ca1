# SPDX-License-Identifier: Apache-2.0
"""Which arithmetic a network runs in: its engine and its precision."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Annotated, Literal

from streamkit.core.data import Device

EngineName = Literal["onnxruntime", "fused", "tensorrt"]
PrecisionName = Literal["f32", "tf32", "f16"]

Engine = Annotated[
    Literal["auto", "onnxruntime", "fused", "tensorrt"],
    "what runs the network on a GPU: `fused` computes convolutions with what follows them in one kernel, in f16, and "
    "leaves the rest to ONNX Runtime; `auto` takes the fastest that the precision allows. On a CPU, ONNX Runtime.",
]
Precision = Annotated[
    Literal["auto", "f32", "tf32", "f16"],
    "how a GPU computes: `f32` gives the CPU's results; `tf32` and `f16` round to 11 bits of mantissa and are faster. "
    "`auto` takes the fastest that finds the same objects as f32 on the first frames. On a CPU, f32.",
]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a network is computed on a GPU.

    Attributes:
        engine: what runs it.
        precision: of products; sums are in f32. With the fused engine, that of convolutions: the rest is in TF32.
    """

    engine: EngineName = "onnxruntime"
    precision: PrecisionName = "f32"

    def __str__(self) -> str:
        engines = {"onnxruntime": "ONNX Runtime", "fused": "the fused engine", "tensorrt": "TensorRT"}
        return f"{self.precision} with {engines[self.engine]}"


F32 = Arithmetic()


def check_arithmetic(engine: str, of_card: str, of_stage: str) -> None:
    """Check that an engine and the precisions of card and stage do not contradict each other; raise ValueError."""
    precision = pinned_precision(of_card, of_stage)
    if engine == "fused" and precision in ("f32", "tf32"):
        origin = "the card's precision" if of_stage == "auto" else "precision"
        raise ValueError(
            f"engine: fused computes convolutions in f16, and {origin} is {precision}; set precision: f16, or engine: "
            "onnxruntime"
        )
    if engine == "tensorrt" and precision == "tf32":
        raise ValueError("engine: tensorrt computes in f32 or f16, and precision is tf32; use one of those")


def pinned_precision(of_card: str, of_stage: str) -> str:
    """Return the precision that a stage's option or, where that is `auto`, a card sets."""
    return of_card if of_stage == "auto" else of_stage


def has_onnx() -> bool:
    """Whether the package that reads networks is installed."""
    return importlib.util.find_spec("onnx") is not None


def missing_package() -> str:
    """Return the first package of the fused engine that is not installed; empty if all are."""
    if importlib.util.find_spec("cudnn") is None:
        return "nvidia-cudnn-frontend"
    return "" if has_onnx() else "onnx"


def can_fuse() -> bool:
    """Whether the packages of the fused engine are installed."""
    return not missing_package()


def candidates(engine: str, precision: str, device: Device) -> tuple[Arithmetic, ...]:
    """Return the arithmetics that options allow, those that promise the most speed first.

    The last needs no comparison; where it is the only one, there is nothing to measure.

    Args:
        engine: the option.
        precision: the option.
        device: where the network runs.
    """
    if device.kind == "cpu":
        return (F32,)
    if engine == "tensorrt":
        return (Arithmetic("tensorrt", "f16" if precision == "f16" else "f32"),)
    f16 = Arithmetic("fused" if engine == "fused" or (engine == "auto" and can_fuse()) else "onnxruntime", "f16")
    fixed = {"f32": F32, "tf32": Arithmetic("onnxruntime", "tf32"), "f16": f16}
    if precision != "auto":
        return (fixed[precision],)
    if engine == "fused":
        return (f16,)
    return f16, fixed["tf32"], F32
