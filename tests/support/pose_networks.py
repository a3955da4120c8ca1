"""Networks that find colored spots, with the outputs of top-down pose networks; pictures with spots at known places."""

from pathlib import Path

import numpy as np
import pytest

INPUT = (192, 256)
"""Width and height of the networks' input."""
_HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
_SPOTS = """
    raw = Conv(images, weight)
    positive = Relu(raw)
    smooth = AveragePool <kernel_shape = [9, 9], pads = [4, 4, 4, 4]>(positive)
    spots = Gather <axis = 1>(smooth, order)
"""
_SIMCC = """
    squares = Mul(spots, spots)
    across = ReduceSum <keepdims = 1>(squares, rows)
    down = ReduceSum <keepdims = 1>(squares, columns)
    low_x = Mul(across, share)
    low_y = Mul(down, share)
    high_x = Resize <mode = "cubic", coordinate_transformation_mode = "asymmetric">(low_x, , twice_across)
    high_y = Resize <mode = "cubic", coordinate_transformation_mode = "asymmetric">(low_y, , twice_down)
    {x} = Squeeze(high_x, rows)
    {y} = Squeeze(high_y, columns)
"""
_HEATMAPS = """
    shape = Shape <start = 0, end = 2>(spots)
    sizes = Concat <axis = 0>(shape, cells)
    heatmaps = Resize <mode = "linear", coordinate_transformation_mode = "{mode}">(spots, , , sizes)
"""


def pose_network(path: Path, form: str, points: int = 17, names: tuple[str, str] = ("simcc_x", "simcc_y")) -> Path:
    """Write a network whose keypoint i is where the color i % 3 is: `simcc`, `heatmaps` or `heatmaps_udp`.

    Args:
        path: the file.
        form: the family.
        points: number of keypoints.
        names: of the outputs of `simcc`, that of x first.
    """
    onnx = pytest.importorskip("onnx")
    wide, high = INPUT
    if form == "simcc":
        body = _SIMCC.format(x=names[0], y=names[1])
        results = f"float[N,{points},{2 * wide}] {names[0]}, float[N,{points},{2 * high}] {names[1]}"
    else:
        body = _HEATMAPS.format(mode="align_corners" if form == "heatmaps_udp" else "asymmetric")
        results = f"float[N,{points},{high // 4},{wide // 4}] heatmaps"
    order = ", ".join(str(point % 3) for point in range(points))
    weight = ", ".join(f"{number:.1f}" for number in (2 * np.eye(3) - 1).ravel())
    image = "pixel_values" if form == "heatmaps_udp" else "images"
    text = f"""{_HEAD}
spots (float[N,3,{high},{wide}] {image}) => ({results})
<int64[{points}] order = {{{order}}}, float[3,3,1,1] weight = {{{weight}}}, float[1] share = {{0.03}},
 float[4] twice_across = {{1.0, 1.0, 1.0, 2.0}}, float[4] twice_down = {{1.0, 1.0, 2.0, 1.0}},
 int64[1] rows = {{2}}, int64[1] columns = {{3}},
 int64[2] cells = {{{high // 4}, {wide // 4}}}>
{{{_SPOTS.replace("images", image)}{body}}}"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def spotted(size: tuple[int, int], spots: list[list[tuple[float, float]]], spread_px: float = 4.0) -> np.ndarray:
    """Return an RGB picture with a red, a green and a blue spot of each list, at x, y from the picture's edge."""
    wide, high = size
    rgb = np.zeros((high, wide, 3))
    y, x = np.mgrid[:high, :wide] + 0.5
    for places in spots:
        for color, (at_x, at_y) in enumerate(places):
            rgb[..., color] += 255 * np.exp(-((x - at_x) ** 2 + (y - at_y) ** 2) / (2 * spread_px**2))
    return np.clip(np.rint(rgb), 0, 255).astype(np.uint8)
