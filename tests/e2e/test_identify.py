"""Two drawn films of one street: who is who in both, with a real decoder, tracker and embedding network."""

import numpy as np
import pytest
from support import mot
from support.example_runs import ROOT

from benchmarks.identities import CAMERAS, cross_camera_idf1, identified

SCENE = ROOT / "samples" / "crossing"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The records of one run: with planes, and by appearance alone."""
    return identified(SCENE, "cpu", tmp_path_factory.mktemp("identify"))


@pytest.mark.parametrize(("kind", "min_score"), [("planes", 0.93), ("look", 0.85)])
def test_people_have_the_same_identity_on_both_cameras(results, kind, min_score):
    assert cross_camera_idf1(SCENE, results[kind]) >= min_score


@pytest.mark.gpu
def test_a_gpu_gives_the_same_identities(results, tmp_path):
    gpu_records = identified(SCENE, "cuda", tmp_path)
    for kind in ("planes", "look"):
        assert cross_camera_idf1(SCENE, gpu_records[kind]) == pytest.approx(
            cross_camera_idf1(SCENE, results[kind]), abs=0.03
        )


def test_the_score_needs_shared_ids_of_both_cameras(results):
    """Numbers of each camera's own, however good, are not enough."""
    apart = {
        camera: [
            {
                **record,
                "objects": [{**o, "identity": o["identity"] + 1000 * n} for o in record["objects"] if "identity" in o],
            }
            for record in results["planes"][camera]
        ]
        for n, camera in enumerate(CAMERAS)
    }
    assert cross_camera_idf1(SCENE, apart) < 0.8


def test_objects_of_a_frame_have_distinct_identities(results):
    for kind in ("planes", "look"):
        for record in (record for camera in CAMERAS for record in results[kind][camera]):
            ids = [item["identity"] for item in record["objects"] if "identity" in item]
            assert len(set(ids)) == len(ids)


def test_the_events_describe_paths(results):
    events = [e for camera in CAMERAS for record in results["planes"][camera] for e in record["events"]]
    seen = [event["data"] for event in events if event["kind"] == "seen"]
    assert any(data.get("new") for data in seen)
    assert {data["before"] for data in seen if "before" in data} == set(CAMERAS)
    paths = [[stay["source"] for stay in event["data"]["path"]] for event in events if event["kind"] == "left"]
    assert any(set(path) == set(CAMERAS) for path in paths)


def test_the_shipped_truth_matches_two_views_of_a_scene():
    from samples.draw_street import truth as drawn
    from samples.scene import views

    frames = range(0, 200, 90)
    ids = []
    for camera, scene in views(7).items():
        shipped = mot.truth_of(ROOT / "samples" / f"crossing-{camera}.truth.jsonl")
        assert len(shipped) == scene.frames
        assert [shipped[i] for i in frames] == drawn(scene, frames)
        ids.append({item["id"] for record in shipped for item in record["objects"]})
    assert len(ids[0] & ids[1]) >= 10, "many are in both"


def test_the_homographies_match_the_cameras():
    from samples.scene import views
    from streamkit.analytics.geometry import read_homography

    for camera, scene in views(7).items():
        plane = read_homography(ROOT / "samples" / f"crossing-{camera}.ground.txt")
        ground = np.array([actor.ground[0] for actor in scene.actors])
        before = [scene.camera.depth(*point) > 3 for point in ground]
        places = np.array([scene.camera.project(*point)[:2] for point in ground[before]])
        np.testing.assert_allclose(plane.meters(places), ground[before], atol=1e-3)
