"""Networks whose outputs list the objects of one image: the same objects in batches of any size."""

from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from streamkit.models.card import load_card
from streamkit.models.check import check
from streamkit.ops.color import to_rgb
from streamkit.stages.inference.detectors import Detect
from streamkit.testing.kit import frames, run_stage

CELL = 8
SIDE = 64
WIDE = 128
"""Width of a frame, twice the height: its network pixels differ in x and y."""
INPUTS = {"ssd": {}, "ppyoloe_e2e": {"scale_factor": ["N", 2]}}


class _Graph:
    """Nodes and constants of a network."""

    def __init__(self):
        self.nodes = []
        self.weights = []

    def constant(self, values, dtype=np.int64):
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), f"constant_{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, operator, *inputs, name="", **attributes):
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name


def network(path: Path, family: str) -> None:
    """Find the cells of 8 pixels with a white pixel; outputs as torchvision and PaddleDetection export them."""
    graph = _Graph()
    red = graph.add("Slice", "images", *map(graph.constant, ([0], [1], [1])))
    cells = graph.add("MaxPool", red, kernel_shape=[CELL, CELL], strides=[CELL, CELL])
    white = graph.add("Greater", cells, graph.constant(0.5, np.float32))
    places = graph.add("Transpose", graph.add("NonZero", graph.add("Cast", white, to=TensorProto.INT32)), perm=[1, 0])
    corner = graph.add("Cast", graph.add("Gather", places, graph.constant([3, 2]), axis=1), to=TensorProto.FLOAT)
    low = graph.add("Mul", corner, graph.constant(CELL, np.float32))
    box = graph.add("Concat", low, graph.add("Add", low, graph.constant(CELL, np.float32)), axis=1)
    column = graph.add("Slice", corner, *map(graph.constant, ([0], [1], [1])))
    label = graph.add("Mul", column, graph.constant(0, np.float32))
    score = graph.add("Add", label, graph.constant(0.9, np.float32))
    if family == "ssd":
        graph.add("Identity", box, name="boxes")
        graph.add("Squeeze", score, graph.constant([1]), name="scores")
        graph.add("Cast", graph.add("Squeeze", label, graph.constant([1])), name="labels", to=TensorProto.INT64)
        shapes = {"boxes": ["K", 4], "scores": ["K"], "labels": ["K"]}
    else:
        scales = graph.add("Gather", "scale_factor", graph.constant([1, 0, 1, 0]), axis=1)
        graph.add("Concat", label, score, graph.add("Div", box, scales), name="rows", axis=1)
        graph.add("Slice", graph.add("Shape", "rows"), *map(graph.constant, ([0], [1], [0])), name="count")
        shapes = {"rows": ["K", 6], "count": ["M"]}
    of_integers = ("labels", "count")
    kinds = {name: TensorProto.INT64 if name in of_integers else TensorProto.FLOAT for name in shapes}
    inputs = {"images": ["N", 3, SIDE, SIDE], **INPUTS[family]}
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "cells",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in shapes.items()],
            graph.weights,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)


@pytest.fixture(params=INPUTS)
def card(request, tmp_path):
    network(tmp_path / "net.onnx", request.param)
    (tmp_path / "net.yaml").write_text(
        f"task: detect\nfamily: {request.param}\nfile: net.onnx\nlabels: [cell]\nscore: 0.3\n"
        f"input: {{size: [{SIDE}, {SIDE}], resize: stretch, scale: 1/255}}\n"
    )
    return load_card(tmp_path / "net.yaml")


def footage(counts):
    """Frames with so many white cells each, and their boxes in source pixels."""
    shown = []
    boxes = []
    random = np.random.default_rng(3)
    for index, count in enumerate(counts):
        pixels = np.zeros((SIDE, WIDE, 3), np.uint8)
        places = sorted(random.choice(64, count, replace=False).tolist())
        for place in places:
            y, x = divmod(place, 8)
            pixels[8 * y + 2 : 8 * y + 6, 16 * x + 4 : 16 * x + 12] = 255
        boxes.append(
            [[16 * (place % 8), 8 * (place // 8), 16 * (place % 8) + 16, 8 * (place // 8) + 8] for place in places]
        )
        (frame,) = frames(1, pixels=pixels)
        frame.index = index
        shown.append(frame)
    return shown, boxes


@pytest.mark.parametrize("batch", [1, 32])
def test_each_frame_has_its_objects_in_any_batch(card, batch):
    shown, boxes = footage([1, 1, 0, 5, 2, 1, 0, 9] * 5)
    processed = run_stage(Detect(model=card), shown, batch=batch)
    assert len(processed) == len(shown)
    for frame, expected in zip(processed, boxes, strict=True):
        np.testing.assert_allclose(frame.detections.xyxy, np.reshape(expected, (-1, 4)), atol=0.01)


@pytest.mark.gpu
def test_gpu_and_cpu_find_the_same_objects(card, tmp_path, run_pipeline):
    for index, frame in enumerate(footage([1, 0, 5, 2, 9])[0]):
        pixels = to_rgb(frame.surface, frame.width, frame.height)
        cv2.imwrite(str(tmp_path / f"{index}.png"), pixels[..., ::-1])
    text = f"sources: {{a: {tmp_path}/*.png}}\nstages:\n  detect: {{model: {card.path}}}\n  collect: {{}}\n"
    cpu, gpu = (run_pipeline(text, device=device) for device in ("cpu", "cuda"))
    counts = []
    for source, records in cpu.records.items():
        for cpu_record, gpu_record in zip(records, gpu.records[source], strict=True):
            counts.append(len(cpu_record["objects"]))
            assert [entry["box"] for entry in cpu_record["objects"]] == [
                entry["box"] for entry in gpu_record["objects"]
            ]
    assert sorted(counts) == [0, 1, 2, 5, 9]


def test_the_check_passes(card):
    report = check(card, footage([3, 1, 2])[0])
    assert report.passed
    assert report.objects == 6
