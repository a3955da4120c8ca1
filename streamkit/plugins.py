"""Plugins: Python files, or folders of them, with stages of the user's own."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from pathlib import Path

from streamkit.errors import ConfigError, describe
from streamkit.options import options
from streamkit.stage import Collecting, Registry, Stage, ships
from streamkit.yamlfile import near_files

_loaded: dict[Path, list[type[Stage]]] = {}
"""The stages of each file that this process has run: a second pipeline takes the same classes."""


def load_plugins(path: Path, registry: Registry) -> list[str]:
    """Run the Python file, or every Python file of the folder, at `path`; its stages go into `registry`.

    A stage that has a built-in one's name takes its place, so that a pipeline still means the same when a later version
    brings a stage of that name.

    Returns:
        A sentence for each built-in stage that was replaced.

    Raises:
        ConfigError: there is nothing there, or a file raises, with its name, line and cause.
    """
    try:
        there = path.exists()
    except OSError as error:  # such as a name that is too long
        raise ConfigError(f"{path} cannot be a plugin file or folder: {error.strerror}") from None
    if not there:
        raise ConfigError(f"there is no plugin file or folder {path}{near_files(path)}")
    built_in = {name: kind for name in registry.names() if (kind := registry.get(name)) is not None and ships(kind)}
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    for file in files:
        if not file.name.startswith("_"):
            _load(file.resolve(), registry)
    replaced = [name for name, kind in built_in.items() if registry.get(name) is not kind]
    return [f"the stage {name} of {path.name} takes the place of the built-in one of that name" for name in replaced]


def _load(file: Path, registry: Registry) -> None:
    if file not in _loaded:
        _loaded[file] = _stages(file)
    for kind in _loaded[file]:
        registry.add(kind)


def _stages(file: Path) -> list[type[Stage]]:
    """Run a file; return the stages that it makes, sorted by name. Raises ConfigError where it or a stage fails."""
    name = f"streamkit_plugin_{file.stem}_{abs(hash(str(file))):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    made = Registry()
    try:
        with Collecting(made):
            spec.loader.exec_module(module)
        kinds = [kind for word in made.names() if (kind := made.get(word)) is not None]
        for kind in kinds:
            options(kind)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        told = describe(error)
        if isinstance(error, SystemExit):
            told = "it ends the program; put that under if __name__ == '__main__': or leave it out"
        elif isinstance(error, SyntaxError) and error.filename == str(file):
            told = f"{type(error).__name__}: {error.msg}"
        line = _line(error, file)
        place, shown = (f":{line}", _source_line(error, file, line)) if line else ("", "")
        raise ConfigError(f"the plugin {file}{place} cannot be loaded: {told}{shown}") from error
    return kinds


def _line(error: BaseException, file: Path) -> int:
    """The number of the plugin's own deepest line, from 1; 0 where the error has none."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename == str(file):
        return error.lineno
    number, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            number = trace.tb_lineno
        trace = trace.tb_next
    return number


def _source_line(error: BaseException, file: Path, number: int) -> str:
    """The line of the file on a line of its own, with a caret below where a syntax error begins."""
    linecache.checkcache(str(file))
    text = linecache.getline(str(file), number).rstrip()
    if not text.strip():
        return ""
    caret = ""
    if isinstance(error, SyntaxError) and error.offset and error.filename == str(file):
        caret = "\n    " + " " * (min(error.offset, len(text) + 1) - 1 - (len(text) - len(text.lstrip()))) + "^"
    return f"\n    {text.strip()}{caret}"
