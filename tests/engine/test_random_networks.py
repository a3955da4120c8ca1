"""Programs of random networks compute what ONNX Runtime does."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.engine_cases import program_of, run_program
from support.random_networks import RandomNetwork
from support.small_networks import run_network


@given(st.integers(0, 2**32 - 1))
def test_a_random_network_computes_what_onnx_runtime_does(seed):
    network = RandomNetwork(seed)
    model = network.model()
    if model is None:
        return
    images = np.random.default_rng(seed).standard_normal(network.shape).astype(np.float32)
    expected = run_network(model, {"images": images})
    graph, program = program_of(model, network.shape)
    computed = run_program(graph, program, images)
    for name, values in expected.items():
        scale = max(1.0, float(np.abs(values).max()))
        np.testing.assert_allclose(computed[name], values, rtol=1e-3, atol=2e-4 * scale, err_msg=name)
