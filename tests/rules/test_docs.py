"""docs/rules.md: its YAML passes `check`, its tests pass, and it has every name and function."""

import re
from pathlib import Path

import pytest

from streamkit.checks.all import check
from streamkit.config import read_text
from streamkit.rules.facts import ALIASES, MEASURED, OBJECT
from streamkit.rules.vocabulary import CALLS
from streamkit.stage import options
from streamkit.stages.rule import RuleStage
from streamkit.yamltests import run_tests

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "rules.md").read_text()
PIPELINE, TESTS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
NIGHT = """\
stages:
  detect: {model: demo}
  track: {}
  night: {stage: rule, when: present(person), schedule: {hours: "22:00-06:00", zone: Europe/Berlin}}
"""


def test_its_pipeline_passes_check():
    config = read_text(f"sources: {{a: 'test://'}}\n{PIPELINE}", folder=ROOT)
    assert len(check(config).nodes) == 9


def test_its_tests_pass():
    said = []
    assert run_tests(read_text(f"sources: {{a: 'test://'}}\n{NIGHT}{TESTS}", folder=ROOT), said.append) == 0, said


@pytest.mark.parametrize("name", [*OBJECT, *ALIASES, *MEASURED, "source"])
def test_every_name_is_there(name):
    assert re.search(rf"^\|.*`{name}`", TEXT, re.MULTILINE)


@pytest.mark.parametrize("name", CALLS)
def test_every_function_is_there(name):
    assert re.search(rf"^\| `{name}\(", TEXT, re.MULTILINE)


@pytest.mark.parametrize("option", [option.name for option in options(RuleStage)])
def test_every_option_is_there(option):
    assert re.search(rf"^\| `{option}` \|", TEXT, re.MULTILINE)
