"""Live changes to a run over several real processes, `--watch` and `state`, as in one process."""

import time
from pathlib import Path

import pytest
from support.fleets import until
from support.live_fleets import CAMERA, LOOP, STAGES, Live

from streamkit.core.errors import ConfigError


def test_sources_are_added_removed_and_paused_in_their_processes(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": CAMERA, "b": CAMERA})
    with live.running():
        run = live.run
        for source in "ab":
            live.more(source)
        first = live.worker_of("a")
        second = live.worker_of("b")
        assert first is not second
        run.add(live.source("c", CAMERA))
        live.more("c")
        with pytest.raises(ConfigError, match="there is a source 'c' already"):
            run.add(live.source("c", CAMERA))
        run.add(live.source("d", CAMERA))
        live.more("d")
        assert {live.worker_of("c"), live.worker_of("d")} == {first, second}  # one each

        run.pause("a")
        until(lambda: run.states["a"].state == "paused")
        time.sleep(0.5)
        still = live.indices("a")
        time.sleep(0.7)
        assert live.indices("a") == still
        run.resume("a")
        live.more("a")
        until(lambda: run.states["a"].state == "running")
        assert live.indices("a") == sorted(set(live.indices("a")))

        old = run.states["b"]
        run.change(live.source("b", CAMERA.replace("96", "64")))
        until(lambda: live.records("all", "b")[-1]["width"] == 64)
        live.more("b")
        assert run.states["b"] is not old
        assert run.states["b"].frames < len(live.indices("b"))  # counts are those of the new one

        run.remove("d")
        until(lambda: run.sources.removed.sources == 2)
        assert list(run.states) == ["a", "c", "b"]
        with pytest.raises(ConfigError, match="there is no source 'd'"):
            run.pause("d")
    report = run.report(130)
    removed = report["removed"]
    assert (removed["sources"], removed["frames"]) == (2, removed["out"] + sum(removed["dropped"].values()))
    for source in "acd":
        file_indices = live.indices(source, source)
        assert file_indices == live.indices(source) == sorted(set(file_indices))
    frames = removed["frames"] + sum(counts["frames"] for counts in report["sources"].values())
    assert report["frames"] + report["counts"].get("frames dropped", 0) <= frames
    assert report["frames"] == len(live.records())


def test_options_change_in_all_processes_and_in_those_that_start_later(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": CAMERA, "b": CAMERA})
    with live.running():
        run = live.run
        run.set("tag", {"text": "second"})
        for source in "ab":
            until(lambda source=source: live.texts(source) == {"second"})  # type: ignore[misc]
        run.set("tag", {"text": "bad"})
        until(lambda: run.changeable("tag")["text"] == "second")  # both processes have rejected it
        assert "no such text" in "".join(live.logged)
        with pytest.raises(ConfigError, match="txt cannot change while the pipeline runs"):
            run.set("tag", {"txt": "x"})
        live.kill("a", "b")
        until(lambda: run.restarted == 2)
        for source in "ab":
            before = len(live.records())
            until(lambda source=source, before=before: source in {r["source"] for r in live.records()[before:]})  # type: ignore[misc]
            assert live.texts(source) == {"second"}


def test_a_recorder_is_triggered_in_the_process_of_the_source(tmp_path: Path) -> None:
    record = '\n  record: {path: "OUT/{source}-{kind}.mp4", before: 0, after: 1s}\n'
    live = Live(tmp_path, {"a": LOOP, "b": LOOP}, record + "  all: {stage: jsonl, path: OUT/all.jsonl}\n")
    with live.running():
        live.more("b")
        live.run.trigger("record", "b", why="asked")
        until(lambda: (live.out / "b-manual.mp4").exists())
        with pytest.raises(ConfigError, match="there is no source 'c'"):
            live.run.trigger("record", "c")
    assert [path.name for path in live.out.glob("*.mp4")] == ["b-manual.mp4"]


def test_a_paused_source_stays_paused_after_a_restart(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": LOOP, "b": LOOP})
    with live.running():
        for source in "ab":
            live.more(source)
        live.run.pause("a")
        until(lambda: live.run.states["a"].state == "paused")
        time.sleep(0.7)
        still = live.indices("a")
        live.kill("a")
        until(lambda: live.run.restarted == 1)
        until(lambda: live.run.states["a"].state == "paused")
        time.sleep(0.7)
        assert live.indices("a") == still  # not one frame was read
        live.run.resume("a")
        live.more("a")
        assert live.indices("a") == sorted(set(live.indices("a")))


def test_watch_applies_edits_in_all_processes(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": CAMERA, "b": CAMERA})
    with live.running(watch=True):
        for source in "ab":
            live.more(source)
        fleet = live.fleet
        edited = STAGES.replace("tag: {}", "tag: {text: edited}")
        live.write({"a": CAMERA, "b": CAMERA.replace("96", "64"), "c": CAMERA}, edited)
        live.more("c")
        until(lambda: live.records("all", "b")[-1]["width"] == 64)
        for source in "abc":
            until(lambda source=source: live.texts(source) == {"edited"})  # type: ignore[misc]
        assert live.fleet is fleet
        assert any("options of tag changed: text; source c added; source b changed" in text for text in live.logged)
        live.write({"b": CAMERA.replace("96", "64"), "c": CAMERA}, edited)
        until(lambda: list(live.run.states) == ["c", "b"] or set(live.run.states) == {"b", "c"})
        live.write({"b": CAMERA, "c": CAMERA}, edited + "  late: {stage: tag, text: late, from: tag}\n")
        until(lambda: live.fleet is not fleet and live.run.ready)
        for source in "bc":
            until(lambda source=source: live.run.states[source].out > 10)  # type: ignore[misc]
        assert "late" in live.fleet.graph.nodes
    assert live.run.report(130)["restarts"] == 1


def test_state_survives_a_restart_of_several_processes(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": CAMERA, "b": CAMERA, "p": CAMERA}, head=f"state: {tmp_path}/state.db\n")
    with live.running():
        live.run.add(live.source("c", CAMERA))
        live.run.remove("b")
        live.run.set("tag", {"text": "kept"})
        live.run.pause("p")
        live.more("c")
    with live.running():
        for source in "ac":
            live.more(source)
            assert live.texts(source) == {"kept"}
        assert set(live.run.states) == {"a", "c", "p"}
        assert live.run.states["p"].state == "paused"
        assert live.indices("p") == []
