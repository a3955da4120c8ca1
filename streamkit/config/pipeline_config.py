"""Reads and checks a pipeline's YAML: all problems at once, each with its place, before any device is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamkit.config.checks.alarms import read_alarms
from streamkit.config.entries import EXAMPLES, Entries
from streamkit.config.override import replace_value
from streamkit.config.plan import Config, SourceConfig
from streamkit.config.plugins import load_plugins
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.stage import Registry, default_registry
from streamkit.core.text import did_you_mean
from streamkit.core.units import seconds
from streamkit.core.yaml_tree import YamlNode, load, load_file, tree

_TOP = ("device", "batch", "watchdog", "state", "plugins", "sources", "stages", "alarms", "tests")
_BATCH = ("size", "max_wait", "max_latency")


def read(
    path: Path, *, set_: Mapping[str, str] | None = None, device: str | None = None, registry: Registry | None = None,
    may_be_empty: bool = False,
) -> Config:  # fmt: skip
    """Read and check a pipeline's YAML file. Problems are collected in the result, not raised.

    Args:
        path: the file.
        set_: values that replace the file's, such as `stages.detect.min_score` to `0.5`.
        device: replaces the file's `device`.
        registry: where stages are looked up; by default the built-in and the installed ones.
        may_be_empty: accept `sources: {}`, for sources that are added at run time.

    Raises:
        ConfigError: the file cannot be read or is not YAML.
    """
    root, problems = load_file(path)
    return _read(root, problems, path, set_ or {}, device, registry, may_be_empty)


def plugin_names(path: Path) -> list[Path]:
    """The plugin files and folders that a pipeline's YAML names, existing or not; none if it cannot be read."""
    try:
        root, _ = load_file(path)
    except ConfigError:
        return []
    node = root.value.get("plugins") if isinstance(root.value, dict) else None
    items = [] if node is None else node.value if isinstance(node.value, list) else [node]
    return [path.parent / item.value for item in items if isinstance(item.value, str) and item.value]


def read_text(text: str, *, folder: Path = Path(), registry: Registry | None = None) -> Config:
    """Read a pipeline from a text, as `read` does; `folder` is the file's folder."""
    root, problems = load(text, "pipeline.yaml")
    return _read(root, problems, folder / "pipeline.yaml", {}, None, registry)


def read_source(config: Config, id_: str, value: Any) -> list[SourceConfig]:
    """Read an entry of `sources` with the key `id_` from plain values; the environment is not expanded.

    Raises:
        ConfigError: with every problem; `config` is unchanged.
    """
    own = replace(config, sources=[], problems=[], warnings=[])
    Entries(own, tree({"sources": {id_: value}}, "source"), _TOP).sources()
    if own.problems:
        raise ConfigError(own.problems)
    return own.sources


def source_entry(source: SourceConfig) -> dict[str, Any]:
    """A source in the form that `read_source` takes: the given values, without defaults."""
    plain = source.node.plain()
    entry = dict(plain) if isinstance(plain, Mapping) else {}
    if "uri" in source.options:  # of a pattern of files, the one that this source is
        entry["uri"] = source.options["uri"]
    return entry


def _read(
    root: YamlNode, problems: list[Problem], path: Path, set_: Mapping[str, str], device: str | None,
    known: Registry | None, may_be_empty: bool = False,
) -> Config:  # fmt: skip
    for name, text in set_.items():
        replace_value(root, name, text, problems)
    config = Config(root.file, path.parent, (known or default_registry()).copy(), problems=problems)
    if not isinstance(root.value, dict):
        problems.append(root.problem(f"a pipeline is a mapping with the keys {', '.join(_TOP)}"))
        return config
    if "family" in root.value and not root.value.keys() & {"sources", "stages"}:
        from streamkit.models.card import called

        problems.append(root.problem(f"this is a model card, not a pipeline; run.py models check {called(path)}"))
        return config
    above = ""  # the part of the pipeline in whose place the key stands
    for key in root.value:
        if key in _TOP:
            above = key
        else:
            way = "; it stands under a stage" if key == "run" else did_you_mean(key, _TOP, all_if_few=True)
            if above in EXAMPLES and root.value[above].value is None:
                way = f"; to put it under {above}, indent it further than {above}:"
            problems.append(root.problem(f"unknown key {key!r}{way}", key))
    settings = _Settings(config, root)
    settings.device(device)
    settings.batch()
    settings.watchdog()
    settings.state()
    settings.plugins()
    entries = Entries(config, root, _TOP)
    if not may_be_empty or "sources" not in root.value or root.value["sources"].value:
        entries.sources()
    entries.stages()
    read_alarms(config, root.value.get("alarms"), entries.validate)
    if (tests := root.value.get("tests")) is not None and not isinstance(tests.value, list):
        problems.append(tests.problem("tests must be a list of tests"))
    elif tests is not None:
        config.tests = tests.value
    return config


class _Settings:
    """Reads the keys beside `sources` and `stages` into a `Config`."""

    def __init__(self, config: Config, root: YamlNode) -> None:
        self.config, self.root, self.problems = config, root, config.problems

    def device(self, override: str | None) -> None:
        node = self.root.value.get("device")
        value: Any = override or (node.plain() if node is not None else "auto")
        if override and "," in override:
            value = [name.strip() for name in override.split(",")]
        many = value if isinstance(value, list) else [value]
        told = None if many else "device names none; leave it out for auto"
        for name in many:
            if not isinstance(name, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
                told = f"device must be auto, cpu, cuda or cuda:N, got {name!r}"
            elif name == "auto" and len(many) > 1:
                told = "auto chooses one device; in a list name each, as in [cuda:0, cuda:1]"
        if told:
            self.problems.append(Problem("--device", 0, 0, told) if override or node is None else node.problem(told))
            return
        self.config.device = value

    def batch(self) -> None:
        node = self.root.value.get("batch")
        if node is None:
            return
        value = node.plain() if isinstance(node.value, dict) else {"size": node.plain()}
        for key in value:
            if key not in _BATCH:
                text = f"batch has no option {key!r}{did_you_mean(key, _BATCH, True)}"
                self.problems.append(node.problem(text, key))
        size = value.get("size")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 1024):
            self.problems.append(node.problem(f"batch.size must be a whole number from 1 to 1024, got {size!r}"))
            size = None
        self.config.batch.size = size
        for key in ("max_wait", "max_latency"):
            if key in value and (found := self._seconds(node.value[key], f"batch.{key}")) is not None:
                setattr(self.config.batch, f"{key}_s", found)

    def watchdog(self) -> None:
        node = self.root.value.get("watchdog")
        if node is not None and (found := self._seconds(node, "watchdog")) is not None:
            self.config.watchdog_s = found

    def state(self) -> None:
        node = self.root.value.get("state")
        if node is not None and isinstance(node.value, str) and node.value[-1:] not in ("", "/"):
            self.config.state = Path(node.value)
        elif node is not None:
            self.problems.append(node.problem(f"state must name a file, such as state.db, got {node.plain()!r}"))

    def _seconds(self, node: YamlNode, name: str) -> float | None:
        try:
            return seconds(node.plain())
        except ValueError as error:
            self.problems.append(node.problem(f"{name} {error}"))
            return None

    def plugins(self) -> None:
        node = self.root.value.get("plugins")
        items = [] if node is None else node.value if isinstance(node.value, list) else [node]
        for item in items:
            if not isinstance(item.value, str) or not item.value:
                self.problems.append(item.problem(f"plugins must name files or folders, got {item.plain()!r}"))
                continue
            path = self.config.folder / item.value
            try:
                self.config.warnings += map(item.problem, load_plugins(path, self.config.registry))
            except ConfigError as error:
                self.problems.extend(item.problem(p.text) for p in error.problems)
                self.config.plugins_failed = True
