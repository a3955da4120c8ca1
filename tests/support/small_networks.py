"""Small ONNX networks that a test builds in a few lines, and their outputs by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class NetworkBuilder:
    """Collects the nodes and weights of a network with one f32 input, `images`.

    Args:
        shape: of the input.
        seed: of random weights.
    """

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.images = "images"
        self._shape = tuple(shape)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._rng = np.random.default_rng(seed)

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        """Add a list of int64 and return its name."""
        return self.constant(values, np.int64)

    def random(self, *shape: int) -> str:
        """Add random f32 values of about 1 / sqrt(values) and return their name."""
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.constant(self._rng.standard_normal(shape) * scale)

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its output, or of all if there are several."""
        names = [f"{operator.lower()}_{len(self._nodes)}_{place}" for place in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def convolution(
        self, source: str, inputs: int, outputs: int, size: int = 3, groups: int = 1, **attributes: Any
    ) -> str:
        """Add a convolution with random weights and bias; by default its output is as large as its input."""
        weight = self.random(outputs, inputs // groups, size, size)
        bias = self.constant(self._rng.standard_normal(outputs) * 0.1)
        if "auto_pad" not in attributes:
            attributes.setdefault("pads", [size // 2] * 4)
        name: str = self.node("Conv", source, weight, bias, group=groups, **attributes)
        return name

    def silu(self, source: str) -> str:
        """Add SiLU as exporters write it."""
        name: str = self.node("Mul", source, self.node("Sigmoid", source))
        return name

    def model(self, *outputs: str, opset: int = 17) -> Any:
        """Return the network as an `onnx.ModelProto`."""
        graph = helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info(self.images, TensorProto.FLOAT, self._shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self._weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def run_network(model: Any, feeds: Mapping[str, np.ndarray], names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return a network's outputs, or the tensors of these names, by ONNX Runtime without optimization."""
    import onnxruntime as ort

    if names:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        del copy.graph.output[:]
        copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        model = copy
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [output.name for output in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, dict(feeds)), strict=True))
