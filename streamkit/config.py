"""A pipeline's YAML, checked: every problem at once, each with its place, before any device is touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamkit.checks.alarms import read_alarms
from streamkit.errors import ConfigError, Problem
from streamkit.fault import Fault
from streamkit.messages import did_you_mean, nearest
from streamkit.override import replace_value
from streamkit.plan import DECODE, Config, Insert, RunOptions, SourceConfig, StageConfig
from streamkit.plugins import load_plugins
from streamkit.stage import Composite, Registry, Source, Stage, default_registry
from streamkit.units import seconds
from streamkit.validate import Options
from streamkit.yamlfile import Node, load, load_file, tree

_TOP = ("device", "batch", "watchdog", "state", "plugins", "sources", "stages", "alarms", "tests")
_MAIL = "; from wires stages, and the address that mails come from is mail_from"
_BATCH = ("size", "max_wait", "max_latency")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./ -]*")


def read(
    path: Path, *, set_: Mapping[str, str] | None = None, device: str | None = None, registry: Registry | None = None,
    may_be_empty: bool = False,
) -> Config:  # fmt: skip
    """Read and check a pipeline's YAML file. Problems are collected in the result, not raised.

    Args:
        path: the file.
        set_: values that replace the file's: `stages.detect.min_score` to `0.5`.
        device: replaces the file's `device`.
        registry: where stages are found; by default the built-in and the installed ones.
        may_be_empty: `sources: {}` is no mistake, for they come while it runs.

    Raises:
        ConfigError: the file cannot be read or is not YAML.
    """
    root, problems = load_file(path)
    return _read(root, problems, path, set_ or {}, device, registry, may_be_empty)


def read_text(text: str, *, folder: Path = Path(), registry: Registry | None = None) -> Config:
    """Read a pipeline from a text, as `read` does; `folder` stands for the file's."""
    root, problems = load(text, "pipeline.yaml")
    return _read(root, problems, folder / "pipeline.yaml", {}, None, registry)


def read_source(config: Config, id_: str, value: Any) -> list[SourceConfig]:
    """Read what would stand under `sources` with the key `id_`, given as plain values; no text reads the environment.

    Raises:
        ConfigError: with every problem; `config` is not changed.
    """
    own = replace(config, sources=[], problems=[], warnings=[])
    _Reader(own, tree({"sources": {id_: value}}, "source")).sources()
    if own.problems:
        raise ConfigError(own.problems)
    return own.sources


def _read(
    root: Node, problems: list[Problem], path: Path, set_: Mapping[str, str], device: str | None,
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
    for key in root.value:
        if key not in _TOP:
            way = "; it stands under a stage" if key == "run" else did_you_mean(key, _TOP, all_if_few=True)
            problems.append(root.problem(f"unknown key {key!r}{way}", key))
    reader = _Reader(config, root)
    reader.device(device)
    for part in (reader.batch, reader.watchdog, reader.state, reader.plugins):
        part()
    if not may_be_empty or "sources" not in root.value or root.value["sources"].value:
        reader.sources()
    reader.stages()
    read_alarms(config, root.value.get("alarms"), reader.validate)
    if (tests := root.value.get("tests")) is not None and not isinstance(tests.value, list):
        problems.append(tests.problem("tests must be a list of tests"))
    elif tests is not None:
        config.tests = tests.value
    return config


class _Reader:
    """Reads the parts of one file into a `Config`."""

    def __init__(self, config: Config, root: Node) -> None:
        self.config, self.root, self.problems = config, root, config.problems
        self.validate = Options(config.folder, config.problems)

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
        value = {"size": node.value} if not isinstance(node.value, dict) else node.plain()
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

    def _seconds(self, node: Node, name: str) -> float | None:
        try:
            return seconds(node.plain())
        except ValueError as error:
            self.problems.append(node.problem(f"{name} {error}"))
            return None

    def plugins(self) -> None:
        node = self.root.value.get("plugins")
        items = [] if node is None else node.value if isinstance(node.value, list) else [node]
        for item in items:
            path = self.config.folder / str(item.value)
            try:
                self.config.warnings += map(item.problem, load_plugins(path, self.config.registry))
            except ConfigError as error:
                self.problems.extend(item.problem(p.text) for p in error.problems)

    def _part(self, key: str, needs: str, form: str) -> Node | None:
        """The mapping under a key that a pipeline needs; where there is none, that is told, but for a misspelt key."""
        node: Node | None = self.root.value.get(key)
        if node is not None and node.value and isinstance(node.value, dict):
            return node
        if node is not None and node.value:
            self.problems.append(node.problem(f"{key} must be a mapping: {form}"))
        elif node is not None or not any(nearest(k, _TOP) == key for k in self.root.value if k not in _TOP):
            self.problems.append((node or self.root).problem(f"a pipeline needs {needs}"))
        return None

    # ------------------------------------------------------------------------------------------------------ sources

    def sources(self) -> None:
        node = self._part("sources", "sources: an id and a URI for each", "each source an id and its URI")
        if node is None:
            return
        for id_, item in node.value.items():
            if not _ID.fullmatch(id_):
                text = f"a source id is made of letters, digits and _ - . /, got {id_!r}"
                self.problems.append(node.problem(text, id_))
            self._source(id_, item, node)

    def _source(self, id_: str, item: Node, parent: Node) -> None:
        from streamkit.media.find import missing, resolve

        if item.value is None and any((p.line, p.column) == (item.line, item.column) for p in self.problems):
            return  # its variable is not set, which is told
        if item.value is None:
            self.problems.append(parent.problem(f"source {id_} needs a URI or a file", id_))
            return
        options = dict(item.value) if isinstance(item.value, dict) else {"uri": item}
        named, fault_node = options.pop("stage", None), options.pop("fault", None)
        fault = None if fault_node is None else self._fault(fault_node, id_)
        if named is not None:
            kind = self._kind(named, Source)
            if kind is not None:
                values = self.validate(kind, Node(options, item.file, item.line, item.column, item.keys), id_)
                if values is not None:
                    self.config.sources.append(SourceConfig(id_, kind, values, item, fault))
            return
        uri = options.get("uri")
        if uri is None or not isinstance(uri.value, str):
            meant = next((f"; write uri, not {key}" for key in options if did_you_mean(key, ["uri"])), "")
            self.problems.append(
                item.problem(f"source {id_} needs a URI as text, {{uri: ...}}{meant if uri is None else ''}")
            )
            return
        try:
            found = resolve(id_, uri.value)
        except Exception as error:  # whatever is wrong with an address is a problem of this line
            self.problems.append(uri.problem(f"source {id_}: {error}"))
            return
        for one, type_name, one_uri in found:
            kind = self.config.registry.get(type_name)
            assert kind is not None, type_name
            mine = Node(
                {**options, "uri": Node(one_uri, uri.file, uri.line, uri.column)}, item.file, item.line, item.column,
                item.keys,
            )  # fmt: skip
            values = self.validate(kind, mine, id_)
            if values is None:
                return
            self.config.sources.append(SourceConfig(one, kind, values, item, fault))
            if (told := missing(one_uri)) is not None:
                self.config.warnings.append(uri.problem(f"source {one}: {told}"))

    def _fault(self, node: Node, id_: str) -> Fault | None:
        if not isinstance(node.value, dict):
            self.problems.append(node.problem(f"{id_}.fault must be a mapping, such as {{fail: 5s}}"))
            return None
        values = self.validate(Fault, node, f"{id_}.fault")
        return None if values is None else Fault(**values)

    # ------------------------------------------------------------------------------------------------------- stages

    def stages(self) -> None:
        node = self._part("stages", "stages, such as detect and jsonl", "each stage an id and its options")
        if node is None:
            return
        above = DECODE
        ids = [DECODE, *node.value]
        for id_, item in node.value.items():
            if id_ == DECODE or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", id_):
                text = "decode is the id of the decoded frames" if id_ == DECODE else "letters, digits, _ and - only"
                self.problems.append(node.problem(f"a stage cannot have the id {id_!r}: {text}", id_))
            if id_ == DECODE:
                continue
            made = self._stage(id_, item, node, above, ids)
            if made is not None:
                self.config.stages.append(made)
            above = id_

    def _stage(self, id_: str, item: Node, parent: Node, above: str, ids: list[str]) -> StageConfig | None:
        if item.value is not None and not isinstance(item.value, dict):
            self.problems.append(item.problem(f"the options of {id_} must be a mapping, got {item.value!r}"))
            return None
        options = dict(item.value or {})
        named, wired, run, insert = (options.pop(key, None) for key in ("stage", "from", "run", "insert"))
        kind = self._kind(named or Node(id_, item.file, *parent.keys[id_]), Stage)
        inputs = [above] if wired is None else self._inputs(id_, wired, ids)
        if kind is None:
            return None
        if issubclass(kind, Source):
            self.problems.append(parent.problem(f"{kind.name} is a source; it stands under sources", id_))
            return None
        if insert is not None and not issubclass(kind, Composite):
            text = f"insert belongs to a composite such as detect, not to {kind.name}"
            self.problems.append(parent.problem(text, id_))
        values = self.validate(kind, Node(options, item.file, item.line, item.column, item.keys), id_)
        runs = self._run_options(run, id_)
        inserts = list(self._inserts(insert, id_)) if insert is not None else []
        return None if values is None else StageConfig(id_, kind, values, inputs, runs, inserts, item)

    def _kind(self, node: Node, base: type[Stage]) -> type[Stage] | None:
        kind = self.config.registry.get(str(node.value))
        if kind is None:
            names = [n for n in self.config.registry.names() if issubclass(self.config.registry.get(n) or Stage, base)]
            way = did_you_mean(str(node.value), names) or "; run.py list shows what there is, plugins: adds to it"
            self.problems.append(node.problem(f"unknown stage {node.value!r}{way}"))
        elif not issubclass(kind, base):
            self.problems.append(node.problem(f"{node.value!r} is a stage, not a source"))
            return None
        return kind

    def _inputs(self, id_: str, wired: Node, ids: list[str]) -> list[str]:
        items = wired.value if isinstance(wired.value, list) else [wired]
        for item in items:
            if item.value not in ids and str(item.value).split(".")[0] not in ids:
                way = did_you_mean(str(item.value), ids) + _MAIL * ("@" in str(item.value))
                way = f"; read {DECODE}, the frames of all sources" if item.value in self._source_ids() else way
                self.problems.append(item.problem(f"{id_}.from: there is no stage {item.value!r}{way}"))
            elif item.value == id_:
                self.problems.append(item.problem(f"{id_}.from: a stage cannot read from itself"))
        if not items:
            self.problems.append(wired.problem(f"{id_}.from names no stage; leave it out to take the one above"))
        return [str(item.value) for item in items if item.value != id_]

    def _source_ids(self) -> list[str]:
        node = self.root.value.get("sources")
        return list(node.value) if node is not None and isinstance(node.value, dict) else []

    def _run_options(self, node: Node | None, id_: str) -> RunOptions:
        options = RunOptions()
        if node is None:
            return options
        wanted: dict[str, Any] = {"queue": int, "on_error": str, "instances": int}
        for key, item in node.value.items() if isinstance(node.value, dict) else ():
            fits = isinstance(item.value, wanted.get(key, object)) and not isinstance(item.value, bool)
            if key not in wanted:
                self.problems.append(
                    node.problem(f"{id_}.run has no option {key!r}{did_you_mean(key, wanted, all_if_few=True)}", key)
                )
            elif key == "on_error" and item.value not in ("skip", "stop"):
                self.problems.append(item.problem(f"{id_}.run.on_error must be skip or stop, got {item.value!r}"))
            elif not fits or (wanted[key] is int and item.value < 1):
                self.problems.append(item.problem(f"{id_}.run.{key} must be a whole number from 1, got {item.value!r}"))
            else:
                setattr(options, key, item.value)
        if not isinstance(node.value, dict):
            self.problems.append(node.problem(f"{id_}.run must be a mapping, such as {{on_error: stop}}"))
        return options

    def _inserts(self, node: Node, id_: str) -> Iterator[Insert]:
        for item in node.value if isinstance(node.value, list) else [node]:
            options = dict(item.value) if isinstance(item.value, dict) else {}
            after, named = options.pop("after", None), options.pop("stage", None)
            if after is None or named is None:
                self.problems.append(item.problem(f"{id_}.insert needs {{after: PART, stage: NAME}} and its options"))
                continue
            kind = self._kind(named, Stage)
            if kind is None:
                continue
            place = Node(options, item.file, item.line, item.column, item.keys)
            values = self.validate(kind, place, f"{id_}.{kind.name}")
            if values is not None:
                yield Insert(str(after.value), kind, values, after)
