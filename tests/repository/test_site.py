"""docs/site_hooks.py: pages from the code, links to files outside docs/, a navigation of what exists."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from streamkit.cli import cli
from streamkit.core.stage import default_registry

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def paths(command, path):
    yield path
    for name, one in command.commands.items() if isinstance(command, click.Group) else ():
        yield from paths(one, f"{path} {name}")


@pytest.mark.parametrize("name", [*default_registry().names(), "fault", "alarms"])
def test_every_stage_has_a_page_in_the_table_of_stages(hooks, name):
    assert hooks.generated()[f"reference/stages/{name}.md"].startswith(f"# `{name}`\n")
    assert f"[`{name}`]({name}.md)" in hooks.generated()["reference/stages/index.md"]


@pytest.mark.parametrize("path", list(paths(cli, "streamkit")))
def test_every_command_is_on_the_page_of_the_command_line(hooks, path):
    assert f"```text\nUsage: {path} " in hooks.generated()["reference/cli.md"]


def test_every_example_has_a_row_and_a_page(hooks):
    names = [file.name for file in (ROOT / "examples").glob("*.yaml")]
    assert len(names) > 20
    for name in names:
        assert f"| [{name}](project/examples/{name}.md) | " in hooks.generated()["examples.md"]
        shown = hooks.generated()[f"project/examples/{name}.md"]
        assert (ROOT / "examples" / name).read_text() in shown


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        ("rules.md", "[a](../examples/rules.yaml)", "[a](project/examples/rules.yaml.md)"),
        ("decisions/one.md", "[a](../../ARCHITECTURE.md#threads)", "[a](../architecture.md#threads)"),
        ("contributing.md", "[a](docs/rules.md#time), [b](SECURITY.md)", "[a](rules.md#time), [b](security.md)"),
        ("project/readme.md", "[a](docs/rules.md) ![b](docs/street.png)", "[a](../rules.md) ![b](../street.png)"),
        ("project/readme.md", "[a](examples) [b](LICENSE)", "[a](examples/index.md) [b](LICENSE.md)"),
        ("rules.md", "[a](tracking.md#x) [b](#time) [c](https://a.example/x)", None),
        ("rules.md", "[a](../nowhere.md) `[b](../README.md)`", None),
    ],
)
def test_links_lead_to_pages_of_the_site(hooks, place, text, expected):
    assert hooks.relinked(place, text) == (text if expected is None else expected)


def test_the_navigation_has_what_exists_and_every_page(hooks):
    nav = [{"Guides": ["rules.md", "nowhere.md", {"None": ["no.md"]}]}, {"Decisions": "decisions"}, "reference/stages"]
    config = SimpleNamespace(nav=nav)
    guides, decisions, stages = hooks.on_config(config).nav
    rules, more = guides["Guides"]
    assert rules == "rules.md"
    assert {"tracking.md", "contributing.md", "index.md"} <= set(more["More"])
    assert not {"rules.md", "nowhere.md"} & set(more["More"])
    assert decisions["Decisions"][0] == "decisions/README.md"
    assert stages["Stages"][0] == "reference/stages/index.md"
    assert "reference/stages/detect.md" in stages["Stages"]
