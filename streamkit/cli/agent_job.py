# SPDX-License-Identifier: Apache-2.0
"""The process of a job that `streamkit mcp` starts: it runs a pipeline, or draws one of its frames.

It reads a JSON object from standard input and writes one to a file. Its working directory is the folder of the
outputs, while the paths of inputs are relative to the YAML.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.cli import common
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.core.logs import command_record, inherited_levels, messages_to

if TYPE_CHECKING:
    from streamkit.config.plan import Graph
    from streamkit.core.data import Frame

_MAX_SIZE = (1280, 960)
"""Maximum width and height of a drawn frame, in pixels."""


class JobMessages:
    """Shows the messages of a job on standard error."""

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Show a message."""
        common.show_record(command_record(text, level))


def read_graph(text: str, path: Path) -> Graph:
    """The checked graph of a YAML's text; `path` is its file, for relative paths and messages."""
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    return common.graph_checked(build(read(path, text=text)))


def run_job(graph: Graph, path: Path, limit: int) -> dict[str, Any]:
    """Run a pipeline for `limit` frames of each source; return its report."""
    from streamkit.io.outputs import WrittenOutputs
    from streamkit.runtime.prepare import prepare
    from streamkit.runtime.run import RunConfig

    shown = JobMessages()
    running = prepare(graph, path, {}, RunConfig(limit=limit))
    outputs = WrittenOutputs(running.graph.output_paths, running.states)
    common.handle_signals(running, shown)
    report = running.report(common.run_to_end(running, shown))
    report["outputs"] = [*outputs.paths(graph.output_paths, running.states), *graph.output_addresses]
    return report


def draw_job(graph: Graph, source: str, index: int, image: Path) -> dict[str, Any]:
    """Write the frame `index` of a source, with its objects, as a PNG; return the frame's record.

    Raises:
        ConfigError: there is no such source, or it has fewer frames.
    """
    from streamkit.api.arguments import CheckedPipeline
    from streamkit.api.loop import frames_of
    from streamkit.runtime.execution.device import choose

    ids = [config.id for config in graph.sources]
    wanted = source or ids[0]
    if wanted not in ids:
        raise ConfigError(f"there is no source {wanted!r}; the sources are {', '.join(ids)}")
    graph.sources = [config for config in graph.sources if config.id == wanted]
    frames = frames_of(CheckedPipeline(graph, choose(graph.config.device)), limit=index + 1)
    has_boxes = any(node.type.name == "draw" for node in graph.nodes.values())
    last = -1
    for frame in frames:
        last = frame.index
        if last >= index:
            _write_png(frame, image, has_boxes)
            return frame.record()
    raise ConfigError(f"{wanted} has no frame {index}; its last frame is {last}")


def _write_png(frame: Frame, image: Path, has_boxes: bool) -> None:
    """Write a frame's pixels; the objects are drawn unless the pipeline has drawn them."""
    import cv2

    from streamkit.ops.glyphs import Atlas
    from streamkit.ops.thumbnail import draw_small, small_image

    rgb = small_image(frame, _MAX_SIZE)
    if not has_boxes:
        rgb = draw_small(rgb, list(frame.tables.values()), (frame.width, frame.height), Atlas(), frame.shown)
    cv2.imwrite(str(image), cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))


def main() -> int:
    """Do the job of standard input; return the exit code."""
    request = json.load(sys.stdin)
    common.keep_stdout()
    path = Path(request["path"])
    with messages_to(common.show_record, inherited_levels(), libraries=True):
        try:
            graph = read_graph(request["text"], path)
            if "image" in request:
                answer = draw_job(graph, request["source"], request["frame"], Path(request["image"]))
            else:
                answer = run_job(graph, path, request["limit"])
        except StreamkitError as error:
            common.show_error(str(error))
            return common.exit_code(error)
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
