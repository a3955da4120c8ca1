"""Key points: MoveNet on real people, YOLOv8-pose by a network whose answer is known, faces and their landmarks."""

import dataclasses

import numpy as np
import pytest
from support.cards import card_of, tiny_pose

from streamkit.core.data import Frame
from streamkit.core.records import record
from streamkit.models import reference
from streamkit.models.check import frames_of
from streamkit.models.network import check_model
from streamkit.stages.inference.detectors import Detect, Pose
from streamkit.testing.kit import frames, run_stage


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cards")


@pytest.fixture(scope="module")
def movenet(test_data, folder):
    return card_of("movenet", test_data, folder)


@pytest.fixture(scope="module")
def people(test_data) -> list[Frame]:
    """Pictures with a person on most of them."""
    return frames_of([test_data / "videos" / "one-by-one-person-detection.mp4"], 12)


def copies(footage):
    return [dataclasses.replace(frame, tables={}, events=[], facts={}) for frame in footage]


def plain_points(card, rgb):
    """The authors' way on a whole picture: (17, 3) x, y in the picture's pixels, score."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(card.file, providers=["CPUExecutionProvider"])
    tensor, (scale_x, scale_y, left, top) = reference.tensor(rgb, check_model(card).input)
    (keypoints,) = session.run(None, {session.get_inputs()[0].name: tensor})
    y, x, score = keypoints[0, 0].T
    return np.stack([(x * 192 - left) / scale_x, (y * 192 - top) / scale_y, score], axis=1)


def test_a_person_filling_the_image_gets_a_pose(movenet, people):
    processed = run_stage(Pose(model=movenet), copies(people), batch=4)
    posed = 0
    for source_frame, frame in zip(people, processed, strict=True):
        wanted = plain_points(movenet, reference.rgb(source_frame.surface, source_frame.width, source_frame.height))
        table = frame.tables["pose"]
        assert len(table) == (wanted[:, 2].mean() >= 0.2) or abs(wanted[:, 2].mean() - 0.2) < 0.02
        if not len(table):
            continue
        posed += 1
        points = table.extra["keypoints"]
        assert points.shape == (1, 17, 3)
        assert table.score[0] == pytest.approx(points[0, :, 2].mean(), abs=1e-5)
        sure = wanted[:, 2] > 0.4
        # One place of the network's own grid is 48 of its pixels to the picture's 768: 4 source pixels.
        assert np.abs(points[0, sure, :2] - wanted[sure, :2]).max(initial=0) < 8
        assert np.median(np.abs(points[0, sure, :2] - wanted[sure, :2])) < 2
        x1, _, _, y2 = table.xyxy[0]
        seen = points[0, points[0, :, 2] >= 0.2]
        assert x1 == pytest.approx(max(0, seen[:, 0].min()), abs=0.01)
        assert y2 == pytest.approx(min(frame.height, seen[:, 1].max()), abs=0.01)
        assert table.skeleton.names[0] == "nose"
    assert posed >= 4


def test_batches_do_not_change_poses(movenet, people):
    singly, batched = (run_stage(Pose(model=movenet), copies(people), batch=n) for n in (1, 5))
    assert [record(frame) for frame in singly] == [record(frame) for frame in batched]


def test_detected_people_get_poses(movenet, test_data, folder, run_pipeline):
    card_of("nano", test_data, folder)
    text = f"""
sources: {{a: {test_data}/videos/vtest_480x360.mp4}}
stages:
  detect: {{model: {folder}/nano.yaml, min_score: 0.5}}
  pose: {{model: {folder}/movenet.yaml, of: detect.person}}
  collect: {{}}
"""
    outcome = run_pipeline(text, limit=12)
    assert outcome.code == 0
    objects = [o for r in outcome.records["a"] for o in r["objects"]]
    people = [o for o in objects if o["label"] == "person"]
    assert len(people) > 20
    assert all("keypoints" not in o for o in objects if o["label"] != "person")
    posed = [o for o in people if "keypoints" in o]
    assert len(posed) >= 0.8 * len(people)
    inside = 0
    for person in posed:
        x1, y1, x2, y2 = person["box"]
        points = np.array(person["keypoints"])
        assert points.shape == (17, 3)
        sure = points[points[:, 2] > 0.3, :2]
        inside += len(sure) > 0 and ((sure >= [x1 - 6, y1 - 6]) & (sure <= [x2 + 6, y2 + 6])).all()
    assert inside >= 0.9 * len(posed)


# ------------------------------------------------------------------------------------------------------ YOLOv8-pose


def test_a_yolov8_pose_network_gives_keypoints(tmp_path):
    card = tiny_pose(tmp_path)
    # 128 x 96 goes into 64 x 64 at a half, with 8 rows of padding above and below; the padding is 114.
    white = frames(3, pixels=np.full((96, 128, 3), 255, np.uint8))
    for frame in run_stage(Pose(model=card), white, batch=2):
        table = frame.tables["pose"]
        mean = (0.75 * 255 + 0.25 * 114) / 255
        np.testing.assert_allclose(table.score, [mean], atol=0.01)
        np.testing.assert_allclose(table.xyxy, [[20, 24, 100, 96]], atol=1e-3)  # clipped below
        points = table.extra["keypoints"]
        wanted = [[20 + 20 * i, (20 + 10 * i - 8) * 2, 0.2 + 0.2 * i] for i in range(4)]
        np.testing.assert_allclose(points, [wanted], atol=1e-3)
        assert table.skeleton.edges == ((0, 1), (1, 2))
        (pose,) = record(frame)["objects"]
        assert pose["keypoints"][1] == [40.0, 44.0, 0.4]
        assert pose["label"] == "thing"
    black = frames(1, pixels=np.zeros((96, 128, 3), np.uint8))
    assert len(run_stage(Pose(model=card), black)[0].tables["pose"]) == 0


def test_a_card_with_other_keypoints_than_the_network_is_refused(tmp_path):
    from streamkit.core.errors import ModelError

    tiny_pose(tmp_path)
    (tmp_path / "tiny.yaml").write_text((tmp_path / "tiny.yaml").read_text().replace("p2, p3]", "p2]"))
    from streamkit.models.card import load_card

    with pytest.raises(ModelError, match="has 4 keypoints, and keypoints lists 3; list the keypoints of this network"):
        check_model(load_card(tmp_path / "tiny.yaml"))


# ------------------------------------------------------------------------------------------------------------- faces


def test_faces_have_landmarks(test_data, folder):
    card = card_of("yunet", test_data, folder)
    pictures = frames_of(sorted((test_data / "coco" / "val2017").glob("*.jpg")))
    processed = run_stage(Detect(model=card), copies(pictures), batch=8)
    tables = [frame.tables["detect"] for frame in processed if len(frame.tables["detect"])]
    assert sum(map(len, tables)) >= 3
    for table in tables:
        points = table.extra["keypoints"]
        assert points.shape == (len(table), 5, 3)
        np.testing.assert_array_equal(points[:, :, 2], np.repeat(table.score[:, None], 5, axis=1))
        assert table.skeleton.names == ("right_eye", "left_eye", "nose", "right_mouth", "left_mouth")


# ---------------------------------------------------------------------------------------------------- what is refused


def test_a_card_of_another_task_is_refused(movenet):
    with pytest.raises(ValueError, match="pose needs a card with task: pose; movenet has task: detect"):
        Pose(model=dataclasses.replace(movenet, task="detect"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pad": 0.3}, "crops are made with of: leave out pad"),
        (
            {"of": "detect", "tiles": 1, "class_agnostic": True},
            "those of another stage: leave out class_agnostic, tiles",
        ),
    ],
)
def test_options_without_effect_are_refused(options, text, movenet):
    with pytest.raises(ValueError, match=text):
        Pose(model=movenet, **options)


# ------------------------------------------------------------------------------------------------------------- GPU


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_keypoints(movenet, test_data, folder, run_pipeline):
    card_of("nano", test_data, folder)
    card_of("yunet", test_data, folder)
    text = f"""
sources: {{a: {test_data}/videos/one-by-one-person-detection.mp4, b: {test_data}/videos/vtest_480x360.mp4}}
stages:
  detect: {{model: {folder}/nano.yaml, min_score: 0.4}}
  pose: {{model: {folder}/movenet.yaml, of: detect.person}}
  collect: {{}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=120) for device in ("cpu", "cuda"))
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    errors = []
    for source in "ab":
        for cpu_record, gpu_record in zip(cpu.records[source], gpu.records[source], strict=True):
            for person in cpu_record["objects"]:
                near = [o for o in gpu_record["objects"] if same(o, person)]
                if near and "keypoints" in person:
                    cpu_points = np.array(person["keypoints"])
                    gpu_points = np.array(near[0]["keypoints"])
                    sure = cpu_points[:, 2] > 0.3
                    errors.append(np.abs(cpu_points - gpu_points)[sure, :2].max(initial=0))
    assert len(errors) > 100
    assert np.mean(np.array(errors) <= 1) > 0.97


def same(a, b) -> bool:
    return np.abs(np.array(a["box"]) - np.array(b["box"])).max() < 0.5
