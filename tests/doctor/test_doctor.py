"""What `streamkit doctor` finds, on this machine and on machines made up."""

import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from streamkit.core.errors import DeviceError
from streamkit.core.text import install_command
from streamkit.doctor import machine as doctor
from streamkit.doctor.machine import Finding
from streamkit.runtime.execution import device as runtime_device

ROOT_INSTALL = r"python -m pip install -e '[^']*{}'"


def lines_of(findings: Iterator[Finding]) -> list[str]:
    return [str(finding) for finding in findings]


def versions(monkeypatch: pytest.MonkeyPatch, **changed: str | None) -> None:
    """Let packages be of these versions, or missing; `_` stands for `-`."""
    fake = {name.replace("_", "-"): version for name, version in changed.items()}
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: fake[name] if name in fake else real(name))


def machine(monkeypatch: pytest.MonkeyPatch, cuda: tuple[int, int] | None, text: str) -> None:
    monkeypatch.setattr(doctor, "driver", lambda: (cuda, text))


# ---------------------------------------------------------------------------------------------------- this machine


def test_doctor_accepts_this_machine_for_cpu_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, None, "there is no NVIDIA driver")
    lines: list[str] = []
    assert doctor.examine(lines.append) == 0, lines
    for line in lines[:-1]:
        assert re.match(r"(ok  |none|warn)  [\w.:-]+: \S", line), line
    for topic in ("python", "av", "numpy", "opencv-python-headless", "pydantic", "FFmpeg", "memory", "disk", "GPU"):
        assert any(line.split()[1] == f"{topic}:" for line in lines), topic
    assert any("the network runs on the CPU" in line for line in lines)
    assert any("the video decodes on the CPU, 640x360" in line for line in lines)
    assert "none  GPU: there is no NVIDIA driver; device: auto runs on the CPU" in lines


def test_the_resources_are_those_of_this_machine() -> None:
    text = "\n".join(lines_of(doctor.host()))
    free, disk = (float(number) for number in re.findall(r"([\d.]+) GiB free", text))
    assert free <= psutil.virtual_memory().total / doctor.GIB
    assert free == pytest.approx(psutil.virtual_memory().available / doctor.GIB, rel=0.5, abs=1.0)
    assert disk == pytest.approx(shutil.disk_usage(Path.cwd()).free / doctor.GIB, rel=0.1, abs=1.0)
    assert re.search(r"ok    cores: [1-9]", text)


@pytest.mark.parametrize(
    ("free", "line"),
    [
        (2**30 - 1, "warn  memory: 1.0 GiB free; fix: end other programs, or set batch: 1"),
        (2**30, "ok    memory: 1.0 GiB free"),
        (7 * 2**29, "ok    memory: 3.5 GiB free"),
    ],
)
def test_little_memory_and_a_full_disk_are_reported_with_the_fix(free, line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_memory", lambda: free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    _, memory, disk = lines_of(doctor.host())
    assert memory == line
    low = "; fix: write outputs to another disk, or free some space" if line.startswith("warn") else ""
    assert disk == f"{line.split()[0]:<4}  disk: {free / 2**30:.1f} GiB free in {Path.cwd()}{low}"


def test_the_time_per_frame_of_the_demo_network_is_measured() -> None:
    start_s = time.perf_counter()
    text = "\n".join(lines_of(doctor.demo()))
    took_ms = (time.perf_counter() - start_s) * 1e3
    (shown_ms,) = re.findall(r"the network runs on the CPU, (\d+) ms per frame", text)
    assert 0 <= int(shown_ms) <= 0.6 * took_ms  # it ran once before, and the network was loaded


def test_the_last_line_counts_failures_and_warnings() -> None:
    def findings() -> Iterator[Finding]:
        yield from (Finding(level, "x", "y") for level in ("ok", "none", "warn", "fail", "fail", "none", "ok"))

    before = []
    after = []
    doctor.examine(before.append)
    doctor.examine(after.append, findings)
    counts = {level: sum(line.startswith(level) for line in before) for level in ("fail", "warn")}
    assert after[-1] == f"{counts['fail'] + 2} broken, {counts['warn'] + 1} warnings"


@pytest.mark.parametrize(("number", "version"), [(13000, (13, 0)), (12080, (12, 8)), (13120, (13, 12))])
def test_the_drivers_number_is_converted_to_a_cuda_version(number: int, version: tuple[int, int]) -> None:
    assert doctor.cuda_version(number) == version


@pytest.mark.parametrize(
    ("forbidden", "compiled", "warns"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_uncached_compilation_gives_a_warning(
    forbidden: bool, compiled: bool, warns: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "module.pyc").touch()
    cached = str(tmp_path / ("module.pyc" if compiled else "none.pyc"))
    monkeypatch.setattr(doctor.importlib.util, "cache_from_source", lambda path: cached)
    monkeypatch.setattr(doctor.sys, "dont_write_bytecode", forbidden)
    warnings = [line for line in lines_of(doctor.python()) if line.startswith("warn")]
    assert len(warnings) == warns
    assert all(
        "PYTHONDONTWRITEBYTECODE" in line and re.search(r"python -m compileall -q \S+/streamkit$", line)
        for line in warnings
    )


def test_a_failure_exits_with_1_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, None, "there is no NVIDIA driver")
    monkeypatch.setattr(doctor, "_BASE", ("no-such-package", "numpy"))
    lines: list[str] = []
    assert doctor.examine(lines.append) == 1
    assert re.match(r"1 broken, \d+ warnings", lines[-1])


def test_a_failing_check_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def host() -> Iterator[Finding]:
        yield Finding("ok", "cores", "2")
        raise OSError("no such thing as /proc")

    assert lines_of(doctor._guarded(host)) == [
        "ok    cores: 2",
        "warn  host: could not be checked: OSError: no such thing as /proc",
    ]


@pytest.mark.gpu
def test_a_gpu_machine_is_described_completely() -> None:
    lines: list[str] = []
    doctor.examine(lines.append)
    broken = [line for line in lines if line.startswith("fail") and "both installed" not in line]
    assert not broken  # a machine may have both builds of ONNX Runtime in two folders, which is said
    text = "\n".join(lines)
    assert re.search(r"ok {4}driver: \d+\.\d+.*, up to CUDA 1[3-9]\.", text)
    assert re.search(r"ok {4}cuda:0: .+, compute \d+\.\d, [\d.]+ of [\d.]+ GiB free, CUDA runtime 1[3-9]\.", text)
    assert "ok    cuda:0: kernels compile" in text
    assert re.search(r"CUDA provider runs the demo network \(.*\d+ nodes on CUDAExecutionProvider", text)
    assert re.search(r"NVDEC decodes h264 8 bit up to \d+x\d+", text)
    assert re.search(r"cuda:0: (NVENC encodes|no NVENC for) h264", text)


# -------------------------------------------------------------------------------------------------------- packages


@pytest.mark.parametrize(
    ("version", "spec", "is_outside"),
    [
        ("18.1.0", "<20,>=16", False),
        ("16", ">=16,<20", False),
        ("15.9.1", ">=16,<20", True),
        ("20.0.0", ">=16,<20", True),
        ("5.0.0.93", ">=4.10,<6", False),
        ("4.9", ">=4.10,<6", True),
        ("1.0", "", False),
    ],
)
def test_versions_are_compared_by_number(version: str, spec: str, is_outside: bool) -> None:
    assert doctor.outside(version, spec) is is_outside


def test_the_checked_packages_are_those_of_pyproject(root: Path) -> None:
    dependencies = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    assert sorted(doctor._BASE) == sorted(re.match(r"[\w.-]+", line)[0] for line in dependencies)  # type: ignore[index]


def test_required_versions_are_those_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["av<20,>=16", "PyYAML>=6", "onnxruntime-gpu[cuda,cudnn]<2,>=1.27; extra == 'gpu'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: lines)
    assert doctor.requirements() == {"av": "<20,>=16", "pyyaml": ">=6", "onnxruntime-gpu": "<2,>=1.27"}


def test_missing_and_old_packages_are_reported_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_BASE", ("av", "numpy"))
    monkeypatch.setattr(doctor, "requirements", lambda: {"av": ">=16,<20", "numpy": ">=2,<3"})
    versions(monkeypatch, av=None, numpy="1.26.4")
    missing, old = lines_of(doctor.packages())
    assert re.fullmatch(r"fail  av: is not installed; fix: " + ROOT_INSTALL.format(""), missing)
    assert old == "warn  numpy: 1.26.4 is not >=2,<3; fix: python -m pip install 'numpy>=2,<3'"


def test_a_package_that_cannot_be_imported_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_BASE", ("av",))
    versions(monkeypatch, av="18.1.0")
    monkeypatch.setitem(doctor._IMPORTS, "av", "no_such_module_at_all")
    [line] = lines_of(doctor.packages())
    assert line.startswith("fail  av: 18.1.0 cannot be imported: ModuleNotFoundError: No module named 'no_such")
    assert "python -m pip install --force-reinstall 'av" in line


@pytest.mark.parametrize(("cuda", "extra"), [(None, "cpu"), ((13, 0), "gpu")])
def test_two_onnx_runtimes_are_refused_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, cuda: tuple[int, int] | None, extra: str
) -> None:
    machine(monkeypatch, cuda, "580.1")
    versions(monkeypatch, onnxruntime="1.31.1", onnxruntime_gpu="1.31.1")
    [line] = lines_of(doctor.onnxruntimes())
    way = r"python -m pip uninstall -y onnxruntime onnxruntime-gpu && " + ROOT_INSTALL.format(rf"\[{extra}\]")
    assert re.fullmatch(r"fail  onnxruntime: .* both installed and overwrite each other's files; fix: " + way, line)


def test_a_missing_onnx_runtime_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, None, "")
    versions(monkeypatch, onnxruntime=None, onnxruntime_gpu=None)
    [line] = lines_of(doctor.onnxruntimes())
    assert re.fullmatch(r"fail  onnxruntime: is not installed; fix: " + ROOT_INSTALL.format(r"\[cpu\]"), line)


def test_missing_shipped_files_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from streamkit.models import card

    monkeypatch.setattr(card, "shipped_models", lambda: tmp_path / "models")
    network, video = lines_of(doctor.demo())
    assert network.startswith("warn  demo: the demo network is not in")
    assert video.startswith("warn  demo: the demo video is not at")
    assert network.endswith("fix: git checkout -- models samples")


def test_a_broken_network_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, root: Any) -> None:
    from streamkit.models import card

    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "demo.yaml").write_text((root / "models" / "demo.yaml").read_text())
    (folder / "demo.onnx").write_bytes(b"not a network")
    monkeypatch.setattr(card, "shipped_models", lambda: folder)
    assert next(doctor.demo()).level == "fail"


# ------------------------------------------------------------------------------------------------------------- GPUs


def test_an_old_driver_is_reported_with_the_required_version(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, (12, 2), "535.104")
    last = lines_of(doctor.gpus())[-1]
    assert last == (
        "warn  driver: the driver 535.104 supports CUDA up to 12.2, streamkit's packages need 13.0; "
        "fix: install NVIDIA driver 580 or newer"
    )


@pytest.mark.parametrize(("cupy", "level"), [(None, "warn"), ("14.2.0", "fail")])
def test_an_unusable_gpu_is_a_failure_only_with_its_packages(
    monkeypatch: pytest.MonkeyPatch, cupy: str | None, level: str
) -> None:
    machine(monkeypatch, (13, 0), "580.65")
    versions(monkeypatch, cupy_cuda13x=cupy, PyNvVideoCodec=None)
    monkeypatch.setattr(runtime_device, "gpu_trouble", lambda: "the onnxruntime installed has no CUDA provider; pip x")
    last = lines_of(doctor.gpus())[-1]
    assert last.startswith(f"{level}  GPU: cannot be used: the onnxruntime installed has no CUDA provider; fix: ")
    assert re.search(ROOT_INSTALL.format(r"\[gpu\]") + "$", last)


def test_missing_mps_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamkit.runtime.execution import cores
    from streamkit.runtime.multiprocess import mps

    monkeypatch.setattr(cores, "cores", lambda: 8)
    monkeypatch.setattr(mps, "find_control", lambda: None)
    assert doctor.shared_gpu().text == (
        "device: cuda runs up to 2 processes on a GPU (8 CPU cores), which take turns: nvidia-cuda-mps-control is not "
        "installed"
    )
    monkeypatch.setattr(cores, "cores", lambda: 5)
    assert doctor.shared_gpu().text == "device: cuda runs up to 1 process on a GPU (5 CPU cores), which needs none"


def test_a_gpu_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamkit.media import encoders, nv_caps
    from streamkit.runtime.execution import cores
    from streamkit.runtime.multiprocess import mps

    gib = 2**30
    machine(monkeypatch, (13, 0), "580.65")
    versions(monkeypatch, cupy_cuda13x="14.2.0", PyNvVideoCodec="2.2.4")
    monkeypatch.setattr(runtime_device, "gpu_trouble", lambda: None)
    monkeypatch.setattr(runtime_device, "gpu_count", lambda: 1)
    gpu = {
        "name": "NVIDIA X",
        "compute": "9.0",
        "free": 100 * gib,
        "total": 141 * gib,
        "driver": (13, 0),
        "runtime": (13, 0),
    }
    monkeypatch.setattr(runtime_device, "describe_gpu", lambda index: gpu)
    monkeypatch.setattr(doctor, "_work", lambda index, name: iter([Finding("ok", name, "kernels compile")]))
    monkeypatch.setattr(nv_caps, "nv_module", lambda: object())
    monkeypatch.setattr(cores, "cores", lambda: 16)
    monkeypatch.setattr(mps, "find_control", lambda: "/usr/bin/nvidia-cuda-mps-control")

    def capabilities(index: int, codec: str, bits: int) -> dict[str, int]:
        supported = codec in ("h264", "hevc")
        return {"supported": int(supported), "num_decoder_engines": 7, "width_max": 8192, "height_max": 4096}

    def check_nvenc(codec: str, index: int) -> None:
        raise DeviceError(f"the GPU cuda:{index} cannot encode {codec} (error 2); set encoder: cpu")

    monkeypatch.setattr(nv_caps, "capabilities", capabilities)
    monkeypatch.setattr(encoders, "check_nvenc", check_nvenc)
    assert lines_of(doctor.gpus()) == [
        "ok    cupy-cuda13x: 14.2.0",
        "ok    PyNvVideoCodec: 2.2.4",
        "ok    driver: 580.65, up to CUDA 13.0",
        "ok    MPS: device: cuda runs up to 5 processes on a GPU (16 CPU cores), at the same time, by "
        "nvidia-cuda-mps-control",
        "ok    cuda:0: NVIDIA X, compute 9.0, 100.0 of 141.0 GiB free, CUDA runtime 13.0",
        "ok    cuda:0: kernels compile",
        "ok    cuda:0: NVDEC decodes h264 8 bit up to 8192x4096 on 7 engines, hevc 8 bit up to 8192x4096 on 7 engines, "
        "hevc 10 bit up to 8192x4096 on 7 engines",
        "ok    cuda:0: NVDEC has no av1 8 bit, av1 10 bit, vp9 8 bit, vp8 8 bit, mpeg4 8 bit: decoded on the CPU and "
        "copied to the GPU",
        "ok    cuda:0: no NVENC for h264, encoder: auto uses the CPU (the GPU cuda:0 cannot encode h264 (error 2))",
        "ok    cuda:0: no NVENC for hevc, encoder: auto uses the CPU (the GPU cuda:0 cannot encode hevc (error 2))",
    ]


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        ("PyNvVideoCodec does not load: no driver", install_command("gpu")),
        ("the driver has no library for NVDEC; a container needs it", "a container needs it"),
    ],
)
def test_unreadable_decoder_capabilities_are_reported_with_the_fix(monkeypatch: pytest.MonkeyPatch, why, fix) -> None:
    from streamkit.media import nv_caps

    monkeypatch.setattr(nv_caps, "_caps", {})
    monkeypatch.setattr(nv_caps, "nv_module", lambda: why)
    [line] = lines_of(doctor._decoders(0, "cuda:0"))
    reason = why.partition(";")[0]
    assert line == (
        f"warn  cuda:0: no NVDEC, frames are decoded on the CPU and copied to the GPU: {reason}; fix: {fix}"
    )


def test_packages_of_eval_are_listed_with_the_install_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, trackeval=None, opencv_python=None)
    (line,) = lines_of(doctor.accuracy())
    assert line.startswith("none  trackeval: is not installed; ")
    assert line.endswith(f"{install_command('eval')} && python -m pip install --no-deps 'trackeval>=1.3,<2'")
    versions(monkeypatch, trackeval="1.3.0", tabulate=None, opencv_python="4.11")
    overwritten, missing = lines_of(doctor.accuracy())
    assert overwritten.startswith("warn  opencv-python: overwrites files of opencv-python-headless; fix: ")
    assert missing == f"warn  trackeval: 1.3.0; streamkit eval also needs tabulate; fix: {install_command('eval')}"
