"""Every format of truth gives the same boxes; a truth that does not fit is one clear message."""

import json

import numpy as np
import pytest

from streamkit.core.errors import ConfigError
from streamkit.evaluate.boxes import EvaluatedFrame
from streamkit.evaluate.truth import Truth, TruthOptions

# frame, id, class, x1, y1, x2, y2
ROWS = [(0, 1, "car", 64, 36, 128, 72), (0, 2, "person", 320, 180, 352, 252), (2, 1, "car", 96, 36, 160, 72)]
LABELS = ["car", "person"]
W = 640
H = 360


def jsonl(folder):
    path = folder / "truth.jsonl"
    with path.open("w") as file:
        for frame in range(3):
            objects = [{"id": i, "label": c, "box": box} for f, i, c, *box in ROWS if f == frame]
            file.write(json.dumps({"frame": frame, "objects": objects}) + "\n")
    return path


def coco(folder, size=(W, H)):
    images = [{"id": 10 + n, "frame_id": n, "width": size[0], "height": size[1]} for n in range(3)]
    annotations = [
        {"id": n, "image_id": 10 + f, "category_id": LABELS.index(c) + 1, "bbox": [x, y, X - x, Y - y], "track_id": i}
        for n, (f, i, c, x, y, X, Y) in enumerate(ROWS)
    ]
    path = folder / "truth.json"
    categories = [{"id": n, "name": name} for n, name in enumerate(LABELS, 1)]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def mot(folder):
    path = folder / "gt.txt"
    path.write_text(
        "".join(f"{f + 1},{i},{x},{y},{X - x},{Y - y},1,{LABELS.index(c) + 1},1\n" for f, i, c, x, y, X, Y in ROWS)
    )
    return path


def yolo(folder, first=1, names="names: [car, person]\n"):
    (folder / "labels").mkdir()
    (folder / "data.yaml").write_text(names)
    for frame in range(3):
        lines = [
            f"{LABELS.index(c)} {(x + X) / 2 / W} {(y + Y) / 2 / H} {(X - x) / W} {(Y - y) / H} {i}\n"
            for f, i, c, x, y, X, Y in ROWS
            if f == frame
        ]
        (folder / "labels" / f"shot_{frame + first:03}.txt").write_text("".join(lines))
    return folder


def read(path, classes=("car", "person"), sources=("a",), images=None, **options):
    return Truth(TruthOptions(str(path), **options), sources, classes, images=images)


def shown(truth):
    boxes = []
    for frame in range(3):
        xyxy, class_id, track_id, *_ = truth.of("a", frame, W, H)
        boxes += [
            (frame, i, truth.classes[c], *box)
            for i, c, box in zip(track_id.tolist(), class_id.tolist(), np.round(xyxy).tolist(), strict=True)
        ]
    return boxes


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (jsonl, {}),
        (coco, {}),
        (mot, {"labels": ("car", "person")}),
        (yolo, {}),
        (lambda folder: yolo(folder, first=0), {}),
        (lambda folder: yolo(folder, names="names: {0: car, 1: person}"), {}),
    ],
)
def test_every_format_gives_the_same_truth(tmp_path, make, options):
    truth = read(make(tmp_path), **options)
    assert shown(truth) == ROWS
    assert truth.tracked


def test_label_files_beside_images_belong_to_the_images_in_natural_order(tmp_path):
    folder = yolo(tmp_path)
    (folder / "images").mkdir()
    for old, new in zip(sorted((folder / "labels").iterdir()), ("x2", "x10", "x11"), strict=True):
        old.rename(folder / "labels" / f"{new}.txt")
        (folder / "images" / f"{new}.jpg").touch()
    assert shown(read(folder)) == ROWS


def test_a_coco_file_of_several_videos_has_the_frames_of_each(tmp_path):
    whole = json.loads(coco(tmp_path).read_text())
    other = [{**image, "id": image["id"] + 100, "video_id": 2} for image in whole["images"]]
    whole["images"] = [{**image, "video_id": 1} for image in whole["images"]] + other
    whole["videos"] = [{"id": 1, "name": "in/a.mp4"}, {"id": 2, "name": "in/b.mp4"}]
    whole["annotations"] = [{**annotation, "area": None} for annotation in whole["annotations"]]
    (tmp_path / "truth.json").write_text(json.dumps(whole))
    assert shown(read(tmp_path / "truth.json")) == ROWS
    with pytest.raises(ConfigError, match=r"has the videos in/a.mp4, in/b.mp4, and none is 'c'"):
        read(tmp_path / "truth.json", sources=("c",))


def renamed_images(path):
    """The COCO file with images by name, not by number, of which the source lacks the first."""
    whole = json.loads(path.read_text())
    for image in whole["images"]:
        number = image.pop("frame_id")
        image["file_name"] = f"val/shot{number + 8}.jpg"  # 8, 9, 10
    path.write_text(json.dumps(whole))
    return path


def test_images_of_a_folder_are_matched_by_name(tmp_path):
    files = ["in/shot7.jpg", "in/shot9.jpg", "in/shot10.jpg", "in/shot11.jpg"]
    truth = read(renamed_images(coco(tmp_path)), images={"a": files})
    assert shown(truth) == [(2, *ROWS[2][1:])]
    assert [truth.is_labeled("a", frame) for frame in range(4)] == [False, True, True, False]
    assert truth.notes == [f"images of {tmp_path}/truth.json that the source a lacks are left out: 1"]
    with pytest.raises(ConfigError, match=r"none of its images is among the 2 of the source a: .*shot8.jpg.*'x.jpg'"):
        read(tmp_path / "truth.json", images={"a": ["in/x.jpg", "in/y.jpg"]})


def test_yolo_labels_are_matched_by_image_name(tmp_path):
    folder = yolo(tmp_path)
    (folder / "labels").rename(folder / "val")
    (folder / "labels").mkdir()
    (folder / "val").rename(folder / "labels" / "val")
    with pytest.raises(ConfigError, match=r"has folders of label files; name one of them: .*labels/val"):
        read(folder)
    files = ["in/shot_000.jpg", "in/shot_001.jpg", "in/shot_003.jpg"]
    truth = read(folder / "labels" / "val", images={"a": files})
    assert shown(truth) == [(1, *ROWS[0][1:]), (1, *ROWS[1][1:]), (2, *ROWS[2][1:])]
    assert [truth.is_labeled("a", frame) for frame in range(3)] == [False, True, True]
    assert truth.notes == [f"images of {folder}/labels/val that the source a lacks are left out: 1"]
    with pytest.raises(ConfigError, match=r"no label file in .*val has the name of one of the source's 1 images"):
        read(folder / "labels" / "val", images={"a": ["in/x.jpg"]})


def test_the_error_names_the_first_three_label_folders(tmp_path):
    for name in ("val", "train", "test", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a_1.txt").touch()
    names = ", ".join(f"{tmp_path}/{name}" for name in ("more", "test", "train"))
    with pytest.raises(ConfigError, match=rf"has folders of label files; name one of them: {names}$"):
        read(tmp_path)


def test_tracks_are_numbered_from_0(tmp_path):
    truth = read(wrong_yolo("0 0.5 0.5 0.1 0.1 0\n1 0.2 0.2 0.1 0.1 3")(tmp_path))
    _, class_id, track_id, *_ = truth.of("a", 1, W, H)
    assert (class_id.tolist(), track_id.tolist()) == ([0, 1], [0, 3])


def test_a_class_is_renamed_and_the_others_are_noted(tmp_path):
    truth = read(jsonl(tmp_path), classes=("vehicle",), mapping={"car": "vehicle"})
    assert truth.classes == ("vehicle",)
    assert [row[:3] for row in shown(truth)] == [(0, 1, "vehicle"), (2, 1, "vehicle")]
    assert truth.notes == ["class person is not evaluated (1 boxes of the truth): the pipeline has no such class"]


def test_crowds_and_hidden_objects_are_ignore_regions(tmp_path):
    path = coco(tmp_path)
    whole = json.loads(path.read_text())
    whole["annotations"][1] |= {"iscrowd": 1, "area": 700.5}
    path.write_text(json.dumps(whole))
    rows = read(path).of("a", 0, W, H)
    assert rows.ignore.tolist() == [False, True]
    assert np.isnan(rows.area[0])  # that of the box
    assert rows.area[1] == 700.5
    line = {"frame": 0, "objects": [{"id": 1, "label": "car", "box": [0, 0, 9, 9], "visible": 0.2}]}
    (tmp_path / "v.jsonl").write_text(json.dumps(line))
    assert read(tmp_path / "v.jsonl", min_visible=0.3).of("a", 0, W, H).ignore.tolist() == [True]
    assert len(read(tmp_path / "v.jsonl", min_visible=0.3).table("a", 0, W, H)) == 1  # it still crosses lines


def test_an_object_of_exactly_the_minimum_visibility_counts(tmp_path):
    objects = [{"id": i, "label": "car", "box": [0, 0, 9, 9], "visible": share} for i, share in enumerate((0.24, 0.25))]
    (tmp_path / "v.jsonl").write_text(json.dumps({"frame": 0, "objects": objects}))
    assert read(tmp_path / "v.jsonl", min_visible=0.25).of("a", 0, W, H).ignore.tolist() == [True, False]


def test_unlisted_frames_are_unlabeled(tmp_path):
    truth = read(jsonl(tmp_path))
    assert [truth.is_labeled("a", frame) for frame in (0, 1, 2, 3)] == [True, True, True, False]
    only = read(jsonl(tmp_path), only_labeled=True)
    assert [only.is_labeled("a", frame) for frame in (0, 1, 2, 3)] == [True, False, True, False]


def frames(count, width=W, height=H):
    return [EvaluatedFrame("a", n, n / 25, width, height) for n in range(count)]


def test_frames_beyond_the_end_are_refused_unless_the_run_is_limited(tmp_path):
    truth = read(mot(tmp_path), labels=("car", "person"))
    truth.check_frames(frames(3), whole=True)
    truth.check_frames(frames(2), whole=False)
    with pytest.raises(
        ConfigError, match="boxes up to frame 2, counted from 0, but the source a ends with frame 1: 1 "
    ):
        truth.check_frames(frames(2), whole=True)


def test_boxes_of_another_size_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"outside of the frames of a: they reach x=352, y=252, .* is 160x90"):
        read(mot(tmp_path), labels=("car", "person")).check_frames(frames(3, 160, 90), whole=True)
    with pytest.raises(ConfigError, match=r"truth of a video of 1920x1080 \(frame 0\), but the source a has 640x360"):
        read(coco(tmp_path, (1920, 1080))).of("a", 0, W, H)


def wrong_yolo(text):
    def make(folder):
        yolo(folder)
        (folder / "labels" / "shot_002.txt").write_text(text)
        return folder

    return make


def text_file(name, text):
    def make(folder):
        (folder / name).write_text(text)
        return folder / name

    return make


def coco_with(**parts):
    whole = {"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1, "name": "car"}], **parts}
    return text_file("t.json", json.dumps(whole))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (
            jsonl,
            {"classes": ("truck", "bus")},
            "no class in common: the truth has car, person; the pipeline finds "
            "truck, bus. Rename them with --map, as in --map car=truck",
        ),
        (jsonl, {"mapping": {"cra": "car"}}, "--map cra: the truth has no class 'cra'; did you mean 'car'"),
        (jsonl, {"mapping": {"car": "cra"}}, "--map car=cra: the pipeline has no class 'cra'; did you mean 'car'"),
        (jsonl, {"sources": ("a", "b")}, r"is one file, and the pipeline has 2 sources \(a, b\); write \{source\}"),
        (jsonl, {"labels": ("car",)}, "--labels names the classes of MOTChallenge and YOLO"),
        (mot, {}, "class 2 has no name: .* as in --labels pedestrian,car"),
        (lambda folder: folder / "none.json", {}, "there is no file .*none.json"),
        (lambda folder: folder, {}, "has no label files: a YOLO folder has"),
        (lambda folder: yolo(folder) / "labels" / "shot_001.txt", {}, "YOLO labels of one frame; give the folder"),
        (text_file("p.mp4", "x"), {}, "a truth is a .jsonl, a COCO .json, a MOTChallenge gt.txt or a YOLO folder"),
        (text_file("t.json", "{}"), {}, "a COCO file must have images, annotations and categories"),
        (text_file("t.jsonl", ""), {}, "has no box"),
        (text_file("t.jsonl", '{"frame": 0, "objects": []}\n' * 2), {}, "t.jsonl:2:1: frame 0 is there twice"),
        (text_file("t.jsonl", '{"frame": 0, "width": "w", "height": 1, "objects": []}'), {}, "width and height must"),
        (coco_with(images=[{"file_name": "a"}]), {}, "entry 1 of images must have id, a number or a text"),
        (coco_with(images={"a": 1}), {}, "images must be a list"),
        (coco_with(images=[{"id": 1}, {"id": 1}]), {}, "two entries of images have the same id"),
        (coco_with(images=[{"id": 1, "frame_id": 0}, {"id": 2, "frame_id": 0}]), {}, "have the same frame_id 0"),
        (coco_with(images=[{"id": 1, "width": "w", "height": 1}]), {}, "t.json: width and height of the image 1 must"),
        (coco_with(categories=["car"]), {}, "entry 1 of categories must have id"),
        (coco_with(categories=[{"id": 1}]), {}, "entry 1 of categories must have name"),
        (coco_with(annotations=[3]), {}, "annotation 1 needs image_id"),
        (wrong_yolo("0 0.5 0.5 0.1"), {}, "shot_002.txt:1:1: a line must have the 5 numbers"),
        (wrong_yolo("0 0.5 0.5 0.1 0.1 0.2 0.2"), {}, "polygons of segments cannot be used"),
        (wrong_yolo("0 320 180 64 36"), {}, "must be shares of the frame, 0 to 1"),
        (wrong_yolo("0 0.5 0.5 0.1 0.1 -2"), {}, "shot_002.txt:1:1: .* must be a track id, a whole number, got -2"),
        (wrong_yolo("0 0.5 0.5 0.1 0.1 1.5"), {}, "must be a track id, a whole number, got 1.5"),
        (wrong_yolo("9 0.5 0.5 0.1 0.1"), {}, r"class 9 has no name: there are 2 \(car, person\)"),
        (lambda folder: yolo(folder, first=0), {"first_frame": 1}, "frame 0, before --first-frame 1"),
        (lambda folder: yolo(folder, names="nc: 2"), {}, "data.yaml must have names"),
    ],
)
def test_an_invalid_truth_gives_a_single_message_with_the_fix(tmp_path, make, options, message):
    with pytest.raises(ConfigError, match=message):
        read(make(tmp_path), **options)
