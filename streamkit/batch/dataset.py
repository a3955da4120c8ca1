"""The data set's sinks, in place of a pipeline's own: a file's parts appear when its video has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from streamkit.batch.formats import kinds
from streamkit.batch.job import Settings
from streamkit.batch.parts import FORMATS, check_formats
from streamkit.batch.rows import Objects, Span, event_row, frame_row, spans, spans_of
from streamkit.batch.tables import Tables, tables_of
from streamkit.batch.wiring import Place, wire
from streamkit.data import Batch, Frame
from streamkit.plan import Graph
from streamkit.stage import Sink
from streamkit.tablefile import TableFile, arrow

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
