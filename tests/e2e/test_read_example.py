"""examples/read_plates.yaml on the video that ships: texts as drawn, events, and a rule with a list that changes."""

import json
import shutil
from pathlib import Path

import pytest
from support.example_runs import run_example

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
PLATES = ["BAB1234", "HHZZ99", "MUC508"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a run of the example, with its report."""
    folder = tmp_path_factory.mktemp("plates")
    for name in ("read_plates.yaml", "known_plates.txt"):
        shutil.copy(ROOT / "examples" / name, folder)
    run_example(folder / "read_plates.yaml", folder, "--report", "report.json")
    return folder


@pytest.fixture(scope="module")
def records(folder):
    return [json.loads(line) for line in (folder / "out" / "plates-read.jsonl").read_text().splitlines()]


def events(records, stage):
    return [event for record in records for event in record["events"] if event["stage"] == stage]


def test_each_plate_is_read_once_and_correctly(records):
    plate_events = events(records, "plate")
    assert [event["kind"] for event in plate_events] == ["read"] * 3
    assert sorted(event["data"]["value"] for event in plate_events) == PLATES
    for event in plate_events:
        assert event["data"]["attribute"] == "plate"
        assert event["data"]["label"] == "plate"
        assert event["data"]["score"] >= 0.6
        assert event["data"]["readings"] <= 4


def test_the_objects_have_the_text(records):
    plate_texts = [
        detection["attributes"]["plate"]["label"] for record in records[-20:] for detection in record["objects"]
    ]
    assert [plate_texts.count(text) for text in PLATES] == [20, 20, 20]
    assert len(plate_texts) == 60


def test_the_rule_is_raised_for_the_plate_in_the_list(records):
    rule_events = events(records, "known")
    assert [(event["kind"], event["data"]["values"]["plate"]) for event in rule_events] == [("raised", "BAB1234")]
    (event,) = [event for event in events(records, "plate") if event["data"]["value"] == "BAB1234"]
    assert rule_events[0]["track_id"] == event["track_id"]


def test_the_summary_counts_the_runs_of_the_network(folder):
    report = json.loads((folder / "report.json").read_text())
    inferred = report["counts"]["objects inferred"]
    assert inferred <= 1.2 * 3 * 4  # 3 tracks of 4 s


def test_check_refuses_a_missing_list(folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = (folder / "read_plates.yaml").read_text().replace("known_plates.txt", "none.txt")
    (folder / "wrong.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        build(read(folder / "wrong.yaml"))
    assert "known.when: column 15: there is no file none.txt; write one text per line into it" in str(caught.value)
