# SPDX-License-Identifier: Apache-2.0
"""Prepares a pipeline behind the API: it follows its YAML, and has a gallery for its page and a store of its events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.core.errors import ConfigError

if TYPE_CHECKING:
    from streamkit.runtime.run import Run, RunConfig


def prepare(load: Callable[[], Any], path: Path, set_: dict[str, str], *, poll_s: float = 0.5) -> tuple[Any, Any]:
    """A pipeline that follows its YAML, keeps running without sources and makes images for the page; and their gallery.

    Args:
        load: reads and checks the pipeline, and returns its graph.
        path: its YAML.
        set_: values that override the YAML.
        poll_s: seconds between two checks of the YAML and its plugins for changes.

    Raises:
        ConfigError: the YAML is invalid, or a stage cannot run on several devices.
    """
    from streamkit.runtime.preview.gallery import Gallery
    from streamkit.runtime.reload import watching
    from streamkit.runtime.run import RunConfig

    gallery = Gallery()
    config = RunConfig(keep_running=True, realtime=True)

    def make(graph: Any) -> Any:
        return with_preview(graph, path, set_, config, gallery)

    return watching(path, load, None, set_, make, poll_s=poll_s), gallery


def with_preview(graph: Any, path: Path, set_: dict[str, str], config: RunConfig, gallery: Any) -> Any:
    """The run of a graph, with images and events for the page in a gallery; see `prepare`."""
    from streamkit.runtime.prepare import prepare as prepare_run
    from streamkit.runtime.preview.stage import follow_sinks

    running = prepare_run(graph, path, set_, config, gallery=gallery)
    follow_sinks(running, gallery)
    running.alarms.listen(lambda time_s, event: gallery.add_events(time_s, [event], None))
    return running


def open_store(folder: Path, keep_events: str, keep_size: str) -> Any:
    """The store of events in a data folder.

    Args:
        folder: the data folder.
        keep_events: how long events are kept, such as `30d`.
        keep_size: maximum size, such as `2GB`.

    Raises:
        ConfigError: a value has another form.
        OutputError: the folder cannot be written, or another server uses it.
    """
    from streamkit.core.units import seconds, size_bytes
    from streamkit.serve.store.serve_store import ServeStore

    limits = []
    for option, read, text in (("--keep-events", seconds, keep_events), ("--keep-size", size_bytes, keep_size)):
        try:
            limits.append(read(text))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}") from None
    return ServeStore(folder, limits[0], int(limits[1]))


def engine_of(running: Run, gallery: Any, store: Any, *, allow_files: bool, file: Any = None) -> Any:
    """The pipeline behind the API; the store takes the gallery's events, and knows the stages that write files."""
    from streamkit.serve.engine import ServeEngine

    store.follow(gallery)
    return ServeEngine(running, gallery, store, allow_files=allow_files, file=file)
