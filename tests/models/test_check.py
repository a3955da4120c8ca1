import dataclasses
from pathlib import Path

import numpy as np
import pytest

from streamkit.data import Device
from streamkit.errors import ModelError, SourceError
from streamkit.models import reference
from streamkit.models.card import Card, find_card, list_cards, load_card
from streamkit.models.check import check, frames_of

FILES = {
    "yolox-nano": "yolox_nano_dyn.onnx",
    "yolov8n": "yolov8n_640_deq_dyn.onnx",
    "deimv2-atto": "deimv2_hgnetv2_atto_coco.onnx",
    "yunet": "yunet_n_dynamic.onnx",
}
AT_HAND = [path for path in list_cards() if load_card(path).file.is_file()]


def card_of(name: str, test_data: Path) -> Card:
    return load_card(find_card(name)).with_file(test_data / "models" / FILES[name])


@pytest.fixture(scope="module")
def frames(test_data):
    odd = test_data / "coco" / "val2017" / "000000000139.jpg"
    pictures = [odd] if odd.is_file() else sorted((test_data / "coco" / "val2017").glob("*.jpg"))[:1]
    return frames_of([test_data / "videos" / "carnd_test_video.mp4", *pictures], 3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", FILES)
def test_the_test_datas_networks_pass(name, device, frames, test_data):
    report = check(card_of(name, test_data), frames, Device(device))
    assert report.passed, str(report)
    assert report.frames == len(frames)
    assert report.objects
    assert str(report).endswith("passed")


@pytest.mark.parametrize("path", AT_HAND, ids=lambda path: path.stem)
def test_every_card_whose_file_is_at_hand_passes(path, frames):
    report = check(load_card(path), frames)
    assert report.passed, str(report)


def test_a_wrong_tensor_is_found(frames, test_data, monkeypatch):
    from streamkit.ops import preprocess as module

    right = module.preprocess

    def brighter(*args, **options):
        tensor, geometry = right(*args, **options)
        return tensor + np.float32(2), geometry

    monkeypatch.setattr(module, "preprocess", brighter)
    report = check(card_of("yolox-nano", test_data), frames)
    assert not report.passed
    assert report.tensor_max == pytest.approx(2, abs=0.01)
    assert str(report).endswith("FAILED")


@pytest.mark.parametrize("column", ["xyxy", "score", "class_id"])
def test_wrong_objects_are_found(column, frames, test_data, monkeypatch):
    from streamkit.models import families

    right = families.unpack

    def wrong(*args):
        table = right(*args)
        change = {"xyxy": 3.0, "score": -0.02, "class_id": 1}[column]
        return table.with_columns(**{column: getattr(table, column) + np.asarray(change, getattr(table, column).dtype)})

    monkeypatch.setattr(families, "unpack", wrong)
    report = check(card_of("yolox-nano", test_data), frames)
    assert not report.passed
    assert report.tensor_max < 0.01
    assert report.same < 0.9


def test_a_missed_object_is_found(frames, test_data, monkeypatch):
    from streamkit.models import families

    right = families.unpack
    monkeypatch.setattr(families, "unpack", lambda *args: right(*args)[1:])
    assert not check(card_of("yolox-nano", test_data), frames).passed


def test_a_network_that_does_not_fit(frames, test_data):
    card = dataclasses.replace(card_of("yolox-nano", test_data), labels=("a",))
    with pytest.raises(ModelError, match="the label list has 1"):
        check(card, frames)
    with pytest.raises(ModelError, match="no frames"):
        check(card_of("yolox-nano", test_data), [])


def test_frames_that_cannot_be_read(tmp_path):
    for name in ("a.mp4", "a.jpg"):
        with pytest.raises(SourceError, match=f"{name} cannot be read"):
            frames_of([tmp_path / name])
    with pytest.raises(SourceError, match=r"^[^\[]*a.mp4 cannot be read: No such file or directory$"):
        frames_of([tmp_path / "a.mp4"])
    for name in ("a.mp4", "a.jpg"):
        (tmp_path / name).write_text("no video, no picture")
        with pytest.raises(SourceError, match=f"{name} cannot be read"):
            frames_of([tmp_path / name])


def test_reference_keeps_the_better_of_two():
    rows = np.array([[0, 0, 10, 10, 0.9, 0], [0, 0, 10, 9, 0.8, 0], [0, 0, 10, 9, 0.7, 1], [20, 0, 30, 10, 0.6, 0]])
    assert reference.overlap(rows[0], rows[1]) == pytest.approx(0.9)
    assert reference.overlap(rows[0], rows[3]) == 0
    assert reference._without_doubles(rows, 0.5)[:, 4].tolist() == [0.9, 0.7, 0.6]
    assert len(reference._without_doubles(rows, 0.95)) == 4
