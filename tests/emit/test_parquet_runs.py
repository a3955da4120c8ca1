"""Parquet files of several runs with one spool: each record once, and what a crash left of any of them goes away."""

import pyarrow.parquet as pq
import pytest
from emit.test_parquet import OBJECT, client, leftovers, messages

EARLIER, NOW = "0123456789ab1111", "0123456789ab2222"


def ids(folder):
    return sorted(row["id"] for path in folder.rglob("*.parquet") for row in pq.read_table(path).to_pylist())


@pytest.mark.parametrize("whole", [0, 3, 5])
def test_what_an_earlier_run_left_in_the_spool_is_there_once_and_so_is_what_is_new(whole, tmp_path):
    left, new = messages([OBJECT] * 5, 1, tmp_path / "a", EARLIER), messages([OBJECT] * 5, 4, tmp_path / "a", NOW)
    if whole:  # the file is there, and its acknowledgement was lost
        made = client(tmp_path, every_s=0.0)
        made.deliver(left[:whole])
        made.idle()
        made.close()
    made = client(tmp_path)
    made.deliver([*left, *new[:2]])
    made.deliver(new[2:])
    assert made.held == 10, "nothing is acknowledged before all of it is whole"
    made.draining = lambda: True
    made.idle()
    assert ids(tmp_path) == sorted(one.id for one in [*left, *new])


def test_what_a_crash_left_of_an_earlier_run_goes_away(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / f".{EARLIER}-000000000001.parquet.1234.part").write_bytes(b"half")
    (folder / ".ba9876543210.parquet.1234.part").write_bytes(b"another spool's")
    made = client(tmp_path, every_s=0.0)
    made.deliver(messages([OBJECT], folder=folder, name=NOW))
    made.idle()
    assert [path.name for path in leftovers(folder)] == [".ba9876543210.parquet.1234.part"]
