"""Records with a number each, and a spool that is read until it is empty."""

from streamkit.emit.segment_file import SpoolRecord

MB = 1_000_000


def records(*numbers, size=20):
    return [SpoolRecord(b"t", b"k", b"%0*d" % (size, number)) for number in numbers]


def bodies(taken):
    return [int(one.body[-9:]) for one in taken]


def drain(spool):
    found = []
    while taken := spool.take(100):
        found += taken
        spool.acknowledge(len(taken))
    return found
