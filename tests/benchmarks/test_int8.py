import statistics

import pytest

from benchmarks.int8 import RATIOS, SIDES, rates, ratios
from streamkit.core.data import Device
from streamkit.media.spread_frames import spread_frames
from streamkit.models.card import find_card, load_card
from streamkit.models.int8 import int8_instructions
from streamkit.models.network import check_model
from streamkit.models.precision import PrecisionRequest, quantize_card

pytest.importorskip("onnx")


def int8_card(card, clips, folder):
    frames = spread_frames([], clips, 24)
    report = quantize_card(PrecisionRequest(card, folder / "int8.yaml", frames[::2], frames[1::2], Device(), None, 0.1))
    assert report.card is not None
    return report.card


@pytest.mark.long
def test_every_side_is_measured(root, tmp_path):
    street = root / "samples" / "street.mp4"
    card_path = int8_card(load_card(root / "models" / "demo.yaml"), [street], tmp_path)
    side_rates = rates(root / "models" / "demo.yaml", card_path, street, frames=4, rounds=2)
    assert [(side, len(values)) for side, values in side_rates.items()] == [(side, 2) for side in SIDES]
    assert all(value > 0 for values in side_rates.values() for value in values)
    assert ratios(side_rates).keys() == RATIOS.keys()
    assert (
        ratios(side_rates)["network, int8 to f32"][1] == side_rates["network, int8"][1] / side_rates["network, f32"][1]
    )


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.alone
def test_yolov8_in_int8_keeps_its_speed(test_data, tmp_path):
    """docs/quantize.md has the figures."""
    if int8_instructions() == "no VNNI":
        pytest.skip("the figures are of processors with VNNI")
    card = check_model(load_card(find_card("yolov8n")).with_file(test_data / "models" / "yolov8n_640_deq_dyn.onnx"))
    text = card.path.read_text().replace("file: yolov8n.onnx", f"file: {card.file}")
    (tmp_path / "f32.yaml").write_text(text)
    video = test_data / "videos" / "vtest_480x360.mp4"
    card_path = int8_card(card, [video, test_data / "videos" / "carnd_test_video.mp4"], tmp_path)
    side_rates = rates(tmp_path / "f32.yaml", card_path, video, frames=80, rounds=3)
    median_ratios = {name: statistics.median(values) for name, values in ratios(side_rates).items()}
    assert median_ratios["network, int8 to f32"] >= 1.6
    assert median_ratios["pipeline int8 to plain loop f32"] >= 1.5
