"""The records in docs/schema*.md: those of real runs, and as every form of the schema has them."""

import importlib.util
import json
import re

import jsonschema
import pytest
from support.decoding import decoder
from support.record_samples import ROOT

from streamkit.core.event_kinds import EVENT_KINDS
from streamkit.core.stage import default_registry, ships
from streamkit.io.formats import avro, protobuf
from streamkit.io.formats.schemas import json_schema

SPEC = importlib.util.spec_from_file_location("docs_schema_examples", ROOT / "docs" / "schema" / "examples.py")
examples = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(examples)
TEXT = "".join(page.read_text(encoding="utf-8") for page in examples.PAGES)


@pytest.fixture(scope="module")
def complete():
    return examples.complete()


def kind(record):
    return "frames" if "objects" in record else "objects" if "object" in record else "events"


# how far a number may be from what the page shows, which another processor made: a share of it, or in its own unit
NEAR = {
    "box": (0.0, 1.0),
    "keypoints": (0.0, 2.0),
    "score": (0.0, 0.02),
    "embedding": (0.0, 0.01),
    "speed_kmh": (0.02, 0.1),
    "heading_deg": (0.0, 2.0),
    "other": (0.01, 0.01),
}
CODED = {"crop", "counts"}  # of pictures, each pixel of which may be otherwise


def alike(shown, written, key="other"):
    """Whether two records say the same: keys, their order, texts and whole numbers exactly, and others as in `NEAR`."""
    if type(shown) is not type(written):
        return False
    if isinstance(shown, dict):
        inner = [(name, name if key not in NEAR or key == "other" else key) for name in shown]
        return list(shown) == list(written) and all(alike(shown[name], written[name], near) for name, near in inner)
    if isinstance(shown, list):
        return len(shown) == len(written) and all(
            alike(shown_entry, other, key) for shown_entry, other in zip(shown, written, strict=True)
        )
    if isinstance(shown, float):
        share, unit = NEAR.get(key, NEAR["other"])
        return written == pytest.approx(shown, rel=share, abs=unit)
    if isinstance(shown, str) and key == "id":
        return re.sub(r"-\d+$", "", shown) == re.sub(r"-\d+$", "", written) != shown
    if isinstance(shown, str) and key in CODED:
        return len(shown) == len(written) and shown[-1] == written[-1] == "…"
    return shown == written


def changed(value, key="other"):
    """The value with one thing otherwise, for each thing that a reader would see."""
    if isinstance(value, dict):
        for name in value:
            yield {other: field for other, field in value.items() if other != name}
            yield {f"{other}_" if other == name else other: field for other, field in value.items()}
            for variant in changed(value[name], name if key not in NEAR or key == "other" else key):
                yield {**value, name: variant}
        if len(value) > 1:
            yield dict(reversed(value.items()))
        yield {**value, "more": 1}
    elif isinstance(value, list):
        yield [*value, 1]
        for place in range(len(value)):
            yield value[:place] + value[place + 1 :]
            yield from ([*value[:place], variant, *value[place + 1 :]] for variant in changed(value[place], key))
    elif isinstance(value, bool) or value is None:
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value), str(value))
    elif isinstance(value, float):
        share, unit = NEAR.get(key, NEAR["other"])
        step = 1.05 * max(share * abs(value), unit) + 1e-9
        yield from (value + step, value - step, str(value), None)
    else:
        yield from ("", f"{value}x", None)


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_a_difference_from_the_page_is_detected(name):
    shown = on_page()[name]
    assert alike(shown, json.loads(json.dumps(shown)))
    others = list(changed(shown))
    assert len(others) > 10
    assert [other for other in others if alike(shown, other)] == []


def on_page():
    """The records that the pages show, by the names of the examples."""
    blocks = {match[1]: match[0] for match in examples.BLOCK.finditer(TEXT)}
    return {name: json.loads(text.split("```")[1].removeprefix("json")) for name, text in blocks.items()}


def test_the_page_shows_the_current_records(complete):
    shown = on_page()
    assert sorted(shown) == sorted(examples.EXAMPLES)
    assert len(examples.BLOCK.findall(TEXT)) == len(examples.EXAMPLES), "each once"
    names = [name for name, (pipeline, *_) in examples.EXAMPLES.items() if pipeline is examples.STREET]
    assert len(names) > 12
    assert set(names) <= set(complete), "all that the models which ship can make"
    fresh = {name: examples.shortened(examples.excerpt(name, record)) for name, record in complete.items()}
    stale = [name for name, part in fresh.items() if not alike(shown[name], part)]
    assert stale == [], "run: python docs/schema/examples.py"


def test_every_example_matches_the_json_schema(complete):
    validator = jsonschema.Draft202012Validator(json_schema())
    for name, record in complete.items():
        assert [f"{name}: {error.message}" for error in validator.iter_errors(record)] == []


@pytest.mark.parametrize(("name", "module"), [("avro", avro), ("protobuf", protobuf)])
def test_every_example_survives_a_round_trip(complete, name, module):
    for record in complete.values():
        send = kind(record)
        assert decoder(name, send)(module.encoder(send)(record)) == record


def test_every_value_of_built_in_stages_has_a_field(complete):
    from streamkit.io.formats.description import RECORDS
    from streamkit.io.formats.shaping import shaper

    for name, record in complete.items():
        shaped = shaper(RECORDS[kind(record)])(record)
        inner = [shaped, *(shaped.get(key, {}) for key in ("object", "event")), *shaped.get("objects", ())]
        assert [f"{name}: {definition['extra']}" for definition in inner if "extra" in definition] == []


def test_every_column_of_built_in_stages_is_on_the_page_and_every_event_in_the_reference():
    registry = default_registry()
    ours = [kind for name in registry.names() if (kind := registry.get(name)) is not None and ships(kind)]
    within = {"pixels", "tensor", "outputs", "detections", "events"}  # what records do not have, or under other names
    columns = {word for stage in ours for word in stage.spec.writes} - within
    assert {word for word in columns if f'"{word}": ' not in TEXT and f"`{word}`" not in TEXT} == set()
    assert len(columns) >= 7
    kinds = {event for stage in ours if "events" in stage.spec.writes for event in stage.spec.emits} - {
        "manual"
    }  # as any with a clip
    assert kinds <= {kind.kind for kind in EVENT_KINDS}, "the reference of events has an example of each of these"
    assert len(kinds) > 15
