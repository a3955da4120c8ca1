"""The folder of real models and videos, which a test asks the fixture `test_data` for: it skips without the folder."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def data_folder() -> Path | None:
    """$STREAMKIT_TEST_DATA, or shared/data beside the checkout; None if there is no such folder."""
    named = os.environ.get("STREAMKIT_TEST_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder if folder.is_dir() else None
