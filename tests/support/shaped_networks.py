"""Networks with outputs of given shapes and metadata, for code that reads a file without its weights."""

from pathlib import Path

import numpy as np
import pytest

# onnx.TensorProto
F32 = 1
U8 = 2
I64 = 7


def shaped(
    path: Path,
    outputs: dict[str, list],
    *,
    image: list | None = None,
    extra: dict[str, list] | None = None,
    metadata: dict[str, str] | None = None,
    values: dict[str, np.ndarray] | None = None,
    integers: tuple[str, ...] = (),
) -> Path:
    """Write a network whose outputs do not depend on its inputs.

    Args:
        path: the file.
        outputs: shapes by name; text is an open size, which the values have as 1.
        image: shape of the input `images`.
        extra: further inputs, int64.
        metadata: texts by key, as exporters write them.
        values: of outputs; zeros by default.
        integers: outputs of int64.
    """
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = []
    initializers = []
    inputs = [helper.make_tensor_value_info("images", F32, image or ["N", 3, 640, 640])]
    inputs += [helper.make_tensor_value_info(name, I64, shape) for name, shape in (extra or {}).items()]
    results = []
    for name, shape in outputs.items():
        kind = I64 if name in integers else F32
        plain = [size if isinstance(size, int) else 1 for size in shape]
        value = (values or {}).get(name, np.zeros(plain)).astype(np.int64 if kind == I64 else np.float32)
        initializers.append(onnx.numpy_helper.from_array(value, f"{name}_value"))
        here = f"{name}_value"
        for axis, size in enumerate(shape):
            if not isinstance(size, int):  # a choice whose length ONNX Runtime does not infer
                initializers.append(helper.make_tensor(f"{name}_{axis}_all", onnx.TensorProto.BOOL, [1], [True]))
                nodes.append(helper.make_node("Compress", [here, f"{name}_{axis}_all"], [f"{name}_{axis}"], axis=axis))
                here = f"{name}_{axis}"
        nodes.append(helper.make_node("Identity", [here], [name]))
        results.append(helper.make_tensor_value_info(name, kind, shape))
    graph = helper.make_graph(nodes, "shaped", inputs, results, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata or {})
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def with_metadata(source: Path, path: Path, metadata: dict[str, str]) -> Path:
    """Copy a network with other metadata; an empty mapping strips them."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(source)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path
