"""Lists of texts in files: `plate in file("known.txt")` of objects, frames and events, and files that change."""

import logging
import os

import numpy as np
import pytest

from streamkit.rules import list_file
from streamkit.rules.list_file import ListFile
from streamkit.rules.rule import OptionError, make_rule
from streamkit.rules.scope import Facts, Scope
from streamkit.stages.analytics.rule import RuleStage
from streamkit.testing.kit import detections, frames, run_stage

LIST = "# known cars\n\nB-AB 1234  # the porter's\nhh zz 99\n"


@pytest.fixture
def list_path(tmp_path):
    (tmp_path / "known.txt").write_text(LIST)
    return tmp_path / "known.txt"


def scope(folder):
    return Scope(
        labels=("car",), attributes={"plate": None}, facts={"sign": None}, events={"plate": ("read",)}, folder=folder
    )


def film(*texts):
    film_frames = frames(len(texts), pixels=False)
    for frame, text in zip(film_frames, texts, strict=True):
        attributes = np.full(1, None)
        attributes[0] = None if text is None else {"plate": {"label": text, "score": 0.9}}
        frame.detections = detections([[1, 1, 9, 9]], track_id=[7], label=["car"], attributes=attributes)
    return film_frames


def events_of(when, folder, film_frames):
    processed = run_stage(RuleStage(when=when, above=scope(folder)), film_frames)
    return [[event.kind for event in frame.events] for frame in processed]


def test_case_spaces_and_hyphens_are_ignored(list_path):
    entries = ListFile(list_path)
    assert [text in entries for text in ("BAB1234", "b-ab 1234", "HHZZ99", "known cars", "BAB123", "")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_list_can_be_used_for_objects(list_path):
    film_frames = film("BAB1234", "XX1", None, "HHZZ99")
    assert events_of('plate in file("known.txt")', list_path.parent, film_frames) == [
        ["raised"],
        ["cleared"],
        [],
        ["raised"],
    ]


def test_an_unknown_text_satisfies_neither_a_rule_nor_its_negation(list_path):
    assert events_of('not (plate in file("known.txt"))', list_path.parent, film(None, "XX1")) == [[], ["raised"]]


def test_a_list_can_be_used_in_counts_and_values(list_path):
    rule = RuleStage(when='count(plate in file("known.txt")) > 0', above=scope(list_path.parent))
    (frame,) = run_stage(rule, film("BAB1234"))
    assert frame.events[0].data["values"] == {'count(plate in file("known.txt"))': 1}
    rule = RuleStage(when='plate in file("known.txt")', above=scope(list_path.parent))
    (frame,) = run_stage(rule, film("BAB1234"))
    assert frame.events[0].data["values"] == {"plate": "BAB1234", 'file("known.txt")': True}
    rule = RuleStage(when='plate in file("known.txt") or score > 0', above=scope(list_path.parent))
    (frame,) = run_stage(rule, film(None))
    assert frame.events[0].data["values"].keys() == {"score"}, "an unknown value is left out"


def test_a_list_can_be_used_with_frame_facts_and_event_data(list_path):
    film_frames = film(None, None, None)
    film_frames[1].facts["attributes"] = {"sign": {"label": "hh-zz 99", "score": 0.9}}
    assert events_of('frame.sign in file("known.txt")', list_path.parent, film_frames) == [[], ["raised"], ["cleared"]]
    film_frames = film(None, None)
    film_frames[1]._state.stage = "plate"
    film_frames[1].emit("read", 7, value="BAB1234")
    done = events_of('event(plate.read, value in file("known.txt"))', list_path.parent, film_frames)
    assert done == [[], ["read", "raised"]]
    (list_path.parent / "sources.txt").write_text("test")
    assert events_of('source in file("sources.txt")', list_path.parent, film(None)) == [["raised"]]


def test_a_changed_file_is_reloaded(list_path, monkeypatch, caplog):
    monkeypatch.setattr(list_file, "_CHECK_EVERY_S", 0.0)
    entries = ListFile(list_path)
    assert "NEW1" not in entries
    list_path.write_text("new1\n")
    os.utime(list_path, ns=(1, 1))
    assert "NEW1" in entries
    assert "BAB1234" not in entries
    list_path.unlink()
    caplog.set_level(logging.WARNING)
    assert ("NEW1" in entries, "NEW1" in entries) == (True, True)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"there is no file {list_path}; its last 1 entries stay in use"
    ]
    list_path.write_text("other\n")
    assert "OTHER" in entries


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ('plate in file("none.txt")', "column 15: there is no file none.txt; write one text per line into it"),
        ('score in file("known.txt")', "column 1: only a name that stands for a text can be in a file"),
        ('"B" in file("known.txt")', "column 1: only a name that stands for a text can be in a file"),
        ("plate in file(known)", "column 10: file takes the path of a text file in quotes"),
        ('file("known.txt")', "column 1: file is allowed after in only, as in plate in file"),
        ('event(plate.read, value in file("none.txt"))', "there is no file none.txt"),
    ],
)
def test_invalid_lists_are_refused(list_path, when, message):
    with pytest.raises(OptionError) as caught:
        make_rule("", {"when": when}, scope(list_path.parent), Facts())
    assert message in str(caught.value)


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read: it is no UTF-8 text"):
        ListFile(tmp_path / "a.txt")
