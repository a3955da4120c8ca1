"""How a session on a GPU is destroyed, with a stream in place of CUDA's."""

import gc
import sys
from types import SimpleNamespace

import onnxruntime  # noqa: F401  its import would collect garbage
import pytest

from streamkit.models.io_binding import IoBinding


class Stream:
    """A CUDA stream that says what happens to it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def synchronize(self) -> None:
        self.log.append("wait")

    def __del__(self) -> None:
        self.log.append("destroy")


@pytest.mark.parametrize("older", [True, False])
def test_the_stream_of_a_garbage_cycle_outlives_the_session(monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    gc.collect()  # surfaces of other tests, which need all of CuPy
    log: list[str] = []
    streams = [Stream(log)] if older else []
    cuda = SimpleNamespace(get_current_stream=lambda: streams.pop() if streams else Stream(log))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    binding = IoBinding(SimpleNamespace(io_binding=lambda: None), SimpleNamespace(), 0)
    binding.stream.itself = binding.stream  # both are in cycles, so the collector chooses the order
    binding.itself = binding
    del binding
    gc.collect()
    gc.collect()
    assert log == ["wait", "destroy"]
