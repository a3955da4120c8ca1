"""What `alarms:` may say, and where that is written down."""

import re
from pathlib import Path

import jsonschema
import yaml

from streamkit.config.alarms import FACTS, Alarm, explained, takes_alarms
from streamkit.config.describe import explain
from streamkit.config.pipeline_config import read_text
from streamkit.config.schema import json_schema
from streamkit.core.options import options
from streamkit.core.stage import default_registry

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "alarms.md").read_text(encoding="utf-8")


def test_every_fact_and_option_is_explained_and_documented():
    text = explain(default_registry(), "alarms")
    assert text.endswith(explained())
    for name in FACTS:
        assert re.search(rf"^  {name} ", text, re.MULTILINE)
        assert f"`{name}`" in PAGE.partition("## Facts")[2].partition("\n## ")[0]
    for option in options(Alarm):
        assert option.help
        assert f"| `{option.name}` |" in PAGE


def test_the_documented_pipeline_passes_check(monkeypatch):
    for name in ("GATE_PASSWORD", "MAIL_USER", "MAIL_PASSWORD"):
        monkeypatch.setenv(name, "x")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    config = read_text(text, folder=ROOT)
    assert config.problems == []
    assert [alarm.name for alarm in config.alarms][:2] == ["camera_down", "dropping"]
    assert [alarm.per_source for alarm in config.alarms] == [True, True, True, False, False, False, False, True]
    assert config.alarms[1].rule.for_s == 60


def test_the_schema_has_the_key_alarms():
    schema = json_schema(default_registry())
    taken = jsonschema.Draft202012Validator({**schema["properties"]["alarms"], "$defs": schema["$defs"]}).is_valid
    assert taken(yaml.safe_load("{a: down_s > 3, b: {when: down_s > 3, to: [mail], clear: 5s, cooldown: '${X}'}}"))
    for wrong in ("{a: {wen: x}}", "{a: 3}", "{a: {when: x, clear: 5x}}", "[a]", "{a: {to: mail}}"):
        assert not taken(yaml.safe_load(wrong)), wrong


def test_texts_of_facts_fit_their_column():
    lines = explained().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("  stage_call_s"))
    assert lines[begin].index("seconds for which") == 19
    assert re.fullmatch(r" {19}\S.*", lines[begin + 1])


def test_emitters_that_accept_alarms_are_listed():
    assert takes_alarms(None)
    assert takes_alarms("alarms")
    assert takes_alarms(["crossing", "alarms.raised"])
    assert not takes_alarms("crossing.crossed")
