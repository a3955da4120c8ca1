"""Two builds of ONNX Runtime side by side, and what is left of one: a message with the commands that repair it."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from support.messages import collect

from streamkit.core.errors import MissingPackage
from streamkit.core.text import install_command
from streamkit.models import onnxruntime_package as package
from streamkit.models.onnxruntime_package import DamagedOnnxRuntime, need_onnxruntime

UNINSTALL = "python -m pip uninstall -y onnxruntime onnxruntime-gpu"


@pytest.fixture
def machine(monkeypatch):
    """A machine with these builds of ONNX Runtime, a driver or none, and a module or none."""

    def have(*builds, driver=False, module=None):
        def version(name):
            if name not in builds:
                raise package.metadata.PackageNotFoundError(name)
            return "1.32.0"

        monkeypatch.setattr(package.metadata, "version", version)
        monkeypatch.setattr(package, "has_driver", lambda: driver)
        monkeypatch.setattr(package, "_warned", False)
        monkeypatch.setitem(sys.modules, "onnxruntime", module)

    return have


def whole():
    return SimpleNamespace(get_available_providers=lambda: ["CPUExecutionProvider"])


@pytest.mark.parametrize(("driver", "extra"), [(False, "cpu"), (True, "gpu")])
def test_both_builds_log_a_warning_once(machine, driver, extra):
    machine("onnxruntime", "onnxruntime-gpu", driver=driver, module=whole())
    logged = collect()
    for _ in range(3):
        need_onnxruntime()
    assert logged == [
        "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; repair them with: "
        f"{UNINSTALL} && {install_command(extra)}"
    ]


@pytest.mark.parametrize("build", ["onnxruntime", "onnxruntime-gpu"])
def test_a_single_build_logs_nothing(machine, build):
    machine(build, module=whole())
    logged = collect()
    assert need_onnxruntime().get_available_providers() == ["CPUExecutionProvider"]
    assert logged == []


@pytest.mark.parametrize("module", [None, ModuleType("onnxruntime")])
@pytest.mark.parametrize(("build", "extra"), [("onnxruntime", "cpu"), ("onnxruntime-gpu", "gpu")])
def test_a_partial_build_is_an_error_with_the_fix(machine, build, extra, module):
    """As after: pip install onnxruntime-gpu onnxruntime; pip uninstall onnxruntime."""
    machine(build, driver=extra == "cpu", module=module)
    with pytest.raises(DamagedOnnxRuntime) as raised:
        need_onnxruntime()
    text = str(raised.value)
    assert text.startswith(f"{build} 1.32.0 cannot be imported (")
    assert text.endswith(f"; repair it with: {UNINSTALL} && {install_command(extra)}")


@pytest.mark.parametrize(("driver", "extra"), [(False, "cpu"), (True, "gpu")])
def test_a_missing_build_is_a_missing_package(machine, driver, extra):
    machine(driver=driver)
    with pytest.raises(MissingPackage) as raised:
        need_onnxruntime()
    text = f"a network needs the package onnxruntime; install it with: {install_command(extra)}"
    assert (str(raised.value), type(raised.value)) == (text, MissingPackage)
