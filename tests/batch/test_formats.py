"""The other formats, each read by the tool that it is for."""

import contextlib
import csv
import io
import json

import av
import numpy as np
import pytest
from support.cards import card_of  # the paths are set just above
from support.dataset_runs import HERE, PLAIN, TRACKED, do, graph_of, run, settings

from streamkit.batch.coco import CocoPart, merge
from streamkit.batch.formats import CsvPart, JsonlPart, MotPart
from streamkit.batch.identity import file_key
from streamkit.batch.job import BatchSettings, FrameSelection, VideoFile
from streamkit.batch.parts import FORMATS
from streamkit.batch.pipeline import attach
from streamkit.batch.work import open_folder
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Skeleton
from streamkit.core.errors import OutputError
from streamkit.core.stage import Context
from streamkit.ops import rle
from streamkit.stages.sinks.csv import CsvSink
from streamkit.stages.sinks.jsonl import JsonlSink
from streamkit.testing.kit import detections, frames

NAME = 'a "b"/gäte.mp4'
SUFFIX = {JsonlPart: "jsonl", CsvPart: "csv", MotPart: "txt", CocoPart: "json"}


def written(kind, folder, part_frames, **options):
    """The file that a sink makes of these frames, frame by frame."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"key.{SUFFIX[kind]}"
    sink = kind(path=str(path), names={"key": NAME}, **options)
    sink.context = Context(id=f"dataset.{kind.name}")
    sink.open()
    for frame in part_frames:
        sink.write(frame)
    assert not path.exists()
    sink.end("key")
    sink.close()
    return path


def scene():
    """Three frames: two objects, none, and one without a track and with a class of no name."""
    scene_frames = frames(3, "key", start=10)
    scene_frames[0].tables = {
        "d": detections([[10.004, 20, 30, 60], [0, 0, 5, 5]], [0.9, 0.25], [0, 1], [7, 8], labels=("car", "bike"))
    }
    scene_frames[1].emit("crossed", track_id=7)
    scene_frames[2].tables = {"d": detections([[1, 2, 3, 4]], [0.5], [5], [-1], labels=("car", "bike"))}
    return scene_frames


def test_jsonl_equals_the_output_of_the_stage_except_the_name(tmp_path):
    path = written(JsonlPart, tmp_path, scene())
    sink = JsonlSink(path=str(tmp_path / "plain.jsonl"))
    sink.context = Context(id="jsonl")
    sink.open()
    for frame in scene():
        sink.write(frame)
    sink.close()
    expected = [{**json.loads(text), "source": NAME} for text in (tmp_path / "plain.jsonl").read_text().splitlines()]
    assert [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] == expected


def test_csv_equals_the_output_of_the_stage_except_the_name(tmp_path):
    path = written(CsvPart, tmp_path, scene())
    sink = CsvSink(path=str(tmp_path / "plain.csv"))
    sink.context = Context(id="csv")
    sink.open()
    for frame in scene():
        sink.write(frame)
    sink.close()
    expected = [{**row, "source": NAME} for row in csv.DictReader((tmp_path / "plain.csv").read_text().splitlines())]
    assert list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) == expected


def test_file_names_are_escaped_as_formulas_if_the_csv_stage_does(tmp_path):
    for guard in (True, False):
        text = f"sources: {{a: 'test://'}}\nstages: {{csv: {{path: x.csv, escape_formulas: {str(guard).lower()}}}}}"
        batch_settings = BatchSettings(tmp_path / "p.yaml", (), tmp_path, ("csv",), FrameSelection())
        options = attach(build(read_text(text)), batch_settings).nodes["dataset.csv"].options
        assert options.get("escape_formulas", False) is guard
        sink = CsvPart(**{**options, "path": str(tmp_path / f"{guard}.csv"), "names": {str(guard): "=1+1.mp4"}})
        sink.context = Context(id="x")
        sink.open()
        for frame in scene():
            sink.write(frame)
        sink.end(scene()[0].source)
        sink.close()
        rows = list(csv.DictReader((tmp_path / f"{guard}.csv").read_text().splitlines()))
        assert {row["source"] for row in rows} == {"'=1+1.mp4" if guard else "=1+1.mp4"}


@pytest.mark.parametrize("kind", list(SUFFIX))
def test_an_unfinished_video_leaves_no_file(tmp_path, kind):
    sink = kind(path=str(tmp_path / f"key.{SUFFIX[kind]}"))
    sink.context = Context(id="x")
    sink.open()
    for frame in scene():
        sink.write(frame)
    sink.close()
    assert list(tmp_path.iterdir()) == []


def test_every_format_has_a_sink(tmp_path):
    batch_settings = BatchSettings(tmp_path / "p.yaml", (), tmp_path, tuple(FORMATS), FrameSelection())
    graph = attach(build(read_text("sources: {a: 'test://'}\nstages: {detect: {model: demo}}")), batch_settings)
    assert set(graph.nodes) > {f"dataset.{name}" for name in FORMATS}


# -------------------------------------------------------------------------------------------------------------- coco


def coco(path):
    from pycocotools.coco import COCO

    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(path))


def test_pycocotools_reads_coco(tmp_path):
    dataset = coco(written(CocoPart, tmp_path, scene(), labels=("person", "car")))
    assert [dataset.imgs[i]["frame_id"] for i in dataset.getImgIds()] == [10, 11, 12]
    assert dataset.imgs[1]["file_name"] == f"{NAME}#10"
    assert (dataset.imgs[1]["width"], dataset.imgs[1]["height"], dataset.imgs[3]["pts_s"]) == (640, 360, 0.48)
    assert [dataset.cats[i]["name"] for i in dataset.getCatIds()] == ["person", "car", "bike", "5"]
    assert [len(dataset.getAnnIds(imgIds=i)) for i in dataset.getImgIds()] == [2, 0, 1]
    first = dataset.anns[1]
    assert (first["bbox"], first["area"], first["score"], first["track_id"]) == (
        [10.0, 20.0, 20.0, 40.0],
        800.0,
        0.9,
        7,
    )
    assert "track_id" not in dataset.anns[3]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in pycocotools
def test_coco_has_masks_and_points(tmp_path):
    mask = np.zeros((360, 640), bool)
    mask[20:60, 10:30] = True
    points = np.array([[[10, 20, 0.75], [np.nan, np.nan, np.nan]]], np.float32)
    (frame,) = frames(1)
    frame.tables = {
        "d": detections(
            [[10, 20, 30, 60]],
            labels=("person",),
            keypoints=points,
            mask=np.array([rle.encode(mask, 640, 360)], object),
        )
    }
    frame.tables["d"] = frame.tables["d"].with_columns(skeleton=Skeleton(("nose", "eye"), ((0, 1),)))
    dataset = coco(written(CocoPart, tmp_path, [frame]))
    annotation = dataset.anns[1]
    assert (dataset.annToMask(annotation) == mask).all()
    assert annotation["area"] == 800
    assert (annotation["keypoints"], annotation["num_keypoints"]) == ([10.0, 20.0, 2, 0.0, 0.0, 0], 1)
    assert dataset.cats[1]["keypoints"] == ["nose", "eye"]
    assert dataset.cats[1]["skeleton"] == [[1, 2]]


def test_coco_has_the_polygon_of_a_rotated_box_and_its_area(tmp_path):
    corners = np.float32([[[40, 20], [64, 38], [58, 46], [34, 28]], np.full((4, 2), np.nan)])  # 30 x 10
    (frame,) = frames(1)
    frame.tables = {"d": detections([[34, 20, 64, 46], [1, 2, 3, 5]], labels=("ship",), corners=corners)}
    rotated, other = coco(written(CocoPart, tmp_path, [frame])).anns.values()
    assert rotated["segmentation"] == [[40, 20, 64, 38, 58, 46, 34, 28]]
    assert (rotated["area"], rotated["bbox"]) == (300, [34, 20, 30, 26])
    assert "segmentation" not in other
    assert other["area"] == 6


def test_coco_files_of_several_videos_are_merged(tmp_path):
    first = written(CocoPart, tmp_path / "a", scene(), labels=("car",))
    second = written(CocoPart, tmp_path / "b", scene(), labels=("bus", "bike"))
    whole = tmp_path / "all.json"
    merge([first, second], whole)
    dataset = coco(whole)
    assert dataset.getImgIds() == [1, 2, 3, 4, 5, 6]
    assert [len(dataset.getAnnIds(imgIds=i)) for i in dataset.getImgIds()] == [2, 0, 1, 2, 0, 1]
    named = [dataset.cats[dataset.anns[i]["category_id"]]["name"] for i in dataset.getAnnIds()]
    assert named == ["car", "bike", "5"] * 2
    assert len(set(dataset.getCatIds())) == len(dataset.cats) == 4
    second.write_text("{")
    before = whole.read_bytes()
    with pytest.raises(OutputError, match=r"cannot read .*key.json"):
        merge([first, second], whole)
    assert whole.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "all.json", "b"]


def test_coco_of_a_detector_scores_1_against_itself(tmp_path, test_data):
    """The whole way, with masks: what a network finds, scored by COCO's own tool against the same, is perfect."""
    from pycocotools.cocoeval import COCOeval

    card_of("seg", test_data, tmp_path)
    text = "stages:\n  segment: {model: seg, min_score: 0.3}\n"
    batch_settings = settings(tmp_path, text, "coco")
    street = test_data / "videos" / "ahmetozlu_pedestrian.mp4"
    graph = graph_of(batch_settings)
    with open_folder(graph, batch_settings) as folder:
        key = file_key(HERE, folder.pipeline)
        assert run(batch_settings, graph, {key: HERE}, limit=4, uri=street)[0] == 0
    truth = coco(batch_settings.out / "coco" / f"{key}.json")
    assert len(truth.anns) > 4
    for kind in ("bbox", "segm"):
        with contextlib.redirect_stdout(io.StringIO()):
            scored = COCOeval(truth, truth.loadRes(list(truth.anns.values())), kind)
            scored.evaluate()
            scored.accumulate()
            scored.summarize()
        assert scored.stats[0] > 0.99


# --------------------------------------------------------------------------------------------------------------- mot


def test_trackeval_reads_mot(tmp_path):
    trackeval = pytest.importorskip("trackeval")
    batch_settings = settings(tmp_path, TRACKED, "mot")
    (key,) = do(batch_settings, limit=30)
    (tmp_path / "gt" / key / "gt").mkdir(parents=True)
    result = np.loadtxt(batch_settings.out / "mot" / f"{key}.txt", delimiter=",")
    truth = result.copy()
    truth[:, 6:9] = 1, 1, 1
    np.savetxt(tmp_path / "gt" / key / "gt" / "gt.txt", truth[:, :9], delimiter=",", fmt="%g")
    tracker = tmp_path / "trackers" / "mine"
    tracker.mkdir(parents=True)
    (tracker / "data").symlink_to(batch_settings.out / "mot")
    reader = trackeval.datasets.MotChallenge2DBox(
        {
            "GT_FOLDER": str(tmp_path / "gt"),
            "TRACKERS_FOLDER": str(tmp_path / "trackers"),
            "PRINT_CONFIG": False,
            "SEQ_INFO": {key: 30},
            "SKIP_SPLIT_FOL": True,
            "BENCHMARK": "MOT15",
            "DO_PREPROC": False,
        }
    )
    data = reader.get_preprocessed_seq_data(reader.get_raw_seq_data("mine", key), "pedestrian")
    assert data["num_timesteps"] == 30
    assert data["num_tracker_dets"] == len(result) > 200
    assert trackeval.metrics.CLEAR({"PRINT_CONFIG": False}).eval_sequence(data)["MOTA"] == 1.0


def test_mot_of_tracks_omits_and_counts_untracked_objects(tmp_path):
    path = written(MotPart, tmp_path, scene(), tracked=True)
    assert [text.split(",")[:2] for text in path.read_text().splitlines()] == [["11", "7"], ["11", "8"]]


def test_mot_of_detections_has_no_ids(tmp_path):
    rows = [text.split(",") for text in written(MotPart, tmp_path, scene()).read_text().splitlines()]
    assert rows == [
        ["11", "-1", "10", "20", "20", "40", "0.9", "-1", "-1", "-1"],
        ["11", "-1", "0", "0", "5", "5", "0.25", "-1", "-1", "-1"],
        ["13", "-1", "1", "2", "2", "2", "0.5", "-1", "-1", "-1"],
    ]


# ------------------------------------------------------------------------------------------------------------- video


def test_each_file_gets_an_annotated_video(tmp_path):
    batch_settings = settings(tmp_path, PLAIN, "video", "jsonl")
    keys = do(batch_settings, HERE, VideoFile("u", "second.mp4", 3, "4"), limit=20)
    for key in keys:
        with av.open(str(batch_settings.out / "video" / f"{key}.mp4")) as file:
            assert sum(1 for _ in file.decode(video=0)) == 20
    assert sorted(path.name for path in (batch_settings.out / "video").iterdir()) == sorted(
        f"{key}.mp4" for key in keys
    )
