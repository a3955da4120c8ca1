"""Parquet files of several runs with one spool: each record once, and what a crash left of any of them goes away."""

import time

import pyarrow.parquet as pq
import pytest
from emit.test_parquet import OBJECT, client, leftovers, messages

from streamkit.core.counters import Counters
from streamkit.core.stage import Context
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import SENT
from streamkit.stages.sinks.parquet import ParquetSink

EARLIER = "0123456789ab1111"
NOW = "0123456789ab2222"


def ids(folder):
    return sorted(row["id"] for path in folder.rglob("*.parquet") for row in pq.read_table(path).to_pylist())


@pytest.mark.parametrize("whole", [0, 3, 5])
def test_spooled_records_of_an_earlier_run_and_new_records_are_written_once(whole, tmp_path):
    left = messages([OBJECT] * 5, 1, tmp_path / "a", EARLIER)
    new = messages([OBJECT] * 5, 4, tmp_path / "a", NOW)
    if whole:  # the file is there, and its acknowledgement was lost
        writer = client(tmp_path, every_s=0.0)
        writer.deliver(left[:whole])
        writer.idle()
        writer.close()
    writer = client(tmp_path)
    writer.deliver([*left, *new[:2]])
    writer.deliver(new[2:])
    assert writer.held == 10, "nothing is acknowledged before all of it is whole"
    writer.draining = lambda: True
    writer.idle()
    assert ids(tmp_path) == sorted(message.id for message in [*left, *new])


def test_partial_files_of_a_crashed_run_are_removed(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / f".{EARLIER}-000000000001.parquet.1234.part").write_bytes(b"half")
    (folder / ".ba9876543210.parquet.1234.part").write_bytes(b"another spool's")
    writer = client(tmp_path, every_s=0.0)
    writer.deliver(messages([OBJECT], folder=folder, name=NOW))
    writer.idle()
    assert [path.name for path in leftovers(folder)] == [".ba9876543210.parquet.1234.part"]


def test_a_value_too_long_for_a_folder_name_is_cut_and_stays_unique(tmp_path):
    fits = "é" * 50
    assert ParquetSink.clean(fits) == fits
    assert ParquetSink.clean("a" * 100) == "a" * 100
    folders = {ParquetSink.clean(text) for text in ("a" * 101, "a" * 300, "a" * 300 + "b", fits + "x", "é" * 200)}
    assert len(folders) == 5, "what differs behind the cut is another folder"
    assert all(len(name.encode()) <= 100 for name in folders)
    assert {name[:30] for name in folders} == {"a" * 30, "é" * 30}
    stage = ParquetSink(path=str(tmp_path / "{source}-{label}"), send="objects", spool={"path": str(tmp_path / "s")})
    counters = Counters()
    stage.context = Context("out", counters=counters)
    stage.open()
    fill = stage._topics.fill
    body = b'{"source":"a","frame":1,"pts_s":0.0,"object":{"box":[0,0,1,1],"score":0.5,"class_id":1}}'
    stage.queue.append([SpoolRecord(fill(("a" * 300, "b" * 300, "detect", "7"))[0], b"", body)])
    stage.sender.draining = True
    until_s = time.monotonic() + 20
    stage.sender.run(lambda: not stage.queue.waiting or time.monotonic() > until_s)
    assert stage.queue.waiting == 0
    stage.queue.close()
    assert counters.values == {SENT: 1}
    assert len(list(tmp_path.glob("a*-b*/*.parquet"))) == 1
