"""Programs on a GPU against the same in NumPy."""

import numpy as np
import pytest
from support.engine_cases import CASES, SHAPE, attention_between_convolutions, c2f_block, program_of
from support.small_networks import NetworkBuilder, run_network

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    import cupy

    from streamkit.engine.plans import PlanStore

    with cupy.cuda.Stream(non_blocking=True):
        yield PlanStore(tmp_path_factory.mktemp("plans"))


def on_device(case, shape, plans):
    """Return what runs a case on the GPU, its graph, and random images."""
    from streamkit.engine.device import DeviceProgram, Weights

    network = NetworkBuilder(shape)
    model = network.model(*case(network))
    graph, program = program_of(model, shape)
    images = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    return DeviceProgram(program, graph, Weights(), plans), graph, program, images


def delegated_by(graph):
    """Return what runs parts of a network in ONNX Runtime on the CPU, for arrays on the GPU."""
    import cupy

    from streamkit.engine.graph import extract

    def run(step, tensors):
        part = extract(graph, step.nodes, step.inputs, step.outputs)
        feeds = {name: cupy.asnumpy(tensors[name]).reshape(graph.shapes[name]) for name in step.inputs}
        return {name: cupy.asarray(values) for name, values in run_network(part, feeds).items()}

    return run


def expected_of(graph, program, images):
    from support.engine_cases import run_program

    return run_program(graph, program, images, np.float16)


@pytest.mark.parametrize(("case", "shape"), CASES)
def test_a_program_computes_the_same_on_both_devices(case, shape, plans):
    import cupy

    device, graph, program, images = on_device(case, shape, plans)
    outputs = device.run({"images": cupy.asarray(images)}, delegated_by(graph))
    for name, expected in expected_of(graph, program, images).items():
        computed = cupy.asnumpy(outputs[name]).reshape(expected.shape)
        assert np.linalg.norm(computed - expected) < 2e-3 * np.linalg.norm(expected), name


def test_cuda_graphs_compute_the_same_as_launches(plans):
    import cupy

    device, graph, _, images = on_device(attention_between_convolutions, SHAPE, plans)
    images = cupy.asarray(images)
    launched = device.run({"images": images}, delegated_by(graph))
    device.capture()
    for values in (images, images * 2):
        replayed = device.run({"images": values}, delegated_by(graph))
    again = device.run({"images": images}, delegated_by(graph))
    for name, values in launched.items():
        assert (again[name] == values).all()
        assert not (replayed[name] == values).all()


def stem_of_stride_2(network):
    return [network.silu(network.convolution(network.images, 3, 16, strides=[2, 2]))]


def stem_of_stride_1(network):
    return [network.silu(network.convolution(network.images, 3, 16))]


def stem_beside_a_reader(network):
    return [network.convolution(network.images, 3, 16), network.node("ReduceMean", network.images, axes=[1])]


@pytest.mark.parametrize(
    ("case", "written"), [(stem_of_stride_2, True), (stem_of_stride_1, True), (stem_beside_a_reader, False)]
)
def test_images_written_to_the_buffer_give_the_same_outputs(case, written, plans):
    import cupy

    from streamkit.core.crops import LazyRows
    from streamkit.core.data import Color, Surface
    from streamkit.ops.letterbox import InputSpec
    from streamkit.ops.preprocess import preprocess
    from streamkit.ops.preprocess_cuda import fill_packed

    shape = (3, 3, 64, 96)
    device, graph, _, _ = on_device(case, shape, plans)
    spec = InputSpec((96, 64), scale=1 / 255)
    sizes = [(130, 70), (50, 90)]
    rng = np.random.default_rng(1)
    surfaces = [Surface(cupy.asarray(rng.integers(0, 256, (h * 3 // 2, w), np.uint8)), Color()) for w, h in sizes]
    writes = []

    def make(rows):
        return preprocess(surfaces, sizes, spec, batch=len(rows))[0]

    def write(rows, target):
        writes.append(target)
        fill_packed(target, surfaces, sizes, spec, None)

    images = LazyRows(make, shape, np.dtype(np.float32), write)
    expected = device.run({"images": images[:]}, delegated_by(graph))
    device.capture()
    for _ in range(2):  # the memory is used by other tensors meanwhile
        outputs = device.run({"images": images}, delegated_by(graph))
    assert len(writes) == (2 if written else 0)
    for name, values in expected.items():
        assert cupy.array_equal(outputs[name], values), name


def test_outputs_of_a_run_stay_while_the_next_runs(plans):
    import cupy

    device, graph, _, images = on_device(c2f_block, SHAPE, plans)
    first = device.run({"images": cupy.asarray(images)}, delegated_by(graph))
    copies = {name: values.copy() for name, values in first.items()}
    device.run({"images": cupy.asarray(images) * 3}, delegated_by(graph))
    assert all((first[name] == values).all() for name, values in copies.items())


def test_each_tensor_of_the_engine_can_be_compared(plans):
    import cupy

    from streamkit.engine.device import relative_error

    device, graph, _, images = on_device(c2f_block, SHAPE, plans)
    names = device.tensor_names
    assert len(names) > 3
    references = run_network(graph.model, {"images": images}, names)
    tensors = device.tensors({"images": cupy.asarray(images)}, delegated_by(graph))
    errors = {name: relative_error(values.get(), references[name]) for name, values in tensors}
    assert list(errors) == names
    assert max(errors.values()) < 3e-3


def test_programs_of_a_network_share_weights(plans):
    import cupy

    from streamkit.engine.device import DeviceProgram, Weights

    weights = Weights()
    addresses = []
    for batch in (4, 2):
        network = NetworkBuilder((batch, *SHAPE[1:]))
        graph, program = program_of(network.model(*c2f_block(network)), (batch, *SHAPE[1:]))
        images = cupy.asarray(np.random.default_rng(7).standard_normal((batch, *SHAPE[1:])).astype(np.float32))
        expected = expected_of(graph, program, cupy.asnumpy(images))
        outputs = DeviceProgram(program, graph, weights, plans).run({"images": images}, delegated_by(graph))
        assert all(np.allclose(cupy.asnumpy(outputs[name]), values, atol=2e-2) for name, values in expected.items())
        name = next(step.output for step in program.steps if hasattr(step, "weight"))
        addresses.append(weights.weight(name, "weight", np.zeros(1, np.float16)))
    assert addresses[0] == addresses[1]


def test_programs_on_two_threads_and_one_stream_do_not_disturb_each_other(plans, tmp_path):
    import threading

    import cupy

    from streamkit.engine.plans import PlanStore

    device, graph, _, images = on_device(c2f_block, SHAPE, plans)
    images = cupy.asarray(images)
    expected = device.run({"images": images}, delegated_by(graph))
    errors = []

    def other() -> None:
        try:
            with plans.stream:
                plan_store = PlanStore(tmp_path)
                rival, rival_graph, _, values = on_device(c2f_block, SHAPE, plan_store)
                values = cupy.asarray(values) * 3
                for _ in range(20):
                    rival.run({"images": values}, delegated_by(rival_graph))
                rival.capture()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    while thread.is_alive():
        outputs = device.run({"images": images}, delegated_by(graph))
        assert all((outputs[name] == values).all() for name, values in expected.items())
    thread.join()
    assert not errors
