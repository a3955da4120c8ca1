"""An ONNX network as a PyTorch module, the reference that `networks.py --torch` compiles.

It computes a network that `streamkit.engine.graph.simplify` has simplified, whose shapes are all fixed. It has the
operators of YOLO and DETR networks; another one raises NotImplementedError with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from streamkit.engine.graph import OnnxGraph, OnnxNode

_UNARY: dict[str, Callable[[Any], Any]] = {
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Identity": lambda values: values,
    "Log": torch.log,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Relu": functional.relu,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Sqrt": torch.sqrt,
    "Tanh": torch.tanh,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "Less": torch.lt,
    "MatMul": torch.matmul,
    "Mod": torch.remainder,
    "Mul": torch.mul,
    "Pow": torch.pow,
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}
_REDUCTIONS = {"ReduceMax": torch.amax, "ReduceMean": torch.mean, "ReduceSum": torch.sum}
_TYPES = {6: torch.int32, 7: torch.int64, 9: torch.bool}  # of ONNX; floating-point types become the module's


class TorchNetwork(torch.nn.Module):
    """A network.

    Args:
        graph: the simplified network.
        dtype: of all floating-point values.
        device: of PyTorch.
    """

    def __init__(self, graph: OnnxGraph, dtype: Any, device: str) -> None:
        super().__init__()
        self._graph = graph
        self._dtype = dtype
        self._buffer_names: dict[str, str] = {}
        for index, (name, array) in enumerate(graph.constants.items()):
            values = torch.from_numpy(np.array(array))
            if values.is_floating_point():
                values = values.to(dtype)
                if values.ndim == 4:
                    values = values.contiguous(memory_format=torch.channels_last)
            self._buffer_names[name] = f"constant_{index}"
            self.register_buffer(f"constant_{index}", values.to(device))

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the network's outputs in its order."""
        tensors = dict(zip(self._graph.inputs, inputs, strict=True))
        for node in self._graph.nodes:
            outputs = self.compute(node, [self._tensor(name, tensors) for name in node.inputs])
            outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
            tensors.update(zip(node.outputs, outputs, strict=False))
        return tuple(tensors[name] for name in self._graph.outputs)

    def compute(self, node: OnnxNode, inputs: list[Any]) -> Any:
        """Return the output of a node, or a tuple of them.

        Args:
            node: the node.
            inputs: its tensors; None for one that is left out.
        """
        operator = node.operator
        if operator in _UNARY:
            return _UNARY[operator](inputs[0])
        if operator in _BINARY:
            return _BINARY[operator](*inputs)
        if operator in _REDUCTIONS:
            axes = self._numbers(node, "axes", 1)
            return _REDUCTIONS[operator](inputs[0], dim=axes, keepdim=bool(node.attributes.get("keepdims", 1)))
        if operator in ("Flatten", "Reshape", "Squeeze", "Unsqueeze"):
            return inputs[0].reshape(self._graph.shapes[node.outputs[0]])
        method = getattr(self, f"_{operator.lower()}", None)
        if method is None:
            raise NotImplementedError(f"torch_network.py has no {operator}")
        return method(node, *inputs)

    def _tensor(self, name: str, tensors: dict[str, Any]) -> Any:
        if not name:
            return None
        return tensors[name] if name in tensors else getattr(self, self._buffer_names[name])

    def _numbers(self, node: OnnxNode, attribute: str, place: int) -> list[Any] | None:
        """Return numbers that are an attribute, or a constant input in later versions of ONNX; None for neither."""
        if attribute in node.attributes:
            return list(node.attributes[attribute])
        if len(node.inputs) <= place or not node.inputs[place]:
            return None
        return self._graph.constants[node.inputs[place]].reshape(-1).tolist()

    # -------------------------------------------------------------------------------------------- images

    def _conv(self, node: OnnxNode, image: Any, weight: Any, bias: Any = None) -> Any:
        attributes = node.attributes
        image, padding = _padded(image, attributes.get("pads", (0, 0, 0, 0)), 0.0)
        strides = attributes.get("strides", (1, 1))
        dilations = attributes.get("dilations", (1, 1))
        return functional.conv2d(image, weight, bias, strides, padding, dilations, attributes.get("group", 1))

    def _convtranspose(self, node: OnnxNode, image: Any, weight: Any, bias: Any = None) -> Any:
        top, left, *_ = node.attributes.get("pads", (0, 0, 0, 0))
        strides = node.attributes.get("strides", (1, 1))
        groups = node.attributes.get("group", 1)
        return functional.conv_transpose2d(image, weight, bias, strides, (top, left), 0, groups)

    def _maxpool(self, node: OnnxNode, image: Any) -> Any:
        image, padding = _padded(image, node.attributes.get("pads", (0, 0, 0, 0)), torch.finfo(image.dtype).min)
        kernel = node.attributes["kernel_shape"]
        strides = node.attributes.get("strides", (1, 1))
        return functional.max_pool2d(
            image, kernel, strides, padding, ceil_mode=bool(node.attributes.get("ceil_mode", 0))
        )

    def _averagepool(self, node: OnnxNode, image: Any) -> Any:
        attributes = node.attributes
        top, left, *_ = attributes.get("pads", (0, 0, 0, 0))
        kernel = attributes["kernel_shape"]
        strides = attributes.get("strides", (1, 1))
        ceil = bool(attributes.get("ceil_mode", 0))
        counts = bool(attributes.get("count_include_pad", 0))
        return functional.avg_pool2d(image, kernel, strides, (top, left), ceil, counts)

    def _globalaveragepool(self, node: OnnxNode, image: Any) -> Any:
        return image.mean((2, 3), keepdim=True)

    def _resize(self, node: OnnxNode, image: Any, *_: Any) -> Any:
        size = self._graph.shapes[node.outputs[0]][2:]
        if node.attributes.get("mode", b"nearest") == b"nearest":
            return functional.interpolate(image, size=size, mode="nearest")
        return functional.interpolate(image, size=size, mode="bilinear", align_corners=False)

    def _spacetodepth(self, node: OnnxNode, image: Any) -> Any:
        batch, channels, rows, columns = image.shape
        block = node.attributes["blocksize"]
        blocks = image.reshape(batch, channels, rows // block, block, columns // block, block)
        return blocks.permute(0, 3, 5, 1, 2, 4).reshape(self._graph.shapes[node.outputs[0]])

    def _gridsample(self, node: OnnxNode, image: Any, grid: Any) -> Any:
        padding = node.attributes.get("padding_mode", b"zeros").decode()
        aligned = bool(node.attributes.get("align_corners", 0))
        return functional.grid_sample(image, grid, mode="bilinear", padding_mode=padding, align_corners=aligned)

    # -------------------------------------------------------------------------------------------- values

    def _clip(self, node: OnnxNode, values: Any, *_: Any) -> Any:
        limits = [
            self._numbers(node, name, place) if name not in node.attributes else [node.attributes[name]]
            for place, name in enumerate(("min", "max"), start=1)
        ]
        low, high = (limit[0] if limit else None for limit in limits)
        return torch.clamp(values, low, high)

    def _hardsigmoid(self, node: OnnxNode, values: Any) -> Any:
        return torch.clamp(values * node.attributes.get("alpha", 0.2) + node.attributes.get("beta", 0.5), 0, 1)

    def _div(self, node: OnnxNode, first: Any, second: Any) -> Any:
        return first / second if first.is_floating_point() else torch.div(first, second, rounding_mode="floor")

    def _softmax(self, node: OnnxNode, values: Any) -> Any:
        return functional.softmax(values, node.attributes.get("axis", -1))

    def _layernormalization(self, node: OnnxNode, values: Any, scale: Any, shift: Any = None) -> Any:
        return functional.layer_norm(values, tuple(scale.shape), scale, shift, node.attributes.get("epsilon", 1e-5))

    def _gemm(self, node: OnnxNode, values: Any, weight: Any, bias: Any = None) -> Any:
        values = values.t() if node.attributes.get("transA") else values
        return functional.linear(values, weight if node.attributes.get("transB") else weight.t(), bias)

    def _where(self, node: OnnxNode, condition: Any, first: Any, second: Any) -> Any:
        return torch.where(condition, first, second)

    def _cast(self, node: OnnxNode, values: Any) -> Any:
        return values.to(_TYPES.get(node.attributes["to"], self._dtype))

    # -------------------------------------------------------------------------------------------- places

    def _concat(self, node: OnnxNode, *parts: Any) -> Any:
        return torch.cat(parts, node.attributes["axis"])

    def _split(self, node: OnnxNode, values: Any, *_: Any) -> Any:
        axis = node.attributes.get("axis", 0)
        lengths = self._numbers(node, "split", 1)
        return torch.split(values, lengths or values.shape[axis] // len(node.outputs), axis)

    def _transpose(self, node: OnnxNode, values: Any) -> Any:
        return values.permute(node.attributes.get("perm", list(range(values.ndim))[::-1]))

    def _slice(self, node: OnnxNode, values: Any, *_: Any) -> Any:
        starts = self._numbers(node, "starts", 1)
        ends = self._numbers(node, "ends", 2)
        assert starts is not None
        assert ends is not None
        axes = self._numbers(node, "axes", 3) or list(range(len(starts)))
        steps = self._numbers(node, "steps", 4) or [1] * len(starts)
        parts = [slice(None)] * values.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            parts[axis] = slice(start, min(end, values.shape[axis]), step)
        return values[tuple(parts)]

    def _gather(self, node: OnnxNode, values: Any, indices: Any) -> Any:
        axis = node.attributes.get("axis", 0) % values.ndim
        indices = torch.where(indices < 0, indices + values.shape[axis], indices).long()
        selected = torch.index_select(values, axis, indices.reshape(-1))
        return selected.reshape((*values.shape[:axis], *indices.shape, *values.shape[axis + 1 :]))

    def _gatherelements(self, node: OnnxNode, values: Any, indices: Any) -> Any:
        return torch.gather(values, node.attributes.get("axis", 0), indices.long())

    def _topk(self, node: OnnxNode, values: Any, *_: Any) -> Any:
        counts = self._numbers(node, "k", 1)
        assert counts is not None
        largest = bool(node.attributes.get("largest", 1))
        ordered = bool(node.attributes.get("sorted", 1))
        return tuple(torch.topk(values, counts[0], node.attributes.get("axis", -1), largest, ordered))

    def _pad(self, node: OnnxNode, values: Any, *_: Any) -> Any:
        pads = self._numbers(node, "pads", 1)
        assert pads is not None
        axes = len(pads) // 2
        return functional.pad(values, [pads[axis + end] for axis in reversed(range(axes)) for end in (0, axes)])

    def _expand(self, node: OnnxNode, values: Any, *_: Any) -> Any:
        return values.expand(self._graph.shapes[node.outputs[0]])

    def _tile(self, node: OnnxNode, values: Any, *_: Any) -> Any:
        return values.repeat(self._numbers(node, "repeats", 1))


def _padded(image: Any, pads: Sequence[int], value: float) -> tuple[Any, tuple[int, int]]:
    """Return an image and the padding to pass with it: PyTorch's layers pad both sides alike."""
    top, left, bottom, right = pads
    if (top, left) == (bottom, right):
        return image, (top, left)
    return functional.pad(image, (left, right, top, bottom), value=value), (0, 0)
