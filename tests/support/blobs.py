"""Networks that detect red and blue rectangles, with the outputs of plugin families, and images of such rectangles.

They measure: for each place, how many pixels of a color there are to its left, right, above and below. Within a
rectangle these are the distances to its sides, so that every box is exact.
"""

from pathlib import Path

import numpy as np
import pytest

WIDTH = 128
HEIGHT = 96
COLORS = {"red": (224, 32, 32), "blue": (32, 32, 224)}
GROUND = (112, 112, 112)
SCALE = 2
"""Source pixels of a network pixel."""
_REACH = 64
_SIDES = ("left", "top", "right", "bottom")


def picture(*objects):
    """An RGB image, of twice the networks' size, with rectangles: color, then x1, y1, x2, y2 in network pixels."""
    canvas = np.full((SCALE * HEIGHT, SCALE * WIDTH, 3), GROUND, np.uint8)
    for color, x1, y1, x2, y2 in objects:
        canvas[SCALE * y1 : SCALE * y2, SCALE * x1 : SCALE * x2] = COLORS[color]
    return canvas


class _Builder:
    """Collect the nodes of a network."""

    def __init__(self):
        self.onnx = pytest.importorskip("onnx")
        self.nodes = []
        self.constants = []

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind, *operands, **attributes):
        name = f"n{len(self.nodes)}"
        operands = [operand if isinstance(operand, str) else self.constant(operand) for operand in operands]
        self.nodes.append(self.onnx.helper.make_node(kind, operands, [name], **attributes))
        return name

    def save(self, path, outputs):
        helper = self.onnx.helper
        real = self.onnx.TensorProto.FLOAT
        for name, (tensor_name, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [tensor_name], [name]))
        graph = helper.make_graph(
            self.nodes,
            "blobs",
            [helper.make_tensor_value_info("images", real, ["N", 3, HEIGHT, WIDTH])],
            [helper.make_tensor_value_info(name, real, ["N", *shape]) for name, (_, shape) in outputs.items()],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        self.onnx.checker.check_model(model)
        self.onnx.save(model, path)

    def colored(self):
        """(N, 2, H, W): 1 where a pixel is red or blue, else 0."""
        kernel = np.float32([[1, -0.5, -0.5], [-0.5, -0.5, 1]]).reshape(2, 3, 1, 1) * 40
        return self.add("Clip", self.add("Conv", "images", kernel, np.full(2, -14, np.float32)), *np.float32([0, 1]))

    def at(self, colored, stride):
        """The values of each stride-th place."""
        return self.add("AveragePool", colored, kernel_shape=[1, 1], strides=[stride, stride])

    def distances(self, colored, stride):
        """(N, 2, h, w) each: colored pixels to the left, above, right and below of each stride-th place."""
        distances = []
        for side in _SIDES:
            axis = 0 if side in ("left", "right") else 1
            ones = np.zeros(2 * _REACH, np.float32)
            ones[:_REACH] = side in ("left", "top")
            ones[_REACH:] = side in ("right", "bottom")
            size = (WIDTH, HEIGHT)[axis]
            after = (-(-size // stride) - 1) * stride + _REACH - size
            shape, pads = (
                ([1, 2 * _REACH], [0, _REACH, 0, after]) if axis == 0 else ([2 * _REACH, 1], [_REACH, 0, after, 0])
            )
            kernel = np.tile(ones.reshape(1, 1, *shape), (2, 1, 1, 1))
            distances.append(self.add("Conv", colored, kernel, group=2, pads=pads, strides=[stride, stride]))
        return distances

    def unbalance(self, left, top, right, bottom):
        """Return the distance of each position from the center, in pixels."""
        return self.add(
            "Add", self.add("Abs", self.add("Sub", right, left)), self.add("Abs", self.add("Sub", bottom, top))
        )

    def over_classes(self, value, colored):
        """Select by the class of each position, (N, 1, h, w)."""
        return self.add("ReduceSum", self.add("Mul", value, colored), np.array([1]), keepdims=1)


def centernet_network(path: Path) -> None:
    """Outputs hm (logits), wh and reg, at stride 4."""
    net = _Builder()
    stride = 4
    colored = net.colored()
    sides = net.distances(colored, stride)
    here = net.at(colored, stride)
    left, top, right, bottom = sides
    peak = net.add("Sub", net.add("Mul", here, np.float32(8)), net.add("Mul", net.unbalance(*sides), np.float32(0.1)))
    spans = [
        net.add("Div", net.add("Add", low, high), np.float32(stride)) for low, high in ((left, right), (top, bottom))
    ]
    shifts = [
        net.add("Div", net.add("Sub", high, low), np.float32(2 * stride))
        for low, high in ((left, right), (top, bottom))
    ]
    wh, reg = (net.add("Concat", *(net.over_classes(side, here) for side in both), axis=1) for both in (spans, shifts))
    grid = (HEIGHT // stride, WIDTH // stride)
    net.save(
        path,
        {"hm": (net.add("Sub", peak, np.float32(4)), (2, *grid)), "wh": (wh, (2, *grid)), "reg": (reg, (2, *grid))},
    )


def nanodet_network(path: Path) -> None:
    """One output of anchors at strides 8, 16, 32 and 64: scores, then a distribution over 8 bins for each side."""
    net = _Builder()
    rows = []
    count = 0
    colored = net.colored()
    for stride in (8, 16, 32, 64):
        sides = net.distances(colored, stride)
        here = net.at(colored, stride)
        far = net.add("Mul", net.unbalance(*sides), np.float32(0.4 / _REACH))
        score = net.add("Mul", net.add("Sub", np.float32(0.95 - stride / 1000), far), here)
        strides = net.add(
            "Div", net.add("Concat", *(net.over_classes(side, here) for side in sides), axis=1), np.float32(stride)
        )
        offset = net.add(
            "Sub", net.add("Unsqueeze", strides, np.array([2])), np.arange(8, dtype=np.float32).reshape(1, 1, 8, 1, 1)
        )
        share = net.add("Max", net.add("Sub", np.float32(1), net.add("Abs", offset)), np.float32(1e-9))
        down = -(-HEIGHT // stride)
        across = -(-WIDTH // stride)
        bins = net.add("Reshape", net.add("Log", share), np.array([0, 32, down, across]))
        rows.append(net.add("Reshape", net.add("Concat", score, bins, axis=1), np.array([0, 34, -1])))
        count += down * across
    net.save(path, {"output": (net.add("Transpose", net.add("Concat", *rows, axis=2), perm=[0, 2, 1]), (count, 34))})


def obb_network(path: Path) -> None:
    """One output in the form of YOLOv8-obb: for each quarter of the image and color, the rectangle in it, twice.

    The rectangle is that with the moments of the colored pixels. The second copy is moved by a pixel and less certain.
    """
    net = _Builder()
    quarters = net.add("Reshape", net.colored(), np.array([0, 2, 2, HEIGHT // 2, 2, WIDTH // 2]))
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32) + 0.5
    x, y = (coordinates.reshape(1, 1, 2, HEIGHT // 2, 2, WIDTH // 2) for coordinates in (x, y))

    def total(*weights):
        value = quarters
        for weight in weights:
            value = net.add("Mul", value, weight)
        return net.add("Reshape", net.add("ReduceSum", value, np.array([3, 5]), keepdims=0), np.array([0, 1, -1]))

    def moment(mean_first, mean_second, *weights):
        return net.add("Sub", net.add("Div", total(*weights), some), net.add("Mul", mean_first, mean_second))

    count = total()
    some = net.add("Max", count, np.float32(1))
    cx = net.add("Div", total(x), some)
    cy = net.add("Div", total(y), some)
    xx = moment(cx, cx, x, x)
    yy = moment(cy, cy, y, y)
    xy = moment(cx, cy, x, y)
    middle = net.add("Mul", net.add("Add", xx, yy), np.float32(0.5))
    apart = net.add("Mul", net.add("Sub", xx, yy), np.float32(0.5))
    squares = net.add("Add", net.add("Mul", apart, apart), net.add("Mul", xy, xy))
    root = net.add("Sqrt", net.add("Max", squares, np.float32(1e-6)))
    larger = net.add("Add", middle, root)
    sides = [
        net.add("Sqrt", net.add("Mul", net.add("Max", eigenvalue, np.float32(0)), np.float32(12)))
        for eigenvalue in (larger, net.add("Sub", middle, root))
    ]
    angle = net.add("Atan", net.add("Div", net.add("Sub", larger, xx), net.add("Add", xy, np.float32(1e-6))))
    score = net.add(
        "Mul", net.add("Clip", net.add("Div", count, np.float32(100)), *np.float32([0, 1])), np.float32(0.9)
    )
    scores = [net.add("Mul", score, np.float32([[[c == k for c in (0, 1) for _ in range(4)]]])) for k in (0, 1)]
    first = net.add("Concat", cx, cy, *sides, *scores, angle, axis=1)
    moved = net.add("Add", first, np.float32([1, 0, 0, 0, 0, 0, 0]).reshape(1, 7, 1))
    second = net.add("Mul", moved, np.float32([1, 1, 1, 1, 0.8, 0.8, 1]).reshape(1, 7, 1))
    net.save(path, {"output0": (net.add("Concat", first, second, axis=2), (7, 16))})


def rotated_corners(x, y, width, height, angle):
    """The corners of a rotated rectangle, (4, 2): upper left, upper right, lower right, lower left before it turns."""
    along = np.array([np.cos(angle), np.sin(angle)])
    down = np.array([-np.sin(angle), np.cos(angle)])
    return np.array(
        [(x, y) + i * width / 2 * along + j * height / 2 * down for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    )


def rotated_picture(*objects):
    """An RGB image with rotated rectangles: color, then x, y, width, height in network pixels, angle in radians."""
    canvas = picture()
    y, x = np.mgrid[: SCALE * HEIGHT, : SCALE * WIDTH] + 0.5
    for color, cx, cy, width, height, angle in objects:
        dx = x - SCALE * cx
        dy = y - SCALE * cy
        along = dx * np.cos(angle) + dy * np.sin(angle)
        down = dy * np.cos(angle) - dx * np.sin(angle)
        canvas[(np.abs(along) < SCALE * width / 2) & (np.abs(down) < SCALE * height / 2)] = COLORS[color]
    return canvas


NETWORKS = {"centernet": centernet_network, "nanodet": nanodet_network}


def blob_card(family: str, folder: Path, **keys: str) -> Path:
    """Write the network of a family and its card into `folder`, which the family names; return the card."""
    {**NETWORKS, "yolov8_obb": obb_network}[family](folder / f"{family}.onnx")
    more = "".join(f"{key}: {value}\n" for key, value in keys.items())
    card = folder / f"{family}.yaml"
    card.write_text(
        f"task: detect\nfamily: {family}\nfile: {family}.onnx\nlabels: [red, blue]\nscore: 0.3\n"
        f"input: {{size: [{WIDTH}, {HEIGHT}], color: rgb, scale: 1/255}}\n{more}"
    )
    return card
