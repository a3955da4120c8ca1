from dataclasses import field
from typing import Annotated, Literal

import pytest

from streamkit import BatchStage, Frame, FrameStage, Point, Score, Seconds, StreamStage
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Registry, Sink, Source, default_registry, options, scope_of, stage, summary
from streamkit.core.stage_spec import StageSpec


@pytest.fixture
def registry():
    with Collecting(Registry()) as collected:
        yield collected


def make(name="probe", **words):
    @stage(name, **words)
    class Probe(FrameStage):
        """Look at things.

        More about it.

        Options:
            wait: a docstring gives no help.
        """

        line: Annotated[tuple[Point, Point], "the line's two ends, in pixels: x, then y."]
        min_score: Annotated[Score, "the least score."] = 0.25
        wait: Seconds | None = None
        color: Annotated[Literal["class", "track"], "one of two."] = "class"
        names: list[str] = field(default_factory=list)
        seen: int = field(default=0, init=False)

    return Probe


def test_the_annotations_of_a_class_are_its_options(registry):
    kind = make(reads="track_id", writes=("events", "speed"))
    probe = kind(line=((0, 0), (1, 1)), min_score=0.5)
    assert (probe.line, probe.min_score, probe.color, probe.names, probe.seen) == (
        ((0, 0), (1, 1)),
        0.5,
        "class",
        [],
        0,
    )
    assert (kind.name, kind.spec.reads, kind.spec.writes) == ("probe", ("track_id",), ("events", "speed"))
    assert registry.get("probe") is kind
    with pytest.raises(TypeError, match="seen"):
        kind(line=((0, 0), (1, 1)), seen=1)
    with pytest.raises(TypeError, match="line"):
        kind()


def test_options_have_types_defaults_and_help(registry):
    kind = make()
    by_name = {option.name: option for option in options(kind)}
    assert list(by_name) == ["line", "min_score", "wait", "color", "names"]
    assert by_name["line"].required
    assert by_name["line"].help == "the line's two ends, in pixels: x, then y."
    assert by_name["min_score"].help == "the least score."
    assert by_name["color"].help == "one of two."
    assert (by_name["min_score"].default, by_name["names"].default, by_name["wait"].help) == (0.25, [], "")
    assert not by_name["wait"].required
    assert summary(kind) == "Look at things."


def test_instances_do_not_share_defaults(registry):
    kind = make()
    a = kind(line=((0, 0), (1, 1)))
    b = kind(line=((0, 0), (1, 1)))
    a.names.append("x")
    assert b.names == []
    assert a != b


def test_options_of_a_base_class_are_inherited(registry):
    @stage("child")
    class Child(make()):
        """Look closer."""

        depth: Annotated[int, "how close."] = 1

    assert {o.name: o.help for o in options(Child)}["depth"] == "how close."
    assert {o.name: o.help for o in options(Child)}["min_score"] == "the least score."


def test_a_name_can_be_registered_once(registry):
    make("mine")

    with pytest.raises(ConfigError, match=r"two stages claim the name 'mine': .*Probe in .*; rename one of them"):

        @stage("mine")
        class Other(BatchStage):
            """Another."""


def test_the_same_class_may_be_registered_again(registry):
    make("mine")
    second = make("mine")
    assert registry.get("mine") is second


def test_a_stage_must_be_of_a_kind(registry):
    with pytest.raises(TypeError, match="stage 'loose': Loose must be a subclass of Source, BatchStage, StreamStage"):

        @stage("loose")
        class Loose:
            """Nothing."""


def test_registries_are_copied_by_value(registry):
    kind = make()
    copy = registry.copy()
    with Collecting(copy):
        make("second")
    assert registry.names() == ["probe"]
    assert copy.names() == ["probe", "second"]
    assert copy.get("probe") is kind
    assert registry.get("second") is None


def test_collected_stages_are_not_added_to_the_built_in_ones(registry):
    make("only_here")
    assert default_registry().get("only_here") is None


def test_collecting_ends_after_an_error():
    before = default_registry().names()
    inner = Registry()
    with pytest.raises(RuntimeError), Collecting(inner):
        raise RuntimeError
    with Collecting(Registry()) as other:
        make("after")
    assert inner.names() == []
    assert other.names() == ["after"]
    assert default_registry().names() == before


def test_the_built_in_stages_are_registered():
    assert {
        "source",
        "images",
        "test_pattern",
        "detect",
        "preprocess",
        "infer",
        "postprocess",
        "draw",
        "video",
        "jsonl",
        "csv",
    } <= set(default_registry().names())


def test_a_stage_needs_its_name_in_parentheses(registry):
    with pytest.raises(TypeError, match=r'write @stage\("my_stage"\)'):

        @stage
        class Bare(FrameStage):
            """Nothing."""

    assert registry.names() == []


@pytest.mark.parametrize(
    ("kind", "option", "why"),
    [
        (FrameStage, "stage", "the YAML key stage is reserved for the runner"),
        (FrameStage, "run", "the YAML key run is reserved for the runner"),
        (Sink, "insert", "the YAML key insert is reserved for the runner"),
        (Source, "fault", "the YAML key fault is reserved for the runner"),
        (FrameStage, "spec", "the attribute spec of every FrameStage is reserved for the runner"),
        (FrameStage, "name", "the attribute name of every FrameStage is reserved for the runner"),
        (FrameStage, "context", "the attribute context of every FrameStage is reserved for the runner"),
        (BatchStage, "process", "the attribute process of every BatchStage is reserved for the runner"),
        (Sink, "flush", "the attribute flush of every Sink is reserved for the runner"),
    ],
)
def test_reserved_option_names_are_refused(registry, kind, option, why):
    probe_class = type("Probe", (kind,), {"__annotations__": {option: str}, option: "a"})
    text = f"the option '{option}' of the stage probe needs another name: {why}"
    with pytest.raises(TypeError, match=f"^{text}$"):
        stage("probe")(probe_class)
    assert registry.names() == []


def test_a_source_may_use_names_reserved_for_other_stages(registry):
    probe_class = stage("probe")(type("Probe", (Source,), {"__annotations__": {"run": int}, "run": 1}))
    assert [option.name for option in options(probe_class)] == ["run"]


def test_a_function_can_be_a_stage(registry):
    @stage("blur_faces", reads="detections", writes="events", emits=("blurred",))
    def blur_faces(frame: Frame, *, strength: Annotated[int, "in pixels"] = 3, labels: list[str] = []):  # noqa: B006
        """Blur faces."""
        frame.emit("blurred", strength=strength, labels=labels)

    assert issubclass(blur_faces, FrameStage)
    assert registry.get("blur_faces") is blur_faces
    assert (blur_faces.spec.reads, blur_faces.spec.emits) == (("detections",), ("blurred",))
    assert [(option.name, option.default, option.help) for option in options(blur_faces)] == [
        ("strength", 3, "in pixels"),
        ("labels", [], ""),
    ]
    assert summary(blur_faces) == "Blur faces."
    first = blur_faces(strength=5)
    second = blur_faces()
    first.labels.append("face")
    assert second.labels == []
    frame = Frame("cam", 0, 0.0, 64, 48)
    first.process(frame)
    assert [(event.kind, event.data) for event in frame.events] == [("blurred", {"strength": 5, "labels": ["face"]})]


def no_frame(*, strength: int): ...


def two_frames(frame, other): ...


def no_type(frame, *, strength=3): ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (no_frame, r"takes a frame and keyword-only options, as in def no_frame\(frame, \*, strength: int = 3\)"),
        (two_frames, "takes a frame and keyword-only options"),
        (no_type, "the option 'strength' of the stage function no_type needs a type"),
    ],
)
def test_an_unsuitable_function_is_refused(registry, function, why):
    with pytest.raises(TypeError, match=why):
        stage("probe")(function)
    assert registry.names() == []


def test_declarations_are_inherited(registry):
    class Counting(StreamStage, reads="track_id", emits=("counted",), columns={"speed": "float"}):
        pass

    class Named:
        pass

    probe_class = stage("probe", emits=("passed",))(type("Probe", (Named, Counting), {}))
    assert probe_class.spec == StageSpec(
        name="probe", reads=("track_id",), emits=("passed",), columns={"speed": "float"}
    )
    assert Counting.spec.emits == ("counted",)


@pytest.mark.parametrize("annotations", [{}, {"emits": "ClassVar[tuple[str, ...]]"}])
def test_a_declaration_as_a_class_attribute_is_refused(annotations):
    text = (
        r'Probe: declare emits in the decorator, as in @stage\("my_stage", emits=...\), or in the class line of a base'
    )
    with pytest.raises(TypeError, match=f"^{text} class, as in class Probe\\(FrameStage, emits=...\\)$"):
        type("Probe", (FrameStage,), {"emits": ("passed",), "__annotations__": annotations})


@pytest.mark.parametrize(
    ("base", "declared", "scope"),
    [
        (BatchStage, {}, None),
        (BatchStage, {"scope": "source"}, "source"),
        (StreamStage, {}, "source"),
        (FrameStage, {"scope": "pipeline"}, "pipeline"),
        (Sink, {}, "source"),
    ],
)
def test_the_scope_of_a_stage_is_declared_or_follows_from_its_kind(registry, base, declared, scope):
    probe_class = stage("probe", **declared)(type("Probe", (base,), {}))
    assert scope_of(probe_class) == scope
    assert scope_of(type("Inherits", (probe_class,), {})) == scope


def test_an_invalid_scope_is_refused(registry):
    with pytest.raises(TypeError, match=r"^Probe: scope must be 'source' or 'pipeline', got 'frame'$"):
        stage("probe", scope="frame")(type("Probe", (FrameStage,), {}))


def test_an_unknown_declaration_is_refused(registry):
    with pytest.raises(TypeError, match=r"^Probe: a stage cannot declare emit; known: changeable, .*emits"):
        stage("probe", emit=("passed",))(type("Probe", (FrameStage,), {}))
    assert registry.names() == []
