"""The comparison of trackers: sequences on disk, what has no detections, trackers that are not there, the page."""

import re
import sys

import cv2
import numpy as np
import pytest
from support.packages import require
from support.textures import seen_through, similarity, texture

from benchmarks import trackers
from benchmarks.peers import installed
from benchmarks.performance_page import with_tables

require("trackeval")

COUNT = 40


@pytest.fixture
def data(tmp_path):
    """Two sequences in the form of MOTChallenge, with a shaken camera; the second has no detections and no pictures."""
    rng = np.random.default_rng(0)
    wall = texture()
    places = np.array([(60, 40), (300, 150), (520, 200)], float)
    for name in ("shaken", "unseen"):
        folder = tmp_path / "set" / name
        for part in ("img1", "gt", "det") if name == "shaken" else ("gt",):
            (folder / part).mkdir(parents=True)
        info = f"name={name}\nimDir=img1\nframeRate=25\nseqLength={COUNT}\nimWidth=640\nimHeight=360"
        (folder / "seqinfo.ini").write_text(f"[Sequence]\n{info}\n")
        rows = []
        for number in range(1, COUNT + 1):
            camera = similarity(*rng.normal(0, 14, 2))
            if name == "shaken":
                cv2.imwrite(str(folder / "img1" / f"{number:06d}.jpg"), seen_through(wall, camera))
            corners = places + camera[:, 2]
            rows += [(number, i + 1, *corner, 40, 80) for i, corner in enumerate(corners)]
        table = np.array(rows)
        marks = np.ones((len(table), 1))
        np.savetxt(folder / "gt" / "gt.txt", np.hstack([table, marks, marks, marks]), delimiter=",", fmt="%.6g")
        if name == "shaken":
            table[:, 1] = -1
            np.savetxt(folder / "det" / "det.txt", np.hstack([table, marks * 0.9]), delimiter=",", fmt="%.6g")
    return tmp_path / "set"


def idf1_by_method(text):
    rows = (line.strip("|").split("|") for line in text.splitlines())
    return {row[0]: float(row[2]) for row in rows if len(row) == 6 and row[0].startswith("`")}


def test_sequences_on_disk_are_scored_with_their_pictures(data, monkeypatch, capsys):
    monkeypatch.delenv("STREAMKIT_TEST_DATA", raising=False)
    options = ["--seeds", "0", "--streets", "0", "--peers", "trackers", "--data", str(data)]
    monkeypatch.setattr(sys, "argv", ["trackers.py", *options])
    trackers.main()
    out = capsys.readouterr().out
    with_detections, on_truth = (idf1_by_method(text) for text in out.split("## set\n")[1:])
    assert set(trackers.METHODS) <= set(with_detections)
    assert with_detections["`botsort`"] == with_detections["`auto`"] == 1
    assert with_detections["`bytetrack`"] < 0.98
    assert on_truth["`auto`"] == on_truth["`bytetrack`"] < 0.98, "without pictures"
    assert "On detections of a sequence:" in out
    assert "On the boxes of the ground truth of a sequence:" in out
    assert re.search(r"Measured on \d+ \w+ 20\d\d: streamkit \d", out)
    if not installed(sys.executable, "trackers"):
        assert "trackers: left out: it is not installed; name an environment with --python trackers=PYTHON" in out


def test_a_picture_that_breaks_off_leaves_out_its_sequence(data, monkeypatch, capsys):
    monkeypatch.delenv("STREAMKIT_TEST_DATA", raising=False)
    (data / "shaken" / "img1" / "000030.jpg").write_text("")
    options = ["--seeds", "0", "--streets", "0", "--peers", "--data", str(data), "--only-matching", "shaken"]
    monkeypatch.setattr(sys, "argv", ["trackers.py", *options])
    trackers.main()
    assert "000030.jpg is not a picture that OpenCV reads" in capsys.readouterr().out


def test_the_program_for_other_packages_compiles():
    compile(trackers.PEER_PROGRAM, "peer", "exec")


def test_a_folder_without_sequences_ends_with_a_message(tmp_path, monkeypatch):
    monkeypatch.delenv("STREAMKIT_TEST_DATA", raising=False)
    options = ["--seeds", "0", "--streets", "0", "--peers", "--data", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["trackers.py", *options])
    with pytest.raises(SystemExit, match="no sequence is there"):
        trackers.main()


def test_the_page_has_a_place_for_each_table():
    text = trackers.PAGE.read_text(encoding="utf-8")
    names = ("campus", "moving", "still", "every", "measured", "sets")
    filled = with_tables(text, {name: f"table {name}\n" for name in names})
    assert all(f"table {name}" in filled for name in names)
    assert "`BoTSORTTracker` of `trackers`" in text
