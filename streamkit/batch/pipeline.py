"""What a batch run makes of a pipeline: its stages without sources, the data set in place of its sinks, one source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkit.batch.job import Look, Settings
from streamkit.config import read
from streamkit.errors import ConfigError
from streamkit.graph import build
from streamkit.plan import Graph


def look_options(look: Look) -> dict[str, Any]:
    """The options of a source that looks at a file so."""
    options: dict[str, Any] = {"start": look.start_s, "end": look.end_s, "every": look.every}
    if look.fps is not None:
        options["fps"] = look.fps
    return {**options, "keyframes": True} if look.keyframes else options


def check_look(look: Look) -> None:
    """Refuse what no source can do; raise ConfigError."""
    from streamkit.stages.source import VideoSource

    try:
        VideoSource(uri="video.mp4", **look_options(look))
    except ValueError as error:
        raise ConfigError(f"--start, --end, --every, --fps, --keyframes: {error}") from None


def config_for(settings: Settings, device: str | None = None) -> Graph:
    """The pipeline's own graph, without sources.

    Raises:
        ConfigError: with every problem of the YAML.
    """
    instead = {**dict(settings.overrides), "sources": "{}"}
    config = read(settings.pipeline, set_=instead, device=device, may_be_empty=True)
    config.state = None
    return build(config)


def graph_for(settings: Settings, device: str | None = None, names: Mapping[str, str] | None = None) -> Graph:
    """The graph that a worker runs, with the data set's sinks.

    Args:
        settings: the pipeline and what is written.
        device: replaces the YAML's.
        names: the name of each file by its job's key; looked up when a file begins.

    Raises:
        ConfigError: with every problem.
    """
    from streamkit.batch.dataset import attach

    return attach(config_for(settings, device), settings, names)
