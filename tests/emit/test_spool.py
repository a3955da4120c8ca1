"""The spool against what it promises: order, numbers, bounds, exact counts, and being there after a crash."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.counters import Counters
from streamkit.emit.blocks import Record
from streamkit.emit.spool import FULL, OLD, TORN, Spool
from streamkit.errors import OutputError

MB = 1_000_000


def records(*numbers, size=20):
    return [Record(b"t", b"k", b"%0*d" % (size, number)) for number in numbers]


def bodies(taken):
    return [int(one.body[-9:]) for one in taken]


def drain(spool):
    found = []
    while taken := spool.take(100):
        found += taken
        spool.acknowledge(len(taken))
    return found


def test_records_come_out_in_order_with_numbers_that_rise(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(5, 6))
    spool.append(records(7))
    taken = spool.take(2)
    assert (bodies(taken), [one.number for one in taken]) == ([5, 6], [1, 2])
    assert bodies(spool.take(2)) == [7]
    assert spool.take(2) == []
    assert spool.waiting == 3
    spool.acknowledge(3)
    assert spool.waiting == 0
    spool.close()


@pytest.mark.parametrize("when_full", ["block", "drop_oldest", "stop"])
def test_more_at_once_than_the_spool_takes_goes_in_parts(tmp_path, when_full):
    spool = Spool(tmp_path / "s", MB, when_full=when_full)
    found, over = [], threading.Event()

    def take():
        while not over.is_set() or spool.waiting:
            found.extend(one := spool.take(100, 0.05))
            spool.acknowledge(len(one))

    taker = threading.Thread(target=take)
    taker.start()
    if when_full == "block":
        spool.append(records(*range(60), size=40_000))
    else:
        spool.append(records(*range(20), size=40_000))
    over.set()
    taker.join(20)
    assert bodies(found) == list(range(60 if when_full == "block" else 20))


@pytest.mark.parametrize("when_full", ["block", "drop_oldest"])
def test_a_record_that_is_larger_than_the_spool_costs_itself_alone(tmp_path, when_full):
    counters, said = Counters(), []
    spool = Spool(tmp_path / "s", MB, when_full=when_full, counters=counters, say=said.append)
    spool.append([*records(1, 2), *records(3, size=2 * MB), *records(4)])
    assert bodies(drain(spool)) == [1, 2, 4]
    assert counters[FULL] == 1
    assert said == ["a record of 2 MB is larger than spool.size; new records are dropped, and counted"]


def test_at_the_end_of_a_run_a_full_spool_is_waited_for_only_while_records_go(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    spool.patience_s = 0.3
    begun_s = time.monotonic()
    for number in range(40):
        spool.append(records(number, size=50_000))
    assert 0.3 <= time.monotonic() - begun_s < 3
    assert counters[FULL] == 40 - spool.waiting
    assert bodies(drain(spool)) == list(range(40 - counters[FULL]))


def test_what_another_thread_adds_while_one_waits_for_room_takes_the_next_numbers(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    spool.append(records(1, size=900_000))
    said = threading.Event()
    spool._say = lambda text: said.set()
    waiting = threading.Thread(target=lambda: spool.append(records(3, size=200_000)))
    waiting.start()
    assert said.wait(10)
    spool.append(records(2), wait=False)
    (first,) = spool.take(1)
    spool.acknowledge(1)
    waiting.join(10)
    assert not waiting.is_alive()
    rest = drain(spool)
    assert bodies([first, *rest]) == [1, 2, 3]
    assert [one.number for one in rest] == [2, 3]
    assert counters.values == {}
    spool.close()


def test_where_numbers_begin_anew_the_name_is_another(tmp_path):
    names = []
    for damage in (False, True, False):
        spool = Spool(tmp_path / "s")
        names.append(spool.name)
        spool.append(records(1, 2))
        assert [one.number for one in drain(spool)] == ([3, 4] if damage is False and len(names) == 3 else [1, 2])
        spool.close()
        if len(names) == 1:
            (tmp_path / "s" / "acknowledged").write_bytes(b"")
    assert names[0] != names[1] == names[2]


def test_what_was_taken_and_not_acknowledged_is_taken_again(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(*range(10)))
    spool.take(6)
    spool.acknowledge(2)
    spool.release()
    assert bodies(drain(spool)) == [2, 3, 4, 5, 6, 7, 8, 9]
    spool.close()


def test_a_later_run_goes_on_where_this_one_ended(tmp_path):
    spool = Spool(tmp_path / "s")
    spool.append(records(*range(10)))
    spool.take(10)
    spool.acknowledge(4)
    spool.close()
    again = Spool(tmp_path / "s")
    assert again.name == spool.name
    again.append(records(10))
    found = drain(again)
    assert bodies(found) == [4, 5, 6, 7, 8, 9, 10]
    assert [one.number for one in found] == list(range(5, 12))
    again.close()
    assert not list((tmp_path / "s").glob("*.spool")), "what has arrived takes no room"
    third = Spool(tmp_path / "s")
    third.append(records(11))
    assert third.take(1)[0].number == 12, "numbers are never used twice, also after every file has gone"
    third.close()


def test_its_files_are_its_owners_alone(tmp_path):
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


def test_one_run_has_it_at_a_time(tmp_path):
    spool = Spool(tmp_path / "s")
    with pytest.raises(OutputError, match=r"the spool .* is in use by another run or emitter; give each a spool\.path"):
        Spool(tmp_path / "s")
    spool.close()
    Spool(tmp_path / "s").close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a part of the path is a file"):
        Spool(tmp_path / "file" / "s")


def test_when_it_is_full_the_oldest_go_and_every_one_of_them_is_counted(tmp_path):
    counters, said = Counters(), []
    spool = Spool(tmp_path / "s", MB, counters=counters, say=said.append)
    for number in range(0, 20_000, 10):
        spool.append(records(*range(number, number + 10), size=100))
        assert spool.size_bytes <= MB
    found = bodies(drain(spool))
    assert found == list(range(20_000 - len(found), 20_000)), "the newest are left, and none is missing among them"
    assert counters[FULL] == 20_000 - len(found)
    assert len(found) * 112 > MB * 14 / 16
    assert "the oldest records are dropped, and counted" in said[0]
    spool.close()


@pytest.mark.parametrize("acknowledged", [0, 3, 10])
def test_records_under_way_whose_file_is_dropped_count_as_lost_only_if_they_do_not_arrive(tmp_path, acknowledged):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, counters=counters)
    spool.append(records(*range(100), size=1000))
    arrived = len(spool.take(10))
    for number in range(100, 3000):
        spool.append(records(number, size=1000))
    spool.acknowledge(acknowledged)
    spool.release()
    left = len(drain(spool))
    assert arrived == 10
    assert acknowledged + left + counters[FULL] == 3000
    assert spool.waiting == 0
    spool.close()


def test_it_can_stop_the_run_instead(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="stop", counters=counters)
    with pytest.raises(OutputError, match="is full with 1 MB, or its disk, and when_full is stop"):
        [spool.append(records(number, size=1000)) for number in range(2000)]
    found = bodies(drain(spool))
    assert found == list(range(len(found)))
    assert counters[FULL] == 1
    spool.close()


def test_it_can_let_the_pipeline_wait_instead(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    writer = threading.Thread(target=lambda: [spool.append(records(n, size=1000)) for n in range(3000)])
    writer.start()
    time.sleep(0.3)
    assert writer.is_alive(), "it waits"
    assert spool.size_bytes <= MB
    found = []
    while writer.is_alive() or spool.waiting:
        taken = spool.take(50, 0.1)
        found += bodies(taken)
        spool.acknowledge(len(taken))
    writer.join()
    assert found == list(range(3000))
    assert not counters.values
    spool.close()


def test_what_is_too_old_is_dropped_and_counted_one_by_one(tmp_path):
    now_s, counters = [1000.0], Counters()
    spool = Spool(tmp_path / "s", age_s=60, counters=counters, clock=lambda: now_s[0])
    for number in range(100):
        spool.append(records(number))
        now_s[0] += 1
    assert bodies(drain(spool)) == list(range(40, 100))
    assert counters[OLD] == 40
    assert spool.waiting == 0
    spool.close()


def test_old_files_go_also_while_nobody_reads(tmp_path):
    now_s, counters = [1000.0], Counters()
    spool = Spool(tmp_path / "s", MB, age_s=60, counters=counters, clock=lambda: now_s[0])
    for number in range(600):
        spool.append(records(number, size=1000))
        now_s[0] += 1
    assert spool.size_bytes < 4 * MB / 16
    left = len(drain(spool))
    assert counters[OLD] + left == 600
    spool.close()


def test_an_hour_without_a_broker_loses_nothing_within_the_bounds_and_counts_the_rest(tmp_path):
    now_s, counters = [0.0], Counters()
    spool = Spool(tmp_path / "s", 2 * MB, age_s=3000, counters=counters, clock=lambda: now_s[0])
    for number in range(36_000):  # 10 a second
        spool.append(records(number, size=20))
        now_s[0] += 0.1
    found = bodies(drain(spool))
    assert found == list(range(36_000 - len(found), 36_000))
    assert counters[OLD] + counters[FULL] + len(found) == 36_000
    spool.close()


def test_a_full_disk_is_as_a_full_spool(tmp_path, monkeypatch):
    counters, write = Counters(), os.write
    spool = Spool(tmp_path / "s", MB, counters=counters)
    spool.append(records(*range(10)))
    written = [0]

    def full(file, data):
        if len(data) < 1000 or written[0]:
            return write(file, data)
        written[0] = write(file, data[:500])  # half of it, and then no more
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    spool.append(records(10, size=2000))
    spool.append(records(11))
    assert bodies(drain(spool)) == [10, 11]
    assert counters[FULL] == 10
    spool.close()


def test_half_a_block_at_the_end_is_removed_and_said(tmp_path):
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
    found = drain(again)
    assert bodies(found) == [1, 2, 4]
    assert counters[TORN] == 1
    assert [one.number for one in found] == [1, 2, 3]
    again.close()


def test_a_file_that_was_damaged_from_outside_is_left_and_counted(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, counters=counters)
    for number in range(200):
        spool.append(records(number, size=1000))
    first, *_ = sorted((tmp_path / "s").glob("*.spool"))
    data = bytearray(first.read_bytes())
    data[5000] ^= 255
    first.write_bytes(data)
    found = bodies(drain(spool))
    assert found[0] == 0
    assert found[-1] == 199
    assert len(found) + counters["records dropped: the spool was damaged"] == 200
    assert spool.waiting == 0
    spool.close()


def test_an_acknowledgement_that_cannot_be_read_means_that_all_is_sent_again(tmp_path):
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
def test_whatever_happens_each_record_arrives_or_is_counted_and_the_order_holds(steps):
    counters, arrived, under_way, written = Counters(), [], [], 0
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
from streamkit.emit.blocks import Record
from streamkit.emit.spool import Spool
spool = Spool(Path(sys.argv[1]), 10**8)
number = int(sys.argv[2])
while True:
    spool.append([Record(b"t", b"", b"%d" % (number + i)) for i in range(7)])
    number += 7
    print(number, flush=True)
"""


def test_what_append_has_returned_for_survives_kills_at_random_moments(tmp_path):
    safe = 0
    for wait_s in (0.0, 0.002, 0.01, 0.03):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "s"), str(safe)], stdout=subprocess.PIPE, text=True
        )
        writer.stdout.readline()
        time.sleep(wait_s)
        writer.send_signal(signal.SIGKILL)
        said = [line for line in writer.stdout if line.endswith("\n")]
        writer.wait()
        writer.stdout.close()
        spool = Spool(tmp_path / "s")
        found = bodies(drain(spool))
        spool.close()
        assert found == list(range(safe, safe + len(found)))
        assert found[-1] + 1 >= int(said[-1] if said else safe + 7)
        safe = found[-1] + 1
