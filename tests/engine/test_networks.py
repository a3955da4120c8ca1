"""Real networks in the engine: each program, in NumPy, computes what ONNX Runtime does, and has most of the work."""

import numpy as np
import onnx
import pytest
from support.engine_cases import program_of
from support.small_networks import NetworkBuilder, run_network

from streamkit.engine import reference
from streamkit.engine.device import takes_packed
from streamkit.engine.graph import extract, simplify
from streamkit.engine.lowering import lower
from streamkit.engine.operators import recognize
from streamkit.engine.partition import fused_share, partition
from streamkit.engine.program import Export, Import

NETWORKS = {
    "yolox_nano_dyn": ((2, 3, 160, 160), 1.0),
    "yolov8n_640_deq_dyn": ((1, 3, 640, 640), 1.0),
    "yolov8n-seg_320_deq_dyn": ((2, 3, 320, 320), 1.0),
    "deimv2_hgnetv2_atto_coco": ((2, 3, 320, 320), 0.92),
    "yunet_n_dynamic": ((2, 3, 160, 160), 1.0),
    "mobilenetv2_imagenet_deq": ((2, 3, 224, 224), 0.99),
    "deeplabv3_mnv2_voc_257": ((1, 257, 257, 3), 1.0),
    "movenet_lightning_192": ((1, 192, 192, 3), 1.0),
    "person-reidentification-retail-0288": ((1, 256, 128, 3), 0.99),
}
"""The shape of the images, and the least share of multiply-adds in the engine."""


@pytest.fixture(params=NETWORKS)
def network(request, test_data):
    """The graph of a network, and an input for it."""
    model = onnx.load(test_data / "models" / f"{request.param}.onnx")
    shape, min_fused = NETWORKS[request.param]
    shapes = {tensor.name: (shape[0], 2) for tensor in model.graph.input}
    images = next(tensor for tensor in model.graph.input if len(tensor.type.tensor_type.shape.dim) == 4)
    shapes[images.name] = shape
    graph = simplify(model, shapes)
    rng = np.random.default_rng(0)
    feeds = {name: rng.uniform(0, 200, shapes[name]).astype(graph.dtypes[name]) for name in graph.inputs}
    return graph, feeds, min_fused


def test_a_program_computes_what_the_network_does(network):
    graph, feeds, _ = network
    program = lower(graph, partition(graph, recognize(graph)))
    between = [step.name for step in program.steps if isinstance(step, Export)]
    expected = {**feeds, **run_network(graph.model, feeds, [*between, *delegated_tensors(graph, program)])}

    def delegated(step, tensors):
        part = extract(graph, step.nodes, step.inputs, step.outputs)
        return run_network(part, {name: expected[name] for name in step.inputs})  # so that ties do not matter

    computed = reference.run(program, feeds, delegated, np.float32)
    for name in between:
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(computed[name], expected[name], rtol=0, atol=5e-4 * scale, err_msg=name)


def test_images_are_written_to_the_buffer_of_networks_that_take_channels_first(network):
    graph, feeds, _ = network
    program = lower(graph, partition(graph, recognize(graph)))
    images = next(name for name, values in feeds.items() if values.ndim == 4)
    imports = [step for step in program.steps if isinstance(step, Import) and step.name in graph.inputs]
    packed = [step.name for step in imports if takes_packed(step, program)]
    assert packed == ([images] if feeds[images].shape[1] == 3 else [])


def delegated_tensors(graph, program):
    """Return the tensors that ONNX Runtime's parts read and are no input of the network."""
    names = {name for step in program.steps for name in getattr(step, "inputs", ())}
    return sorted(names - set(graph.inputs))


def test_the_engine_has_most_of_the_work(network):
    graph, _, min_fused = network
    assert fused_share(graph, partition(graph, recognize(graph))) >= min_fused - 0.005


def stem_alone(network):
    return [network.convolution(network.images, 3, 16)]


def stem_beside_a_reader(network):
    return [network.convolution(network.images, 3, 16), network.node("ReduceMean", network.images, axes=[1])]


@pytest.mark.parametrize(("case", "packed"), [(stem_alone, True), (stem_beside_a_reader, False)])
def test_images_that_onnx_runtime_reads_too_stay_a_tensor(case, packed):
    network = NetworkBuilder((1, 3, 32, 32))
    _, program = program_of(network.model(*case(network)), (1, 3, 32, 32))
    (step,) = [step for step in program.steps if isinstance(step, Import)]
    assert takes_packed(step, program) == packed
