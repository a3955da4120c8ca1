"""When a file counts as done: its row in `files` is the last thing that is written of it.

A file is done when that is there, and what a crash leaves of others is swept away.
"""

from __future__ import annotations

import datetime
from typing import Any

from streamkit.batch.folder import Folder, manifest
from streamkit.batch.identity import pipeline_identity
from streamkit.batch.job import Outcome, Settings, printable
from streamkit.batch.parts import FILES, parts, present, remove, row_path
from streamkit.batch.tables import files_schema, tables_of
from streamkit.batch.wiring import places
from streamkit.errors import OutputError
from streamkit.outputs import output_error, settle
from streamkit.plan import Graph
from streamkit.tablefile import TableFile, arrow


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
