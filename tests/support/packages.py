"""Skips a module of tests without a package, and does not import it: every process collects all modules."""

from importlib.util import find_spec

import pytest


def require(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs the package {package}", allow_module_level=True)
