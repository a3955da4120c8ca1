"""COCO accuracy of the whole way from a picture to objects, beside plain references written here from the authors'.

The pictures are 64 of COCO's val2017: a baseline against regressions, no benchmark.
"""

import contextlib
import io
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from streamkit.core.data import Color, Device, Surface
from streamkit.models.card import Card, find_card, load_card
from streamkit.models.derive import derive
from streamkit.models.families import ReadOptions, family, unpack
from streamkit.models.labels import LABEL_LISTS
from streamkit.models.network import check_model
from streamkit.models.session import Session
from streamkit.ops.color import from_rgb
from streamkit.ops.preprocess import preprocess
from streamkit.ops.transfer import fetch

JPEG = Color("bt601", full_range=True, chroma_x=0.5, chroma_y=0.5)
SCORE = 0.01
IOU = 0.65
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODELS = {
    "yolox-nano": ("yolox_nano_dyn.onnx", 0.319),
    "yolov8n": ("yolov8n_640_deq_dyn.onnx", 0.421),
    "deimv2-atto": ("deimv2_hgnetv2_atto_coco.onnx", 0.279),
}
"""Card, file in the test data, and AP of the plain way on the RGB pictures."""


@dataclass
class Picture:
    number: int
    rgb: np.ndarray
    nv12: np.ndarray

    @property
    def size(self) -> tuple[int, int]:
        return self.rgb.shape[1], self.rgb.shape[0]


@cache
def load_coco(folder: Path):
    import cv2
    from pycocotools.coco import COCO

    (annotations,) = (folder / "annotations").glob("*.json")
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(annotations))
    pictures = []
    for image in coco.loadImgs(sorted(coco.getImgIds())):
        rgb = cv2.cvtColor(cv2.imread(str(folder / "val2017" / image["file_name"])), cv2.COLOR_BGR2RGB)
        pictures.append(Picture(image["id"], rgb, from_rgb(rgb, JPEG)))
    return coco, pictures


@pytest.fixture(scope="module")
def coco(test_data):
    return load_coco(test_data / "coco")


def average_precision(coco, results: dict[int, np.ndarray]) -> float:
    """AP of rows x1, y1, x2, y2, score, class by picture."""
    from pycocotools.cocoeval import COCOeval

    categories = sorted(coco.getCatIds())
    rows = [
        {"image_id": number, "category_id": categories[int(c)], "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
        for number, table in results.items()
        for x1, y1, x2, y2, score, c in table.tolist()
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        run = COCOeval(coco, coco.loadRes(rows), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return float(run.stats[0])


# ------------------------------------------------------------------------------------------------ the plain references


# Each takes ONNX Runtime's session, the picture's (width, height), and what gives it as RGB of a new size.


def yolox(session, size, resized):
    """demo/ONNXRuntime of https://github.com/Megvii-BaseDetection/YOLOX."""
    width, height = size
    ratio = min(416 / height, 416 / width)
    small = resized(int(width * ratio), int(height * ratio))[..., ::-1]
    padded = np.full((416, 416, 3), 114, np.float32)
    padded[: small.shape[0], : small.shape[1]] = small
    (rows,) = session.run(None, {"images": np.ascontiguousarray(padded.transpose(2, 0, 1)[None])})
    rows = rows[0].copy()
    at = 0
    for stride in (8, 16, 32):
        n = 416 // stride
        grid = np.stack(np.meshgrid(np.arange(n), np.arange(n)), -1).reshape(-1, 2)
        part = rows[at : at + n * n]
        part[:, :2] = (part[:, :2] + grid) * stride
        part[:, 2:4] = np.exp(part[:, 2:4]) * stride
        at += n * n
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1) / ratio
    return suppressed(boxes, rows[:, 4:5] * rows[:, 5:])


def yolov8(session, size, resized, several=False):
    """LetterBox and non_max_suppression of https://github.com/ultralytics/ultralytics."""
    import cv2

    width, height = size
    ratio = min(640 / height, 640 / width)
    new = round(width * ratio), round(height * ratio)
    left = (640 - new[0]) / 2
    top = (640 - new[1]) / 2
    small = resized(*new)
    edges = round(top - 0.1), round(top + 0.1), round(left - 0.1), round(left + 0.1)
    padded = cv2.copyMakeBorder(small, *edges, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    (out,) = session.run(None, {"images": padded.transpose(2, 0, 1)[None].astype(np.float32) / 255})
    rows = out[0].T
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1)
    boxes = (boxes - [edges[2], edges[0], edges[2], edges[0]]) / ratio
    return suppressed(boxes, rows[:, 4:], several)


def deimv2(session, size, resized):
    """tools/inference of https://github.com/Intellindust-AI-Lab/DEIMv2; Pillow resizes, with antialiasing."""
    feeds = {
        "images": resized(320, 320, antialias=True).transpose(2, 0, 1)[None].astype(np.float32) / 255,
        "orig_target_sizes": np.array([size], np.int64),
    }
    labels, boxes, scores = session.run(["labels", "boxes", "scores"], feeds)
    rows = np.column_stack([boxes[0], scores[0], labels[0]])
    return rows[rows[:, 4] >= SCORE]


def suppressed(boxes, scores, several=False):
    """The best class of each anchor, or each class, then greedy non-max suppression within a class."""
    anchor, label = np.nonzero(scores >= SCORE) if several else (np.arange(len(scores)), scores.argmax(1))
    rows = np.column_stack([boxes[anchor], scores[anchor, label], label])
    rows = rows[rows[:, 4] >= SCORE]
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    best = []
    while len(rows):
        first = rows[0]
        rows = rows[1:]
        best.append(first)
        inner = np.minimum(rows[:, 2:4], first[2:4]) - np.maximum(rows[:, :2], first[:2])
        inner = np.prod(inner.clip(0), 1)
        areas = np.prod(rows[:, 2:4] - rows[:, :2], 1) + np.prod(first[2:4] - first[:2])
        rows = rows[(rows[:, 5] != first[5]) | (inner / (areas - inner) <= IOU)]
    return np.array(best).reshape(-1, 6)


def resized_rgb(picture: Picture, width: int, height: int, antialias: bool = False) -> np.ndarray:
    import cv2

    if antialias:
        image = pytest.importorskip("PIL.Image")
        return np.asarray(image.fromarray(picture.rgb).resize((width, height), image.Resampling.BILINEAR))
    return cv2.resize(picture.rgb, (width, height), interpolation=cv2.INTER_LINEAR)


def resized_nv12(picture: Picture, width: int, height: int, antialias: bool = False) -> np.ndarray:
    """RGB of the NV12 picture at a new size: each plane sampled linearly where the pixels are, then JFIF's formula.

    Not rounded to 8 bits on the way: on these few pictures that alone moves AP by .003.
    """
    if antialias:  # the pixels of the whole picture, then Pillow, channel by channel in floats
        image = pytest.importorskip("PIL.Image")
        whole = resized_nv12(picture, *picture.size)
        how = image.Resampling.BILINEAR
        return np.dstack([image.fromarray(whole[..., i]).resize((width, height), how) for i in range(3)])
    rows = picture.nv12.shape[0] * 2 // 3
    across = (np.arange(width) + 0.5) * picture.size[0] / width - 0.5
    down = (np.arange(height) + 0.5) * picture.size[1] / height - 0.5
    luma = sampled(picture.nv12[:rows][: picture.size[1], : picture.size[0]], down, across)
    chroma = picture.nv12[rows:]
    blue, red = (sampled(chroma[:, i::2], (down - 0.5) / 2, (across - 0.5) / 2) - 128 for i in (0, 1))
    rgb = np.dstack([luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue])
    return np.clip(rgb, 0, 255).astype(np.float32)


def sampled(plane: np.ndarray, down: np.ndarray, across: np.ndarray) -> np.ndarray:
    """A plane at rows `down` and columns `across`, linearly, the edge going on beyond the edge."""
    for at in (down, across):
        at = at.clip(0, len(plane) - 1)
        lower = at.astype(int)
        part = (at - lower)[:, None]
        plane = (plane[lower] * (1 - part) + plane[np.minimum(lower + 1, len(plane) - 1)] * part).T
    return plane


PLAIN = {"yolox-nano": yolox, "yolov8n": yolov8, "deimv2-atto": deimv2}
SEVERAL = partial(yolov8, several=True)  # `multi_label` of the authors' validation


@pytest.fixture(scope="module")
def plain(coco, test_data):
    """AP of the plain way, by card and by what it is fed."""
    import onnxruntime as ort

    truth, pictures = coco

    @cache
    def measure(name: str, fed: str, way=None) -> float:
        file = test_data / "models" / MODELS[name][0]
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1  # others of the suite need the second core
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        resized = resized_nv12 if fed == "nv12" else resized_rgb
        results = {p.number: (way or PLAIN[name])(session, p.size, partial(resized, p)) for p in pictures}
        for p in pictures:
            results[p.number][:, :4] = results[p.number][:, :4].clip(0, (*p.size, *p.size))
        return average_precision(truth, results)

    return measure


# --------------------------------------------------------------------------------------------------------- our own way


def card_of(name: str, test_data: Path) -> Card:
    return check_model(load_card(find_card(name)).with_file(test_data / "models" / MODELS[name][0]))


def derived_card(name: str, test_data: Path) -> Card:
    """The card that `model: file.onnx` stands for; what the file does not know is the names of the classes."""
    return check_model(derive(test_data / "models" / MODELS[name][0], labels="coco").card())


def ours(card: Card, pictures: list[Picture], device: Device, batch: int = 8, **more) -> dict[int, np.ndarray]:
    """Rows by picture, on the way that the stages go."""
    xp = device.xp
    session = Session(card.file, device, threads=1)
    reads = family(card.family)
    options = ReadOptions(np.full(80, SCORE, np.float32), iou=IOU, **more)
    results = {}
    for first in range(0, len(pictures), batch):
        part = pictures[first : first + batch]
        sizes = np.array([p.size for p in part], np.int64)
        surfaces = [Surface(xp.asarray(p.nv12), JPEG) for p in part]
        tensor, geometry = preprocess(surfaces, [p.size for p in part], card.input)
        feeds = {session.image_input: tensor, **reads.extra_inputs(sizes, xp)}
        packed = reads.read(session.run(feeds), geometry, sizes, card.input.size, options)
        rows, counts, _ = packed.over(fetch([packed.buffer])()[0], packed.rows.shape)
        for p, table in zip(part, unpack(rows, counts, card.labels, reads.columns).split(len(part)), strict=True):
            results[p.number] = np.column_stack([table.xyxy, table.score, table.class_id])
    return results


@contextlib.contextmanager
def device_stream(device: Device):
    """On a GPU, a CUDA stream of one's own, as the runner gives every stage."""
    if device.kind == "cpu":
        yield
    else:
        with device.xp.cuda.Device(device.index), device.xp.cuda.Stream(non_blocking=True):
            yield


def test_builtin_label_lists_are_those_of_coco(coco):
    truth, _ = coco
    names = tuple(category["name"] for category in truth.loadCats(sorted(truth.getCatIds())))
    assert LABEL_LISTS["coco"] == names


QUICK = [name if name == "yolox-nano" else pytest.param(name, marks=pytest.mark.long) for name in MODELS]


@pytest.mark.parametrize("name", QUICK)
def test_the_reference_evaluation_gives_the_published_ap(name, plain):
    assert plain(name, "rgb") == pytest.approx(MODELS[name][1], abs=0.001)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", QUICK)
def test_the_pipeline_is_as_accurate_as_the_reference(name, device, plain, coco, test_data):
    truth, pictures = coco
    where = Device(device)
    with device_stream(where):
        ap = average_precision(truth, ours(derived_card(name, test_data), pictures, where))
    assert ap == pytest.approx(plain(name, "nv12"), abs=0.003)
    assert ap == pytest.approx(MODELS[name][1], abs=0.012)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.long
def test_several_classes_of_a_box_are_as_accurate_as_the_authors_validation(device, plain, coco, test_data):
    truth, pictures = coco
    where = Device(device)
    with device_stream(where):
        ap = average_precision(truth, ours(card_of("yolov8n", test_data), pictures, where, multi_label=True))
    assert ap == pytest.approx(plain("yolov8n", "nv12", SEVERAL), abs=0.003)
    assert ap > MODELS["yolov8n"][1] + 0.01


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["yolox-nano", "deimv2-atto"])
def test_batch_size_does_not_change_the_objects(name, device, coco, test_data):
    _, pictures = coco
    card = card_of(name, test_data)
    where = Device(device)
    with device_stream(where):
        single, batched = (ours(card, pictures[:12], where, batch) for batch in (1, 5))
    for number, rows in single.items():
        if device == "cpu":
            assert np.array_equal(rows, batched[number])
        else:
            sure = rows[rows[:, 4] > 0.3]
            other = batched[number]
            for row in sure:
                near = other[(other[:, 5] == row[5]) & (np.abs(other[:, 4] - row[4]) < 0.005)]
                assert len(near)
                assert np.abs(near[:, :4] - row[:4]).max(1).min() < 0.01 * (row[2:4] - row[:2]).max()


# ------------------------------------------------------------------------------------------------- raw outputs of DETRs


@pytest.fixture(scope="module")
def raw_file(test_data, tmp_path_factory):
    """DEIMv2's network with two outputs more: the logits and boxes that its built-in postprocessor reads."""
    import onnx

    model = onnx.load(test_data / "models" / MODELS["deimv2-atto"][0])
    by_output = {name: node for node in model.graph.node for name in node.output}
    top = by_output["scores"]  # Sigmoid, Flatten, TopK
    logits = by_output[by_output[top.input[0]].input[0]].input[0]
    boxes = next(node.input[0] for node in model.graph.node if node.op_type == "Split" and "postproc" in node.output[0])
    for name, old in (("pred_logits", logits), ("pred_boxes", boxes)):
        model.graph.node.append(onnx.helper.make_node("Identity", [old], [name]))
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    path = tmp_path_factory.mktemp("raw") / "deimv2-raw.onnx"
    onnx.save(model, path)
    return path


@dataclass
class Raw:
    number: int
    size: tuple[int, int]
    outputs: dict[str, np.ndarray]
    geometry: np.ndarray


@pytest.fixture(scope="module")
def raw(coco, raw_file, test_data):
    """Of each picture the network's raw outputs, and those of its own postprocessor."""
    card = card_of("deimv2-atto", test_data)
    device = Device("cpu")
    session = Session(raw_file, device, threads=1)
    reads = family("detr")
    per_picture = []
    for p in coco[1]:
        tensor, geometry = preprocess([Surface(p.nv12, JPEG)], [p.size], card.input)
        feeds = {session.image_input: tensor, **reads.extra_inputs(np.array([p.size], np.int64), np)}
        per_picture.append(Raw(p.number, p.size, session.run(feeds), geometry))
    return per_picture


def logits_of(raw_picture: Raw, select: str) -> np.ndarray:
    logits = raw_picture.outputs["pred_logits"].astype(np.float64)
    if select == "softmax":  # shares of which the classes have their sigmoid's, and no object what is left
        shares = 1 / (1 + np.exp(-logits))
        rest = np.maximum(1 - shares.sum(axis=2, keepdims=True), 1e-6)
        logits = np.log(np.concatenate([shares, rest], axis=2)) + 3.0  # a softmax does not see what is added to all
    return logits.astype(np.float32)


def selected(raw: list[Raw], select: str, device: Device) -> dict[int, np.ndarray]:
    reads = family("detr").selecting(select)
    xp = device.xp
    options = ReadOptions(np.full(80, SCORE, np.float32))
    results = {}
    for raw_picture in raw:
        if select == "end to end":
            outputs = {name: raw_picture.outputs[name] for name in ("labels", "boxes", "scores")}
            reads = family("detr")
        else:
            outputs = {"pred_logits": logits_of(raw_picture, select), "pred_boxes": raw_picture.outputs["pred_boxes"]}
        outputs = {name: xp.asarray(value) for name, value in outputs.items()}
        packed = reads.read(outputs, raw_picture.geometry, np.array([raw_picture.size]), (320, 320), options)
        rows, counts, _ = packed.over(fetch([packed.buffer])()[0], packed.rows.shape)
        table = unpack(rows, counts, LABEL_LISTS["coco"], reads.columns)
        results[raw_picture.number] = np.column_stack([table.xyxy, table.score, table.class_id])
    return results


@pytest.mark.parametrize("device", DEVICES)
def test_the_top_k_of_raw_outputs_equals_the_authors_postprocessor(device, raw):
    where = Device(device)
    with device_stream(where):
        theirs = selected(raw, "end to end", where)
        ours_ = selected(raw, "top_k", where)
        assert {number: len(rows) for number, rows in selected(raw, "", where).items()} == {
            number: len(rows) for number, rows in ours_.items()
        }
    several = 0
    for number, rows in theirs.items():
        our_rows = ours_[number]
        np.testing.assert_allclose(our_rows[:, 4], rows[:, 4], atol=1e-5)
        clear = np.ones(len(rows), bool)  # scores that are as good as equal may change places
        clear[1:] &= rows[:-1, 4] - rows[1:, 4] > 1e-5
        clear[:-1] &= rows[:-1, 4] - rows[1:, 4] > 1e-5
        np.testing.assert_array_equal(our_rows[clear, 5], rows[clear, 5])
        np.testing.assert_allclose(our_rows[clear, :4], rows[clear, :4], atol=0.05)
        several += len(rows) - len(np.unique(rows[:, :4].round(1), axis=0))
    assert several > 100  # boxes that are objects of two classes: what the best class of each query leaves out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("select", "ap"), [("top_k", 0.280), ("best_class", 0.274), ("softmax", 0.265)])
def test_each_selection_has_its_expected_ap(select, ap, device, coco, raw):
    where = Device(device)
    with device_stream(where):
        measured = average_precision(coco[0], selected(raw, select, where))
    assert measured == pytest.approx(ap, abs=0.001)
