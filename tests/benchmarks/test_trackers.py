"""The comparison of trackers: sequences on disk, what has no detections, trackers that are not there, the page."""

import re
import sys

import cv2
import numpy as np
import pytest
from support.textures import seen_through, similarity, texture

pytest.importorskip("trackeval")

from benchmarks import trackers
from benchmarks.peers import installed
from benchmarks.performance_page import with_tables

COUNT = 40


@pytest.fixture
def data(tmp_path):
    """Two sequences in the form of MOTChallenge, with a shaken camera; the second has no detections."""
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


def test_sequences_on_disk_are_scored_with_their_pictures(data, monkeypatch, capsys):
    monkeypatch.delenv("STREAMKIT_TEST_DATA", raising=False)
    options = ["--seeds", "0", "--streets", "0", "--peers", "trackers", "--data", str(data)]
    monkeypatch.setattr(sys, "argv", ["trackers.py", *options])
    trackers.main()
    out = capsys.readouterr().out
    idf1 = {
        row[0]: float(row[2])
        for row in (line.strip("|").split("|") for line in out.splitlines())
        if len(row) == 6 and row[0].startswith("`")
    }
    assert set(trackers.METHODS) <= set(idf1)
    assert idf1["`botsort`"] == idf1["`auto`"] == 1
    assert idf1["`bytetrack`"] < 0.98
    assert "unseen: left out, because there are no detections in" in out
    assert re.search(r"Measured on \d+ \w+ 20\d\d: streamkit \d", out)
    if not installed(sys.executable, "trackers"):
        assert "trackers: left out: it is not installed; name an environment with --python trackers=PYTHON" in out


def test_a_file_of_other_detections_is_taken(data, tmp_path):
    (tmp_path / "other").mkdir()
    for name, text in (("shaken", "1,-1,10,20,30,40,0.5\n"), ("unseen", "2,-1,1,2,3,4,0.7\n")):
        (tmp_path / "other" / f"{name}.txt").write_text(text)
    shaken, unseen = trackers.on_disk(data, "*", tmp_path / "other")
    assert [rows.tolist() for rows in shaken.rows[:2]] == [[[10, 20, 40, 60, 0.5, 0]], []]
    assert unseen.rows[1].tolist() == [[1, 2, 4, 6, 0.7, 0]]
    assert unseen.pictures is None
    assert [recording.name for recording in trackers.on_disk(data, "un*", tmp_path / "other")] == ["unseen"]


def test_the_page_has_a_place_for_each_table():
    text = trackers.PAGE.read_text(encoding="utf-8")
    names = ("campus", "moving", "still", "every", "measured", "sets")
    filled = with_tables(text, {name: f"table {name}\n" for name in names})
    assert all(f"table {name}" in filled for name in names)
    assert "`BoTSORTTracker` of `trackers`" in text
