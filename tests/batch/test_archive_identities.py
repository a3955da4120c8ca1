"""Identities in archives: a column of the table of objects, for each file on its own."""

import pyarrow.parquet as pq
from support.dataset_runs import do, settings

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


def test_identities_of_a_file_do_not_depend_on_other_files(tmp_path):
    first_file = VideoFile("a.mp4", "a.mp4", 1, "1")
    other = VideoFile("b.mp4", "b.mp4", 2, "2")
    (alone,) = do(alone_in := settings(tmp_path / "alone", IDENTIFIED), first_file, limit=12)
    first, second = do(both_in := settings(tmp_path / "both", IDENTIFIED), first_file, other, limit=12)
    columns = ["frame", "label", "x1", "track_id", "identity"]
    tables = [
        pq.read_table(batch_settings.out / "objects" / f"{key}.parquet", columns=columns)
        for batch_settings, key in ((alone_in, alone), (both_in, first), (both_in, second))
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    identities = tables[0]["identity"].drop_null().to_pylist()
    assert str(tables[0].schema.field("identity").type) == "int64"
    assert set(identities) == set(range(1, max(identities) + 1))
    assert max(identities) > 5
