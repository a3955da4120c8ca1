"""The libraries of ONNX Runtime's CUDA provider: loaded once, and what that prints stays off standard output."""

import sys
import threading
from pathlib import Path

import pytest

from streamkit.models import providers


def test_threads_that_load_networks_do_not_touch_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    ort = pytest.importorskip("onnxruntime")
    both = threading.Barrier(2, timeout=0.5)
    calls = []
    stdout = sys.stdout

    def preload(cudnn: bool) -> None:
        calls.append(1)
        print("no such library: libcudnn")
        try:
            both.wait()  # a second thread inside would replace the replacement
        except threading.BrokenBarrierError:
            return

    monkeypatch.setattr(ort, "preload_dlls", preload)
    monkeypatch.setattr(providers, "_preloaded", [])
    printed: list[str] = []
    threads = [threading.Thread(target=lambda: printed.append(providers.load_libraries())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls, printed) == ([1], ["no such library: libcudnn\n"] * 3)
    assert sys.stdout is stdout


def test_folders_of_loaded_cudnn_libraries_are_read_from_proc_maps(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libcudnn_graph.so.9").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    maps = tmp_path / "maps"
    line = "7f00-7f01 r-xp 00000000 08:01 42                 {}"
    maps.write_text(
        "\n".join(
            [line.format(tmp_path / name / "libcudnn_graph.so.9") for name in ("b", "a", "link", "b")]
            + [line.format("/usr/lib/libcublas.so.13"), "7f02-7f03 rw-p 00000000 00:00 0"]
        )
    )
    assert providers.cudnn_folders(maps) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert providers.cudnn_folders(tmp_path / "none") == []


def test_onnxruntime_uses_the_loaded_cudnn(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    ort = pytest.importorskip("onnxruntime")
    preloads = []
    monkeypatch.setattr(ort, "preload_dlls", lambda cudnn: preloads.append(cudnn))
    for folders in ([], ["/a"], ["/a", "/b"]):
        monkeypatch.setattr(providers, "_preloaded", [])
        monkeypatch.setattr(providers, "cudnn_folders", lambda folders=folders: folders)
        providers.load_libraries()
    assert preloads == [True, False, False]
    (message,) = caplog.messages
    assert "/a and /b" in message


@pytest.mark.gpu
def test_onnxruntime_and_the_fused_engine_share_a_cudnn() -> None:
    providers.load_libraries()
    import cudnn

    cudnn.create_handle()
    assert len(providers.cudnn_folders()) == 1
