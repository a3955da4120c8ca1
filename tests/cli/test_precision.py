"""`models quantize` and `models convert`: what they write, say and refuse."""

import json

import pytest
from support.commands import Here

pytest.importorskip("onnx")


def test_quantize_writes_a_card_that_runs(root, here: Here, tmp_path):
    street = root / "samples" / "street.mp4"
    completed = here("models", "quantize", "demo", street, "--frames", "16", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo_int8.onnx", "demo_int8.yaml"]
    assert "wrote " in completed.stdout
    assert "AP         1.000 -> " in completed.stdout
    completed = here("models", "check", "demo_int8", street, cwd=tmp_path)
    assert completed.returncode == 0, completed.stdout
    again = here("models", "quantize", "demo", street, "--frames", "16", cwd=tmp_path)
    assert again.returncode == 1
    assert "demo_int8.yaml exists; replace it with --overwrite, or name another card with --out" in again.stderr
    (tmp_path / "demo_int8.yaml").write_text("old")
    again = here("models", "quantize", "demo", street, "--frames", "16", "--overwrite", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "file: demo_int8.onnx" in (tmp_path / "demo_int8.yaml").read_text()


def test_a_refusal_exits_with_1_and_writes_nothing(root, here: Here, tmp_path):
    street = root / "samples" / "street.mp4"
    completed = here("models", "quantize", "demo", street, "--frames", "16", "--max-loss", "0", cwd=tmp_path)
    assert completed.returncode == 1
    assert "(at most 0, --max-loss)\nREFUSED: it loses more than allowed, and nothing is written" in completed.stdout
    assert list(tmp_path.iterdir()) == []


def test_convert_needs_no_clips(here: Here, tmp_path):
    completed = here("models", "convert", "demo", "--f16", "--frames", "8", "--out", "sub/half.yaml", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == ["half.onnx", "half.yaml"]
    assert "compare speed and results on the GPU with --device cuda" in completed.stderr


@pytest.fixture
def stills(root, tmp_path):
    """A folder of frames of the street as images, and ground truth for half of them: nothing is in them."""
    import cv2

    folder = tmp_path / "images"
    folder.mkdir()
    capture = cv2.VideoCapture(str(root / "samples" / "street.mp4"))
    for number in range(20):
        cv2.imwrite(str(folder / f"{number}.jpg"), capture.read()[1])
    images = [{"id": number, "file_name": f"{number}.jpg"} for number in range(0, 20, 2)]
    box = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [0, 0, 40, 40], "area": 1600, "iscrowd": 0}
    truth = {"images": images, "annotations": [box], "categories": [{"id": 1, "name": "car"}]}
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    return folder


def test_ground_truth_is_compared_on_its_images(here: Here, stills, tmp_path):
    completed = here(
        "models",
        "quantize",
        "demo",
        "--data",
        stills,
        "--truth",
        tmp_path / "truth.json",
        "--frames",
        "16",
        "--out",
        tmp_path / "x.yaml",
        cwd=tmp_path,
    )
    assert completed.returncode == 0, completed.stderr
    assert "with ranges from 8 frames" in completed.stdout
    assert "objects in 10 frames" in completed.stdout
    assert "against ground truth" in completed.stdout
    assert "come from images that AP is measured on" not in completed.stderr


def test_calibration_on_the_compared_images_is_reported(here: Here, stills, tmp_path):
    for number in range(1, 20, 2):
        (stills / f"{number}.jpg").unlink()
    completed = here("models", "quantize", "demo", "--data", stills, "--truth", tmp_path / "truth.json", cwd=tmp_path)
    assert "the ranges of values come from images that AP is measured on; name other clips too" in completed.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("quantize", "demo"), 2, "name clips, images or folders that show what the network will see"),
        (("quantize", "demo", "no.mp4"), 1, "there is no file or folder no.mp4"),
        (("quantize", "demo", "text.mp4"), 1, "text.mp4"),
        (("quantize", "demo", "empty"), 1, "empty: the folder contains no videos or images; put some there"),
        (("quantize", "demo", "STREET", "--frames", "10"), 2, "int8 needs at least 8 frames for the ranges of its"),
        (("quantize", "yolox-s", "STREET"), 2, ".onnx does not exist; fetch it with: streamkit models pull"),
        (("quantize", "color", "STREET"), 2, "color.onnx has 1 convolution"),
        (("quantize", "deno", "STREET"), 2, "did you mean 'demo'?"),
        (("quantize", "demo", "STREET", "--truth", "no.json"), 2, "no.json"),
        (("quantize", "demo", "STREET", "--out", "x.onnx"), 2, "--out x.onnx is the card: give it the suffix .yaml"),
        (("convert", "demo"), 2, "name the precision: --f16, or use: streamkit models quantize"),
        (("convert", "demo", "--f16", "--device", "cuda"), 2, "cuda"),
    ],
)
def test_invalid_input_gives_a_single_message(root, here: Here, tmp_path, words, code, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.mp4").write_text("no video")
    words = [str(root / "samples" / "street.mp4") if word == "STREET" else word for word in words]
    completed = here("models", *words, cwd=tmp_path)
    assert message in completed.stderr
    assert completed.returncode == code
    assert "Traceback" not in completed.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "text.mp4"]


@pytest.mark.parametrize("command", ["quantize", "convert"])
def test_a_network_that_takes_clips_is_refused(command, root, here: Here, tmp_path):
    options = ["--f16"] if command == "convert" else []
    completed = here("models", command, "activity", root / "samples" / "street.mp4", *options, cwd=tmp_path)
    assert completed.returncode == 2
    assert "activity takes clips, and a network is converted with single images" in completed.stderr
    assert list(tmp_path.iterdir()) == []
