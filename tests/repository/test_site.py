"""docs/site_hooks.py: links to files outside docs/, the navigation, the wheel's copy of the site."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        ("reference/one.md", "[a](../../ARCHITECTURE.md#threads)", "[a](../architecture.md#threads)"),
        ("rules.md", "[a](figures/README.md#the-rows)", "[a](project/docs/figures/README.md.md)"),
        ("contributing.md", "[a](docs/rules.md#time), [b](SECURITY.md)", "[a](rules.md#time), [b](security.md)"),
        (
            "project/readme.md",
            "[a](docs/rules.md) ![b](docs/assets/page.webp)",
            "[a](../rules.md) ![b](../assets/page.webp)",
        ),
        ("project/readme.md", "[a](examples) [b](LICENSE)", "[a](examples/index.md) [b](LICENSE.md)"),
        ("rules.md", "[a](tracking.md#x) [b](#time) [c](https://a.example/x)", None),
        ("rules.md", "[a](../nowhere.md) `[b](../README.md)`", None),
    ],
)
def test_links_lead_to_pages_of_the_site(hooks, place, text, expected):
    assert hooks.relinked(place, text) == (text if expected is None else expected)


def test_the_navigation_lists_the_pages_of_stages(hooks):
    nav = [{"Guides": ["rules.md", {"Help": ["comparison.md"]}]}, "reference/stages"]
    guides, stages = hooks.on_config(SimpleNamespace(nav=nav)).nav
    assert guides == nav[0]
    assert stages["Stages"][0] == "reference/stages/index.md"
    inference = next(entry["Inference"] for entry in stages["Stages"] if "Inference" in entry)
    assert "reference/stages/detect.md" in inference


def test_a_chain_of_boxes_is_a_list_and_other_diagrams_stay_text(hooks):
    chain = '```mermaid\nflowchart TD\n    a["one<br>core/a.py:A.run"] --> b["two"]\n    b --> c["three"]\n```\n'
    page = SimpleNamespace(file=SimpleNamespace(src_uri="a.md"))
    markdown = hooks.on_page_markdown(chain, page, None, None)
    assert markdown == (
        '<ol class="chain"><li>one<br><code>core/a.py:A.run</code></li><li>two</li><li>three</li></ol>\n'
    )
    branch = chain.replace("b --> c", "a --> c")
    assert hooks.on_page_markdown(branch, page, None, None) == branch


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<script src="assets/a.js"></script><a href="https://a.example/x">x</a>', ""),
        ('<link rel="canonical" href="https://a.example/x"><link rel="stylesheet" href="b.css">', ""),
        ('<script defer src="https://cdn.example/a.js"></script>', "https://cdn.example/a.js"),
        ('<img alt="" src=//cdn.example/a.png>', "//cdn.example/a.png"),
        ('<link rel="stylesheet" href="https://fonts.example/a.css">', "https://fonts.example/a.css"),
        ('<pre class="mermaid"><code>', "mermaid"),
    ],
)
def test_resources_of_other_hosts_are_detected(hooks, html, expected):
    assert hooks.foreign(html) == expected


@pytest.mark.parametrize(
    ("version", "built", "included"),
    [
        ("standard", True, {"site": "streamkit/docs_site"}),
        ("standard", False, {"docs/a/b.md": "streamkit/docs_site/a/b.md", "docs/c.png": "streamkit/docs_site/c.png"}),
        ("editable", True, {}),
    ],
)
def test_a_wheel_includes_the_site_or_else_its_pages(tmp_path, version, built, included):
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("wheel_site", ROOT / "docs" / "wheel_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "docs" / "a").mkdir(parents=True)
    for name in ("a/b.md", "c.png", "hooks.py"):
        (tmp_path / "docs" / name).write_text("")
    if built:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "index.html").write_text("<html>")
    data = {"force_include": {}}
    module.SiteHook(str(tmp_path), {}, None, None, "", "wheel").initialize(version, data)
    assert data["force_include"] == {str(tmp_path / place): target for place, target in included.items()}


def test_llms_txt_lists_the_pages_by_section_with_their_first_sentence(hooks):
    nav = [{"Guides": [{"Rules": ["a.md"]}, "b.md"]}, "c.md"]
    texts = {
        "a.md": "# Write `rules`\n\nTurn a [track](track.md) into\nevents. More.\n",
        "b.md": "# B\n\n![x](x.png)\n\nSee `c`:\n\n```yaml\na: b\n```\n",
        "c.md": "# C\n",
    }
    assert "\n".join(hooks.llms_text(nav, texts)).endswith(
        "## Guides\n\n- [Write `rules`](a.md): Turn a track into events\n- [B](b.md): See `c`\n"
        "\n## Start\n\n- [C](c.md)"
    )


def test_pages_of_python_have_signatures_and_docstrings_as_markdown(hooks):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/x.md"))
    hooks.on_page_markdown("# X\n\n::: streamkit.Pipeline\n    options: {heading_level: 3}\n", page, None, None)
    text = hooks.page_texts["reference/x.md"]
    assert ":::" not in text
    assert "### `Pipeline`\n\n```python\nPipeline(sources" in text
    assert "#### `Pipeline.push`" in text


def test_no_page_is_twice_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = re.findall(r"- ([\w/-]+\.md)$", text, re.MULTILINE)
    assert len(names) > 50
    assert [name for name in names if names.count(name) > 1] == []
