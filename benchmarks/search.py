"""Time of `query --like` in an index with a million vectors, on one machine.

    python benchmarks/search.py --tracks 1000000 --values 512

Makes an index with random vectors in a temporary folder (4 GB for the defaults), and ranks its tracks by a random
vector through `streamkit.query.database`, as the command does. Prints the time of each query and its CPU time.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamkit.query.database import Database
from streamkit.query.index import _TRACKS, duckdb

BLOCK = 50_000
QUERIES = {
    "all tracks": None,
    "one video in ten": "source LIKE 'video-___0%'",
}


def make(path: Path, tracks: int, values: int, per_file: int = 100) -> None:
    """Write an index with so many tracks of random vectors of length 1."""
    random = np.random.default_rng(0)
    with duckdb().connect(str(path)) as database:
        database.execute(_TRACKS)
        database.execute(
            "CREATE TABLE frames (key TEXT, source TEXT, frame INTEGER, pts_s DOUBLE, counts MAP(TEXT, INTEGER))"
        )
        database.execute("CREATE TABLE objects (key TEXT, label TEXT, class_id INTEGER)")
        for first in range(0, tracks, BLOCK):
            count = min(BLOCK, tracks - first)
            vectors = random.standard_normal((count, values), np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            numbers = np.arange(first, first + count)
            files = [f"video-{number:05d}" for number in numbers // per_file]
            offsets = np.arange(0, (count + 1) * values, values, dtype=np.int32)
            rows = pa.table(
                {
                    "key": files,
                    "source": files,
                    "stage": ["detect"] * count,
                    "label": ["car"] * count,
                    "track_id": numbers % per_file,
                    "frame": (numbers % per_file).astype(np.int32),
                    "pts_s": numbers % per_file / 25,
                    "begin_s": np.zeros(count),
                    "end_s": np.ones(count),
                    "embedding": pa.ListArray.from_arrays(pa.array(offsets), pa.array(vectors.reshape(-1))),
                }
            )
            database.register("incoming", rows)
            database.execute("INSERT INTO tracks SELECT * FROM incoming")
            database.execute("INSERT INTO frames SELECT key, source, frame, pts_s, MAP {'car': 1} FROM incoming")
            database.unregister("incoming")


def main() -> None:
    """Read the command line, make the index, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracks", type=int, default=1_000_000)
    parser.add_argument("--values", type=int, default=512)
    options = parser.parse_args()
    vector = np.random.default_rng(1).standard_normal(options.values).astype(np.float32)
    vector /= np.linalg.norm(vector)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.duckdb"
        make(path, options.tracks, options.values)
        print(f"index: {path.stat().st_size / 1e9:.2f} GB")
        for _ in range(2):
            for what, where in QUERIES.items():
                with Database(path, ()) as database:
                    before = time.perf_counter()
                    cpu = resource.getrusage(resource.RUSAGE_SELF)
                    tracks = list(database.like(vector, None, where, 50))
                    after = resource.getrusage(resource.RUSAGE_SELF)
                    spent = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
                    print(f"{what}: {len(tracks)} tracks, {time.perf_counter() - before:.2f} s, CPU {spent:.2f} s")


if __name__ == "__main__":
    main()
