"""A small network that gives its inputs back plus one."""

from pathlib import Path

import pytest

# onnx.TensorProto
F32 = 1
F16 = 10
U8 = 2
I64 = 7


def network(path: Path, inputs: dict, outputs: dict | None = None) -> Path:
    """Write a network that gives each input x back as `out` + 1; inputs are name: (element type, shape)."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = []
    initializers = []
    results = []
    for name, (kind, shape) in inputs.items():
        initializers.append(helper.make_tensor(f"one_{name}", kind, [], [1]))
        nodes.append(helper.make_node("Add", [name, f"one_{name}"], [f"out_{name}"]))
        results.append(helper.make_tensor_value_info(f"out_{name}", kind, (outputs or {}).get(f"out_{name}", shape)))
    graph = helper.make_graph(
        nodes,
        "plus one",
        [helper.make_tensor_value_info(n, k, s) for n, (k, s) in inputs.items()],
        results,
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path
