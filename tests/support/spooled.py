"""Numbered records, and a reader that empties a spool."""

from streamkit.emit.segment_file import SpoolRecord

MB = 1_000_000


def records(*numbers, size=20):
    return [SpoolRecord(b"t", b"k", b"%0*d" % (size, number)) for number in numbers]


def bodies(taken):
    return [int(record.body[-9:]) for record in taken]


def drain(spool):
    records = []
    while taken := spool.take(100):
        records += taken
        spool.acknowledge(len(taken))
    return records
