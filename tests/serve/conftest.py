"""The server that the tests of a module share; `servers` is importable from the tests beside it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from servers import PIPELINE, Served, served


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(PIPELINE, root) as made:
            made.running("street")
            yield made
