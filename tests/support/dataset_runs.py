"""Pipelines that write a data set, for tests of its parts."""

import shutil
from pathlib import Path

from streamkit.batch.dataset import DataSet
from streamkit.batch.identity import file_key
from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection, Outcome, VideoFile
from streamkit.batch.pipeline import attach
from streamkit.batch.tables import DatasetTables
from streamkit.batch.work import commit, open_folder
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_source
from streamkit.config.plan import Graph
from streamkit.core.stage import Context
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig
from support.messages import collect

ROOT = Path(__file__).resolve().parents[2]
STREET = ROOT / "samples" / "street.mp4"
PLAIN = """
device: cpu
stages:
  detect: {model: demo}
  draw: {}
  video: {path: "a/{source}.mp4"}
  jsonl: {path: "a/{source}.jsonl"}
"""
TRACKED = """
device: cpu
stages:
  detect: {model: demo}
  track: {}
  line_counter: {line: [[320, 0], [320, 360]]}
  jsonl: {path: "a/{source}.jsonl"}
"""
HERE = VideoFile("street.mp4", "2026/street.mp4", 1000, "7")


def settings(
    folder: Path, text: str, *formats: str, look: FrameSelection | None = None, **overrides: str
) -> BatchSettings:
    """Return the settings of a pipeline in a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(text)
    return BatchSettings(
        pipeline, tuple(overrides.items()), folder / "out", formats or ("parquet",), look or FrameSelection()
    )


def graph_of(batch_settings: BatchSettings) -> Graph:
    set_ = {**dict(batch_settings.overrides), "sources": "{}"}
    return build(read(batch_settings.pipeline, set_=set_, may_be_empty=True))


def run(
    batch_settings: BatchSettings,
    graph: Graph,
    files: dict[str, VideoFile],
    *,
    limit: int | None = None,
    uri: Path = STREET,
):
    """Run a pipeline's sinks of the data set on videos, each under its key; return the exit code and the messages."""
    whole = attach(graph, batch_settings, {key: file.name for key, file in files.items()})
    whole.sources = [source for key in files for source in read_source(whole.config, key, str(uri))]
    logged = collect()
    pipeline = PipelineRun(whole, choose("cpu"), RunConfig(limit=limit))
    return pipeline.run(), logged


def do(batch_settings: BatchSettings, *files: VideoFile, limit: int | None = 40) -> list[str]:
    """Make a data set of the street as these files; return their keys."""
    graph = graph_of(batch_settings)
    with open_folder(graph, batch_settings) as folder:
        keys = {file_key(file, folder.pipeline): file for file in files or (HERE,)}
        code, logged = run(batch_settings, graph, keys, limit=limit)
        assert code == 0, logged
        for key, file in keys.items():
            commit(batch_settings, Outcome(BatchJob(file, key), "done", frames=limit or 0, seconds=0.5))
    return list(keys)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return all files of a folder with their content."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to))


def sink_of(folder, tables=None):
    batch_settings = settings(folder, PLAIN)
    sink = DataSet(
        path=str(batch_settings.out / "objects" / "key.parquet"),
        tables=tables or DatasetTables(),
        names={"key": "a.mp4"},
    )
    sink.context = Context(id="dataset.parquet")
    sink.open()
    return batch_settings, sink
