"""The file of records that were given up."""

import json
import os

import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.emit.client import Message
from streamkit.emit.sender import NOT_DEAD_LETTERED, DeadLetters


@pytest.fixture
def letters_file(tmp_path):
    counters = Counters()
    logged = collect()
    return DeadLetters(tmp_path / "d.jsonl", 1000, counters), counters, logged


def messages(*numbers, size=1):
    return [Message(f"s-{n}", f"t/{n}", "k", json.dumps({"id": f"s-{n}", "x": "y" * size}).encode()) for n in numbers]


def test_each_record_is_a_line_with_time_reason_topic_and_key(letters_file):
    dead, counters, logged = letters_file
    dead.add(messages(1, 2), "too large")
    dead.add(messages(3), 'a "reason"')
    first, second, third = map(json.loads, dead.path.read_text().splitlines())
    assert first.pop("time") < "2200"
    assert first == {"why": "too large", "topic": "t/1", "key": "k", "record": {"id": "s-1", "x": "y"}}
    assert (second["record"]["id"], second["why"]) == ("s-2", "too large")
    assert (third["topic"], third["why"]) == ("t/3", 'a "reason"')
    assert (counters.values, logged) == ({}, [])


def test_the_file_stays_within_its_limit_and_counts_what_it_omits(letters_file):
    dead, counters, logged = letters_file
    dead.add(messages(1), "no")
    size = dead.path.stat().st_size
    fits = (1000 - size) // size
    dead.add(messages(*range(fits + 3)), "no")
    assert len(dead.path.read_text().splitlines()) == 1 + fits
    assert dead.path.stat().st_size <= 1000
    assert counters.values == {NOT_DEAD_LETTERED: 3}
    assert logged == [
        f"{dead.path} has reached its limit of 0.001 MB; further rejected records are counted, and not kept. "
        "Move the file away to make room"
    ]


def test_a_line_that_fills_the_limit_exactly_is_written(letters_file, tmp_path):
    dead, counters, _ = letters_file
    dead.add(messages(1), "no")
    size = dead.path.stat().st_size
    exact = DeadLetters(tmp_path / "e.jsonl", size, counters)
    exact.add(messages(1), "no")
    assert counters.values == {}
    short = DeadLetters(tmp_path / "f.jsonl", size - 1, counters)
    short.add(messages(1), "no")
    assert counters.values == {NOT_DEAD_LETTERED: 1}


def test_a_partial_line_of_a_crash_does_not_corrupt_the_next(letters_file):
    dead, _, _ = letters_file
    dead.path.write_bytes(b'{"time": "2026')
    dead.add(messages(1), "no")
    dead.add(messages(2), "no")
    _, first, second = dead.path.read_text().splitlines()
    assert [json.loads(line)["record"]["id"] for line in (first, second)] == ["s-1", "s-2"]


def test_a_full_disk_leaves_whole_lines_and_is_counted(letters_file, monkeypatch):
    dead, counters, logged = letters_file
    dead.add(messages(1), "no")
    before = dead.path.read_bytes()
    write = os.write

    def full(handle, data):
        if len(data) < 50:
            raise OSError(28, "No space left on device")
        return write(handle, data[:40])

    monkeypatch.setattr(os, "write", full)
    dead.add(messages(2, 3), "no")
    assert dead.path.read_bytes() == before
    assert counters.values == {NOT_DEAD_LETTERED: 2}
    fix = "free some space, or set a path on another disk"
    assert logged == [f"cannot write {dead.path}: the disk is full; {fix}; rejected records are counted, and not kept"]
