"""Ids that no two records have, whatever a power cut has taken of a spool."""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.spooled import MB, bodies, drain, records

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.emit import offset_store, segment_file
from streamkit.emit.offset_store import NAME_CHARS
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import Sender
from streamkit.emit.spool import Spool
from streamkit.stages.sinks.brokers.sqlite import SqliteClient


def listed(folder):
    return (folder / "name").read_text().partition("\n\n")[0].splitlines()


def ids(spool, taken):
    return [spool.id(record.number) for record in taken]


def test_ids_consist_of_spool_run_and_a_rising_number(tmp_path):
    seen = []
    for n in range(3):
        spool = Spool(tmp_path / "s")
        spool.append(records(n))
        (record,) = spool.take(1)
        spool.acknowledge(1)
        assert record.number == n + 1
        seen.append(spool.id(record.number))
        spool.close()
    assert len({id_.partition("-")[0] for id_ in seen}) == 3
    assert len({id_[:NAME_CHARS] for id_ in seen}) == 1


def test_waiting_records_keep_their_ids_across_runs(tmp_path):
    ids_so_far: list[str] = []
    for n in range(3):
        spool = Spool(tmp_path / "s")
        spool.append(records(2 * n, 2 * n + 1))
        ids_so_far += [spool.id(2 * n + 1), spool.id(2 * n + 2)]
        taken = spool.take(10)
        assert ids(spool, taken) == ids_so_far
        numbers = [record.number for record in taken]
        assert [spool.ids(numbers[first:]) for first in (0, 1, -1)] == [ids_so_far, ids_so_far[1:], ids_so_far[-1:]]
        assert spool.ids([]) == []
        spool.close()
    spool = Spool(tmp_path / "s")
    assert ids(spool, spool.take(3)) == ids_so_far[:3]
    spool.acknowledge(3)
    spool.close()
    spool = Spool(tmp_path / "s")
    assert ids(spool, drain(spool)) == ids_so_far[3:]
    spool.close()


def test_a_spool_of_an_earlier_version_is_continued(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(0, 1))
    spool.close()
    (tmp_path / "s" / "name").write_text("0123456789ab")
    again = Spool(tmp_path / "s")
    again.append(records(2))
    all_ids = ids(again, drain(again))
    assert all_ids[:2] == ["0123456789ab-1", "0123456789ab-2"]
    assert all_ids[2].startswith("0123456789ab")
    assert len(all_ids[2]) > len("0123456789ab-3")
    again.close()


@pytest.mark.parametrize("left", [b"", b"\xff\xfe\0", b"short\n1 ab"])
def test_a_name_file_lost_in_a_crash_is_replaced_without_loss(left, tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(0, 1))
    before = spool.id(1)
    spool.close()
    (tmp_path / "s" / "name").write_bytes(left)
    again = Spool(tmp_path / "s")
    assert before not in ids(again, again.take(10))
    assert bodies(drain(again)) == []
    again.release()
    assert bodies(drain(again)) == [0, 1]
    again.close()


def test_runs_without_waiting_records_are_forgotten(tmp_path):
    for n in range(30):
        spool = Spool(tmp_path / "s")
        if n in (0, 10):
            spool.append(records(n))
        spool.close()
    assert len(listed(tmp_path / "s")) == 4, "the name, two runs and this one"
    spool = Spool(tmp_path / "s")
    drain(spool)
    spool.close()
    Spool(tmp_path / "s").close()
    assert len(listed(tmp_path / "s")) == 2


def test_an_existing_spool_is_opened_and_sent_on_a_full_disk(tmp_path, monkeypatch):
    spool = Spool(tmp_path / "s")
    spool.append(records(0, 1))
    before = [spool.id(1), spool.id(2)]
    spool.close()

    def full(path, flags):
        if not path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return segment_file.open_private(path, flags)

    monkeypatch.setattr(offset_store, "open_private", full)
    again = Spool(tmp_path / "s")
    assert ids(again, drain(again)) == before
    again.close()


def test_an_acknowledgement_lost_in_a_power_cut_loses_no_row(tmp_path):
    def send(first):
        spool = Spool(tmp_path / "s")
        body = b'{"source":"gate","frame":%d,"pts_s":0.0}'
        spool.append([SpoolRecord(b"", b"", body % frame) for frame in range(first, first + 30)])
        client = SqliteClient(str(tmp_path / "rows.db"), "frames", "frames")
        Sender(spool, client, 1.0, Counters()).run(lambda: not spool.waiting)
        spool.close()

    send(0)
    acknowledged = (tmp_path / "s" / "acknowledged").read_bytes()
    send(30)
    (tmp_path / "s" / "acknowledged").write_bytes(acknowledged)
    send(60)
    rows = sqlite3.connect(tmp_path / "rows.db").execute("SELECT frame FROM frames ORDER BY rowid").fetchall()
    assert [frame for (frame,) in rows] == list(range(90))


def synced(monkeypatch, folder):
    """The files that are made to be on the disk, in order, each with what it held at that moment."""
    synced_files = []
    real = os.fsync

    def fsync(handle):
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        synced_files.append(
            (path, path.read_bytes() if path.is_file() else sorted(entry.name for entry in path.iterdir()))
        )
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return synced_files


def test_opening_syncs_acknowledgements_then_the_name_then_the_folder(tmp_path, monkeypatch):
    """The first decides which runs are forgotten, the second which ids there are, the third that both are found."""
    folder = tmp_path / "s"
    for waiting in (0, 2):
        synced_files = synced(monkeypatch, folder)
        spool = Spool(folder)
        name = (folder / "name").read_bytes()
        assert [path for path, _ in synced_files] == [folder / "acknowledged", folder / "name", folder]
        (_, acknowledged), (_, named), (_, names) = synced_files
        assert acknowledged == (folder / "acknowledged").read_bytes()
        assert len(acknowledged) == 12
        assert named == name
        assert named.startswith(spool.id(1)[:NAME_CHARS].encode())
        assert {"acknowledged", "lock", "name"} <= set(names)
        spool.append(records(0, 1, 2))
        drain_to = 3 - waiting
        spool.take(3)
        spool.acknowledge(drain_to)
        spool.close()
        monkeypatch.undo()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_failed_sync_at_the_start_is_an_error_and_unlocks_the_spool(which, tmp_path, monkeypatch):
    calls = []
    real = os.fsync

    def fsync(handle):
        calls.append(handle)
        if len(calls) == which + 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutputError, match=f"cannot write {tmp_path}/s: Input/output error"):
        Spool(tmp_path / "s")
    monkeypatch.undo()
    Spool(tmp_path / "s").close()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("atkrc"), st.integers(1, 30)), max_size=40), st.randoms(use_true_random=False)
)
def test_an_id_is_unique_after_any_power_cut(steps, chance):
    """`a` appends, `t` takes, `k` acknowledges, `r` restarts, `c` cuts: each file is as it was some time before."""
    stands_for: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        states = list[dict[str, bytes]]()
        written = 0
        spool = Spool(folder, MB)
        under_way = 0
        for step, n in [*steps, ("t", 100)]:
            if step == "a":
                spool.append(records(*range(written, written + n), size=3000))
                written += n
            elif step == "t":
                taken = spool.take(n)
                under_way += len(taken)
                for record, body in zip(taken, bodies(taken), strict=True):
                    assert stands_for.setdefault(spool.id(record.number), body) == body
            elif step == "k":
                spool.acknowledge(min(n, under_way))
                under_way -= min(n, under_way)
            else:
                spool.close()
                if step == "c":
                    cut(folder, states, chance)
                spool = Spool(folder, MB)
                under_way = 0
                states.clear()  # all of it was written before the machine started again
            states.append({path.name: path.read_bytes() for path in folder.iterdir()})
        spool.close()


def cut(folder, states, chance):
    """Leave of a spool's files what the disk may have, but for those that were synced."""
    for file in {name for state in states for name in state} - {"name", "lock"}:
        data = chance.choice(states).get(file)
        if data is None:
            (folder / file).unlink(missing_ok=True)
        else:
            (folder / file).write_bytes(data[: chance.choice([len(data), chance.randint(0, len(data))])])
