"""The graphs of a batch run: a pipeline's stages without sources, with the data set's sinks in place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkit.batch.job import BatchSettings, FrameSelection
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.config.plan import Graph
from streamkit.core.errors import ConfigError


def look_options(look: FrameSelection) -> dict[str, Any]:
    """The options of a source that selects these frames."""
    options: dict[str, Any] = {"start": look.start_s, "end": look.end_s, "every": look.every}
    if look.fps is not None:
        options["fps"] = look.fps
    return {**options, "keyframes": True} if look.keyframes else options


def check_look(look: FrameSelection) -> None:
    """Refuse options that no source supports. Raises ConfigError."""
    from streamkit.stages.sources.source import VideoSource

    try:
        VideoSource(uri="video.mp4", **look_options(look))
    except ValueError as error:
        raise ConfigError(f"--start, --end, --every, --fps, --keyframes: {error}") from None


def config_for(settings: BatchSettings, device: str | None = None) -> Graph:
    """The pipeline's own graph, without sources.

    Raises:
        ConfigError: with every problem of the YAML.
    """
    instead = {**dict(settings.overrides), "sources": "{}"}
    config = read(settings.pipeline, set_=instead, device=device, may_be_empty=True)
    config.state = None
    return build(config)


def graph_for(settings: BatchSettings, device: str | None = None, names: Mapping[str, str] | None = None) -> Graph:
    """The graph that a worker runs, with the data set's sinks.

    Args:
        settings: the pipeline and the output formats.
        device: replaces the YAML's.
        names: the name of each file by its job's key; read when a file starts.

    Raises:
        ConfigError: with every problem.
    """
    from streamkit.batch.dataset import attach

    return attach(config_for(settings, device), settings, names)
