"""Every key of a pipeline's YAML, from the option classes and the JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator

from reference_pages.markdown import table, type_of
from streamkit.config.describe import default_text, kind_of, option_table, paragraphs, type_text
from streamkit.config.plan import BatchOptions, DeviceOptions, PipelineOptions, RunOptions
from streamkit.config.schema import json_schema
from streamkit.config.source_details import SourceDetails
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import Registry, Source, options
from streamkit.testing.yaml_tests import Expect, ExpectedEvent, GivenFrame, ObjectColumns, WrittenTest

_EXAMPLE = """```yaml
device: auto
batch: {size: 16, max_wait: 40ms}
sources:
  gate: "rtsp://viewer:${GATE_PASSWORD}@10.0.0.7/stream1"
  street: {uri: samples/street.mp4, pace: realtime}
stages:
  detect: {model: demo, min_score: 0.4}
  track: {}
  door: {stage: line_counter, line: [[0, 240], [640, 240]]}
  jsonl: {path: "out/{source}.jsonl", run: {on_error: stop}}
alarms:
  camera_down: down_s > 30
```
"""
_LINKS = {
    "batch": "#batch",
    "device": "#device",
    "sources": "#sources",
    "stages": "#stages",
    "alarms": "alarms.md",
    "tests": "#tests",
    "plugins": "../plugins.md",
}
_MAPPINGS = {
    "batch": "whole number or mapping",
    "sources": "mapping",
    "stages": "mapping",
    "alarms": "mapping",
    "tests": "list of tests",
}
_TEST_TYPES = {
    "given": "list of [frames](#a-frame-of-given)",
    "expect": "[expectation](#expect)",
    "events": "list of [events](#an-event-of-expect)",
    "objects": "list of [objects](#objects)",
}
_TESTS = (
    ("A test", WrittenTest),
    ("A frame of `given`", GivenFrame),
    ("Objects", ObjectColumns),
    ("`expect`", Expect),
    ("An event of `expect`", ExpectedEvent),
)


def page(registry: Registry) -> Iterator[str]:
    """The parts of the page, for the stages of a registry."""
    schema = json_schema(registry)
    yield "# Pipeline YAML\n"
    yield (
        "Every key of a pipeline. [Pipelines](../pipeline.md) shows how to write one. `streamkit schema` prints the "
        "same as JSON Schema, for completion in editors; `streamkit check` reports every problem with its line.\n"
    )
    yield _EXAMPLE
    yield "## Top level\n"
    yield table(("key", "type", "default", "meaning"), _top(schema["properties"], schema["required"]))
    yield (
        "Any value may name environment variables, `${NAME}` or `${NAME:-default}`. Durations have a unit "
        "(`ms`, `s`, `min`, `h`, `d`) or are seconds; sizes are bytes or have a unit (`KB`, `MB`, `GB`, `KiB`, ...).\n"
    )
    yield "## `sources`\n"
    yield (
        "Each source has an id and an address: `gate: rtsp://10.0.0.7/stream1`, or `gate: {uri: ..., OPTIONS}`. An id "
        "has letters, digits and `_ - . /`. Files are named after it, so it has at most 100 characters between "
        "slashes.\n"
    )
    yield table(
        ("key", "type", "meaning"),
        (
            ("`uri`", "text", "file, pattern of files, folder, camera or device"),
            ("`stage`", "text", "type of the source; if not set, the address decides"),
            *((f"`{option.name}`", type_text(option.type), option.help) for option in options(SourceDetails)),
            ("`fault`", "mapping", "faults to inject, for tests; see [fault](stages/fault.md)"),
        ),
    )
    yield "Further options depend on the type:\n"
    yield from _stage_links(registry, source=True)
    yield "## `stages`\n"
    yield "Each stage has an id and its options. Without `from`, it reads from the stage above it.\n"
    yield table(
        ("key", "type", "meaning"),
        (
            ("`stage`", "text", "type of the stage; if not set, its id"),
            ("`from`", type_of(schema["$defs"]["from"]), schema["$defs"]["from"]["description"]),
            ("`run`", "mapping", "options of the runner, see [run](#run)"),
            ("`insert`", "mapping or list", f"of a composite stage: {schema['$defs']['insert']['description']}"),
        ),
    )
    yield "Further options depend on the type:\n"
    yield from _stage_links(registry, source=False)
    for kind in (RunOptions, BatchOptions, DeviceOptions):
        yield f"## `{kind.name}`\n"
        yield f"{paragraphs(kind)[0]}\n"
        yield "\n".join(option_table(kind)) + "\n"
    yield f"## `{Fault.name}`\n"
    yield f"Of a source. See [fault](stages/{Fault.name}.md).\n"
    yield "## `alarms`\n"
    yield "Each alarm has a name and a rule about the pipeline itself. See [alarms](alarms.md).\n"
    yield "## `tests`\n"
    yield "Each test puts objects into one stage and compares what comes out. `streamkit test` runs them.\n"
    for title, kind in _TESTS:
        yield f"### {title}\n"
        rows = (
            (
                f"`{option.name}`",
                _TEST_TYPES.get(option.name) or type_text(option.type),
                default_text(option),
                option.help,
            )
            for option in options(kind)
        )
        yield table(("key", "type", "default", "meaning"), rows)


def _top(properties: dict[str, dict[str, object]], required: list[str]) -> Iterator[tuple[str, str, str, str]]:
    scalars = {option.name: option for option in options(PipelineOptions) if option.name != "batch"}
    for key, schema in properties.items():
        name = f"[`{key}`]({_LINKS[key]})" if key in _LINKS else f"`{key}`"
        default = default_text(scalars[key]) if key in scalars else "required" if key in required else ""
        kind = type_text(scalars[key].type) if key in scalars else _MAPPINGS.get(key) or type_of(schema)
        yield name, kind, default, str(schema["description"])


def _stage_links(registry: Registry, *, source: bool) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for name in registry.names():
        if issubclass(registry[name], Source) == source:
            kinds.setdefault(kind_of(registry[name]), []).append(f"[{name}](stages/{name}.md)")
    yield table(("kind", "stages"), ((kind, ", ".join(names)) for kind, names in kinds.items()))
