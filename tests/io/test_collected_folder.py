"""The folder of `collect`: several writers, killed ones, and files that people change meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamkit.core.errors import OutputError
from streamkit.io.collected_folder import CollectedFolder, is_collected, read_classes, read_lines


def opened(path):
    folder = CollectedFolder(Path(path))
    folder.open()
    return folder


ABOUT = {
    "width": 8,
    "height": 8,
    "source": "gate",
    "frame": 0,
    "pts_s": 0.0,
    "collected": "2026-11-20T00:00:00.000Z",
    "reason": "random",
    "objects": [],
}


def put(folder, name):
    with folder.locked() as new:
        folder.add(folder.path / "images" / f"{name}.jpg", b"\xff\xd8" + name.encode() * 1000, ABOUT)
    return [line["image"] for line in new.lines]


def images(path):
    return [line["image"] for _, line in read_lines(Path(path)) if line is not None]


def test_each_writer_sees_the_lines_of_the_others_once(tmp_path):
    first = opened(tmp_path / "c")
    other = opened(tmp_path / "c")
    assert put(first, "a") == []
    assert put(other, "b") == ["images/a.jpg"]
    assert put(first, "c") == ["images/b.jpg"]
    with opened(tmp_path / "c").locked() as new:
        assert [line["image"] for line in new.lines] == images(tmp_path / "c") == [f"images/{x}.jpg" for x in "abc"]
        assert not new.restarted
    assert is_collected(tmp_path / "c")


def test_a_torn_line_is_removed_before_the_next(tmp_path):
    folder = opened(tmp_path / "c")
    put(folder, "a")
    with (tmp_path / "c" / "collected.jsonl").open("ab") as file:
        file.write(b'{"schema":"streamkit/collected/1","image":"images/b.')
    assert images(tmp_path / "c") == ["images/a.jpg"], "readers see whole lines only"
    put(folder, "c")
    assert images(tmp_path / "c") == ["images/a.jpg", "images/c.jpg"]
    for line in (tmp_path / "c" / "collected.jsonl").read_text().splitlines():
        json.loads(line)


def test_a_last_line_without_a_line_break_is_kept(tmp_path):
    folder = opened(tmp_path / "c")
    lines = tmp_path / "c" / "collected.jsonl"
    put(folder, "a")
    put(folder, "b")
    lines.write_bytes(lines.read_bytes().rstrip(b"\n"))
    assert images(tmp_path / "c") == ["images/a.jpg", "images/b.jpg"]
    assert put(opened(tmp_path / "c"), "c") == ["images/a.jpg", "images/b.jpg"]
    assert images(tmp_path / "c") == ["images/a.jpg", "images/b.jpg", "images/c.jpg"]
    assert put(folder, "d") == ["images/c.jpg"]


def test_a_replaced_removed_or_shortened_file_is_read_again(tmp_path):
    folder = opened(tmp_path / "c")
    lines = tmp_path / "c" / "collected.jsonl"
    for name in "abc":
        put(folder, name)
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:1]))  # in place
    with folder.locked() as new:
        assert ([line["image"] for line in new.lines], new.restarted) == (["images/a.jpg"], True)
    copy = lines.with_name("kept")
    copy.write_bytes(lines.read_bytes())
    os.replace(copy, lines)
    with folder.locked() as new:
        assert ([line["image"] for line in new.lines], new.restarted) == (["images/a.jpg"], True)
    lines.unlink()
    with folder.locked() as new:
        assert (new.lines, new.restarted) == ([], True)
    put(folder, "d")
    assert images(tmp_path / "c") == ["images/d.jpg"]


def test_another_kind_of_folder_is_refused(tmp_path):
    (tmp_path / "snaps").mkdir()
    (tmp_path / "snaps" / "a.jpg").write_bytes(b"x")
    with pytest.raises(OutputError, match=r"snaps: it has files in it, but no collected.jsonl, so it is another kind"):
        opened(tmp_path / "snaps")
    assert os.listdir(tmp_path / "snaps") == ["a.jpg"]
    with pytest.raises(OutputError, match=r"a.jpg: a part of the path is a file"):
        opened(tmp_path / "snaps" / "a.jpg")


def test_no_image_is_left_if_its_line_cannot_be_written(tmp_path, monkeypatch):
    folder = opened(tmp_path / "c")
    put(folder, "a")
    real = os.write

    def full(handle, data):
        real(handle, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match="the disk is full"):
        put(folder, "b")
    monkeypatch.undo()
    assert os.listdir(tmp_path / "c" / "images") == ["a.jpg"]
    put(folder, "c")
    assert images(tmp_path / "c") == ["images/a.jpg", "images/c.jpg"]


def test_classes_keep_their_numbers(tmp_path):
    folder = opened(tmp_path / "c")
    with folder.locked():
        folder.keep_classes("detect", ["car", "person"], None)
        folder.keep_classes("pose", ["person"], {"names": ["nose"], "edges": []})
    again = opened(tmp_path / "c")
    with again.locked():
        again.keep_classes("detect", ["person", "bus"], None)
        again.keep_classes("pose", ["person"], None)
    assert read_classes(tmp_path / "c") == {
        "detect": {"labels": ["car", "person", "bus"]},
        "pose": {"labels": ["person"], "skeleton": {"names": ["nose"], "edges": []}},
    }


WRITER = f"""
import sys
ABOUT = {ABOUT}
from pathlib import Path
from streamkit.io.collected_folder import CollectedFolder
folder = CollectedFolder(Path(sys.argv[1]))
folder.open()
print("open", flush=True)
for i in range(100000):
    with folder.locked():
        image = folder.path / "images" / f"{{sys.argv[2]}}-{{i}}.jpg"
        folder.add(image, b"x" * 50_000, {{**ABOUT, "pad": "y" * 20_000}})
"""


def test_killed_writers_leave_complete_lines_and_images(tmp_path):
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path / "c", name], stdout=subprocess.PIPE, text=True, env=here
        )
        for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
    until_s = time.monotonic() + 30
    while {line["image"][7] for _, line in read_lines(tmp_path / "c") if line is not None} != {"a", "b"}:
        assert time.monotonic() < until_s
    time.sleep(0.3)
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    listed = list(read_lines(tmp_path / "c"))
    assert all(line is not None for _, line in listed)
    assert {line["image"][7] for _, line in listed} == {"a", "b"}
    for _, line in listed:
        assert (tmp_path / "c" / line["image"]).stat().st_size == 50_000
    put(opened(tmp_path / "c"), "next")  # no lock outlives a process
    assert [line["image"] for _, line in read_lines(tmp_path / "c")][-1] == "images/next.jpg"


def test_several_processes_may_create_the_folder_at_once(tmp_path, monkeypatch):
    real = os.open
    others = []

    def slow(path, *args):
        if Path(path).name == "collected.jsonl" and not others:
            others.append(None)
            others[0] = opened(tmp_path / "c")
        return real(path, *args)

    monkeypatch.setattr(os, "open", slow)
    put(opened(tmp_path / "c"), "a")
    assert put(others[0], "b") == ["images/a.jpg"]


@pytest.mark.parametrize("wrong", [{"objects": 5}, {"objects": [1]}, {"collected": 5}, {"width": "8"}, {"image": 1}])
def test_a_line_with_a_value_of_a_wrong_type_is_skipped(tmp_path, wrong):
    folder = opened(tmp_path / "c")
    put(folder, "a")
    lines = tmp_path / "c" / "collected.jsonl"
    lines.write_text(json.dumps({**json.loads(lines.read_text()), **wrong}) + "\n")
    assert [line for _, line in read_lines(tmp_path / "c")] == [None]
