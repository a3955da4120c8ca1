"""Bounds of a text output to the byte and to the second: blocks, rotation, half line_file, failures."""

import errno
import os
import time
from types import SimpleNamespace

import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.io import line_file
from streamkit.io.line_file import LineFile

HOUR_S = 3600.0
NOON = 1785585600.0  # 2026-08-01T12:00:00Z


@pytest.fixture
def still(monkeypatch):
    """A clock that stands, and may be moved."""
    now_s = [1000.0]
    moved = SimpleNamespace(monotonic=lambda: now_s[0], time=time.time, strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr(line_file, "time", moved)
    return now_s


def opened(path, **options):
    out = LineFile(str(path), **options)
    out.open()
    return out


def growing(path, **options):
    """A file that a camera writes, with its first line written out."""
    out = opened(path, **options)
    out.write(b"0\n", NOON)
    out.flush()
    return out


@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1, 1 << 17, (1 << 17) + 1, 70_000])
@pytest.mark.parametrize("head", [b"", b"whole\n"])
def test_half_a_line_of_any_length_goes_as_a_whole(size, head, tmp_path):
    path, counters, logged = tmp_path / "a.txt", Counters(), collect()
    path.write_bytes(head + b"x" * (size - len(head)))
    out = opened(path, if_exists="append", counters=counters)
    assert path.read_bytes() == head
    out.write(b"new\n")
    out.close()
    assert path.read_bytes() == head + b"new\n"
    assert counters.values == {"torn lines removed": 1}
    assert logged == [f"{path} ended with an incomplete line, which was removed"]


def test_a_last_line_without_a_newline_is_looked_at_alone(tmp_path):
    path, seen = tmp_path / "a.txt", []
    path.write_bytes(b"one\n" + b"y" * 70_000)
    opened(path, if_exists="append", is_whole=lambda line: seen.append(line) or True).close()
    assert seen == [b"y" * 70_000]
    assert path.read_bytes() == b"one\n" + b"y" * 70_000 + b"\n"


def test_what_waits_goes_out_with_a_full_block_or_after_a_quarter_of_a_second(still, tmp_path):
    path = tmp_path / "a.txt"
    out = growing(path)
    line = b"x" * 999 + b"\n"
    for _ in range(65):
        out.write(line, NOON)
    assert path.stat().st_size == 2, "65,000 bytes wait"
    out.write(b"y" * 535 + b"\n", NOON)
    assert path.stat().st_size == 2 + 65_536, "a block is full"
    out.write(line, NOON)
    still[0] += 0.249
    out.write(line, NOON)
    assert path.stat().st_size == 2 + 65_536
    still[0] += 0.001
    out.write(line, NOON)
    assert path.stat().st_size == 2 + 65_536 + 3000
    out.write(line, NOON)
    assert path.stat().st_size == 2 + 65_536 + 3000, "the quarter begins again with each writing"
    out.close()
    assert path.stat().st_size == 2 + 65_536 + 4000


@pytest.mark.parametrize("header", [b"", b"head\n"])
def test_a_file_is_filled_to_its_size_and_not_beyond(header, tmp_path):
    out = opened(tmp_path / "a.txt", header=header, rotate={"size": len(header) + 8})
    for number in range(5):
        out.write(b"%03d\n" % number)
    out.close()
    contents = [(tmp_path / name).read_bytes() for name in ("a.txt", "a-2.txt", "a-3.txt")]
    assert contents == [header + b"000\n001\n", header + b"002\n003\n", header + b"004\n"]
    assert sorted(os.listdir(tmp_path)) == ["a-2.txt", "a-3.txt", "a.txt"]


def test_what_is_appended_to_counts_toward_the_size(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"000\n")
    out = opened(tmp_path / "a.txt", if_exists="append", rotate={"size": 8})
    out.write(b"001\n")
    out.flush()
    out.write(b"002\n")
    out.close()
    assert (tmp_path / "a.txt").read_bytes() == b"002\n"
    (aside,) = set(os.listdir(tmp_path)) - {"a.txt"}
    assert (tmp_path / aside).read_bytes() == b"000\n001\n"


def test_the_clock_rotates_at_the_full_hour_and_names_the_file_after_its_own_first_line(tmp_path):
    out = opened(tmp_path / "a.txt", rotate={"every": HOUR_S})
    for number, time_s in enumerate((NOON + 1, NOON + 3599.9, NOON + 3600, NOON + 7199, NOON + 3 * HOUR_S, NOON)):
        out.write(b"%d\n" % number, time_s)
    out.close()
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert contents == {
        "a-20260801T120001Z.txt": b"0\n1\n",
        "a-20260801T130000Z.txt": b"2\n3\n",
        "a-20260801T150000Z.txt": b"4\n",
        "a.txt": b"5\n",
    }


def test_a_file_with_nothing_but_its_header_is_not_put_aside(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"head\n")
    os.utime(tmp_path / "a.txt", (NOON, NOON))
    out = opened(tmp_path / "a.txt", header=b"head\n", if_exists="append", rotate={"every": HOUR_S})
    out.write(b"1\n", NOON + 2 * HOUR_S)
    out.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.txt": b"head\n1\n"}


class Disk:
    """A file that takes some bytes, in pieces, and then fails."""

    def __init__(self, out, takes, number=errno.ENOSPC, piece=3):
        self._out, self.takes, self._number, self._piece = out, takes, number, piece

    def write(self, data):
        if not self.takes:
            raise OSError(self._number, os.strerror(self._number))
        done = self._out.write(bytes(data)[: min(self.takes, self._piece)])
        self.takes -= done
        return done

    def __getattr__(self, name):
        return getattr(self._out, name)


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the disk quota is used up")]
)
@pytest.mark.parametrize(
    ("takes", "content", "lost"),
    [(0, b"", 3), (1, b"", 3), (2, b"a\n", 2), (3, b"a\n", 2), (5, b"a\nbb\n", 1), (6, b"a\nbb\n", 1)],
)  # fmt: skip
def test_of_lines_that_the_disk_took_in_part_the_whole_ones_stay_and_the_rest_is_counted(
    takes, content, lost, number, reason, tmp_path
):
    path, counters = tmp_path / "a.txt", Counters()
    out = growing(path, counters=counters)
    real = out._out
    for line in (b"a\n", b"bb\n", b"ccc\n"):
        out._flush_due = float("inf")
        out.write(line, NOON)
    out._out = Disk(real, takes, number)
    with pytest.raises(OutputError, match=f"cannot write {path}: {reason}"):
        out.flush()
    assert path.read_bytes() == b"0\n" + content
    assert counters.values == {"lines lost": lost}
    out._out = real
    out.write(b"later\n", NOON)
    out.close()
    assert path.read_bytes() == b"0\n" + content + b"later\n"


@pytest.mark.parametrize(("takes", "content", "lost"), [(4, b"", 1), (5, b"head\n", 1), (6, b"head\n", 1)])
def test_a_header_is_no_line_that_is_lost(takes, content, lost, tmp_path):
    path, counters = tmp_path / "a.txt", Counters()
    out = opened(path, header=b"head\n", if_exists="append", counters=counters)
    real, out._out = out._out, Disk(out._out, takes)
    out._flush_due = float("inf")
    out.write(b"1\n", NOON)
    with pytest.raises(OutputError):
        out.flush()
    assert path.read_bytes() == content
    assert counters.values == {"lines lost": lost}
    out._out = real
    out.write(b"2\n", NOON)
    out.close()
    assert path.read_bytes() == b"head\n2\n", "the header is there once"


def test_a_whole_file_that_fails_leaves_nothing_and_fails_again_at_each_line(tmp_path):
    path, counters = tmp_path / "a.txt", Counters()
    path.write_bytes(b"before\n")
    out = opened(path, counters=counters)
    out._flush_due = float("inf")
    out.write(b"1\n")
    out._out = Disk(out._out, 1)
    with pytest.raises(OutputError, match="the disk is full"):
        out.flush()
    with pytest.raises(OutputError, match="the disk is full"):
        out.write(b"2\n")
    out.close()
    assert {file_path.name: file_path.read_bytes() for file_path in tmp_path.iterdir()} == {"a.txt": b"before\n"}
    assert counters.values == {"lines lost": 1}


def test_without_a_line_an_earlier_file_stays_and_that_is_said(tmp_path):
    path, logged = tmp_path / "a.txt", collect()
    path.write_bytes(b"before\n")
    opened(path, header=b"head\n").close()
    assert path.read_bytes() == b"before\n"
    assert logged == [f"no frame arrived for {path}; the file of the previous run is kept"]
    opened(path, header=b"head\n", if_exists="overwrite").close()
    assert path.read_bytes() == b"head\n", "where that is asked for it is an empty one"
    opened(tmp_path / "b.txt", header=b"head\n").close()
    assert (tmp_path / "b.txt").read_bytes() == b"head\n"
    assert len(logged) == 1
