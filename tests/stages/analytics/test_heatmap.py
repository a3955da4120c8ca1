import json

import cv2
import numpy as np
import pytest

from streamkit.runtime.run import RunConfig
from streamkit.stages.analytics.heatmap import Heatmap
from streamkit.testing.kit import detections, frames, run_stage


def standing(n, places, **options):
    footage = frames(n, pixels=np.full((120, 200, 3), 60, np.uint8), **options)
    for frame in footage:
        frame.detections = detections([[x - 4, y - 20, x + 4, y] for x, y in places], label=["person"] * len(places))
    return footage


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def picture(path):
    bgr = cv2.imread(str(path))
    assert bgr is not None
    return bgr[..., ::-1].astype(int)


def test_the_image_shows_where_objects_stood(folder):
    run_stage(Heatmap(path="out/{source}-heat.png"), standing(30, [(50, 60), (50, 60), (150, 60)]))
    heat = picture(folder / "out" / "test-heat.png")
    assert heat.shape == (120, 200, 3)
    assert heat[60, 50, 0] > heat[60, 50, 2] + 60, "red where two stood"
    assert abs(heat[110, 100] - 60).max() <= 3, "the source's picture elsewhere"
    assert not [path for path in (folder / "out").iterdir() if path.name != "test-heat.png"]


def test_each_source_with_frames_has_an_image(folder):
    run_stage(Heatmap(path="{source}.jpg"), [*standing(3, [(50, 60)]), *standing(3, [(9, 60)], source="b")])
    assert sorted(path.name for path in folder.iterdir()) == ["b.jpg", "test.jpg"]


def test_the_heatmap_counts_time_and_not_frames(folder):
    for name, n, step_s in (("slow", 11, 0.4), ("fast", 101, 0.04)):
        footage = standing(n, [(50, 60)], source=name, step_s=step_s)
        for frame in footage[n // 2 :]:
            frame.detections = detections([[146, 40, 154, 60]], label=["person"])
        run_stage(Heatmap(path="{source}.png"), footage)
    assert np.abs(picture(folder / "slow.png") - picture(folder / "fast.png")).mean() < 3


def test_the_heatmap_shows_selected_classes_without_a_background(folder):
    footage = standing(10, [(50, 60)])
    run_stage(Heatmap(path="{source}.png", labels=("car",), background=False), footage)
    assert not picture(folder / "test.png").any()
    assert all(frame._state.counters is None or not frame._state.counters["pixels to host"] for frame in footage)


def test_the_heatmap_is_written_periodically_and_on_request(folder):
    processed = run_stage(Heatmap(path="{source}.png", every=1.0), standing(60, [(50, 60)]), batch=1)
    assert [(e.frame, e.kind, e.data) for f in processed for e in f.events] == [
        (25, "saved", {"path": "test.png"}),
        (50, "saved", {"path": "test.png"}),
    ]
    stage = Heatmap(path="{source}.png")
    footage = standing(3, [(50, 60)], source="live")
    stage.open()
    stage.process(footage[0])
    assert not (folder / "live.png").exists()
    stage.now = 1
    stage.changed()
    stage.process(footage[1])
    assert (folder / "live.png").exists()
    assert [event.kind for event in footage[1].events] == ["saved"]
    stage.close()


def test_a_time_jump_back_continues_the_interval(folder):
    footage = standing(5, [(50, 60)])
    for frame, pts_s in zip(footage, (100.0, 101.5, 2.0, 2.4, 3.0), strict=True):
        frame.pts_s = pts_s
    processed = run_stage(Heatmap(path="{source}.png", every=2.0), footage)
    assert [event.pts_s for frame in processed for event in frame.events] == [3.0], "1.5 s, and a second more after it"


def test_the_option_now_may_change_live(root):
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.runtime.control.settings import changeable, checked

    text = "sources: {a: samples/street.mp4}\nstages:\n  detect: {model: demo}\n  heatmap: {path: '{source}.png'}\n"
    graph = build(read_text(text, folder=root))
    assert changeable(graph, "heatmap") == {"trigger": 0}
    assert checked(graph, "heatmap", {"trigger": 3})[0][1] == {"trigger": 3}


def test_an_unwritable_folder_is_reported(folder):
    (folder / "out").write_text("a file where a folder is needed")
    from streamkit.core.errors import OutputError

    with pytest.raises(OutputError, match=r"cannot write out/test\.png"):
        run_stage(Heatmap(path="out/{source}.png"), standing(3, [(50, 60)]))


def test_a_pipeline_writes_a_heatmap(run_pipeline, folder, root):
    outcome = run_pipeline(
        f"""
sources: {{street: {json.dumps(str(root / "samples/street.mp4"))}}}
stages:
  detect: {{model: demo}}
  heatmap: {{path: "out/{{source}}.png", labels: [person]}}
""",
        limit=20,
    )
    assert outcome.code == 0
    assert picture(folder / "out" / "street.png").shape == (360, 640, 3)


@pytest.mark.parametrize("options", ["every: 1s", "opacity: 0.5"], ids=["now and then", "at the end"])
def test_an_unwritable_image_ends_the_run_and_records_are_complete(options, folder, root, tmp_path):
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.core.data import Device
    from streamkit.core.errors import OutputError
    from streamkit.runtime.pipeline import PipelineRun

    (tmp_path / "file").write_text("")
    text = f"""
        sources: {{a: {{uri: {root}/samples/street.mp4, loop: 3}}}}
        stages:
          detect: {{model: demo}}
          heatmap: {{path: "{tmp_path}/file/{{source}}.png", {options}}}
          jsonl: {{path: "{tmp_path}/a.jsonl"}}
    """
    running = PipelineRun(build(read_text(text, folder=root)), Device("cpu"), RunConfig(limit=40))
    with pytest.raises(OutputError, match="a part of the path is a file"):
        running.run()
    written = [json.loads(line)["frame"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert written == list(range(len(written)))
    assert len(written) >= 25
