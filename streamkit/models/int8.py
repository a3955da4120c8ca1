# SPDX-License-Identifier: Apache-2.0
"""int8 networks for the CPU, by ONNX Runtime's static quantizer.

Weights are symmetric int8 with a scale per output channel, activations uint8 with one scale per tensor (U8S8): the pair
for which x86 processors have instructions. Where a processor lacks those of VNNI, sums of two products saturate at 16
bits; 7-bit weights (`reduce_range`) avoid that.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import ModelError
from streamkit.models.calibration import CalibrationReader, quiet
from streamkit.models.network_file import short
from streamkit.models.onnx_graph import MIN_OPSET, NetworkParts, is_quantized, load_onnx, name_nodes, parts, with_opset
from streamkit.models.onnxruntime_package import need_onnxruntime

_OPERATORS = (
    "Conv",
    "ConvTranspose",
    "Add",
    "Mul",
    "Sigmoid",
    "Relu",
    "Clip",
    "LeakyRelu",
    "Concat",
    "Split",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "Resize",
    "Pad",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
)
"""What is computed in int8 before the last convolutions; the rest, such as attention, stays in float."""
_VNNI = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8"})


@dataclass(frozen=True, slots=True)
class Int8Facts:
    """What was quantized.

    Attributes:
        parts: the network's nodes.
        frames: number of frames that the ranges come from.
        reduce_range: whether weights have 7 bits.
    """

    parts: NetworkParts
    frames: int
    reduce_range: bool

    def __str__(self) -> str:
        count = len(self.parts.body)
        last = len(self.parts.last)
        return (
            f"{count} of {count + last} convolutions, with ranges from {self.frames} frames"
            f"{', weights of 7 bits' if self.reduce_range else ''}; in float: the last {last} and the "
            f"{len(self.parts.tail)} nodes behind them"
        )


def processor_flags() -> frozenset[str]:
    """Return the processor's instruction sets by Linux's names; empty if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), ()))


def int8_instructions() -> str:
    """Return what this processor has for int8, for messages: `AVX512-VNNI`, `AMX and AVX512-VNNI`, or `no VNNI`."""
    flags = processor_flags()
    names = {"amx_int8": "AMX", "avx512_vnni": "AVX512-VNNI", "avx_vnni": "AVX-VNNI"}
    return " and ".join(name for flag, name in names.items() if flag in flags) or "no VNNI"


def saturates() -> bool:
    """Whether sums of int8 products saturate here: an x86 processor that is known to lack VNNI."""
    flags = processor_flags()
    return platform.machine() in ("x86_64", "AMD64") and bool(flags) and not flags & _VNNI


def write_int8(
    file: Path,
    out: Path,
    feeds: Iterable[Mapping[str, np.ndarray]],
    *,
    reduce_range: bool = False,
    symmetric: bool = False,
) -> Int8Facts:
    """Write a network's int8 version, with float inputs and outputs.

    Args:
        file: the float network.
        out: the file to write.
        feeds: the inputs of each calibration frame, by name; read once.
        reduce_range: use 7 bits for weights.
        symmetric: use int8 activations around zero, as TensorRT needs; slower on x86 processors.

    Raises:
        MissingPackage: `onnx` is not installed.
        ModelError: the network cannot be quantized, or there are no frames.
    """
    need_onnxruntime()
    model = load_onnx(file, "quantize")
    _check(model, file)
    with tempfile.TemporaryDirectory(prefix="streamkit-int8-") as folder, quiet():
        prepared = _prepared(with_opset(model, MIN_OPSET, file.name), Path(folder), file.name)
        split = parts(prepared)
        if not split.body:
            count = len(split.last)
            raise ModelError(
                f"{file.name} has {count} convolution{'s' * (count != 1)}, and none that another one reads: int8 would "
                "make nothing faster. Keep the float network; on a GPU, convert it with: streamkit models convert CARD "
                "--f16"
            )
        calibration = CalibrationReader(feeds)
        try:
            _quantize(prepared, out, calibration, split, reduce_range, symmetric)
        except Exception as error:  # the quantizer raises anything, from ValueError to ONNX Runtime's own
            raise ModelError(
                f"ONNX Runtime cannot quantize {file.name}: {short(error)}; keep the float network, or export it "
                "again with a later opset"
            ) from None
    return Int8Facts(split, calibration.frames, reduce_range)


def too_few_frames(count: int, minimum: int) -> ModelError:
    """Return the error for too few frames."""
    return ModelError(
        f"int8 needs at least {minimum} frames for the ranges of its values, got {count}; name more or longer clips, a "
        "folder of images with --data, or more frames with --frames"
    )


def _check(model: Any, file: Path) -> None:
    if is_quantized(file):
        raise ModelError(f"{file.name} is quantized already; name the card of the float network it was made from")
    from onnx import TensorProto

    if any(graph_input.type.tensor_type.elem_type == TensorProto.FLOAT16 for graph_input in model.graph.input):
        raise ModelError(f"{file.name} is an f16 network; int8 is made from the f32 network it was converted from")


def _prepared(model: Any, folder: Path, name: str) -> Any:
    """Return the model with the quantizer's pre-processing: constants folded, normalization fused, shapes inferred."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source = folder / "given.onnx"
    out = folder / "prepared.onnx"
    try:
        onnx.save(model, source)  # given a model, the quantizer loses the weights
        quant_pre_process(str(source), str(out), skip_symbolic_shape=True)
        prepared = onnx.load(out)
    except Exception as error:  # ONNX Runtime's exceptions have no common base but Exception
        raise ModelError(
            f"ONNX Runtime cannot prepare {name} for int8: {short(error)}; export the network again with opset 17 or "
            "later, or keep the float network"
        ) from None
    name_nodes(prepared)
    return prepared


def _quantize(
    model: Any, out: Path, calibration: Any, split: NetworkParts, reduce_range: bool, symmetric: bool
) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.registry import QDQRegistry

    quantize_static(
        model,
        str(out),
        calibration,
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=[name for name in _OPERATORS if name in QDQRegistry],
        per_channel=True,
        reduce_range=reduce_range,
        activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=[*split.last, *split.tail],
        extra_options={"WeightSymmetric": True, "ActivationSymmetric": symmetric},
    )
