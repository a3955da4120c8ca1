"""The server that the tests of a module share; `servers` is importable from the tests beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import PIPELINE, Served, served


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(PIPELINE, root) as shared_server:
            shared_server.running("street")
            yield shared_server
