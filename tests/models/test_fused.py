"""The fused engine's network file, on a machine without its packages or a GPU."""

import os
import shutil

import pytest

from streamkit.engine.errors import EngineError
from streamkit.models.arithmetic import can_fuse
from streamkit.models.file_version import file_version
from streamkit.models.fused import FusedEngine, check_unchanged, share_that_can_be_fused
from streamkit.models.network_file import inspect


def test_the_fused_share_is_computed_without_a_gpu(root):
    assert share_that_can_be_fused(inspect(root / "models" / "demo.onnx"), (640, 384)) == 1


@pytest.mark.skipif(can_fuse(), reason="the packages are installed")
def test_missing_packages_are_named_with_the_install_command(root):
    with pytest.raises(EngineError, match=r"nvidia-cudnn-frontend is not installed; install it with: .*pip"):
        FusedEngine(inspect(root / "models" / "demo.onnx"), lambda part: None)


def test_a_replaced_file_uses_its_new_weights(root, tmp_path):
    file = tmp_path / "net.onnx"
    shutil.copy(root / "models" / "demo.onnx", file)
    version = file_version(file)
    check_unchanged(file, version)
    shutil.copy(root / "models" / "color.onnx", tmp_path / "other.onnx")
    os.replace(tmp_path / "other.onnx", file)
    with pytest.raises(EngineError, match=r"net\.onnx has changed since it was loaded"):
        check_unchanged(file, version)
    file.unlink()
    with pytest.raises(EngineError, match=r"net\.onnx has changed since it was loaded"):
        check_unchanged(file, version)
