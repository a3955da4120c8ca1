"""What every test may use: the folder of test data, and the skipping of what this machine cannot run."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _gpu_missing() -> str | None:
    """Why there is no GPU to test on, or None."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # any failure means the same: no GPU here
        return f"no GPU: {type(error).__name__}: {error}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if "gpu" in item.keywords]
    why = _gpu_missing() if gpu_items else None
    for item in gpu_items if why else []:
        item.add_marker(pytest.mark.skip(reason=why))


def data_folder() -> Path | None:
    """The folder of real models and videos: $STREAMKIT_TEST_DATA, or shared/data beside the checkout."""
    named = os.environ.get("STREAMKIT_TEST_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def test_data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("no test data: set STREAMKIT_TEST_DATA to the folder with models/ and videos/")
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
