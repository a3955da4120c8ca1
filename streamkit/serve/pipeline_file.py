# SPDX-License-Identifier: Apache-2.0
"""The pipeline's YAML behind the API: read, checked as `streamkit check` does, and replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamkit.config.plan import Graph
from streamkit.config.shape_options import StageShapes, shapes_of
from streamkit.config.yaml_edit import diff, digest, replaced
from streamkit.core.errors import ConfigError, OutputError, Problem, describe
from streamkit.core.masking import mask
from streamkit.core.stage import Registry
from streamkit.core.yaml_tree import YamlNode, load, read_file
from streamkit.io.outputs import AtomicFile, fsync_folders, output_error
from streamkit.serve.api_models import RequestRejected

Check = Callable[[str], tuple[list[Problem], list[Problem], Graph | None]]
"""Checks a text in place of the file; returns the problems, the warnings, and the graph of a valid text."""


@dataclass(frozen=True, slots=True)
class CheckedText:
    """A text that was checked in place of the file's.

    Attributes:
        text: the text.
        before: the file's text.
        problems: what is wrong with it; empty if it is valid.
        warnings: what may be wrong with it.
        diff: the changes to the file, as a unified diff.
        graph: the pipeline, if the text is valid.
    """

    text: str
    before: str
    problems: list[Problem]
    warnings: list[Problem]
    diff: str
    graph: Graph | None = None


class PipelineFile:
    """The YAML of the running pipeline.

    Args:
        path: the file.
        check: checks a text in its place.
        overridden: names of values that `--set` replaces, such as `stages.zone.units`.
        allow_plugins: whether an edit may change `plugins`, which are code of this machine.
    """

    def __init__(
        self, path: Path, check: Check, *, overridden: Mapping[str, Any] | None = None, allow_plugins: bool = False
    ) -> None:
        self.path = path
        self._check = check
        self._allow_plugins = allow_plugins
        self._overridden = tuple(overridden or ())
        self._plugins = _plugins(path.read_text(encoding="utf-8") if path.is_file() else "", str(path))

    def read(self) -> str:
        """The file's text. Raises RequestRejected."""
        try:
            with self.path.open(encoding="utf-8", newline="") as file:  # keeps the ends of lines
                return file.read()
        except (OSError, UnicodeDecodeError):
            try:
                return read_file(self.path)
            except ConfigError as error:
                raise RequestRejected(409, str(error)) from None

    @property
    def read_only(self) -> str:
        """Why the file cannot be written; empty if it can."""
        target = self.path.resolve()
        if not os.access(target, os.W_OK):
            return f"{self.path.name} is read-only for this server; give its user the right to write it"
        if not os.access(target.parent, os.W_OK):
            return f"the folder of {self.path.name} is read-only for this server; the file is replaced as a whole"
        return ""

    def checked(self, text: str) -> CheckedText:
        """Check a text. Raises RequestRejected: the file cannot be read."""
        before = self.read()
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestRejected(422, "the text has characters that UTF-8 does not have: half of a pair") from None
        if "\r\n" in before and "\r\n" not in text:  # a browser's text has other ends of lines
            text = text.replace("\n", "\r\n")
        problems = self._plugins_changed(before, text)
        warnings = list[Problem]()
        graph = None
        if not problems:
            try:
                problems, warnings, graph = self._check(text)
            except Exception as error:  # of a plugin
                problems = [Problem(str(self.path), 0, 0, f"the check failed: {describe(error)}")]
        return CheckedText(text, before, problems, warnings, diff(before, text, self.path.name), graph)

    def write(self, checked: CheckedText, hash_: str) -> None:
        """Replace the file's text by one that was checked; the file keeps its rights, a symbolic link its target.

        Args:
            checked: the checked text.
            hash_: the digest of the text that was edited.

        Raises:
            RequestRejected: it has problems, the file has changed meanwhile, or cannot be written.
        """
        if checked.problems:
            raise RequestRejected(422, listed(checked.problems))
        if reason := self.read_only:
            raise RequestRejected(409, reason)
        target = self.path.resolve()
        file = AtomicFile(target)
        try:
            part = file.begin()  # locked: two edits at once cannot both find the file as it was
            try:
                self._check_unchanged(hash_)
                about = target.stat()
                part.write_text(checked.text, encoding="utf-8", newline="")
                part.chmod(about.st_mode & 0o7777)
                if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
                    os.chown(part, about.st_uid, about.st_gid)
            except OSError as error:
                raise output_error(target, error) from error
            file.finish()
            fsync_folders([target.parent])
        except OutputError as error:
            raise RequestRejected(
                409, f"{error}; a single file that is mounted cannot be replaced: mount its folder"
            ) from None
        finally:
            file.discard()

    def _check_unchanged(self, hash_: str) -> None:
        if digest(self.read()) != hash_:
            raise RequestRejected(
                409, f"{self.path.name} has changed since it was read: read it again, and repeat the edit"
            )

    def shapes(self, registry: Registry) -> tuple[str, list[StageShapes]]:
        """The file's text, and the areas and lines of its stages. Raises RequestRejected."""
        text = self.read()
        try:
            root, problems = load(text, self.path.name)
        except ConfigError as error:
            raise RequestRejected(409, mask(f"the YAML must be mended first: {error}")) from None
        if problems:
            raise RequestRejected(409, f"the YAML must be mended first: {listed(problems)}")
        return text, shapes_of(root, registry)

    def with_values(self, text: str, values: Sequence[tuple[Sequence[str], Any]]) -> str:
        """The file's text with other values at paths. Raises RequestRejected."""
        for path, value in values:
            name = ".".join(path)
            for set_ in self._overridden:
                if f"{name}.".startswith(f"{set_}.") or f"{set_}.".startswith(f"{name}."):
                    raise RequestRejected(409, f"{name} is given by --set {set_} of the command; leave that out first")
            try:
                text = replaced(text, path, value)
            except ConfigError as error:
                raise RequestRejected(409, mask(str(error))) from None
        return text

    def _plugins_changed(self, before: str, text: str) -> list[Problem]:
        """A problem if a text names other plugins than the file: a check would run them."""
        if self._allow_plugins:
            return []
        new = _plugins(text, str(self.path))
        present = [
            None if plugins is None else plugins.plain()
            for plugins in (self._plugins, _plugins(before, str(self.path)))
        ]
        if new is None or new.plain() in present:
            return []
        reason = "plugins are code of this machine: change them in the file, or start the server with --allow-files"
        return [new.problem(reason)]


def _plugins(text: str, file: str) -> YamlNode | None:
    """What a text has under `plugins`; None if nothing, or if it is not YAML: then a check runs no plugin."""
    try:
        root, _ = load(text, file)
    except ConfigError:
        return None
    plugins = root.value.get("plugins") if isinstance(root.value, dict) else None
    return plugins if plugins is not None and plugins.value else None


def listed(problems: Sequence[Problem]) -> str:
    """Problems as one text, each with its line and column."""
    places = (f"line {problem.line}, column {problem.column}: " if problem.line else "" for problem in problems)
    return "\n".join(f"{place}{mask(problem.text)}" for place, problem in zip(places, problems, strict=True))
