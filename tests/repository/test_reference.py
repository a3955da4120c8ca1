"""The reference that docs/reference_pages makes from the code: it is complete, and its examples are real."""

import importlib.util
import json
import re
from pathlib import Path

import click
import jsonschema
import pytest

import streamkit
from streamkit.cli import cli
from streamkit.config.alarms import FACTS
from streamkit.config.plan import BatchOptions, DeviceOptions, PipelineOptions, RunOptions
from streamkit.config.schema import json_schema
from streamkit.core.event_kinds import ADDED_KEYS, EVENT_KINDS
from streamkit.core.options import options
from streamkit.core.stage import default_registry
from streamkit.io.formats.description import groups
from streamkit.models.card import list_cards
from streamkit.models.card_keys import CardKeys, InputKeys, TextKeys
from streamkit.models.families import FAMILIES
from streamkit.runtime.ingest.source_counts import NUMBERS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = json.loads((ROOT / "docs" / "http_examples.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.generated()


@pytest.fixture(scope="module")
def document(pages):
    from reference_pages.idle_server import idle_server

    return idle_server().document


def rows(page, heading=""):
    """The cells of the table rows of a page, or of one of its sections, by the word in the first cell."""
    part = page if not heading else page.partition(f"\n{heading}\n")[2]
    part = part if not heading else re.split(rf"^#{{1,{heading.count('#')}}} ", part, maxsplit=1, flags=re.MULTILINE)[0]
    cells_by_name = {}
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| ") and (name := re.match(r"\[?`([^`]+)`", cells[0])):
            cells_by_name[name[1]] = cells
    return cells_by_name


def commands(command, path):
    yield path, command
    for name, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
        yield from commands(subcommand, f"{path} {name}")


def test_everything_that_the_package_offers_is_on_its_page(pages):
    exported_names = re.findall(r"^::: streamkit\.(\w+)$", pages["reference/streamkit.md"], re.MULTILINE)
    assert sorted(exported_names) == sorted(streamkit.__all__)


# -------------------------------------------------------------------------------------------------------------- a YAML


@pytest.mark.parametrize("name", [*default_registry().names(), "fault"])
def test_every_stage_has_a_page_in_the_table_of_stages(pages, name):
    assert pages[f"reference/stages/{name}.md"].startswith(f"# `{name}`\n")
    assert f"[`{name}`]({name}.md)" in pages["reference/stages/index.md"]


def test_every_key_of_a_pipeline_is_on_its_page(pages):
    page = pages["reference/pipeline.md"]
    assert set(rows(page, "## Top level")) == set(json_schema(default_registry())["properties"])
    assert {option.name for option in options(PipelineOptions)} < set(rows(page, "## Top level"))
    for kind in (RunOptions, BatchOptions, DeviceOptions):
        assert set(rows(page, f"## `{kind.name}`")) == {option.name for option in options(kind)}
    for name in default_registry().names():
        assert f"(stages/{name}.md)" in page
    assert rows(page, "## Top level")["watchdog"][1:3] == ["duration, such as 10s", "`30s`"]
    assert rows(page, "## `batch`")["max_wait"][2] == "`40ms`"


def test_every_key_has_a_meaning(pages):
    for place in ("pipeline", "alarms", "model-cards", "records", "metrics", "http-api"):
        without = [name for name, cells in rows(pages[f"reference/{place}.md"]).items() if len(cells[-1]) < 3]
        assert without == [], place


def test_every_fact_of_alarms_is_on_their_page(pages):
    page = pages["reference/alarms.md"]
    of = {"source": "## Facts of each source", "pipeline": "## Facts of the pipeline"}
    for scope, heading in of.items():
        assert set(rows(page, heading)) == {name for name, fact in FACTS.items() if fact.of == scope}


def test_every_key_of_a_model_card_and_every_family_is_on_their_page(pages):
    page = pages["reference/model-cards.md"]
    keys = rows(page, "## Keys")
    kinds = {"input": InputKeys, "text": TextKeys}
    nested = [f"{key}.{name}" for key, kind in kinds.items() for name in kind.__annotations__]
    assert set(keys) == {*CardKeys.__annotations__, *nested}
    assert [keys[name][2] for name in ("task", "input.size", "input.pad", "score", "url")] == [
        "required",
        "required",
        "`114`",
        "`0.25`",
        "",
    ]
    assert all(family.traits.formats for family in FAMILIES.values())
    families = re.findall(r"^\| (\w+) \| `(\w+)` \| .* \| (yes|no) \|$", page, re.MULTILINE)
    assert set(families) == {
        (family.task, family.name, "yes" if family.suppress else "no") for family in FAMILIES.values()
    }
    assert set(rows(page, "## Cards that ship")) == {path.stem for path in list_cards()}


# ------------------------------------------------------------------------------------------------------------- results


def test_every_field_of_records_is_on_their_page(pages):
    for group in groups():
        assert list(rows(pages["reference/records.md"], f"## {group.name}")) == [field.name for field in group.fields]


def test_every_event_of_the_stages_is_on_the_page(pages):
    registry = default_registry()
    emitted = {(kind, name) for name in registry.names() for kind in registry[name].spec.emits}
    assert {(event.kind, event.stage) for event in EVENT_KINDS if event.stage in registry.names()} == emitted
    for event in EVENT_KINDS:
        section = rows(pages["reference/events.md"], f"### `{event.kind}` {{ #{event.stage}-{event.kind} }}")
        assert set(section) == {*event.keys, *event.optional}


def events_of_pages():
    """The data of the events that pages show, which are from real runs, by kind."""
    for path in sorted((ROOT / "docs").glob("*.md")):
        for text in re.findall(r"^```json\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            try:
                record = json.loads(text)
            except ValueError:
                continue
            event = record.get("event", record) if isinstance(record, dict) else {}  # a record, or the event alone
            if isinstance(event, dict) and {"kind", "stage"} <= event.keys():
                yield event["kind"], event.get("data", {})


def test_real_events_have_the_keys_of_the_page():
    shown = list(events_of_pages())
    assert {"crossed", "entered", "raised", "read", "counted"} <= {kind for kind, _ in shown}
    facts = {*FACTS, "lasted_s"}
    for kind, data in shown:
        described = [
            set(event.keys)
            <= set(data)
            <= {*event.keys, *event.optional, *ADDED_KEYS, *(facts if event.stage == "alarms" else ())}
            for event in EVENT_KINDS
            if event.kind == kind
        ]
        assert any(described), (kind, data)


# -------------------------------------------------------------------------------------------------- a running pipeline


@pytest.mark.parametrize("path", [path for path, _ in commands(cli, "streamkit") if path != "streamkit"])
def test_every_command_and_option_is_on_the_page_of_the_command_line(pages, path):
    command = dict(commands(cli, "streamkit"))[path]
    section = re.split(
        r"^## ", pages["reference/cli.md"].partition(f"\n## `{path}`\n")[2], maxsplit=1, flags=re.MULTILINE
    )[0]
    assert f"```text\nUsage: {path} " in section
    names = {
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for name in option.opts
    }
    assert {name for name in names if f"`{name}`" not in section} == set()


def test_every_metric_is_on_the_page_with_its_labels(pages):
    metric_rows = rows(pages["reference/metrics.md"], "## Pipeline")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "streamkit").rglob("metrics.py"))
    metrics = set(re.findall(r'\b_?(?:counter|gauge|histogram)\(\s*"(\w+)"', source))
    metrics |= {number.metric for number in NUMBERS} - {""}
    assert len(metrics) > 18
    names = {name.removeprefix("streamkit_").removesuffix("_total") for name in metric_rows}
    assert metrics | {"gpu_utilization_ratio", "decoder_utilization_ratio"} == names
    assert metric_rows["streamkit_frames_dropped_total"][1:3] == ["counter", "`source`, `cause`"]
    labels = {label for cells in metric_rows.values() for label in re.findall(r"`(\w+)`", cells[2])}
    assert labels == set(rows(pages["reference/metrics.md"], "## Labels"))


def test_every_request_is_on_the_page_with_its_role_and_parameters(pages, document):
    from reference_pages.http_api import anchor, operations, role_of

    page = pages["reference/http-api.md"]
    count = 0
    for method, path, operation in operations(document):
        heading = f"### `{method} {path}` {{ #{anchor(method, path)} }}"
        section = re.split(r"^#{2,3} ", page.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        assert operation["description"] in section
        assert f"role `{role_of(operation)}`" in section or (not role_of(operation) and "Needs no token" in section)
        assert {parameter["name"] for parameter in operation.get("parameters", ())} == set(rows(section))
        count += 1
    assert count > 40
    assert page.count("\n### `") == count
    assert "/api/v1/videos" in page
    for name in document["components"]["schemas"]:
        assert f"\n## {name}\n" in pages["reference/http-bodies.md"]


def json_bodies(document):
    """The schema of each JSON body: (method and path, "request" or "response", schema)."""
    from reference_pages.http_api import operations

    for method, path, operation in operations(document):
        name = f"{method} {path}"
        if body := operation.get("requestBody"):
            yield name, "request", body["content"]["application/json"]["schema"]
        for status, response in operation["responses"].items():
            if status < "300" and "application/json" in response.get("content", {}):
                yield name, "response", response["content"]["application/json"]["schema"]


def test_every_json_body_has_an_example_that_fits_the_openapi_document(document):
    bodies = {(name, part): schema for name, part, schema in json_bodies(document)}
    too_long = {("GET /api/v1/config/schema", "response")}
    there = {(name, part) for name, parts in EXAMPLES.items() for part in parts}
    assert there == set(bodies) - too_long, "run python docs/http_examples.py; it has the requests"
    for (name, part), schema in bodies.items():
        if (name, part) not in too_long:
            whole = {**schema, "components": document["components"]}
            wrong = [
                error.message for error in jsonschema.Draft202012Validator(whole).iter_errors(EXAMPLES[name][part])
            ]
            assert wrong == [], f"{name}: run python docs/http_examples.py"
