"""The spool against what it promises: order, numbers, exact counts, and being there after a crash."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import collect
from support.spooled import MB, bodies, drain, records

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.emit.segment_file import pack
from streamkit.emit.spool import FULL, TORN, Spool


def test_records_are_taken_in_order_with_rising_numbers(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(5, 6))
    spool.append(records(7))
    taken = spool.take(2)
    assert (bodies(taken), [record.number for record in taken]) == ([5, 6], [1, 2])
    assert bodies(spool.take(2)) == [7]
    assert spool.take(2) == []
    assert spool.waiting == 3
    spool.acknowledge(3)
    assert spool.waiting == 0
    spool.close()


def test_unacknowledged_records_are_taken_again(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(*range(10)))
    spool.take(6)
    spool.acknowledge(2)
    spool.release()
    assert bodies(drain(spool)) == [2, 3, 4, 5, 6, 7, 8, 9]
    spool.close()


def test_a_waiter_for_several_records_is_woken_once(tmp_path, monkeypatch):
    spool = Spool(tmp_path / "s")
    woken = []
    notify_all = spool._changed.notify_all
    monkeypatch.setattr(spool._changed, "notify_all", lambda: (woken.append(spool.waiting), notify_all()))
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(spool.wait_for, 5, 60.0)
        while spool._wanted != 5:
            time.sleep(0.001)
        for n in range(6):
            spool.append(records(n))
        assert waits.result() is True
    assert woken[0] == 5
    assert bodies(spool.take(4)) == [0, 1, 2, 3]
    assert (spool.wait_for(2, 60.0), spool.wait_for(3, 0.01)) == (True, False)
    spool.append(records(6))
    assert woken[-1] == 7, "who waits for any record is woken by each"
    spool.close()


@pytest.mark.parametrize(("size", "part"), [(MB, 65_536), (32 * MB, 2 * MB), (128 * MB, 8 * MB), (1000 * MB, 8 * MB)])
def test_a_segment_is_a_sixteenth_of_the_spool_within_bounds(tmp_path, size, part):
    spool = Spool(tmp_path / "s", size)
    room = part - len(pack(records(0, size=20), 1, 0.0)) + 20
    spool.append(records(0, size=room - 1))
    spool.append(records(1))
    assert len(list((tmp_path / "s").glob("*.spool"))) == 1, "one byte less than it takes"
    spool.append(records(2))
    assert len(list((tmp_path / "s").glob("*.spool"))) == 2
    spool.close()


def test_the_fill_level_is_right_at_any_time_and_after_a_restart(tmp_path):
    spool = Spool(tmp_path / "s", MB)
    assert (spool.fill_level, spool.size_bytes) == (0.0, 0)
    for number in range(4):
        spool.append(records(number, size=50_000))
    (first, second) = sorted((tmp_path / "s").glob("*.spool"))
    there = first.stat().st_size + second.stat().st_size
    assert (spool.size_bytes, spool.fill_level, spool.waiting) == (there, there / MB, 4)
    spool.close()
    again = Spool(tmp_path / "s", MB)
    assert (again.size_bytes, again.fill_level, again.waiting) == (there, there / MB, 4)
    again.take(2)
    again.acknowledge(2)
    assert again.size_bytes == second.stat().st_size
    assert not first.exists()
    again.close()


def test_records_after_close_are_dropped_and_reported(tmp_path):
    logged = collect()
    spool = Spool(tmp_path / "s")
    spool.close()
    spool.append(records(0, 1))
    spool.append([])
    assert logged == [f"2 records arrived after the spool {tmp_path}/s was closed, and are dropped"]
    assert list((tmp_path / "s").glob("*.spool")) == []


def test_a_later_run_continues_after_the_last_acknowledged_record(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(*range(10)))
    spool.take(10)
    spool.acknowledge(4)
    spool.close()
    again = Spool(tmp_path / "s")
    again.append(records(10))
    records_left = drain(again)
    assert bodies(records_left) == [4, 5, 6, 7, 8, 9, 10]
    assert [record.number for record in records_left] == list(range(5, 12))
    again.close()
    assert not list((tmp_path / "s").glob("*.spool")), "what has arrived takes no room"
    third = Spool(tmp_path / "s")
    third.append(records(11))
    assert third.take(1)[0].number == 12, "numbers are never used twice, also after every file has gone"
    third.close()


@pytest.mark.parametrize(("arrived", "runs"), [(2, 2), (3, 1)])
def test_only_runs_with_waiting_records_keep_their_ids(tmp_path, arrived, runs):
    spool = Spool(tmp_path / "s")
    spool.append(records(1, 2, 3))
    before = spool.id(3)
    spool.take(3)
    spool.acknowledge(arrived)
    spool.close()
    again = Spool(tmp_path / "s")
    assert (again.acknowledged, again.waiting) == (arrived, 3 - arrived)
    assert len((tmp_path / "s" / "name").read_text().split()) == 1 + 2 * runs
    assert (again.id(3) == before) is (runs == 2)
    assert again.id(4) != before.replace("-3", "-4")
    again.close()


def test_spool_files_are_readable_by_their_owner_only(tmp_path):
    before = os.umask(0)
    try:
        spool = Spool(tmp_path / "s")
        spool.append(records(1))
    finally:
        os.umask(before)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "s").iterdir()} == {0o600}
    assert len(list((tmp_path / "s").iterdir())) == 4
    spool.close()


def test_a_spool_is_locked_by_a_single_run(tmp_path):
    spool = Spool(tmp_path / "s")
    with pytest.raises(
        OutputError, match=r"the spool .* is in use by another run or emitter; set a different spool\.path"
    ):
        Spool(tmp_path / "s")
    spool.close()
    Spool(tmp_path / "s").close()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a part of the path is a file"):
        Spool(tmp_path / "file" / "s")


def test_a_partial_block_at_the_end_is_removed_and_logged(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(1, 2))
    spool.append(records(3))
    (path,) = (tmp_path / "s").glob("*.spool")
    data = path.read_bytes()
    spool.close()
    path.write_bytes(data[:-3])
    counters = Counters()
    again = Spool(tmp_path / "s", counters=counters)
    again.append(records(4))
    records_left = drain(again)
    assert bodies(records_left) == [1, 2, 4]
    assert counters[TORN] == 1
    assert [record.number for record in records_left] == [1, 2, 3]
    again.close()


def test_a_damaged_segment_is_skipped_and_counted(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, counters=counters)
    for number in range(200):
        spool.append(records(number, size=1000))
    first, *_ = sorted((tmp_path / "s").glob("*.spool"))
    data = bytearray(first.read_bytes())
    data[5000] ^= 255
    first.write_bytes(data)
    numbers = bodies(drain(spool))
    assert numbers[0] == 0
    assert numbers[-1] == 199
    assert len(numbers) + counters["records dropped: spool damaged"] == 200
    assert spool.waiting == 0
    spool.close()


def test_an_unreadable_acknowledgement_resends_all_records(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(*range(10)))
    spool.take(10)
    spool.acknowledge(4)
    spool.close()
    (tmp_path / "s" / "acknowledged").write_bytes(b"rubbish")
    again = Spool(tmp_path / "s")
    assert bodies(drain(again)) == list(range(10))
    again.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("take"), st.integers(1, 30)),
        st.tuples(st.just("acknowledge"), st.integers(0, 30)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_each_record_arrives_in_order_or_is_counted_as_lost(steps):
    counters = Counters()
    arrived = []
    under_way = []
    written = 0
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder), MB, counters=counters)
        for step, n in steps:
            if step == "append":
                spool.append(records(*range(written, written + n), size=3000))
                written += n
            elif step == "take":
                under_way += bodies(spool.take(n))
            elif step == "acknowledge":
                n = min(n, len(under_way))
                spool.acknowledge(n)
                arrived += under_way[:n]
                under_way = under_way[n:]
            else:
                under_way = []
                spool.release()
                if step == "restart":
                    spool.close()
                    spool = Spool(Path(folder), MB, counters=counters)
        spool.release()
        arrived += bodies(drain(spool))
        assert arrived == sorted(set(arrived)), "in order, and none twice"
        assert len(arrived) + counters[FULL] == written
        assert spool.waiting == 0
        spool.close()


WRITER = """
import sys
from pathlib import Path
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.spool import Spool
spool = Spool(Path(sys.argv[1]), 10**8)
number = int(sys.argv[2])
while True:
    spool.append([SpoolRecord(b"t", b"", b"%d" % (number + i)) for i in range(7)])
    number += 7
    print(number, flush=True)
"""


def test_appended_records_survive_kills_at_random_moments(tmp_path):
    safe = 0
    for wait_s in (0.0, 0.002, 0.01, 0.03):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "s"), str(safe)], stdout=subprocess.PIPE, text=True
        )
        writer.stdout.readline()
        time.sleep(wait_s)
        writer.send_signal(signal.SIGKILL)
        logged = [line for line in writer.stdout if line.endswith("\n")]
        writer.wait()
        writer.stdout.close()
        spool = Spool(tmp_path / "s")
        numbers = bodies(drain(spool))
        spool.close()
        assert numbers == list(range(safe, safe + len(numbers)))
        assert numbers[-1] + 1 >= int(logged[-1] if logged else safe + 7)
        safe = numbers[-1] + 1
