"""Every Markdown page: links resolve, YAML, Python and commands are valid, options are listed, no page is too long."""

import importlib.util
import re
import shlex
import shutil
import textwrap
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from urllib.parse import unquote

import click
import pytest
import yaml
from support.default_network import shipped_as_default

from streamkit.cli import cli
from streamkit.cli.check import check
from streamkit.config.pipeline_config import read, read_text
from streamkit.core.options import options
from streamkit.core.stage import default_registry
from streamkit.core.yaml_tree import load
from streamkit.models.card_keys import read_keys

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".github", "docs", "examples", "models", "plugins", "samples", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]

FENCE = re.compile(r"^( *)(```+|~~~+)([\w-]*).*?\n(.*?)^ *\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ANCHOR = re.compile(r"<\w+[^>]* (?:id|name)=\"([^\"]+)\"")
VARIABLE = re.compile(r"\$\{(\w+)\}")


class Snippet(NamedTuple):
    """A block of code: the page, the line it begins on, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(name: str) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "``", FENCE.sub("", text_of(name)))


def snippets(name: str) -> list[Snippet]:
    text = text_of(name)
    return [
        Snippet(name, text[: match.start()].count("\n") + 1, match[3], textwrap.dedent(match[4]))
        for match in FENCE.finditer(text)
    ]


def slug(heading: str) -> str:
    """The anchor that GitHub, and the site, give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(name: str) -> set[str]:
    text = FENCE.sub("", text_of(name))
    seen = Counter()
    anchor_names = set()
    for heading in HEADING.findall(text):
        anchor = slug(heading)
        anchor_names.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchor_names | set(ANCHOR.findall(text))


@cache
def site_hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


@cache
def generated() -> frozenset[Path]:
    """Pages that only the built site has, by the place that a page in docs/ names them by."""
    return frozenset(ROOT / "docs" / place for place in site_hooks().generated())


def broken(name: str) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    page = ROOT / name
    for link in (inline or other for inline, other in LINK.findall(prose(name))):
        path, _, anchor = unquote(link).partition("#")
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            if not (name.startswith("docs/") and target in generated()):
                wrong.append(link)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.relative_to(ROOT).as_posix()):
            wrong.append(link)
    return wrong


ALL = [snippet for name in NAMES for snippet in snippets(name)]
YAML = [snippet for snippet in ALL if snippet.language in ("yaml", "yml")]
CLUSTERS = [snippet for snippet in YAML if re.search(r"^pipeline:", snippet.text, re.MULTILINE)]
PIPELINES = [
    snippet for snippet in YAML if re.search(r"^sources:", snippet.text, re.MULTILINE) and snippet not in CLUSTERS
]
CARDS = [snippet for snippet in YAML if re.search(r"^family:", snippet.text, re.MULTILINE)]
PYTHON = [snippet for snippet in ALL if snippet.language in ("python", "py")]


MAX_WORDS = 1200
MAX_PAGES = 65
MAX_SITE_WORDS = 55_000
OPTIONS_OF = {  # the pages that have every option of a stage
    "email": ["email.md"],
}
SHARED = {  # with other emitters: emitters.md has them
    "email": {
        "send",
        "labels",
        "every",
        "on_change",
        "when",
        "crops",
        "spool",
        "required",
        "timeout",
        "drain",
        "drain_timeout",
    }
}


def test_pages_and_snippets_are_collected():
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md", "docs/rules.md"} <= set(NAMES)
    assert len(PIPELINES) > 5
    assert len(YAML) > 20
    assert len(PARTS) > 10
    assert CARDS
    assert PYTHON


def test_every_link_and_anchor_resolves():
    assert {name: links for name in NAMES if (links := broken(name))} == {}


def test_every_block_of_code_ends():
    assert [name for name in NAMES if re.search("```|~~~", FENCE.sub("", text_of(name)))] == []


@pytest.mark.parametrize("snippet", PIPELINES, ids=str)
def test_every_pipeline_passes_check(snippet, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    for variable in VARIABLE.findall(snippet.text):
        monkeypatch.setenv(variable, "given")
    for other in snippets(snippet.page):  # files that the page itself shows, such as a plugin
        if named := re.match(r"# ((?:plugins|models)/[\w/-]+\.(?:py|yaml))\n", other.text):
            (tmp_path / named[1]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / named[1]).write_text(other.text, encoding="utf-8")
    if "best.onnx" in snippet.text:  # the reader's own network
        shutil.copy(ROOT / "models" / "demo.onnx", tmp_path / "best.onnx")
        (tmp_path / "labels.txt").write_text("car\nperson\nbike\n")
    if "model: auto" in snippet.text:  # which would be downloaded
        shipped_as_default(tmp_path)
    if "visit.mp4" in snippet.text:  # the reader's own video
        shutil.copy(ROOT / "samples" / "street.mp4", tmp_path / "visit.mp4")
    if "live/gate.m3u8" in snippet.text:  # what another pipeline of the page writes
        (tmp_path / "live").mkdir()
        shutil.copy(ROOT / "samples" / "street.mp4", tmp_path / "live" / "gate.m3u8")
    path = tmp_path / "pipeline.yaml"
    text = snippet.text
    if not re.search(r"^stages:", text, re.MULTILINE):
        text += "\nstages:\n  jsonl: {path: 'out/{source}.jsonl'}\n"
    path.write_text(text, encoding="utf-8")
    config = read(path)
    assert check(config).sources
    assert config.warnings == []


def stages_of(snippet):
    """The stages that a part of a pipeline shows, by id; none for another YAML."""
    document = yaml.load(snippet.text, Loader=yaml.CSafeLoader)
    if not isinstance(document, dict) or "sources" in document:
        return {}
    stage_names = set(default_registry().names())
    stages = document.get("stages", document)
    stages = (
        {id_: {} if stage_options is None else stage_options for id_, stage_options in stages.items()}
        if isinstance(stages, dict)
        else {}
    )
    fits = all(
        isinstance(stage_options, dict) and stage_options.get("stage", id_) in stage_names
        for id_, stage_options in stages.items()
    )
    return stages if fits else {}


PARTS = [snippet for snippet in YAML if stages_of(snippet)]


ELSEWHERE = re.compile(  # what a page explains in other places
    r"\.from: there is no stage|there is no (model )?card |there is no file \S+\.onnx|there is no plugin file"
    r"|the key '\w+' is missing|for a family of a plugin"
)


@pytest.mark.parametrize("snippet", PARTS, ids=str)
def test_the_stages_of_every_part_of_a_pipeline_have_valid_options(snippet, monkeypatch):
    monkeypatch.chdir(ROOT)
    for variable in VARIABLE.findall(snippet.text):
        monkeypatch.setenv(variable, "given")
    whole = re.search(r"^stages:", snippet.text, re.MULTILINE)
    text = snippet.text if whole else "stages:\n" + textwrap.indent(snippet.text, "  ")
    config = read_text(f"sources: {{street: 'test://'}}\n{text}")
    assert [str(problem) for problem in config.problems if not ELSEWHERE.search(problem.text)] == []


@pytest.mark.parametrize("snippet", CARDS, ids=str)
def test_the_keys_of_every_model_card_are_valid(snippet, tmp_path):
    for name in re.findall(r"^labels: ([\w.-]+\.txt)$", snippet.text, re.MULTILINE):
        (tmp_path / name).write_text("car\n")
    root, problems = load(snippet.text, str(snippet))
    read_keys(root, tmp_path, problems)
    assert [str(problem) for problem in problems if not ELSEWHERE.search(problem.text)] == []


def test_all_yaml_parses():
    assert [str(snippet) for snippet in YAML if not yaml.safe_load(snippet.text)] == []


def test_all_python_compiles():
    for snippet in PYTHON:
        compile(snippet.text, str(snippet), "exec")


def commands_of(name):
    """The commands of streamkit on a page, in its shell blocks and in its text: the line, and the words."""
    lines = []
    for snippet in snippets(name):
        if snippet.language in ("sh", "bash", "console", "shell"):
            lines += snippet.text.replace("\\\n", " ").splitlines()
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", FENCE.sub("", text_of(name)))]
    for line in lines:
        for part in re.split(r"&&|\|\|?|;", line):
            command = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:python run\.py|streamkit) +(\S.*)", part)
            if command and "…" not in part and "..." not in part:
                words = shlex.split(re.sub(r"\s[12]?>>?(?!=).*", "", command[1]), comments=True)
                yield part.strip(), [word for word in words if word != "&"]


def parse(words):
    """Parse the words of a command as the command line does, without running it."""
    command = cli
    context = None
    if words == ["--version"]:  # asks for the installed package
        return
    try:
        while isinstance(command, click.Group):
            context = command.make_context(command.name, list(words), parent=context)
            _, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        command.make_context(command.name, list(words), parent=context)
    except click.exceptions.Exit:  # --help
        pass
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # a file of the reader
            raise


def test_every_command_is_accepted_by_the_command_line():
    wrong = []
    for name, (line, words) in ((page, command) for page in NAMES for command in commands_of(page)):
        try:
            parse(words)
        except click.MissingParameter as error:  # text may name a command without its arguments
            if f"`{line}`" not in " ".join(text_of(name).split()):
                wrong.append(f"{name}: {line}: {error.format_message()}")
        except click.UsageError as error:
            wrong.append(f"{name}: {line}: {error.format_message()}")
    assert wrong == []


def test_an_invalid_command_is_detected():
    assert sum(len(list(commands_of(name))) for name in NAMES) > 60
    parse(["serve", "pipeline.yaml", "--port", "0"])
    for words in (["srve", "a.yaml"], ["serve", "a.yaml", "--prt", "0"], ["serve", "a.yaml", "--port", "x"], ["check"]):
        with pytest.raises(click.UsageError):
            parse(words)


def test_no_page_is_too_long_to_read():
    """Pages that code makes, such as reports of soaks, may be longer."""
    words = {name: len(text_of(name).split()) for name in NAMES if not name.startswith("docs/soaks/")}
    too_long = {name: count for name, count in words.items() if count > MAX_WORDS}
    assert too_long == {}, f"the limit is {MAX_WORDS} words: split these pages by task"


def test_the_site_is_small_enough_to_know():
    pages = [name for name in NAMES if name.startswith("docs/") and not name.startswith(site_hooks().NOTES)]
    words = sum(len(text_of(name).split()) for name in pages)
    assert len(pages) <= MAX_PAGES, f"{len(pages)} pages: extend or merge a page instead of adding one"
    assert words <= MAX_SITE_WORDS, f"{words} words: shorten as much as you add"


def test_the_site_leaves_out_notes_of_contributors():
    excluded = re.search(r"^exclude_docs: \|\n((?:  .*\n)+)", text_of("mkdocs.yml"), re.MULTILINE)[1].split()
    folders = {f"docs/{line.strip('/').removesuffix('*.md').strip('/')}/" for line in excluded if line.startswith("/")}
    assert folders == set(site_hooks().NOTES)


def test_the_skill_of_coding_agents_is_short_and_says_when_it_is_used():
    text = text_of("docs/skills/streamkit-pipelines/SKILL.md")
    _, head, body = text.split("---\n", 2)
    described = yaml.safe_load(head)
    assert described["name"] == "streamkit-pipelines"
    assert described["description"]
    assert len(body.split()) <= 600


def test_headings_have_the_anchors_that_github_gives_them(monkeypatch):
    page = '# A & B\n\n## `of:` objects, *when*\n\n## Same\n## Same\n```sh\n# no heading\n```\n<a id="by-hand"></a>\n'
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: page)
    assert anchors("tests/no-page.md") == {"a--b", "of-objects-when", "same", "same-1", "by-hand"}


@pytest.mark.parametrize("stage", OPTIONS_OF)
def test_every_option_is_on_the_stage_s_pages(stage):
    text = "".join(text_of(f"docs/{page}") for page in OPTIONS_OF[stage])
    named = set(re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (.*?) \|", text, re.MULTILINE))))
    kind = default_registry().get(stage)
    assert {option.name for option in options(kind)} - named - SHARED.get(stage, set()) == set()
