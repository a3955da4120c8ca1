"""What a stage keeps over restarts is whole, its own, and never stops the run."""

import pytest
from support.messages import collect

from streamkit.core.errors import OutputError
from streamkit.runtime.control.stage_state import StageStateFile
from streamkit.runtime.control.state_store import StateStore


@pytest.fixture
def path(tmp_path):
    StateStore(tmp_path / "state.db")
    return tmp_path / "state.db"


def test_a_stage_reads_only_its_stored_state(path):
    state = StageStateFile(path, "one")
    other = StageStateFile(path, "other")
    state.save({"a": b"1", "b": b"2"}, wait=True)
    other.save({"a": b"3"}, wait=True)
    state.save({"a": None, "c": b"4"})
    state.save({"c": b"5"}, wait=True)
    assert StageStateFile(path, "one").load() == {"b": b"2", "c": b"5"}
    assert StageStateFile(path, "other").load() == {"a": b"3"}
    assert StageStateFile(path, "new").load() == {}


def test_a_state_is_due_after_its_interval(path):
    state = StageStateFile(path, "one")
    assert not state.due(60.0)
    assert state.due(0.0)


def test_a_state_that_could_not_be_written_is_written_later(path):
    logged = collect()
    state = StageStateFile(path, "one")
    path.write_bytes(b"not a database" * 100)
    state.save({"a": b"1", "b": b"0"}, wait=True)
    assert any("cannot write the state" in text for text in logged)
    path.unlink()
    state.save({"b": b"2"}, wait=True)
    assert state.load() == {"a": b"1", "b": b"2"}


def test_a_broken_file_is_reported(path):
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(OutputError, match="repair or remove the file"):
        StageStateFile(path, "one").load()
