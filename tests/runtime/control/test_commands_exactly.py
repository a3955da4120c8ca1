"""What live changes do to the graph, the addresses, the runners and the state file, without a run."""

from types import SimpleNamespace

import pytest
from support.cameras import registry, source
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Sink, stage
from streamkit.runtime.pipeline import PipelineRun

SOURCES = "sources: {east: {stage: camera}, gate: 'test://?width=32&height=32', north: {stage: camera}}"
YAML = f"{SOURCES}\nstages: {{detect: {{model: demo}}, slow: {{}}, note: {{}}}}"


class KnownSources:
    """Sources as far as the commands call them."""

    def __init__(self, ids) -> None:
        self.states, self.paused = dict.fromkeys(ids), {}

    def check_free(self, id_) -> None:
        if id_ in self.states:
            raise ConfigError(f"there is a source {id_!r} already")

    def check_open(self, id_) -> None:
        pass

    def add(self, config, after=None, paused=False) -> None:
        self.states[config.id] = None

    def remove(self, id_) -> None:
        del self.states[id_]

    def pause(self, id_, paused) -> None:
        self.paused[id_] = paused


class KnownRunner:
    """A runner as far as the commands call it: its node, its changes and its instances."""

    def __init__(self, node, *stages) -> None:
        self.node, self.changes, self._stages = node, [], stages

    def change(self, new, refused) -> None:
        self.changes.append((new, refused))

    def instances(self):
        return self._stages


def controls_of(text, stages=None):
    graph = build(read_text(text, registry=stages or registry()))
    run = PipelineRun(graph, Device("cpu"))
    run.sources = KnownSources(config.id for config in graph.sources)
    return run


@pytest.fixture
def controls():
    return controls_of(YAML)


@pytest.fixture
def stored(tmp_path):
    """Controls with a state file."""
    return controls_of(f"state: {tmp_path}/state.db\n{YAML}")


def ids(controls) -> list[str]:
    return [config.id for config in controls.graph.sources]


def test_a_source_that_is_removed_leaves_the_others(controls):
    before = controls.graph.sources
    assert controls.addresses == {"east": "", "gate": "test://?width=32&height=32", "north": ""}
    controls.remove("gate")
    assert ids(controls) == list(controls.states) == list(controls.addresses) == ["east", "north"]
    assert len(before) == 3  # the list that others may hold is as it was


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


def test_a_source_whose_id_is_taken_changes_nothing(controls):
    with pytest.raises(ConfigError, match="there is a source 'gate' already"):
        controls.add(source(controls, "gate", uri="rtsp://127.0.0.1:1/other"))
    assert controls.addresses["gate"] == "test://?width=32&height=32"
    assert ids(controls) == ["east", "gate", "north"]


def test_faults_of_a_source_that_is_added_are_injected_and_said(controls):
    logged = collect()
    controls.add(source(controls, "west", stage="camera"))
    assert (controls._faults, logged) == ({}, [])
    controls.add(source(controls, "south", uri="rtsp://127.0.0.1:1/x", fault={"fail": "1s"}))
    assert list(controls._faults) == ["south"]
    assert logged == ["faults are injected, because the YAML sets `fault`, into south (fail)"]
    controls.remove("south")
    assert controls._faults == {}


def test_a_source_that_changes_takes_another_address(controls):
    controls.change(source(controls, "gate", uri="rtsp://127.0.0.1:1/new"))
    assert ids(controls) == ["east", "north", "gate"]
    assert controls.addresses["gate"] == "rtsp://127.0.0.1:1/new"


def test_without_a_state_file_the_yaml_is_followed_all_the_same(controls):
    controls.follow("west", source(controls, "west", stage="camera"))
    controls.follow("gate", source(controls, "gate", uri="rtsp://127.0.0.1:1/new"))
    controls.follow("north", None)
    controls.follow("nowhere", None)
    assert ids(controls) == ["east", "west", "gate"]
    controls.forget(["gate"], {"slow": ["pause_s"]})


def test_an_edit_of_a_source_in_the_yaml_is_no_change_by_a_call(stored):
    stored.pause("gate")
    stored.remove("east")
    stored.follow("gate", source(stored, "gate", uri="rtsp://127.0.0.1:1/new"))
    stored.follow("north", None)
    assert stored._store._rows("source") == [("east", None)]
    assert stored._store._rows("paused") == []


def test_an_edit_that_is_refused_is_forgotten_too(stored):
    stored.pause("gate")
    stored.sources.check_open = lambda id_: (_ for _ in ()).throw(ConfigError("no more"))
    with pytest.raises(ConfigError, match="no more"):
        stored.follow("west", source(stored, "west", stage="camera"))
    with pytest.raises(ConfigError, match="no more"):
        stored.follow("gate", source(stored, "gate", stage="camera"))
    assert stored._store._rows("paused") == stored._store._rows("source") == []
    assert ids(stored) == list(stored.states) == ["east", "gate", "north"]


def test_changes_are_stored(stored):
    stored.add(source(stored, "west", stage="camera", rate=5.0))
    stored.remove("east")
    stored.pause("gate")
    stored.set("slow", {"pause_s": 0.5})
    rows = stored._store._rows
    assert rows("source") == [("west", {"stage": "camera", "rate": 5.0}), ("east", None)]
    assert rows("paused") == [("gate", True)]
    assert rows("stage") == [("slow", {"pause_s": 0.5})]
    stored.resume("gate")
    assert rows("paused") == []
    assert stored.sources.paused == {"gate": False}


def test_an_edit_of_a_part_is_forgotten_under_its_name_and_that_of_the_composite(stored):
    stored.set("detect", {"iou": 0.3, "min_score": 0.5})
    stored.set("detect.postprocess", {"iou": 0.4})
    stored.forget([], {"detect.postprocess": ["iou"]})
    assert stored._store._rows("stage") == [("detect", {"min_score": 0.5})]


def test_a_pause_is_passed_on(controls):
    controls.pause("gate")
    controls.pause("north", False)
    assert controls.sources.paused == {"gate": True, "north": False}
    controls.resume("gate")
    assert controls.sources.paused == {"gate": False, "north": False}


def test_only_the_runner_of_a_stage_is_told_of_its_new_values(controls):
    nodes = controls.graph.nodes
    slow, again, note = KnownRunner(nodes["slow"]), KnownRunner(nodes["slow"]), KnownRunner(nodes["note"])
    controls._runners = [note, slow, again]
    controls.set("slow", {"pause_s": 0.5})
    assert [runner.changes[0][0] for runner in (slow, again)] == [{"pause_s": 0.5}] * 2
    assert note.changes == []
    assert nodes["slow"].options == {"pause_s": 0.5}
    assert controls.changeable("slow") == {"pause_s": 0.5}


def test_values_that_the_stage_refuses_are_taken_back_and_forgotten(stored):
    node = stored.graph.nodes["slow"]
    runner = KnownRunner(node)
    stored._runners = [runner]
    stored.set("slow", {"pause_s": 0.5})
    stored.set("slow", {"pause_s": 0.7})
    runner.changes[1][1]()
    assert node.options == {"pause_s": 0.5}
    assert stored._store._rows("stage") == []


@pytest.mark.parametrize("later", [0.1, 0.5, 0.9])
def test_a_refusal_does_not_undo_a_later_change(stored, later):
    node = stored.graph.nodes["slow"]
    runner = KnownRunner(node)
    stored._runners = [runner]
    stored.apply(node, {"pause_s": float("0.5")})
    stored.set("slow", {"pause_s": later})
    runner.changes[0][1]()
    assert node.options == {"pause_s": later}
    assert stored._store._rows("stage") == [("slow", {"pause_s": later})]


@pytest.fixture
def recording():
    """Controls with two stages that record, each with two instances; what each instance is asked for."""
    stages, calls = registry(), []
    with Collecting(stages):

        @stage("taper", on_demand=True)
        class Taper(Sink):
            """Records on request."""

    controls = controls_of(
        f"{SOURCES}\nstages: {{first: {{stage: taper}}, second: {{stage: taper}}, note: {{}}}}", stages
    )

    def instance(name):
        return SimpleNamespace(trigger=lambda source, **data: calls.append((name, source, data)))

    controls._runners = [
        KnownRunner(node, instance(f"{node.id}/0"), instance(f"{node.id}/1")) for node in controls.graph.nodes.values()
    ]
    return controls, calls


def test_every_instance_of_the_stage_is_asked_to_record(recording):
    controls, calls = recording
    controls.trigger("second", "gate", why="smoke")
    assert calls == [("second/0", "gate", {"why": "smoke"}), ("second/1", "gate", {"why": "smoke"})]


@pytest.mark.parametrize(
    ("id_", "of", "message"),
    [
        ("note", "gate", "there is no stage that records 'note'; known: first, second"),
        ("frst", "gate", "there is no stage that records 'frst'; did you mean 'first'?"),
        ("first", "roof", "there is no source 'roof'; known: east, gate, north"),
    ],
)
def test_a_recording_of_something_unknown_is_refused(recording, id_, of, message):
    controls, calls = recording
    with pytest.raises(ConfigError) as caught:
        controls.trigger(id_, of)
    assert str(caught.value) == message
    assert calls == []
