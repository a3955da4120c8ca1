"""AP of int8 and f16 networks on COCO images, with ranges from other clips; see test_accuracy.py."""

import pytest

from streamkit.core.data import Device
from streamkit.media.spread_frames import spread_frames, still_frames
from streamkit.models.card import Card, find_card, load_card
from streamkit.models.card_comparison import read_truth
from streamkit.models.network import check_model
from streamkit.models.precision import PrecisionRequest, convert_card, quantize_card

pytest.importorskip("onnx")
FILES = {
    "yolov8n": "yolov8n_640_deq_dyn.onnx",
    "yolox-nano": "yolox_nano_dyn.onnx",
    "deimv2-atto": "deimv2_hgnetv2_atto_coco.onnx",
}


@pytest.fixture(scope="module")
def clips(test_data):
    names = ("carnd_test_video.mp4", "ahmetozlu_pedestrian.mp4", "vtest_480x360.mp4", "car-detection.mp4")
    return spread_frames([], [test_data / "videos" / name for name in names], 32)


def card_of(name: str, test_data) -> Card:
    return check_model(load_card(find_card(name)).with_file(test_data / "models" / FILES[name]))


def with_truth(name: str, out, clips, test_data, images: int) -> PrecisionRequest:
    """What to make from the clips, to be compared on the first of COCO's images."""
    card = card_of(name, test_data)
    (annotations,) = (test_data / "coco" / "annotations").glob("*.json")
    files = sorted((test_data / "coco" / "val2017").glob("*.jpg"))[:images]
    return PrecisionRequest(card, out, clips[::2], still_frames(files), Device(), read_truth(annotations, card))


@pytest.mark.slow
@pytest.mark.long
def test_yolov8_in_int8_loses_at_most_a_hundredth_of_ap(clips, test_data, tmp_path):
    report = quantize_card(with_truth("yolov8n", tmp_path / "y8.yaml", clips, test_data, 64), reduce_range=False)
    assert report.file is not None
    before, after = report.comparison.ap
    assert before == pytest.approx(0.421, abs=0.012)
    assert after >= before - 0.01
    assert report.comparison.agreement > 0.98
    assert "57 of 63 convolutions" in report.method
    assert "the last 6 and the 24 nodes behind them" in report.method


@pytest.mark.long
def test_a_network_that_loses_accuracy_in_int8_is_refused(clips, test_data, tmp_path):
    card = card_of("yolox-nano", test_data)
    report = quantize_card(PrecisionRequest(card, tmp_path / "x.yaml", clips[::2], clips[1::2], Device()))
    assert report.file is None
    assert report.comparison.loss > 0.1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_transformer_in_f16_keeps_ap(clips, test_data, tmp_path):
    report = convert_card(with_truth("deimv2-atto", tmp_path / "half.yaml", clips[:8], test_data, 24))
    before, after = report.comparison.ap
    assert abs(before - after) < 0.004
    assert report.comparison.agreement > 0.98
    assert report.card is not None
