"""Sources that come, go and pause while others run; settings that change; those who listen."""

import gc
import json
import os
import threading
from pathlib import Path

import psutil
import pytest
from support.cameras import HOLD, WRITTEN, going, pipeline, registry, source, until
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_source, read_text
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Sink, stage
from streamkit.runtime.pipeline import PipelineRun

TWO = "sources: {a: {stage: camera}, b: {stage: camera}}\nstages: {slow: {}, note: {}}"


@pytest.fixture(autouse=True)
def _clean():
    WRITTEN.clear()
    HOLD.clear()
    before = set(threading.enumerate())
    yield
    HOLD.set()
    until(lambda: not set(threading.enumerate()) - before)


def balanced(report) -> bool:
    return all(s["frames"] == s["out"] + sum(s["dropped"].values()) for s in report["sources"].values())


def test_a_source_is_added_and_removed_while_others_run():
    running, logged = pipeline(TWO)
    with going(running) as codes:
        until(lambda: len(WRITTEN.get("a", [])) > 5)
        running.add(source(running, "c"))
        assert list(running.states) == ["a", "b", "c"]
        until(lambda: len(WRITTEN.get("c", [])) > 5)
        running.remove("a")
        assert list(running.states) == ["b", "c"]
        assert [config.id for config in running.graph.sources] == ["b", "c"]
        until(lambda: running.sources.removed.sources == 1)
        removed_frames = len(WRITTEN.get("a", []))
        so_far = len(WRITTEN.get("b", []))
        until(lambda: len(WRITTEN["b"]) > so_far + 10)
        assert len(WRITTEN["a"]) == removed_frames
    report = running.report(codes[0])
    assert codes == [130]
    assert WRITTEN["a"] == list(range(removed_frames))
    assert report["removed"]["sources"] == 1
    assert report["removed"]["frames"] == report["removed"]["out"] == removed_frames
    assert balanced(report)
    assert {name: report["sources"][name]["out"] for name in "bc"} == {name: len(WRITTEN[name]) for name in "bc"}
    assert logged == []


def test_a_changed_source_continues_under_its_id():
    """Frames of the new source follow those of the old one, and stages start again."""
    running, _ = pipeline("sources: {a: {stage: camera}}\nstages: {note: {}}")
    with going(running):
        for _ in range(5):
            so_far = len(WRITTEN.get("a", []))
            until(lambda n=so_far: len(WRITTEN.get("a", [])) > n + 3)
            running.change(source(running, "a"))
        until(lambda: running.sources.removed.sources == 5)
    starts = [i for i, index in enumerate(WRITTEN["a"]) if index == 0]
    assert len(starts) >= 5
    runs = [WRITTEN["a"][i:j] for i, j in zip(starts, [*starts[1:], None], strict=True)]
    assert all(run == list(range(len(run))) for run in runs)


def test_a_source_that_only_gets_another_name_goes_on():
    running, _ = pipeline("sources: {a: {stage: camera, name: Gate}}\nstages: {note: {}}")
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 3)
        (renamed,) = read_source(running.graph.config, "a", {"stage": "camera", "name": "North gate", "tags": ["x"]})
        running.change(renamed)
        so_far = len(WRITTEN["a"])
        until(lambda: len(WRITTEN["a"]) > so_far + 3)
        assert [config.details.name for config in running.graph.sources] == ["North gate"]
    assert WRITTEN["a"] == list(range(len(WRITTEN["a"])))


def test_impossible_changes_are_refused(tmp_path):
    running, _ = pipeline(f"sources: {{a: {{stage: camera}}}}\nstages: {{video: {{path: {tmp_path}/one.mp4}}}}")
    config = source(running, "a")
    with going(running):
        with pytest.raises(ConfigError, match="there is a source 'a' already"):
            running.add(config)
        with pytest.raises(ConfigError, match=r"2 sources into the one file .*write \"\{source\}\""):
            running.add(source(running, "b"))
        for call in (running.remove, running.pause, running.resume):
            with pytest.raises(ConfigError, match="there is no source 'aa'; did you mean 'a'"):
                call("aa")
        assert list(running.states) == [config.id for config in running.graph.sources] == ["a"]
    with pytest.raises(ConfigError, match="source b cannot be added: the run has ended"):
        running.sources.add(source(running, "b"))


def test_a_waiting_pipeline_continues_without_sources():
    running, _ = pipeline("sources: {a: 'test://?width=32&height=32&frames=5'}\nstages: {note: {}}")
    with going(running) as codes:
        until(lambda: running.states["a"].done and len(WRITTEN.get("a", [])) == 5)
        running.remove("a")
        assert running.states == {}
        running.add(source(running, "b", uri="test://?width=32&height=32&frames=4"))
        until(lambda: len(WRITTEN.get("b", [])) == 4)
        assert codes == []
    assert codes == [130]
    assert running.report(130)["sources"] == {"b": {"frames": 4}}


@pytest.mark.parametrize("camera", [True, False])
def test_a_source_is_paused_and_resumed(camera):
    text = "{stage: camera}" if camera else "'test://?width=32&height=32&frames=100000'"
    running, _ = pipeline(f"sources: {{a: {text}}}\nstages: {{slow: {{pause_s: 0.01}}, note: {{}}}}")
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 5)
        running.pause("a")
        assert running.states["a"].state == "paused"
        until(lambda: running.queues()["batcher"] == 0 and running.states["a"].frames == len(WRITTEN.get("a", [])))
        so_far = len(WRITTEN["a"])
        until(lambda: sum(running.queues().values()) == 0)
        running.resume("a")
        until(lambda: len(WRITTEN["a"]) > so_far + 5)
        assert running.states["a"].state == "running"
        running.pause("a")
    assert running.states["a"].state == "ended"
    assert WRITTEN["a"] == sorted(set(WRITTEN["a"]))  # on rising, also where the camera was opened again
    if not camera:
        assert WRITTEN["a"] == list(range(len(WRITTEN["a"])))  # a file stands still


def test_a_slowly_closing_camera_continues_after_a_short_pause():
    running, _ = pipeline("sources: {a: {stage: camera, stop_s: 0.5}}\nstages: {note: {}}")
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 5)
        running.pause("a")
        running.resume("a")  # it has not heard of the pause yet
        so_far = len(WRITTEN["a"])
        until(lambda: len(WRITTEN["a"]) > so_far + 5)
        assert running.states["a"].state == "running"


def test_a_hanging_or_failing_camera_does_not_affect_others():
    text = "sources: {a: {stage: camera}, stuck: {stage: camera, hangs: true}, gone: {stage: camera, fails: true}}"
    running, logged = pipeline(f"{text}\nstages: {{note: {{}}}}")
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 20)
        assert running.states["stuck"].state == "connecting"
        assert (running.states["gone"].state, running.states["gone"].error) == ("failed", "there is no such camera")
        running.remove("stuck")  # returns at once, though its thread hangs
        running.add(source(running, "stuck"))
        until(lambda: len(WRITTEN.get("stuck", [])) > 5)
        HOLD.set()
    assert logged == ["source gone failed: there is no such camera"]


def test_additions_and_removals_leave_nothing_behind(tmp_path):
    """As many as show what is kept of each; tests/soak has two thousand, and the bars for a day."""
    running, _ = pipeline(
        "sources: {a: {stage: camera}}\n"
        f"stages: {{slow: {{}}, note: {{}}, jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}}}"
    )
    me = psutil.Process()

    def turn(number: int) -> None:
        id_ = f"s{number}" if number % 2 else "same"
        file = "test://?width=32&height=32&frames=2"
        kind = {"stage": "camera", "rate": 500.0} if number % 3 else {"uri": file}
        running.add(source(running, id_, **kind))
        until(lambda: running.states[id_].frames > 0 or number % 5 == 0)
        running.remove(id_)
        WRITTEN.pop(id_, None)

    def settled(number: int) -> None:
        until(lambda: running.sources.removed.sources == number)
        until(lambda: len(running.sources.threads) == 1)
        for path in Path(tmp_path).glob("s*.jsonl"):
            path.unlink()
        gc.collect()

    with going(running) as codes:
        for number in range(60):
            turn(number)
        settled(60)
        memory = me.memory_info().rss
        files = me.num_fds()
        threads = me.num_threads()
        for number in range(60, 240):
            turn(number)
        settled(240)
        assert me.memory_info().rss - memory < 20 << 20
        assert me.num_fds() <= files + 2
        assert me.num_threads() <= threads + 1
        assert list(running.states) == ["a"]
        so_far = len(WRITTEN["a"])
        until(lambda: len(WRITTEN["a"]) > so_far + 5)
    removed = running.report(codes[0])["removed"]
    assert removed["sources"] == 240
    assert removed["frames"] == removed["out"] + sum(removed["dropped"].values())
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_change_refused_by_a_stage_is_reverted(tmp_path):
    text = f"state: {tmp_path}/state.db\n{TWO}"
    running, logged = pipeline(text)
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 2)
        running.set("slow", {"pause_s": -1.0})
        until(lambda: running.changeable("slow") == {"pause_s": 0.0})
        so_far = {name: len(WRITTEN[name]) for name in "ab"}
        until(lambda: all(len(WRITTEN[name]) > so_far[name] + 2 for name in "ab"))
        running.set("slow", {"pause_s": 0.002})
        (stage,) = {runner.node.id: runner for runner in running._runners}["slow"].instances()
        until(lambda: stage.pause_s == 0.002)
    refusal = "slow failed as pause_s changed; the old values are kept: ArithmeticError: time does not go back"
    assert any(text.startswith(refusal) for text in logged), logged
    again, _ = pipeline(text)
    assert again.graph.nodes["slow"].options == {"pause_s": 0.002}


def test_settings_change_from_the_next_batch_on():
    running, _ = pipeline(
        "sources: {a: 'test://?width=64&height=48&frames=1000000'}\nstages: {detect: {model: demo}, slow: {}, note: {}}"
    )
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 5)
        assert running.changeable("slow") == {"pause_s": 0.0}
        assert running.changeable("detect")["min_score"] is None
        running.set("detect", {"min_score": 1.0, "labels": ["car"]})
        running.set("slow", {"pause_s": 0.001})
        assert running.changeable("slow") == {"pause_s": 0.001}
        assert running.changeable("detect.postprocess")["labels"] == ["car"]
        so_far = len(WRITTEN["a"])
        until(lambda: len(WRITTEN["a"]) > so_far + 60)
        stages = {runner.node.id: runner for runner in running._runners}
        assert next(iter(stages["slow"].instances())).pause_s == 0.001
        read = next(iter(stages["detect.postprocess"].instances()))._classes.options
        assert sorted(set(read.min_score.tolist())) == [1.0, float("inf")]
        for id_, values, message in (
            ("slow", {"hangs": True}, "slow: hangs cannot change while the pipeline runs; pause_s may"),
            ("slow", {"pause_s": "fast"}, "slow: pause_s must be a number, got 'fast'"),
            ("detect", {"min_score": 1.5, "iou": 0.5}, "detect: min_score must be"),
            ("detect", {"labels": ["bus?"]}, "no class 'bus?'"),
            ("detekt", {}, "there is no stage 'detekt'; did you mean 'detect'"),
        ):
            with pytest.raises(ConfigError) as caught:
                running.set(id_, values)
            assert message in str(caught.value)
        assert running.changeable("detect")["iou"] is None  # all or none


def test_listeners_see_every_frame_once_with_its_events():
    text = "sources: {a: 'test://?width=64&height=48&frames=40', b: 'test://?width=64&height=48&frames=30'}"
    running, logged = pipeline(
        f"{text}\nstages: {{detect: {{model: demo}}, note: {{}}, more: {{stage: note, from: decode}}}}"
    )
    seen: list[tuple[str, int, bool, list[str]]] = []

    def broken(shown: object) -> None:
        raise ValueError("no more")

    stop = running.listen(
        lambda shown: seen.extend((f.source, f.index, f.surface is None, list(f.tables)) for f, _ in shown)
    )
    running.listen(broken)
    with going(running):
        until(lambda: len(seen) == 70)
        stop()
        running.add(source(running, "c", uri="test://?width=64&height=48&frames=5"))
        until(lambda: running.states["c"].out == 5)
    assert sorted(s[:2] for s in seen) == [("a", i) for i in range(40)] + [("b", i) for i in range(30)]
    assert all(s[2] for s in seen)
    assert logged == ["a listener failed and is removed: ValueError: no more"]
    assert json.dumps(running.report(0))


SOURCES = "sources: {east: {stage: camera}, gate: 'test://?width=32&height=32', north: {stage: camera}}"


YAML = f"{SOURCES}\nstages: {{detect: {{model: demo}}, slow: {{}}, note: {{}}}}"


def controls_of(text, stages=None):
    return PipelineRun(build(read_text(text, registry=stages or registry())), Device("cpu"))


@pytest.fixture
def controls():
    return controls_of(YAML)


def ids(controls) -> list[str]:
    return [config.id for config in controls.graph.sources]


def test_a_source_that_is_added_has_its_address_and_stream(controls):
    before = controls.graph.sources
    controls.add(source(controls, "west", uri="rtsp://127.0.0.1:1/west", stream=1))
    assert ids(controls) == ["east", "gate", "north", "west"]
    assert controls.addresses["west"] == "rtsp://127.0.0.1:1/west"
    assert controls.streams == {"west": 1}
    assert len(before) == 3
    controls.remove("west")
    assert controls.streams == {}
    assert "west" not in controls.addresses


def test_faults_of_an_added_source_are_injected_and_reported(controls):
    logged = collect()
    controls.add(source(controls, "west", stage="camera"))
    assert logged == []
    controls.add(source(controls, "south", uri="rtsp://127.0.0.1:1/x", fault={"fail": "1s"}))
    assert logged == ["faults are injected, because the YAML sets `fault`, into south (fail)"]


def test_edits_of_the_yaml_apply_without_a_state_file(controls):
    controls.follow("west", source(controls, "west", stage="camera"))
    controls.follow("gate", source(controls, "gate", uri="rtsp://127.0.0.1:1/new"))
    controls.follow("north", None)
    controls.follow("nowhere", None)
    assert ids(controls) == ["east", "west", "gate"]
    controls.forget(["gate"], {"slow": ["pause_s"]})


@pytest.mark.parametrize(
    ("id_", "of", "message"),
    [
        ("note", "gate", "there is no stage that records 'note'; known: first, second"),
        ("frst", "gate", "there is no stage that records 'frst'; did you mean 'first'?"),
        ("first", "roof", "there is no source 'roof'; known: east, gate, north"),
    ],
)
def test_recording_an_unknown_source_or_stage_is_refused(id_, of, message):
    stages = registry()
    with Collecting(stages):

        @stage("taper", on_demand=True)
        class Taper(Sink):
            """Records on request."""

    controls = controls_of(
        f"{SOURCES}\nstages: {{first: {{stage: taper}}, second: {{stage: taper}}, note: {{}}}}", stages
    )
    with pytest.raises(ConfigError) as caught:
        controls.trigger(id_, of)
    assert str(caught.value) == message
