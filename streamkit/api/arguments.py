# SPDX-License-Identifier: Apache-2.0
"""From the arguments of `streamkit.run` and `streamkit.Pipeline` to a graph."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamkit.config.checks.stages import check_networks, check_packages
from streamkit.config.graph import build
from streamkit.config.pipeline_config import missing_files, read, read_source, read_values
from streamkit.config.plan import Config, Graph, SourceConfig
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError
from streamkit.core.yaml_tree import expand
from streamkit.runtime.execution.device import choose
from streamkit.runtime.ingest.push_source import PushQueue, PushSource

logger = logging.getLogger(__name__)

Address = str | os.PathLike[str]
Sources = Address | Sequence[Address] | Mapping[str, Any]
PipelineSources = Sources | PushSource | Sequence[Address | PushSource]

_PLACEHOLDER = "test://"  # stands for a push source while the entries are checked


@dataclass(slots=True)
class CheckedPipeline:
    """A checked pipeline that has not started.

    Attributes:
        graph: its graph.
        device: its device.
        queues: the queue of each push source, by id.
    """

    graph: Graph
    device: Device
    queues: dict[str, PushQueue] = field(default_factory=dict)


def plan(
    sources: PipelineSources | None,
    *,
    model: Address | None,
    stages: Mapping[str, Any] | None,
    device: str | None,
    limit: int | None,
    set_: Mapping[str, Any] | None,
    may_be_empty: bool = False,
) -> CheckedPipeline:
    """Check the arguments of `streamkit.run`, and make their graph.

    Raises:
        ConfigError: with every problem.
        DeviceError: the device is not available.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError(f"limit must be a number of frames, at least 1, got {limit!r}; leave it out to read all")
    if set_ is not None and not isinstance(set_, Mapping):
        raise ConfigError(
            'set must be a mapping from names to values, such as {"stages.detect.min_score": 0.5}, got '
            f"{type(set_).__name__}"
        )
    changes = expand(dict(set_ or {}), "set")
    pushed: dict[str, PushSource] = {}
    path = _pipeline_file(sources)
    whole = path is not None or _is_pipeline(sources)
    if whole and (model is not None or stages is not None):
        raise ConfigError("model and stages are for sources; a pipeline names its own, which `set` can change")
    if path is not None:
        config = read(path, set_=changes, device=device, may_be_empty=may_be_empty)
    else:
        values, pushed = _without_push(_values(sources, model, stages))
        config = read_values(expand(values, "pipeline"), set_=changes, device=device, may_be_empty=may_be_empty)
    graph = checked_graph(config)
    checked = CheckedPipeline(graph, choose(config.device))
    if pushed:
        config.sources = [
            _push_config(checked, source.id, pushed[source.id]) if source.id in pushed else source
            for source in config.sources
        ]
        checked.graph = build(config)
    return checked


def checked_graph(config: Config) -> Graph:
    """The graph of a pipeline whose files, packages and networks are there; log its warnings.

    Raises:
        ConfigError: with every problem. If the graph has some, its packages and networks are not checked.
    """
    problems = missing_files(config)
    try:
        graph = build(config)
    except ConfigError as error:
        raise ConfigError([*error.problems, *problems]) from None
    for check in (check_packages, check_networks):
        try:
            check(graph)
        except ConfigError as error:
            problems += error.problems
    for warning in config.warnings:
        if warning not in problems:
            logger.warning(str(warning))
    if problems:
        raise ConfigError(problems)
    return graph


def added(plan: CheckedPipeline, id_: str, source: Any) -> list[SourceConfig]:
    """The sources that one more entry stands for: a folder of videos is several.

    Raises:
        ConfigError: with every problem.
    """
    _check_type(id_, source)
    if isinstance(source, PushSource):
        read_source(plan.graph.config, id_, _PLACEHOLDER)  # checks the id
        return [_push_config(plan, id_, source)]
    return read_source(plan.graph.config, id_, expand(source, "source"), must_exist=True)


def _push_config(checked: CheckedPipeline, id_: str, source: PushSource) -> SourceConfig:
    config = source.config(id_, checked.device)
    checked.queues[id_] = config.options["queue"]
    return config


def _is_pipeline(sources: Any) -> bool:
    """Whether the sources are a pipeline in the shape of its YAML, maybe an incomplete one."""
    return isinstance(sources, Mapping) and ("sources" in sources or isinstance(sources.get("stages"), Mapping))


def _pipeline_file(sources: Any) -> Path | None:
    """The path of a pipeline's YAML, if the sources are one."""
    text = str(sources) if isinstance(sources, str | os.PathLike) else ""
    return Path(text) if "://" not in text and text.lower().endswith((".yaml", ".yml")) else None


def _values(sources: Any, model: Address | None, stages: Mapping[str, Any] | None) -> dict[str, Any]:
    """The pipeline in the shape of its YAML."""
    if _is_pipeline(sources):
        return dict(sources)
    if stages is not None and not isinstance(stages, Mapping):
        raise ConfigError(
            f'stages must be a mapping from ids to options, such as {{"track": {{}}}}, got {type(stages).__name__}'
        )
    if model is None and not stages:
        raise ConfigError('sources need a detector or stages, such as model="auto"')
    detector = {} if model is None else {"detect": {"model": str(model)}}
    if detector and stages and "detect" in stages:
        raise ConfigError(
            'model= adds the stage detect, and stages has one too; put the model into it, {"detect": {"model": '
            f'"{model}", ...}}}}, or give the other stage another name'
        )
    return {"sources": _entries(sources), "stages": {**detector, **(stages or {})}}


def _entries(sources: Any) -> dict[str, Any]:
    """The entries of `sources:`, with ids for addresses that have none."""
    if sources is None:
        return {}
    if isinstance(sources, Mapping):
        return dict(sources)
    if isinstance(sources, Sequence) and not isinstance(sources, str | bytes):
        return {f"source_{number}": source for number, source in enumerate(sources, 1)}
    return {"source": sources}


def _check_type(id_: str, source: Any) -> None:
    """Refuse objects that are often taken for a source.

    Raises:
        ConfigError: with what to pass instead.
    """
    kind = type(source).__name__
    if source is PushSource:
        raise ConfigError(f"source {id_} is the class PushSource; create one: PushSource(fps=25)")
    if hasattr(source, "__array_interface__") or hasattr(source, "__dlpack__"):
        raise ConfigError(
            f"source {id_} is an image ({kind}), and a source is an address; to process images of your program, push "
            f'them: Pipeline({{"{id_}": PushSource(fps=25)}}, ...) and push("{id_}", image)'
        )
    if isinstance(source, bytes | Iterator | Set):
        raise ConfigError(
            f"source {id_} must be a file, a folder or an address as text, got {kind}; several sources are a list, "
            "or a mapping from ids"
        )


def _without_push(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, PushSource]]:
    """The values with a placeholder for each push source, and the push sources by id."""
    entries = values.get("sources")
    if not isinstance(entries, Mapping):
        return values, {}
    for id_, source in entries.items():
        _check_type(str(id_), source)
    pushed = {str(id_): source for id_, source in entries.items() if isinstance(source, PushSource)}
    return {**values, "sources": {**entries, **dict.fromkeys(pushed, _PLACEHOLDER)}}, pushed
