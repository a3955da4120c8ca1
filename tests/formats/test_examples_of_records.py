"""The records in docs/schema.md: those of real runs, and as every form of the schema has them."""

import importlib.util
import json
import re

import jsonschema
import pytest
from formats.given import ROOT

from streamkit.formats import avro, json_schema, protobuf
from streamkit.stage import default_registry, ships

SPEC = importlib.util.spec_from_file_location("docs_schema_examples", ROOT / "docs" / "schema" / "examples.py")
examples = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(examples)
PAGE = examples.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def complete():
    return examples.complete()


def kind(record):
    return "frames" if "objects" in record else "objects" if "object" in record else "events"


def alike(shown, made):
    """Whether two records say the same, but for digits that another processor may have otherwise."""
    if isinstance(shown, bool) or type(shown) is not type(made):
        return shown is made
    if isinstance(shown, dict):
        return list(shown) == list(made) and all(alike(shown[key], made[key]) for key in shown)
    if isinstance(shown, list):
        return len(shown) == len(made) and all(map(alike, shown, made))
    if isinstance(shown, (int, float)):
        return made == pytest.approx(shown, rel=0.2, abs=3)
    cut = r"…$|^… \d+ more$|(?<=^9f3c51d20a7e-)\d+$"
    return shown == made or (re.search(cut, shown) is not None and re.search(cut, made) is not None)


def test_the_page_shows_what_is_written_now(complete):
    shown = {match[1]: match[0] for match in examples.BLOCK.finditer(PAGE)}
    assert list(shown) == [name for name in shown if name in examples.EXAMPLES]
    assert set(shown) == set(examples.EXAMPLES)
    stale = [
        name
        for name, record in complete.items()
        if not alike(json.loads(shown[name].split("```")[1].removeprefix("json")), examples.shortened(record))
    ]
    assert stale == [], "run: python docs/schema/examples.py"


def test_every_one_is_what_the_json_schema_says(complete):
    validator = jsonschema.Draft202012Validator(json_schema.record_schema())
    for name, record in complete.items():
        assert [f"{name}: {error.message}" for error in validator.iter_errors(record)] == []


@pytest.mark.parametrize("format_", [avro, protobuf])
def test_every_one_comes_back(complete, format_):
    for record in complete.values():
        send = kind(record)
        assert format_.decoder(send)(format_.encoder(send)(record)) == record


def test_all_that_our_stages_write_has_a_field(complete):
    from streamkit.formats.description import RECORDS
    from streamkit.formats.shaping import shaper

    for name, record in complete.items():
        shaped = shaper(RECORDS[kind(record)])(record)
        inner = [shaped, *(shaped.get(key, {}) for key in ("object", "event")), *shaped.get("objects", ())]
        assert [f"{name}: {one['extra']}" for one in inner if "extra" in one] == []


def test_every_column_and_event_of_our_stages_is_on_the_page():
    registry = default_registry()
    ours = [kind for name in registry.names() if (kind := registry.get(name)) is not None and ships(kind)]
    within = {"pixels", "tensor", "outputs", "detections", "events"}  # what records do not have, or under other names
    columns = {word for one in ours for word in one.writes} - within
    assert {word for word in columns if f'"{word}": ' not in PAGE} == set()
    assert len(columns) >= 7
    kinds = {event for one in ours if "events" in one.writes for event in one.emits} - {"manual"}  # as any with a clip
    assert {event for event in kinds if f'"{event}"' not in PAGE and f"`{event}`" not in PAGE} == set()
    assert len(kinds) > 15
