import errno
import io
import os
import sys
import time

import pytest
from support.full_disk import FullDisk
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.io.line_file import LineFile

HEADER = b"n\n"
NOON = 1785585600.0  # 2026-08-01T12:00:00Z


def write_thrice(out):
    for _ in range(3):
        out.write(b"1\n")
        out.flush()


def names(folder):
    return sorted(os.listdir(folder))


def test_a_file_is_complete_at_close(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old\n")
    out = LineFile(str(path))
    out.open()
    out.write(b"1\n")
    out.flush()
    assert path.read_bytes() == b"old\n"
    out.write(b"2\n")
    out.close()
    assert path.read_bytes() == b"1\n2\n"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("path", ["a.txt", "-"])
def test_a_program_or_notebook_may_replace_standard_output(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    out = LineFile(path)
    out.open()
    for line in ("1\n", "é\n"):
        out.write(line.encode())
        out.flush()
    out.close()
    if path == "-":
        assert (shown.getvalue(), names(tmp_path)) == ("1\né\n", [])
    else:
        assert (shown.getvalue(), (tmp_path / path).read_text()) == ("", "1\né\n")


def test_a_process_without_standard_output_cannot_write_to_it(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OutputError, match="there is no standard output; write to a file in place of -"):
        LineFile("-").open()


def test_a_camera_appends_and_is_readable_at_once(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"n\nold\n")
    out = LineFile(str(path), header=HEADER)
    out.open()
    out.write(b"1\n", NOON)
    out.flush()
    assert path.read_bytes() == b"n\nold\n1\n"
    assert names(tmp_path) == ["a.txt"]
    out.close()
    assert path.read_bytes() == b"n\nold\n1\n"


@pytest.mark.parametrize(
    ("if_exists", "time_s", "expected"),
    [
        (None, None, b"new\n"),
        (None, NOON, b"old\nnew\n"),
        ("overwrite", None, b"new\n"),
        ("overwrite", NOON, b"new\n"),
        ("append", None, b"old\nnew\n"),
        ("append", NOON, b"old\nnew\n"),
    ],
)
def test_if_exists_decides_about_an_existing_file(tmp_path, if_exists, time_s, expected):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old\n")
    out = LineFile(str(path), if_exists=if_exists)
    out.open()
    out.write(b"new\n", time_s)
    out.close()
    assert path.read_bytes() == expected


def test_if_exists_fail_is_reported_at_open(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old\n")
    with pytest.raises(OutputError, match="it exists"):
        LineFile(str(path), if_exists="fail").open()
    for time_s in (None, NOON):
        out = LineFile(str(tmp_path / f"{time_s}.txt"), if_exists="fail")
        out.open()
        out.write(b"1\n", time_s)
        out.close()
        assert (tmp_path / f"{time_s}.txt").read_bytes() == b"1\n"


def test_a_file_without_lines_is_written(tmp_path):
    new, existing, emptied = (tmp_path / name for name in ("new", "kept", "emptied"))
    existing.write_bytes(b"old\n")
    emptied.write_bytes(b"old\n")
    logged = collect()
    for path, if_exists in ((new, None), (existing, None), (emptied, "overwrite")):
        out = LineFile(str(path), header=HEADER, if_exists=if_exists)
        out.open()
        out.close()
    assert new.read_bytes() == HEADER
    assert existing.read_bytes() == b"old\n"
    assert emptied.read_bytes() == HEADER
    assert len(logged) == 1
    assert "kept" in logged[0]
    assert names(tmp_path) == ["emptied", "kept", "new"]


@pytest.mark.parametrize(
    ("before", "after", "torn"),
    [
        (b"", b"n\nnew\n", 0),
        (b"n\none\n", b"n\none\nnew\n", 0),
        (b"n\none\ntw", b"n\none\nnew\n", 1),
        (b"n\none\nwhole", b"n\none\nwhole\nnew\n", 0),
        (b"n\n" + b"x" * 200_000, b"n\nnew\n", 1),
    ],
)
def test_a_torn_line_is_removed_before_appending(tmp_path, before, after, torn):
    path = tmp_path / "a.txt"
    counters = Counters()
    path.write_bytes(before)
    out = LineFile(
        str(path), header=HEADER, if_exists="append", is_whole=lambda line: line == b"whole", counters=counters
    )
    out.open()
    out.write(b"new\n")
    out.close()
    assert path.read_bytes() == after
    assert counters["torn lines removed"] == torn


def test_another_header_is_not_appended_to(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"other\n1\n")
    with pytest.raises(OutputError, match="header"):
        LineFile(str(path), header=HEADER, if_exists="append").open()


def test_rotation_by_size_numbers_a_videos_files(tmp_path):
    out = LineFile(str(tmp_path / "a.txt"), header=HEADER, rotate={"size": 10})
    out.open()
    for i in range(1, 6):
        out.write(b"%03d\n" % i)
    out.close()
    assert names(tmp_path) == ["a-2.txt", "a-3.txt", "a.txt"]
    parts = [(tmp_path / name).read_bytes() for name in ("a.txt", "a-2.txt", "a-3.txt")]
    assert parts == [b"n\n001\n002\n", b"n\n003\n004\n", b"n\n005\n"]


def test_a_line_longer_than_the_size_gets_a_separate_file(tmp_path):
    out = LineFile(str(tmp_path / "a.txt"), rotate={"size": 4})
    out.open()
    for line in (b"123456789\n", b"1\n"):
        out.write(line)
    out.close()
    assert (tmp_path / "a.txt").read_bytes() == b"123456789\n"
    assert (tmp_path / "a-2.txt").read_bytes() == b"1\n"


def test_rotation_by_time_renames_the_file_of_a_camera(tmp_path):
    out = LineFile(str(tmp_path / "a.txt"), header=HEADER, rotate={"every": 3600})
    out.open()
    for second, text in ((0, b"a\n"), (3599.5, b"b\n"), (3600, b"c\n"), (9000, b"d\n")):
        out.write(text, NOON + second)
    out.close()
    assert names(tmp_path) == ["a-20260801T120000Z.txt", "a-20260801T130000Z.txt", "a.txt"]
    assert (tmp_path / "a-20260801T120000Z.txt").read_bytes() == b"n\na\nb\n"
    assert (tmp_path / "a-20260801T130000Z.txt").read_bytes() == b"n\nc\n"
    assert (tmp_path / "a.txt").read_bytes() == b"n\nd\n"


def test_a_file_of_an_earlier_hour_is_rotated_after_a_restart(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old\n")
    os.utime(path, (NOON - 10, NOON - 10))
    out = LineFile(str(path), rotate={"every": 3600})
    out.open()
    out.write(b"new\n", NOON)
    out.close()
    assert (tmp_path / "a-20260801T115950Z.txt").read_bytes() == b"old\n"
    assert path.read_bytes() == b"new\n"


def test_rotated_files_never_replace_one(tmp_path):
    out = LineFile(str(tmp_path / "a.txt"), rotate={"size": 2})
    out.open()
    for text in (b"a\n", b"b\n", b"c\n"):
        out.write(text, NOON)
    out.close()
    assert names(tmp_path) == ["a-20260801T120000Z-2.txt", "a-20260801T120000Z.txt", "a.txt"]


def test_lines_are_written_to_standard_output(capfdbinary):
    out = LineFile("-", header=HEADER)
    out.open()
    out.write(b"1\n")
    out.close()
    assert capfdbinary.readouterr().out == b"n\n1\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_device_is_reported(tmp_path):
    counters = Counters()
    out = LineFile("/dev/full", counters=counters)
    out.open()
    with pytest.raises(OutputError, match="cannot write /dev/full: the disk is full"):
        write_thrice(out)
    with pytest.raises(OutputError, match="the disk is full"):
        out.write(b"2\n")
    out.close()
    assert counters["lines lost"] == 1


def test_a_full_disk_leaves_no_file_of_a_video(tmp_path):
    out = LineFile(str(tmp_path / "a.txt"))
    out.open()
    out._out = FullDisk(out._out, 5)
    out.write(b"abc\n")
    out.write(b"def\n")
    with pytest.raises(OutputError, match=r"a\.txt: the disk is full"):
        out.flush()
    out.close()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("error_number", "reason"),
    [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the disk quota is used up")],
    ids=["full", "quota"],
)
def test_a_full_disk_leaves_complete_lines_and_writing_resumes_later(tmp_path, error_number, reason):
    counters = Counters()
    out = LineFile(str(tmp_path / "a.txt"), counters=counters)
    out.open()
    out.write(b"abc\n", NOON)
    out.flush()
    out._out = full = FullDisk(out._out, 6, error_number)
    for text in (b"def\n", b"ghi\n", b"jkl\n"):
        out._waiting += text
    with pytest.raises(OutputError, match=reason):
        out.flush()
    assert (tmp_path / "a.txt").read_bytes() == b"abc\ndef\n"
    assert counters["lines lost"] == 2
    full.room = 100
    out.write(b"mno\n", NOON)
    out.close()
    assert (tmp_path / "a.txt").read_bytes() == b"abc\ndef\nmno\n"


def test_a_closed_pipe_is_reported():
    read, write = os.pipe()
    os.close(read)
    out = LineFile(f"/dev/fd/{write}")
    out.open()
    with pytest.raises(OutputError, match="its reader has gone away"):
        write_thrice(out)
    out.close()
    os.close(write)


def test_lines_come_out_while_they_keep_coming(tmp_path):
    out = LineFile(str(tmp_path / "a.txt"))
    out.open()
    out.write(b"1\n", NOON)
    out.write(b"2\n", NOON)
    time.sleep(0.3)
    out.write(b"3\n", NOON)
    assert (tmp_path / "a.txt").read_bytes() == b"1\n2\n3\n"
    out.close()


HOUR_S = 3600.0


def opened(path, **options):
    out = LineFile(str(path), **options)
    out.open()
    return out


@pytest.mark.parametrize("size", [1 << 16, (1 << 17) + 1, 70_000])
@pytest.mark.parametrize("head", [b"", b"whole\n"])
def test_a_partial_line_of_any_length_is_removed(size, head, tmp_path):
    path = tmp_path / "a.txt"
    counters = Counters()
    logged = collect()
    path.write_bytes(head + b"x" * (size - len(head)))
    out = opened(path, if_exists="append", counters=counters)
    assert path.read_bytes() == head
    out.write(b"new\n")
    out.close()
    assert path.read_bytes() == head + b"new\n"
    assert counters.values == {"torn lines removed": 1}
    assert logged == [f"{path} ended with an incomplete line, which was removed"]


def test_only_a_last_line_without_a_newline_is_checked_for_completeness(tmp_path):
    path = tmp_path / "a.txt"
    seen = []
    path.write_bytes(b"one\n" + b"y" * 70_000)
    opened(path, if_exists="append", is_whole=lambda line: seen.append(line) or True).close()
    assert seen == [b"y" * 70_000]
    assert path.read_bytes() == b"one\n" + b"y" * 70_000 + b"\n"


def test_existing_lines_count_toward_the_size(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"000\n")
    out = opened(tmp_path / "a.txt", if_exists="append", rotate={"size": 8})
    out.write(b"001\n")
    out.flush()
    out.write(b"002\n")
    out.close()
    assert (tmp_path / "a.txt").read_bytes() == b"002\n"
    (aside,) = set(os.listdir(tmp_path)) - {"a.txt"}
    assert (tmp_path / aside).read_bytes() == b"000\n001\n"


def test_a_file_with_only_a_header_is_not_rotated(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"head\n")
    os.utime(tmp_path / "a.txt", (NOON, NOON))
    out = opened(tmp_path / "a.txt", header=b"head\n", if_exists="append", rotate={"every": HOUR_S})
    out.write(b"1\n", NOON + 2 * HOUR_S)
    out.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.txt": b"head\n1\n"}
