"""What every stage keeps to, built in or plugin: its name, its help, its options, and how it takes having nothing."""

import re
from pathlib import Path

import pytest
from support.map_networks import anomaly_card, depth_card

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plugins import load_plugins
from streamkit.core.stage import (
    KINDS,
    BatchStage,
    Composite,
    FrameStage,
    Sink,
    Source,
    StreamStage,
    default_registry,
    options,
    summary,
)
from streamkit.emit.broker import brokers
from streamkit.emit.emitter import Emitter
from streamkit.testing.kit import detections, frames, run_stage

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = default_registry()
BUILT_IN = {name for name in REGISTRY.names() if not REGISTRY.get(name).__module__.startswith("test")}
load_plugins(ROOT / "plugins", REGISTRY)

# What a stage must be given, where an option has no default.
MINIMAL = {
    "model": "demo",
    "line": "[[0, 0], [9, 9]]",
    "polygon": "[[0, 0], [9, 0], [9, 9]]",
    "points": "[[100, 100], [200, 100], [300, 300], [50, 300]]",
    "ground": "[[0, 0], [4, 0], [4, 20], [0, 20]]",
    "distance": "20",
    "region": "[[0, 0], [9, 9]]",
    "uri": "samples/street.mp4",
    "url": "live/x.m3u8",  # of an emitter in URLS
    "mail_from": "cameras@example.com",
    "to": "ops@example.com",
    "of": "detect",
    "prompt": "'Is it red?'",
    "answer": "{red: bool}",
}
# of the task that a stage is for
CARDS = {"classify": "color", "embed": "look", "segment": "yolov8n-seg", "pose": "movenet-lightning", "read": "plates"}
CARDS["action"] = "activity"
URLS = {name: broker.example for name, broker in brokers(default_registry()).items() if broker.example}
URLS["ask"] = "http://127.0.0.1:1/v1"
PATHS = {
    "video": "out/x.mp4",
    "csv": "out/x.csv",
    "jsonl": "out/x.jsonl",
    "heatmap": "'out/{source}.png'",
    "detections": "samples/street.truth.jsonl",
}
WORDS = {
    "pixels",
    "tensor",
    "outputs",
    "detections",
    "track_id",
    "events",
    "speed_kmh",
    "heading_deg",
    "attributes",
    "embedding",
    "mask",
    "keypoints",
    "identity",
    "depth",
    "relative_depth",
    "anomaly_score",
}
# What must stand above a stage, so that what it reads is there.
ABOVE = {
    "tensor": "preprocess: {model: demo}",
    "outputs": "preprocess: {model: demo}\n  infer: {model: demo}",
    "detections": "detect: {model: demo}",
    "track_id": "detect: {model: demo}\n  simple_track: {}",
    "embedding": "look: {stage: embed, model: stripes, of: detect}",
}
# Stages that must be told of events, and what makes those.
WHEN = {"snapshot": "door.crossed", "collect": "door.crossed", "ask": "door.crossed", "rule": "present(car)"}
DOOR = "detect: {model: demo}\n  simple_track: {}\n  door: {stage: line_counter, line: [[0, 0], [9, 9]]}"


@pytest.fixture(scope="module", autouse=True)
def cards_of_maps(tmp_path_factory):
    """Networks of the tasks of which none ships."""
    folder = tmp_path_factory.mktemp("cards")
    CARDS.update({card.task: str(card.path) for card in (depth_card(folder), anomaly_card(folder))})


def all_stages(*kinds):
    return [
        pytest.param(kind, id=name)
        for name in REGISTRY.names()
        if issubclass(kind := REGISTRY.get(name), kinds or tuple(KINDS.values()))
        and not kind.__module__.startswith("test")  # another module may have been imported before, or not
    ]


def required(kind):
    needed = {option.name: MINIMAL.get(option.name) for option in options(kind) if option.required}
    if "model" in needed:
        needed["model"] = CARDS.get(kind.name, needed["model"])
    if kind.name in WHEN:
        needed["when"] = WHEN[kind.name]
    if kind.name in URLS:
        needed["url"] = URLS[kind.name]
    if "path" in needed:
        needed["path"] = PATHS.get(kind.name, "out/x")
    return needed


def instance_of(kind, folder=ROOT):
    """An instance with the least options, checked as a YAML's are."""
    values = ", ".join(f"{name}: {value}" for name, value in required(kind).items())
    if issubclass(kind, Source):
        text = f"sources: {{a: {{stage: {kind.name}, {values}}}}}\nstages: {{draw: {{}}}}"
    else:
        above = DOOR if kind.name in WHEN else "\n  ".join(ABOVE[word] for word in kind.spec.reads if word in ABOVE)
        text = f"sources: {{a: samples/street.mp4}}\nstages:\n  {above}\n  it: {{stage: {kind.name}, {values}}}"
    config = read_text(text, folder=folder, registry=REGISTRY)
    assert config.problems == []
    build(config)
    if issubclass(kind, Source):
        return config.sources[0].type(**config.sources[0].options)
    return config.stages[-1].type(**config.stages[-1].options)


@pytest.mark.parametrize("kind", all_stages())
def test_stages_have_a_name_a_summary_and_help_for_every_option(kind):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", kind.name)
    text = summary(kind)
    assert 10 <= len(text) <= 100
    assert text.endswith((".", ":")), text
    for option in options(kind):
        assert option.help, f"{kind.name}: {option.name} has no help; write Annotated[type, 'help']"
        assert len(option.help) >= 10, f"{kind.name}.{option.name}: {option.help!r} says too little"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_help_of_built_in_stages_is_at_their_fields(name):
    for base in REGISTRY.get(name).__mro__:
        if base.__module__.startswith("streamkit.stages."):
            assert "Options:" not in (base.__doc__ or ""), f"{base.__name__}: annotate the field"


@pytest.mark.parametrize("kind", all_stages())
def test_stages_are_built_from_a_yaml_with_required_options(kind):
    stage = instance_of(kind)
    assert type(stage) is kind
    for option in options(kind):
        if option.name not in required(kind):
            assert getattr(stage, option.name) == option.default


@pytest.mark.parametrize("kind", all_stages())
def test_stages_read_and_write_declared_data(kind):
    words = {*kind.spec.reads, *kind.spec.writes}
    assert kind.name not in BUILT_IN or words <= WORDS
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", word) for word in words)
    assert not (issubclass(kind, Sink) and set(kind.spec.writes) - {"events"}), "a sink hands on what it was given"
    if issubclass(kind, Source):
        assert kind.spec.reads == ()
        assert "pixels" in kind.spec.writes


@pytest.mark.parametrize("kind", all_stages(Composite))
def test_parts_of_a_composite_read_available_data_and_write_the_declared(kind):
    there = set(kind.spec.reads)
    for part in instance_of(kind).parts():
        assert set(part.type.spec.reads) <= there | {"pixels"}
        there |= set(part.type.spec.writes)
        part.type(**part.options)
    assert set(kind.spec.writes) <= there


def runnable():
    """Stages that objects can be given to: those that need no tensor."""
    return [
        p
        for p in all_stages(BatchStage, StreamStage, FrameStage)
        if not {"tensor", "outputs"} & {*p.values[0].spec.reads}
    ]


def two_frames(boxes, tracked):
    footage = frames(2, pixels=True, width=64, height=48)
    for frame in footage:
        table = detections(boxes, track_id=range(len(boxes)) if tracked else None, labels=("car", "person"))
        frame.tables = {"detect": table}
    return footage


@pytest.mark.parametrize("boxes", [[], [[2, 2, 30, 40], [10, 5, 60, 45]]], ids=["nothing", "two"])
@pytest.mark.parametrize("kind", runnable())
def test_stages_accept_empty_frames_and_write_only_declared_data(kind, boxes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put_in = two_frames(boxes, "track_id" in kind.spec.reads)
    before = [frame.surface.data.copy() for frame in put_in]
    processed = run_stage(instance_of(kind), put_in)
    assert [frame.index for frame in processed] == [0, 1]
    for old, new in zip(put_in, processed, strict=True):
        allowed = {"detect"} | ({kind.name} if "detections" in kind.spec.writes else set())
        assert set(new.tables) <= allowed
        table = new.tables["detect"]
        was = old.tables["detect"]
        if "track_id" not in kind.spec.writes:
            assert (table.track_id is None) == (was.track_id is None)
        assert set(table.extra) - set(was.extra) <= set(kind.spec.writes)
        assert "events" in kind.spec.writes or not new.events
    # Surfaces are read-only: whoever draws makes new ones.
    assert all((frame.surface.data == data).all() for frame, data in zip(put_in, before, strict=True))


@pytest.mark.parametrize("kind", all_stages(Sink))
def test_sinks_accept_empty_and_failed_frames(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put_in = two_frames([], False)
    put_in[1].error = "detect failed"
    sink = instance_of(kind)
    if isinstance(sink, Emitter) and "url" in required(kind):
        sink.drain_timeout = 0.2  # there is no broker
    processed = run_stage(sink, put_in)
    assert [frame.error for frame in processed] == [None, "detect failed"]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "spool" not in path.parts]  # an emitter's own
    assert len(files) == (1 if "path" in required(kind) else 0), "others write when there is something to write"
    assert not any(path.name.startswith(".") for path in files)
