"""cuDNN's frontend is imported without PyTorch, in a process of its own with stand-ins for both."""

import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def packages(tmp_path):
    """A folder with a package `cudnn`, one of whose modules imports `torch` as the real one does, and with `torch`."""
    (tmp_path / "cudnn").mkdir()
    (tmp_path / "cudnn" / "__init__.py").write_text("from .wrapper import Graph\n")
    (tmp_path / "cudnn" / "wrapper.py").write_text("import torch\nGraph = 1\n")
    (tmp_path / "torch.py").write_text("")
    return tmp_path


def outcome_of(packages, code: str) -> str:
    lines = f"import sys; sys.path.insert(0, {str(packages)!r})\nfrom streamkit.engine.frontend import import_cudnn\n"
    child = subprocess.run(
        [sys.executable, "-c", lines + textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=60
    )
    return child.stdout.strip()


def test_pytorch_is_not_imported(packages):
    assert outcome_of(packages, "import_cudnn(); print('torch' in sys.modules)") == "False"


def test_the_module_that_needs_pytorch_can_be_imported_later(packages):
    assert outcome_of(packages, "import_cudnn(); import cudnn.wrapper as w; print(w.Graph)") == "1"


def test_nothing_is_left_out_where_pytorch_is_imported(packages):
    assert outcome_of(packages, "import torch; print(import_cudnn().Graph)") == "1"


def test_a_frontend_that_is_missing_raises_as_an_import_does(packages):
    (packages / "cudnn" / "__init__.py").write_text("raise ImportError('libcudnn.so.9: cannot open')\n")
    code = """
        for _ in range(2):
            try:
                import_cudnn()
            except ImportError as error:
                print(error, 'cudnn.wrapper' in sys.modules)
    """
    assert outcome_of(packages, code) == "\n".join(["libcudnn.so.9: cannot open False"] * 2)
