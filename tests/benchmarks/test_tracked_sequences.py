"""Reads sequences in the layouts of published tracking data sets, and reports what is missing."""

import cv2
import numpy as np
import pytest

from benchmarks.tracked_sequences import on_disk, picture_files, set_name

COUNT = 5
WIDTH = 160
HEIGHT = 90
INFO = {"frameRate": 30, "seqLength": COUNT, "imWidth": WIDTH, "imHeight": HEIGHT, "imExt": ".jpg"}


def sequence(folder, truth="{frame},{id},{x},20,10,30,1,1,1", detections=None, digits=6, first_id=1, **info):
    """A sequence of two people, its rows written by these templates; `info` changes seqinfo.ini, None leaves out."""
    (folder / "img1").mkdir(parents=True)
    for number in range(1, COUNT + 1):
        cv2.imwrite(str(folder / "img1" / f"{number:0{digits}d}.jpg"), np.full((HEIGHT, WIDTH, 3), 90, np.uint8))
    lines = {key: value for key, value in ({"name": folder.name, "imDir": "img1"} | INFO | info).items() if value}
    (folder / "seqinfo.ini").write_text("[Sequence]\n" + "".join(f"{key}={value}\n" for key, value in lines.items()))
    for name, template in (("gt", truth), ("det", detections)):
        if template is not None:
            (folder / name).mkdir()
            rows = [
                template.format(frame=frame, id=first_id + person, x=10 + 50 * person + frame)
                for person in range(2)
                for frame in range(1, COUNT + 1)
            ]
            (folder / name / f"{name}.txt").write_text("\n".join(rows) + "\n")
    return folder


def mot17(root):
    for detector, template in (
        ("DPM", "{frame},-1,{x},20,10,30,1.5,-1,-1,-1"),
        ("FRCNN", "{frame},-1,{x},20,10,30,0.75"),
        ("SDP", "{frame},-1,{x},20,10,30,0.5"),
    ):
        sequence(root / "train" / f"MOT17-02-{detector}", detections=template)
        sequence(root / "test" / f"MOT17-01-{detector}", truth=None, detections=template)


def dancetrack(root):
    sequence(root / "val" / "dancetrack0004", digits=8)
    sequence(root / "test" / "dancetrack0003", truth=None, digits=8)
    (root / "val_seqmap.txt").write_text("name\ndancetrack0004\n")


def sportsmot(root):
    sequence(root / "dataset" / "train" / "v_-6Os86HzwCs_c001", "{frame}, {id}, {x}, 20, 10, 30, 1, 1, 1", first_id=0)
    (root / "splits_txt").mkdir()


def soccernet(root):
    for name, template in (("SNMOT-060", "{frame},-1,{x},20,10,30,1,-1,-1,-1"), ("SNMOT-061", None)):
        folder = sequence(root / "train" / name, "{frame},{id},{x},20,10,30,1,-1,-1,-1", template)
        (folder / "gameinfo.ini").write_text("[Sequence]\nname=SNMOT-060\ntrackletID_1= player team left;10\n")


LAYOUTS = {
    "MOT17": (mot17, {"MOT17-02-DPM": False, "MOT17-02-FRCNN": False, "MOT17-02-SDP": False}),
    "DanceTrack": (dancetrack, {"dancetrack0004": True}),
    "SportsMOT": (sportsmot, {"v_-6Os86HzwCs_c001": True}),
    "SoccerNet": (soccernet, {"SNMOT-060": False, "SNMOT-061": True}),
}


@pytest.mark.parametrize(("create", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_published_set_is_read_as_it_is(tmp_path, create, expected, capsys):
    create(tmp_path)
    recordings = list(on_disk(tmp_path, "*", None))
    assert {recording.name: recording.oracle for recording in recordings} == expected
    for recording in recordings:
        assert (recording.fps, recording.size, len(recording.truth)) == (30, (WIDTH, HEIGHT), COUNT)
        for number, (rows, truth) in enumerate(zip(recording.rows, recording.truth, strict=True), 1):
            np.testing.assert_array_equal(
                rows[:, :4], [[10 + number, 20, 20 + number, 50], [60 + number, 20, 70 + number, 50]]
            )
            np.testing.assert_array_equal(truth.boxes, rows[:, :4])
            assert truth.counts.all()
        shown = list(recording.frames())
        assert [len(frame.detections) for frame in shown] == [2] * COUNT
        assert all(frame.surface is not None for frame in shown)
    said = capsys.readouterr().out
    for name, oracle in expected.items():
        assert (f"{name}: no " in said) == oracle


def test_sequences_without_ground_truth_are_counted(tmp_path, capsys):
    mot17(tmp_path)
    assert [recording.name for recording in on_disk(tmp_path, "*-FRCNN", None)] == ["MOT17-02-FRCNN"]
    assert "sequences without ground truth, gt/gt.txt, are left out: 1" in capsys.readouterr().out


def test_scores_that_are_not_shares_are_taken_as_logits(tmp_path, capsys):
    mot17(tmp_path)
    scores = {recording.name: recording.rows[0][:, 4].round(3).tolist() for recording in on_disk(tmp_path, "*", None)}
    assert scores == {"MOT17-02-DPM": [0.818] * 2, "MOT17-02-FRCNN": [0.75] * 2, "MOT17-02-SDP": [0.5] * 2}
    assert "det.txt: scores from 1.5 to 1.5 are taken as logits" in capsys.readouterr().out


def test_boxes_of_the_truth_are_those_that_count(tmp_path):
    """Rows of MOT17 that are marked 0, or are of other classes, are no detections."""
    folder = sequence(tmp_path / "a")
    rows = ("1,1,10,20,10,30,1,1,1", "1,2,40,20,10,30,0,1,1", "1,3,70,20,10,30,1,8,1", "2,1,11,20,10,30,1,1,1")
    (folder / "gt" / "gt.txt").write_text("\n".join(rows))
    (recording,) = on_disk(tmp_path, "*", None)
    assert [rows.tolist() for rows in recording.rows[:3]] == [[[10, 20, 20, 50, 1, 0]], [[11, 20, 21, 50, 1, 0]], []]


@pytest.mark.parametrize("name", ["a.txt", "a/det.txt", "a/det/det.txt"])
def test_other_detections_are_taken_from_a_folder(tmp_path, name):
    sequence(tmp_path / "set" / "a", detections="{frame},-1,{x},20,10,30,0.5")
    file = tmp_path / "yolox" / name
    file.parent.mkdir(parents=True)
    file.write_text("2,-1,1,2,3,4,0.7\n")
    (recording,) = on_disk(tmp_path / "set", "*", tmp_path / "yolox")
    assert recording.rows[1].tolist() == [[1, 2, 4, 6, 0.7, 0]]
    assert not recording.oracle


def test_a_sequence_without_its_file_of_detections_is_left_out(tmp_path, capsys):
    sequence(tmp_path / "set" / "a")
    (tmp_path / "yolox").mkdir()
    assert list(on_disk(tmp_path / "set", "*", tmp_path / "yolox")) == []
    assert "a: left out: there is none of a.txt, a/det.txt, a/det/det.txt in --detections" in capsys.readouterr().out


def remove_pictures(folder, count):
    for path in picture_files(folder / "img1")[:count]:
        path.unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: remove_pictures(folder, COUNT), "a: there are no pictures in "),
        (lambda folder: remove_pictures(folder, 2), "img1 has 3 pictures of 5 frames"),
        (
            lambda folder: cv2.imwrite(str(folder / "img1" / "000001.jpg"), np.zeros((50, 70, 3), np.uint8)),
            "000001.jpg has 70x50 pixels, and seqinfo.ini says 160x90",
        ),
    ],
    ids=["none", "too few", "another size"],
)
def test_pictures_that_do_not_fit_are_left_out(tmp_path, change, message, capsys):
    change(sequence(tmp_path / "a"))
    (recording,) = on_disk(tmp_path, "*", None)
    assert recording.pictures is None
    said = capsys.readouterr().out
    assert message in said
    assert "no tracker compensates the motion of the camera there" in said


def test_files_of_a_system_are_no_pictures(tmp_path):
    folder = sequence(tmp_path / "a")
    for name in ("Thumbs.db", ".DS_Store", "._000001.jpg"):
        (folder / "img1" / name).write_bytes(b"x")
    (recording,) = on_disk(tmp_path, "*", None)
    assert len(list(recording.frames())) == COUNT


def test_what_seqinfo_lacks_is_taken_from_the_pictures(tmp_path, capsys):
    sequence(tmp_path / "a", seqLength=None, imWidth=None, imHeight=None, frameRate=None)
    (recording,) = on_disk(tmp_path, "*", None)
    assert (recording.fps, recording.size, len(recording.rows)) == (25, (WIDTH, HEIGHT), COUNT)
    assert "a: seqinfo.ini has no frameRate: 25 frames a second are assumed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("gt/gt.txt", "", "gt.txt is empty"),
        ("gt/gt.txt", "frame;id\n", "gt.txt is not a file of MOTChallenge: could not convert"),
        ("gt/gt.txt", "1,1,2,3\n", "gt.txt is not a file of MOTChallenge: it has 4 columns of at least 7"),
        ("det/det.txt", "1,-1,2,3\n", "det.txt is not a file of MOTChallenge: it has 4 columns of at least 7"),
        ("seqinfo.ini", "name=a\n", "File contains no section headers"),
        ("img1/000001.jpg", "no picture", "000001.jpg is not a picture that OpenCV reads"),
    ],
)
def test_a_broken_file_leaves_out_its_sequence_and_no_other(tmp_path, file, text, message, capsys):
    for name in ("a", "b"):
        sequence(tmp_path / name, detections="{frame},-1,{x},20,10,30,0.5")
    (tmp_path / "a" / file).write_text(text)
    assert [recording.name for recording in on_disk(tmp_path, "*", None)] == ["b"]
    said = capsys.readouterr().out
    assert "a: left out: " in said
    assert message in said


def test_a_folder_without_sequences_says_what_it_looked_for(tmp_path):
    def message(folder, pattern="*", detections=None):
        with pytest.raises(FileNotFoundError) as error:
            list(on_disk(folder, pattern, detections))
        return str(error.value)

    assert "there is no such folder" in message(tmp_path / "none")
    assert "each is a folder with seqinfo.ini, gt/gt.txt and img1" in message(tmp_path)
    sequence(tmp_path / "test" / "a", truth=None)
    assert "no sequence there has ground truth, gt/gt.txt, of 1; splits named test have none" in message(tmp_path)
    assert "--only-matching b* matches none of its sequences, such as a" in message(tmp_path, "b*")
    assert "--detections " in message(tmp_path, detections=tmp_path / "none")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("MOT17/train", "MOT17 train"),
        ("MOT17", "MOT17"),
        ("sportsmot/dataset/val", "sportsmot val"),
        ("SNMOT/tracking", "tracking"),
    ],
)
def test_a_set_is_named_after_its_folder_and_its_split(tmp_path, folder, name):
    assert set_name(tmp_path / folder) == name
