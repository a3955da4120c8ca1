"""A spool that is full or whose records are old: what waits, what goes, and that all of it is counted."""

import errno
import os
import threading
import time

import pytest
from support.messages import collect
from support.spooled import MB, bodies, drain, records

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.emit import segment_file
from streamkit.emit.spool import DAMAGED, DISK, FULL, OLD, Spool


@pytest.mark.parametrize("when_full", ["block", "drop_oldest", "stop"])
def test_a_batch_larger_than_the_spool_is_appended_in_parts(tmp_path, when_full):
    spool = Spool(tmp_path / "s", MB, when_full=when_full)
    taken_records = []
    over = threading.Event()

    def take():
        while not over.is_set() or spool.waiting:
            taken_records.extend(part := spool.take(100, 0.05))
            spool.acknowledge(len(part))

    taker = threading.Thread(target=take)
    taker.start()
    if when_full == "block":
        spool.append(records(*range(60), size=40_000))
    else:
        spool.append(records(*range(20), size=40_000))
    over.set()
    taker.join(20)
    assert bodies(taken_records) == list(range(60 if when_full == "block" else 20))


@pytest.mark.parametrize("when_full", ["block", "drop_oldest"])
def test_a_record_larger_than_the_spool_is_the_only_loss(tmp_path, when_full):
    counters = Counters()
    logged = collect()
    spool = Spool(tmp_path / "s", MB, when_full=when_full, counters=counters)
    spool.append([*records(1, 2), *records(3, size=2 * MB), *records(4)])
    assert bodies(drain(spool)) == [1, 2, 4]
    assert counters[FULL] == 1
    assert logged == ["a record of 2 MB is larger than spool.size; new records are dropped, and counted"]


def test_at_the_end_a_full_spool_blocks_only_while_records_are_sent(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    spool.block_timeout_s = 0.3
    start_s = time.monotonic()
    for number in range(40):
        spool.append(records(number, size=50_000))
    assert 0.3 <= time.monotonic() - start_s < 40 * 0.3 / 2  # it does not wait for each record
    assert counters[FULL] == 40 - spool.waiting
    assert bodies(drain(spool)) == list(range(40 - counters[FULL]))


def test_numbers_stay_in_order_while_a_thread_waits_for_room(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    spool.append(records(1, size=900_000))
    logged = threading.Event()
    spool._warn = lambda text: logged.set()
    waiting = threading.Thread(target=lambda: spool.append(records(3, size=200_000)))
    waiting.start()
    assert logged.wait(10)
    spool.append(records(2), wait=False)
    (first,) = spool.take(1)
    spool.acknowledge(1)
    waiting.join(10)
    assert not waiting.is_alive()
    rest = drain(spool)
    assert bodies([first, *rest]) == [1, 2, 3]
    assert [record.number for record in rest] == [2, 3]
    assert counters.values == {}
    spool.close()


def test_a_full_spool_drops_and_counts_the_oldest_records(tmp_path):
    counters = Counters()
    logged = collect()
    spool = Spool(tmp_path / "s", MB, counters=counters)
    for number in range(0, 20_000, 10):
        spool.append(records(*range(number, number + 10), size=100))
        assert spool.size_bytes <= MB
    numbers = bodies(drain(spool))
    assert numbers == list(range(20_000 - len(numbers), 20_000)), "the newest are left, and none is missing among them"
    assert counters[FULL] == 20_000 - len(numbers)
    assert len(numbers) * 112 > MB * 14 / 16
    assert "the oldest records are dropped, and counted" in logged[0]
    spool.close()


@pytest.mark.parametrize("acknowledged", [0, 3, 10])
def test_dropped_in_flight_records_count_as_lost_only_if_unacknowledged(tmp_path, acknowledged):
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


def test_a_full_spool_stops_the_run_by_option(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="stop", counters=counters)
    with pytest.raises(OutputError, match="is full with 1 MB, and when_full is stop"):
        [spool.append(records(number, size=1000)) for number in range(2000)]
    numbers = bodies(drain(spool))
    assert numbers == list(range(len(numbers)))
    assert counters[FULL] == 1
    spool.close()


def test_a_full_spool_blocks_the_pipeline_by_option(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    writer = threading.Thread(target=lambda: [spool.append(records(n, size=1000)) for n in range(3000)])
    writer.start()
    time.sleep(0.3)
    assert writer.is_alive(), "it waits"
    assert spool.size_bytes <= MB
    numbers = []
    while writer.is_alive() or spool.waiting:
        taken = spool.take(50, 0.1)
        numbers += bodies(taken)
        spool.acknowledge(len(taken))
    writer.join()
    assert numbers == list(range(3000))
    assert not counters.values
    spool.close()


def test_expired_records_are_dropped_and_counted(tmp_path):
    now_s = [1000.0]
    counters = Counters()
    spool = Spool(tmp_path / "s", age_s=60, counters=counters, clock=lambda: now_s[0])
    for number in range(100):
        spool.append(records(number))
        now_s[0] += 1
    assert bodies(drain(spool)) == list(range(40, 100))
    assert counters[OLD] == 40
    assert spool.waiting == 0
    spool.close()


def test_expired_records_are_counted_once_in_flight_records_are_settled(tmp_path):
    now_s = [1000.0]
    counters = Counters()
    how = {"age_s": 60, "counters": counters, "clock": lambda: now_s[0]}
    spool = Spool(tmp_path / "s", **how)
    spool.append(records(0))
    taken = spool.take(10)
    spool.append(records(1, 2))
    now_s[0] += 61
    taken += spool.take(10)  # as a sender does that waits for others to go with them
    assert (bodies(taken), spool.waiting, counters[OLD]) == ([0], 3, 2)
    spool.acknowledge(1)
    assert (spool.waiting, spool.take(10)) == (0, [])
    spool.close()
    again = Spool(tmp_path / "s", **how)
    assert (again.waiting, again.take(10), counters[OLD]) == (0, [], 2)
    again.close()


def test_expired_records_between_others_are_counted_once(tmp_path):
    now_s = [1000.0]
    counters = Counters()
    how = {"age_s": 60, "counters": counters, "clock": lambda: now_s[0]}
    spool = Spool(tmp_path / "s", **how)
    spool.append(records(0))
    spool.take(10)
    spool.append(records(1))
    now_s[0] += 50
    spool.append(records(2))
    now_s[0] += 11
    assert bodies(spool.take(10)) == [2]
    spool.acknowledge(1)
    assert spool.waiting == 1
    spool.close()  # what was under way comes again
    again = Spool(tmp_path / "s", **how)
    assert (bodies(drain(again)), again.waiting, counters[OLD]) == ([2], 0, 1)
    again.close()


def test_a_spool_of_damaged_records_only_is_empty(tmp_path):
    counters = Counters()
    spool = Spool(tmp_path / "s", counters=counters)
    spool.append(records(0, 1, 2))
    (path,) = (tmp_path / "s").glob("*.spool")
    path.write_bytes(b"x" * path.stat().st_size)
    assert spool.take(10) == []
    assert (spool.waiting, counters[DAMAGED]) == (0, 3)
    spool.close()


def test_expired_segments_are_removed_without_a_reader(tmp_path):
    now_s = [1000.0]
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, age_s=60, counters=counters, clock=lambda: now_s[0])
    for number in range(600):
        spool.append(records(number, size=1000))
        now_s[0] += 1
    assert spool.size_bytes < 4 * MB / 16
    left = len(drain(spool))
    assert counters[OLD] + left == 600
    spool.close()


def test_an_hour_without_a_broker_loses_and_counts_only_records_above_the_limits(tmp_path):
    now_s = [0.0]
    counters = Counters()
    spool = Spool(tmp_path / "s", 2 * MB, age_s=3000, counters=counters, clock=lambda: now_s[0])
    for number in range(36_000):  # 10 a second
        spool.append(records(number, size=20))
        now_s[0] += 0.1
    numbers = bodies(drain(spool))
    assert numbers == list(range(36_000 - len(numbers), 36_000))
    assert counters[OLD] + counters[FULL] + len(numbers) == 36_000
    spool.close()


def test_a_full_disk_is_treated_as_a_full_spool(tmp_path, monkeypatch):
    counters = Counters()
    write = os.write
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
    assert counters.values == {DISK: 10}, "and counted as the disk's doing"
    spool.close()


class FailingDisk:
    """Writes the first half of what is longer than 1000 bytes, and fails with each of these errors in turn."""

    def __init__(self, monkeypatch, *errors):
        self.errors = list(errors)
        self.write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, handle, data):
        if len(data) > 1000 and self.errors:
            self.write(handle, data[: len(data) // 2])
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return self.write(handle, data)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("before", [0, 3])
def test_a_partial_block_of_a_full_disk_is_removed_while_the_pipeline_waits(tmp_path, monkeypatch, number, before):
    counters = Counters()
    logged = collect()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    spool.append(records(*range(before)))
    disk = FailingDisk(monkeypatch, number, number)
    spool.append(records(before, size=5000))
    spool.append(records(before + 1))
    (path,) = (tmp_path / "s").glob("*.spool")
    assert disk.errors == [], "it failed twice, and went on when there was room"
    assert path.stat().st_size == spool.size_bytes
    data = path.read_bytes()
    records_left, done = segment_file.unpack(data, 1)
    assert (bodies(records_left), done) == (list(range(before + 2)), len(data)), (
        "whole segment_file, and nothing between them"
    )
    assert bodies(drain(spool)) == list(range(before + 2))
    assert counters.values == {}
    message = f"the disk of the spool {tmp_path}/s is full, or its quota is used up"
    assert set(logged) == {f"{message}; the pipeline waits until there is room"}
    spool.close()


def test_a_partial_block_of_a_failing_disk_is_removed(tmp_path, monkeypatch):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, when_full="block", counters=counters)
    spool.append(records(0))
    FailingDisk(monkeypatch, errno.EIO)
    with pytest.raises(OutputError, match=f"cannot write {tmp_path}/s: Input/output error"):
        spool.append(records(1, size=5000))
    spool.append(records(2))
    assert bodies(drain(spool)) == [0, 2]
    spool.close()


def test_a_full_disk_with_nothing_to_drop_loses_the_new_records_only(tmp_path, monkeypatch):
    counters = Counters()
    logged = collect()
    spool = Spool(tmp_path / "s", MB, counters=counters)
    FailingDisk(monkeypatch, *[errno.ENOSPC] * 3)
    for number in range(3):
        spool.append(records(number, size=5000))
    spool.append(records(3))
    assert counters.values == {DISK: 3}
    assert bodies(drain(spool)) == [3]
    message = f"the disk of the spool {tmp_path}/s is full, or its quota is used up"
    assert logged[0] == f"{message}; new records are dropped, and counted"
    spool.close()


def test_in_flight_records_are_counted_by_the_cause_that_removed_their_segment(tmp_path, monkeypatch):
    counters = Counters()
    spool = Spool(tmp_path / "s", MB, counters=counters)
    spool.append(records(0, 1))
    assert len(spool.take(2)) == 2
    FailingDisk(monkeypatch, errno.ENOSPC)
    spool.append(records(2, size=5000))
    spool.release()
    assert counters.values == {DISK: 2}
    assert bodies(drain(spool)) == [2]
    spool.close()


def whole_file(folder, now_s, **options):
    """A spool whose first file is whole, with 3 records; what is written from now on goes into another."""
    spool = Spool(folder, MB, clock=lambda: now_s[0], **options)
    for number in range(3):
        spool.append(records(number, size=30_000))
    return spool


def test_a_segment_is_removed_when_its_newest_record_expires(tmp_path):
    now_s = [1000.0]
    counters = Counters()
    spool = whole_file(tmp_path / "s", now_s, age_s=60, counters=counters)
    now_s[0] = 1060.0
    spool.append(records(3))
    assert (counters[OLD], spool.waiting) == (0, 4)
    now_s[0] = 1060.01
    spool.append(records(4))
    assert (counters[OLD], spool.waiting) == (3, 2)
    assert [path.name for path in (tmp_path / "s").glob("*.spool")] == ["00000000000000000004.spool"]
    assert bodies(drain(spool)) == [3, 4]
    spool.close()


def test_the_age_of_segments_survives_a_restart(tmp_path):
    now_s = [1000.0]
    spool = whole_file(tmp_path / "s", now_s)
    spool.close()
    (path,) = (tmp_path / "s").glob("*.spool")
    os.utime(path, (1000.0, 1000.0))  # which the clock of this test knows nothing of
    for at_s, left in ((1060.0, 4), (1060.5, 1)):
        counters = Counters()
        now_s[0] = at_s
        again = Spool(tmp_path / "s", MB, age_s=60, counters=counters, clock=lambda: now_s[0])
        again.append(records(3))
        assert (again.waiting, counters[OLD]) == (left, 4 - left)
        again.close()
        if left == 4:
            sorted((tmp_path / "s").glob("*.spool"))[-1].unlink()
