"""Attributes: a real network against a plain loop, tracks that keep their answers, whole frames, and both devices."""

import itertools

import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.core.records import batch_lines, line, record
from streamkit.core.stage import StreamStage, stage
from streamkit.core.units import Of
from streamkit.models import reference
from streamkit.models.card import find_card, load_card
from streamkit.ops.boxes import crop_rects
from streamkit.ops.color import from_rgb
from streamkit.stages.inference.crop_models import Classify
from streamkit.testing.kit import detections, frames, run_stage

CARD = """\
task: classify
family: logits
file: {folder}/mobilenetv2_imagenet_deq.onnx
input: {{size: [224, 224], resize: stretch, scale: 1/255, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
labels: names.txt
score: 0
"""


@pytest.fixture(scope="module")
def mobilenet(test_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    names = (test_data / "models" / "imagenet_labels.txt").read_text(encoding="utf-8").splitlines()[1:]
    (folder / "names.txt").write_text("\n".join(names), encoding="utf-8")
    (folder / "mobilenet.yaml").write_text(CARD.format(folder=test_data / "models"))
    return load_card(folder / "mobilenet.yaml")


COLOR = load_card(find_card("color"))
RED, BLUE = (176, 30, 36), (32, 72, 140)


def painted(*colors, size=(120, 80)):
    """A picture with a block of each colour beside the last, and their boxes."""
    rgb = np.full((size[1], size[0], 3), 90, np.uint8)
    boxes = []
    for i, color in enumerate(colors):
        box = [4 + 40 * i, 10, 36 + 40 * i, 60]
        rgb[box[1] : box[3], box[0] : box[2]] = color
        boxes.append(box)
    return rgb, boxes


def film(colors, *, tracks=(7,), step_s=0.1, source="test"):
    """A frame for each of `colors`, in which the tracked objects have that colour."""
    made = []
    for i, color in enumerate(colors):
        rgb, boxes = painted(*[color] * len(tracks))
        (frame,) = frames(1, source, pixels=rgb, start=i, step_s=step_s)
        frame.detections = detections(boxes, track_id=list(tracks), label=["car"] * len(tracks))
        made.append(frame)
    return made


def classify(**options):
    return Classify(**{"model": COLOR, "of": Of("test"), "min_size": 0.0, **options})


def labels(done, name="classify"):
    columns = [frame.detections.extra["attributes"] for frame in done]
    return [[None if one is None else one[name]["label"] for one in column] for column in columns]


def run(given, batch=4, stage_id="", **options):
    table = next(iter(given[0].tables))
    return run_stage(classify(**{"of": Of(table), **options}), given, batch=batch, stage_id=stage_id)


def test_each_object_has_its_own_answer():
    rgb, boxes = painted(RED, BLUE)
    given = frames(2, pixels=rgb)
    given[0].detections = detections(boxes, label=["car", "car"])
    given[1].detections = detections(boxes[::-1], label=["car", "bus"])
    assert labels(run(given)) == [["red", "blue"], ["blue", "red"]]
    done = run(given, of=Of("detect", ("bus",)))
    assert labels(done) == [[None, None], [None, "red"]]
    assert given[0].detections.extra == {}


def test_the_record():
    (frame,) = run(film([RED]), stage_id="color")
    (made,) = record(frame)["objects"]
    assert made["attributes"] == {"color": {"label": "red", "score": pytest.approx(0.95, abs=0.05)}}
    assert '"attributes":{"color":{"label":"red","score":0.9' in line(frame).decode()
    nothing = run(film([RED]), min_score=1.0)
    assert "attributes" not in record(nothing[0])["objects"][0]
    assert list(run(film([RED]), stage_id="color", attribute="paint")[0].detections.extra["attributes"][0]) == ["paint"]


def test_a_track_keeps_its_answer_until_it_is_asked_again():
    done = run(film([RED] * 3 + [BLUE] * 12), every=1.0, smoothing=0.0)
    assert labels(done) == [["red"]] * 10 + [["blue"]] * 5
    assert labels(run(film([RED, BLUE, RED, BLUE]), every=0.0, smoothing=0.0)) == [["red"], ["blue"], ["red"], ["blue"]]


def test_answers_are_smoothed_over_time_whatever_the_frame_rate():
    flicker = [RED, RED, BLUE, RED, RED, RED]
    assert labels(run(film(flicker), every=0.0, smoothing=1.0)) == [["red"]] * 6
    change = [RED] * 10 + [BLUE] * 20
    turned = []
    for step in (0.1, 0.05):
        again = [color for color in change for _ in range(round(0.1 / step))]
        found = [one for (one,) in labels(run(film(again, step_s=step), every=0.0, smoothing=1.0))]
        turned.append(found.index("blue") * step)
        assert found == ["red"] * found.index("blue") + ["blue"] * (len(found) - found.index("blue"))
    assert turned[0] == pytest.approx(turned[1], abs=0.11)
    assert 1.1 < turned[0] < 2.0


def test_a_track_that_is_gone_is_forgotten():
    given = film([RED] + [BLUE] * 40)
    for frame in given[1:30]:
        frame.detections = detections([], track_id=[])
    assert labels(run(given, every=60, track_ttl=5))[30:] == [["red"]] * 11
    assert labels(run(given, every=60, track_ttl=2))[30:] == [["blue"]] * 11


def test_a_source_that_ends_takes_its_tracks_along():
    given = [*film([RED] * 2), *film([BLUE] * 2, source="b")]
    assert labels(run(given, every=60, batch=2)) == [["red"], ["red"], ["blue"], ["blue"]]


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_batches_change_nothing(batch):
    given = [one for pair in zip(film([RED, BLUE] * 8), film([BLUE, RED] * 8, source="b"), strict=True) for one in pair]
    expected = run(given, batch=5, every=0.25)
    found = run(given, batch=batch, every=0.25)
    for a, b in zip(expected, found, strict=True):
        assert a.detections.extra["attributes"].tolist() == b.detections.extra["attributes"].tolist()


def test_a_second_stage_adds_its_own():
    first = run(film([RED, BLUE]), stage_id="paint")
    both = run(first, stage_id="again")
    assert [list(frame.detections.extra["attributes"][0]) for frame in both] == [["paint", "again"]] * 2
    assert list(first[0].detections.extra["attributes"][0]) == ["paint"]


def test_frames_without_objects_and_objects_without_a_picture():
    given = film([RED] * 4)
    given[1].detections = detections([], track_id=[])
    given[2].detections = detections([[500, 500, 600, 600]], track_id=[9])
    assert labels(run(given)) == [["red"], [], [None], ["red"]]
    empty = frames(3, pixels=True)
    assert all(len(frame.detections) == 0 for frame in run_stage(classify(of=None), empty))


def test_a_frame_that_fails_leaves_the_others_theirs():
    given = film([RED, BLUE, RED])
    given[1].surface = None
    done = run_stage(classify(of=Of("test"), every=0.0, smoothing=0.0), rename(given), on_error="skip")
    assert [frame.error is None for frame in done] == [True, False, True]
    assert labels([done[0], done[2]]) == [["red"], ["red"]]


def rename(given):
    for frame in given:
        frame.tables = {"test": frame.detections}
    return given


def test_whole_frames():
    given = [frames(1, pixels=np.full((40, 60, 3), color, np.uint8), start=i, step_s=0.5)[0] for i, color in
             enumerate([RED, BLUE, BLUE, BLUE])]  # fmt: skip
    done = run_stage(classify(of=None, every=1.0, smoothing=0.0), given, stage_id="scene")
    found = [record(frame)["attributes"]["scene"]["label"] for frame in done]
    assert found == ["red", "red", "blue", "blue"]
    assert all(frame.facts == {} for frame in given)


# --------------------------------------------------------------------------------------------------- a real network


def street(test_data, n=6, step=6):
    """Frames of a real film with the boxes of nobody's network: parts of the picture of all sizes."""
    import av

    made = []
    with av.open(str(test_data / "videos" / "carnd_test_video.mp4")) as file:
        for frame in itertools.islice(file.decode(video=0), 0, n * step, step):
            made.append(frame.to_ndarray(format="rgb24"))
    color, rng = Color(), np.random.default_rng(3)
    given = []
    for i, rgb in enumerate(made):
        surface = Surface(from_rgb(rgb, color), color)
        (frame,) = frames(1, width=rgb.shape[1], height=rgb.shape[0], start=i)
        frame.surface = surface
        corner = rng.uniform(-20, (rgb.shape[1] - 60, rgb.shape[0] - 60), (5, 2))
        frame.detections = detections(np.concatenate([corner, corner + rng.uniform(40, 300, (5, 2))], axis=1))
        given.append(frame)
    return given


def plain(given, card, pad=0.1):
    """The probabilities of each box, as a loop with OpenCV and ONNX Runtime gives them."""
    import cv2
    import onnxruntime as ort

    session = ort.InferenceSession(card.file, providers=["CPUExecutionProvider"])
    found = []
    for frame in given:
        rgb = reference.rgb(frame.surface, frame.width, frame.height)  # not rounded to whole levels
        for left, top, right, bottom in crop_rects(
            frame.detections.xyxy, [[frame.width, frame.height]] * len(frame.detections), pad
        ).tolist():
            crop = cv2.resize(rgb[top:bottom, left:right], (224, 224), interpolation=cv2.INTER_LINEAR) / 255
            crop = (crop - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
            logits = session.run(None, {"input": crop.transpose(2, 0, 1)[None].astype(np.float32)})[0][0]
            powers = np.exp(logits - logits.max())
            found.append(powers / powers.sum())
    return np.array(found)


def test_it_answers_as_a_plain_loop_does(mobilenet, test_data):
    given = street(test_data)
    expected = plain(given, mobilenet)
    done = run(given, model=mobilenet, pad=0.1, min_score=0.0, stage_id="kind")
    found = [one["kind"] for frame in done for one in frame.detections.extra["attributes"]]
    assert len(found) == len(expected) == 30
    scores = np.array([one["score"] for one in found])
    same = [one["label"] == mobilenet.labels[best] for one, best in zip(found, expected.argmax(axis=1), strict=True)]
    assert np.mean(same) >= 0.96  # two close ones may change places
    assert np.abs(scores - expected.max(axis=1))[same].max() <= 0.03
    assert np.abs(scores - expected.max(axis=1))[same].mean() <= 0.005


def test_a_batch_of_one_answers_as_32_do(mobilenet, test_data):
    given = street(test_data, 3)
    one, many = (run(given, model=mobilenet, batch=n, stage_id="kind") for n in (1, 32))
    for a, b in zip(one, many, strict=True):
        for left, right in zip(a.detections.extra["attributes"], b.detections.extra["attributes"], strict=True):
            assert left["kind"]["label"] == right["kind"]["label"]
            assert left["kind"]["score"] == pytest.approx(right["kind"]["score"], abs=2e-4)


@stage("numbered", reads="detections", writes="track_id")
class Numbered(StreamStage):
    """Number each frame's objects from left to right: a tracker for a film in which nobody overtakes."""

    def process(self, batch, states):
        for name in batch.tables:
            table = batch.table(name)
            order = np.lexsort((table.xyxy[:, 0], table.batch_row))
            ids = np.empty(len(table), np.int64)
            ids[order] = np.arange(len(table)) - np.searchsorted(table.batch_row, table.batch_row)[order]
            batch.tables[name] = table.with_columns(track_id=ids)
        return batch


PIPELINE = """
sources: {{a: {root}/samples/street.mp4, b: {{uri: {root}/samples/street.mp4, start: 4s}}}}
batch: {size}
stages:
  detect: {{model: demo}}
  numbered: {{}}
  color: {{stage: classify, model: color, of: detect.car, every: {every}, pad: 0.05}}
  scene: {{stage: classify, model: color, min_score: 0}}
  look: {{stage: embed, model: look, of: detect, record: true}}
  collect: {{}}
"""


def attributes(run):
    return [
        [one.get("attributes", {}).get("color", {}).get("label") for one in made["objects"]]
        for name in sorted(run.records) for made in sorted(run.records[name], key=lambda made: made["frame"])
    ]  # fmt: skip


@pytest.mark.parametrize("every", ["0", "500ms"])
def test_a_pipeline_of_any_batch_size_says_the_same(every, run_pipeline, root):
    one, many = (
        run_pipeline(PIPELINE.format(root=root, size=size, every=every), extra=[Numbered], limit=16) for size in (1, 7)
    )
    assert one.code == many.code == 0
    for name in one.records:
        assert one.records[name] == many.records[name]
    found = [label for row in attributes(one) for label in row if label]
    assert len(found) > 20
    asked = one.report["counts"]["objects inferred"]
    assert asked > len(found) if every == "0" else asked < 4 * len(found)


@pytest.mark.gpu
@pytest.mark.parametrize("every", ["0", "500ms"])
def test_the_gpu_says_what_the_cpu_says(every, run_pipeline, root):
    text = PIPELINE.format(root=root, size=16, every=every)
    cpu, gpu = (run_pipeline(text, device=device, extra=[Numbered], limit=60) for device in ("cpu", "cuda"))
    assert gpu.code == 0
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    same = total = 0
    for name in cpu.records:
        for a, b in zip(cpu.records[name], gpu.records[name], strict=True):
            assert a["attributes"]["scene"]["label"] == b["attributes"]["scene"]["label"]
            if len(a["objects"]) != len(b["objects"]):
                break  # one near the threshold came or went: from here on `numbered` gives other ids
            for one in a["objects"]:
                twin = min(b["objects"], key=lambda o: np.abs(np.subtract(o["box"], one["box"])).max(), default=None)
                if twin is None or np.abs(np.subtract(twin["box"], one["box"])).max() > 0.5:
                    continue
                total += 1
                same += (
                    one.get("attributes", {}).get("color", {}).get("label")
                    == twin.get("attributes", {}).get("color", {}).get("label")
                    and np.dot(one.get("embedding", [1]), twin.get("embedding", [1])) > 0.99
                )
    assert total > 30
    assert same / total >= 0.97


@pytest.mark.gpu
def test_a_real_network_on_the_gpu_answers_as_a_plain_loop_does(mobilenet, test_data, run_pipeline, root):
    text = f"""
sources: {{a: {test_data}/videos/carnd_test_video.mp4}}
stages:
  detect: {{model: demo, min_score: 0.05}}
  kind: {{stage: classify, model: {mobilenet.path}, of: detect, every: 0, smoothing: 0, min_score: 0, pad: 0.1}}
  scene: {{stage: classify, model: {mobilenet.path}, min_score: 0, smoothing: 0}}
  collect: {{}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=40) for device in ("cpu", "cuda"))
    both = [one.records["a"] for one in (cpu, gpu)]
    pairs = [(a["attributes"]["scene"], b["attributes"]["scene"]) for a, b in zip(*both, strict=True)]
    assert np.mean([a["label"] == b["label"] for a, b in pairs]) >= 0.95
    assert max(abs(a["score"] - b["score"]) for a, b in pairs if a["label"] == b["label"]) <= 0.02


def test_the_lines_of_a_batch_are_those_of_its_frames():
    from streamkit.core.data import Batch, Detections

    done = run(film([RED, BLUE], tracks=(7, 8)))
    table = Detections.concat([frame.detections for frame in done], rows=range(2))
    batch = Batch(done, tables={"detect": table})
    assert batch_lines(batch) == [line(frame) for frame in done]
