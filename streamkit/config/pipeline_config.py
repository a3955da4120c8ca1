# SPDX-License-Identifier: Apache-2.0
"""Reads and checks a pipeline's YAML: all problems at once, each with its place, before any device is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamkit.config.checks.alarms import read_alarms
from streamkit.config.entries import EXAMPLES, Entries
from streamkit.config.plan import Config, DeviceOptions, PipelineOptions, SourceConfig
from streamkit.config.plugins import load_plugins
from streamkit.config.validate import OptionValidator
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.stage import Registry, default_registry
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import YamlNode, load, load_file, read_file, scalar, tree

_TOP = ("device", "batch", "watchdog", "state", "plugins", "sources", "stages", "alarms", "tests")
_OPTIONS = ("device", "batch", "watchdog", "state")


def read(
    path: Path,
    *,
    set_: Mapping[str, Any] | None = None,
    device: str | None = None,
    registry: Registry | None = None,
    may_be_empty: bool = False,
    text: str | None = None,
) -> Config:
    """Read and check a pipeline's YAML file. Problems are collected in the result, not raised.

    Args:
        path: the file.
        set_: values that replace the file's, such as `stages.detect.min_score` to `0.5`; texts are typed.
        device: replaces the file's `device`.
        registry: where stages are looked up; by default the built-in and the installed stages.
        may_be_empty: accept `sources: {}`, for sources that are added at run time.
        text: the file's text, if it was read before; the file itself may have changed since.

    Raises:
        ConfigError: the file cannot be read or is not YAML.
    """
    if text is None:
        text = read_file(path)
    config = _read(*load(text, str(path)), path, set_ or {}, device, registry, may_be_empty)
    config.text = text
    return config


def plugin_names(path: Path) -> list[Path]:
    """The plugin files and folders that a pipeline's YAML names, existing or not; none if it cannot be read."""
    try:
        root, _ = load_file(path)
    except ConfigError:
        return []
    node = root.value.get("plugins") if isinstance(root.value, dict) else None
    return [path.parent / plugin.value for plugin in _items(node) if isinstance(plugin.value, str) and plugin.value]


def read_text(text: str, *, folder: Path = Path(), registry: Registry | None = None) -> Config:
    """Read a pipeline from a text, as `read` does; `folder` is the file's folder."""
    root, problems = load(text, "pipeline.yaml")
    return _read(root, problems, folder / "pipeline.yaml", {}, None, registry)


def read_values(
    values: Mapping[str, Any],
    *,
    set_: Mapping[str, Any] | None = None,
    device: str | None = None,
    may_be_empty: bool = False,
) -> Config:
    """Read a pipeline from plain values in the YAML's shape, as `read` does; the environment is not expanded."""
    return _read(tree(values, "pipeline"), [], Path("pipeline"), set_ or {}, device, None, may_be_empty)


def read_source(config: Config, id_: str, entry: Any, *, must_exist: bool = False) -> list[SourceConfig]:
    """Read an entry of `sources` with the key `id_` from plain values; the environment is not expanded.

    Args:
        config: the pipeline; unchanged.
        id_: the key.
        entry: its value.
        must_exist: whether a file that is missing is a problem.

    Raises:
        ConfigError: with every problem.
    """
    added = replace(config, sources=[], problems=[], warnings=[], missing={}, unread_sources={})
    Entries(added, tree({"sources": {id_: entry}}, "source"), _TOP).sources()
    problems = [*added.problems, *(missing_files(added) if must_exist else ())]
    if problems:
        raise ConfigError(problems)
    return added.sources


def missing_files(config: Config) -> list[Problem]:
    """The sources whose files a run cannot read, as problems; those that wait for their file are left out."""
    waiting = {source.id for source in config.sources if source.options.get("reconnect") not in (None, False)}
    return [problem for id_, problem in config.missing.items() if id_ not in waiting]


def source_entry(source: SourceConfig) -> dict[str, Any]:
    """A source in the form that `read_source` takes: the given values, without defaults."""
    plain = source.node.plain()
    entry = dict(plain) if isinstance(plain, Mapping) else {}
    if "uri" in source.options:  # of a pattern of files, the one that this source is
        entry["uri"] = source.options["uri"]
    return entry


def _read(
    root: YamlNode,
    problems: list[Problem],
    path: Path,
    set_: Mapping[str, Any],
    device: str | None,
    registry: Registry | None,
    may_be_empty: bool = False,
) -> Config:
    for name, names_node in set_.items():
        replace_value(root, name, names_node, problems)
    config = Config(root.file, path.parent, (registry or default_registry()).copy(), problems=problems)
    if not isinstance(root.value, dict):
        problems.append(root.problem(f"a pipeline is a mapping with the keys {', '.join(_TOP)}"))
        return config
    if "family" in root.value and not root.value.keys() & {"sources", "stages"}:
        from streamkit.models.card import called

        problems.append(root.problem(f"this is a model card, not a pipeline; streamkit models check {called(path)}"))
        return config
    if "pipeline" in root.value and "stages" not in root.value:
        problems.append(root.problem(f"this is a cluster, not a pipeline; start it with: streamkit cluster {path}"))
        return config
    above = ""  # the part of the pipeline in whose place the key stands
    for key in root.value:
        if key in _TOP:
            above = key
        else:
            hint = "; it stands under a stage" if key == "run" else did_you_mean(key, _TOP, all_if_few=True)
            if above in EXAMPLES and root.value[above].value is None:
                hint = f"; to put it under {above}, indent it further than {above}:"
            problems.append(root.problem(f"unknown key {key!r}{hint}", key))
    if device:
        names = [name.strip() for name in device.split(",")]
        names_node = tree(names if len(names) > 1 else device, "--device")
        device_node = root.value.get("device")
        if device_node is not None and isinstance(device_node.value, dict):  # its `processes` stays
            device_node.value["use"] = names_node
            device_node.keys["use"] = (0, 0)
        else:
            root.value["device"] = names_node
    entries = Entries(config, root, _TOP)
    _read_options(config, root, entries.validate)
    _read_plugins(config, root.value.get("plugins"))
    if not may_be_empty or "sources" not in root.value or root.value["sources"].value:
        entries.sources()
    entries.stages()
    read_alarms(config, root.value.get("alarms"), entries.validate)
    if (tests := root.value.get("tests")) is not None and not isinstance(tests.value, list):
        problems.append(tests.problem("tests must be a list of tests"))
    elif tests is not None:
        config.tests = tests.value
    return config


def replace_value(root: YamlNode, name: str, setting: Any, problems: list[Problem]) -> None:
    """Apply one `--set NAME=VALUE`, or a plain value, to the tree; problems are added to `problems`."""
    node = root
    (*path, last) = name.split(".")
    for depth, step in enumerate([*path, last]):
        if depth == 2 and path[0] == "sources" and isinstance(node.value, str):
            node.value = {"uri": YamlNode(node.value, node.file, node.line, node.column)}
        if depth == 1 and path[0] == "device" and not isinstance(node.value, dict | None):
            node.value = {"use": YamlNode(node.value, node.file, node.line, node.column)}
        if depth == len(path):
            break
        if depth > 1 and isinstance(node.value, dict) and node.value.get(step) is None:
            node.value[step] = YamlNode({}, f"--set {name}", 0, 0)  # an option such as run, which is checked below
            node.keys[step] = (0, 0)
        if isinstance(node.value, dict) and step in node.value:
            node = node.value[step]
            if node.value is None:
                node.value = {}
        elif node is root and step in ("batch", "device") and isinstance(root.value, dict):
            root.value[step] = node = YamlNode({}, f"--set {name}", 0, 0)
        else:
            keys = node.value if isinstance(node.value, dict) else {}
            problems.append(Problem("--set", 0, 0, f"{name}: there is no {step!r}{did_you_mean(step, keys)}"))
            return
    if not isinstance(node.value, dict):
        where = ".".join(path) or "the file"
        problems.append(Problem("--set", 0, 0, f"{name}: {where} is not a mapping, so {last} cannot be set in it"))
        return
    if isinstance(setting, str) and setting[:1] in "[{":
        value, more = load(setting, f"--set {name}")
        value.line = value.column = 0
        problems.extend(more)
    else:
        value = tree(scalar(setting) if isinstance(setting, str) else setting, f"--set {name}")
    node.value[last] = value
    node.keys[last] = (0, 0)


def _read_options(config: Config, root: YamlNode, validate: OptionValidator) -> None:
    """Read each of `PipelineOptions` that is valid into the configuration."""
    for key, node in root.value.items():
        if key not in _OPTIONS:
            continue
        if key == "batch" and not isinstance(node.value, dict):
            node = replace(node, value={"size": node}, keys={"size": (node.line, node.column)})
        if key == "device":
            config.device_place = node.value.get("use") if isinstance(node.value, dict) else node
        if key == "device" and isinstance(node.value, dict):
            if (values := validate(DeviceOptions, node, key)) is not None:
                config.device = values.get("use", "auto")
                processes = values.get("processes", "auto")
                config.processes = None if processes == "auto" else processes
            continue
        for name, value in (validate(PipelineOptions, replace(root, value={key: node}), "") or {}).items():
            setattr(config, "watchdog_s" if name == "watchdog" else name, value)


def _read_plugins(config: Config, node: YamlNode | None) -> None:
    """Load the plugins that `plugins:` names."""
    for plugin in _items(node):
        if not isinstance(plugin.value, str) or not plugin.value:
            config.problems.append(plugin.problem(f"plugins must name files or folders, got {plugin.plain()!r}"))
            continue
        try:
            config.warnings += map(plugin.problem, load_plugins(config.folder / plugin.value, config.registry))
        except ConfigError as error:
            config.problems.extend(plugin.problem(p.text) for p in error.problems)
            config.plugins_failed = True


def _items(node: YamlNode | None) -> list[YamlNode]:
    """The items of an option that is a value or a list of them."""
    return [] if node is None else node.value if isinstance(node.value, list) else [node]
