"""Speed of `query` on a data set of many videos, which is made here with random objects.

    python benchmarks/query.py [--files 10000] [--frames 150] [--objects 300] [--folder FOLDER]

Prints how long the index takes to be made, to be found up to date, and to take 100 more files, and the median time of
some queries on it, each with the check of the index, as the command runs them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamkit.batch.folder import MANIFEST, SCHEMA
from streamkit.batch.tables import DatasetTables, ObjectColumn, files_schema
from streamkit.query.database import Database
from streamkit.query.dataset_location import DatasetLocation
from streamkit.query.index import index_of
from streamkit.query.selected_frames import labels_of

LABELS = ("car", "person", "truck", "bus", "bike")
TRUCKS = "count_of('truck') >= 2 AND count_of('person') = 0"
QUERIES = {
    "frames with two trucks and no person": f"SELECT key, frame FROM frames WHERE {TRUCKS}",
    "the same with a minimum score": (
        "SELECT key, frame FROM frames WHERE count_of('truck', 0.6) >= 2 AND count_of('person', 0.6) = 0"
    ),
    "objects of each label": "SELECT label, count(*) FROM objects GROUP BY label",
    "longest tracks": (
        "SELECT source, track_id, max(pts_s) - min(pts_s) AS seconds FROM objects GROUP BY ALL ORDER BY seconds DESC "
        "LIMIT 10"
    ),
}
_TABLES = DatasetTables((ObjectColumn("track_id", "int"), ObjectColumn("predicted", "flag")), labels=LABELS)


def make(folder: Path, files: int, frames: int, objects: int, first: int = 0) -> None:
    """Write the parts of some files into a data set, and its description if it has none.

    Args:
        folder: the data set's folder.
        files: number of files.
        frames: frames of each.
        objects: objects of each.
        first: number of the first file.
    """
    schemas = {**_TABLES.schemas(), "files": files_schema()}
    for name, schema in schemas.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(schema.empty_table(), folder / name / "empty.parquet")
    about = {"formats": ["parquet"], "models": {"demo": {"labels": LABELS}}}
    text = json.dumps({"schema": SCHEMA, "pipeline": "0123456789abcdef", "identity": about})
    (folder / MANIFEST).write_text(text)
    for number in range(first, first + files):
        key = f"cam-{number:016x}"
        source = f"2026/cam{number % 50}/{number:06}.mp4"
        rng = np.random.default_rng(number)
        for name, table in _parts(rng, key, source, frames, objects, schemas).items():
            pq.write_table(table, folder / name / f"{key}.parquet", compression="zstd")


def _parts(
    rng: np.random.Generator, key: str, source: str, frames: int, objects: int, schemas: dict[str, Any]
) -> dict[str, Any]:
    frame = np.sort(rng.integers(0, frames, objects)).astype(np.int32)
    kind = rng.choice(len(LABELS), objects, p=[0.5, 0.3, 0.1, 0.05, 0.05]).astype(np.int32)
    xy = rng.integers(0, 60_000, (objects, 2)) / 100
    boxes = np.hstack([xy, xy + rng.integers(1000, 20_000, (objects, 2)) / 100]).astype(np.float32)
    score = (rng.integers(2500, 10_000, objects) / 10_000).astype(np.float32)
    objects_columns = {
        "key": [key] * objects,
        "source": [source] * objects,
        "frame": frame,
        "pts_s": frame / 25,
        "stage": ["detect"] * objects,
        "label": [LABELS[class_id] for class_id in kind],
        "class_id": kind,
        "score": score,
        "damaged": np.zeros(objects, bool),
        **dict(zip(("x1", "y1", "x2", "y2"), boxes.T, strict=True)),
        "track_id": rng.integers(1, 30, objects),
        "predicted": np.zeros(objects, bool),
    }
    counts = np.bincount(frame, minlength=frames).astype(np.int32)
    every = np.arange(frames, dtype=np.int32)
    frames_columns = {
        "key": [key] * frames,
        "source": [source] * frames,
        "frame": every,
        "pts_s": every / 25,
        "width": np.full(frames, 1920, np.int32),
        "height": np.full(frames, 1080, np.int32),
        "objects": counts,
        "error": [None] * frames,
        "damaged": np.zeros(frames, bool),
        "facts": [None] * frames,
    }
    row = {
        "key": key,
        "source": source,
        "path": f"/videos/{source}",
        "size": 1000,
        "version": "1",
        "status": "done",
        "frames": frames,
        "objects": objects,
        "processed_s": frames / 25,
        "codec": "h264",
        "width": 1920,
        "height": 1080,
        "fps": 25.0,
        "pipeline": "0123456789abcdef",
    }
    return {
        "objects": pa.table(objects_columns, schemas["objects"]),
        "frames": pa.table(frames_columns, schemas["frames"]),
        "files": pa.Table.from_pylist([row], schemas["files"]),
    }


def seconds_of(folder: Path, sql: str) -> float:
    """Seconds of a query, with the check of the index."""
    start_s = time.perf_counter()
    location = DatasetLocation(str(folder))
    with Database(index_of(location), labels_of(location)) as database:
        for _ in database.query(sql).batches():
            pass
    return time.perf_counter() - start_s


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--objects", type=int, default=300)
    parser.add_argument("--folder", type=Path, help="keep the data set here, and use it if it exists")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = args.folder or Path(temporary) / "archive"
        if not folder.exists():
            make(folder, args.files, args.frames, args.objects)
        (folder / "index.duckdb").unlink(missing_ok=True)
        for what in ("make the index", "find it up to date"):
            start_s = time.perf_counter()
            index = index_of(DatasetLocation(str(folder)))
            print(f"{time.perf_counter() - start_s:8.2f} s   {what}")
        print(f"{index.stat().st_size / 2**20:8.0f} MiB the index")
        for name, sql in QUERIES.items():
            print(f"{statistics.median(seconds_of(folder, sql) for _ in range(5)):8.2f} s   {name}")
        make(folder, 100, args.frames, args.objects, first=len(list((folder / "files").iterdir())))
        start_s = time.perf_counter()
        index_of(DatasetLocation(str(folder)))
        print(f"{time.perf_counter() - start_s:8.2f} s   take 100 more files")


if __name__ == "__main__":
    main()
