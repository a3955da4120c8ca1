"""A pipeline that follows its YAML."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cameras import WAIT_S, WRITTEN, registry, source, until
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_text
from streamkit.config.plan import Graph
from streamkit.core.errors import DeviceError
from streamkit.runtime.control.graph_changes import alike
from streamkit.runtime.control.state_store import StateStore
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.reload import ReloadingPipeline, watching

SOURCES = "sources:\n  a: {stage: camera}\n  b: {stage: camera}\n"
STAGES = "stages:\n  slow: {}\n  note: {}\n"


@pytest.fixture(autouse=True)
def _clean():
    WRITTEN.clear()


@contextmanager
def following(
    path: Path, text: str, first: Callable[[str], str] = str
) -> Iterator[tuple[ReloadingPipeline, list[str], list[int]]]:
    """A pipeline that follows a file; `first` sees its text before it is read."""
    path.write_text(f"device: cpu\n{text}")
    logged = collect()

    def load() -> Graph:
        first(path.read_text())
        return build(read(path, registry=registry(), may_be_empty=True))

    running = watching(path, load, None, poll_s=0.1)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()), daemon=True)
    thread.start()
    try:
        until(lambda: running.current.ready)
        yield running, logged, codes
    finally:
        running.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def more(id_: str) -> None:
    so_far = len(WRITTEN.get(id_, []))
    until(lambda: len(WRITTEN.get(id_, [])) > so_far + 5)


def test_changed_alarms_rebuild_the_pipeline_and_equal_ones_do_not():
    def graph(alarms):
        return build(read_text(f"{SOURCES}{STAGES}alarms: {alarms}", registry=registry()))

    before = graph("{a: down_s > 3}")
    assert alike(before, graph("{a: {when: down_s > 3}}"))
    assert not alike(before, graph("{a: down_s > 4}"))
    assert not alike(before, graph("{a: {when: down_s > 3, clear: 3s}}"))


def test_sources_and_settings_follow_the_file_while_others_run(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (running, logged, codes):
        first = running.current
        more("a")
        text = "sources:\n  c: {stage: camera}\n  a: {stage: camera, rate: 200}\n" + STAGES.replace(
            "{}", "{pause_s: 1ms}", 1
        )
        path.write_text(f"device: cpu\n{text.replace('1ms', '0.001')}")
        more("c")
        until(lambda: list(running.states) == ["c", "a"])
        assert logged == [
            f"{path}: options of slow changed: pause_s; source b removed; source c added; source a changed"
        ]
        assert running.current is first
        assert first.changeable("slow") == {"pause_s": 0.001}
        assert codes == []
        path.write_text("device: cpu\n# nothing but a remark\n" + text.replace("1ms", "0.001"))
        until(lambda: len(logged) == 2)
        assert logged[1] == f"{path}: no change that affects the pipeline"
    assert codes == [130]
    assert running.report(130)["removed"]["sources"] == 2


def test_a_broken_edit_is_refused_with_every_problem_and_the_run_continues(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (_, logged, _):
        path.write_text("device: cpu\nsources: {a: {stage: camera, rat: 3}}\nstages: {slow: {}, not: {}}\n")
        until(lambda: logged)
        assert logged[0].startswith(f"{path}: the edit is rejected; the pipeline continues unchanged:\n")
        assert "camera has no option 'rat'" in logged[0]
        assert "unknown stage 'not'" in logged[0]
        more("b")
        path.unlink()
        more("b")
        path.write_text(f"device: cpu\n{SOURCES}  c: {{stage: camera}}\n{STAGES}")
        more("c")
    assert len(logged) == 2


def test_changed_stages_are_rebuilt_without_losing_frames(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (running, logged, codes):
        first = running.current
        more("a")
        path.write_text(f"device: cpu\n{SOURCES}{STAGES}  jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}\n")
        until(lambda: running.current is not first and running.current.ready)
        more("a")
        assert logged == [f"{path}: the stages changed; the pipeline is rebuilt once the decoded frames have drained"]
        done = first.report(0)["sources"]
        assert all(counts["frames"] == counts["out"] + sum(counts["dropped"].values()) for counts in done.values())
        assert "frames dropped: run aborted" not in first.counts()
        assert codes == []
    report = running.report(130)
    assert report["restarts"] == 1
    assert report["frames"] == sum(map(len, WRITTEN.values())) == report["stages"]["note"]["frames"]
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == report["sources"]["a"]["out"]


def test_stages_that_fail_to_open_are_reverted(tmp_path):
    path = tmp_path / "p.yaml"
    (tmp_path / "folder.jsonl").mkdir()
    with following(path, SOURCES + STAGES) as (running, logged, _):
        more("a")
        path.write_text(f"device: cpu\n{SOURCES}{STAGES}  jsonl: {{path: '{tmp_path}/folder.jsonl'}}\n")
        until(lambda: len(logged) == 2)
        assert "the new stages cannot be opened; the previous pipeline continues: cannot write" in logged[1]
        until(lambda: running.current.ready)
        more("a")
        path.write_text(f"device: cpu\n{SOURCES}{STAGES}  more: {{stage: note}}\n")
        until(lambda: "more" in running.current.graph.nodes and running.current.ready)
        more("b")


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("[cpu, 'cuda:99']", "device cuda:99 cannot be"),
        ("cuda:99", "device cuda:99 cannot be"),
        ("[cpu, cpu]", "device must list each device once"),
    ],
)
def test_an_unavailable_device_is_refused_before_the_run_stops(tmp_path, device, words):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (running, logged, _):
        first = running.current
        more("a")
        path.write_text(f"device: {device}\n{SOURCES}{STAGES}")
        until(lambda: logged)
        assert logged[0].startswith(f"{path}: the edit is rejected; the pipeline continues unchanged:\n")
        assert words in logged[0]
        more("a")
        assert running.current is first


def test_a_state_that_cannot_be_stored_reverts_the_edit(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (running, logged, codes):
        more("a")
        (tmp_path / "state.db").write_text("no database " * 100)
        path.write_text(f"device: cpu\nstate: {tmp_path}/state.db\n{SOURCES}{STAGES}")
        until(lambda: len(logged) == 2)
        assert "the edit cannot be applied; the previous pipeline continues" in logged[1]
        until(lambda: running.current.ready)
        more("a")
        assert codes == []


def test_the_run_continues_without_any_source(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, "sources: {}\n" + STAGES) as (running, logged, codes):
        assert running.states == {}
        path.write_text(f"device: cpu\n{SOURCES}{STAGES}")
        more("a")
        path.write_text(f"device: cpu\nsources:\n{STAGES}")
        until(lambda: len(logged) == 2)
        assert (running.states, codes) == ({}, [])
    assert codes == [130]


@pytest.mark.parametrize("restarted", [False, True])
def test_changes_through_the_api_survive_edits_of_other_options(tmp_path, restarted):
    path = tmp_path / "p.yaml"
    text = f"state: {tmp_path}/state.db\n{SOURCES}  c: {{stage: camera}}\n{STAGES}  old: {{stage: slow}}\n"

    def by_hand(running: ReloadingPipeline) -> None:
        running.current.add(source(running.current, "extra"))
        running.current.remove("b")
        running.current.pause("c")
        running.current.set("slow", {"pause_s": 0.002})
        running.current.set("old", {"pause_s": 0.003})

    def keeps_changes(running: ReloadingPipeline) -> bool:
        settings = [running.current.changeable(id_)["pause_s"] for id_ in ("slow", "old")]
        return (
            running.current.ready
            and set(running.states) == {"a", "c", "extra"}
            and running.states["c"].state == "paused"
            and settings == [0.002, 0.003]
        )

    if restarted:
        with following(path, text) as (running, _, _):
            by_hand(running)
    with following(path, text) as (running, logged, _):
        if not restarted:
            by_hand(running)
        assert keeps_changes(running)
        path.write_text(f"device: cpu\n# a remark\n{text}")
        edits = lambda: [text for text in logged if text.startswith(f"{path}: ")]  # noqa: E731
        until(edits)
        assert edits() == [f"{path}: no change that affects the pipeline"]
        assert keeps_changes(running)
        path.write_text(f"device: cpu\n{text.replace('a: {stage: camera}', 'a: {stage: camera, rate: 60}')}")
        until(lambda: len(edits()) == 2)
        assert edits()[1] == f"{path}: source a changed"
        assert keeps_changes(running)
        before = running.current
        path.write_text(f"device: cpu\n{text}  more: {{stage: note}}\n")  # rebuilt
        until(lambda: running.current is not before and keeps_changes(running))
        edited = text.replace("  c: {stage: camera}\n", "").replace("slow: {}", "slow: {pause_s: 0.001}")
        edited = edited.replace("b: {stage: camera}", "b: {stage: camera, rate: 60}")
        path.write_text(f"device: cpu\n{edited}  more: {{stage: note}}\n")
        until(lambda: len(edits()) == 4)
        assert edits()[3] == f"{path}: options of slow changed: pause_s; source c removed; source b changed"
        assert set(running.states) == {"a", "b", "extra"}
    store = StateStore(tmp_path / "state.db")  # of what the YAML changed since, it keeps nothing
    assert [store._rows(kind) for kind in ("source", "paused", "stage")] == [
        [("extra", {"stage": "camera"})],
        [],
        [("old", {"pause_s": 0.003})],
    ]


@pytest.mark.parametrize("error", [ValueError("a number too long"), RecursionError("too deep"), SystemExit(3)])
def test_the_next_edit_is_applied_after_any_error(tmp_path, error):
    path = tmp_path / "p.yaml"

    def load(text: str) -> str:
        if "wrong" in text:
            raise error
        return text

    with following(path, SOURCES + STAGES, load) as (_, logged, _):
        path.write_text(f"device: cpu\n# wrong\n{SOURCES}{STAGES}")
        until(lambda: logged)
        error_text = f"{type(error).__name__}: {error}"
        assert logged == [f"{path}: the edit is rejected; the pipeline continues unchanged:\n{error_text}"]
        path.write_text(f"device: cpu\n{SOURCES}  c: {{stage: camera}}\n{STAGES}")
        more("c")


def test_each_device_has_a_process_even_without_sources(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("device: {use: cpu, processes: 2}\nsources: {}\nstages: {jsonl: {path: all.jsonl}}")
    fleet = watching(path, lambda: build(read(path, may_be_empty=True)), 5, {"batch.size": "2"}).current
    assert isinstance(fleet, WorkerFleet)
    assert [worker.device for worker in fleet.processes.workers] == ["cpu", "cpu"]
    assert (fleet.sources.over, fleet._set, fleet.limit) == (False, {"batch.size": "2"}, 5)


def test_a_device_that_is_missing_is_refused_at_the_start(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(f"device: [cpu, 'cuda:99']\n{SOURCES}{STAGES}")
    with pytest.raises(DeviceError, match="device cuda:99 cannot be used"):
        watching(path, lambda: build(read(path, registry=registry())), None)


PLUGIN = """from streamkit import FrameStage, stage


@stage("mine", writes="events")
class Mine(FrameStage):
    '''Says what it is.'''

    def process(self, frame):
        frame.emit("is_{}")
"""


@pytest.mark.parametrize("named", ["mine.py", "stages"])
def test_an_edited_plugin_is_reloaded_and_a_broken_one_refused(tmp_path, named):
    path = tmp_path / "p.yaml"
    folder = tmp_path / "stages"
    folder.mkdir()
    plugin = tmp_path / named if named.endswith(".py") else folder / "mine.py"
    plugin.write_text(PLUGIN.format("one"))
    lines = tmp_path / "a.jsonl"
    text = f"plugins: [{named}]\n{SOURCES}stages:\n  mine: {{}}\n  note: {{}}\n  jsonl: {{path: '{lines}'}}\n"
    with following(path, text.replace("  b: {stage: camera}\n", "")) as (running, logged, _):
        more("a")
        first = running.current
        plugin.write_text("x = (\n")
        until(lambda: logged)
        assert logged[0].startswith(f"{path}: the edit is rejected; the pipeline continues unchanged:\n")
        assert f"the plugin {plugin}:1 cannot be loaded: SyntaxError: '(' was never closed\n    x = (\n" in logged[0]
        assert running.current is first
        more("a")
        plugin.write_text(PLUGIN.format("two"))
        until(lambda: running.current is not first and running.current.ready)
        assert logged[1] == f"{path}: the stages changed; the pipeline is rebuilt once the decoded frames have drained"
        until(lambda: "is_one" in lines.read_text())  # the first run's file, whole
        more("a")
        second = running.current
        plugin.write_text(PLUGIN.format("two"))  # saved again, and the same
        until(lambda: len(logged) == 3)
        assert logged[2] == f"{path}: no change that affects the pipeline"
        assert running.current is second
    assert "is_two" in "".join(file.read_text() for file in tmp_path.glob("a*.jsonl"))


def test_a_new_file_in_a_folder_of_plugins_is_noticed(tmp_path):
    path = tmp_path / "p.yaml"
    folder = tmp_path / "stages"
    folder.mkdir()
    with following(path, f"plugins: [stages]\n{SOURCES}{STAGES}") as (_, logged, _):
        more("a")
        (folder / "_helper.py").write_text("x = (\n")
        (folder / "mine.py").write_text("x = (\n")
        until(lambda: logged)
        assert "mine.py:1 cannot be loaded" in logged[0]
        path.write_text(f"device: cpu\nplugins: [nowhere.py]\n{SOURCES}{STAGES}")
        until(lambda: len(logged) == 2)
        assert "there is no plugin file or folder" in logged[1]
        (tmp_path / "nowhere.py").write_text(PLUGIN.format("x"))
        until(lambda: len(logged) == 3)
        assert logged[2] == f"{path}: no change that affects the pipeline"


def test_a_changed_number_of_processes_rebuilds_the_pipeline():
    two, three = (
        build(
            read_text(
                f"device: {{use: cpu, processes: {n}}}\nsources: {{a: 'test://'}}\nstages: {{jsonl: {{path: a.jsonl}}}}"
            )
        )
        for n in (2, 3)
    )
    assert alike(two, two)
    assert not alike(two, three)


# ------------------------------------------------------------------------------------- changes by calls, over a rebuild


def rebuilt(running: ReloadingPipeline, path: Path, text: str) -> None:
    """Write a text that needs a rebuild, and wait for the new pipeline."""
    before = running.current
    path.write_text(f"device: cpu\n{text}")
    until(lambda: running.current is not before and running.ready)


def test_changes_through_the_api_survive_a_rebuild(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (running, _, _):
        running.add(source(running, "c"))
        running.remove("b")
        running.set("slow", {"pause_s": 0.002})
        running.pause("a")
        running.pause("c")
        rebuilt(running, path, SOURCES + STAGES + "  more: {stage: note}\n")
        assert set(running.states) == {"a", "c"}
        assert [running.states[id_].state for id_ in "ac"] == ["paused", "paused"]
        assert running.changeable("slow") == {"pause_s": 0.002}
        running.resume("c")
        more("c")
        rebuilt(running, path, SOURCES + STAGES)  # and the next one
        assert set(running.states) == {"a", "c"}
        running.resume("a")
        more("a")


def test_an_edit_overrides_a_change_through_the_api(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (running, _, _):
        running.remove("b")
        running.change(source(running, "a", stage="camera", rate=77))
        running.pause("a")
        running.set("slow", {"pause_s": 0.002})
        text = "sources:\n  a: {stage: camera, rate: 50}\n  b: {stage: camera, rate: 50}\nstages:\n"
        rebuilt(running, path, f"{text}  slow: {{pause_s: 0.003}}\n  note: {{}}\n  more: {{stage: note}}\n")
        assert set(running.states) == {"a", "b"}
        assert [config.options["rate"] for config in running.graph.sources] == [50, 50]
        more("a")
        assert running.changeable("slow") == {"pause_s": 0.003}


def test_the_reason_of_a_rejected_edit_is_reported_until_the_next_edit(tmp_path):
    path = tmp_path / "p.yaml"
    with following(path, SOURCES + STAGES) as (running, _, _):
        assert running.rejected == ""
        path.write_text("device: cpu\nsources: {a: {stage: camera, rat: 3}}\nstages: {slow: {}}\n")
        until(lambda: running.rejected)
        assert "camera has no option 'rat'" in running.rejected
        assert "rat: 3" not in running.text
        assert running.ready
        path.write_text(text := f"device: cpu\n# mended\n{SOURCES}{STAGES}")
        until(lambda: not running.rejected)
        assert running.text == text
