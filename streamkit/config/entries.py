# SPDX-License-Identifier: Apache-2.0
"""The entries of a YAML's `sources:` and `stages:`: the type of each, its options, and its inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from streamkit.config.plan import DECODE, Config, Insert, RunOptions, SourceConfig, StageConfig, Unread
from streamkit.config.source_details import DETAIL_KEYS, SourceDetails
from streamkit.config.validate import OptionValidator
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import BatchStage, Composite, FrameStage, Source, Stage, StreamStage, options
from streamkit.core.text import did_you_mean, nearest
from streamkit.core.yaml_tree import YamlNode

_Options = TypeVar("_Options")
_MAIL = "; from names stages; the sender address of mails is mail_from"
_NAMING = frozenset(
    {"answer", "attribute", "directions", "format", "labels", "model", "path", "polygon", "prompts", "rules", "when"}
)
"""Options of built-in stages that name what the stages below refer to: classes, areas, attributes, events."""
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./ -]*")
PART_CHARS = 100
ID_CHARS = 400
"""The longest part of an id between slashes, and the longest id: they are parts of file names."""

EXAMPLES = {
    "sources": "\n    sources:\n      street: samples/street.mp4\n      gate: rtsp://10.0.0.7/stream1",
    "stages": '\n    stages:\n      detect:\n        model: demo\n      jsonl:\n        path: "out/{source}.jsonl"',
}
"""What a pipeline's parts look like, for messages."""

INSERTABLE = (BatchStage, StreamStage, FrameStage)
"""The kinds of stages that may stand between the parts of a composite."""


class Entries:
    """Reads the entries of one file into a `Config`, and their problems into its `problems`.

    Args:
        config: the configuration to fill.
        root: the whole file.
        keys: the valid top-level keys.
    """

    def __init__(self, config: Config, root: YamlNode, keys: Collection[str]) -> None:
        self.config = config
        self.root = root
        self.problems = config.problems
        self._keys = keys
        self.validate = OptionValidator(config.folder, config.problems, config.registry)
        self._unread = {(problem.line, problem.column) for problem in config.problems}

    def _part(self, key: str, needs: str, form: str) -> YamlNode | None:
        """The mapping under a required key; a problem if it is missing, except where a key is misspelt."""
        node: YamlNode | None = self.root.value.get(key)
        if node is not None and node.value and isinstance(node.value, dict):
            return node
        if node is not None and node.value:
            got = "a list; leave out the dashes" if isinstance(node.value, list) else repr(node.plain())
            self.problems.append(node.problem(f"{key} must be a mapping, {form}, got {got}:{EXAMPLES[key]}"))
        elif node is not None or not any(nearest(k, self._keys) == key for k in self.root.value if k not in self._keys):
            self.problems.append((node or self.root).problem(f"a pipeline needs {needs}:{EXAMPLES[key]}"))
        return None

    # ------------------------------------------------------------------------------------------------------ sources

    def sources(self) -> None:
        """Read `sources:` into the configuration."""
        node = self._part("sources", "sources: an id and a URI for each", "each source an id and its URI")
        if node is None:
            self.config.sources_complete = False
            return
        for id_, entry in node.value.items():
            if not _ID.fullmatch(id_):
                text = f"a source id is made of letters, digits and _ - . /, got {id_!r}"
                self.problems.append(node.problem(text, id_))
            self._check_length("source", id_, node)
            self._source(id_, entry, node)

    def _check_length(self, what: str, id_: str, parent: YamlNode) -> None:
        part = max(map(len, id_.split("/")))
        if part > PART_CHARS or len(id_) > ID_CHARS:
            bound = f"{PART_CHARS} characters" + (f" between slashes, and {ID_CHARS} in all" if "/" in id_ else "")
            got = part if part > PART_CHARS else len(id_)
            text = f"a {what} id has at most {bound}, since files are named after it, got {got}"
            self.problems.append(parent.problem(text, id_))

    def _source(self, id_: str, entry: YamlNode, parent: YamlNode) -> None:
        from streamkit.media.source_resolver import missing_reason

        unread = self.config.unread_sources
        unread[id_] = self.config.registry.get("source")
        if entry.value is None and (entry.line, entry.column) in self._unread:
            return  # its variable is not set, which is already reported
        options = dict(entry.value) if isinstance(entry.value, dict) else {"uri": entry}
        if entry.value is None or ("uri" in options and options["uri"].value == ""):
            self.problems.append(parent.problem(f"source {id_} needs a URI or a file", id_))
            return
        named = options.pop("stage", None)
        fault_node = options.pop("fault", None)
        details = self._details(options, entry, id_)
        self._resolve_path(options, id_)
        fault = None if fault_node is None else self._read_mapping(Fault, fault_node, f"{id_}.fault", "{fail: 5s}")
        if named is None:
            addresses = self._addresses(id_, options, entry)
        else:
            addresses = iter([(id_, self._kind(named, Source), options)])
        for source_id, kind, of_address in addresses:
            unread[id_] = kind
            values = None if kind is None else self.validate(kind, replace(entry, value=of_address), id_)
            if kind is None or values is None or details is None:
                return
            self.config.sources.append(SourceConfig(source_id, kind, values, entry, fault, details))
            uri = of_address.get("uri")
            if named is None and uri is not None and (text := missing_reason(uri.value)) is not None:
                missing = uri.problem(f"source {source_id}: {text}{_webcam(options['uri'].value)}")
                self.config.missing[source_id] = missing
                self.config.warnings.append(missing)
            del unread[id_]

    def _details(self, options: dict[str, YamlNode], entry: YamlNode, id_: str) -> SourceDetails | None:
        """Take what people call the source out of its options; None if it is invalid."""
        written = {key: options.pop(key) for key in DETAIL_KEYS if key in options}
        if isinstance(tags := written.get("tags"), YamlNode) and isinstance(tags.value, str):
            written["tags"] = replace(tags, value=[tags])
        values = self.validate(SourceDetails, replace(entry, value=written), id_)
        return None if values is None else SourceDetails(**values)

    def _addresses(
        self, id_: str, options: dict[str, YamlNode], entry: YamlNode
    ) -> Iterator[tuple[str, type[Stage] | None, dict[str, YamlNode]]]:
        """The id, class and options of each source that an address stands for."""
        from streamkit.media.source_resolver import resolve

        uri = options.get("uri")
        if uri is None or not isinstance(uri.value, str):
            hint = next((f"; write uri, not {key}" for key in options if did_you_mean(key, ["uri"])), "")
            got = hint if uri is None else f", got {uri.plain()!r}{_webcam(uri.plain())}"
            self.problems.append(entry.problem(f"source {id_} needs a URI as text, {{uri: ...}}{got}"))
            return
        try:
            sources = resolve(id_, uri.value)
        except Exception as error:  # any error of an address is a problem of this line
            self.problems.append(uri.problem(f"source {id_}: {error}"))
            return
        for source_id, type_name, address in sources:
            yield source_id, self.config.registry.get(type_name), {**options, "uri": replace(uri, value=address)}

    def _resolve_path(self, options: dict[str, YamlNode], id_: str) -> None:
        """Resolve a relative path against the YAML's folder if it exists there, else the working directory."""
        from streamkit.media.source_resolver import missing_reason, resolve_path

        uri = options.get("uri")
        if uri is None or not isinstance(uri.value, str):
            return
        path = resolve_path(uri.value, self.config.folder)
        if path != uri.value:
            if missing_reason(uri.value) is None and os.path.realpath(path) != os.path.realpath(uri.value):
                text = f"source {id_}: {path} is taken, not {uri.value} in the working directory"
                self.config.warnings.append(uri.problem(text))
            options["uri"] = replace(uri, value=path)

    # ------------------------------------------------------------------------------------------------------- stages

    def stages(self) -> None:
        """Read `stages:` into the configuration, after the plugins."""
        node = self._part("stages", "stages, such as detect and jsonl", "each stage an id and its options")
        if node is None:
            return
        above = DECODE
        ids = [DECODE, *node.value]
        for id_, entry in node.value.items():
            if id_ == DECODE or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", id_):
                text = "decode is the id of the decoded frames" if id_ == DECODE else "letters, digits, _ and - only"
                self.problems.append(node.problem(f"a stage cannot have the id {id_!r}: {text}", id_))
            self._check_length("stage", id_, node)
            if id_ == DECODE:
                continue
            self.config.stages.append(self._stage(id_, entry, node, above, ids))
            above = id_

    def _stage(self, id_: str, entry: YamlNode, parent: YamlNode, above: str, ids: list[str]) -> StageConfig:
        """Read one entry; one that cannot be read becomes a stage of the type `Unread`, after its problems."""
        unread = StageConfig(id_, Unread, {}, [above], RunOptions(), [], entry)
        if entry.value is not None and not isinstance(entry.value, dict):
            hint = self._belongs(id_, entry, parent, above)
            self.problems.append(entry.problem(f"the options of {id_} must be a mapping, got {entry.plain()!r}{hint}"))
            return unread
        options = dict(entry.value or {})
        named, wired, run, insert = (options.pop(key, None) for key in ("stage", "from", "run", "insert"))
        kind = self._kind(named or YamlNode(id_, entry.file, *parent.keys[id_]), Stage)
        if wired is not None:
            unread.inputs = self._inputs(id_, wired, ids)
        runs = None if run is None else self._read_mapping(RunOptions, run, f"{id_}.run", "{on_error: stop}")
        if kind is None:
            return unread
        if issubclass(kind, Source):
            self.problems.append(parent.problem(f"{kind.name} is a source; it stands under sources", id_))
            return unread
        if insert is not None and not issubclass(kind, Composite):
            text = f"insert belongs to a composite such as detect, not to {kind.name}"
            self.problems.append(parent.problem(text, id_))
        values, refused = self.validate.partly(kind, replace(entry, value=options), id_)
        before = len(self.problems)
        inserts = list(self._inserts(insert, id_)) if insert is not None else []
        if values is None or len(self.problems) > before or (refused and not _keeps_names(kind, refused)):
            return unread
        return StageConfig(id_, kind, values, unread.inputs, runs or RunOptions(), inserts, entry)

    def _belongs(self, id_: str, entry: YamlNode, parent: YamlNode, above: str) -> str:
        """The fix where the value in a stage's place is an option of the stage above."""
        line = f"{id_}: {entry.raw}" if entry.raw and isinstance(entry.value, str | int | float) else f"{id_}: ..."
        if above in parent.value and parent.value[above].value is None:
            kind = self.config.registry.get(above)
            if kind is not None and id_ in {option.name for option in options(kind)}:
                return f"; to make it an option of {above}, indent it further:\n      {above}:\n        {line}"
        return ""

    def _kind(self, node: YamlNode, base: type[Stage]) -> type[Stage] | None:
        kind = self.config.registry.get(str(node.value))
        if kind is None:
            names = [name for name in self.config.registry.names() if issubclass(self.config.registry[name], base)]
            if self.config.plugins_failed and nearest(str(node.value), names, likeness=0.8) is None:
                return None  # it may be in the plugin that could not be loaded, which is already reported
            hint = did_you_mean(str(node.value), names) or "; streamkit list shows what there is, plugins: adds to it"
            self.problems.append(node.problem(f"unknown stage {node.plain()!r}{hint}"))
        elif not issubclass(kind, base):
            self.problems.append(node.problem(f"{node.plain()!r} is a stage, not a source"))
            return None
        return kind

    def _inputs(self, id_: str, wired: YamlNode, ids: list[str]) -> list[str]:
        items = wired.value if isinstance(wired.value, list) else [wired]
        for name in items:
            if name.value not in ids and str(name.value).split(".")[0] not in ids:
                hint = did_you_mean(str(name.value), ids) + _MAIL * ("@" in str(name.value))
                hint = f"; read {DECODE}, the frames of all sources" if name.value in self._source_ids() else hint
                self.problems.append(name.problem(f"{id_}.from: there is no stage {name.plain()!r}{hint}"))
            elif name.value == id_:
                self.problems.append(name.problem(f"{id_}.from: a stage cannot read from itself"))
        if not items:
            self.problems.append(wired.problem(f"{id_}.from names no stage; leave it out to take the one above"))
        return [str(name.value) for name in items if name.value != id_]

    def _source_ids(self) -> list[str]:
        node = self.root.value.get("sources")
        return list(node.value) if node is not None and isinstance(node.value, dict) else []

    def _read_mapping(self, kind: type[_Options], node: YamlNode, id_: str, example: str) -> _Options | None:
        """Read the mapping `run` or `fault` of an entry."""
        if not isinstance(node.value, dict):
            self.problems.append(node.problem(f"{id_} must be a mapping, such as {example}"))
            return None
        values = self.validate(kind, node, id_)
        return None if values is None else kind(**values)

    def _inserts(self, node: YamlNode, id_: str) -> Iterator[Insert]:
        for entry in node.value if isinstance(node.value, list) else [node]:
            options = dict(entry.value) if isinstance(entry.value, dict) else {}
            after = options.pop("after", None)
            named = options.pop("stage", None)
            if after is None or named is None:
                self.problems.append(entry.problem(f"{id_}.insert needs {{after: PART, stage: NAME}} and its options"))
                continue
            kind = self._kind(named, Stage)
            if kind is None:
                continue
            if not issubclass(kind, INSERTABLE):
                text = f"{kind.name} cannot stand between the parts of {id_}; batch, stream and frame stages can"
                self.problems.append(named.problem(text))
                continue
            values = self.validate(kind, replace(entry, value=options), f"{id_}.{kind.name}")
            if values is not None:
                yield Insert(str(after.plain()), kind, values, after)


def _keeps_names(kind: type[Stage], refused: Collection[str]) -> bool:
    """Whether the stages below can be checked although some options of a stage are invalid.

    Those options must not determine what the stage writes, nor its classes, attributes, areas or events.
    """
    decisive = _NAMING | kind.spec.reads_if.keys() | kind.spec.writes_if.keys()
    return kind.spec.built_in and not decisive.intersection(refused)


def _webcam(uri: Any) -> str:
    """A hint where a source is a number, as OpenCV counts webcams."""
    number = str(uri)
    return f"; webcam {number} is the device /dev/video{number}" if re.fullmatch(r"\d{1,3}", number) else ""
