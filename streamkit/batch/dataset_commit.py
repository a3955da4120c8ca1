"""Commits a file: its row in `files` is written last.

A file is done when its row exists; parts of other files, left by a crash, are removed.
"""

from __future__ import annotations

import datetime
from typing import Any

from streamkit.batch.dataset_sinks import places
from streamkit.batch.folder import Folder, manifest
from streamkit.batch.identity import pipeline_identity
from streamkit.batch.job import BatchSettings, Outcome, printable
from streamkit.batch.parts import FILES, parts, present, remove, row_path
from streamkit.batch.tables import files_schema, tables_of
from streamkit.config.plan import Graph
from streamkit.core.errors import OutputError
from streamkit.io.outputs import output_error, settle
from streamkit.io.parquet_file import TableFile, arrow


def open_folder(graph: Graph, settings: BatchSettings, *, overwrite: bool = False) -> Folder:
    """Lock the folder of a pipeline's data set until it is closed, and make every table readable in it.

    Raises:
        ConfigError: the folder belongs to another pipeline or is no data set, or another run uses it.
        OutputError: it cannot be written.
    """
    arrow()
    folder = Folder(settings.out, pipeline_identity(graph, settings), overwrite=overwrite)
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


def commit(settings: BatchSettings, outcome: Outcome) -> None:
    """Write a file's row, which makes it done or failed for good; nothing else of a failed file is kept.

    The parts are synced to disk before the row, so that this holds after a power failure too.

    Raises:
        OutputError: the row cannot be written.
    """
    if outcome.status == "failed":
        remove(settings, outcome.job.key)
    else:
        settle(dict.fromkeys(path.parent for path in parts(settings, outcome.job.key) if path.parent.is_dir()))
    schema = files_schema()
    with TableFile(row_path(settings.out, outcome.job.key), schema) as file:
        file.write(arrow().Table.from_pylist([_row(settings, outcome)], schema))


def _row(settings: BatchSettings, outcome: Outcome) -> dict[str, Any]:
    job, facts, made = outcome.job, outcome.facts, manifest(settings.out)
    try:
        parts_bytes = sum(path.stat().st_size for path in present(settings, job.key))
    except OSError as error:
        raise output_error(settings.out, error) from error
    return {
        "key": job.key, "source": job.file.name, "path": printable(job.file.uri), "size": job.file.size,
        "version": job.file.version, "status": outcome.status, "cause": outcome.cause or None,
        "cause_kind": outcome.cause_kind or None, "frames": outcome.frames, "objects": outcome.objects,
        "looked_s": outcome.duration_s,
        **{name: facts.get(name) for name in ("codec", "width", "height", "duration_s")},
        "fps": None if facts.get("fps") is None else float(facts["fps"]), "frames_in_file": facts.get("frames"),
        "frames_failed": facts.get("failed_frames"), "frames_damaged": facts.get("damaged_frames"),
        "concealed_errors": facts.get("concealed_errors"),
        "parts_bytes": parts_bytes,
        "pipeline": made["pipeline"],
        "models": [{"name": name, "sha256": model["sha256"]} for name, model in made["identity"]["models"].items()],
        "streamkit": made["identity"]["streamkit"], "attempts": job.attempt, "seconds": outcome.seconds,
        "finished_at": datetime.datetime.now(datetime.UTC),
    }  # fmt: skip
