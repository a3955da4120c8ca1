"""int8 and f16 networks: what they are, that they find the same, and what is refused."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from support.networks import classifier

from streamkit.core.data import Detections, Device, Frame, Surface
from streamkit.core.errors import MissingPackage, ModelError, OutputError
from streamkit.media.spread_frames import spread_frames
from streamkit.models import int8
from streamkit.models.card import load_card
from streamkit.models.card_comparison import calibration_feeds, compare_cards, read_truth
from streamkit.models.check import check, frames_of
from streamkit.models.network import check_model, inspect
from streamkit.models.onnx_graph import is_quantized
from streamkit.models.precision import PrecisionRequest, convert_card, quantize_card
from streamkit.models.session import Session

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def frames(root):
    return spread_frames([], [root / "samples" / "street.mp4"], 16)


@pytest.fixture(scope="module")
def demo(root):
    return load_card(root / "models" / "demo.yaml")


def request_of(card, out, frames, **options):
    return PrecisionRequest(card, out, frames[::2], frames[1::2], Device(), **options)


@pytest.fixture(scope="module")
def int8_demo(demo, frames, tmp_path_factory):
    """The int8 demo network: report and card."""
    out = tmp_path_factory.mktemp("int8") / "demo_int8.yaml"
    report = quantize_card(request_of(demo, out, frames), reduce_range=False)
    return report, check_model(load_card(out))


def batch_of(card, frames):
    return np.concatenate([feed[inspect(card.file).image_input] for feed in calibration_feeds(card, frames)])


# ---------------------------------------------------------------------------------------------------------- int8


def test_an_int8_network_detects_the_objects_of_the_float_network(int8_demo):
    report, _ = int8_demo
    comparison = report.comparison
    assert comparison.objects > 100
    assert comparison.agreement > 0.98
    assert comparison.ap[1] > 0.98
    assert 0 < comparison.score_error < 0.05
    text = str(report)
    assert "26 of 29 convolutions, with ranges from 8 frames; in float: the last 3 and the " in text
    assert f"wrote {report.file} and {report.card}" in text


def test_an_int8_network_uses_integers_except_in_its_last_layers(int8_demo):
    report, card = int8_demo
    graph = onnx.load(card.file).graph
    producers = {output: node for node in graph.node for output in node.output}

    def is_int8(node):
        weight = producers.get(node.input[1])
        return weight is not None and weight.op_type == "DequantizeLinear"

    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert sum(map(is_int8, convolutions)) == 26
    assert is_quantized(card.file)
    assert report.megabytes[1] < 0.6 * report.megabytes[0]
    for graph_output in graph.output:
        assert producers[graph_output.name].op_type != "DequantizeLinear"


def test_batch_sizes_give_the_same_objects(int8_demo, frames):
    _, card = int8_demo
    session = Session(card.file, Device())
    batch = batch_of(card, [*frames, *frames])
    assert session.fixed_batch is None
    assert len(batch) == 32
    (whole,) = session.run({session.image_input: batch}).values()
    for row in (0, 7, 31):
        (alone,) = session.run({session.image_input: batch[row : row + 1]}).values()
        assert np.array_equal(alone[0], whole[row])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_card_passes_its_check_with_any_number_of_threads(threads, int8_demo, frames):
    _, card = int8_demo
    assert check(card, frames[:2]).passed
    batch = batch_of(card, frames[:1])
    single, threaded = (Session(card.file, Device(), threads=n) for n in (1, threads))
    for first, second in zip(
        single.run({single.image_input: batch}).values(),
        threaded.run({threaded.image_input: batch}).values(),
        strict=True,
    ):
        assert np.array_equal(first, second)


@pytest.mark.gpu
def test_the_card_passes_its_check_on_a_gpu(int8_demo, root):
    _, card = int8_demo
    report = check(card, frames_of([root / "samples" / "street.mp4"], 4), Device("cuda"))
    assert report.passed, str(report)


def test_narrow_weights_have_7_bits_and_symmetric_values_no_offset(demo, frames, tmp_path):
    facts = int8.write_int8(demo.file, tmp_path / "n.onnx", calibration_feeds(demo, frames[:8]), reduce_range=True)
    assert "weights of 7 bits" in str(facts)
    weights = [
        onnx.numpy_helper.to_array(initializer)
        for initializer in onnx.load(tmp_path / "n.onnx").graph.initializer
        if initializer.data_type == onnx.TensorProto.INT8 and len(initializer.dims) == 4
    ]
    assert max(np.abs(weight.astype(int)).max() for weight in weights) == 64
    int8.write_int8(demo.file, tmp_path / "s.onnx", calibration_feeds(demo, frames[:8]), symmetric=True)
    graph = onnx.load(tmp_path / "s.onnx").graph
    offsets = [
        onnx.numpy_helper.to_array(initializer)
        for initializer in graph.initializer
        if initializer.name.endswith("_zero_point")
    ]
    assert offsets
    assert not any(offset.any() for offset in offsets)


@pytest.mark.parametrize(
    ("flags", "machine", "narrow", "text"),
    [
        ("avx2 avx512f avx512_vnni", "x86_64", False, "AVX512-VNNI"),
        ("avx2 avx_vnni", "x86_64", False, "AVX-VNNI"),
        ("avx512_vnni amx_int8", "x86_64", False, "AMX and AVX512-VNNI"),
        ("avx2 fma", "x86_64", True, "no VNNI"),
        ("", "x86_64", False, "no VNNI"),
        ("neon", "aarch64", False, "no VNNI"),
    ],
)
def test_weights_are_narrow_where_sums_saturate(flags, machine, narrow, text, monkeypatch):
    monkeypatch.setattr(int8, "processor_flags", lambda: frozenset(flags.split()))
    monkeypatch.setattr(int8.platform, "machine", lambda: machine)
    assert (int8.saturates(), int8.int8_instructions()) == (narrow, text)


def test_an_old_opset_is_raised(frames, tmp_path):
    card = classifier(tmp_path, opset=11)
    report = quantize_card(request_of(card, tmp_path / "new.yaml", frames, max_loss=1.0))
    assert onnx.load(report.file).opset_import[0].version >= 13
    assert report.comparison.ap is None
    assert report.comparison.objects == 8


def test_a_fixed_batch_stays_fixed(frames, tmp_path):
    report = quantize_card(request_of(classifier(tmp_path, batch=3), tmp_path / "new.yaml", frames, max_loss=1.0))
    assert inspect(report.file).batch == 3


# ---------------------------------------------------------------------------------------------------- what is refused


def test_a_network_that_loses_too_much_accuracy_is_not_written(demo, frames, tmp_path):
    """Ranges from gray frames cut off everything."""
    gray = [
        dataclasses.replace(frame, surface=Surface(np.full_like(frame.surface.data, 128), frame.surface.color))
        for frame in frames[::2]
    ]
    out = tmp_path / "bad.yaml"
    report = quantize_card(PrecisionRequest(demo, out, gray, frames[1::2], Device()))
    assert report.file is None
    assert report.comparison.loss > 0.02
    assert "REFUSED: it loses more than allowed, and nothing is written" in str(report)
    assert list(tmp_path.iterdir()) == []


def test_too_few_frames_are_reported_with_the_number(demo, frames, tmp_path):
    with pytest.raises(ModelError, match=r"int8 needs at least 8 frames .*, got 4; .*--frames"):
        quantize_card(request_of(demo, tmp_path / "x.yaml", frames[:8]))


def test_a_quantized_network_is_refused(int8_demo, frames, tmp_path):
    _, card = int8_demo
    with pytest.raises(ModelError, match=r"demo_int8\.onnx is quantized already; name the card of the float network"):
        quantize_card(request_of(card, tmp_path / "x.yaml", frames))
    with pytest.raises(ModelError, match=r"demo_int8\.onnx is quantized; f16 is made from the float network"):
        convert_card(request_of(card, tmp_path / "x.yaml", frames))


def test_a_network_without_convolutions_is_refused(root, frames, tmp_path):
    card = load_card(root / "models" / "color.yaml")
    with pytest.raises(ModelError, match=r"color.onnx has 1 convolution, .*int8 would make nothing faster"):
        quantize_card(request_of(card, tmp_path / "x.yaml", frames))


def test_a_failure_of_the_quantizer_is_reported(frames, tmp_path, monkeypatch):
    card = classifier(tmp_path)

    def broken(*_, **__):
        raise ValueError("a\nreason")

    monkeypatch.setattr("onnxruntime.quantization.quantize_static", broken)
    with pytest.raises(ModelError, match=r"ONNX Runtime cannot quantize small\.onnx: a reason; keep the float network"):
        quantize_card(request_of(card, tmp_path / "x.yaml", frames))


def test_a_missing_package_is_reported_with_the_command(demo, frames, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackage, match=r"quantize needs the package onnx; install it with: .*\[quantize\]"):
        quantize_card(request_of(demo, tmp_path / "x.yaml", frames))


def test_the_original_is_never_replaced(frames, tmp_path):
    card = classifier(tmp_path)
    before = card.file.read_bytes()
    with pytest.raises(OutputError, match="exists; replace it with --overwrite"):
        quantize_card(request_of(card, tmp_path / "small.yaml", frames))
    with pytest.raises(ModelError, match="would replace the card or the network it is made from"):
        quantize_card(request_of(card, tmp_path / "small.yaml", frames, overwrite=True))
    assert card.file.read_bytes() == before


# ---------------------------------------------------------------------------------------------------------- f16


def test_an_f16_network_reads_f16_returns_f32_and_detects_the_same(demo, frames, tmp_path):
    report = convert_card(request_of(demo, tmp_path / "half.yaml", frames))
    card = check_model(load_card(report.card))
    assert card.input.dtype == "f16"
    assert {output.dtype.name for output in inspect(card.file).outputs.values()} == {"float32"}
    assert report.comparison.agreement > 0.99
    assert report.comparison.score_error < 0.01
    assert Session(card.file, Device()).fixed_batch is None
    with pytest.raises(ModelError, match=r"half\.onnx is an f16 network; int8 is made from the f32 network"):
        quantize_card(request_of(card, tmp_path / "x.yaml", frames))


def test_values_too_large_for_f16_stay_in_f32(frames, tmp_path):
    plain = classifier(tmp_path)
    large = classifier(tmp_path, name="large", gain=1e6)
    reports = [convert_card(request_of(card, tmp_path / f"{card.name}_f16.yaml", frames)) for card in (plain, large)]
    assert "with values above" not in reports[0].method
    assert "and 3 nodes with values above 32,752" in reports[1].method  # the convolution, its Relu and the next one
    assert reports[1].comparison.agreement == 1


# --------------------------------------------------------------------------------------------------- the comparison


def test_a_network_compared_with_itself_loses_nothing(demo, frames):
    card = check_model(demo)
    comparison = compare_cards(card, card, frames[:4], Device())
    assert (comparison.agreement, comparison.score_error, comparison.ap, comparison.loss) == (1.0, 0.0, (1.0, 1.0), 0.0)
    assert 0.3 < comparison.speedup < 3


def table(*rows: tuple[float, int]) -> Detections:
    """Objects of a score and a class, far from each other."""
    boxes = [[100.0 * number, 0.0, 100.0 * number + 50, 50.0] for number in range(len(rows))]
    score, class_id = (np.array(column) for column in zip(*rows, strict=True))
    return Detections(
        np.array(boxes, np.float32), score.astype(np.float32), class_id.astype(np.int32), np.zeros(len(rows), np.int32)
    )


@pytest.mark.parametrize(
    ("new", "agreement", "ap"),
    [
        ([(0.9, 0), (0.8, 1), (0.4, 0)], 1.0, 1.0),  # the third has crossed the threshold of 0.35
        ([(0.9, 0), (0.8, 1), (0.01, 0)], 1.0, 1.0),
        ([(0.9, 0), (0.3, 1), (0.3, 0)], 1.0, 1.0),
        ([(0.9, 0), (0.1, 1), (0.3, 0)], 2 / 3, 1.0),  # AP is about the order
        ([(0.9, 0), (0.8, 2), (0.3, 0)], 0.5, 0.505),
        ([(0.2, 0), (0.8, 2), (0.3, 0)], 1 / 3, 0.2525),  # the other class before the only right one
    ],
)
def test_only_objects_above_the_threshold_count_as_lost(new, agreement, ap, demo):
    from streamkit.models.card_comparison import _Boxes, _Outputs, _Speed

    tally = _Boxes(demo, None)
    frame = Frame("a", 0, 0.0, 400, 60)
    tally.add(frame, _Outputs(table((0.9, 0), (0.8, 1), (0.3, 0)), None), _Outputs(table(*new), None))
    comparison = tally.result(1, _Speed((1.0, 1.0), 1.0, "a test"))
    assert comparison.agreement == pytest.approx(agreement)
    assert comparison.ap == pytest.approx((1.0, ap), abs=0.001)
    assert comparison.loss == pytest.approx(1 - min(agreement, ap), abs=0.001)


@pytest.mark.parametrize(
    ("before", "agreement", "ap"),
    [
        (0.18, 1.0, 1.0),  # half of the threshold of 0.35 and more: neither right nor wrong
        (0.16, 0.8, 0.6667),  # the original does not find it: it is wrong, and before the two that are right
    ],
)
def test_a_weak_object_of_the_original_is_not_a_false_positive(before, agreement, ap, demo):
    from streamkit.models.card_comparison import _Boxes, _Outputs, _Speed

    tally = _Boxes(demo, None)
    old = table((0.9, 0), (0.8, 0), (before, 0))
    new = table((0.9, 0), (0.8, 0), (0.95, 0))
    tally.add(Frame("a", 0, 0.0, 400, 60), _Outputs(old, None), _Outputs(new, None))
    comparison = tally.result(1, _Speed((1.0, 1.0), 1.0, "a test"))
    assert comparison.agreement == pytest.approx(agreement)
    assert comparison.ap == pytest.approx((1.0, ap), abs=0.001)


def test_ap_is_measured_against_the_truth(demo, frames, tmp_path):
    """Truth made of some objects: a network that finds them has AP 1; its class is known by the label's name."""
    card = check_model(demo)
    path = tmp_path / "truth.json"
    images = [{"id": 5, "file_name": f"folder/{frames[0].source}", "width": 640, "height": 360}]
    box = {"id": 1, "image_id": 5, "category_id": 9, "bbox": [0, 0, 50, 50]}  # area and iscrowd are optional
    path.write_text(json.dumps({"images": images, "annotations": [box], "categories": [{"id": 9, "name": "car"}]}))
    truth = read_truth(path, card)
    assert truth.categories == (9, None, None)
    comparison = compare_cards(card, card, frames[:1], Device(), truth)
    assert comparison.truth
    assert comparison.ap[0] == comparison.ap[1] < 0.5
    assert "against ground truth, IoU .50 to .95" in "\n".join(comparison.lines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is not ground truth in COCO's format"),
        ('{"images": [{"id": 1}], "annotations": [], "categories": []}', "images need id and file_name.*'file_name'"),
        ('{"images": [], "annotations": [{"id": 1}], "categories": []}', "annotations id, image_id, category_id and b"),
        ('{"images": [], "annotations": [], "categories": ["car"]}', "categories id and name"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1, "name": "whale"}]}', "none of the labels of demo"),
    ],
)
def test_invalid_truth_is_reported(text, message, demo, tmp_path):
    (tmp_path / "truth.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        read_truth(tmp_path / "truth.json", demo)


def test_frames_without_objects_are_reported(demo, frames, root):
    card = check_model(dataclasses.replace(demo, score=1.0))
    with pytest.raises(ModelError, match="finds no object with a score of 1 or more in these 2 frames"):
        compare_cards(card, card, frames[:2], Device())
