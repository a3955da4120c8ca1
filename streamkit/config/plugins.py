# SPDX-License-Identifier: Apache-2.0
"""Plugins: Python files, or folders of them, with user-defined stages, network families and tracker methods."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.abc import SourceLoader
from pathlib import Path
from traceback import walk_tb
from typing import Any

from streamkit.core.errors import ConfigError, describe
from streamkit.core.options import options
from streamkit.core.stage import Collecting, Registry, ships
from streamkit.core.yaml_tree import near_files
from streamkit.models.families import FAMILIES
from streamkit.tracking.methods import BUILT_IN as TRACKERS

_loaded: dict[Path, tuple[str, Registry]] = {}
"""The digest and the stages and families of each file that this process has run; an unchanged file is not run again."""


def load_plugins(path: Path, registry: Registry) -> list[str]:
    """Run the Python file, or every file of the folder, at `path`; add its stages and other parts to `registry`.

    A stage, family or tracker method with the name of a built-in one replaces it, so that a pipeline does not change
    when a later version adds a built-in one of that name.

    Returns:
        A message for each built-in part that was replaced.

    Raises:
        ConfigError: the path does not exist, or a file raises, with its name, line and cause.
    """
    try:
        there = path.exists()
    except OSError as error:  # such as a name that is too long
        raise ConfigError(f"{path} cannot be a plugin file or folder: {error.strerror}") from None
    if not there:
        raise ConfigError(f"there is no plugin file or folder {path}{near_files(path)}")
    built_in = {name: registry[name] for name in registry.names() if ships(registry[name])}
    before = registry.copy()
    for file in files_of(path):
        _load(file.resolve(), registry)
    replaced = [("stage", name) for name, kind in built_in.items() if registry.get(name) is not kind]
    replaced += [("family", name) for name in _replaced(registry.families, before.families, FAMILIES)]
    replaced += [("tracker method", name) for name in _replaced(registry.trackers, before.trackers, TRACKERS)]
    return [f"the {what} {name} of {path.name} replaces the built-in {what} of that name" for what, name in replaced]


def _replaced(parts: Mapping[str, Any], before: Mapping[str, Any], built_in: Iterable[str]) -> list[str]:
    """Names of built-in parts for which there is a part of a plugin that was not there before."""
    return sorted(name for name in parts.keys() & set(built_in) if parts[name] is not before.get(name))


def files_of(path: Path) -> list[Path]:
    """The plugin file at `path`, or the files of the folder, sorted; files whose name begins with `_` are helpers."""
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return [file for file in files if not file.name.startswith("_")]


def _load(file: Path, registry: Registry) -> None:
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"the plugin {file} cannot be read: {error.strerror}") from None
    digest = sha256(bytes(file) + b"\0" + source).hexdigest()
    loaded = _loaded.get(file)
    if loaded is None or loaded[0] != digest:
        loaded = _loaded[file] = digest, _run(file, source, digest)
    registry.include(loaded[1])


def _run(file: Path, source: bytes, digest: str) -> Registry:
    """Run a file; return the stages and families that it defines. Raises ConfigError if it or a stage fails.

    The module's name contains the source's digest: the stages of an edited file are new classes.
    """
    name = f"streamkit_plugin_{file.stem}_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or not isinstance(spec.loader, SourceLoader):
        raise ConfigError(f"{file} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    registry = Registry()
    try:
        with Collecting(registry):
            # not `exec_module`, which takes a cached file of the same second and size for the same source
            exec(spec.loader.source_to_code(source, str(file)), module.__dict__)
        for kind in registry.values():
            options(kind)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        text = describe(error)
        if isinstance(error, SystemExit):
            text = "it ends the program; put that under if __name__ == '__main__': or leave it out"
        elif isinstance(error, SyntaxError) and error.filename == str(file):
            text = f"{type(error).__name__}: {error.msg}"
        line = _line(error, file)
        place, shown = (f":{line}", _source_line(error, file, line)) if line else ("", "")
        raise ConfigError(f"the plugin {file}{place} cannot be loaded: {text}{shown}") from error
    return registry


def _line(error: BaseException, file: Path) -> int:
    """The line number of the innermost call in the plugin, from 1; 0 if there is none."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename == str(file):
        return error.lineno
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == str(file)]
    return lines[-1] if lines else 0


def _source_line(error: BaseException, file: Path, number: int) -> str:
    """The source line after a line break, with a caret under the place of a syntax error."""
    linecache.checkcache(str(file))
    text = linecache.getline(str(file), number).rstrip()
    caret = ""
    if not text.strip():
        return ""
    if isinstance(error, SyntaxError) and error.offset and error.filename == str(file):
        caret = "\n    " + " " * (min(error.offset, len(text) + 1) - 1 - (len(text) - len(text.lstrip()))) + "^"
    return f"\n    {text.strip()}{caret}"
