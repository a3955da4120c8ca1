"""The libraries of ONNX Runtime's CUDA provider: loaded once, and what that prints stays off standard output."""

import sys
import threading

import pytest

from streamkit.models import providers


def test_threads_that_load_networks_at_once_leave_standard_output_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ort = pytest.importorskip("onnxruntime")
    both, calls, mine = threading.Barrier(2, timeout=0.5), [], sys.stdout

    def preload() -> None:
        calls.append(1)
        print("no such library: libcudnn")
        try:
            both.wait()  # a second thread inside would replace the replacement
        except threading.BrokenBarrierError:
            return

    monkeypatch.setattr(ort, "preload_dlls", preload)
    monkeypatch.setattr(providers, "_preloaded", [])
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(providers.load_libraries())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls, found) == ([1], ["no such library: libcudnn\n"] * 3)
    assert sys.stdout is mine
