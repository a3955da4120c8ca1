"""The index of recordings: it follows the files, and is made from them whenever it is missing or wrong."""

import shutil

import pytest
from support.fed_recorders import FedCamera, FedRecorder, drawn

from streamkit.io.segment_files import marked_path
from streamkit.serve import recordings
from streamkit.serve.store.recording_index import NAME, RecordingIndex

START_S = 1_790_000_000.0


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("clip") / "clip.mp4")


@pytest.fixture
def recorder(clip, tmp_path):
    recorder = FedRecorder(tmp_path / "rec", segment_s=10)
    camera = FedCamera("yard/gate", clip, START_S)
    recorder.feed(camera, 500)
    camera.away(60)
    recorder.feed(camera, 300)
    recorder.camera = camera
    yield recorder
    recorder.recorder.close()


@pytest.fixture
def index(tmp_path):
    def open_index():
        (tmp_path / "data").mkdir(exist_ok=True)
        index = RecordingIndex(tmp_path / "data")
        index.follow([tmp_path / "rec", tmp_path / "archive"])
        return index

    return open_index


def listed(index):
    index.refresh(now=True)
    return [segment for segment in index.segments("yard/gate", 0, 1e11) if segment.id]


def test_segments_have_their_files_and_fragments(recorder, index):
    segments = listed(index())
    assert [segment.path for segment in segments] == [file.path for file in recorder.files()]
    assert [segment.end_ms - segment.start_ms for segment in segments] == [10_000, 10_000, 10_000]
    assert [segment.content.cause for segment in segments] == ["", "", "camera away"]
    assert [segment.fragment_s(10) - segment.start_s for segment in segments] == pytest.approx([2.0] * 3)


def test_the_file_that_is_being_written_is_listed_as_far_as_it_is_written(recorder, index):
    *_, unfinished = index().segments("yard/gate", 0, 1e11)
    assert unfinished.id == 0
    assert 1.5 <= unfinished.end_s - unfinished.start_s <= 2.0


def test_gaps_have_their_causes(recorder, index):
    fresh = index()
    segments = fresh.segments("yard/gate", START_S - 10, START_S + 70)
    views = recordings.gaps(fresh, "yard/gate", segments, START_S - 10, START_S + 70)
    assert [(round(view.from_s - START_S), round(view.to_s - START_S), view.cause) for view in views] == [
        (-10, 0, "not recorded"),
        (20, 70, "camera away"),
    ]
    assert [view.event for view in recordings.joined(segments)] == [False]


@pytest.mark.parametrize("damage", ["missing", "garbage", "other version"])
def test_an_index_that_is_missing_or_damaged_is_made_again(recorder, index, tmp_path, damage):
    before = [(segment.path, segment.content) for segment in listed(index())]
    file = tmp_path / "data" / NAME
    if damage == "garbage":
        file.write_bytes(b"no database" * 1000)
    elif damage == "missing":
        file.unlink()
    else:
        import sqlite3

        connection = sqlite3.connect(file)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    assert [(segment.path, segment.content) for segment in listed(index())] == before


def test_files_that_are_marked_moved_or_removed_are_followed(recorder, index, tmp_path):
    fresh = index()
    first, second, third = listed(fresh)
    first.path.rename(marked_path(first.path))
    moved = tmp_path / "archive" / second.path.relative_to(tmp_path / "rec")
    moved.parent.mkdir(parents=True)
    shutil.move(second.path, moved)
    third.path.unlink()
    after = listed(fresh)
    assert [(segment.id, segment.path, segment.event) for segment in after] == [
        (first.id, marked_path(first.path), True),
        (second.id, moved, False),
    ]


def test_changes_while_no_server_runs_are_taken(recorder, index):
    first, *_ = listed(index())
    shutil.rmtree(first.path.parent)
    assert listed(index()) == []


def test_a_damaged_file_is_left_out_and_told(recorder, index, caplog):
    file = recorder.files()[1].path
    file.write_bytes(b"\0" * 5000)
    assert len(listed(index())) == 2
    assert f"a recorded file is not shown: {file}" in caplog.text


def test_a_copy_in_both_folders_is_one_segment(recorder, index, tmp_path):
    fresh = index()
    file = recorder.files()[0].path
    copy = tmp_path / "archive" / file.relative_to(tmp_path / "rec")
    copy.parent.mkdir(parents=True)
    shutil.copyfile(file, copy)
    assert len(listed(fresh)) == 3
    file.unlink()
    assert next(segment.path for segment in listed(fresh)) == copy
