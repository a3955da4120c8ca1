"""What the tests of emitters send to: a file for each broker, with its server and what has arrived there."""

import importlib
import pkgutil
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.place import Place


def _places() -> dict[str, type[Place]]:
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    classes = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {kind.kind: kind for kind in classes if issubclass(kind, Place) and kind is not Place}


PLACES = _places()
"""The places by the stage that sends to them."""


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Place]]:
    """Make a place to send to, by the emitter's name; skipped where its broker is not installed."""
    places: list[Place] = []
    folders: list[Path] = []

    def make(kind: str) -> Place:
        place_class = PLACES[kind]
        if place_class.server is not None and (reason := place_class.server.missing()) is not None:
            pytest.skip(reason)
        folders.append(Path(tempfile.mkdtemp(prefix="streamkit-emit-")))
        folders[-1].chmod(0o755)  # a broker that does not run as root must come in
        shared = [request.getfixturevalue(place_class.shared_server)] if place_class.shared_server else []
        places.append(place_class(folders[-1], *shared))
        return places[-1]

    yield make
    for opened in places:
        opened.close()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
