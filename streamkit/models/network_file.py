# SPDX-License-Identifier: Apache-2.0
"""Inspection of ONNX files: their inputs and outputs, and why one cannot be read. No device is touched."""

from __future__ import annotations

import dataclasses
import functools
import mmap
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.core.errors import ModelError
from streamkit.models.file_version import FileVersion, file_version
from streamkit.models.onnxruntime_package import need_onnxruntime

_DTYPES = {"float": "float32", "double": "float64"}
_DTYPES |= {name: name for name in ("float16", "uint8", "int8", "int32", "int64", "bool")}
"""NumPy's names of element types, by ONNX Runtime's."""
_IMAGE_DTYPES: dict[str, Literal["f32", "f16", "u8"]] = {"float32": "f32", "float16": "f16", "uint8": "u8"}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of a network.

    Attributes:
        dtype: of its elements.
        dims: its shape; an open dimension is a name, or None if it has no name. Equal names have equal sizes.
    """

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str | None, ...]

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape, None for open dimensions."""
        return tuple(dim if isinstance(dim, int) else None for dim in self.dims)


DEFAULT_FRAMES = 16
"""Frames of a clip where neither the network's file nor a stage says how many."""


@dataclass(frozen=True, slots=True)
class ClipInput:
    """The input of a network that takes clips: several frames of a video as one row of the batch.

    Attributes:
        order: the axes behind the batch: `tchw` (VideoMAE), `cthw` (X3D) or `thwc`.
        frames: number of frames of a clip; None if the file leaves it open.
    """

    order: Literal["tchw", "cthw", "thwc"]
    frames: int | None

    def count(self, frames: int | None = None) -> int:
        """Return the number of frames of a clip; where the file leaves it open, `frames` or `DEFAULT_FRAMES`."""
        return self.frames or frames or DEFAULT_FRAMES

    def stacked(self, frames: Array) -> Array:
        """Return the network's input, C-contiguous, from the frames of k clips.

        Args:
            frames: (k, frames, 3, height, width), or (k, frames, height, width, 3) for `thwc`.
        """
        if self.order != "cthw":
            return frames
        return array_module(frames).ascontiguousarray(frames.transpose(0, 2, 1, 3, 4))

    def unstacked(self, clips: Array) -> Array:
        """Return the frames of clips, the inverse of `stacked`, as a view."""
        return clips.transpose(0, 2, 1, 3, 4) if self.order == "cthw" else clips


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Inputs and outputs of an ONNX file.

    Attributes:
        inputs, outputs: by name, in the file's order.
        image_input: the input for the images.
        layout, dtype: of the images; of a network that takes clips, of each frame.
        batch: the number of images, or of clips, in a run; None for any number.
        size: width, height in pixels; None if the file leaves them open.
        metadata: texts by key, which the exporter has written into the file.
        clip: the time axis of a network that takes clips; None for single images.
    """

    file: Path
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    image_input: str
    layout: Literal["nchw", "nhwc"]
    dtype: Literal["f32", "f16", "u8"]
    batch: int | None
    size: tuple[int, int] | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    clip: ClipInput | None = None

    def image_shape(self, batch: int, size: tuple[int, int], frames: int | None = None) -> tuple[int, ...]:
        """Return the shape of the images of a run.

        Args:
            batch: number of images, or of clips.
            size: width, height of the images.
            frames: number of frames of a clip, where the file leaves it open; `DEFAULT_FRAMES` by default.
        """
        width, height = size
        image = (3, height, width) if self.layout == "nchw" else (height, width, 3)
        if self.clip is None:
            return batch, *image
        count = self.clip.count(frames)
        return (batch, 3, count, height, width) if self.clip.order == "cthw" else (batch, count, *image)

    @property
    def output_dims(self) -> dict[str, tuple[int | str | None, ...]]:
        """The outputs' shapes by name, with open dimensions as in the file."""
        return {name: output.dims for name, output in self.outputs.items()}

    def without_outputs(self, names: Collection[str]) -> ModelInfo:
        """Return the network without the outputs of these names."""
        if not names:
            return self
        outputs = {name: output for name, output in self.outputs.items() if name not in names}
        return dataclasses.replace(self, outputs=outputs)


def inspect(file: Path) -> ModelInfo:
    """Read an ONNX file's inputs and outputs; cached until the file changes.

    Raises:
        ModelError: it is missing, is not an ONNX model that ONNX Runtime can read, or has no image input.
    """
    if not file.is_file():
        raise ModelError(f"{file} is a folder, not an ONNX file" if file.is_dir() else f"there is no file {file}")
    info = _inspect(file.absolute(), file_version(file))
    return info if info.file == file else dataclasses.replace(info, file=file)


def names_a_layer(file: Path, *names: str) -> bool:
    """Whether an ONNX file has one of these texts, such as the path of a layer in the names of nodes and weights."""
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(data.find(name.encode()) >= 0 for name in names)


@functools.lru_cache(maxsize=64)
def _inspect(file: Path, version: FileVersion) -> ModelInfo:
    inputs, outputs, metadata = _read(file)
    image = _image_input(file, inputs)
    dtype = _IMAGE_DTYPES.get(image.dtype.name)
    if dtype is None:
        raise ModelError(f"{file} takes images as {image.dtype}; export it with float32, float16 or uint8")
    clip = _clip_input(file, image) if len(image.dims) == _CLIP_RANK else None
    channels_last = image.shape[1] != 3 and image.shape[3] == 3 if clip is None else clip.order == "thwc"
    height, width = image.shape[-3:-1] if channels_last else image.shape[-2:]
    return ModelInfo(
        file=file,
        inputs=inputs,
        outputs=outputs,
        image_input=image.name,
        layout="nhwc" if channels_last else "nchw",
        dtype=dtype,
        batch=image.shape[0],
        size=None if width is None or height is None else (width, height),
        metadata=metadata,
        clip=clip,
    )


def inspect_tensors(file: Path) -> tuple[dict[str, TensorInfo], dict[str, TensorInfo]]:
    """Read the inputs and the outputs of an ONNX file of any kind; cached until the file changes.

    Raises:
        ModelError: it is missing, or is not an ONNX model that ONNX Runtime can read.
    """
    if not file.is_file():
        raise ModelError(f"there is no file {file}")
    return _tensors(file, file_version(file))


@functools.lru_cache(maxsize=64)
def _tensors(file: Path, version: FileVersion) -> tuple[dict[str, TensorInfo], dict[str, TensorInfo]]:
    return _read(file)[:2]


def _read(file: Path) -> tuple[dict[str, TensorInfo], dict[str, TensorInfo], dict[str, str]]:
    """Return the inputs, the outputs and the metadata of an ONNX file."""
    ort = need_onnxruntime()
    if file.stat().st_size < 1024 and file.read_bytes().startswith(b"version https://git-lfs"):
        raise ModelError(f"{file} is Git LFS's pointer to a model, not the model; fetch it with: git lfs pull")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # nothing is run
    try:
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        # ONNX Runtime's exceptions have no common base but Exception.
        if missing := [name for name in external_files(file) if not (file.parent / name).is_file()]:
            raise ModelError(
                f"{file} has its weights in {', '.join(missing)}, and there is no such file beside it; copy it there, "
                "or export the network into one file"
            ) from None
        raise ModelError(_unreadable(file, short(error))) from None
    inputs = {node.name: _tensor(file, node) for node in session.get_inputs()}
    outputs = {node.name: _tensor(file, node) for node in session.get_outputs()}
    return inputs, outputs, dict(session.get_modelmeta().custom_metadata_map)


_NEW_FORMAT = (
    (re.compile(r"Opset (\d+) is under development.*domain ai\.onnx is till opset (\d+)"), "opset {}", "opset {}"),
    (re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"), "IR version {}", "{}"),
)
"""ONNX Runtime's messages about a format that is newer than itself, the file's and the newest that it reads."""
_NO_OPERATOR = re.compile(r"Fatal error: (\S+?)\(-?\d+\) is not a registered|Error No Op registered for (\w+)")
_HEADS = (
    (
        b"PK\x03\x04",
        "is a zip archive, as PyTorch writes its weights (.pt); export them to ONNX, for Ultralytics with: "
        "yolo export model=best.pt format=onnx",
    ),
    (b"\x80\x02", "is a Python pickle, as PyTorch wrote its weights (.pt, .pth); export them to ONNX"),
    (b"<", "is a web page or XML, not an ONNX file; download the file itself"),
)
"""First bytes of files that are no ONNX files, and what they are."""


def _unreadable(file: Path, text: str) -> str:
    """Return why a file cannot be read and the fix, from its first bytes and ONNX Runtime's message."""
    version = need_onnxruntime().__version__
    with file.open("rb") as stream:
        head = stream.read(16)
    if not head:
        return f"{file} is empty; copy or export it again"
    for start, what in _HEADS:
        if head.startswith(start):
            return f"{file} {what}"
    for message, reported, newest in _NEW_FORMAT:
        if match := message.search(text):
            return (
                f"{file} has {reported.format(match[1])}, and ONNX Runtime {version} reads up to "
                f"{newest.format(match[2])}; export it with an older opset, or install a newer onnxruntime"
            )
    if match := _NO_OPERATOR.search(text):
        return (
            f"{file} has the operator {match[1] or match[2]}, which ONNX Runtime {version} lacks; export the network "
            "without it, for example without a TensorRT plugin for non-max suppression"
        )
    if "Protobuf parsing failed" in text or "No graph was found" in text:
        reason = "it has another format or is damaged; copy or export it again"
        return f"{file} is not an ONNX model that can be read: {reason}"
    return f"{file} is not an ONNX model that can be read: {text}"


def external_files(file: Path) -> list[str]:
    """Return the names of the files that have weights of an ONNX file, relative to it."""
    entry = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])", re.DOTALL)  # key and length of a StringStringEntryProto
    if not file.stat().st_size:
        return []
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        spans = [(match.end(), match.end() + match[1][0]) for match in entry.finditer(data)]
        return sorted({data[start:end].decode(errors="replace") for start, end in spans})


def _tensor(file: Path, node: Any) -> TensorInfo:
    kind = _DTYPES.get(node.type.removeprefix("tensor(").removesuffix(")"))
    if kind is None:
        raise ModelError(f"{file}: {node.name} is {node.type}, which arrays cannot hold")
    # ONNX Runtime returns a negative number or None for a dimension that is not in the file.
    dims = tuple(None if isinstance(dim, int) and dim < 0 else dim for dim in node.shape)
    return TensorInfo(node.name, np.dtype(kind), dims)


_IMAGE_RANK = 4
_CLIP_RANK = 5
_CLIP_ORDERS: dict[int, Literal["tchw", "cthw", "thwc"]] = {1: "cthw", 2: "tchw", 4: "thwc"}
"""The order of a clip's axes, by the axis of the channels."""


def _image_input(file: Path, inputs: Mapping[str, TensorInfo]) -> TensorInfo:
    """Return the only input for color images, or, where there is none, the only one for clips of them."""
    images = [
        node
        for node in inputs.values()
        if len(node.dims) == _IMAGE_RANK and (node.shape[1] in (3, None) or node.shape[3] == 3)
    ]
    images = images or [node for node in inputs.values() if len(node.dims) == _CLIP_RANK]
    if len(images) != 1:
        listed = ", ".join(f"{node.name} {list(node.dims)}" for node in inputs.values()) or "none"
        raise ModelError(
            f"{file} must have one input of rank 4, (batch, 3, height, width) or (batch, height, width, 3), "
            "for color images, or of rank 5 for clips, (batch, frames, 3, height, width) or (batch, 3, frames, height, "
            f"width); its inputs are: {listed}; export it with such an input"
        )
    return images[0]


def _clip_input(file: Path, image: TensorInfo) -> ClipInput:
    """Return which axis of an input of rank 5 is the time: the channels are the only axis of 3, or named so."""
    axes = [axis for axis in _CLIP_ORDERS if image.dims[axis] == 3]
    if not axes:
        axes = [axis for axis in _CLIP_ORDERS if "channel" in str(image.dims[axis]).lower()]
    if len(axes) != 1:
        what = f"{len(axes)} axes of 3" if axes else "no axis of 3"
        raise ModelError(
            f"{file} takes clips as {image.name} {list(image.dims)}, with {what} for the colors, which does not say "
            "where the frames are; export it as (batch, frames, 3, height, width) or (batch, 3, frames, height, width) "
            "with 3 fixed, and a number of frames other than 3"
        )
    return ClipInput(_CLIP_ORDERS[axes[0]], image.shape[2 if axes[0] == 1 else 1])


def not_run(file: Path, size: tuple[int, int], error: Exception, frames: int | None = None) -> ModelError:
    """Return the error for a network that fails on images of this width and height, or on clips of so many frames."""
    if frames is not None:
        return ModelError(
            f"{file} cannot be run on clips of {frames} frames of {size[0]} x {size[1]}: {short(error)}; if its input "
            "has open sizes, set window of the stage action to the number of frames that it takes, and input.size in "
            "its card"
        )
    return ModelError(
        f"{file} cannot be run on images of {size[0]} x {size[1]}: {short(error)}; if its input has open sizes, set "
        "input.size in its card, or --size of models new, to a size that it takes, such as multiples of 32"
    )


def short(error: BaseException) -> str:
    """Return ONNX Runtime's message on one line, without its prefix."""
    text = " ".join(str(error).split())
    return text.removeprefix("[ONNXRuntimeError] : ") or type(error).__name__
