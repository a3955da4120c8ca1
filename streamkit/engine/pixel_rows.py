# SPDX-License-Identifier: Apache-2.0
"""Matrix products on the pixels of images, as convolutions of single pixels.

Detectors of the DETR family flatten images to rows of channels, (batch, pixels, channels), put those of several
resolutions behind each other, and project each row. In NHWC order a row is a pixel, so that the engine can do all of it
as it does the images: without transpositions, in f16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamkit.engine.graph import OnnxGraph, OnnxNode, Shape

_SHAPE_OPERATORS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
_FUNCTIONS = ("Relu", "LeakyRelu", "Sigmoid")


def products_as_convolutions(graph: OnnxGraph) -> OnnxGraph:
    """Return a network that computes the same, whose matrix products on pixels of images are convolutions.

    A network without such products is returned as it is.
    """
    rewriter = _Rewriter(graph)
    for node in graph.nodes:
        rewriter.add(node)
    return rewriter.graph() if rewriter.has_products else graph


class _Rewriter:
    """Builds the new network node by node.

    A tensor whose rows are the pixels of an image has the image's values in NHWC order, in any shape that ends with the
    channels.
    """

    def __init__(self, graph: OnnxGraph) -> None:
        self.has_products = False
        self._old = graph
        self._nodes: list[OnnxNode] = []
        self._constants = dict(graph.constants)
        self._shapes = dict(graph.shapes)
        self._dtypes = dict(graph.dtypes)
        self._planes: dict[str, str] = {}  # tensors (batch, channels, pixels): the image
        self._rows: dict[str, str] = {}  # tensors of rows that are pixels: the image
        self._rewriters: dict[str, Callable[[OnnxNode], str | None]] = {
            "Transpose": self._transpose,
            "Concat": self._concatenate,
            "Gemm": self._multiply,
            "MatMul": self._multiply,
            "LayerNormalization": self._normalize,
            **dict.fromkeys(("Add", "Mul"), self._combine),
            **dict.fromkeys(_FUNCTIONS, self._apply),
        }

    def add(self, node: OnnxNode) -> None:
        """Append a node, or what it is on an image."""
        if node.operator in _SHAPE_OPERATORS:
            self._follow_reshape(node)
            self._nodes.append(node)
            return
        if node.operator == "Concat" and all(name in self._planes for name in node.inputs):
            self._concatenate_planes(node)
            return
        rewriter = self._rewriters.get(node.operator)
        image = None if rewriter is None else rewriter(node)
        if image is None:
            self._nodes.append(node)
            return
        output = node.outputs[0]
        self._rows[output] = image
        batch, channels, height, width = self._shapes[image]
        inner = batch, height, width, channels
        turned = self._emit(f"{output} as rows", "Transpose", [image], inner, perm=[0, 2, 3, 1])
        self._define(output, turned)

    def graph(self) -> OnnxGraph:
        """Return the new network, without nodes that nothing needs."""
        from onnx import ModelProto, helper

        old = self._old
        needed = set(old.outputs)
        nodes = list[OnnxNode]()
        for node in reversed(self._nodes):
            if needed.intersection(node.outputs):
                nodes.append(node)
                needed.update(node.inputs)
        nodes.reverse()
        written = [proto for proto in old.model.graph.node if proto.op_type != "Constant"]
        protos = {id(node): proto for node, proto in zip(old.nodes, written, strict=True)}
        model = ModelProto(ir_version=old.model.ir_version, opset_import=old.model.opset_import)
        for node in nodes:
            proto = protos.get(id(node))
            if proto is None:
                proto = helper.make_node(node.operator, node.inputs, node.outputs, node.name, **node.attributes)
            model.graph.node.append(proto)
        return OnnxGraph(tuple(nodes), self._constants, self._shapes, self._dtypes, old.inputs, old.outputs, model)

    # -------------------------------------------------------------------------------------------- what is an image

    def _follow_reshape(self, node: OnnxNode) -> None:
        """Note what a tensor in another shape is of an image."""
        source = node.inputs[0]
        output = node.outputs[0]
        shape = self._shapes.get(output, ())
        if self._is_image(source) and shape == (*self._shapes[source][:2], math.prod(self._shapes[source][2:])):
            self._planes[output] = source
        elif source in self._rows and shape[-1:] == (self._shapes[self._rows[source]][1],):
            self._rows[output] = self._rows[source]

    def _transpose(self, node: OnnxNode) -> str | None:
        source = node.inputs[0]
        order = list(node.attributes.get("perm", ()))
        if order == [0, 2, 1]:
            return self._planes.get(source)
        if order == [0, 2, 3, 1] and self._is_image(source):
            return source
        return None

    def _is_image(self, name: str) -> bool:
        shape = self._shapes.get(name, ())
        return len(shape) == 4 and shape[0] == self._old.batch and self._dtypes[name] == np.float32

    def _concatenate_planes(self, node: OnnxNode) -> None:
        if node.attributes.get("axis", 0) not in (2, -1):
            self._nodes.append(node)
            return
        output = node.outputs[0]
        self._planes[output] = self._join(output, [self._planes[name] for name in node.inputs])
        self._define(output, self._planes[output])

    def _concatenate(self, node: OnnxNode) -> str | None:
        """Put the pixels of several images behind each other."""
        axis = node.attributes.get("axis", 0)
        output = node.outputs[0]
        if len(self._shapes.get(output, ())) != 3:
            return None
        if axis in (1, -2) and all(name in self._rows for name in node.inputs):
            return self._join(output, [self._rows[name] for name in node.inputs])
        return None

    def _join(self, output: str, images: Sequence[str]) -> str:
        parts = list[str]()
        for place, image in enumerate(images):
            batch, channels, height, width = self._shapes[image]
            shape = batch, channels, height * width, 1
            target = self._constant(f"{output}: shape of part {place}", np.array(shape, np.int64))
            parts.append(self._emit(f"{output}: part {place}", "Reshape", [image, target], shape))
        pixels = sum(self._shapes[part][2] for part in parts)
        batch, channels = self._shapes[images[0]][:2]
        return self._emit(f"{output} as image", "Concat", parts, (batch, channels, pixels, 1), axis=2)

    # -------------------------------------------------------------------------------------------- what is computed

    def _multiply(self, node: OnnxNode) -> str | None:
        """A product of rows and a constant matrix."""
        image = self._rows.get(node.inputs[0])
        matrix = self._constants.get(node.inputs[1])
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        if image is None or matrix is None or matrix.ndim != 2:
            return None
        if node.attributes.get("transB", 0):
            matrix = matrix.T
        output = node.outputs[0]
        batch, channels, height, width = self._shapes[image]
        if matrix.shape[0] != channels or not self._is_plain(node, bias, matrix.shape[1]):
            return None
        self.has_products = True
        weight = np.ascontiguousarray(matrix.T)[:, :, None, None]
        inputs = [image, self._constant(f"{output}: weight", weight)]
        if bias:
            inputs.append(bias)
        shape = batch, len(weight), height, width
        return self._emit(f"{output} as image", "Conv", inputs, shape, kernel_shape=[1, 1])

    def _is_plain(self, node: OnnxNode, bias: str, columns: int) -> bool:
        """Whether a product has no factors, and no bias or one a column."""
        attributes = node.attributes
        factors = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
        fits = not bias or (bias in self._constants and self._constants[bias].shape == (columns,))
        return factors == (1.0, 1.0) and not attributes.get("transA", 0) and fits

    def _normalize(self, node: OnnxNode) -> str | None:
        """A normalization of each row, which ONNX has on the last axis only."""
        image = self._rows.get(node.inputs[0])
        last = len(self._shapes.get(node.inputs[0], ())) - 1
        constants = [name in self._constants for name in node.inputs[1:]]
        if image is None or node.attributes.get("axis", -1) not in (-1, last) or not all(constants):
            return None
        output = node.outputs[0]
        batch, channels, height, width = self._shapes[image]
        inner = batch, height, width, channels
        turned = self._emit(f"{output}: turned", "Transpose", [image], inner, perm=[0, 2, 3, 1])
        attributes = {**node.attributes, "axis": -1}
        inputs = [turned, *node.inputs[1:]]
        normalized = self._emit(f"{output}: normalized", "LayerNormalization", inputs, inner, **attributes)
        shape = batch, channels, height, width
        return self._emit(f"{output} as image", "Transpose", [normalized], shape, perm=[0, 3, 1, 2])

    def _apply(self, node: OnnxNode) -> str | None:
        image = self._rows.get(node.inputs[0])
        if image is None:
            return None
        return self._emit(f"{node.outputs[0]} as image", node.operator, [image], self._shapes[image], **node.attributes)

    def _combine(self, node: OnnxNode) -> str | None:
        """A sum or product with other rows, or with constants that are the same in each row or in all channels."""
        images = [self._rows.get(name) for name in node.inputs]
        image = images[0] or images[1]
        shape = self._shapes.get(node.outputs[0])
        if image is None or shape is None or shape not in [self._shapes.get(name) for name in node.inputs]:
            return None
        operands = list[str]()
        for name, of_rows in zip(node.inputs, images, strict=True):
            operand = self._operand(name, image) if of_rows is None else of_rows
            if operand is None or (of_rows is not None and self._shapes[of_rows] != self._shapes[image]):
                return None
            operands.append(operand)
        return self._emit(f"{node.outputs[0]} as image", node.operator, operands, self._shapes[image])

    def _operand(self, name: str, image: str) -> str | None:
        """Return a constant in the order of an image."""
        values = self._constants.get(name)
        if values is None:
            return None
        _, channels, height, width = self._shapes[image]
        if values.size == 1:
            return self._constant(f"{name} as scalar", values.reshape(1))
        if values.shape[-1] == channels == values.size:
            return self._constant(f"{name} of channels", values.reshape(1, channels, 1, 1))
        pixels = height * width
        if values.shape[-2:] == (pixels, 1) and values.size == pixels:
            return self._constant(f"{name} of {height} x {width} pixels", values.reshape(1, 1, height, width))
        return None

    # -------------------------------------------------------------------------------------------- new nodes

    def _define(self, name: str, source: str) -> None:
        """Append the node that gives a tensor of the old network the values of a new one."""
        shape = self._constant(f"{name}: shape", np.array(self._shapes[name], np.int64))
        self._nodes.append(OnnxNode(f"{name}: as before", "Reshape", (source, shape), (name,)))

    def _constant(self, name: str, values: np.ndarray) -> str:
        self._constants[name] = values
        return name

    def _emit(self, name: str, operator: str, inputs: Sequence[str], shape: Shape, **attributes: Any) -> str:
        """Append a node of one output with its name; return the name."""
        self._nodes.append(OnnxNode(name, operator, tuple(inputs), (name,), attributes))
        self._shapes[name] = shape
        self._dtypes[name] = np.dtype(np.float32)
        return name
