"""Identities in archives: a column of the table of objects, for each file on its own."""

import pyarrow.parquet as pq
from support.made import do, settings

from streamkit.batch.job import VideoFile

IDENTIFIED = """
device: cpu
stages:
  detect: {model: demo, min_score: 0.3}
  track: {}
  look: {stage: embed, model: stripes, of: detect, min_size: 10}
  identify: {confirm: 100ms}
  jsonl: {path: "a/{source}.jsonl"}
"""


def test_a_file_has_the_same_identities_whatever_its_neighbours(tmp_path):
    one, other = VideoFile("a.mp4", "a.mp4", 1, "1"), VideoFile("b.mp4", "b.mp4", 2, "2")
    (alone,) = do(alone_in := settings(tmp_path / "alone", IDENTIFIED), one, limit=12)
    first, second = do(both_in := settings(tmp_path / "both", IDENTIFIED), one, other, limit=12)
    columns = ["frame", "label", "x1", "track_id", "identity"]
    tables = [
        pq.read_table(made.out / "objects" / f"{key}.parquet", columns=columns)
        for made, key in ((alone_in, alone), (both_in, first), (both_in, second))
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    known = tables[0]["identity"].drop_null().to_pylist()
    assert str(tables[0].schema.field("identity").type) == "int64"
    assert set(known) == set(range(1, max(known) + 1))
    assert max(known) > 5
