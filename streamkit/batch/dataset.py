"""The data set's sinks, which replace a pipeline's own: a file's parts appear when its video has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from streamkit.batch.dataset_sinks import SinkSpec, wire
from streamkit.batch.formats import kinds
from streamkit.batch.job import BatchSettings
from streamkit.batch.parts import FORMATS, check_formats
from streamkit.batch.rows import ObjectCollector, Span, event_row, frame_row, spans, spans_of
from streamkit.batch.tables import DatasetTables, tables_of
from streamkit.config.plan import Graph
from streamkit.core.data import Batch, Frame
from streamkit.core.stage import Sink
from streamkit.io.parquet_file import TableFile, arrow

_EVENTS = 1 << 14  # events and frames held until they are a row group


def attach(graph: Graph, settings: BatchSettings, names: Mapping[str, str] | None = None) -> Graph:
    """The pipeline with the data set's sinks in place of its own; stages that only those read are removed.

    The sinks read where the YAML's record sinks (`jsonl`, `csv`) read, or else at its last stages. A source's id must
    be its job's key.

    Args:
        graph: the pipeline.
        settings: the output folder and formats.
        names: the name of each file by its key, for the column `source`; the worker fills it. A missing key is its own
            name.

    Raises:
        ConfigError: a format does not exist.
        MissingPackage: `parquet` needs pyarrow.
    """
    asked, tables = check_formats(settings.formats), tables_of(graph)
    found: list[SinkSpec] = []
    known: Mapping[str, str] = {} if names is None else names
    for name in asked:
        if name == "video":
            continue
        folder, suffix = next(iter(FORMATS[name].items()))
        options = {"path": str(settings.out / folder / f"{{source}}{suffix}"), "names": known}
        if name == "parquet":
            arrow()
            found.append(SinkSpec(f"dataset.{name}", DataSet, {**options, "tables": tables}))
        else:
            kind = kinds()[name]
            tracked = any(column.name == "track_id" for column in tables.columns)
            more: dict[str, Any] = {"labels": tables.labels} if name == "coco" else {}
            if name == "mot":
                more["tracked"] = tracked
            found.append(SinkSpec(f"dataset.{name}", kind, {**options, **more}))
    return wire(graph, found, video=str(settings.out / "video") if "video" in asked else None)


@dataclass(eq=False)
class DataSet(Sink):
    """Write one file's objects and events, and its frames if the pipeline has facts of whole frames.

    Options:
        path: the file of objects, such as "out/objects/{source}.parquet"; other tables are in sibling folders.
        tables: the pipeline's tables and columns.
        names: the name of each file, by its key.
    """

    name: ClassVar[str] = "dataset"

    path: str
    tables: DatasetTables
    names: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Prepare the tables; their files are created with the first row."""
        path = Path(self.path)
        self._key = path.stem
        self._source = self.names.get(self._key, self._key)
        schemas = self.tables.schemas()
        self._files = {
            name: TableFile(path.parent.parent / name / path.name, schema) for name, schema in schemas.items()
        }
        self._schemas = schemas
        self._objects = ObjectCollector(self.tables, schemas["objects"], self._key, self._source)
        self._held: dict[str, list[dict[str, Any]]] = {name: [] for name in schemas if name != "objects"}
        self._ended = False

    @staticmethod
    def encode(batch: Batch) -> list[Any]:
        """Collect the rows of all frames of the batch at once; see `Sink.encode`."""
        return spans(batch)

    def write(self, frame: Frame) -> None:
        """Write the frame's objects and events."""
        self.write_encoded(frame, spans_of(frame))

    def write_encoded(self, frame: Frame, encoded: list[Span]) -> None:
        """Write the frame's objects, which were collected with those of its batch, and its events."""
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
        """Write the remaining rows and publish the parts; the video has ended."""
        if self._objects.rows:
            self._files["objects"].write(self._objects.take())
        for name in self._held:
            self._write(name)
        for file in self._files.values():
            file.finish()

    def close(self) -> None:
        """Discard incomplete parts."""
        for file in self._files.values():
            file.discard()
