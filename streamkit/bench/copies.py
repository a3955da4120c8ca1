# SPDX-License-Identifier: Apache-2.0
"""Multiplies a pipeline's sources into paced copies, and redirects its outputs to a folder.

The changed pipeline is written as a YAML text, because worker processes read the text of the pipeline they run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamkit.config.pipeline_config import read, replace_value, source_entry
from streamkit.config.plan import DECODE, Config, SourceConfig
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.stage import Sink, options
from streamkit.core.yaml_tree import load


def read_copies(
    path: Path, set_: Mapping[str, str], device: str | None, streams: int, pace: float | None, outputs: Path
) -> tuple[Config, list[str]]:
    """Read a pipeline as `multiply` changes it. Its `text` is that of the changed pipeline, `set_` included.

    Alarms, tests and the state file, which belong to the original sources, are left out.

    Args:
        path: the pipeline's YAML.
        set_: values that replace the file's.
        device: replaces the file's.
        streams: number of copies.
        pace: frames per second of each; see `multiply`.
        outputs: a folder.

    Returns:
        The configuration, and a message for each removed sink.

    Raises:
        ConfigError: the pipeline is invalid, or a source cannot be paced.
    """
    config = read(path, set_=set_, device=device)
    messages = multiply(config, streams, pace, outputs)
    problems: list[Problem] = []
    root, _ = load(config.text or "", str(path))
    for name, value in set_.items():
        replace_value(root, name, value, problems)
    other_keys = {key: node.plain() for key, node in root.value.items() if key not in ("alarms", "tests", "state")}
    sources = {source.id: _paced_entry(source) for source in config.sources}
    stages = {}
    for stage in config.stages:
        stages[stage.id] = {**(stage.node.plain() or {}), "from": stage.inputs}
        if issubclass(stage.type, Sink):
            stages[stage.id]["path"] = stage.options["path"]
    return read(path, text=_flow({**other_keys, "sources": sources, "stages": stages}), device=device), messages


def _paced_entry(source: SourceConfig) -> dict[str, Any]:
    changed: dict[str, Any] = {
        name: source.options[name] for name in ("pace", "pace_seed", "loop") if name in source.options
    }
    return {**source_entry(source), **changed}


def _flow(value: Any) -> str:
    """Plain values as YAML in flow style: JSON, but for numbers that it does not have."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(str(key))}: {_flow(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value, ensure_ascii=False, default=str)


def multiply(config: Config, streams: int, pace: float | None, outputs: Path) -> list[str]:
    """Replace a configuration's sources by paced copies of them, and its outputs by files in a folder.

    Copies take turns: with two sources and five streams, three are copies of the first. They loop forever, each with
    its own phase, like cameras. Sinks that write files write `outputs/STAGE/{source}`; other sinks would send data
    elsewhere, so they are removed, with a message.

    Args:
        config: changed in place.
        streams: number of copies.
        pace: frames per second of each; None for the YAML's pace, or the video's own timestamps.
        outputs: a folder.

    Returns:
        A message for each removed sink.

    Raises:
        ConfigError: a source cannot be paced.
    """
    if config.problems:
        raise ConfigError(list(config.problems))
    kinds = list(config.sources)
    for source in kinds:
        if "pace" not in {option.name for option in options(source.type)}:
            raise ConfigError(
                f"source {source.id} is a {source.type.name}, which has no pace: capacity counts live streams; use a "
                "video"
            )
    config.sources = []
    for number in range(streams):
        source = kinds[number % len(kinds)]
        yaml_pace = source.options.get("pace")
        overrides = {"pace": pace or (yaml_pace if yaml_pace != "unpaced" else None) or "realtime", "pace_seed": None}
        if "loop" in {option.name for option in options(source.type)}:
            overrides["loop"] = True
        changed = {**source.options, **overrides}
        config.sources.append(dataclasses.replace(source, id=f"{source.id}-{number}", options=changed))
    return _redirect_outputs(config, outputs)


def due_fps(source: SourceConfig, pace: float | None) -> float | None:
    """Frames per second that a paced copy of a source must deliver; None if that is unknown in advance.

    Raises:
        SourceError: the video cannot be opened.
    """
    from streamkit.media.demux import Demuxer

    if source.type.name != "source":
        return None
    source_options = source.options
    demuxer = Demuxer(str(source_options["uri"]))
    video_fps = demuxer.info.average_rate
    demuxer.close()
    if video_fps is None:
        return None
    yaml_pace = source_options.get("pace")
    rate = pace or (yaml_pace if isinstance(yaml_pace, (int, float)) else video_fps)
    share = min(1.0, source_options["fps"] / video_fps) if source_options.get("fps") else 1.0
    return float(rate * share / source_options.get("every", 1))


def _redirect_outputs(config: Config, outputs: Path) -> list[str]:
    """Redirect the files of sinks to `outputs`, and remove other sinks; return a message for each of these."""
    removed = []
    instead: dict[str, list[str]] = {}
    stages = []
    for stage in config.stages:
        stage.inputs = [name for input_ in stage.inputs for name in instead.get(input_, [input_])]
        path = stage.options.get("path")
        if not issubclass(stage.type, Sink):
            stages.append(stage)
        elif isinstance(path, str):
            stage.options = {**stage.options, "path": str(outputs / stage.id / f"{{source}}{Path(path).suffix}")}
            stages.append(stage)
        else:
            removed.append(
                f"{stage.id} is removed: it does not write to a file, and its readers should not get copies of a stream"
            )
            instead[stage.id] = stage.inputs or [DECODE]
    config.stages = stages
    return removed
