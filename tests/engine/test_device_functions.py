"""How many functions a convolution computes in its kernel: as many of the first as cuDNN has a plan for."""

import logging

import pytest
from support.engine_cases import SHAPE, program_of
from support.small_networks import NetworkBuilder

from streamkit.engine.device import fused_functions
from streamkit.engine.errors import EngineError
from streamkit.engine.plans import PlanError
from streamkit.engine.program import Convolve


class Plans:
    """cuDNN on a device that fuses at most so many functions; -1 for one that lacks the convolution, too."""

    def __init__(self, limit):
        self.limit = limit
        self.prepared = []

    def prepare(self, signature):
        self.prepared.append(len(signature.then))
        if len(signature.then) > self.limit:
            raise PlanError(f"no plan for {len(signature.then)} functions")


def convolution_of(function):
    network = NetworkBuilder(SHAPE)
    _, program = program_of(network.model(function(network, network.convolution(network.images, 8, 8))), SHAPE)
    (convolution,) = (step for step in program.steps if isinstance(step, Convolve))
    return convolution


def two_functions(network, name):
    return network.node("Add", network.node("Relu", name), network.images)


@pytest.mark.parametrize(
    ("limit", "tried", "fused"), [(2, [2], ["Activation", "Added"]), (1, [2, 1], ["Activation"]), (0, [2, 1, 0], [])]
)
def test_as_many_of_the_first_functions_are_fused_as_there_is_a_plan_for(limit, tried, fused):
    plans = Plans(limit)
    functions = fused_functions(convolution_of(two_functions), plans)
    assert [type(function).__name__ for function in functions] == fused
    assert plans.prepared == tried


def test_a_convolution_without_functions_needs_a_plan_as_well():
    step = convolution_of(lambda _, name: name)
    plans = Plans(0)
    assert fused_functions(step, plans) == ()
    assert plans.prepared == [0]
    with pytest.raises(EngineError, match=rf"cuDNN cannot compute the convolution of {step.output}: no plan for 0"):
        fused_functions(step, Plans(-1))


def test_unfused_functions_are_logged(caplog):
    step = convolution_of(two_functions)
    with caplog.at_level(logging.INFO, "streamkit.engine.device"):
        fused_functions(step, Plans(1))
    assert [record.getMessage() for record in caplog.records] == [
        f"cuDNN cannot fuse 2 functions with {step.output}: no plan for 2 functions"
    ]
