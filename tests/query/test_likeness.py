"""Search: tracks ranked by a text or an image, beside conditions, and what is refused."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.archives import opened
from support.dataset_runs import STREET, do, settings

from samples.scene import box_iou
from streamkit.batch.identity import network_sum
from streamkit.batch.inputs import find
from streamkit.core.errors import ConfigError, ModelError
from streamkit.models.card import find_card, load_card, shipped_models
from streamkit.query.dataset_location import DatasetLocation
from streamkit.query.likeness import vector_of

EMBEDDED = """
device: cpu
stages:
  detect: {model: demo, min_score: 0.5}
  track: {}
  look: {stage: embed, model: demo-words-crop, of: detect, record: %s}
  jsonl: {path: "a/{source}.jsonl"}
"""


@pytest.fixture(scope="module")
def dataset_path(tmp_path_factory):
    """A data set of 24 frames of the street, with vectors of best views; not to be changed."""
    folder = tmp_path_factory.mktemp("embedded")
    run = settings(folder, EMBEDDED % "best")
    do(run, *find([str(STREET)]), limit=24)
    return run.out


def rows_of(dataset_path, like, sql=None, where=None, limit=50):
    with opened(dataset_path) as database:
        rows = database.like(vector_of(DatasetLocation(str(dataset_path)), like), sql, where, limit)
        return [dict(zip(rows.columns, row, strict=True)) for row in rows]


def looks_of(dataset_path):
    """The kind of each track by the truth of the scene, and the mean color of its best view."""
    truth = [json.loads(line)["objects"] for line in (STREET.parent / "street.truth.jsonl").read_text().splitlines()]
    looks = {}
    with opened(dataset_path) as database:
        for track, frame, *box in database.fetch(
            "SELECT track_id, frame, x1, y1, x2, y2 FROM objects SEMI JOIN tracks USING (key, track_id, frame)"
        ):
            overlap = box_iou(np.array([box]), np.array([entry["box"] for entry in truth[frame]]))[0]
            if overlap.max() > 0.5:
                looks[track] = truth[frame][int(overlap.argmax())]["label"], view_of(frame, box).mean((0, 1))
    return looks


def view_of(frame, box):
    """The pixels of a box, BGR."""
    video = cv2.VideoCapture(str(STREET))
    video.set(cv2.CAP_PROP_POS_FRAMES, frame)
    x1, y1, x2, y2 = (max(0, round(value)) for value in box)
    return video.read()[1][y1:y2, x1:x2]


def test_only_the_best_views_have_a_vector(dataset_path):
    with opened(dataset_path) as database:
        counts = database.fetch(
            "SELECT count(*), count(embedding), max(frame) FILTER (embedding IS NOT NULL) FROM objects "
            "WHERE track_id IS NOT NULL GROUP BY track_id HAVING count(embedding) > 0"
        )
        best = dict(database.fetch("SELECT track_id, frame FROM tracks"))
    assert len(counts) == len(best) >= 8
    assert sum(views for _, views, _ in counts) < sum(rows for rows, _, _ in counts) / 3
    assert sorted(last for *_, last in counts) == sorted(best.values())


def test_a_text_ranks_the_tracks_that_it_describes_first(dataset_path):
    looks = looks_of(dataset_path)
    for noun in ("person", "bike", "car"):
        ranked = [looks[row["track_id"]][0] for row in rows_of(dataset_path, noun) if row["track_id"] in looks]
        count = ranked.count(noun)
        assert count
        assert ranked[:count].count(noun) >= count - 1, (noun, ranked)
    red = [track for track, (kind, (blue, _, red)) in looks.items() if kind == "car" and red > 1.3 * blue]
    assert red
    first = [row["track_id"] for row in rows_of(dataset_path, "red car", limit=len(red) + 1)]
    assert set(red) <= set(first)
    likeness = [row["likeness"] for row in rows_of(dataset_path, "red car")]
    assert likeness == sorted(likeness, reverse=True)
    assert -1 <= likeness[-1] < likeness[0] <= 1


def test_an_image_of_an_object_ranks_its_track_first(dataset_path, tmp_path):
    (row,) = rows_of(dataset_path, "car", limit=1)
    with opened(dataset_path) as database:
        (box,) = database.fetch(
            "SELECT x1, y1, x2, y2 FROM objects WHERE track_id = ? AND frame = ?", row["track_id"], row["frame"]
        )
    assert cv2.imwrite(str(tmp_path / "car.png"), view_of(row["frame"], box))
    first = rows_of(dataset_path, str(tmp_path / "car.png"))[0]
    assert first["track_id"] == row["track_id"]
    assert first["likeness"] > 0.95


def test_likeness_can_be_combined_with_conditions_and_statements(dataset_path):
    every = rows_of(dataset_path, "car", limit=0)
    late = rows_of(dataset_path, "car", where="frame > 5", limit=0)
    assert late == [row for row in every if row["frame"] > 5]
    assert 0 < len(late) < len(every)
    assert rows_of(dataset_path, "car", limit=2) == every[:2]
    sql = "SELECT track_id, likeness FROM tracks WHERE label = 'car' ORDER BY likeness DESC LIMIT 2"
    cars = [{"track_id": row["track_id"], "likeness": row["likeness"]} for row in every if row["label"] == "car"]
    assert rows_of(dataset_path, "car", sql) == cars[:2]


def test_the_command_searches_by_likeness(dataset_path, tmp_path, here):
    completed = here(
        "query",
        dataset_path,
        "--like",
        "person in blue",
        "--limit",
        "1",
        "--pictures",
        tmp_path / "found",
        cwd=tmp_path,
    )
    assert completed.returncode == 0, completed.stderr
    assert "likeness" in completed.stdout
    assert "\n1 row" in completed.stdout
    assert len(list((tmp_path / "found").iterdir())) == 1


@pytest.mark.parametrize(
    ("like", "model", "error", "message"),
    [
        (" ", None, ConfigError, "--like needs a text or an image"),
        ("van.jpg", None, ConfigError, "there is no image van.jpg; for a text, leave out .jpg"),
        ("car", "look", ConfigError, "was embedded by another network: the file of the card demo-words-crop had"),
        ("car", "demo", ConfigError, "--like needs a card with task: embed; demo has task: detect"),
        ("car", "gone", ModelError, "there is no model card gone.yaml"),
    ],
)
def test_unsearchable_inputs_are_refused(dataset_path, like, model, error, message):
    with pytest.raises(error) as caught:
        vector_of(DatasetLocation(str(dataset_path)), like, model)
    assert message in str(caught.value)


def embedded_by(dataset_path, *stages):
    """The data set as if these cards had embedded it, each with what it is of, in this order."""
    dataset = DatasetLocation(str(dataset_path))
    networks = {
        f"{name}-{of}": {"stage": "embed", "model": name, "of": {"stage": of, "labels": []}, "record": True}
        for name, of in stages
    }
    sums = {name: {"sha256": network_sum(load_card(find_card(name)).file)} for name, _ in stages}
    dataset.identity = {"stages": networks, "models": sums}
    return dataset


def test_vectors_come_from_the_last_of_several_networks(dataset_path):
    alone = vector_of(DatasetLocation(str(dataset_path)), "car")
    last = embedded_by(dataset_path, ("look", "detect"), ("demo-words-crop", "detect"))
    assert np.array_equal(vector_of(last, "car"), alone)
    with pytest.raises(ConfigError, match="several networks: look of faces, demo-words-crop of detect; a search needs"):
        vector_of(embedded_by(dataset_path, ("look", "faces"), ("demo-words-crop", "detect")), "car")


def test_a_card_without_a_text_encoder_is_refused(dataset_path, tmp_path):
    card = (shipped_models() / "demo-words-crop.yaml").read_text()
    shutil.copy(shipped_models() / "demo-words-crop.onnx", tmp_path)
    lines = [line for line in card.splitlines() if not line.startswith("text:")]
    (tmp_path / "silent.yaml").write_text("\n".join(lines))
    with pytest.raises(ModelError, match="it has no text encoder: add text:"):
        vector_of(DatasetLocation(str(dataset_path)), "car", str(tmp_path / "silent.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            EMBEDDED.replace("  look", "  look: {stage: classify, model: color, of: detect}\n  #"),
            "has no embeddings: put",
        ),
        (EMBEDDED.replace("  track: {}\n", "") % "true", "embeddings, but no tracks: put embed below a tracker"),
    ],
)
def test_a_data_set_without_vectors_is_reported_with_the_fix(text, message, tmp_path):
    run = settings(tmp_path, text)
    do(run, *find([str(STREET)]), limit=2)
    with pytest.raises(ConfigError) as caught:
        rows_of(Path(run.out), "car")
    assert message in str(caught.value)
