"""Embeddings: a real network for re-identification against a plain loop, and what records have of them."""

import numpy as np
import pytest

from streamkit.core.data import Color, Detections, Surface, merge
from streamkit.core.records import batch_lines, record
from streamkit.core.units import Of
from streamkit.models import reference
from streamkit.models.card import find_card, load_card
from streamkit.ops.boxes import crop_rects, iou_matrix
from streamkit.ops.color import from_rgb
from streamkit.stages.inference.crop_models import Embed
from streamkit.testing.kit import detections, frames, run_stage

CARD = """\
task: embed
family: embedding
file: {folder}/person-reidentification-retail-0288.onnx
input: {{size: [128, 256], resize: stretch, color: bgr}}
"""
LOOK = load_card(find_card("look"))


@pytest.fixture(scope="module")
def reid(test_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("cards") / "reid.yaml"
    path.write_text(CARD.format(folder=test_data / "models"))
    return load_card(path)


PAIRS = ((0, 4), (80, 84), (160, 164))  # two frames each between which nobody goes far


def people(test_data):
    """Frames of a real film with detections of the people on it; who is where he was in the other frame has one id."""
    import av

    rows = np.loadtxt(test_data / "mot" / "PETS09-S2L1" / "det" / "det.txt", delimiter=",", usecols=range(7))
    people_frames = []
    with av.open(str(test_data / "videos" / "vtest_480x360.mp4")) as film:
        for i, frame in enumerate(film.decode(video=0)):
            if i > PAIRS[-1][1]:
                break
            if i in {i for pair in PAIRS for i in pair}:
                rgb = frame.to_ndarray(format="rgb24")
                (people_frame,) = frames(1, width=rgb.shape[1], height=rgb.shape[0], start=i)
                people_frame.surface = Surface(from_rgb(rgb, Color()), Color())
                people_rows = rows[rows[:, 0] == i + 1]
                xyxy = np.concatenate([people_rows[:, 2:4], people_rows[:, 2:4] + people_rows[:, 4:6]], axis=1) / 1.6
                people_frame.tables = {"detect": detections(xyxy, track_id=i * 100 + np.arange(len(xyxy)))}
                people_frames.append(people_frame)
    for first, second in zip(people_frames[::2], people_frames[1::2], strict=True):
        a = first.tables["detect"]
        b = second.tables["detect"]
        overlap = iou_matrix(b.xyxy, a.xyxy)
        best = overlap.argmax(axis=1)
        second.tables = {
            "detect": b.with_columns(track_id=np.where(overlap.max(axis=1) > 0.7, a.track_id[best], b.track_id))
        }
    return people_frames


def embed(footage, batch=4, **options):
    options = {"model": LOOK, "of": Of("detect"), "min_size": 0.0, **options}
    return run_stage(Embed(**options), footage, batch=batch)


def block_frames():
    rgb = np.full((60, 120, 3), 90, np.uint8)
    rgb[:, 40:80] = (176, 30, 36)
    footage = frames(3, pixels=rgb)
    for frame in footage:
        frame.tables = {"detect": detections([[0, 0, 40, 60], [42, 0, 78, 60], [80, 0, 120, 60], [0, 0, 4, 4]])}
    return footage


def test_vectors_are_normalized_and_distinguish_objects():
    for frame in embed(block_frames(), min_size=16.0):
        vectors = frame.detections.extra["embedding"]
        assert vectors.shape == (4, 9)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors[:3], axis=1), 1, atol=1e-6)
        assert np.isnan(vectors[3]).all()
        likeness = vectors[:3] @ vectors[:3].T
        assert likeness[0, 2] > 0.99
        assert likeness[0, 1] < 0.5


def test_records_have_vectors_on_request():
    plain, recorded = (embed(block_frames(), record=record, min_size=16.0) for record in (False, True))
    assert all("embedding" not in detection for detection in record(plain[0])["objects"])
    objects = record(recorded[0])["objects"]
    np.testing.assert_allclose(objects[1]["embedding"], recorded[0].detections.extra["embedding"][1])
    assert "embedding" not in objects[3]
    table = Detections.concat([frame.detections for frame in plain], rows=range(3))
    from streamkit.core.data import Batch

    assert b"embedding" not in b"".join(batch_lines(Batch(plain, tables={"detect": table})))
    assert merge(table, table[:2]).private == {"embedding"}


def test_frames_without_objects_have_a_column_of_the_same_width():
    footage = block_frames()
    footage[0].tables = {"detect": detections([])}
    processed = embed(footage)
    assert processed[0].detections.extra["embedding"].shape == (0, 9)
    both = Detections.concat([frame.detections for frame in processed])
    assert both.extra["embedding"].shape == (8, 9)


def plain(footage, card):
    import cv2
    import onnxruntime as ort

    session = ort.InferenceSession(card.file, providers=["CPUExecutionProvider"])
    vectors = []
    for frame in footage:
        rgb = reference.rgb(frame.surface, frame.width, frame.height)
        rects = crop_rects(frame.tables["detect"].xyxy, [[frame.width, frame.height]] * len(frame.tables["detect"]))
        for left, top, right, bottom in rects.tolist():
            crop = cv2.resize(rgb[top:bottom, left:right], (128, 256), interpolation=cv2.INTER_LINEAR)[..., ::-1]
            vector = session.run(None, {session.get_inputs()[0].name: crop[None].astype(np.float32)})[0].ravel()
            vectors.append(vector / np.linalg.norm(vector))
    return np.array(vectors)


def test_vectors_equal_those_of_a_plain_loop(reid, test_data):
    footage = people(test_data)
    expected = plain(footage, reid)
    vectors = np.concatenate(
        [f.detections.extra["embedding"] for f in embed(footage, model=reid, every=0.0, smoothing=0.0)]
    )
    assert vectors.shape == expected.shape
    assert vectors.shape[1] == 256
    assert len(vectors) > 15
    assert (vectors * expected).sum(axis=1).min() >= 0.999


def test_vectors_of_a_person_are_closer_than_those_of_others(reid, test_data):
    processed = embed(people(test_data), model=reid, every=0.0, smoothing=0.0)
    vectors = np.concatenate([frame.detections.extra["embedding"] for frame in processed])
    ids = np.concatenate([frame.detections.track_id for frame in processed])
    when = np.concatenate([np.full(len(frame.detections), frame.index) for frame in processed])
    likeness = vectors @ vectors.T
    same = (ids[:, None] == ids) & (when[:, None] != when)
    other = ids[:, None] != ids
    assert likeness[same].mean() > likeness[other].mean() + 0.1


@pytest.mark.parametrize("batch", [1, 32])
def test_batches_do_not_change_vectors(batch, reid, test_data):
    footage = people(test_data)
    columns = [
        np.concatenate([frame.detections.extra["embedding"] for frame in embed(footage, model=reid, batch=n)])
        for n in (3, batch)
    ]
    np.testing.assert_allclose(columns[0], columns[1], atol=1e-5)


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_vectors(reid, test_data, run_pipeline):
    text = f"""
sources: {{a: {test_data}/videos/vtest_480x360.mp4}}
stages:
  detect: {{model: demo, min_score: 0.05}}
  who: {{stage: embed, model: {reid.path}, of: detect, every: 0, smoothing: 0, record: true}}
  collect: {{}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=30) for device in ("cpu", "cuda"))
    pairs = 0
    for a, b in zip(cpu.records["a"], gpu.records["a"], strict=True):
        for cpu_object in a["objects"]:
            for gpu_object in b["objects"]:
                if np.abs(np.subtract(cpu_object["box"], gpu_object["box"])).max() < 0.02 and "embedding" in cpu_object:
                    pairs += 1
                    assert np.dot(cpu_object["embedding"], gpu_object["embedding"]) > 0.99
    assert pairs > 10
