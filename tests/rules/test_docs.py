"""docs/rules.md and docs/rule-language.md: their YAML passes `check`, their tests pass, and no name is missing."""

import re
from pathlib import Path

import pytest

from streamkit.cli.check import check
from streamkit.config.pipeline_config import read_text
from streamkit.rules.scope import ALIASES, MEASURED, OBJECT
from streamkit.rules.vocabulary import CALLS
from streamkit.testing.yaml_tests import run_tests

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "rules.md").read_text()
LANGUAGE = (ROOT / "docs" / "rule-language.md").read_text()
PIPELINE, NIGHT, SEVERAL, TESTS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
ABOVE = """\
sources: {a: 'test://'}
stages:
  detect: {model: demo}
  track: {}
  zone: {polygon: {door: [[100, 120], [500, 120], [500, 220], [100, 220]]}}
"""


def test_the_pipeline_of_the_page_passes_check():
    assert len(check(read_text(PIPELINE, folder=ROOT)).nodes) == 9


@pytest.mark.parametrize("stage", [NIGHT, SEVERAL])
def test_the_stages_of_the_page_pass_check(stage):
    assert len(check(read_text(ABOVE + stage, folder=ROOT)).nodes) == 6


def test_the_tests_of_the_page_pass():
    messages = []
    assert run_tests(read_text(f"{ABOVE}{NIGHT}{TESTS}", folder=ROOT), messages.append) == 0, messages


@pytest.mark.parametrize("name", [*OBJECT, *ALIASES, *MEASURED, "source"])
def test_the_page_has_every_name(name):
    assert re.search(rf"^\|.*`{name}`", LANGUAGE, re.MULTILINE)


@pytest.mark.parametrize("name", CALLS)
def test_the_page_has_every_function(name):
    assert re.search(rf"^\| `{name}\(", LANGUAGE, re.MULTILINE)
