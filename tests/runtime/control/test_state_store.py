"""What was changed while a pipeline ran is there after a restart."""

import os
import sqlite3
import stat

import pytest
from support.cameras import WRITTEN, going, pipeline, source, until
from support.full_disk import refusing_writes, small_disk

from streamkit.core.errors import ConfigError, OutputError
from streamkit.runtime.control.state_store import StateStore

YAML = """
state: {path}
sources: {{a: {{stage: camera}}, b: {{stage: camera}}, c: {{stage: camera, rate: 10}}}}
stages: {{slow: {{}}, detect: {{model: demo}}, note: {{}}}}
"""


@pytest.fixture(autouse=True)
def _clean():
    WRITTEN.clear()


def test_changes_survive_a_restart(tmp_path):
    path = tmp_path / "very" / "deep" / "state.db"
    running, _ = pipeline(YAML.format(path=path))
    with going(running):
        running.add(source(running, "d", uri="rtsp://user:secret@127.0.0.1:1/x", timeout="3s"))
        running.remove("a")
        running.pause("b")
        running.change(source(running, "c", stage="camera", rate=20.0))
        running.set("slow", {"pause_s": 0.001})
        running.set("detect", {"min_score": 0.5})
        running.set("detect", {"iou": 0.3})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    again, logged = pipeline(YAML.format(path=path))
    (text,) = logged
    assert text.startswith(f"{path} changes what the YAML says: source a of the YAML is removed; source c has another ")
    assert text.split("; ")[1:] == [
        "source c has another rate",
        "source d is not in the YAML",
        "source b is paused",
        "slow.pause_s is 0.001, and not set in the YAML",
        "detect.postprocess.min_score is 0.5, and not set in the YAML",
        "detect.postprocess.iou is 0.3, and not set in the YAML",
        "remove the file to run as the YAML says",
    ]
    assert {config.id: config.options for config in again.graph.sources} == {
        "b": {},
        "c": {"rate": 20.0},
        "d": {"uri": "rtsp://user:secret@127.0.0.1:1/x", "timeout": 3.0},
    }
    assert again.changeable("slow") == {"pause_s": 0.001}
    assert (again.changeable("detect")["min_score"], again.changeable("detect")["iou"]) == (0.5, 0.3)
    with going(again):
        assert again.states["b"].state == "paused"
        until(lambda: again.states["c"].frames > 3)
        assert again.states["b"].frames == 0
        again.resume("b")
        until(lambda: again.states["b"].frames > 3)
        again.remove("d")

    third, _ = pipeline(YAML.format(path=path))
    assert [config.id for config in third.graph.sources] == ["b", "c"]
    assert third.states["b"].state == "connecting"


def test_a_start_logs_some_of_the_differences_if_any(tmp_path):
    path = tmp_path / "state.db"
    running, _ = pipeline(YAML.format(path=path))
    running.remove("a")
    running.follow("a", source(running, "a", stage="camera"))
    assert pipeline(YAML.format(path=path))[1] == []
    for number in range(10):
        running.add(source(running, f"new{number}", stage="camera"))
    _, (text,) = pipeline(YAML.format(path=path))
    assert text.count("is not in the YAML") == 8
    assert "; and 2 more; remove the file" in text


def test_the_edited_yaml_takes_precedence(tmp_path):
    path = tmp_path / "state.db"
    running, _ = pipeline(YAML.format(path=path))
    with going(running):
        running.remove("a")
        running.follow("a", source(running, "a", stage="camera", rate=5.0))
        running.follow("c", None)
    again, _ = pipeline(YAML.format(path=path))
    assert {config.id: config.options for config in again.graph.sources} == {"a": {}, "b": {}, "c": {"rate": 10.0}}


def test_pauses_and_settings_are_forgotten_with_their_source_or_stage(tmp_path):
    running, logged = pipeline(
        "sources: {a: {stage: camera}, b: {stage: camera}}\nstages: {slow: {}, detect: {model: demo}}"
    )
    store = StateStore(tmp_path / "state.db")

    def restored():
        paused = store.restore(running.graph)
        return paused, [config.id for config in running.graph.sources]

    for id_ in ("a", "b", "c"):
        store.paused(id_, True)
    assert restored() == ({"a", "b", "c"}, ["a", "b"])
    store.paused("a", False)
    store.added(source(running, "c", stage="camera"))
    assert restored() == ({"b"}, ["a", "b", "c"])
    store.paused("c", True)
    store.removed("b")
    assert restored() == ({"c"}, ["a", "c"])
    store.forget("c")
    assert restored() == (set(), ["a", "c"])
    store.changed("detect", {"min_score": 0.5})
    store.changed("detect", {"iou": 0.3})
    store.forget_settings("detect", ["iou", "nothing"])
    assert store._rows("stage") == [("detect", {"min_score": 0.5})]
    store.forget_settings("detect", ["min_score"])
    store.forget_settings("slow", ["pause_s"])
    assert store._rows("stage") == []
    assert logged == []


CHANGES = {
    "add": lambda running: running.add(source(running, "d")),
    "remove": lambda running: running.remove("a"),
    "change": lambda running: running.change(source(running, "c", stage="camera", rate=20.0)),
    "pause": lambda running: running.pause("a"),
    "resume": lambda running: running.resume("b"),
    "set": lambda running: running.set("slow", {"pause_s": 0.001}),
    "follow": lambda running: running.follow("b", None),
}


def facts(running):
    """What live changes change."""
    sources = {config.id: config.options for config in running.graph.sources}
    paused = {id_: state.state == "paused" for id_, state in running.states.items()}
    return sources, paused, running.changeable("slow"), dict(running.addresses)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_that_cannot_be_stored_is_not_applied(tmp_path, change):
    running, _ = pipeline(YAML.format(path=tmp_path / "state.db"))
    running.pause("b")
    before = facts(running)
    with refusing_writes(tmp_path / "state.db", "changes"):
        with pytest.raises(OutputError, match=r"cannot use the state .*: the disk is full"):
            change(running)
        assert facts(running) == before
    assert facts(pipeline(YAML.format(path=tmp_path / "state.db"))[0]) == before
    change(running)
    assert facts(running) != before


def test_a_change_on_a_full_disk_is_refused_with_the_fix(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        running, _ = pipeline(YAML.format(path=disk.folder / "state.db"))
        disk.fill()
        with pytest.raises(OutputError, match=r"state\.db: database or disk is full; free some space on its disk"):
            running.remove("a")
        assert "a" in running.states
        disk.free()
        running.remove("a")
        assert "a" not in running.states


@pytest.mark.parametrize("change", ["add", "change"])
def test_a_refused_change_is_not_stored(tmp_path, change):
    running, _ = pipeline(YAML.format(path=tmp_path / "state.db"))
    running.set("slow", {"pause_s": 0.002})
    running.pause("c")
    before = facts(running)
    running.stop()
    until(lambda: running.sources.stopping)
    with pytest.raises(ConfigError, match="cannot be added: the run has ended"):
        CHANGES[change](running)
    assert facts(pipeline(YAML.format(path=tmp_path / "state.db"))[0]) == before


def test_a_refused_change_of_an_unknown_source_is_not_stored(tmp_path):
    running, _ = pipeline(YAML.format(path=tmp_path / "state.db"))
    before = facts(running)
    for change in (running.remove, running.pause):
        with pytest.raises(ConfigError, match="there is no source 'west'"):
            change("west")
    running.add(source(running, "west"))
    again, _ = pipeline(YAML.format(path=tmp_path / "state.db"))
    assert again.states["west"].state != "paused"
    again.remove("west")
    assert facts(pipeline(YAML.format(path=tmp_path / "state.db"))[0]) == before


def test_options_refused_by_a_stage_on_a_full_disk_do_not_end_the_run(tmp_path):
    running, logged = pipeline(YAML.format(path=tmp_path / "state.db"))
    with going(running) as codes:
        with refusing_writes(tmp_path / "state.db", "changes", ["DELETE"]):
            running.set("slow", {"pause_s": -1.0})
            until(lambda: any("the state keeps options of slow that the stage has refused" in text for text in logged))
            assert running.changeable("slow") == {"pause_s": 0.0}
        until(lambda: running.frames > 5)
        assert codes == []


def test_stored_changes_that_no_longer_apply_are_reported(tmp_path):
    path = tmp_path / "state.db"
    store = StateStore(path)
    store.changed("gone", {"x": 1})
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO changes VALUES ('source', 'e', '{\"uri\": \"rtsp://u:secret@h/x\", \"old\": 1}')")
    connection.commit()
    connection.close()
    running, logged = pipeline(YAML.format(path=path))
    assert list(running.states) == ["a", "b", "c"]
    assert len(logged) == 2
    assert "source e is ignored" in logged[0]
    assert "the options of gone are ignored: " in logged[1]
    assert not any("secret" in text for text in logged)


def test_applicable_changes_are_restored_after_inapplicable_ones(tmp_path):
    path = tmp_path / "state.db"
    running, logged = pipeline(YAML.format(path=path))
    store = StateStore(path)
    store._put("source", "wrong", '{"uri": "rtsp://h/x", "old": 1}')
    store.changed("gone", {"x": 1})
    store.added(source(running, "good", stage="camera"))
    store.removed("b")
    store.changed("slow", {"pause_s": 0.5})
    assert store.restore(running.graph) == set()
    assert [config.id for config in running.graph.sources] == ["a", "c", "good"]
    assert running.changeable("slow") == {"pause_s": 0.5}
    assert len(logged) == 2


def test_a_replaced_source_keeps_its_position(tmp_path):
    running, _ = pipeline(YAML.format(path=tmp_path / "state.db"))
    store = StateStore(tmp_path / "state.db")
    store.added(source(running, "b", stage="camera", rate=7.0))
    store.restore(running.graph)
    assert [(config.id, config.options.get("rate")) for config in running.graph.sources] == [
        ("a", None),
        ("b", 7.0),
        ("c", 10),
    ]


def test_the_file_is_private_from_its_creation(tmp_path, monkeypatch):
    opened = []
    plain = os.open

    def noted(path, flags, mode=0o777, **more):
        opened.append((str(path), mode))
        return plain(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", noted)
    path = tmp_path / "state.db"
    StateStore(path)
    assert opened[0] == (str(path), 0o600)
    path.chmod(0o644)
    StateStore(path)  # a file that was there
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_unusable_file_is_reported(tmp_path):
    (tmp_path / "no.db").write_text("this is no database, but it is long enough to be taken for one" * 20)
    with pytest.raises(OutputError, match=r"cannot use the state .*no\.db: .*repair or remove the file"):
        pipeline(YAML.format(path=tmp_path / "no.db"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=r"cannot write the state .*folder: Is a directory"):
        StateStore(tmp_path / "folder")
