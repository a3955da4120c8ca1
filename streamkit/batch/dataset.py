"""The data set: what takes the place of a pipeline's own sinks, and when a file counts as done.

A file's parts come under their names when its video has ended, each whole. The last thing that is written of it, by
`commit`, is its row in `files`: a file is done when that is there, and what a crash leaves of others is swept away.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from streamkit.batch.folder import Folder, manifest
from streamkit.batch.formats import kinds
from streamkit.batch.identity import pipeline_identity
from streamkit.batch.job import Outcome, Settings, printable
from streamkit.batch.parts import FILES, FORMATS, check_formats, parts, remove, row_path
from streamkit.batch.rows import Objects, Span, event_row, frame_row, spans, spans_of
from streamkit.batch.tables import Tables, files_schema, tables_of
from streamkit.batch.wiring import Place, places, replaced, wire
from streamkit.data import Batch, Frame
from streamkit.errors import OutputError
from streamkit.graph import Graph
from streamkit.outputs import settle
from streamkit.stage import Sink
from streamkit.tablefile import TableFile, arrow

__all__ = ["DataSet", "attach", "commit", "open_folder", "parts", "replaced"]

_EVENTS = 1 << 14  # events and frames held until they are a row group


def attach(graph: Graph, settings: Settings, names: Mapping[str, str] | None = None) -> Graph:
    """The pipeline with the data set's sinks in place of its own; what only those read is left out.

    The sinks read where the YAML's record sinks (`jsonl`, `csv`) read, and else at its last stages. A source's id must
    be its job's key.

    Args:
        graph: the pipeline.
        settings: where to, and in which formats.
        names: the name of each file by the key, for the column `source`; the worker fills it. A key that is not in it
            stands for itself.

    Raises:
        ConfigError: a format that there is not.
        MissingPackage: `parquet` without pyarrow.
    """
    asked, tables = check_formats(settings.formats), tables_of(graph)
    found: list[Place] = []
    known: Mapping[str, str] = {} if names is None else names
    for name in asked:
        if name == "video":
            continue
        folder, suffix = next(iter(FORMATS[name].items()))
        options = {"path": str(settings.out / folder / f"{{source}}{suffix}"), "names": known}
        if name == "parquet":
            arrow()
            found.append(Place(f"dataset.{name}", DataSet, {**options, "tables": tables}))
        else:
            kind = kinds()[name]
            tracked = any(column.name == "track_id" for column in tables.columns)
            more: dict[str, Any] = {"labels": tables.labels} if name == "coco" else {}
            if name == "mot":
                more["tracked"] = tracked
            found.append(Place(f"dataset.{name}", kind, {**options, **more}))
    return wire(graph, found, video=str(settings.out / "video") if "video" in asked else None)


def open_folder(graph: Graph, settings: Settings, *, again: bool = False) -> Folder:
    """The folder of a pipeline's data set, locked until it is closed; each table can be read in it from now on.

    Raises:
        ConfigError: the folder belongs to another pipeline or to something else, or another run is at it.
        OutputError: it cannot be written.
    """
    arrow()
    folder = Folder(settings.out, pipeline_identity(graph, settings), again=again)
    empty = {FILES: files_schema()}
    if "parquet" in settings.formats:
        empty.update(tables_of(places(graph)).schemas())
    try:
        for name, schema in empty.items():
            with TableFile(settings.out / name / "empty.parquet", schema) as file:
                file.write(schema.empty_table())
    except OutputError:
        folder.close()
        raise
    return folder


def commit(settings: Settings, outcome: Outcome) -> None:
    """Write a file's row, which makes it done or failed for good; of a failed one nothing else is left.

    What the row speaks of is on the disk before it is, so that this holds over a power cut too.

    Raises:
        OutputError: it cannot be written.
    """
    if outcome.status == "failed":
        remove(settings, outcome.job.key)
    else:
        settle(dict.fromkeys(path.parent for path in parts(settings, outcome.job.key) if path.parent.is_dir()))
    schema = files_schema()
    with TableFile(row_path(settings.out, outcome.job.key), schema) as file:
        file.write(arrow().Table.from_pylist([_row(settings, outcome)], schema))


def _row(settings: Settings, outcome: Outcome) -> dict[str, Any]:
    job, facts, made = outcome.job, outcome.facts, manifest(settings.out)
    return {
        "key": job.key, "source": job.file.name, "path": printable(job.file.uri), "size": job.file.size,
        "version": job.file.version, "status": outcome.status, "cause": outcome.cause or None,
        "cause_kind": outcome.cause_kind or None, "frames": outcome.frames, "objects": outcome.objects,
        "looked_s": outcome.duration_s,
        **{name: facts.get(name) for name in ("codec", "width", "height", "duration_s")},
        "fps": None if facts.get("fps") is None else float(facts["fps"]), "frames_in_file": facts.get("frames"),
        "frames_failed": facts.get("failed_frames"), "concealed_errors": facts.get("concealed_errors"),
        "pipeline": made["pipeline"],
        "models": [{"name": name, "sha256": model["sha256"]} for name, model in made["identity"]["models"].items()],
        "streamkit": made["identity"]["streamkit"], "attempts": job.attempt, "seconds": outcome.seconds,
        "finished_at": datetime.datetime.now(datetime.UTC),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- parquet


@dataclass(eq=False)
class DataSet(Sink):
    """Write one file's objects and events, and of pipelines that say something of whole frames those too.

    Options:
        path: of the objects, such as "out/objects/{source}.parquet"; the other tables are in folders beside it.
        tables: what columns there are.
        names: the name of each file, by its key.
    """

    name: ClassVar[str] = "dataset"

    path: str
    tables: Tables
    names: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Get ready; files are made when there is something to write into them."""
        path = Path(self.path)
        self._key = path.stem
        self._source = self.names.get(self._key, self._key)
        schemas = self.tables.schemas()
        self._files = {
            name: TableFile(path.parent.parent / name / path.name, schema) for name, schema in schemas.items()
        }
        self._schemas = schemas
        self._objects = Objects(self.tables, schemas["objects"], self._key, self._source)
        self._held: dict[str, list[dict[str, Any]]] = {name: [] for name in schemas if name != "objects"}
        self._ended = False

    @staticmethod
    def encode(batch: Batch) -> list[Any]:
        """See `Sink.encode`."""
        return spans(batch)

    def write(self, frame: Frame) -> None:
        """Write the frame's objects and events."""
        self.write_encoded(frame, spans_of(frame))

    def write_encoded(self, frame: Frame, encoded: list[Span]) -> None:
        """Write the frame's objects, made with those of its batch, and its events."""
        objects = self._objects.add(encoded)
        if self._objects.full:
            self._files["objects"].write(self._objects.take())
        if frame.events:
            self._hold("events", [event_row(event, self._key, self._source) for event in frame.events])
        if self.tables.facts:
            self._hold("frames", [frame_row(frame, objects, self._key, self._source)])

    def _hold(self, name: str, rows: list[dict[str, Any]]) -> None:
        held = self._held[name]
        held += rows
        if len(held) >= _EVENTS:
            self._write(name)

    def _write(self, name: str) -> None:
        if rows := self._held[name]:
            self._files[name].write(arrow().Table.from_pylist(rows, self._schemas[name]))
            self._held[name] = []

    def end(self, source: str) -> None:
        """The video has ended: the rest is written, and the parts appear."""
        if self._objects.rows:
            self._files["objects"].write(self._objects.take())
        for name in self._held:
            self._write(name)
        for file in self._files.values():
            file.finish()

    def close(self) -> None:
        """Give up what has not come to its end."""
        for file in self._files.values():
            file.discard()
