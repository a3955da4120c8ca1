"""What `list` and `explain` say of stages."""

import dataclasses
import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from streamkit.config.describe import (
    default_text,
    explain,
    kind_of,
    option_table,
    stage_list,
    stage_page,
    stage_table,
    type_text,
)
from streamkit.config.plan import PipelineOptions
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, FrameStage, Option, Registry, Sink, default_registry, options, stage
from streamkit.core.units import Bytes, Count, Length, Pixels, Point, Score, Seconds
from streamkit.io.line_file import Rotate
from streamkit.models.card_option import Model


def registry_of(*kinds: type) -> Registry:
    return Registry({kind.name: kind for kind in kinds})


BUILT_IN = Registry(
    {name: kind for name, kind in default_registry().items() if kind.__module__.startswith("streamkit.stages.")}
)

with Collecting(Registry()):  # not among the built-in stages of other tests

    @stage("gate", reads=("track_id", "zone"), writes="events")
    class Gate(FrameStage):
        """Say who goes through a | gate.

        It counts both ways,
        one track once.
        """

        line: Annotated[tuple[Point, Point], "the gate's two ends."]
        wait: Annotated[Seconds, "after this, a track counts again."] = 2.0
        only: list[str] | None = None

    @stage("paper")
    class Paper(Sink):
        """Print."""


@pytest.mark.parametrize("name", BUILT_IN.names())
def test_every_built_in_stage_and_option_is_explained(name: str) -> None:
    explanation = explain(BUILT_IN, name)
    assert explanation.startswith(f"{name}: ")
    assert "(it has no description)" not in explanation
    lines = explanation.split("\n")
    for number, line in enumerate(lines):
        assert len(line) <= 110, line
        if line.startswith("  ") and not line.startswith("   "):
            assert lines[number + 1].startswith("      "), f"the option {line.strip()!r} has no help"


def test_the_device_is_explained() -> None:
    explanation = explain(BUILT_IN, "device")
    assert explanation.startswith("device: Where a pipeline runs, and how many processes share each device.")
    assert "\n  processes: auto or whole number from 1; default auto\n" in explanation


def test_faults_are_explained_as_an_option_of_every_source() -> None:
    explanation = explain(BUILT_IN, "fault")
    assert explanation.startswith("fault: Inject faults into a source")
    for name in ("fail", "freeze", "still", "corrupt", "away", "seed"):
        assert f"\n  {name}: " in explanation
    assert (
        "away: {at: duration or list of them, every: duration, such as 10s, random: true | false, for:" in explanation
    )
    assert max(map(len, explanation.split("\n"))) <= 110
    for name in ("source", "images", "test_pattern"):
        assert "`explain fault` shows how" in " ".join(explain(BUILT_IN, name).split())
    assert "`fault`" not in explain(BUILT_IN, "draw")


def test_explain_shows_text_kind_data_and_options() -> None:
    explanation = explain(registry_of(Gate), "gate").split("\n")
    assert explanation[:3] == ["gate: Say who goes through a | gate.", "", "It counts both ways, one track once."]
    assert "kind    frame: sees one source's frames in order, on the host" in explanation
    assert "reads   track_id, zone" in explanation
    assert "writes  events" in explanation
    at = explanation.index("options")
    assert explanation[at + 1 : at + 6] == [
        "  line: [point [x, y], point [x, y]]; required",
        "      the gate's two ends.",
        "  wait: duration, such as 10s; default 2s",
        "      after this, a track counts again.",
        "  only: list of text; default not set",
    ]


def test_a_stage_without_options_is_described_as_such() -> None:
    assert "options none" in explain(registry_of(Paper), "paper")


def test_an_unknown_stage_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="there is no stage 'detct'; did you mean 'detect'"):
        explain(BUILT_IN, "detct")
    with pytest.raises(ConfigError, match=r"there is no stage 'xyzzy'; streamkit list"):
        explain(BUILT_IN, "xyzzy")


def test_the_list_has_a_line_a_stage_with_sources_first_and_sinks_last() -> None:
    lines = stage_list(BUILT_IN).split("\n")
    names = [line.split()[0] for line in lines]
    assert sorted(names) == BUILT_IN.names()
    kinds = [kind_of(BUILT_IN.get(name)) for name in names]  # type: ignore[arg-type]
    assert kinds == sorted(kinds, key=["source", "composite", "batch", "stream", "frame", "sink"].index)
    [detect] = [line for line in lines if line.startswith("detect ")]
    assert detect.split()[1:5] == ["composite", "pixels", ">", "detections"]


def test_the_list_of_no_stages_is_empty() -> None:
    assert stage_list(Registry()) == ""


def test_the_table_is_valid_markdown_with_any_docstring() -> None:
    head, rule, gate, paper = stage_table(registry_of(Gate, Paper)).split("\n")
    assert rule.count("---") == head.count("|") - 1 == 5
    assert gate == "| `gate` | frame | track_id, zone | events | Say who goes through a &#124; gate. |"
    assert paper.count("|") == head.count("|")


class Odd:
    pass


class Speed(Enum):
    FAST = "fast"
    SLOW = "slow"


@dataclass
class Pair:
    x: int
    speed: Speed = Speed.FAST


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Score, "number (0..1)"),
        (Score | dict[str, Score] | None, "number (0..1) or mapping to number (0..1)"),
        (Seconds, "duration, such as 10s"),
        (Bytes, "size, such as 100MB"),
        (Pixels, "number (pixels)"),
        (Length | None, "number (pixels, or with units: share, of the frame's height)"),
        (Count, "whole number from 1"),
        (bool | Count, "true | false or whole number from 1"),
        (Model, "model card or .onnx file"),
        (Point, "point [x, y]"),
        (list[Point], "list of point [x, y]"),
        (tuple[str, ...], "list of text"),
        (tuple[int, str], "[whole number, text]"),
        (Literal["a", "b"], "a | b"),
        (Annotated[int, "no unit"], "whole number"),
        (Rotate, "{every: duration, such as 10s, size: size, such as 100MB}"),
        (set[str], "list of text"),
        (Path | None, "path"),
        (Speed, "fast | slow"),
        (Pair, "{x: whole number, speed: fast | slow}"),
        (list[Pair], "list of {x: whole number, speed: fast | slow}"),
        (Any, "anything"),
        (Odd, "Odd"),
    ],
)
def test_types_are_described_in_yaml_terms(kind: Any, text: str) -> None:
    assert type_text(kind) == text


def test_defaults_are_shown_as_yaml() -> None:
    with Collecting(Registry()) as registry:

        @stage("paced")
        class Paced(FrameStage):
            """Have options of classes of its own."""

            speed: Speed = Speed.FAST
            pair: Pair = field(default_factory=lambda: Pair(1))
            words: frozenset[str] = frozenset({"b", "a"})

    explanation = explain(registry, "paced")
    assert "  speed: fast | slow; default fast\n" in explanation
    assert '  pair: {x: whole number, speed: fast | slow}; default {"x": 1, "speed": "fast"}\n' in explanation
    assert '  words: list of text; default ["a", "b"]\n' in explanation


@pytest.mark.parametrize("name", BUILT_IN.names())
def test_the_page_of_a_built_in_stage_has_a_row_of_four_cells_for_each_option(name: str) -> None:
    page = stage_page(BUILT_IN, name)
    assert page.startswith(f"# `{name}`\n\n")
    rows = [re.sub(r"`[^`]*`", "code", line) for line in page.splitlines() if line.startswith("| `")]
    kind = BUILT_IN.get(name)
    assert kind is not None
    assert len(rows) == len(options(kind))
    assert all(row.count("|") == 5 for row in rows)


def test_the_page_of_a_stage_is_generated() -> None:
    assert stage_page(registry_of(Gate), "gate") == (
        "# `gate`\n\nSay who goes through a &#124; gate.\n\nIt counts both ways, one track once.\n\n"
        "Kind: frame, sees one source's frames in order, on the host.\n\n"
        "Reads: `track_id`, `zone`.\n\nWrites: `events`.\n\n"
        "## Options\n\n| option | type | default | meaning |\n| --- | --- | --- | --- |\n"
        "| `line` | [point [x, y], point [x, y]] | required | the gate's two ends. |\n"
        "| `wait` | duration, such as 10s | `2s` | after this, a track counts again. |\n"
        "| `only` | list of text |  |  |\n\n"
        "Every stage also takes `stage` (its type, if its id is another word), `from` (the ids it reads from; "
        "by default the previous stage) and `run` (queue, on_error: skip &#124; stop, instances).\n"
    )


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        (Seconds, 30.0, "`30s`"),
        (Seconds, 90.0, "`90s`"),
        (Seconds, 120.0, "`2min`"),
        (Seconds, 0.04, "`40ms`"),
        (Seconds, 0.0005, "`0.5ms`"),
        (Seconds, 0.0, "`0s`"),
        (Seconds | None, 86400.0, "`1d`"),
        (Seconds | None, None, ""),
        (Bytes, 100_000_000, "`100MB`"),
        (Bytes, 1 << 20, "`1MiB`"),
        (Bytes, 1500, "`1500B`"),
        (Count | Literal["auto"], "auto", "`auto`"),
        (float, 30.0, "`30`"),
        (bool, False, "`false`"),
        (str, dataclasses.MISSING, "required"),
    ],
)
def test_a_default_has_the_unit_of_its_option(kind, default, text) -> None:
    assert default_text(Option("x", kind, default, "")) == text


def test_the_options_of_the_pipeline_are_a_table() -> None:
    assert option_table(PipelineOptions)[2].startswith("| `device` | device, or list of devices | `auto` | auto uses")
    assert option_table(dataclasses.make_dataclass("Empty", [])) == []
