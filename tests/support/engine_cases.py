"""Small networks, each with a case that decides how the engine lays out its buffers or computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from streamkit.engine import reference
from streamkit.engine.graph import OnnxGraph, extract, simplify
from streamkit.engine.lowering import lower
from streamkit.engine.operators import recognize
from streamkit.engine.partition import partition
from streamkit.engine.pixel_rows import products_as_convolutions
from streamkit.engine.program import Delegate, Program
from support.small_networks import NetworkBuilder, run_network

SHAPE = (2, 8, 12, 10)


def program_of(model: object, shape: tuple[int, ...]) -> tuple[OnnxGraph, Program]:
    """Return a network's graph and program; every operator that the engine knows runs in it."""
    graph = products_as_convolutions(simplify(model, {"images": shape}))
    return graph, lower(graph, partition(graph, recognize(graph), min_share=0.0))


def run_program(
    graph: OnnxGraph, program: Program, images: np.ndarray, dtype: type = np.float32
) -> dict[str, np.ndarray]:
    """Run a program in NumPy, with delegated parts in ONNX Runtime."""

    def delegated(step: Delegate, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        part = extract(graph, step.nodes, step.inputs, step.outputs)
        feeds = {
            name: np.asarray(tensors[name], graph.dtypes[name]).reshape(graph.shapes[name]) for name in step.inputs
        }
        return run_network(part, feeds)

    tensors = reference.run(program, {"images": images}, delegated, dtype)
    return {name: tensors[name].reshape(graph.shapes[name]) for name in graph.outputs}


def conv_silu(network: NetworkBuilder) -> list[str]:
    return [network.silu(network.convolution(network.images, 8, 16))]


def stride_2_with_odd_size(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 8, 8, strides=[2, 2])]


def dilation(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 8, 8, dilations=[2, 2], pads=[2, 2, 2, 2])]


def asymmetric_pads(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 8, 8, pads=[0, 1, 2, 0])]


def auto_pad_same_upper(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 8, 8, strides=[2, 2], auto_pad="SAME_UPPER")]


def auto_pad_same_lower(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 8, 8, strides=[2, 2], auto_pad="SAME_LOWER")]


def residual_after_activation(network: NetworkBuilder) -> list[str]:
    first = network.silu(network.convolution(network.images, 8, 8))
    return [network.node("Add", first, network.silu(network.convolution(first, 8, 8)))]


def residual_before_activation(network: NetworkBuilder) -> list[str]:
    first = network.node("Relu", network.convolution(network.images, 8, 8))
    return [network.node("Relu", network.node("Add", network.convolution(first, 8, 8), first))]


def two_residuals_in_a_row(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    total = network.node("Add", network.convolution(first, 8, 8), first)
    return [network.node("Add", total, network.images)]


def branch_that_is_read_twice(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    return [network.node("Relu", first), network.convolution(first, 8, 8)]


def c2f_block(network: NetworkBuilder) -> list[str]:
    """Both halves of a split and two more tensors are joined: all are written in place."""
    whole = network.silu(network.convolution(network.images, 8, 16, 1))
    first, second = network.node("Split", whole, network.integers(8, 8), outputs=2, axis=1)
    third = network.silu(network.convolution(second, 8, 8))
    joined = network.node("Concat", first, second, third, network.silu(network.convolution(third, 8, 8)), axis=1)
    return [network.convolution(joined, 32, 8, 1)]


def half_of_a_split_is_joined(network: NetworkBuilder) -> list[str]:
    whole = network.convolution(network.images, 8, 16, 1)
    first, second = network.node("Split", whole, network.integers(8, 8), outputs=2, axis=1)
    joined = network.node("Concat", second, network.convolution(first, 8, 8), axis=1)
    return [network.convolution(joined, 16, 8, 1)]


def halves_in_the_other_order(network: NetworkBuilder) -> list[str]:
    whole = network.convolution(network.images, 8, 16, 1)
    first, second = network.node("Split", whole, network.integers(8, 8), outputs=2, axis=1)
    return [network.convolution(network.node("Concat", second, first, axis=1), 16, 8, 1)]


def tensor_in_two_concatenations(network: NetworkBuilder) -> list[str]:
    first, second, third = (network.convolution(network.images, 8, 8) for _ in range(3))
    one_side = network.node("Concat", first, second, axis=1)
    other_side = network.node("Concat", third, second, axis=1)
    return [network.convolution(one_side, 16, 8, 1), network.convolution(other_side, 16, 8, 1)]


def tensor_twice_in_a_concatenation(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    return [network.convolution(network.node("Concat", first, first, axis=1), 16, 8, 1)]


def half_before_the_whole(network: NetworkBuilder) -> list[str]:
    """Where the half begins, the whole would reach into the next part."""
    first = network.convolution(network.images, 8, 16)
    half, _ = network.node("Split", first, outputs=2, axis=1)
    return [network.convolution(network.node("Concat", half, first, first, axis=1), 40, 8)]


def part_that_is_also_in_a_larger_concatenation(network: NetworkBuilder) -> list[str]:
    """Both concatenations begin with the same tensor."""
    first = network.convolution(network.images, 8, 8)
    small = network.node("Concat", first, network.node("Relu", first), axis=1)
    large = network.node("Concat", first, first, small, axis=1)
    return [network.convolution(small, 16, 8), network.convolution(large, 32, 8)]


def concatenation_in_a_concatenation(network: NetworkBuilder) -> list[str]:
    first, second, third = (network.convolution(network.images, 8, 8) for _ in range(3))
    inner = network.node("Concat", first, second, axis=1)
    outer = network.node("Concat", third, inner, axis=1)
    return [network.convolution(inner, 16, 8, 1), network.convolution(outer, 24, 8, 1)]


def channels_that_are_no_multiple_of_8(network: NetworkBuilder) -> list[str]:
    first = network.silu(network.convolution(network.images, 8, 7))
    second = network.convolution(first, 7, 3)
    joined = network.node("Concat", first, second, network.convolution(network.images, 8, 5), axis=1)
    return [network.convolution(joined, 15, 1), network.node("Sigmoid", joined)]


def split_at_odd_channels(network: NetworkBuilder) -> list[str]:
    whole = network.convolution(network.images, 8, 12)
    parts = network.node("Split", whole, network.integers(5, 7), outputs=2, axis=1)
    return [network.convolution(parts[0], 5, 4), network.convolution(parts[1], 7, 4)]


def output_in_the_middle(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    second = network.node("Relu", first)
    return [first, network.convolution(second, 8, 8), second]


def depthwise_blocks(network: NetworkBuilder) -> list[str]:
    first = network.node(
        "Clip", network.convolution(network.images, 8, 24, 1), network.constant(0), network.constant(6)
    )
    second = network.silu(network.convolution(first, 24, 24, 5, groups=24, strides=[2, 2]))
    return [network.convolution(network.convolution(second, 24, 24, 3, groups=24), 24, 8, 1)]


def hard_swish_of_four_nodes(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    gate = network.node(
        "Clip", network.node("Add", first, network.constant(3)), network.constant(0), network.constant(6)
    )
    return [network.node("Div", network.node("Mul", first, gate), network.constant(6))]


def squeeze_and_excitation(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 16)
    mean = network.node("GlobalAveragePool", first)
    gate = network.node("HardSigmoid", network.convolution(mean, 16, 16, 1), alpha=0.2, beta=0.5)
    return [network.convolution(network.node("Mul", gate, first), 16, 8, 1)]


def sum_with_one_pixel(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    return [network.convolution(network.node("Add", network.node("GlobalAveragePool", first), first), 8, 8)]


def factors_and_offsets(network: NetworkBuilder) -> list[str]:
    first = network.node("Relu", network.convolution(network.images, 8, 8))
    scaled = network.node("Mul", first, network.constant(np.linspace(0.5, 2, 8).reshape(1, 8, 1, 1)))
    shifted = network.node("Sub", network.constant(1.5), scaled)
    return [network.convolution(network.node("Div", shifted, network.constant(0.25)), 8, 8)]


def channel_factors_after_a_convolution(network: NetworkBuilder) -> list[str]:
    """ONNX Runtime does not fold these into the convolution."""
    factors, offsets = (network.constant(np.linspace(*ends, 8).reshape(8, 1, 1)) for ends in ((0.5, 2.0), (-1.0, 1.0)))
    divided = network.node("Div", network.convolution(network.images, 8, 8), factors)
    return [network.node("Sub", offsets, divided)]


def channel_factors_after_a_depthwise_convolution(network: NetworkBuilder) -> list[str]:
    factors = network.constant(np.linspace(0.5, 2.0, 8).reshape(8, 1, 1))
    return [network.node("Div", network.convolution(network.images, 8, 8, groups=8), factors)]


def leaky_relu(network: NetworkBuilder) -> list[str]:
    return [network.node("LeakyRelu", network.convolution(network.images, 8, 8), alpha=0.1)]


def pools(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    largest = network.node("MaxPool", first, kernel_shape=[5, 5], pads=[2, 2, 2, 2])
    inside = network.node("AveragePool", largest, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    whole = network.node(
        "AveragePool", first, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
    )
    up = network.node("MaxPool", first, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    return [largest, inside, whole, network.convolution(up, 8, 8)]


def resized(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    scales = network.constant([1, 1, 2, 3])
    nearest = network.node(
        "Resize", first, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    linear = network.node("Resize", first, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return [network.convolution(network.node("Concat", nearest, linear, axis=1), 16, 8)]


def padding_before_a_pool_and_a_convolution(network: NetworkBuilder) -> list[str]:
    first = network.node("Relu", network.convolution(network.images, 8, 8))
    around = network.node("Pad", first, network.integers(0, 0, 0, 0, 0, 0, 1, 1))
    return [
        network.node("MaxPool", around, kernel_shape=[2, 2]),
        network.convolution(around, 8, 8, 2, pads=[0, 0, 0, 0]),
    ]


def padding_that_others_read(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 8)
    around = network.node("Pad", first, network.integers(0, 0, 1, 2, 0, 0, 1, 0))
    return [network.node("Relu", around), network.convolution(around, 8, 8)]


def upconvolution(network: NetworkBuilder) -> list[str]:
    first = network.convolution(network.images, 8, 12)
    weight = network.random(12, 6, 2, 2)
    bias = network.random(6)
    return [network.convolution(network.node("ConvTranspose", first, weight, bias, strides=[2, 2]), 6, 8)]


def focus_of_slices(network: NetworkBuilder) -> list[str]:
    """The first layer of YOLOX and YOLOv5: blocks of pixels as channels, columns first."""
    parts = []
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        bounds = [network.integers(*values) for values in ([row, column], [2**31, 2**31], [2, 3], [2, 2])]
        parts.append(network.node("Slice", network.images, *bounds))
    return [network.silu(network.convolution(network.node("Concat", *parts, axis=1), 4 * 3, 16))]


def blocks_that_are_an_output(network: NetworkBuilder) -> list[str]:
    return [network.node("SpaceToDepth", network.images, blocksize=2), network.convolution(network.images, 3, 8)]


def three_channels_with_stride_2(network: NetworkBuilder) -> list[str]:
    return [network.silu(network.convolution(network.images, 3, 16, strides=[2, 2]))]


def six_by_six_first_layer(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 3, 16, 6, strides=[2, 2], pads=[2, 2, 2, 2])]


def seven_by_seven_first_layer(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 3, 16, 7, strides=[2, 2], pads=[3, 3, 3, 3])]


def first_layer_with_pads_below(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 3, 16, strides=[2, 2], auto_pad="SAME_UPPER")]


def first_layer_without_pads(network: NetworkBuilder) -> list[str]:
    return [network.convolution(network.images, 3, 16, strides=[2, 2], pads=[0, 0, 0, 0])]


def image_that_others_read(network: NetworkBuilder) -> list[str]:
    smaller = network.node("AveragePool", network.images, kernel_shape=[2, 2], strides=[2, 2])
    first = network.convolution(network.images, 3, 5, strides=[2, 2])
    return [network.convolution(network.node("Concat", first, smaller, axis=1), 8, 8)]


def attention_between_convolutions(network: NetworkBuilder) -> list[str]:
    """ONNX Runtime runs the middle; a tensor of the first part is read again in the last."""
    first = network.convolution(network.images, 8, 8)
    rows = network.node("Reshape", first, network.integers(2, 8, 120))
    weights = network.node("Softmax", network.node("MatMul", network.node("Transpose", rows, perm=[0, 2, 1]), rows))
    back = network.node("Reshape", network.node("MatMul", rows, weights), network.integers(2, 8, 12, 10))
    return [network.convolution(network.node("Add", back, first), 8, 8)]


def rows_cut_off(network: NetworkBuilder) -> list[str]:
    """A convolution reads images that are not back to back in memory."""
    first = network.convolution(network.images, 8, 8)
    cut = network.node("Slice", first, *map(network.integers, (2, 9, 2)))
    return [network.convolution(cut, 8, 8), network.node("Relu", cut)]


def rows_of_two_images(network: NetworkBuilder, channels: int = 8) -> list[str]:
    """Join the pixels of two images, hide some, project, normalize and score them, as DETR's descendants do."""
    rows = []
    for stride in (1, 2):
        image = network.convolution(network.images, 8, channels, strides=[stride, stride])
        flat = network.node("Reshape", image, network.integers(2, channels, 120 // stride**2))
        rows.append(network.node("Transpose", flat, perm=[0, 2, 1]))
    joined = network.node("Concat", *rows, axis=1)
    mask = network.constant(np.arange(150).reshape(1, 150, 1) % 7 > 1)
    hidden = network.node("Mul", mask, joined)
    projected = network.node("MatMul", hidden, network.random(channels, 20))
    projected = network.node("Add", projected, network.constant(np.linspace(-1, 1, 20)))
    scale = network.constant(np.linspace(0.5, 2, 20))
    shift = network.constant(np.linspace(-0.3, 0.3, 20))
    normalized = network.node("LayerNormalization", projected, scale, shift, axis=-1)
    scores = network.node("Relu", network.node("MatMul", normalized, network.random(20, 5)))
    return [network.node("ReduceMax", scores, axes=[2]), network.node("Neg", normalized)]


def rows_of_13_channels(network: NetworkBuilder) -> list[str]:
    return rows_of_two_images(network, 13)


def rows_by_joined_planes(network: NetworkBuilder) -> list[str]:
    """Join images before their channels become the last axis; add two projections."""
    planes = []
    for stride in (1, 2):
        image = network.convolution(network.images, 8, 16, strides=[stride, stride])
        planes.append(network.node("Reshape", image, network.integers(2, 16, 120 // stride**2)))
    joined = network.node("Concat", *planes, axis=2)
    matrix = network.node("Reshape", network.node("Transpose", joined, perm=[0, 2, 1]), network.integers(300, 16))
    first = network.node("Gemm", matrix, network.random(24, 16), network.random(24), transB=1)
    second = network.node("Gemm", matrix, network.random(16, 24))
    total = network.node("Sigmoid", network.node("Add", first, second))
    return [network.node("Reshape", total, network.integers(2, 150, 24)), network.node("Neg", joined)]


def rows_of_one_image(network: NetworkBuilder) -> list[str]:
    """Project pixels with channels last; the image is read as such, too."""
    image = network.convolution(network.images, 8, 16)
    rows = network.node("Transpose", image, perm=[0, 2, 3, 1])
    projected = network.node("MatMul", rows, network.random(16, 8))
    scaled = network.node("Mul", projected, network.constant(0.5))
    return [network.node("Softmax", scaled), network.node("Neg", rows), network.convolution(image, 16, 8)]


def one_image_twice_among_rows(network: NetworkBuilder) -> list[str]:
    image = network.convolution(network.images, 8, 8)
    rows = network.node("Transpose", network.node("Reshape", image, network.integers(2, 8, 120)), perm=[0, 2, 1])
    joined = network.node("Concat", rows, rows, axis=1)
    return [network.node("Softmax", network.node("MatMul", joined, network.random(8, 8)))]


BATCH = 2
HEADS = 3
CHANNELS = 4
QUERIES = 5
LEVELS = ((6, 4), (3, 2))
POINTS = (4, 2)
ATTENTION_SHAPE = (BATCH, HEADS * CHANNELS, 6, 5)


def attention(
    network: NetworkBuilder, *, one_level: bool = False, channels_first: bool = False, of_rows: bool = False
) -> str:
    """Add a deformable attention whose features, points and weights come from the images.

    Args:
        network: to add it to.
        one_level: sample one resolution.
        channels_first: features come with their channels before their pixels.
        of_rows: features are a product of the images' pixels, which the engine computes.
    """
    levels = LEVELS[:1] if one_level else LEVELS
    points = POINTS[:1] if one_level else POINTS
    pixels = sum(rows * columns for rows, columns in levels)
    total = sum(points)
    across = HEADS * CHANNELS

    def projected(*shape: int) -> str:
        """Return a tensor of this shape, a projection of all of the images' values."""
        flat = network.node("Reshape", network.images, network.integers(BATCH, int(np.prod(ATTENTION_SHAPE[1:]))))
        values = network.node("MatMul", flat, network.random(int(np.prod(ATTENTION_SHAPE[1:])), int(np.prod(shape))))
        return str(network.node("Reshape", values, network.integers(BATCH, *shape)))

    if channels_first:
        features = network.node("Reshape", projected(across, pixels), network.integers(BATCH * HEADS, CHANNELS, pixels))
    else:
        values = projected_pixels(network) if of_rows else projected(pixels, across)
        rows = network.node("Reshape", values, network.integers(BATCH, pixels, HEADS, CHANNELS))
        turned = network.node("Transpose", rows, perm=[0, 2, 3, 1])
        features = network.node("Reshape", turned, network.integers(BATCH * HEADS, CHANNELS, pixels))
    places = network.node("Transpose", projected(QUERIES, HEADS, total, 2), perm=[0, 2, 1, 3, 4])
    places = network.node("Reshape", places, network.integers(BATCH * HEADS, QUERIES, total, 2))
    weights = network.node("Softmax", projected(QUERIES, HEADS, total))
    weights = network.node("Transpose", weights, perm=[0, 2, 1, 3])
    weights = network.node("Reshape", weights, network.integers(BATCH * HEADS, 1, QUERIES, total))
    samples = []
    pixel = 0
    point = 0
    for (rows_count, columns), count in zip(levels, points, strict=True):
        end = pixel + rows_count * columns
        part = network.node("Slice", features, *map(network.integers, (pixel, end, 2)))
        image = network.node("Reshape", part, network.integers(BATCH * HEADS, CHANNELS, rows_count, columns))
        grid = network.node("Slice", places, *map(network.integers, (point, point + count, 2)))
        samples.append(network.node("GridSample", image, grid, mode="bilinear", padding_mode="zeros", align_corners=0))
        pixel = end
        point = point + count
    joined = samples[0] if one_level else network.node("Concat", *samples, axis=-1)
    total_sum = network.node("ReduceSum", network.node("Mul", joined, weights), network.integers(-1), keepdims=0)
    turned_sum = network.node("Reshape", total_sum, network.integers(BATCH, across, QUERIES))
    return str(network.node("Transpose", turned_sum, perm=[0, 2, 1]))


def projected_pixels(network: NetworkBuilder) -> str:
    """Add a projection of the images' pixels, (batch, pixels, channels)."""
    channels, height, width = ATTENTION_SHAPE[1:]
    image = network.convolution(network.images, channels, channels)
    planes = network.node("Reshape", image, network.integers(BATCH, channels, height * width))
    rows = network.node("Transpose", planes, perm=[0, 2, 1])
    return str(network.node("MatMul", rows, network.random(channels, HEADS * CHANNELS)))


def attention_to_rows(network: NetworkBuilder) -> list[str]:
    return [network.node("Neg", attention(network, of_rows=True))]


EIGHT_CHANNELS: list[Callable[[NetworkBuilder], list[str]]] = [
    conv_silu,
    dilation,
    asymmetric_pads,
    auto_pad_same_upper,
    auto_pad_same_lower,
    residual_after_activation,
    residual_before_activation,
    two_residuals_in_a_row,
    branch_that_is_read_twice,
    c2f_block,
    half_of_a_split_is_joined,
    halves_in_the_other_order,
    half_before_the_whole,
    part_that_is_also_in_a_larger_concatenation,
    tensor_in_two_concatenations,
    tensor_twice_in_a_concatenation,
    concatenation_in_a_concatenation,
    channels_that_are_no_multiple_of_8,
    split_at_odd_channels,
    output_in_the_middle,
    depthwise_blocks,
    hard_swish_of_four_nodes,
    squeeze_and_excitation,
    sum_with_one_pixel,
    factors_and_offsets,
    channel_factors_after_a_convolution,
    channel_factors_after_a_depthwise_convolution,
    leaky_relu,
    pools,
    resized,
    padding_before_a_pool_and_a_convolution,
    padding_that_others_read,
    upconvolution,
    attention_between_convolutions,
    rows_cut_off,
]
IMAGES: list[Callable[[NetworkBuilder], list[str]]] = [
    focus_of_slices,
    three_channels_with_stride_2,
    six_by_six_first_layer,
    seven_by_seven_first_layer,
    first_layer_with_pads_below,
    first_layer_without_pads,
    image_that_others_read,
    blocks_that_are_an_output,
]
ROWS: list[Callable[[NetworkBuilder], list[str]]] = [
    rows_of_two_images,
    rows_of_13_channels,
    rows_by_joined_planes,
    rows_of_one_image,
    one_image_twice_among_rows,
]
CASES = [
    *(pytest.param(case, SHAPE, id=case.__name__) for case in EIGHT_CHANNELS),
    pytest.param(stride_2_with_odd_size, (2, 8, 11, 9), id="stride_2_with_odd_size"),
    *(pytest.param(case, SHAPE, id=case.__name__) for case in ROWS),
    pytest.param(attention_to_rows, ATTENTION_SHAPE, id="attention_to_rows"),
    *(pytest.param(case, (2, 3, 12, 10), id=case.__name__) for case in IMAGES),
    pytest.param(three_channels_with_stride_2, (2, 3, 11, 9), id="three_channels_with_stride_2_and_odd_size"),
]
