"""`streamkit.run`: a pipeline whose frames a Python loop reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_values
from streamkit.config.plan import Config
from streamkit.core.errors import ConfigError
from streamkit.runtime.execution.device import choose
from streamkit.runtime.frame_stream import FrameStream

Sources = str | Path | Sequence[str | Path] | Mapping[str, Any]


def run(
    source: Sources, *, model: str | Path | None = None, stages: Mapping[str, Any] | None = None,
    device: str | None = None, limit: int | None = None, set: Mapping[str, str] | None = None,  # noqa: A002  as the command's --set
) -> FrameStream:  # fmt: skip
    """Run a pipeline and return an iterator over its frames.

    Args:
        source: a file, a folder or an address; several as a list, or as a mapping from ids; or a whole pipeline: the
            path of its YAML, or a mapping with the key `sources`. The ids of a list are `source_1`, `source_2` and so
            on; a single source has the id `source`.
        model: the model card of the detector; for sources only.
        stages: stages after the detector, in the shape of the YAML; for sources only.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; replaces the pipeline's.
        limit: maximum number of frames per source.
        set: values that replace those of the pipeline, such as `{"stages.detect.min_score": "0.5"}`.

    Raises:
        ConfigError: with every problem of the pipeline.
        DeviceError: the device is not available.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1 frame, got {limit}; leave it out to read all frames")
    config = _config(source, model, stages, device, set)
    graph = build(config)
    return FrameStream(graph, choose(config.device), limit=limit)


def _config(
    source: Sources, model: str | Path | None, stages: Mapping[str, Any] | None, device: str | None,
    set_: Mapping[str, str] | None,
) -> Config:  # fmt: skip
    file = isinstance(source, str | Path) and "://" not in str(source) and Path(source).suffix in (".yaml", ".yml")
    if file or (isinstance(source, Mapping) and "sources" in source):
        if model is not None or stages is not None:
            raise ConfigError("model and stages are for sources; a pipeline names its own, which `set` can change")
        if isinstance(source, Mapping):
            return read_values(source, set_=set_, device=device)
        return read(Path(str(source)), set_=set_, device=device)
    if model is None and not stages:
        raise ConfigError('run needs a detector or stages for its sources, such as model="demo"')
    detector = {} if model is None else {"detect": {"model": str(model)}}
    values = {"sources": _sources(source), "stages": {**detector, **(stages or {})}}
    return read_values(values, set_=set_, device=device)


def _sources(source: Sources) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return {id_: str(one) if isinstance(one, Path) else one for id_, one in source.items()}
    if isinstance(source, str | Path):
        return {"source": str(source)}
    return {f"source_{number}": str(one) for number, one in enumerate(source, 1)}
