"""What `streamkit doctor` says about networks on a GPU: packages, choices and plans on disk."""

import pytest

from streamkit.doctor import networks
from streamkit.doctor.networks import figures_of_gpu, network_caches, network_packages
from streamkit.media.gpu_figures import figure_file, store_figure
from streamkit.models.arithmetic import F32
from streamkit.models.arithmetic_choice import ArithmeticChoice, choice_file, write_choice

CUDNN = "ok    networks: nvidia-cudnn-cu13 9.19"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "streamkit"


def lines(check):
    return [str(finding) for finding in check()]


def test_each_choice_is_shown_with_its_reason_and_file(root, cache):
    file = choice_file(root / "models" / "demo.onnx", (640, 640), "H200", (F32,))
    write_choice(file, ArithmeticChoice("fused", "f16", "99.8% of 214 confident objects are the same (at least 99%)"))
    assert lines(network_caches) == [
        "ok    networks: demo runs in f16 with the fused engine: 99.8% of 214 confident objects are the same (at least "
        f"99%) ({file})"
    ]


def test_without_choices_their_folder_is_named(cache, monkeypatch):
    monkeypatch.setattr(networks, "driver", lambda: ((13, 0), "580"))
    assert lines(network_caches) == [f"none  networks: no arithmetic was chosen yet for a GPU ({cache / 'arithmetic'})"]


def test_plans_and_converted_networks_are_counted_with_their_size(cache):
    for place, size in (("plans/H200-cudnn/a.plan", 1_500_000), ("plans/L4/b.plan", 500_000), ("networks/c.onnx", 9)):
        file = cache / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(size))
    assert lines(network_caches) == [
        f"ok    networks: 2 plans, 2.0 MB in {cache / 'plans'}",
        f"ok    networks: 1 converted network, 0.0 MB in {cache / 'networks'}",
    ]


def test_a_damaged_choice_is_skipped(cache):
    (cache / "arithmetic").mkdir(parents=True)
    (cache / "arithmetic" / "demo-1.json").write_text("{")
    assert lines(network_caches) == []


@pytest.mark.parametrize(
    ("cuda", "frontend", "expected"),
    [
        (
            (13, 0),
            None,
            ["ok    networks: nvidia-cudnn-cu13 9.19, onnx 1.20", "warn  networks: all run in ONNX Runtime"],
        ),
        ((13, 0), "1.24.1", ["ok    networks: nvidia-cudnn-cu13 9.19, nvidia-cudnn-frontend 1.24.1, onnx 1.20"]),
        (None, None, ["ok    networks: nvidia-cudnn-cu13 9.19, onnx 1.20"]),
    ],
)
def test_a_missing_package_is_a_warning_with_a_gpu(cuda, frontend, expected, monkeypatch):
    versions = {"nvidia-cudnn-cu13": "9.19", "nvidia-cudnn-frontend": frontend, "onnx": "1.20"}
    monkeypatch.setattr(networks, "installed", versions.get)
    monkeypatch.setattr(networks, "driver", lambda: (cuda, ""))
    findings = lines(network_packages)
    assert len(findings) == len(expected)
    assert all(line.startswith(start) for line, start in zip(findings, expected, strict=True))
    assert (
        cuda is None or frontend or "nvidia-cudnn-frontend is not installed; fix: python -m pip install" in findings[1]
    )


def test_figures_for_the_number_of_processes_are_shown_with_their_origin():
    gpu = "NVIDIA L4, CUDA 13.0"
    (guesses,) = lines(lambda: figures_of_gpu(gpu))
    assert guesses.startswith("ok    processes: first guesses, of an H200 with 16 CPU cores, 21 to 27 November 2026")
    assert "112 µs of lock time for each H.264 frame" in guesses
    store_figure(gpu, "lock_us_h264", 180.4)
    measured, guesses = lines(lambda: figures_of_gpu(gpu))
    assert measured.startswith("ok    processes: 180.4 µs of lock time for each H.264 frame, measured here on 20")
    assert measured.endswith(f"({figure_file(gpu, 'lock_us_h264')})")
    assert "each H.264 frame" not in guesses
    store_figure(gpu, "sessions", 64)
    assert (
        "in one run: the next that is refused at this count makes it the limit" in lines(lambda: figures_of_gpu(gpu))[1]
    )
    store_figure(gpu, "sessions", 64)
    assert "in one run" not in lines(lambda: figures_of_gpu(gpu))[1]
