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
def known(tmp_path):
    (tmp_path / "known.txt").write_text(LIST)
    return tmp_path / "known.txt"


def scope(folder):
    return Scope(
        labels=("car",), attributes={"plate": None}, facts={"sign": None}, events={"plate": ("read",)}, folder=folder
    )


def film(*texts):
    made = frames(len(texts), pixels=False)
    for frame, text in zip(made, texts, strict=True):
        attributes = np.full(1, None)
        attributes[0] = None if text is None else {"plate": {"label": text, "score": 0.9}}
        frame.detections = detections([[1, 1, 9, 9]], track_id=[7], label=["car"], attributes=attributes)
    return made


def told(when, folder, given):
    done = run_stage(RuleStage(when=when, above=scope(folder)), given)
    return [[event.kind for event in frame.events] for frame in done]


def test_case_spaces_and_hyphens_do_not_count(known):
    found = ListFile(known)
    assert [text in found for text in ("BAB1234", "b-ab 1234", "HHZZ99", "known cars", "BAB123", "")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_a_rule_about_objects(known):
    given = film("BAB1234", "XX1", None, "HHZZ99")
    assert told('plate in file("known.txt")', known.parent, given) == [["raised"], ["cleared"], [], ["raised"]]


def test_an_unknown_text_makes_neither_the_rule_nor_its_opposite_true(known):
    assert told('not (plate in file("known.txt"))', known.parent, film(None, "XX1")) == [[], ["raised"]]


def test_counts_and_values(known):
    rule = RuleStage(when='count(plate in file("known.txt")) > 0', above=scope(known.parent))
    (frame,) = run_stage(rule, film("BAB1234"))
    assert frame.events[0].data["values"] == {'count(plate in file("known.txt"))': 1}
    rule = RuleStage(when='plate in file("known.txt")', above=scope(known.parent))
    (frame,) = run_stage(rule, film("BAB1234"))
    assert frame.events[0].data["values"] == {"plate": "BAB1234", 'file("known.txt")': True}


def test_facts_of_frames_and_data_of_events(known):
    given = film(None, None, None)
    given[1].facts["attributes"] = {"sign": {"label": "hh-zz 99", "score": 0.9}}
    assert told('frame.sign in file("known.txt")', known.parent, given) == [[], ["raised"], ["cleared"]]
    given = film(None, None)
    given[1]._state.stage = "plate"
    given[1].emit("read", 7, value="BAB1234")
    done = told('event(plate.read, value in file("known.txt"))', known.parent, given)
    assert done == [[], ["read", "raised"]]
    (known.parent / "sources.txt").write_text("test")
    assert told('source in file("sources.txt")', known.parent, film(None)) == [["raised"]]


def test_the_file_is_read_again_when_it_changes(known, monkeypatch, caplog):
    monkeypatch.setattr(list_file, "_CHECK_EVERY_S", 0.0)
    found = ListFile(known)
    assert "NEW1" not in found
    known.write_text("new1\n")
    os.utime(known, ns=(1, 1))
    assert "NEW1" in found
    assert "BAB1234" not in found
    known.unlink()
    caplog.set_level(logging.WARNING)
    assert ("NEW1" in found, "NEW1" in found) == (True, True)
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [
        f"there is no file {known}; its last 1 entries stay in use"
    ]
    known.write_text("other\n")
    assert "OTHER" in found


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ('plate in file("none.txt")', "column 15: there is no file none.txt; write one text per line into it"),
        ('score in file("known.txt")', "column 1: only a name that stands for a text can be in a file"),
        ('"B" in file("known.txt")', "column 1: only a name that stands for a text can be in a file"),
        ("plate in file(known)", "column 10: file takes the path of a text file in quotes"),
        ('file("known.txt")', "column 1: file is allowed after in only, as in plate in file"),
        ('event(plate.read, value in file("none.txt"))', "there is no file none.txt"),
    ],
)
def test_mistakes(known, when, told):
    with pytest.raises(OptionError) as caught:
        make_rule("", {"when": when}, scope(known.parent), Facts())
    assert told in str(caught.value)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read: it is no UTF-8 text"):
        ListFile(tmp_path / "a.txt")
