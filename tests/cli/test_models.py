"""The command `models`: derived cards, written cards, and the picture of a check."""

import json
import shutil

import cv2
import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.models.card import load_card
from streamkit.models.derive import open_model

META = {"task": "detect", "names": "{0: 'cat', 1: 'dog'}", "stride": "32", "imgsz": "[640, 640]"}


@pytest.fixture
def demo(root, tmp_path):
    """A folder with a network, its labels, and a picture of a street."""
    shutil.copy(root / "models" / "demo.onnx", tmp_path / "best.onnx")
    (tmp_path / "labels.txt").write_text("car\nperson\nbike\n")
    video = cv2.VideoCapture(str(root / "samples" / "street.mp4"))
    assert cv2.imwrite(str(tmp_path / "street.png"), video.read()[1])
    video.release()
    return tmp_path


def test_new_writes_a_card_that_equals_the_derived_one(here, demo):
    completed = here("models", "new", "best.onnx", cwd=demo)
    assert (completed.returncode, completed.stdout) == (0, "best.yaml: detect, family yolov8, 640x384, 3 classes\n")
    written = load_card(demo / "best.yaml")
    derived = open_model("best.onnx", demo)
    assert (written.input, written.labels, written.family) == (derived.input, derived.labels, derived.family)
    assert (written.score, written.iou, written.task) == (derived.score, derived.iou, derived.task)
    text = (demo / "best.yaml").read_text()
    assert "labels: [car, person, bike]       # labels.txt\n" in text
    assert "  resize: letterbox                 # YOLOv8, v9, v11, v12: the authors' input\n" in text


def test_new_replaces_a_card_only_on_request(here, demo):
    (demo / "best.yaml").write_text("mine")
    completed = here("models", "new", "best.onnx", cwd=demo)
    assert completed.returncode == 2
    assert "best.yaml exists; write another file with --out, or replace it with --force" in completed.stderr
    assert (demo / "best.yaml").read_text() == "mine"
    assert here("models", "new", "best.onnx", "--force", cwd=demo).returncode == 0
    assert here("models", "new", "best.onnx", "--out", "cards/other.yaml", cwd=demo).returncode == 0
    assert load_card(demo / "cards" / "other.yaml").file == (demo / "best.onnx").resolve()


def test_new_lists_its_assumptions(here, tmp_path):
    shaped(tmp_path / "net.onnx", {"o": ["N", 2]}, image=["N", 3, 224, 224])
    (tmp_path / "names.txt").write_text("cat\ndog")
    completed = here("models", "new", "net.onnx", "--family", "logits", "--labels", "names.txt", cwd=tmp_path)
    assert completed.returncode == 0
    assert "check     no source says input.resize, input.color, input.scale, input.mean, input.std" in completed.stdout
    assert "# CHECK: no source says" in (tmp_path / "net.yaml").read_text()


def test_a_resize_that_differs_from_the_authors_is_reported(here, demo):
    outputs = {"logits": ["N", 100, 2], "pred_boxes": ["N", 100, 4]}
    shaped(demo / "net.onnx", outputs, image=["N", 3, 64, 64])
    config = {"architectures": ["RTDetrForObjectDetection"], "id2label": {"0": "cat", "1": "dog"}}
    (demo / "config.json").write_text(json.dumps(config))
    (demo / "preprocessor_config.json").write_text('{"size": {"height": 64, "width": 64}, "resample": 3}')
    (demo / "labels.txt").unlink()
    (demo / "p.yaml").write_text("sources: {s: street.png}\nstages:\n  detect: {model: net.onnx}\n")
    for words in (("models", "new", "net.onnx"), ("models", "check", "net.onnx", "street.png"), ("p.yaml",)):
        completed = here(*words, cwd=demo)
        assert completed.returncode == 0, completed.stderr
        assert (
            "preprocessor_config.json resizes with the bicubic filter (resample: 3)"
            in completed.stdout + completed.stderr
        )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("new", "nets.onnx"), "there is no file nets.onnx; did you mean 'net.onnx'?"),
        (("new", "net.onnx", "--size", "640"), "--size 640: write WIDTHxHEIGHT in pixels, such as 640x640"),
        (("new", "net.onnx", "--out", "card.txt"), "--out card.txt must end in .yaml"),
        (("new", "net.onnx", "--labels", "none.txt"), "--labels none.txt is neither a file nor a known list"),
        (("pull", "net.onnx"), "'net.onnx' is a network, not a card. model: net.onnx takes it as it is"),
        (("check", "net.onnx", "--draw", "out.jpg"), "--draw out.jpg must end in .png"),
        (("check", "color", "--draw", "out.png"), "--draw is for objects with boxes, and color has task classify"),
    ],
)
def test_invalid_arguments_are_refused(words, expected, here, tmp_path):
    shaped(tmp_path / "net.onnx", {"o": ["N", 6, 8400]}, metadata=META)
    completed = here("models", *words, cwd=tmp_path)
    assert completed.returncode == 2
    assert expected in completed.stderr
    assert "Traceback" not in completed.stderr


def test_check_draws_the_objects_of_a_derived_card(here, demo):
    completed = here("models", "check", "best.onnx", "street.png", "--draw", "out.png", cwd=demo)
    assert completed.returncode == 0, completed.stderr
    *_, passed, drawn = completed.stdout.splitlines()
    assert passed == "passed"
    assert drawn.startswith("drawn     out.png: frame 1 of 1, ")
    assert "person" in drawn
    before, after = (cv2.imread(str(demo / name)).astype(int) for name in ("street.png", "out.png"))
    assert before.shape == after.shape
    changed = (np.abs(before - after).max(axis=2) > 60).mean()
    assert 0.005 < changed < 0.2
    assert not list(demo.glob(".*part"))


def test_check_hints_at_a_broken_card(here, demo, root):
    here("models", "new", "best.onnx", cwd=demo)
    text = (demo / "best.yaml").read_text()
    (demo / "best.yaml").write_text(text.replace("color: rgb", "color: bgr"))
    completed = here("models", "check", "best.yaml", root / "samples" / "street.mp4", cwd=demo)
    assert completed.returncode == 0
    assert "\nhint      input.color: rgb fits better than bgr: " in completed.stdout


def test_a_pipeline_runs_a_network_without_a_card(here, demo, root):
    (demo / "p.yaml").write_text(
        f"sources: {{s: {{uri: {root}/samples/street.mp4, end: 0.4s}}}}\n"
        "stages:\n  detect: {model: best.onnx, min_score: 0.35}\n  jsonl: {path: out.jsonl}\n"
    )
    assert here("check", "p.yaml", cwd=demo).returncode == 0
    assert here("p.yaml", cwd=demo).returncode == 0
    with_card = (demo / "p.yaml").read_text().replace("best.onnx", "demo").replace("out.jsonl", "demo.jsonl")
    (demo / "d.yaml").write_text(with_card)
    assert here("d.yaml", cwd=demo).returncode == 0
    assert (demo / "out.jsonl").read_text() == (demo / "demo.jsonl").read_text()


def test_an_underivable_card_is_reported_with_its_position_in_the_yaml(here, tmp_path):
    shaped(tmp_path / "net.onnx", {"o": ["N", 6, 8400]})
    (tmp_path / "p.yaml").write_text("sources: {s: {uri: a.mp4}}\nstages:\n  detect: {model: net.onnx}\n")
    completed = here("check", "p.yaml", cwd=tmp_path)
    assert completed.returncode == 2
    assert "p.yaml:3:19: detect: net.onnx: no source names 2 classes (family yolov8" in completed.stderr


@pytest.fixture
def folder_of_pictures(demo):
    """A folder with 70 small pictures and a file of another kind."""
    folder = demo / "pictures"
    folder.mkdir()
    picture = cv2.resize(cv2.imread(str(demo / "street.png")), (32, 32))
    for number in range(70):
        assert cv2.imwrite(str(folder / f"{number}.png"), picture)
    (folder / "notes.txt").write_text("Tuesday")
    return folder


def test_check_takes_a_folder_of_images(here, demo, root, folder_of_pictures):
    shutil.copy(root / "models" / "color.onnx", demo)
    shutil.copy(root / "models" / "color.yaml", demo)
    for path in list(folder_of_pictures.glob("[0-9]?.png"))[2:]:
        path.unlink()
    completed = here("models", "check", "color.yaml", "pictures", "street.png", cwd=demo)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "frames    13\n" in completed.stdout  # 0.png to 9.png, two more, and street.png


def test_check_reports_that_it_samples_a_large_folder(here, demo, root, folder_of_pictures):
    shutil.copy(root / "models" / "color.onnx", demo)
    shutil.copy(root / "models" / "color.yaml", demo)
    completed = here("models", "check", "color.yaml", "pictures", cwd=demo)
    assert completed.stdout.startswith("note      pictures: 35 of 70 images are compared\n")
    assert "frames    35\n" in completed.stdout


def test_check_of_a_folder_without_images_names_it(here, demo):
    (demo / "empty").mkdir()
    completed = here("models", "check", "demo", "empty", cwd=demo)
    assert completed.returncode == 1
    assert "empty: the folder contains no videos or images; put some there" in completed.stderr
